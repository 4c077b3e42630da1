"""Kernels of a cluster, without one: objects, reasons, errors; and a real ipykernel behind a pod that only the test knows."""
import asyncio
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.ports import free_port
from support.waiting import wait_for

import carrel
from carrel import pybox
from carrel.pybox import kube
from carrel.pybox.cluster import PORTS, Cluster, Place, kernel_body, why_ended, why_waiting


def container(body):
    return body["spec"]["template"]["spec"]["containers"][0]


def test_variables_become_fields_of_the_pod():
    body = kernel_body("id-1", "jovyan-id-1", {
        "KERNEL_IMAGE": "mine:1", "KERNEL_NAMESPACE": "ns", "KERNEL_WORKING_DIR": "/work", "KERNEL_MEMORY": "1Gi", "KERNEL_CPUS_LIMIT": "2", "FOO": "bar",
        "KERNEL_VOLUMES": json.dumps([{"name": "v", "emptyDir": {}}]), "KERNEL_VOLUME_MOUNTS": json.dumps([{"name": "v", "mountPath": "/v"}])})
    main = container(body)
    assert (main["image"], main["workingDir"], main["resources"]) == ("mine:1", "/work", {"requests": {"memory": "1Gi"}, "limits": {"cpu": "2"}})
    assert main["volumeMounts"] == [{"name": "v", "mountPath": "/v"}] and body["spec"]["template"]["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    plain = {e["name"]: e.get("value") for e in main["env"]}
    assert plain["FOO"] == "bar" and plain["KERNEL_ID"] == "id-1" and "KERNEL_IMAGE" not in plain and "KERNEL_VOLUMES" not in plain
    assert body["metadata"]["labels"] == {"jupyter.org/kernel-id": "id-1"}


def test_the_message_key_is_not_in_the_object():
    (key,) = [e for e in container(kernel_body("id-1", "jovyan-id-1", {}))["env"] if e["name"] == "KERNEL_KEY"]
    assert key == {"name": "KERNEL_KEY", "valueFrom": {"secretKeyRef": {"name": "jovyan-id-1-key", "key": "key"}}}


def test_a_pod_of_a_kernel_holds_no_token_and_no_privilege():
    body = kernel_body("id-1", "n", {})
    assert body["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert container(body)["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_volumes_that_are_no_list_are_refused_by_name():
    with pytest.raises(carrel.InvalidRequest, match="KERNEL_VOLUMES must be a JSON list"):
        kernel_body("id", "n", {"KERNEL_VOLUMES": "no"})


def pod(phase="Running", terminated=None, waiting=None, reason=None, conditions=()):
    state = SimpleNamespace(terminated=terminated and SimpleNamespace(**terminated), waiting=waiting and SimpleNamespace(**waiting))
    status = SimpleNamespace(phase=phase, reason=reason, message=None, container_statuses=[SimpleNamespace(state=state)],
                             conditions=[SimpleNamespace(**c) for c in conditions])
    return SimpleNamespace(metadata=SimpleNamespace(name="p"), status=status)


@pytest.mark.parametrize("what, code, said", [
    ({"terminated": {"reason": "OOMKilled", "exit_code": 137, "message": None}}, "oom", "OOMKilled"),
    ({"terminated": {"reason": "Error", "exit_code": 3, "message": None}}, "exit", "exit code 3"),
    ({"phase": "Failed", "reason": "Evicted"}, "evicted", "Evicted"),
])
def test_the_end_of_a_pod_has_its_reason(what, code, said):
    died = why_ended(pod(**what))
    assert died.code == code and said in str(died)


def test_a_pod_that_runs_has_not_ended():
    assert why_ended(pod()) is None


@pytest.mark.parametrize("what, said, hopeless", [
    ({"waiting": {"reason": "ErrImageNeverPull", "message": "no image"}}, "ErrImageNeverPull: no image", True),
    ({"waiting": {"reason": "ImagePullBackOff", "message": None}}, "ImagePullBackOff", False),
    ({"phase": "Pending", "conditions": [{"status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}, "Unschedulable: 0/1 nodes", False),
])
def test_what_a_pod_waits_for_is_told(what, said, hopeless):
    assert why_waiting(pod(**what)) == (said, hopeless)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A kubeconfig for a port without a server."""
    file = tmp_path / "config"
    file.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}))
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return file


def test_an_api_server_that_is_not_there_is_one_clear_error(config):
    with pytest.raises(carrel.Unavailable, match=r"cannot look for kernels: the API server at http://127.0.0.1:1 does not answer"):
        pybox.KubePyBoxManager().start("id-1")


def test_kubeconfig_may_be_set_after_the_package_was_imported(config, monkeypatch):
    import kubernetes.config  # noqa: F401
    other = config.with_name("other")
    other.write_text(config.read_text().replace("127.0.0.1:1", "127.0.0.1:2"))
    monkeypatch.setenv("KUBECONFIG", str(other))
    with pytest.raises(carrel.Unavailable, match="the API server at http://127.0.0.1:2 does not answer"):
        pybox.KubePyBoxManager().start("id-1")


def test_a_placeholder_for_variables_is_refused(config):
    with pytest.raises(TypeError, match="kernel_env is a mapping"):
        pybox.KubePyBoxManager(kernel_env="YOUR_KERNEL_ENV_DICT")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(carrel.Unsupported, match=r"carrel\[kube\]"):
        Cluster()


class FakeCluster:
    """The one pod of the test."""

    def __init__(self, process):
        self.process = process
        self.deleted = False

    def pod(self, name, namespace):
        if self.deleted:
            return None
        status = self.process.poll()
        it = pod(terminated=None if status is None else {"reason": "OOMKilled" if status == -signal.SIGKILL else "Error", "exit_code": status, "message": None})
        it.metadata.deletion_timestamp = None
        return it

    def delete(self, name, namespace):
        self.deleted = True
        return True


@pytest.fixture
def box(monkeypatch):
    monkeypatch.setattr("carrel.pybox.cell.LOOK_AFTER", 0.5)
    key = secrets.token_hex(16)
    connection = {p: free_port() for p in PORTS}
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "connection.json")
        file.write_text(json.dumps({**connection, "ip": "127.0.0.1", "key": key, "transport": "tcp", "signature_scheme": "hmac-sha256"}))
        process = subprocess.Popen([sys.executable, "-m", "ipykernel_launcher", "-f", str(file)], cwd=directory, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": directory})
        it = kube.KubePyBox(Place("id-1", "n", "default", connection, key, "127.0.0.1"), FakeCluster(process), direct=True)
        try:
            it.wait_ready(60)
            yield it
        finally:
            it.close()
            process.kill()
            process.wait()


def test_code_runs_in_a_kernel_that_speaks_zeromq(box):
    out = box.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\n6 * 7")
    assert out.data == [{"text/plain": "a\n"}, {"text/plain": "b\n"}, {"text/plain": "42"}] and out.error is None
    assert box.run("1 / 0").error.ename == "ZeroDivisionError"


def test_code_that_runs_too_long_is_interrupted_and_the_state_survives(box):
    box.run("kept = 7")
    with pytest.raises(TimeoutError, match="was interrupted"):
        box.run("while True: pass", timeout=1)
    assert box.run("kept").data == [{"text/plain": "7"}]


def test_the_death_of_a_kernel_is_told_with_its_reason(box):
    killer = threading.Timer(0.5, box._cluster.process.kill)
    killer.start()
    with pytest.raises(carrel.KernelDied, match="OOMKilled") as caught:
        box.run("import time; time.sleep(60)")
    assert caught.value.code == "oom"
    with pytest.raises(carrel.KernelDied):
        box.run("1")


def test_a_kernel_that_was_deleted_is_gone(box):
    box._cluster.process.kill()
    box._cluster.deleted = True
    with pytest.raises(carrel.KernelDied) as caught:
        box.run("1")
    assert caught.value.code == "gone"


def test_cancelling_interrupts_the_code(box):
    thread = ThreadPoolExecutor(1)
    it = kube.AsyncKubePyBox(box, thread)

    async def go():
        mark = pathlib.Path(tempfile.gettempdir(), f"carrel-kube-{os.getpid()}")
        cell = asyncio.ensure_future(it.run(f"open({str(mark)!r}, 'w').close()\nimport time\ntime.sleep(600)"))
        await asyncio.to_thread(wait_for, mark.exists, "the cell has begun", 30)
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell
        mark.unlink()
        return await it.run("6 * 7", timeout=30)

    assert asyncio.run(go()).data == [{"text/plain": "42"}]
    thread.shutdown()
