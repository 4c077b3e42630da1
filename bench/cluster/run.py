"""usage: run.py real|kwok OURS THEIRS [--rounds N] [--many N]  Carrel's controller beside agent-sandbox's, in turn, on the running cluster.

Run it where the API server is reached directly (`cluster run`). For each controller in each round: memory with nothing to do; Sandboxes one after
the other and twenty at once, from the request to the condition Ready seen on a watch; processor time and API writes (from the audit log) per Sandbox;
the same for claims on a warm pool, whose refilling counts; with --claims, how many claims a second so many of them are, twenty at once; with
--many, memory with so many Sandboxes. Ratios are of medians over all rounds."""
import argparse
import json
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests/cluster"))
from rig.api import Api, ApiError, wait_for  # noqa: E402

NAMESPACE = "bench"
SANDBOXES = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/sandboxes"
EXTENSIONS = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/"
CLAIMS, POOLS, TEMPLATES = (EXTENSIONS + plural for plural in ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates"))
HERTZ = os.sysconf("SC_CLK_TCK")


POD = {"terminationGracePeriodSeconds": 0, "containers": [
    {"name": "main", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "100000"]}]}


def sandbox(name):
    return {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name}, "spec": {"podTemplate": {"spec": POD}}}


def extension(kind, name, **spec):
    return {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def claim(name):
    return extension("SandboxClaim", name, warmPoolRef={"name": "pool"})


class Controller:
    """One of the two, running."""

    def __init__(self, name, command, log):
        self.name, self.log = name, open(log, "ab")
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / HERTZ

    def resident_mib(self):
        text = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(30)


class Watch(threading.Thread):
    """When each object of a collection was seen Ready."""

    def __init__(self, kubeconfig, path, make):
        super().__init__(daemon=True)
        self.path, self.make = path, make
        self.api, self.ready, self.changed = Api(kubeconfig), {}, threading.Condition()
        self.start()

    def run(self):
        for _, item in self.api.changes(self.path):
            now = time.monotonic()
            conditions = item.get("status", {}).get("conditions", [])
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                with self.changed:
                    self.ready.setdefault(item["metadata"]["name"], now)
                    self.changed.notify_all()


def create(kubeconfig, watch, prefix, count, at_once):
    """Milliseconds from the request to Ready of so many objects."""
    names, took = queue.Queue(), []
    for i in range(count):
        names.put(f"{prefix}-{i}")

    def worker():
        api = Api(kubeconfig)
        while True:
            try:
                name = names.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            api.call("POST", watch.path, watch.make(name))
            with watch.changed:
                if not watch.changed.wait_for(lambda: name in watch.ready, 300):
                    raise TimeoutError(f"{name} is not Ready after 300 s")
            took.append((watch.ready[name] - began) * 1000)
    threads = [threading.Thread(target=worker) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took) != count:
        raise SystemExit(f"only {len(took)} of {count} became Ready")
    return took


def delete_all(api):
    for path in (CLAIMS, POOLS, SANDBOXES, TEMPLATES):
        api.call("DELETE", path, timeout=300)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    wait_for("Sandboxes and Pods to go", 600, lambda: not api.get(SANDBOXES + "?limit=1")["items"] and not api.get(pods + "?limit=1")["items"])


def writes(audit, offset, agent):
    """API writes by a program since an offset of the audit log."""
    count = 0
    with open(audit) as file:
        file.seek(offset)
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("userAgent", "").startswith(agent) and event["verb"] in ("create", "update", "patch", "delete") \
                    and event["objectRef"]["resource"] != "leases":
                count += 1
    return count


class Cost:
    """Processor time and writes of a controller from now on."""

    def __init__(self, controller, kubeconfig):
        self.controller, self.audit = controller, os.path.join(os.path.dirname(kubeconfig), "log/audit.log")
        self.offset, self.cpu = os.path.getsize(self.audit), controller.cpu_seconds()

    def per(self, count):
        cpu = (self.controller.cpu_seconds() - self.cpu) / count * 1000
        time.sleep(3)  # the audit log is written in batches
        return [cpu], [writes(self.audit, self.offset, self.controller.name) / count]


def measure_claims(controller, kubeconfig, given, prefix):
    """Claims on a pool that is refilled meanwhile."""
    api, watch = Api(kubeconfig), Watch(kubeconfig, CLAIMS, claim)
    api.call("POST", TEMPLATES, extension("SandboxTemplate", "template", podTemplate={"spec": POD}))
    api.call("POST", POOLS, extension("SandboxWarmPool", "pool", replicas=given.pool, sandboxTemplateRef={"name": "template"}))

    def full():
        return api.get(POOLS + "/pool").get("status", {}).get("readyReplicas") == given.pool
    wait_for("the pool", 300, full)
    create(kubeconfig, watch, f"{prefix}-v", 3, 1)
    wait_for("the pool", 300, full)
    cost, result = Cost(controller, kubeconfig), {}
    result["claim"] = create(kubeconfig, watch, f"{prefix}-c", given.claim_one, 1)
    wait_for("the pool", 300, full)
    result["claim_cpu"], result["claim_writes"] = cost.per(given.claim_one)
    result["claim20"] = create(kubeconfig, watch, f"{prefix}-d", given.claim_twenty, 20)
    if given.claims:
        wait_for("the pool", 300, full)
        cost, began = Cost(controller, kubeconfig), time.monotonic()
        create(kubeconfig, watch, f"{prefix}-e", given.claims, 20)
        result["claim_rate"] = [given.claims / (time.monotonic() - began)]
        wait_for("the pool", 300, full)
        result["claims_cpu"], result["claims_writes"] = cost.per(given.claims)
    delete_all(api)
    return result


def measure(controller, kubeconfig, given, prefix):
    api, watch = Api(kubeconfig), Watch(kubeconfig, SANDBOXES, sandbox)
    create(kubeconfig, watch, f"{prefix}-w", 3, 1)  # the first ones pay for connections
    idle = controller.resident_mib()
    cost = Cost(controller, kubeconfig)
    one = create(kubeconfig, watch, f"{prefix}-a", given.one, 1)
    twenty = create(kubeconfig, watch, f"{prefix}-b", given.twenty, 20)
    done = given.one + given.twenty
    result = {"one": one, "twenty": twenty, "idle": [idle]}
    result["cpu"], result["writes"] = cost.per(done)
    if given.many:
        create(kubeconfig, watch, f"{prefix}-m", given.many - done - 3, 40)
        result["many"] = [controller.resident_mib()]
    delete_all(api)
    return result


ROWS = [("one", "create to Ready, one by one", "ms"), ("twenty", "create to Ready, 20 at once", "ms"), ("cpu", "processor time per Sandbox", "ms"),
        ("writes", "API writes per Sandbox", ""), ("idle", "memory with none", "MiB"), ("many", "memory with many", "MiB"),
        ("claim", "warm claim to Ready, one by one", "ms"), ("claim20", "warm claim to Ready, 20 at once", "ms"),
        ("claim_cpu", "processor time per claim", "ms"), ("claim_writes", "API writes per claim", ""),
        ("claim_rate", "claims, 20 at once", "/s"), ("claims_cpu", "processor time, 20 at once", "ms"), ("claims_writes", "API writes, 20 at once", "")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["real", "kwok"])
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--claims", type=int, default=0)
    parser.add_argument("--only", choices=["sandboxes", "claims"])
    given = parser.parse_args()
    given.one, given.twenty, given.claim_one, given.claim_twenty, given.pool = (20, 40, 20, 20, 25) if given.kind == "real" else (50, 200, 40, 80, 100)
    kubeconfig = os.environ["KUBECONFIG"]
    api = Api(kubeconfig)
    try:
        api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    except ApiError as error:
        if error.code != 409:
            raise
    wait_for("ServiceAccount", 30, lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))
    common = ["--leader-elect=false", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"]
    commands = {"carrel-controller": [given.ours, "--kubeconfig", kubeconfig, *common, *(["--secure-defaults"] if given.kind == "real" else [])],
                "agent-sandbox-controller": [given.theirs, "--kubeconfig", kubeconfig, "--extensions", *common]}
    measures = [measure] * (given.only != "claims") + [measure_claims] * (given.only != "sandboxes")
    results = {name: {} for name in commands}
    for number in range(given.rounds):
        for name, command in commands.items():
            controller = Controller(name, command, f"/tmp/bench-{name}.log")
            try:
                for one in measures:
                    for key, values in one(controller, kubeconfig, given, f"{name[:6]}{number}".replace("-", "")).items():
                        results[name].setdefault(key, []).extend(values)
            finally:
                controller.stop()
    ours, theirs = results.values()
    print(f"{given.kind}, {given.rounds} rounds      carrel   agent-sandbox   ratio")
    for key, what, unit in ROWS:
        if key in ours:
            a, b = statistics.median(ours[key]), statistics.median(theirs[key])
            print(f"{what:32} {a:8.1f} {b:10.1f} {unit:4} {a / b:6.2f}")


if __name__ == "__main__":
    main()
