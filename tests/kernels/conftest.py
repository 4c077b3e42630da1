"""Servers with kernels. Most tests use a kernel of their own (fake.py) that is quick to start and does on the link what the test says."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import tempfile

import pytest

from support import BUILD
from support.server import Server, limits

HERE = pathlib.Path(__file__).parent
os.umask(0o022)           # boxes read what is made here
KERNEL_PYTHON = os.environ.get("KERNEL_PYTHON", str(BUILD / "venv-kernel/bin/python"))


class Kernels:
    """A box and what can be run in it."""

    def __init__(self, client, box):
        self.client, self.box, self.path = client, box, "/v1/boxes/" + box

    def run(self, code, status=200, **more):
        answer = self.client.post(self.path + "/run", {"code": code, **more})
        assert answer.status == status, answer.body
        return answer.json

    def open(self, code, **more):
        return self.client.open("POST", self.path + "/run", {"code": code, **more}, {"Accept": "application/x-ndjson"})

    def stream(self, code, **more):
        response = self.open(code, **more)
        try:
            assert response.status == 200, response.read()
            return [json.loads(line) for line in response]
        finally:
            response.connection.close()

    def vanish(self, code, **more):
        """Sends the code, waits for its first line, and goes away."""
        response = self.open(code, **more)
        line = json.loads(response.readline())
        response.connection.sock.close() if response.connection.sock else None
        response.close()
        response.connection.close()
        return line

    def kernel(self, context="default"):
        answer = self.client.get(f"{self.path}/kernels/{context}")
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, what, body=None, context="default"):
        return self.client.post(f"{self.path}/kernels/{context}/{what}", body)


@pytest.fixture(scope="session")
def fake_guest():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-kernels-"))
    folder.chmod(0o755)
    (folder / "guest").mkdir()
    shutil.copy(HERE / "fake.py", folder / "guest/carrel_kernel")
    yield folder / "guest"
    shutil.rmtree(folder)


def start_server(guest, *options):
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    return Server("--set", "limits.memory=16G", *options, variables={"CARREL_GUEST": str(guest)})


@pytest.fixture(scope="session")
def server(fake_guest):
    s = start_server(fake_guest, "--set", "templates.python.python=/usr/bin/python3", "--set", "templates.python.pool=off")
    yield s
    s.stop()


@pytest.fixture(scope="session")
def admin(server):
    return server.admin


@pytest.fixture(scope="session")
def alice(server):
    return server.token("alice")


@pytest.fixture(scope="session")
def bob(server):
    return server.token("bob")


@pytest.fixture
def make(alice):
    """Makes boxes with the fake kernel."""
    made = []

    def make(client=alice, **body):
        body["limits"] = limits(**body.get("limits", {"memory": "256M", "pids": 64}))
        answer = client.post("/v1/boxes", {"template": "python", **body})
        assert answer.status == 201, answer.body
        made.append((client, answer.json["id"]))
        return Kernels(client, answer.json["id"])

    yield make
    for client, box in made:
        client.delete(f"/v1/boxes/{box}")


@pytest.fixture
def box(make):
    return make()


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture(scope="session")
def real_server():
    """With IPython."""
    if not os.path.exists(KERNEL_PYTHON):
        pytest.skip("there is no Python with ipykernel; 'make venv-kernel' makes one")
    s = start_server(BUILD / "guest", "--set", f"templates.python.python={KERNEL_PYTHON}", "--set", "templates.python.pool=off")
    yield s
    s.stop()


@pytest.fixture
def warm():
    """With IPython and a zygote; kernels are parked."""
    if not os.path.exists(KERNEL_PYTHON):
        pytest.skip("there is no Python with ipykernel; 'make venv-kernel' makes one")
    s = start_server(BUILD / "guest", "--set", f"templates.python.python={KERNEL_PYTHON}", "--set", "templates.python.pool=1")
    yield s.admin
    s.stop()


@pytest.fixture(scope="module")
def real(real_server):
    client = real_server.admin
    answer = client.post("/v1/boxes", {"template": "python", "limits": limits(memory="1G", pids=128)})
    assert answer.status == 201, answer.body
    yield Kernels(client, answer.json["id"])
    client.delete("/v1/boxes/" + answer.json["id"])
