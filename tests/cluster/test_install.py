"""Installing the controller, and removing it, as page 002 does it."""
import json

import pages
from conftest import MANIFEST
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


def test_removing_it_as_the_page_does_leaves_nothing(controller, namespace):
    """The page deletes the namespace and one definition; a Sandbox that still lives then goes with it."""
    for name in ("first", "left"):
        controller.apply({"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name, "namespace": namespace},
                          "spec": {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 0, "containers": [
                              {"name": "main", "image": "busybox:1.36", "command": ["sleep", "100000"]}]}}}})
        controller("wait", "-n", namespace, "--for=condition=Ready", f"sandbox/{name}", "--timeout=60s")
    # Kubernetes' garbage collector looks for new kinds every 30 s. What is gone before it knew of it leaves its Pods behind, for ever.
    controller("delete", "-n", namespace, "sandbox", "first")
    wait_for("the Pod of a deleted Sandbox to go", 120, lambda: controller.api.find(f"/api/v1/namespaces/{namespace}/pods/first") is None)
    for command in pages.commands(pages.between("002", "Remove Agent-Sandbox Controller", "Remove Kind Cluster")):
        controller.shell(command)
    api = controller.api
    wait_for("the Pod to go", 60, lambda: api.find(f"/api/v1/namespaces/{namespace}/pods/left") is None)
    for kind in ("clusterroles", "clusterrolebindings"):
        wait_for(kind, 60, lambda: api.find(f"/apis/rbac.authorization.k8s.io/v1/{kind}/agent-sandbox-controller") is None)
    controller("apply", "-f", str(MANIFEST))
    controller("-n", NAMESPACE, "rollout", "status", "deployment/agent-sandbox-controller", "--timeout=60s")
    controller("wait", "--for=condition=Established", "crd/sandboxes.agents.x-k8s.io", "--timeout=30s")
