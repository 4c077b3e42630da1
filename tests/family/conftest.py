"""Runs commands that are forked from a zygote, and looks for what is left afterwards. The test process is a subreaper: whatever a keeper leaves behind
becomes its child, also a zombie."""
import ctypes
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "attack"))
from folders import tmp_path  # noqa: E402,F401

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CARREL = os.environ.get("CARREL", str(REPOSITORY / "build/carrel"))
ZYGOTE = os.environ.get("CARREL_ZYGOTE", str(REPOSITORY / "build/tests/zygote"))
LIMITS = ("--memory", "64M", "--pids", "32", "--disk", "16M")
PR_SET_CHILD_SUBREAPER = 36
SLOW = float(os.environ.get("CARREL_TEST_SLOW", "1"))       # how much slower this machine is
# For what must come. Nothing waits that long unless it fails.
DEADLINE = 120 * SLOW
SETTLE = 60 * SLOW

ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
os.umask(0o022)     # whatever the caller's is


@dataclass
class Result:
    pid: int
    status: int
    stdout: str
    stderr: str
    seconds: float
    report: dict = field(default_factory=dict)


def table():
    """pid -> (parent, name, state) of every process."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = pathlib.Path(entry.path, "stat").read_text(errors="replace")     # a name may be anything
            except OSError:
                continue
            rest = stat[stat.rindex(")") + 2:].split()
            found[int(entry.name)] = (int(rest[1]), stat[stat.index("(") + 1:stat.rindex(")")], rest[0])
    return found


def below(top):
    """pid -> name of every process below this one."""
    everybody, found, todo = table(), {}, [top]
    while todo:
        parent = todo.pop()
        for pid, (its, name, _) in everybody.items():
            if its == parent and pid not in found:
                found[pid] = name
                todo.append(pid)
    return found


def cgroups_of(pid):
    found = []
    for path, names, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(path, name) for name in names if re.match(rf"carrel-\d+-{pid}-", name)]
        names[:] = [name for name in names if not name.startswith("carrel-") and path.count("/") < 7]
    return found


def mounts():
    return set(pathlib.Path("/proc/self/mountinfo").read_text().splitlines())


def wait_until(holds, what, seconds=SETTLE):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.01)


class Run:
    def __init__(self, command, zygote=ZYGOTE, options=LIMITS, user=None, directory=None, **more):
        self.before = set(below(os.getpid()))
        self.mounts = mounts()
        self.report = pathlib.Path(directory or "/tmp", f"family-report-{os.getpid()}-{time.monotonic_ns()}")
        self.report.touch()
        self.report.chmod(0o666)
        way = ("--zygote", str(zygote)) if zygote else ()
        line = [CARREL, "run", *way, *options, "--report", str(self.report), "--", *map(str, command)]
        identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        if isinstance(user, str):
            try:
                pwd.getpwnam(user)
            except KeyError:
                pytest.skip(f"no user {user} here")
        more.setdefault("stdin", subprocess.DEVNULL)
        self.started = time.monotonic()
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **identity, **more)
        self.pid = self.process.pid

    def finish(self, input=None, seconds=DEADLINE):
        try:
            out, err = self.process.communicate(input, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"carrel did not end within {seconds} s") from None
        result = Result(self.pid, self.process.returncode, out, err, time.monotonic() - self.started)
        try:
            result.report = json.loads(self.report.read_text())
        except ValueError:
            pass
        self.report.unlink()
        self.assert_nothing_is_left()
        return result

    def left(self):
        return {pid: name for pid, name in below(os.getpid()).items() if pid not in self.before}

    def assert_nothing_is_left(self):
        def gone():
            for pid in self.left():
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
            return not self.left()
        wait_until(gone, lambda: f"processes are left: {self.left()}")
        wait_until(lambda: not cgroups_of(self.pid), lambda: f"cgroups are left: {cgroups_of(self.pid)}")
        wait_until(lambda: mounts() <= self.mounts, lambda: f"mounts are left: {mounts() - self.mounts}")

    def find(self, name):
        """The pid of the process of this name below carrel, once it is there."""
        def look():
            return [pid for pid, its in below(self.pid).items() if its == name]
        wait_until(look, lambda: f"no process {name}: {below(self.pid)}")
        return look()[0]


def run(command, **options):
    return Run(command, **options).finish()


def for_everybody(folder, name):
    """A copy of the zygote that every user can run."""
    for parent in [folder, *folder.parents][:-2]:
        if parent.stat().st_uid == os.getuid():
            parent.chmod(parent.stat().st_mode | 0o755)
    return shutil.copy(ZYGOTE, folder / name)


@pytest.fixture
def hostile(tmp_path):
    """A zygote of a bad habit."""
    return lambda habit: for_everybody(tmp_path, f"zygote-{habit}")


@pytest.fixture
def plain(tmp_path):
    return for_everybody(tmp_path, "zygote")
