"""A private server whose kernels are of the tests' own Python environment, and clients with nothing between them and the wire."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "api"))
import conftest_api  # noqa: E402
from client import Client  # noqa: E402
from wire import Wire  # noqa: E402

BUILD = conftest_api.BUILD
PYTHON = os.environ.get("CARREL_KERNEL_PYTHON", BUILD / "venv-kernel" / "bin" / "python")
wait_for, free_port, Server = conftest_api.wait_for, conftest_api.free_port, conftest_api.Server


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


def token(server, identity, **more):
    made = Client(server.socket).post("/v1/tokens", {"identity": identity, **more})
    assert made.status == 201, made.body
    return Client(("127.0.0.1", server.port), made.json["token"])


@pytest.fixture(scope="session")
def alice(server):
    return token(server, "alice")


@pytest.fixture(scope="session")
def bob(server):
    return token(server, "bob")


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
