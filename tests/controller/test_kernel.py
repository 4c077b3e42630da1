"""Kernels of jupyter.org, as the old client expects them and as ours does."""
import json

from conftest import conditions
from support.waiting import wait_for


def kernel(name="alice-1", env=(), **pod):
    spec = {"containers": [{"name": "main", "image": "i", "env": list(env)}]}
    spec.update(pod)
    return {"apiVersion": "jupyter.org/v1", "kind": "Kernel", "metadata": {"name": name}, "spec": {"template": {"spec": spec}}}


def test_the_connection_is_there_before_ready(server, start):
    start()
    server.apply("kernels", kernel(env=[{"name": "KERNEL_ID", "value": "k-1"}]))
    got = wait_for(lambda: next(
        (k for k in [server.get("kernels", "alice-1")] if conditions(k).get("Ready", {}).get("status") == "True"), None), "Ready")
    notes = got["metadata"]["annotations"]
    assert notes["jupyter.org/kernel-id"] == "k-1"
    assert json.loads(notes["jupyter.org/kernel-connection-info"]) == {
        "shell_port": 52317, "iopub_port": 52318, "hb_port": 52319, "control_port": 52320, "stdin_port": 52321,
        "ip": "alice-1.default.svc.cluster.local", "key": "k-1", "transport": "tcp", "signature_scheme": "hmac-sha256",
        "kernel_name": ""}
    pod, service = server.get("pods", "alice-1"), server.get("services", "alice-1")
    env = {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"]}
    assert env["KERNEL_ID"] == "k-1" and env["KERNEL_STDIN_PORT"] == "52321" and pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["labels"] == service["spec"]["selector"] == {"jupyter.org/kernel-name": "alice-1"}
    assert [p["port"] for p in service["spec"]["ports"]] == [52317, 52318, 52319, 52320, 52321]
    assert got["status"]["readyReplicas"] == 1 and "running" in got["status"]["containerState"]
    order = server.call(lambda: [w[:2] for w in server.store.writes])
    assert order.index(("patch", "kernels")) < order.index(("patch", "kernels/status"))


def test_a_key_of_the_client_s_own_is_not_told_and_its_ports_count(server, start):
    start()
    key = {"name": "KERNEL_KEY", "valueFrom": {"secretKeyRef": {"name": "alice-1-key", "key": "key"}}}
    server.apply("kernels", kernel(env=[key, {"name": "KERNEL_SHELL_PORT", "value": "7000"}]))
    got = wait_for(lambda: next((k for k in [server.get("kernels", "alice-1")]
                                              if "jupyter.org/kernel-id" in k["metadata"].get("annotations", {})), None), "annotated")
    info = json.loads(got["metadata"]["annotations"]["jupyter.org/kernel-connection-info"])
    assert info["key"] == "" and info["shell_port"] == 7000
    assert got["metadata"]["annotations"]["jupyter.org/kernel-id"] == got["metadata"]["uid"]


def test_a_kernel_whose_pod_has_ended_well_is_culled_and_one_that_failed_stays(server, start):
    start()
    server.apply("kernels", kernel("ends", containers=[{"image": "i", "command": ["exit 0"]}]))
    server.apply("kernels", kernel("fails", containers=[{"image": "i", "command": ["exit 1"]}]))
    wait_for(lambda: server.get("kernels", "ends") is None, "culled")
    wait_for(lambda: server.get("pods", "ends") is None and server.get("services", "ends") is None, "nothing is left")
    wait_for(lambda: conditions(server.get("kernels", "fails")).get("Ready", {}).get("status") == "False", "told")


def test_a_name_that_is_taken_is_told(server, start):
    start()
    server.apply("pods", {"kind": "Pod", "metadata": {"name": "alice-1"}, "spec": {"containers": [{"name": "c"}]}})
    server.apply("kernels", kernel())
    wait_for(lambda: conditions(server.get("kernels", "alice-1")).get("Ready", {}).get("reason") == "ReconcilerError", "told")
    server.delete("pods", "alice-1")
    wait_for(lambda: conditions(server.get("kernels", "alice-1")).get("Ready", {}).get("status") == "True", "Ready")
