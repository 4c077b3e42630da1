"""A private server and its remains: each of its processes, cgroups, mounts and loop devices can be told from foreign ones."""
import contextlib
import ctypes
import os
import pathlib
import re
import sqlite3

from support import IS_LONG
from support.client import Client, UnixConnection, lines
from support.processes import processes, status_of
from support.server import Server as Plain

OTHER_UID = 1001        # an ordinary user; needs no entry in /etc/passwd
PR_SET_CHILD_SUBREAPER = 36
SMALL = {"memory": "64M", "disk": "32M", "pids": 32}
GONE = ("deleted", "failed")
POOL_SIZE = 2           # boxes that a server keeps ready, by default


def amount(quick, long):
    """How often: in the quick cut and in the proof."""
    return long if IS_LONG else quick


def become_reaper():
    """Orphans below us become our children, so that whatever a server leaves is found among our descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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


def is_egress(pid):
    with contextlib.suppress(OSError):
        return status_of(pid)["Name"] == "carrel-egress"
    return False


class UserClient(Client):
    """Over the unix socket, as an ordinary user: the kernel records the effective user of the peer."""
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


class Server(Plain):
    """Root's, with the system's Python and without a layer for kernels, which would be seen in boxes where the build lies, perhaps in /tmp."""

    def __init__(self, *options, variables=None, **more):
        self.keepers = set()
        super().__init__("--set", "templates.python.python=/usr/bin/python3", *options, variables={"CARREL_GUEST": "", **(variables or {})}, **more)

    def start(self, ready=True):
        try:
            super().start(ready)
        finally:
            own_children.add(self.process.pid)

    def is_ready(self):
        self.note_keeper()
        return super().is_ready()

    def front(self):
        return self.child("front")

    def keeper(self):
        return self.child("keeper")

    def note_keeper(self):
        pid = self.keeper()
        if pid:
            self.keepers.add(pid)
        return pid

    def kill(self, *who):
        self.note_keeper()
        return super().kill(*who)

    def as_uid(self, uid=OTHER_UID):
        return UserClient(self.socket, uid)

    # ---- remains ----

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
        """Running processes that are neither front nor keeper nor of these two, nor the one egress: left by an earlier one."""
        keeper, front = self.note_keeper(), self.front()
        everything = processes()        # one look, or what ends between two would be in the first alone
        egress = {pid for pid, (parent, state) in everything.items() if parent == self.process.pid and state not in "ZX" and is_egress(pid)}
        ours = {front, keeper} | (egress if len(egress) == 1 else set())
        return descendants(self.process.pid, everything) - ours - descendants(keeper or -1, everything) - descendants(front or -1, everything)

    def surplus(self):
        """Unknown boxes: more cgroups or first processes than there are boxes and places in the pool. Falsy: none."""
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


def all_boxes(client):
    boxes, cursor = [], ""
    while True:
        page = client.get("/v1/boxes?all=true&limit=1000" + cursor).json
        boxes += page["boxes"]
        if page["next"] is None:
            return boxes
        cursor = "&cursor=" + page["next"]


def make_box(client, **body):
    """A small one, unless its limits are given (None: the default)."""
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
