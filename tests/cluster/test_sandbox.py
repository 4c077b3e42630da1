"""Sandboxes on a real kubelet."""
import json
import subprocess
import time

import pytest
from conftest import HERE
from rig.api import wait_for


def sandbox(name, namespace, version="v1beta1", **spec):
    pod = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sleep", "100000"]}]}
    return {"apiVersion": f"agents.x-k8s.io/{version}", "kind": "Sandbox", "metadata": {"name": name, "namespace": namespace},
            "spec": {"podTemplate": {"metadata": {"labels": {"app": name}}, "spec": pod}, **spec}}


def wait_ready(kubectl, namespace, name, value="true"):
    kubectl("wait", "-n", namespace, f"--for=condition=Ready={value}", f"sandbox/{name}", "--timeout=60s")


def conditions(kubectl, namespace, name):
    status = kubectl.get("sandbox", name, "-n", namespace)["status"]
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_a_sandbox_becomes_a_ready_pod(controller, namespace, version):
    began = time.monotonic()
    controller.apply(sandbox("box", namespace, version))
    wait_ready(controller, namespace, "box")
    print(f"{version}: Ready after {time.monotonic() - began:.2f} s")
    pod = controller.get("pod", "box", "-n", namespace)
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Sandbox" and pod["metadata"]["labels"]["app"] == "box"
    assert conditions(controller, namespace, "box")["Ready"] == ("True", "DependenciesReady", "Pod is Ready")


def test_suspend_keeps_the_volume_and_resume_finds_it(controller, namespace):
    claim = {"metadata": {"name": "home"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}}
    box = sandbox("box", namespace, volumeClaimTemplates=[claim])
    box["spec"]["podTemplate"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "home", "mountPath": "/home"}]
    controller.apply(box)
    wait_ready(controller, namespace, "box")
    controller("exec", "-n", namespace, "box", "--", "sh", "-c", "echo kept >/home/file")
    controller("patch", "-n", namespace, "sandbox/box", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}')
    controller("wait", "-n", namespace, "--for=condition=Suspended", "sandbox/box", "--timeout=60s")
    assert controller.api.find(f"/api/v1/namespaces/{namespace}/pods/box") is None
    controller("patch", "-n", namespace, "sandbox/box", "--type=merge", "-p", '{"spec":{"operatingMode":"Running"}}')
    wait_ready(controller, namespace, "box")
    assert controller("exec", "-n", namespace, "box", "--", "cat", "/home/file") == "kept\n"


def test_scale_to_nothing_suspends(controller, namespace):
    controller.apply(sandbox("box", namespace))
    wait_ready(controller, namespace, "box")
    controller("scale", "-n", namespace, "--replicas=0", "sandboxes.v1alpha1.agents.x-k8s.io/box")
    controller("wait", "-n", namespace, "--for=condition=Suspended", "sandbox/box", "--timeout=60s")
    controller("scale", "-n", namespace, "--replicas=1", "sandboxes.v1alpha1.agents.x-k8s.io/box")
    wait_ready(controller, namespace, "box")


def test_a_deleted_pod_is_made_anew(controller, namespace):
    controller.apply(sandbox("box", namespace))
    wait_ready(controller, namespace, "box")
    first = controller.get("pod", "box", "-n", namespace)["metadata"]["uid"]
    controller("delete", "pod", "box", "-n", namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/box"
    wait_for("another Pod", 60, lambda: controller.api.get(path)["metadata"]["uid"] != first)
    wait_ready(controller, namespace, "box")


def test_its_service_has_a_name(controller, namespace, cluster):
    box = sandbox("box", namespace, service=True)
    box["spec"]["podTemplate"]["spec"]["containers"][0].update(
        command=["httpd", "-f", "-p", "8080", "-h", "/etc"], ports=[{"containerPort": 8080}], readinessProbe={"tcpSocket": {"port": 8080}, "periodSeconds": 1})
    controller.apply(box)
    wait_ready(controller, namespace, "box")
    assert conditions(controller, namespace, "box")["Ready"] == ("True", "DependenciesReady", "Pod is Ready; Service Exists")
    name = controller.get("sandbox", "box", "-n", namespace)["status"]["serviceFQDN"]
    assert name == f"box.{namespace}.svc.cluster.local"
    ask = f"import urllib.request; print(urllib.request.urlopen('http://{name}:8080/passwd', timeout=10).read().decode())"
    done = subprocess.run([HERE / "cluster", "run", "--name", cluster.name, "python3", "-c", ask], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("root:"), done.stderr


@pytest.mark.parametrize("spec, message", [(None, "spec: Required value"), ({}, "spec.podTemplate: Required value"),
                                           ({"podTemplate": {"spec": {"containers": "none"}}}, "spec.podTemplate.spec.containers")])
def test_what_is_left_out_is_refused_by_name(controller, namespace, spec, message):
    said = controller("create", "-n", namespace, "-f", "-", fails=True, text=json.dumps(
        {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": "bad"}, **({} if spec is None else {"spec": spec})}))
    assert message in said
    assert controller.get("sandbox", "-n", namespace)["items"] == []
