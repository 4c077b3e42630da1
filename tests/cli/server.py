"""A server of the tests' own: private socket, state and run directory, ended by its pid."""
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CARREL = pathlib.Path(os.environ.get("CARREL", REPOSITORY / "build/carrel"))
USER = "carreltest"
DEADLINE = 60         # of what must come; a slow machine may take its time


def programs():
    """The programs where every user can run them."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-cli-"))
    place.chmod(0o755)
    for name in ("carrel", "carrel-server"):
        shutil.copy(CARREL.parent / name, place / name)
        (place / name).chmod(0o755)
    return place


def user_command(user):
    """How to run something as somebody else; with an environment that is that user's."""
    return ["runuser", "-u", user, "--", "env", "-u", "XDG_RUNTIME_DIR", f"HOME=/home/{user}"] if user else []


def wait_for(condition, what, seconds=DEADLINE):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")


def free_port():
    """One below those that the kernel gives to outgoing connections: none of them takes it before it is used."""
    while True:
        port = random.randrange(10240, 32768)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def make_user():
    """An ordinary user; others who test here may be making the same one."""
    wait_for(lambda: not subprocess.run(["id", USER], capture_output=True).returncode
             or not subprocess.run(["useradd", "--create-home", USER], capture_output=True).returncode, f"there is a user {USER}")


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    def __init__(self, place, user=None, options=()):
        self.place = place
        self.user = user
        self.options = options
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="carrel-srv-"))
        self.directory.chmod(0o755)
        if user:
            shutil.chown(self.directory, user)
        self.socket = str(self.directory / "api.sock")
        self.url = "unix:" + self.socket
        self.process = None
        self.start()

    def start(self):
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*user_command(self.user), self.place / "carrel", "serve", "--socket", self.socket, "--state", self.directory / "state",
                 "--run", self.directory / "run", "--set", "templates.python.pool=off", *self.options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self.ready, "the server is ready")

    def ready(self):
        assert self.process.poll() is None, self.log()
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def log(self):
        return (self.directory / "log").read_text()

    def request(self, method, path, body=None, headers=None):
        connection = Connection(self.socket)
        try:
            connection.request(method, path, body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
                               headers=headers or {})
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        return response.status, json.loads(data) if data else None

    def pid_of(self, word):
        """The pid of the front or of the keeper, below what was started here."""
        todo = [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                todo += children(pid)
            except OSError:
                continue
            if len(words) > 1 and words[1] == word.encode():
                return pid
        return None

    def kill_front(self):
        pid = wait_for(lambda: self.pid_of("front"), "there is a front")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.pid_of("front") not in (None, pid) and self.ready(), "another front is ready")

    def carrel(self, *words, user=None, data=None, timeout=DEADLINE, environment=None, text=True):
        """Runs a command of the client against this server."""
        line = [*user_command(user), "env", f"CARREL_URL={self.url}", *[f"{k}={v}" for k, v in (environment or {}).items()],
                self.place / "carrel", *words]
        if isinstance(data, str) and not text:
            data = data.encode()
        return subprocess.run(list(map(str, line)), capture_output=True, text=text, timeout=timeout,
                              **({"input": data} if data is not None else {"stdin": subprocess.DEVNULL}))

    def start_carrel(self, *words, **options):
        return subprocess.Popen([str(self.place / "carrel"), *map(str, words)], env={**os.environ, "CARREL_URL": self.url}, **options)

    def clear(self):
        for box in self.request("GET", "/v1/boxes?all=true&limit=1000")[1]["boxes"]:
            self.request("DELETE", f"/v1/boxes/{box['id']}")

    def end(self):
        supervisor = self.process.pid
        if self.user:       # runuser and env are before it
            supervisor = self.pid_of("serve") or supervisor
        if self.process.poll() is None:
            os.kill(supervisor, signal.SIGTERM)
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        shutil.rmtree(self.directory, ignore_errors=True)
