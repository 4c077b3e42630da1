"""A private server for the whole run: its own state, its own keeper, one unix socket and one TCP port."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from client import Client

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", pathlib.Path(__file__).parents[2] / "build"))


def wait_for(what, deadline_s=10, every_s=0.02):
    """Asks again until it is true; what it was is the result."""
    end = time.monotonic() + deadline_s
    while True:
        result = what()
        if result or time.monotonic() > end:
            return result
        time.sleep(every_s)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, *options):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-api-"))
        self.folder.chmod(0o755)
        self.port = free_port()
        self.socket = str(self.folder / "api.sock")
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [BUILD / "carrel-server", "serve", "--listen", f"127.0.0.1:{self.port}", "--socket", self.socket, "--state", self.folder / "state",
             "--run", self.folder / "run", "--set", "templates.python.pool=off", *options], stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            assert wait_for(self.is_ready), self.log_text()
        except BaseException:
            self.stop()
            raise

    def is_ready(self):
        assert self.process.poll() is None, self.log_text()
        try:
            return Client(self.socket).get("/readyz").status == 200
        except OSError:
            return False

    def log_text(self):
        return (self.folder / "log").read_text()

    def front_pid(self):
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            if b"front" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return int(child)
        raise LookupError("there is no front")

    def front_bytes(self):
        for line in pathlib.Path(f"/proc/{self.front_pid()}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server():
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    s = Server("--set", "limits.memory=16G")
    yield s
    s.stop()


@pytest.fixture(scope="session")
def admin(server):
    """Root over the unix socket."""
    return Client(server.socket)


def token(server, admin, identity, **more):
    made = admin.post("/v1/tokens", {"identity": identity, **more})
    assert made.status == 201, made.body
    return Client(("127.0.0.1", server.port), made.json["token"])


@pytest.fixture(scope="session")
def alice(server, admin):
    return token(server, admin, "alice")


@pytest.fixture(scope="session")
def bob(server, admin):
    return token(server, admin, "bob")


@pytest.fixture
def make_box(alice):
    """Makes boxes for alice that are gone after the test."""
    made = []

    def make(client=alice, **body):
        answer = client.post("/v1/boxes", body)
        assert answer.status == 201, answer.body
        made.append((client, answer.json["id"]))
        return answer.json

    yield make
    for client, box in made:
        client.delete(f"/v1/boxes/{box}")


@pytest.fixture
def box(make_box):
    """The path of a small box of alice's."""
    return "/v1/boxes/" + make_box(limits={"memory": "256M", "pids": 64, "disk": "128M"})["id"]


@pytest.fixture
def run(alice, box):
    """Runs a shell line in the box and gives the answer."""
    def run(line, **more):
        answer = alice.post(box + "/exec", {"shell": line, **more})
        assert answer.status == 200, answer.body
        return answer.json
    return run


@pytest.fixture(scope="session")
def openapi(admin):
    return json.loads(admin.get("/openapi.json").body)
