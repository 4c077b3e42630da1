"""A server of the test's own: private socket, port, state and run directory, ended by its pid."""
import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from support import BUILD, USER
from support.client import Client
from support.ports import free_port
from support.processes import descriptors, processes, resident_bytes, status_of
from support.users import as_user, make_user, user_command
from support.waiting import DEADLINE_S, wait_for

# A sanitizer's word in the log fails the test, see stop(); leaks are not looked for, because front and keeper end by a signal.
SANITIZER = "detect_leaks=0:abort_on_error=1:symbolize=0:quarantine_size_mb=4"


def limits(**all):
    """Of these limits those that the server can hold: without root only the disk's."""
    return {k: v for k, v in all.items() if k == "disk" or not USER}


class Server:
    """`place` is where its programs are, `user` whose it is (None: root's); `variables` are of its environment. Parked kernels are off, unless an option
    says otherwise: each would cost an interpreter."""

    def __init__(self, *options, user=USER, place=BUILD, program="carrel-server", state=None, ready=True, variables=None, prepare=None, folder=None, enter=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-server-", dir=folder))
        self.folder.chmod(0o755)
        self.place, self.program, self.user = place, program, user
        self.options, self.variables, self.prepare = options, variables or {}, prepare
        self.enter = list(enter)    # words that enter namespaces as root, before it becomes its user
        self.state = pathlib.Path(state) if state else self.folder / "state"
        self.socket = str(self.folder / "api.sock")
        self.url = "unix:" + self.socket
        self.port = free_port()
        self.tcp = ("127.0.0.1", self.port)
        self.admin = Client(self.socket)
        if isinstance(user, int):
            self.variables = {"HOME": str(self.folder), **self.variables}
        elif user:
            make_user(user)
        if user:
            shutil.chown(self.folder, user, user)
        self.start(ready)

    def start(self, ready=True):
        self.log = open(self.folder / "log", "ab")
        how, become = as_user(self.user, ASAN_OPTIONS=SANITIZER, **self.variables), []
        if self.enter and self.user:
            become = ["setpriv", "--reuid", str(how.pop("user")), "--regid", str(how.pop("group")), "--clear-groups"]
            how.pop("extra_groups")
        self.process = subprocess.Popen(
            [*self.enter, *become, self.place / self.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--socket", self.socket, "--state", self.state,
             "--run", self.folder / "run", "--set", "templates.python.pool=off", *self.options],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True, preexec_fn=self.prepare, **how)
        if not ready:
            return
        try:
            wait_for(self.is_ready, self.log_text)
        except BaseException:
            self.stop()
            raise

    def is_ready(self):
        assert self.process.poll() is None, self.log_text()
        try:
            return self.admin.get("/readyz").status == 200
        except (OSError, http.client.HTTPException):        # it ends, perhaps in the middle of its answer
            return False

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
            text = self.log_text()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert "Sanitizer" not in text and "runtime error" not in text, text[-20000:]

    # ---- its processes ----

    def child(self, word):
        """The supervisor's child of that name, None while there is none. What a dead keeper left behind is a child of the supervisor too, and may look
        like it: only the real one serves, in our pid namespace. Not from .../children, which may miss some while others end."""
        for pid, (parent, _) in processes().items():
            try:
                if (parent == self.process.pid and word.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
                        and len(status_of(pid)["NSpid"].split()) == len(status_of("self")["NSpid"].split())
                        and (os.geteuid() != 0 or "anon_inode:[signalfd]" in descriptors(pid))):     # which only root may see
                    return pid
            except OSError:
                pass
        return None

    def front_pid(self):
        return wait_for(lambda: self.child("front"), self.log_text)

    def keeper_pid(self):
        return wait_for(lambda: self.child("keeper"), self.log_text)

    def keeper_socket(self):
        """Of this server's state; others may have theirs in the same folder."""
        (path,) = (self.folder / "run").glob("keeper-*.sock")
        return str(path)

    def front_bytes(self):
        return resident_bytes(self.front_pid())

    def kill(self, *who):
        """kill -9 of "front", "keeper" or both, and waits until others have taken their places and are ready."""
        victims = [wait_for(lambda: self.child(w), self.log_text) for w in who]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: all(self.child(w) not in (None, *victims) for w in who), self.log_text)
        wait_for(self.is_ready, self.log_text)
        return victims

    # ---- its callers ----

    def token(self, identity, **more):
        """A caller over TCP."""
        made = self.admin.post("/v1/tokens", {"identity": identity, **more})
        assert made.status == 201, made.body
        client = Client(self.tcp, made.json["token"])
        client.token_id = made.json["id"]
        return client

    def request(self, method, path, body=None, headers=None):
        """As whom the socket says: the status, and what came as JSON."""
        answer = self.admin.ask(method, path, body, headers)
        return answer.status, answer.json if answer.body else None

    def carrel(self, *words, user=None, data=None, timeout=DEADLINE_S, environment=None, text=True):
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
        """All boxes away."""
        for box in self.admin.get("/v1/boxes?all=true&limit=1000").json["boxes"]:
            self.admin.delete(f"/v1/boxes/{box['id']}")
