"""Many Sandboxes on a kwok cluster of their own, while the controller and the API server are killed: nothing is doubled, nothing is lost."""
import collections
import contextlib
import http.client
import itertools
import json
import os
import random
import subprocess
import threading
import time

import pytest
from conftest import BUILD, HERE, MANIFEST, Kubectl, wait_for_definitions
from rig.api import Api, ApiError, wait_for
from rig.layout import Cluster

COUNT = int(os.environ.get("CARREL_STORM") or 500)
MANY = int(os.environ.get("CARREL_MANY") or 10000)
SEED = int(os.environ.get("CARREL_SEED") or 17)
FAILURES = (OSError, http.client.HTTPException, ApiError)
HEARD = (409, 404, 422)          # answers of a server that runs; others come from one that starts or ends


@contextlib.contextmanager
def kwok(name, **environment):
    """A cluster with our definitions and without our Deployment: the tests start the controller themselves."""
    try:
        subprocess.run([HERE / "cluster", "up", "--fake", "--name", name], check=True, env={**os.environ, **environment})
        one = Cluster(name, fake=True)
        kubectl = Kubectl(one)
        kubectl("apply", "-f", str(MANIFEST))
        kubectl("delete", "-n", "agent-sandbox-system", "deployment", "agent-sandbox-controller")
        wait_for_definitions(kubectl)
        yield one
    finally:
        if not os.environ.get("CARREL_CLUSTER_KEEP"):
            subprocess.run([HERE / "cluster", "down", "--name", name], check=True)


@pytest.fixture(scope="module")
def fake():
    with kwok("storm") as one:
        yield one


class Controller:
    """Carrel's controller; killed, it is started again at once."""

    def __init__(self, cluster, log):
        self.command = [HERE / "cluster", "run", "--name", cluster.name, BUILD / "carrel-controller", "--kubeconfig", cluster.kubeconfig,
                        "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"]
        self.log, self.kills = open(log, "ab"), 0
        self.start()

    def start(self):
        # `cluster run` becomes the program: the pid is its own.
        self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def end(self):
        self.child.kill()
        self.child.wait()

    def kill(self):
        self.end()
        self.kills += 1
        self.start()


class Seen(threading.Thread):
    """The uids of all objects of a kind that were ever there, by name."""

    def __init__(self, kubeconfig, path):
        super().__init__(daemon=True)
        self.api, self.path, self.uids = Api(kubeconfig), path, collections.defaultdict(set)
        self.start()

    def run(self):
        for _, item in self.api.changes(self.path):
            self.uids[item["metadata"]["name"]].add(item["metadata"]["uid"])


def sandbox(name, claims=False, service=False):
    spec = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox:1.36"}]}}}
    if claims:
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "home"}, "spec": {"accessModes": ["ReadWriteOnce"],
                                                                              "resources": {"requests": {"storage": "1Mi"}}}}]
    if service:
        spec["service"] = True
    return {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec}


class User(threading.Thread):
    """A user who makes, changes and deletes Sandboxes of her own, and knows what must exist at the end."""

    def __init__(self, kubeconfig, path, names, random_seed, did):
        super().__init__(daemon=True)
        self.api, self.path, self.names, self.random, self.did = Api(kubeconfig), path, names, random.Random(random_seed), did
        self.wanted, self.lives, self.wakes, self.error = {}, collections.Counter(), collections.Counter(), None

    def call(self, method, path, body=None, content="application/json"):
        """Until the server has answered; True if it succeeded."""
        deadline = time.monotonic() + 120
        while True:
            try:
                self.api.call(method, path, body, content)
                self.did()
                return True
            except FAILURES as error:
                if getattr(error, "code", None) in HEARD:
                    return False
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def create(self, name):
        # 409: it was done, and the answer lost; or the one before is still ending.
        body = sandbox(name, claims=name.endswith("3"), service=name.endswith("7"))
        wait_for(f"{name} can be made", 120, lambda: self.call("POST", self.path, body) or "deletionTimestamp" not in self.api.get(f"{self.path}/{name}")["metadata"])
        self.lives[name] += 1
        self.wanted[name] = "Running"

    def mode(self, name, mode):
        self.call("PATCH", f"{self.path}/{name}", {"spec": {"operatingMode": mode}}, "application/merge-patch+json")
        self.wakes[name] += mode == "Running"
        self.wanted[name] = mode

    def delete(self, name):
        self.call("DELETE", f"{self.path}/{name}")
        self.wanted[name] = None

    def run(self):
        try:
            for name in self.names:
                self.create(name)
            for _ in range(2 * len(self.names)):
                name = self.random.choice(self.names)
                if self.wanted[name] is None:
                    self.create(name)
                else:
                    self.random.choice([lambda: self.mode(name, "Suspended"), lambda: self.mode(name, "Running"), lambda: self.delete(name)])()
        except Exception as error:  # noqa: BLE001 (the test says it)
            self.error = error


def ready(item):
    return {c["type"]: c["status"] for c in item.get("status", {}).get("conditions", [])}.get("Ready") == "True"


def what_is_wrong(api, paths, wanted):
    """Where the cluster is not as it must be: a list, empty if all is well."""
    boxes, pods, claims, services = ({i["metadata"]["name"]: i for i in api.get(path)["items"]} for path in paths)
    wrong = [f"{name}: {name in boxes and 'is there' or 'is lost'}, wanted {state}" for name, state in wanted.items() if (state is None) == (name in boxes)]
    for name, box in boxes.items():
        pod = pods.pop(name, None)
        if (wanted[name] == "Running") != (pod is not None):
            wrong.append(f"{name}: wanted {wanted[name]}, Pod {pod and pod['metadata']['uid']}")
        elif ready(box) != (wanted[name] == "Running"):
            wrong.append(f"{name}: wanted {wanted[name]}, {json.dumps(box.get('status'))}")
        for kind, found in (("Pod", pod), ("claim", claims.pop(f"home-{name}", None)), ("Service", services.pop(name, None))):
            if found and found["metadata"]["ownerReferences"][0]["uid"] != box["metadata"]["uid"]:
                wrong.append(f"{name}: its {kind} is another's")
            if not found and wanted[name] == "Running" and (kind == "Pod" or (kind, name[-1]) in (("claim", "3"), ("Service", "7"))):
                wrong.append(f"{name}: has no {kind}")
    return wrong + [f"{kind} {name} is nobody's" for kind, left in (("Pod", pods), ("claim", claims), ("Service", services)) for name in left]


def make_namespace(api, name):
    api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_for("ServiceAccount", 30, lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    core = f"/api/v1/namespaces/{name}"
    return f"/apis/agents.x-k8s.io/v1beta1/namespaces/{name}/sandboxes", f"{core}/pods", f"{core}/persistentvolumeclaims", f"{core}/services"


def storm(fake, log, count, kill_controller, kill_server):
    """Users who make, change and delete so many Sandboxes, while controller and API server are killed after every so many requests."""
    api = Api(fake.kubeconfig)
    paths = make_namespace(api, "storm")
    seen_pods, seen_claims = Seen(fake.kubeconfig, paths[1]), Seen(fake.kubeconfig, paths[2])
    controller, counter, lock = Controller(fake, log), itertools.count(1), threading.Lock()
    killed = collections.Counter()

    def did():
        """What was done sets the pace of the killing: after so many requests, whatever the controller is doing then."""
        with lock:
            number = next(counter)
            if number % kill_controller == 0:
                controller.kill()
            if number % kill_server == 0:
                subprocess.run([HERE / "cluster", "kill", "--name", fake.name, "apiserver"], check=True)
                killed["apiserver"] += 1
    users = [User(fake.kubeconfig, paths[0], [f"s-{i}" for i in range(start, count, 5)], SEED + start, did) for start in range(5)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    try:
        assert [user.error for user in users if user.error] == []
        wanted, lives, wakes = {}, collections.Counter(), collections.Counter()
        for user in users:
            wanted.update(user.wanted)
            lives.update(user.lives)
            wakes.update(user.wakes)
        last = []

        def settled():
            last[:] = what_is_wrong(api, paths, wanted)
            return not last
        try:
            wait_for("the cluster to settle", 180, settled)
        except TimeoutError as error:
            pytest.fail(f"{error}: {len(last)} wrong: {last[:10]}")
        print(f"{collections.Counter(wanted.values())}, {next(counter) - 1} requests, {controller.kills} kills of the controller, "
              f"{killed['apiserver']} of the API server")
        assert controller.kills >= 2 * count // kill_controller and killed["apiserver"] >= 2 * count // kill_server
        # A Sandbox has a Pod for each time that it was made or woken, not more; a claim for each time that it was made.
        for name in wanted:
            assert len(seen_pods.uids[name]) <= lives[name] + wakes[name], name
            assert len(seen_claims.uids[f"home-{name}"]) <= lives[name], name
    finally:
        controller.end()
        seen_pods.api.is_over = seen_claims.api.is_over = True


def test_a_storm_doubles_nothing_and_loses_nothing(fake, tmp_path):
    storm(fake, tmp_path / "controller.log", COUNT, kill_controller=40, kill_server=300)


def test_ten_thousand_become_ready_and_a_restart_is_quick(fake, tmp_path):
    api = Api(fake.kubeconfig)
    boxes, pods, *_ = make_namespace(api, "many")
    controller = Controller(fake, tmp_path / "controller.log")
    try:
        began = time.monotonic()
        names = iter([f"m-{i}" for i in range(MANY)])
        lock = threading.Lock()

        def create():
            own = Api(fake.kubeconfig)
            while True:
                with lock:
                    name = next(names, None)
                if name is None:
                    return
                own.call("POST", boxes, sandbox(name))
        threads = [threading.Thread(target=create) for _ in range(8)]
        for thread in threads:
            thread.start()
        is_ready = set()
        for kind, item in Api(fake.kubeconfig).changes(boxes):
            if ready(item):
                is_ready.add(item["metadata"]["name"])
                if len(is_ready) == MANY:
                    break
            assert time.monotonic() - began < 1800, f"{len(is_ready)} of {MANY} are Ready"
        took = time.monotonic() - began
        memory = int(open(f"/proc/{controller.child.pid}/status").read().split("VmRSS:")[1].split()[0]) / 1024
        controller.end()
        api = Api(fake.kubeconfig)      # the server has closed the idle connection
        api.call("POST", boxes, sandbox("late"))
        began = time.monotonic()
        controller.start()
        wait_for("the first Pod after the restart", 60, lambda: api.find(f"{pods}/late"))
        first = time.monotonic() - began
        print(f"{MANY} Sandboxes Ready after {took:.0f} s ({MANY / took:.0f}/s), {memory:.0f} MiB; after a restart the first Pod after {first:.2f} s")
        listed = api.get(f"{pods}?limit=1")
        assert 1 + listed["metadata"].get("remainingItemCount", 0) == MANY + 1
    finally:
        controller.end()
