"""An API server of the tests: just enough of Kubernetes for the controller, and able to lie.

Objects live in memory; every change has a version and goes to the watches. It has a kubelet (Pods run and become Ready),
a garbage collector (what its owner leaves behind is deleted) and the protection of volume claims in use. A fault is a
function that is asked before each answer and may say what goes wrong with it.
"""
import asyncio
import copy
import json
import ssl
import threading
import time
import urllib.parse
import uuid

CORE = {"pods": "Pod", "services": "Service", "persistentvolumeclaims": "PersistentVolumeClaim", "events": "Event",
        "namespaces": "Namespace"}
GROUPS = {("agents.x-k8s.io", "v1beta1"): {"sandboxes": "Sandbox"}, ("jupyter.org", "v1"): {"kernels": "Kernel"},
          ("extensions.agents.x-k8s.io", "v1beta1"): {"sandboxtemplates": "SandboxTemplate", "sandboxclaims": "SandboxClaim",
                                                      "sandboxwarmpools": "SandboxWarmPool"},
          ("networking.k8s.io", "v1"): {"networkpolicies": "NetworkPolicy"},
          ("coordination.k8s.io", "v1"): {"leases": "Lease"},
          ("rbac.authorization.k8s.io", "v1"): {"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding"},
          ("apiextensions.k8s.io", "v1"): {"customresourcedefinitions": "CustomResourceDefinition"}}
HAS_STATUS = {"sandboxes", "kernels", "pods", "sandboxclaims", "sandboxwarmpools"}
FAULTS = ["close", "close-after", "half", "409", "410", "410-inside", "429", "500", "late", "slow", "twice"]


class Refusal(Exception):
    def __init__(self, code, reason, message, **details):
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details

    def body(self):
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(self),
                "reason": self.reason, "code": self.code, "details": self.details}


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def merge(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class Store:
    """The objects and their history. Everything happens in the server's own thread."""

    def __init__(self):
        self.objects = {}           # (resource, namespace, name) -> object
        self.version = 100
        self.history = []           # (version, resource, type, object)
        self.oldest = 0             # versions before it are forgotten
        self.watchers = set()
        self.two_pods = []          # owners that had two Pods at once
        self.two_claims = []        # Sandboxes that went from one claim to another
        self.writes = []            # (verb, resource, name, who)
        self.kubelet = True
        self.quota = None           # a message: no Pod may be created
        self.refuse = {}            # (verb, resource) -> Refusal
        self.pod_grace = 0          # seconds until a deleted Pod is gone; None: never by itself

    def record(self, kind, resource, obj):
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        event = (self.version, resource, kind, copy.deepcopy(obj))
        self.history.append(event)
        for w in list(self.watchers):
            w.put_nowait(event)

    def find(self, resource, namespace, name):
        found = self.objects.get((resource, namespace, name))
        if found is None:
            raise Refusal(404, "NotFound", '%s "%s" not found' % (resource, name), name=name, kind=resource)
        return found

    def create(self, resource, kind, namespace, obj):
        meta = obj.setdefault("metadata", {})
        name = meta.get("name")
        if (resource, namespace, name) in self.objects:
            raise Refusal(409, "AlreadyExists", '%s "%s" already exists' % (resource, name), name=name, kind=resource)
        if resource == "pods" and self.quota:
            raise Refusal(403, "Forbidden", 'pods "%s" is forbidden: %s' % (name, self.quota))
        if resource == "pods" and not obj.get("spec", {}).get("containers"):
            raise Refusal(422, "Invalid", 'Pod "%s" is invalid: spec.containers: Required value' % name)
        meta.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=now(), generation=1)
        if resource == "pods":
            obj["status"] = {"phase": "Pending"}
        elif resource in HAS_STATUS:
            obj.pop("status", None)
        self.objects[resource, namespace, name] = obj
        self.record("ADDED", resource, obj)
        if resource == "pods":
            self.check_pods(obj)
        return obj

    def check_pods(self, pod):
        owner = self.owner(pod)
        if owner is None:
            return
        mine = [o for (r, _, _), o in self.objects.items() if r == "pods" and self.owner(o) == owner]
        if len(mine) > 1:
            self.two_pods.append((owner, [p["metadata"]["name"] for p in mine]))

    @staticmethod
    def owner(obj):
        for ref in obj["metadata"].get("ownerReferences", []):
            if ref.get("controller"):
                return ref["uid"]
        return None

    def patch(self, resource, namespace, name, body, subresource):
        old = self.find(resource, namespace, name)
        wanted = {} if isinstance(body, list) else body.get("metadata", {})
        if wanted.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise Refusal(409, "Conflict", "Precondition failed: UID in precondition")
        wanted = wanted.get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", 'Operation cannot be fulfilled on %s "%s": the object has been modified'
                          % (resource, name))
        new = self.replace(old, body) if isinstance(body, list) else merge(old, body)
        new["metadata"] = dict(new["metadata"], uid=old["metadata"]["uid"])
        if subresource == "status":
            new = dict(old, status=new.get("status", {}))
            new["metadata"] = dict(old["metadata"])
        elif resource in HAS_STATUS:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        new["metadata"].pop("resourceVersion", None)
        before = {k: v for k, v in old["metadata"].items() if k != "resourceVersion"}
        if dict(new, metadata=before) == dict(old, metadata=before) and new["metadata"] == before:
            return old      # no change, no version
        before, after = self.claim_of(old), self.claim_of(new)
        if before and after and before != after:
            self.two_claims.append((name, before, after))
        self.objects[resource, namespace, name] = new
        self.record("MODIFIED", resource, new)
        return new

    @staticmethod
    def replace(old, steps):
        """Of JSON patches, only what the controller sends: a version that is tested, and a member that is replaced."""
        new = copy.deepcopy(old)
        for step in steps:
            *path, last = step["path"].strip("/").split("/")
            at = new
            for part in path:
                at = at[part]
            if step["op"] == "test" and at.get(last) != step["value"]:
                raise Refusal(422, "Invalid", "the test of a patch failed")
            if step["op"] == "replace":
                at[last] = step["value"]
        return new

    @staticmethod
    def claim_of(obj):
        return next((r["uid"] for r in obj["metadata"].get("ownerReferences", [])
                     if r.get("controller") and r["kind"] == "SandboxClaim"), None)

    def delete(self, resource, namespace, name, options):
        obj = self.find(resource, namespace, name)
        for member, wanted in (options or {}).get("preconditions", {}).items():
            if wanted != obj["metadata"][member]:
                raise Refusal(409, "Conflict", "the %s in the precondition (%s) does not match" % (member, wanted))
        in_use = resource == "persistentvolumeclaims" and self.is_used(namespace, name)
        stays = obj["metadata"].get("finalizers") or in_use or (resource == "pods" and self.pod_grace != 0)
        if not stays:
            self.remove(resource, namespace, name)
            obj = copy.deepcopy(obj)
            obj["metadata"]["deletionTimestamp"] = now()
            return obj
        if "deletionTimestamp" not in obj["metadata"]:
            obj = copy.deepcopy(obj)
            obj["metadata"]["deletionTimestamp"] = now()
            self.objects[resource, namespace, name] = obj
            self.record("MODIFIED", resource, obj)
            if resource == "pods" and self.pod_grace:
                asyncio.get_running_loop().call_later(self.pod_grace, self.remove, resource, namespace, name,
                                                      obj["metadata"]["uid"])
        return obj

    def is_used(self, namespace, claim):
        for (resource, ns, _), pod in self.objects.items():
            if resource == "pods" and ns == namespace:
                for v in pod.get("spec", {}).get("volumes", []):
                    if v.get("persistentVolumeClaim", {}).get("claimName") == claim:
                        return True
        return False

    def remove(self, resource, namespace, name, uid=None):
        obj = self.objects.get((resource, namespace, name))
        if obj is None or (uid and obj["metadata"]["uid"] != uid):
            return
        del self.objects[resource, namespace, name]
        self.record("DELETED", resource, obj)
        for key, other in list(self.objects.items()):
            if any(r["uid"] == obj["metadata"]["uid"] for r in other["metadata"].get("ownerReferences", [])):
                if key in self.objects:
                    self.delete(*key, None)
        for key, claim in list(self.objects.items()):
            if key[0] == "persistentvolumeclaims" and "deletionTimestamp" in claim["metadata"] \
                    and not self.is_used(key[1], key[2]):
                self.remove(*key)

    def collect(self):
        """The garbage collector: what was created when its owner was gone already."""
        uids = {o["metadata"]["uid"] for o in self.objects.values()}
        for key, obj in list(self.objects.items()):
            if key in self.objects and "deletionTimestamp" not in obj["metadata"] and self.owner(obj) and self.owner(obj) not in uids:
                self.delete(*key, None)

    def run_pods(self):
        """The kubelet: one step for every Pod that is not where it should be."""
        for (resource, namespace, name), pod in list(self.objects.items()):
            if resource != "pods" or not self.kubelet or "deletionTimestamp" in pod["metadata"]:
                continue
            if pod.get("status", {}).get("phase") != "Pending":
                continue
            spec = pod["spec"]
            claims = [v["persistentVolumeClaim"]["claimName"] for v in spec.get("volumes", []) if "persistentVolumeClaim" in v]
            if any(("persistentvolumeclaims", namespace, c) not in self.objects for c in claims):
                continue
            pod = copy.deepcopy(pod)
            pod["spec"]["nodeName"] = "node"
            ends = spec["containers"][0].get("command")
            phase = {"exit 0": "Succeeded", "exit 1": "Failed"}.get(ends[-1] if ends else "", "Running")
            good = "True" if phase == "Running" else "False"
            pod["status"] = {"phase": phase, "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}], "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()},
                {"type": "Ready", "status": good, "lastTransitionTime": now()}],
                "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": now()}}}]}
            self.objects[resource, namespace, name] = pod
            self.record("MODIFIED", resource, pod)


class Server:
    """`with Server() as s:` serves on a port of its own. s.kubeconfig is a path-free text; call(f) runs f in its thread."""

    def __init__(self, tls=None, token=None):
        self.store, self.fault, self.token, self.tls = Store(), None, token, tls
        self.requests, self.page_max, self.open_watches = [], None, 0
        self.responses, self.absent, self.bookmarks = 0, set(), True
        self.loop = asyncio.new_event_loop()
        self.started = threading.Event()
        self.writers = set()

    def __enter__(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        assert self.started.wait(10)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.create_task, self.end())
        self.thread.join(10)

    async def end(self):
        self.server.close()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for t in others:
            t.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.stop()

    def run(self):
        asyncio.set_event_loop(self.loop)
        context = None
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=context, limit=1 << 22))
        self.port = self.server.sockets[0].getsockname()[1]
        self.loop.create_task(self.tick())
        self.started.set()
        self.loop.run_forever()
        self.loop.close()

    async def tick(self):
        while True:
            self.store.run_pods()
            self.store.collect()
            await asyncio.sleep(0.005)

    def call(self, function, *args):
        """Runs it in the server's thread and gives what it gives."""
        result = {}
        done = threading.Event()

        def go():
            try:
                result["value"] = function(*args)
            except BaseException as e:      # pylint: disable=broad-except
                result["error"] = e
            done.set()

        self.loop.call_soon_threadsafe(go)
        assert done.wait(30), "the server's thread is stuck"
        if "error" in result:
            raise result["error"]
        return result["value"]

    def cut(self):
        """Every connection is closed now."""
        self.call(lambda: [w.transport.abort() for w in list(self.writers)])

    # ---- HTTP ----

    async def serve(self, reader, writer):
        self.writers.add(writer)
        try:
            while await self.exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        fields = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
        data = await reader.readexactly(int(fields.get("content-length", 0)))
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = json.loads(data) if data else None
        self.requests.append((method, url.path, query, body))
        if self.token and fields.get("authorization") != "Bearer " + self.token:
            return await self.answer(writer, 401, Refusal(401, "Unauthorized", "Unauthorized").body())
        fault = None
        if self.fault:
            self.responses += 1
            fault = self.fault(self.responses, method, url.path, query)
        if fault == "close":
            return False
        if fault in ("403", "409", "429", "429-60", "500"):
            code, after = int(fault[:3]), fault[4:] or "1"
            refusal = Refusal(code, {403: "Forbidden", 409: "Conflict", 429: "TooManyRequests", 500: "InternalError"}[code], "a fault of the tests")
            return await self.answer(writer, code, refusal.body(), {"Retry-After": after} if code == 429 else {})
        if fault == "410" and method == "GET":
            return await self.answer(writer, 410, Refusal(410, "Expired", "too old resource version").body())
        if fault == "late":
            await asyncio.sleep(0.3)
        if query.get("watch"):
            return await self.watch(writer, url.path, query, fault)
        try:
            code, result = self.handle(method, url.path, query, body, fields)
            if fault == "twice":
                try:
                    self.handle(method, url.path, query, body, fields)
                except Refusal:
                    pass
        except Refusal as e:
            code, result = e.code, e.body()
        if fault == "close-after":
            return False
        if fault == "slow":         # watches tell of it long before the answer does
            result = copy.deepcopy(result)
            await asyncio.sleep(0.3)
        return await self.answer(writer, code, result, half=fault == "half")

    async def answer(self, writer, code, body, fields=None, half=False):
        data = json.dumps(body).encode()
        head = "HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (code, len(data))
        head += "".join("%s: %s\r\n" % f for f in (fields or {}).items()) + "\r\n"
        writer.write(head.encode() + (data[:len(data) // 2] if half else data))
        await writer.drain()
        return not half

    def parse(self, path):
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            group, rest = CORE, parts[2:]
        else:
            group, rest = GROUPS.get((parts[1], parts[2]), {}), parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource = rest[0]
        if resource not in group or resource in self.absent:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        return resource, group[resource], namespace, rest[1] if len(rest) > 1 else None, rest[2] if len(rest) > 2 else None

    def handle(self, method, path, query, body, fields):
        resource, kind, namespace, name, subresource = self.parse(path)
        s = self.store
        verb = {"GET": "get" if name else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
        if (verb, resource) in s.refuse:
            raise s.refuse[verb, resource]
        if method != "GET":
            s.writes.append((verb, resource + ("/" + subresource if subresource else ""),
                             name or body["metadata"]["name"], fields.get("user-agent")))
        if verb == "list":
            return 200, self.list(resource, kind, namespace, query)
        if verb == "get":
            return 200, s.find(resource, namespace, name)
        if verb == "create":
            return 201, s.create(resource, kind, namespace, dict(body, kind=kind))
        if verb == "patch":
            kind_of_patch = "json-patch" if isinstance(body, list) else "merge-patch"
            assert fields["content-type"] == "application/%s+json" % kind_of_patch
            return 200, s.patch(resource, namespace, name, body, subresource)
        return 200, s.delete(resource, namespace, name, body)

    def list(self, resource, kind, namespace, query):
        keys = sorted(k for k in self.store.objects if k[0] == resource and namespace in ("", k[1]))
        meta = {"resourceVersion": str(self.store.version)}
        limit = min(int(query.get("limit", 500)), self.page_max or 500)
        if "continue" in query:
            version, after = query["continue"].split("|", 1)
            if int(version) < self.store.oldest:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
            meta["resourceVersion"] = version
            keys = [k for k in keys if "%s/%s" % k[1:] > after]
        if len(keys) > limit:
            keys = keys[:limit]
            meta["continue"] = "%s|%s/%s" % ((meta["resourceVersion"],) + keys[-1][1:])
        return {"kind": kind + "List", "apiVersion": "v1", "metadata": meta, "items": [self.store.objects[k] for k in keys]}

    async def watch(self, writer, path, query, fault):
        try:
            resource, kind, _, _, _ = self.parse(path)
        except Refusal as e:
            return await self.answer(writer, e.code, e.body())
        since = int(query["resourceVersion"])
        if since < self.store.oldest:
            fault = fault or "410-inside"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if fault in ("410-inside", "410"):
            error = Refusal(410, "Expired", "too old resource version").body()
            self.line(writer, {"type": "ERROR", "object": error})
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        events = asyncio.Queue()
        self.store.watchers.add(events)
        self.open_watches += 1
        for event in self.store.history:
            if event[0] > since:
                events.put_nowait(event)
        sent = 0
        try:
            while not writer.is_closing():
                try:
                    version, what, kind_of_event, obj = await asyncio.wait_for(events.get(), 1)
                except asyncio.TimeoutError:
                    if not self.bookmarks:
                        continue
                    self.line(writer, {"type": "BOOKMARK", "object": {"kind": kind, "metadata": {
                        "resourceVersion": str(self.store.version)}}})
                    await writer.drain()
                    continue
                if what != resource or version <= since:
                    continue
                data = {"type": kind_of_event, "object": obj}
                if fault == "half":
                    text = json.dumps(data).encode()
                    writer.write(b"%x\r\n%s" % (len(text) + 1, text[:len(text) // 2]))
                    await writer.drain()
                    return False
                self.line(writer, data)
                if fault == "twice":
                    self.line(writer, data)
                await writer.drain()
                sent += 1
                if fault == "close-after" and sent == 1:
                    return False
        finally:
            self.store.watchers.discard(events)
            self.open_watches -= 1
        return False

    @staticmethod
    def line(writer, data):
        text = json.dumps(data).encode() + b"\n"
        writer.write(b"%x\r\n%s\r\n" % (len(text), text))

    # ---- for the tests ----

    def kubeconfig(self, **more):
        cluster = {"server": "http%s://127.0.0.1:%d" % ("s" if self.tls else "", self.port)}
        cluster.update(more)
        user = {"token": self.token} if self.token else {}
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x",
                           "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
                           "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]})

    def get(self, resource, name, namespace="default"):
        return self.call(lambda: copy.deepcopy(self.store.objects.get((resource, namespace, name))))

    def all(self, resource):
        return self.call(lambda: [copy.deepcopy(o) for k, o in self.store.objects.items() if k[0] == resource])

    def apply(self, resource, obj, namespace="default"):
        kind = obj.get("kind")
        return self.call(lambda: copy.deepcopy(self.store.create(resource, kind, namespace, copy.deepcopy(obj))))

    def patch(self, resource, name, body, subresource=None, namespace="default"):
        return self.call(lambda: copy.deepcopy(self.store.patch(resource, namespace, name, body, subresource)))

    def delete(self, resource, name, namespace="default"):
        return self.call(lambda: self.store.delete(resource, namespace, name, None))

    def uninstall(self, resource):
        """The definition is deleted, and its objects with it; watches end before they have told."""
        def go():
            self.absent.add(resource)
            for key in [k for k in self.store.objects if k[0] == resource]:
                del self.store.objects[key]
        self.cut()
        self.call(go)

    def forget(self):
        """Versions so far can no longer be watched from, and every watch ends."""
        def go():
            self.store.oldest = self.store.version + 1
            self.store.version += 1
            self.store.history.clear()
        self.call(go)
        self.cut()
