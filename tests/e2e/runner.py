"""Runs carrel as root or as an ordinary user, and knows when nothing of it is left.

Everything is relative to a baseline taken at the start of a test and belongs to what the test started: processes are descendants of this one
(a subreaper, so that nothing escapes by double forking), cgroups hold the pid of a carrel of ours in their names.
"""
import ctypes
import functools
import json
import os
import pathlib
import pwd
import re
import select
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CARREL = os.environ.get("CARREL", str(REPOSITORY / "build/carrel"))
SLOW = float(os.environ.get("CARREL_TEST_SLOW", "1"))       # how much slower this machine is
# For what must come. Nothing waits that long unless it fails.
DEADLINE = 120 * SLOW
SETTLE = 60 * SLOW
PR_SET_CHILD_SUBREAPER = 36


class World:
    """Made once: a copy of carrel that everybody may run, and a place for everybody's files."""

    def __init__(self):
        os.umask(0o022)     # whatever the caller's is
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-e2e-"))
        self.place.chmod(0o755)
        self.carrel = str(shutil.copy(CARREL, self.place / "carrel"))
        os.chmod(self.carrel, 0o755)

    def close(self):
        shutil.rmtree(self.place, ignore_errors=True)


@functools.cache
def world():
    return World()


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def descendants():
    """pid -> name of every process below this one."""
    found, todo = {}, [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            lists = [pathlib.Path(task.path, "children").read_text() for task in os.scandir(f"/proc/{pid}/task")]
        except OSError:
            continue
        for child in (int(word) for text in lists for word in text.split()):
            found[child] = name_of(child)
            todo.append(child)
    return found


def cgroup_folders():
    """Where leaves can be: on v1 the root of each hierarchy, on v2 anywhere below what was delegated."""
    top = "/sys/fs/cgroup"
    if not os.path.exists(f"{top}/cgroup.controllers"):
        return [entry.path for entry in os.scandir(top) if entry.is_dir()] if os.path.isdir(top) else []
    found = []
    for folder, names, _ in os.walk(top):
        found.append(folder)
        names[:] = [name for name in names if not name.startswith("carrel-") and folder.count("/") < 7]
    return found


def cgroups_of(pids):
    found = []
    for folder in cgroup_folders():
        try:
            names = os.listdir(folder)
        except OSError:     # a stranger's, gone in the meantime
            continue
        for name in names:
            match = re.match(r"carrel-\d+-(\d+)-", name)
            if match and int(match[1]) in pids:
                found.append(os.path.join(folder, name))
    return found


def mounts():
    return set(pathlib.Path("/proc/self/mountinfo").read_text().splitlines())


def wait_until(holds, complaint, seconds=SETTLE):
    """Waits for something that comes without an event to wait for."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, complaint() if callable(complaint) else complaint
        time.sleep(0.005)


class Baseline:
    def __init__(self):
        self.processes = set(descendants())
        self.mounts = mounts()
        self.started = []       # every carrel of the test, as Popen

    def left_processes(self):
        left = {pid: name for pid, name in descendants().items() if pid not in self.processes}
        ours = {process.pid for process in self.started}
        for pid in list(left):
            if pid in ours:
                continue
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == pid:       # an orphan that came to us
                    del left[pid]
            except ChildProcessError:
                pass
        return left

    def end_started(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(DEADLINE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def assert_no_processes(self):
        """A leak fails the test, and is then ended by its pids, which are our descendants."""
        try:
            wait_until(lambda: not self.left_processes(), lambda: f"processes are left: {self.left_processes()}")
        finally:
            for pid in self.left_processes():
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass

    def assert_nothing_left(self, rundirs):
        pids = {process.pid for process in self.started}
        self.assert_no_processes()
        wait_until(lambda: not cgroups_of(pids), lambda: f"cgroups are left: {cgroups_of(pids)}")
        wait_until(lambda: mounts() <= self.mounts, lambda: f"mounts are left: {mounts() - self.mounts}")
        for rundir in rundirs:
            if os.path.isdir(rundir):
                strange = [name for name in os.listdir(rundir) if name != "ids"]
                assert not strange, f"files are left in {rundir}: {strange}"


@dataclass
class Result:
    pid: int
    status: int
    stdout: bytes
    stderr: bytes
    seconds: float
    report: dict | None = None

    @property
    def text(self):
        return self.stdout.decode()

    @property
    def complaint(self):
        return self.stderr.decode("utf-8", "replace")


class Caller:
    """Somebody who calls carrel: root, an ordinary user with a range of ids, one without, or whoever runs the tests."""

    def __init__(self, name, user=None):
        self.name = name
        self.user = user
        self.uid = user.pw_uid if user else os.getuid()
        self.gid = user.pw_gid if user else os.getgid()
        self.is_root = self.uid == 0
        self.baseline = None
        self.home = world().place / f"home-{name}"
        self.home.mkdir(mode=0o755, exist_ok=True)
        os.chown(self.home, self.uid, self.gid)
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home),
                            "XDG_RUNTIME_DIR": str(self.home / "run"), "CALLERS_SECRET": "do-not-tell"}
        (self.home / "run").mkdir(mode=0o700, exist_ok=True)
        os.chown(self.home / "run", self.uid, self.gid)

    @property
    def rundir(self):
        return "/run/carrel" if self.is_root else str(self.home / "run/carrel")

    def folder(self, name):
        """An empty folder of the caller's own."""
        path = self.home / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o755)
        os.chown(path, self.uid, self.gid)
        return path

    def file(self, path, content, mode=0o644):
        path = pathlib.Path(path)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        os.chown(path, self.uid, self.gid)
        return path

    def start(self, *words, environment=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options):
        """Starts `carrel WORDS`; the test's end ends it."""
        identity = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.user else {}
        process = subprocess.Popen([world().carrel, *map(os.fspath, words)], stdin=stdin, stdout=stdout, stderr=stderr, cwd=self.home,
                                   env={**self.environment, **(environment or {})}, **identity, **options)
        self.baseline.started.append(process)
        return process

    def call(self, *words, data=None, deadline=None, **options):
        """Runs `carrel WORDS` to its end."""
        begin = time.monotonic()
        process = self.start(*words, stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL, **options)
        try:
            stdout, stderr = process.communicate(data, deadline or DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            raise AssertionError(f"carrel hangs: {words}: {stdout[-200:]!r} {stderr[-200:]!r}") from None
        return Result(process.pid, process.returncode, stdout or b"", stderr or b"", time.monotonic() - begin)

    def run(self, *words, **options):
        """Runs `carrel run WORDS`, where the last word, if it is a list, is the command."""
        return self.call("run", *spread(words), **options)

    def report(self, *words, **options):
        """The same with its report."""
        path = self.home / "report.json"
        path.unlink(missing_ok=True)
        result = self.run("--report", path, *words, **options)
        result.report = json.loads(path.read_text())
        return result

    def sh(self, script, *options, **more):
        return self.run(*options, ["sh", "-c", script], **more)

    @functools.cached_property
    def ids(self):
        """How many ids a box of this caller has: 65536, 1024 or 1."""
        return int(re.fullmatch(r"user namespace with (\d+) ids", self.report(["true"]).report["enforced"]["users"])[1])

    @functools.cached_property
    def limits(self):
        """The limits that can be had: a limit that this host cannot hold is told with the reason."""
        missing = self.report(["true"]).report["not_enforced"]
        return {name for name in ("memory", "pids", "cpus") if missing.get(name, "not asked for") == "not asked for"}


def spread(words):
    """(..., ["sh", "-c"]) -> (..., "--", "sh", "-c")"""
    return (*words[:-1], "--", *words[-1]) if words and isinstance(words[-1], list) else words


def make_user(name, *options):
    try:
        return pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", *options, name], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, timeout=60)
        return pwd.getpwnam(name)


@functools.cache
def callers():
    """Root is tested together with two ordinary users; an ordinary user alone."""
    if os.getuid() != 0:
        return {"self": Caller("self")}
    found = {"root": Caller("root")}
    try:
        found["user"] = Caller("user", make_user("carreltest"))
        found["one"] = Caller("one", make_user("carrelone", "-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0"))
    except (OSError, subprocess.CalledProcessError):
        pass        # a machine whose users cannot be changed
    return found


def read_until(fd, wanted, seconds=None):
    """Reads a descriptor until the text has come; returns all that came."""
    got = b""
    end = time.monotonic() + (seconds or DEADLINE)
    while wanted not in got:
        ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        assert ready, f"{wanted!r} did not come, only {got!r}"
        try:
            piece = os.read(fd, 65536)
        except OSError:
            piece = b""
        assert piece, f"{wanted!r} did not come, only {got!r}, then the end"
        got += piece
    return got


def assert_refused(result, *phrases, status=125):
    """One line says why, nothing ran."""
    lines = result.complaint.splitlines()
    assert result.status == status, result
    assert len(lines) == 1 and lines[0].startswith("carrel: "), result.complaint
    for phrase in phrases:
        assert phrase.lower() in lines[0].lower(), f"{phrase!r} is not in {lines[0]!r}"
    assert result.stdout == b""
