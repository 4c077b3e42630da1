"""A private server, and what it leaves behind: every process, cgroup, mount and loop device of it can be told from a stranger's."""
import contextlib
import ctypes
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "api"))

from client import Client, UnixConnection, WebSocket, events, lines  # noqa: E402,F401

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", pathlib.Path(__file__).parents[2] / "build"))
IS_LONG = os.environ.get("CARREL_LONG") == "1"
OTHER_UID = 1001        # an ordinary user; needs no entry in /etc/passwd
PR_SET_CHILD_SUBREAPER = 36
SMALL = {"memory": "64M", "disk": "32M", "pids": 32}
GONE = ("deleted", "failed")
POOL_SIZE = 2           # boxes that a server keeps ready, by default


def amount(quick, long):
    """How often: in the quick cut and in the proof."""
    return long if IS_LONG else quick


def wait_for(what, deadline_s=60, every_s=0.02):
    """Asks again until it is true; what it was is the result."""
    end = time.monotonic() + deadline_s
    while True:
        result = what()
        if result or time.monotonic() > end:
            return result
        time.sleep(every_s)


def become_reaper():
    """Orphans below us become our children, so that whatever a server leaves is found among our descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes():
    """Of the whole machine: pid -> (parent, state)."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                rest = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            found[int(folder.name)] = (int(rest[1]), rest[0])
    return found


own_children = set()        # started by us and waited for elsewhere


def descendants(pid, everything=None):
    everything = everything or processes()
    for p, (parent, state) in everything.items():
        if parent == os.getpid() and state == "Z" and p not in own_children:
            with contextlib.suppress(ChildProcessError):        # seen before
                os.waitpid(p, os.WNOHANG)
    children = {}
    for p, (parent, _) in everything.items():
        children.setdefault(parent, []).append(p)
    found, todo = set(), [pid]
    while todo:
        for p in children.get(todo.pop(), []):
            found.add(p)
            todo.append(p)
    return {p for p in found if everything[p][1] not in "ZX"}


def status_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def resident_bytes(pid):
    return int(status_of(pid)["VmRSS"].split()[0]) * 1024


def descriptors(pid):
    """What they lead to; one that is closed meanwhile is left out."""
    found = []
    for n in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{n}"))
        except FileNotFoundError:
            pass
    return found


class UserClient(Client):
    """Over the unix socket, as an ordinary user: the kernel notes who connects, and that is the effective user."""
    def __init__(self, where, uid):
        super().__init__(where)
        self.uid = uid

    def connection(self):
        c = UnixConnection(self.where)
        connect = c.connect

        def connect_as_user():
            os.seteuid(self.uid)
            try:
                connect()
            finally:
                os.seteuid(0)
        c.connect = connect_as_user
        return c


class Server:
    def __init__(self, *options, state=None, expect_ready=True, program="carrel-server", env=None, user=None, prepare=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-server-"))
        self.folder.chmod(0o755)
        self.state = pathlib.Path(state) if state else self.folder / "state"
        self.socket = str(self.folder / "api.sock")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.tcp = ("127.0.0.1", self.port)
        self.admin = Client(self.socket)
        self.keepers = set()
        self.options = options
        self.program = program
        self.env = env
        self.who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.prepare = prepare
        if user is not None:
            os.chown(self.folder, user, user)
        self.start(expect_ready)

    def start(self, expect_ready=True):
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [BUILD / self.program, "serve", "--listen", "%s:%d" % self.tcp, "--socket", self.socket, "--state", self.state, "--run",
             self.folder / "run", "--set", "templates.python.python=/usr/bin/python3",
             "--set", "templates.python.pool=off", *self.options], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
            preexec_fn=self.prepare, **self.who,
            # No layer for kernels: it would be seen in boxes where the build lies, perhaps in /tmp.
            env={**os.environ, **({"HOME": str(self.folder)} if self.who else {}), "CARREL_GUEST": "", "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:symbolize=0:quarantine_size_mb=4", **(self.env or {})})
        own_children.add(self.process.pid)
        if not expect_ready:
            return
        try:
            assert wait_for(self.is_ready), self.log_text()
        except BaseException:
            self.stop()
            raise

    def is_ready(self):
        assert self.process.poll() is None, self.log_text()
        self.note_keeper()
        try:
            return self.admin.get("/readyz").status == 200
        except (OSError, http.client.HTTPException):        # it ends, perhaps in the middle of its answer
            return False

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")

    def _child(self, word):
        """What a dead keeper left behind is a child of the supervisor too, and may look like it: only the real one serves, in our pid namespace."""
        # Not .../children: that list may miss some while others end.
        for pid, (parent, state) in processes().items():
            try:
                if (parent == self.process.pid and word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
                        and len(status_of(pid)["NSpid"].split()) == len(status_of("self")["NSpid"].split())
                        and "anon_inode:[signalfd]" in descriptors(pid)):
                    return pid
            except OSError:
                pass
        return None

    def front(self):
        return self._child(b"front")

    def keeper(self):
        return self._child(b"keeper")

    def note_keeper(self):
        pid = self.keeper()
        if pid:
            self.keepers.add(pid)
        return pid

    def kill(self, *who):
        """kill -9 of "front", "keeper" or both, and waits until others have taken their places and are ready."""
        victims = [wait_for({"front": self.front, "keeper": self.note_keeper}[w]) for w in who]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: all(self._child(w.encode()) not in (None, *victims) for w in who)), self.log_text()
        assert wait_for(self.is_ready), self.log_text()
        return victims

    def token(self, identity, **more):
        made = self.admin.post("/v1/tokens", {"identity": identity, **more})
        assert made.status == 201, made.body
        client = Client(self.tcp, made.json["token"])
        client.token_id = made.json["id"]
        return client

    def user(self, uid=OTHER_UID):
        return UserClient(self.socket, uid)

    # ---- what it leaves ----

    def cgroups(self):
        """Of boxes of any keeper that this server ever had."""
        self.note_keeper()
        mine = re.compile(r"carrel-\d+-(%s)-\d+-\d+$" % "|".join(map(str, self.keepers or {0})))
        return [f"{path}/{name}" for path, folders, _ in os.walk("/sys/fs/cgroup") for name in folders if mine.match(name)]

    def leaves(self):
        """The same by box, however many hierarchies there are."""
        return {path.rsplit("/", 1)[1] for path in self.cgroups()}

    def inits(self):
        """First processes of boxes, of this keeper or left by another: those that are number 1 in a pid namespace below ours."""
        depth, found = len(status_of("self")["NSpid"].split()), []
        for pid in descendants(self.process.pid):
            try:
                numbers = status_of(pid)["NSpid"].split()
            except OSError:
                continue
            if len(numbers) > depth and numbers[-1] == "1":
                found.append(pid)
        return found

    def orphans(self):
        """What runs and is neither front nor keeper nor of these two: left by an earlier one."""
        keeper, front = self.note_keeper(), self.front()
        everything = processes()        # one look, or what ends between two would be in the first alone
        return descendants(self.process.pid, everything) - {front, keeper} - descendants(keeper or -1, everything) - descendants(front or -1, everything)

    def surplus(self):
        """Boxes that nobody knows of: more cgroups or first processes than there are boxes and places in the pool. Falsy: none."""
        known = POOL_SIZE + len([b for b in all_boxes(self.admin) if b["phase"] not in GONE])
        leaves, inits = self.leaves(), self.inits()
        return f"{known} known, but {leaves} and {inits}" if max(len(leaves), len(inits)) > known else ""

    def files(self):
        """In the folders of run time and state, without the outputs of commands and what SQLite keeps beside its database."""
        found = set()
        for top in (self.folder / "run", self.state):
            for path, folders, names in os.walk(top):
                found |= {os.path.join(path, n) for n in folders + names if path != str(self.state / "execs") and not n.startswith("state.db-")}
        return found

    def loops(self):
        found = []
        for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                if str(self.folder) in backing.read_text() or str(self.state) in backing.read_text():
                    found.append(str(backing))
            except OSError:
                pass
        return found

    def mounts(self):
        keeper = self.note_keeper()
        lines = pathlib.Path(f"/proc/{keeper}/mountinfo").read_text().splitlines()
        return sorted(line.split()[4] for line in lines)

    def logs(self):
        return {p.name.removesuffix(".log") for p in (self.state / "execs").iterdir()}

    def rows(self, query):
        db = sqlite3.connect(f"file:{self.state}/state.db?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(query).fetchall()
        finally:
            db.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
            text = self.log_text()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert "Sanitizer" not in text and "runtime error" not in text, text[-20000:]


def all_boxes(client):
    boxes, cursor = [], ""
    while True:
        page = client.get("/v1/boxes?all=true&limit=1000" + cursor).json
        boxes += page["boxes"]
        if page["next"] is None:
            return boxes
        cursor = "&cursor=" + page["next"]


def make_box(client, **body):
    """A small one, unless its limits are told (None: the default)."""
    body.setdefault("limits", SMALL)
    if body["limits"] is None:
        del body["limits"]
    answer = client.post("/v1/boxes", body)
    assert answer.status == 201, answer.body
    return "/v1/boxes/" + answer.json["id"]


def run(client, box, line, **more):
    answer = client.post(box + "/exec", {"shell": line, **more})
    assert answer.status == 200, answer.body
    return answer.json


COUNTER = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done"


class Counter:
    """A background command that prints the next number every 10 ms; checks that none is missing and none comes twice."""
    def __init__(self, client, box):
        self.client = client
        x = client.post(box + "/exec", {"shell": COUNTER, "background": True})
        assert x.status == 202, x.body
        self.path = f"{box}/exec/{x.json['id']}"
        self.offset, self.rest, self.next = 0, "", 0

    def check_more(self):
        """From where we were."""
        response = self.client.open("GET", f"{self.path}/output?offset={self.offset}")
        assert response.status == 200, response.read()
        for line in lines(response):
            if line["type"] == "stdout":
                assert line["offset"] == self.offset
                self.offset = line["next"]
                self._take(line["data"])
        response.connection.close()
        return self.next

    def _take(self, text):
        *whole, self.rest = (self.rest + text).split("\n")
        for number in whole:
            assert int(number) == self.next, f"after {self.next - 1} came {number}"
            self.next += 1

    def check_all(self):
        seen = self.next
        self.offset, self.rest, self.next = 0, "", 0
        assert self.check_more() >= seen
