"""A private server whose kernels are of the tests' own Python environment, and clients with nothing between them and the wire."""
import os

import pytest

from support import BUILD
from support.client import Client
from support.server import Server
from wire import Wire

PYTHON = os.environ.get("CARREL_KERNEL_PYTHON", BUILD / "venv-kernel" / "bin" / "python")


def serve(*options):
    """One that lets anonymous callers in, has a second kernelspec, and a third one that cannot work."""
    return Server("--set", "allow_anonymous=true", "--set", f"templates.python.python={PYTHON}", "--set", "templates.python.pool=2",
                  "--set", f"templates.small.python={PYTHON}", "--set", "templates.small.imports=json", "--set", "templates.small.pool=0",
                  "--set", "templates.broken.python=/bin/false", "--set", "templates.broken.pool=0", "--set", "templates.broken.language=bash",
                  "--set", "pool.size=off", "--set", "limits.memory=16G", *options)


@pytest.fixture(scope="session")
def server():
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    s = serve("--set", "jupyter.client_envs=FLAVOUR", "--set", "origins=https://lab.example.org")
    yield s
    s.stop()


@pytest.fixture(scope="session")
def alice(server):
    return server.token("alice")


@pytest.fixture(scope="session")
def bob(server):
    return server.token("bob")


@pytest.fixture(scope="session")
def anybody(server):
    return Client(("127.0.0.1", server.port))


@pytest.fixture
def make_kernel(alice):
    """Makes kernels that are gone after the test."""
    made = []

    def make(client=alice, **body):
        answer = client.post("/api/kernels", body)
        assert answer.status == 201, answer.body
        made.append((client, answer.json["id"]))
        return answer.json["id"]

    yield make
    for client, kernel in made:
        client.delete(f"/api/kernels/{kernel}")


@pytest.fixture(scope="module")
def shared_kernel(alice):
    """One for the tests that leave it as it was."""
    kernel = alice.post("/api/kernels", {}).json["id"]
    yield kernel
    alice.delete(f"/api/kernels/{kernel}")


@pytest.fixture
def connect(alice):
    """Opens channels that are closed after the test."""
    wires = []

    def connect(kernel, client=alice, **more):
        wires.append(Wire(client, kernel, **more))
        return wires[-1]

    yield connect
    for wire in wires:
        wire.close()
