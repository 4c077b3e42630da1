"""Installing the controller, and removing it, as page 002 does it and as docs/cluster.md says."""
import json

import pages
import pytest
from conftest import TREE, install_controller
from rig.api import wait_for

NAMESPACE = "agent-sandbox-system"


def test_the_pages_verification_succeeds(controller):
    verify, = [line for line in pages.commands(pages.between("002", "1. Deploy", "2. Set Up")) if "wait" in line]
    assert "condition met" in controller.shell(verify)


def test_it_may_do_only_what_it_needs(controller):
    """Nothing of Secrets, nothing to run in Pods, no right to give rights."""
    who = f"--as=system:serviceaccount:{NAMESPACE}:agent-sandbox-controller"
    rights = controller("auth", "can-i", "--list", who)
    for word in ("secrets", "pods/exec", "pods/attach", "escalate", " bind", "[bind", "impersonate", "*.*"):
        assert word not in rights, f"{word} in\n{rights}"
    for right in (("get", "secrets"), ("list", "configmaps"), ("create", "pods", "--subresource=exec"), ("delete", "persistentvolumeclaims"), ("create", "clusterroles")):
        assert controller("auth", "can-i", *right, who, "-A", fails=True) is not None


def test_its_pods_have_no_privileges(controller):
    pod, = controller.get("pods", "-n", NAMESPACE, "-l", "app=agent-sandbox-controller")["items"]
    container, = pod["spec"]["containers"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and container["livenessProbe"] and container["readinessProbe"]
    assert "cpu" not in json.dumps(container["resources"])


def test_two_replicas_are_ready_and_one_acts(controller):
    controller("-n", NAMESPACE, "scale", "deployment/agent-sandbox-controller", "--replicas=2")
    controller("-n", NAMESPACE, "rollout", "status", "deployment/agent-sandbox-controller", "--timeout=60s")
    pods = controller.get("pods", "-n", NAMESPACE, "-l", "app=agent-sandbox-controller")["items"]
    leases = controller.get("leases", "-n", NAMESPACE)["items"]
    holders = {lease["spec"]["holderIdentity"].split("_")[0] for lease in leases}
    assert len(pods) == 2 and len(holders) == 1 and holders <= {pod["metadata"]["name"] for pod in pods}
    controller("-n", NAMESPACE, "scale", "deployment/agent-sandbox-controller", "--replicas=1")


def make(controller, namespace, sandboxes, kernel):
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sleep", "100000"]}]}
    objects = [{"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name, "namespace": namespace},
                "spec": {"podTemplate": {"spec": spec}}} for name in sandboxes]
    objects.append({"apiVersion": "jupyter.org/v1", "kind": "Kernel", "metadata": {"name": kernel, "namespace": namespace},
                    "spec": {"template": {"spec": spec}}})
    controller.apply(*objects)
    names = [f"sandbox/{name}" for name in sandboxes] + [f"kernel/{kernel}"]
    controller("wait", "-n", namespace, "--for=condition=Ready", *names, "--timeout=60s")
    # Kubernetes' garbage collector looks for new kinds every 30 s. What is gone before it knew of it leaves its Pods behind, for ever.
    controller("delete", "-n", namespace, "sandbox", sandboxes[0])
    wait_for("the Pod of a deleted Sandbox to go", 120, lambda: controller.api.find(f"/api/v1/namespaces/{namespace}/pods/{sandboxes[0]}") is None)


def is_role_there(api):
    return any(api.find(f"/apis/rbac.authorization.k8s.io/v1/{kind}/agent-sandbox-controller") for kind in ("clusterroles", "clusterrolebindings"))


@pytest.fixture
def removable(controller):
    """The controller that a test removes; the later tests have it again, however this one ends."""
    yield controller
    install_controller(controller)


def test_removing_it_as_the_page_does_keeps_kernels(removable, namespace):
    """The page deletes the namespace and the definition of Sandboxes. Those go, and Kernels, which it does not name, run on."""
    make(removable, namespace, ["first", "left"], "kept")
    api, pods = removable.api, f"/api/v1/namespaces/{namespace}/pods"
    before = api.find(f"{pods}/kept")["metadata"]["uid"]
    for command in pages.commands(pages.between("002", "Remove Agent-Sandbox Controller", "Remove Kind Cluster")):
        removable.shell(command)
    # The garbage collector that takes the Sandbox's Pod would take the definition, if it belonged to the namespace.
    wait_for("the Pod to go", 60, lambda: api.find(f"{pods}/left") is None)
    pod = api.find(f"{pods}/kept")
    assert pod["metadata"]["uid"] == before and "deletionTimestamp" not in pod["metadata"]
    assert removable.get("kernel", "kept", "-n", namespace)["metadata"].get("deletionTimestamp") is None
    assert "ownerReferences" not in removable.get("crd", "kernels.jupyter.org")["metadata"]
    assert is_role_there(api)


def test_removing_it_as_the_documentation_says_leaves_nothing(removable, namespace):
    make(removable, namespace, ["first", "second"], "third")
    text = (TREE / "docs/cluster.md").read_text().split("\n## Remove\n")[1].split("\n## ")[0].replace("\\\n", "")
    commands = [line.split(" # ")[0].strip() for line in text.splitlines() if line.startswith("kubectl delete ")]
    assert [" ".join(command.split()[2:4]) for command in commands] == [
        f"namespace {NAMESPACE}", "clusterrolebinding,clusterrole agent-sandbox-controller", "crd sandboxes.agents.x-k8s.io"]
    api, pods = removable.api, f"/api/v1/namespaces/{namespace}/pods"
    for command in commands[:2]:
        removable.shell(command)
    assert not is_role_there(api) and api.find(f"/api/v1/namespaces/{NAMESPACE}") is None
    assert all("deletionTimestamp" not in api.find(f"{pods}/{name}")["metadata"] for name in ("second", "third"))
    removable.shell(commands[2])
    wait_for("the Pods to go", 60, lambda: not any(api.find(f"{pods}/{name}") for name in ("second", "third")))
    assert "agents.x-k8s.io" not in removable("get", "crd", "-o", "name") and "jupyter.org" not in removable("get", "crd", "-o", "name")
