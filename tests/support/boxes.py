"""A carrel that a test runs, and what it must not leave: the one harness of the suites that start boxes without a server.

Everything is relative to a baseline taken before, and belongs to what the test started: processes are descendants of this one (a subreaper, so that
nothing escapes by forking twice), cgroups have the pid of a carrel of ours in their names."""
import ctypes
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import pytest

from support import BUILD
from support.processes import descendants
from support.waiting import DEADLINE_S, SETTLE_S, wait_for

CARREL = os.environ.get("CARREL", str(BUILD / "carrel"))
ZYGOTE = os.environ.get("CARREL_ZYGOTE", str(BUILD / "tests/zygote"))
WAY = os.environ.get("CARREL_WAY", "exec")      # exec, or fork: payloads come from a zygote
LIMITS = ("--memory", "64M", "--pids", "64", "--disk", "16M")
PR_SET_CHILD_SUBREAPER = 36


def command_line(command, *, limits=LIMITS, options=(), mounts=(), zygote=ZYGOTE if WAY == "fork" else None):
    """The one place that knows how a box is asked for."""
    line = [CARREL, "run", *(("--zygote", zygote) if zygote else ()), *limits, *options]
    for mount in mounts:
        line += ["--mount", mount]
    return [*line, "--", *command]


def become_subreaper():
    os.umask(0o022)     # whatever the caller's is
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cgroups_of(*pids):
    """The directories of cgroups that these processes made: an owner's pid is the second number in the name. On v1 they are at the top of each hierarchy,
    on v2 anywhere below the delegated directory."""
    found = []
    for top, names, _ in os.walk("/sys/fs/cgroup"):
        ours = [name for name in names if name.startswith("carrel-")]
        found += [os.path.join(top, n) for n in ours if (owner := re.match(r"carrel-\d+-(\d+)-", n)) and int(owner[1]) in pids]
        names[:] = [name for name in names if name not in ours and top.count("/") < 7]
    return found


def mounts():
    return set(pathlib.Path("/proc/self/mountinfo").read_text().splitlines())


@dataclass
class Result:
    pid: int
    status: int
    stdout: bytes       # str if it was started with text=True
    stderr: bytes
    seconds: float
    report: dict = field(default_factory=dict)

    @property
    def text(self):
        return self.stdout.decode()

    @property
    def complaint(self):
        return self.stderr.decode("utf-8", "replace")

    @property
    def outcome(self):
        return self.report.get("outcome")

    def lines(self):
        """The objects among its lines of output."""
        return [json.loads(line) for line in self.stdout.decode("utf-8", "replace").splitlines() if line.startswith("{")]

    def line(self):
        lines = self.lines()
        assert lines, f"the probe said nothing: {self}"
        return lines[-1]


class Baseline:
    """What was there before a carrel ran."""

    def __init__(self):
        self.processes = set(descendants())
        self.mounts = mounts()

    def left_processes(self):
        """pid -> name. Orphans that came to us are reaped; a carrel's own end is its test's to see."""
        left = {pid: name for pid, name in descendants().items() if pid not in self.processes}
        ours = {process.pid for process in started}
        for pid in [pid for pid in left if pid not in ours]:
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    del left[pid]
            except ChildProcessError:
                pass
        return left

    def assert_nothing_left(self, *pids):
        """pids: of carrels that have ended. A process that is left fails the test, and is then ended by its pid: it is a descendant of ours."""
        try:
            wait_for(lambda: not self.left_processes(), lambda: f"processes are left: {self.left_processes()}", SETTLE_S)
        finally:
            for pid in self.left_processes():
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
        wait_for(lambda: not cgroups_of(*pids), lambda: f"cgroups are left: {cgroups_of(*pids)}", SETTLE_S)
        wait_for(lambda: mounts() <= self.mounts, lambda: f"mounts are left: {mounts() - self.mounts}", SETTLE_S)


started = []        # every carrel of the running test, as Popen


def start(line, **options):
    """The test's end ends it."""
    process = subprocess.Popen(list(map(os.fspath, line)), **{"stdin": subprocess.DEVNULL, **options})
    started.append(process)
    return process


def end_started():
    """After a test, whatever its result; returns their pids."""
    pids = [process.pid for process in started]
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
    started.clear()
    return pids


def finish(process, began, data=None, seconds=DEADLINE_S, report=None):
    """Its result; one that does not end fails the test. report: the path of its report, which is removed."""
    try:
        stdout, stderr = process.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(f"not ended after {seconds} s: {process.args}; output {(stdout or '')[-500:]!r} {(stderr or '')[-500:]!r}") from None
    result = Result(process.pid, process.returncode, b"" if stdout is None else stdout, b"" if stderr is None else stderr, time.monotonic() - began)
    if report:
        try:
            result.report = json.loads(report.read_text())
        except (OSError, ValueError):
            pass
        report.unlink(missing_ok=True)
    return result


class Run:
    """A running carrel with its baseline."""

    def __init__(self, line, *, baseline=None, report=None, **options):
        self.baseline = baseline or Baseline()
        self.report = report
        self.started = time.monotonic()
        self.process = start(line, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})
        self.pid = self.process.pid

    def finish(self, data=None, seconds=DEADLINE_S, check=True):
        result = finish(self.process, self.started, data, seconds, self.report)
        if check:
            self.baseline.assert_nothing_left(self.pid)
        return result


def run_box(command, *, limits=LIMITS, options=(), mounts=(), user=None, data=None, seconds=DEADLINE_S):
    """A command in a box, and its result; nothing of it is left. user: a number."""
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    line = command_line(command, limits=limits, options=("-i", *options) if data is not None else options, mounts=mounts)
    return Run(line, cwd="/", stdin=subprocess.DEVNULL if data is None else subprocess.PIPE, **identity).finish(data, seconds)


@pytest.fixture(autouse=True)
def no_box_outlives_its_test():
    yield
    end_started()


@pytest.fixture
def tmp_path():
    """A folder that every user may enter. Not below pytest's own: another pytest that starts closes that for other users."""
    with tempfile.TemporaryDirectory(prefix="carrel-test-", ignore_cleanup_errors=True) as above:
        os.chmod(above, 0o755)
        path = pathlib.Path(above, "folder")
        path.mkdir()
        yield path
