"""Changing over from agent-sandbox to Carrel's controller and back, as docs/controller.md says it: what runs goes on running, nothing is lost."""
import json
import subprocess

import pytest
from conftest import HERE, MANIFEST, TREE, wait_for_definitions
from rig.api import wait_for
from rig.layout import BIN, CACHE
from test_sandbox import conditions, sandbox, wait_ready

ORIGINAL = CACHE / "src/agent-sandbox/k8s"
NAMESPACE = "agent-sandbox-system"
PLACEHOLDER = "ko://sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller"
IMAGE = "agent-sandbox-controller:original"


@pytest.fixture(scope="module")
def original(kubectl, cluster, tmp_path_factory):
    """The original's files, with an image of its program."""
    folder = tmp_path_factory.mktemp("original")
    subprocess.run([TREE / "tools/make-image", folder / "image.tar", "--name", IMAGE, "--program", BIN / "agent-sandbox-controller",
                    "--entrypoint", "/agent-sandbox-controller"], check=True)
    subprocess.run([HERE / "cluster", "load", "--name", cluster.name, folder / "image.tar"], check=True)
    written = (ORIGINAL / "controller.yaml").read_text()
    assert PLACEHOLDER in written
    (folder / "controller.yaml").write_text(written.replace(PLACEHOLDER, IMAGE))
    yield [folder / "controller.yaml", ORIGINAL / "rbac.generated.yaml", ORIGINAL / "crds/agents.x-k8s.io_sandboxes.yaml"]
    install(kubectl, MANIFEST)


def install(kubectl, *files):
    """Ends whichever controller is there, and starts the one of these files."""
    if kubectl.api.find(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/agent-sandbox-controller"):
        kubectl("-n", NAMESPACE, "scale", "deployment/agent-sandbox-controller", "--replicas=0")
        kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", "app=agent-sandbox-controller", "--timeout=60s")
    for file in files:
        kubectl("apply", "-f", str(file))
    kubectl("-n", NAMESPACE, "scale", "deployment/agent-sandbox-controller", "--replicas=1")
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment/agent-sandbox-controller", "--timeout=90s")
    wait_for_definitions(kubectl)


def act(kubectl, namespace, name):
    """A new Sandbox is Ready: the controller holds the Lease and has seen everything that was there before."""
    kubectl.apply(sandbox(name, namespace))
    wait_ready(kubectl, namespace, name)


def seen(kubectl, namespace, names):
    """The state that must be the same before and after. An unchanged version proves that nothing has written the object."""
    found = {}
    for kind in ("pods", "persistentvolumeclaims", "services", "sandboxes.v1beta1.agents.x-k8s.io"):
        for item in kubectl.get(kind, "-n", namespace)["items"]:
            meta = item["metadata"]
            if not any(meta["name"] == name or meta["name"].endswith(f"-{name}") for name in names):
                continue
            containers = [(c["containerID"], c["restartCount"]) for c in item["status"].get("containerStatuses", [])]
            found[kind.split(".")[0], meta["name"]] = (meta["uid"], containers, meta["ownerReferences"][0]["uid"] if "ownerReferences" in meta else None,
                                                       meta["resourceVersion"] if kind != "sandboxes.v1beta1.agents.x-k8s.io" else item["spec"])
    return found


def states(kubectl, namespace, names):
    """The conditions' states and reasons, without the times and words."""
    return {name: {kind: value[:2] for kind, value in conditions(kubectl, namespace, name).items()} for name in names}


def with_volume(name, namespace, **spec):
    claim = {"metadata": {"name": "home"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}}
    box = sandbox(name, namespace, volumeClaimTemplates=[claim], **spec)
    box["spec"]["podTemplate"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "home", "mountPath": "/home"}]
    return box


def holder(kubectl):
    lease, = [item for item in kubectl.get("leases", "-n", NAMESPACE)["items"] if item["metadata"]["name"].startswith("a3317529")]
    return lease["spec"]["holderIdentity"]


def test_there_and_back_no_pod_restarts_and_nothing_is_lost(kubectl, original, namespace):
    install(kubectl, *original)
    kubectl.apply(sandbox("plain", namespace), sandbox("served", namespace, service=True), with_volume("kept", namespace),
                  with_volume("asleep", namespace), sandbox("scaled", namespace))
    names = ["plain", "served", "kept", "asleep"]
    for name in [*names, "scaled"]:
        wait_ready(kubectl, namespace, name)
    kubectl("exec", "-n", namespace, "kept", "--", "sh", "-c", "echo kept >/home/file")
    kubectl("patch", "-n", namespace, "sandbox/asleep", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}')
    kubectl("wait", "-n", namespace, "--for=condition=Suspended", "sandbox/asleep", "--timeout=60s")
    wait_for("its Pod to go", 60, lambda: kubectl.api.find(f"/api/v1/namespaces/{namespace}/pods/asleep") is None)
    before, were = seen(kubectl, namespace, [*names, "scaled"]), states(kubectl, namespace, names)
    assert {("pods", "plain"), ("pods", "scaled"), ("services", "served"), ("persistentvolumeclaims", "home-kept"),
            ("persistentvolumeclaims", "home-asleep"), ("sandboxes", "asleep")} <= set(before)
    first = holder(kubectl)

    install(kubectl, MANIFEST)
    act(kubectl, namespace, "by-ours")
    assert holder(kubectl) != first
    assert seen(kubectl, namespace, [*names, "scaled"]) == before
    assert states(kubectl, namespace, names) == were
    kubectl("scale", "-n", namespace, "--replicas=0", "sandboxes.v1alpha1.agents.x-k8s.io/scaled")
    kubectl("wait", "-n", namespace, "--for=condition=Suspended", "sandbox/scaled", "--timeout=60s")
    assert kubectl.get("sandboxes.v1beta1.agents.x-k8s.io", "scaled", "-n", namespace)["spec"]["operatingMode"] == "Suspended"

    install(kubectl, *original)
    act(kubectl, namespace, "by-theirs")
    assert {key: value for key, value in seen(kubectl, namespace, names).items()} == {k: v for k, v in before.items() if k[1] != "scaled"}
    assert states(kubectl, namespace, names) == were
    # What was scaled to nothing sleeps on under the original, which knows no replicas, and wakes up there.
    scaled = kubectl.get("sandbox", "scaled", "-n", namespace)
    assert (scaled["metadata"]["uid"], scaled["spec"]["operatingMode"]) == (before["sandboxes", "scaled"][0], "Suspended")
    assert kubectl.api.find(f"/api/v1/namespaces/{namespace}/pods/scaled") is None
    for name in ("scaled", "asleep"):
        kubectl("patch", "-n", namespace, f"sandbox/{name}", "--type=merge", "-p", json.dumps({"spec": {"operatingMode": "Running"}}))
        wait_ready(kubectl, namespace, name)
    assert kubectl("exec", "-n", namespace, "kept", "--", "cat", "/home/file") == "kept\n"


# ---- all four kinds ----

@pytest.fixture(scope="module")
def extended(original, kubectl, tmp_path_factory):
    """The original's files with its extensions."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("controller.yaml", "extensions.controller.yaml"):
        (folder / name).write_text((ORIGINAL / name).read_text().replace(PLACEHOLDER, IMAGE))
    return [folder / "controller.yaml", ORIGINAL / "rbac.generated.yaml", ORIGINAL / "extensions-rbac.generated.yaml", ORIGINAL / "extensions.yaml",
            *sorted((ORIGINAL / "crds").glob("*.yaml")), folder / "extensions.controller.yaml"]


def all_of(kubectl, namespace):
    """Owners of objects, and containers. None of it may change."""
    found = {}
    for kind in ("sandboxtemplates", "sandboxwarmpools", "sandboxclaims", "sandboxes.agents.x-k8s.io", "pods", "networkpolicies"):
        for item in kubectl.get(kind, "-n", namespace)["items"]:
            meta = item["metadata"]
            containers = [(c["containerID"], c["restartCount"]) for c in item.get("status", {}).get("containerStatuses", [])] if kind == "pods" else None
            owner = [r["uid"] for r in meta.get("ownerReferences", [])]
            status = item.get("status", {}) if kind in ("sandboxclaims", "sandboxwarmpools") else None
            if kind == "sandboxclaims":
                status = (status["sandbox"]["name"], [(c["type"], c["status"], c["reason"]) for c in status["conditions"]])
            found[kind, meta["name"]] = (meta["uid"], owner, containers, status)
    return found


def claimed(kubectl, namespace, name):
    kubectl.apply({"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": name, "namespace": namespace},
                   "spec": {"warmPoolRef": {"name": "pool"}}})
    kubectl("wait", "-n", namespace, "--for=condition=Ready", f"sandboxclaim/{name}", "--timeout=60s")
    return kubectl.get("sandboxclaim", name, "-n", namespace)["status"]["sandbox"]["name"]


def settle(kubectl, namespace):
    wait_for("the pool is full", 60, lambda: kubectl.get("swp", "pool", "-n", namespace).get("status", {}).get("readyReplicas") == 2)


@pytest.mark.parametrize("strategy", ["OnReplenish", "Recreate"])
def test_pools_and_claims_go_over_and_back_without_a_pod_restarting(kubectl, extended, namespace, strategy):
    pod = sandbox("x", namespace)["spec"]["podTemplate"]
    pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": "0.5Gi", "cpu": "0.5"}}      # quantities that are kept in other units
    group = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1"}
    install(kubectl, *extended)
    kubectl.apply({**group, "kind": "SandboxTemplate", "metadata": {"name": "template", "namespace": namespace}, "spec": {"podTemplate": pod}},
                  {**group, "kind": "SandboxWarmPool", "metadata": {"name": "pool", "namespace": namespace},
                   "spec": {"replicas": 2, "sandboxTemplateRef": {"name": "template"}, "updateStrategy": {"type": strategy}}})
    settle(kubectl, namespace)
    claimed(kubectl, namespace, "theirs")
    settle(kubectl, namespace)
    before = all_of(kubectl, namespace)

    install(kubectl, MANIFEST)
    act(kubectl, namespace, "by-ours")
    after = all_of(kubectl, namespace)
    assert {key: after.get(key) for key in before} == before
    waiting = {key[1] for key, value in before.items() if key[0] == "sandboxes.agents.x-k8s.io" and before["sandboxwarmpools", "pool"][0] in value[1]}
    assert claimed(kubectl, namespace, "ours") in waiting           # one that the original made
    settle(kubectl, namespace)
    before = all_of(kubectl, namespace)

    install(kubectl, *extended)
    act(kubectl, namespace, "by-theirs")
    after = all_of(kubectl, namespace)
    assert {key: after.get(key) for key in before} == before
    waiting = {key[1] for key, value in before.items() if key[0] == "sandboxes.agents.x-k8s.io" and before["sandboxwarmpools", "pool"][0] in value[1]}
    assert claimed(kubectl, namespace, "again") in waiting
