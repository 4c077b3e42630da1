"""A private server for the whole run: its own state, its own keeper, one unix socket and one TCP port."""
import contextlib
import http.client
import json
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from client import Client

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", pathlib.Path(__file__).parents[2] / "build"))
# CARREL_AS=NAME: the servers run as that ordinary user (it is made if it is not there), and hold what can be held without root.
USER = os.environ.get("CARREL_AS")


def wait_for(what, deadline_s=60, every_s=0.02):
    """Asks again until it is true; what it was is the result."""
    end = time.monotonic() + deadline_s
    while True:
        result = what()
        if result or time.monotonic() > end:
            return result
        time.sleep(every_s)


def free_port():
    """Below those that the kernel gives to outgoing connections, so that none takes it before the server does."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10000, max(first, 20000))
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def pytest_configure(config):
    config.addinivalue_line("markers", "cgroups: limits of memory or processes, or pausing; an ordinary user's server may have none")


def pytest_collection_modifyitems(config, items):
    if USER:
        out = [i for i in items if i.get_closest_marker("cgroups")]
        config.hook.pytest_deselected(items=out)
        items[:] = [i for i in items if i not in out]


def limits(**all):
    """Of these limits those that the server can hold: without root only the disk's."""
    return {k: v for k, v in all.items() if k == "disk" or not USER}


def make_user(name):
    """An ordinary user; others who test here may be making the same one."""
    assert wait_for(lambda: not subprocess.run(["id", name], capture_output=True).returncode
                    or not subprocess.run(["useradd", "--create-home", name], capture_output=True).returncode), f"no user {name}"
    return pwd.getpwnam(name)


def as_user(name):
    """What Popen needs to start something as that user: nothing of root's, and nothing of a session of his."""
    if not name:
        return {}
    them = make_user(name)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    return {"user": them.pw_uid, "group": them.pw_gid, "extra_groups": [], "cwd": "/",
            "env": {**environment, "HOME": them.pw_dir, "USER": name, "LOGNAME": name}}


class Server:
    def __init__(self, *options, user=USER, wait=True):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-api-"))
        self.folder.chmod(0o755)
        if user:
            make_user(user)
            shutil.chown(self.folder, user)
        self.port = free_port()
        self.socket = str(self.folder / "api.sock")
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [BUILD / "carrel-server", "serve", "--listen", f"127.0.0.1:{self.port}", "--socket", self.socket, "--state", self.folder / "state",
             "--run", self.folder / "run", "--set", "templates.python.pool=off", *options], stdout=self.log, stderr=self.log, start_new_session=True, **as_user(user))
        try:
            assert not wait or wait_for(self.is_ready), self.log_text()
        except BaseException:
            self.stop()
            raise

    def is_ready(self):
        assert self.process.poll() is None, self.log_text()
        try:
            return Client(self.socket).get("/readyz").status == 200
        except (OSError, http.client.HTTPException):        # it ends, perhaps in the middle of its answer
            return False

    def log_text(self):
        return (self.folder / "log").read_text()

    def _child(self, word):
        """The supervisor's child of that name; None while there is none. Not from .../children, which may miss some while others end."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self.process.pid and word in (folder / "cmdline").read_bytes().split(b"\0")[:2]:
                    return int(folder.name)
            except OSError:
                pass
        return None

    def front_pid(self):
        pid = wait_for(lambda: self._child(b"front"))
        assert pid, self.log_text()
        return pid

    def keeper_pid(self):
        pid = wait_for(lambda: self._child(b"keeper"))
        assert pid, self.log_text()
        return pid

    def front_bytes(self):
        for line in pathlib.Path(f"/proc/{self.front_pid()}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
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
        answer = client.post("/v1/boxes", {**body, **({"limits": limits(**body["limits"])} if "limits" in body else {})})
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
