"""A controller beside an API server of the tests."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from support.ports import free_port

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import apiserver  # noqa: E402

CONTROLLER = os.environ["CARREL_CONTROLLER"]


class Controller:
    running = []            # whatever a test has started ends with it

    def __init__(self, server, folder, *flags, kubeconfig=None, before=()):
        self.server, self.folder, self.port = server, folder, free_port()
        self.config = folder / ("kubeconfig-%d" % self.port)
        self.config.write_text(kubeconfig or server.kubeconfig())
        self.log_path = folder / ("log-%d" % self.port)
        address = "127.0.0.1:%d" % self.port
        self.args = [*before, CONTROLLER, "--kubeconfig", str(self.config), "--metrics-bind-address", address,
                     "--health-probe-bind-address", address, "--zap-log-level=debug", *flags]
        self.start()

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.args, stderr=log, stdout=log)
        Controller.running.append(self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it properly and gives its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def log(self):
        return self.log_path.read_text()


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    while Controller.running:
        process = Controller.running.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def server():
    with apiserver.Server() as s:
        yield s


@pytest.fixture
def start(server, tmp_path):
    """start(*flags): a controller; without --leader-elect it acts at once."""
    started = []

    def go(*flags, **more):
        started.append(Controller(server, tmp_path, *(flags or ("--leader-elect=false",)), **more))
        return started[-1]
    yield go
    for c in started:
        if c.process.poll() is None:
            c.kill()
    for c in started:
        text = c.log()
        assert "Sanitizer" not in text and "runtime error" not in text, text[-4000:]
    assert server.call(lambda: server.store.two_pods + server.store.two_claims) == []


EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"


def template(name="template", pod=None, **spec):
    pod = pod or {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": EXTENSIONS, "kind": "SandboxTemplate", "metadata": {"name": name}, "spec": dict({"podTemplate": pod}, **spec)}


def pool(name="pool", replicas=2, of="template", **spec):
    return {"apiVersion": EXTENSIONS, "kind": "SandboxWarmPool", "metadata": {"name": name},
            "spec": dict({"replicas": replicas, "sandboxTemplateRef": {"name": of}}, **spec)}


def claim(name="claim", of="pool", **spec):
    return {"apiVersion": EXTENSIONS, "kind": "SandboxClaim", "metadata": {"name": name}, "spec": dict({"warmPoolRef": {"name": of}}, **spec)}


def sandbox(name="box", meta=None, pod=None, **spec):
    pod = pod or {"containers": [{"name": "c", "image": "i"}]}
    template = {"spec": pod}
    if meta:
        template["metadata"] = meta
    return {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name},
            "spec": dict({"podTemplate": template, "operatingMode": "Running"}, **spec)}


def conditions(obj):
    return {c["type"]: c for c in (obj or {}).get("status", {}).get("conditions", [])}


def is_ready(server, name="box", namespace="default"):
    c = conditions(server.get("sandboxes", name, namespace)).get("Ready")
    return c and c["status"] == "True"


def ready_reason(server, name="box"):
    return conditions(server.get("sandboxes", name)).get("Ready", {}).get("reason")
