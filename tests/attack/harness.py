"""Runs commands in boxes and compares the host before and after.

Everything is relative to a baseline taken right before a run and belongs to what the run made: processes are found as
descendants of this process (it is a subreaper, so that nothing can escape by double forking), cgroups by the owner's pid in
their names. Each run has a deadline and is ended by its own pid.
"""
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import pwd
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CARREL = os.environ.get("CARREL", str(REPOSITORY / "build/carrel"))
PROBE = os.environ.get("CARREL_PROBE", str(REPOSITORY / "build/tests/probe"))
ZYGOTE = os.environ.get("CARREL_ZYGOTE", str(REPOSITORY / "build/tests/zygote"))
WAY = os.environ.get("CARREL_WAY", "exec")

LIMITS = ("--memory", "64M", "--pids", "64", "--disk", "16M")
# How long something may take on a busy machine that takes milliseconds on an idle one. Nothing waits that long unless it fails.
SLOW = float(os.environ.get("CARREL_TEST_SLOW", "1"))       # how much slower this machine is
RUN_DEADLINE = 240 * SLOW
SETTLE_DEADLINE = 60 * SLOW
PROMPT = 120 * SLOW

PR_SET_CHILD_SUBREAPER = 36
SECRET = "secret" + secrets.token_hex(8)


def command_line(command, *, limits=LIMITS, options=(), mounts=()):
    """The one place that knows how a box is asked for."""
    way = ("--zygote", ZYGOTE) if WAY == "fork" else ()
    line = [CARREL, "run", *way, *limits, *options]
    for mount in mounts:
        line += ["--mount", mount]
    return [*line, "--", *map(os.fspath, command)]


@functools.cache
def world():
    """Made once: a directory with probes, a secret file, canaries."""
    return World()


class World:
    def __init__(self):
        for program in (CARREL, PROBE):
            if not os.access(program, os.X_OK):
                raise FileNotFoundError(f"{program} is not built; run make attack")
        os.umask(0o022)     # whatever the caller's is
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"attack-{SECRET}-"))
        self.directory.chmod(0o755)
        self.empty = self.directory / "cwd"
        self.empty.mkdir()
        self.probes = self.directory / "probe"
        self.probes.mkdir()
        for name, mode in (("probe", 0o755), ("probe-setuid", 0o4755), ("probe-setgid", 0o2755), ("probe-filecap", 0o755)):
            shutil.copy(PROBE, self.probes / name)
            (self.probes / name).chmod(mode)
        if os.getuid() == 0:
            all_capabilities = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0xFFFFFFFF, 0x1FF, 0x1FF)
            os.setxattr(self.probes / "probe-filecap", "security.capability", all_capabilities)
        (self.probes / "victim").write_text("this file is read-only for every box\n" * 100)
        self.host_file = self.directory / "host-file"
        self.host_file.write_text(SECRET)
        self.host_file.chmod(0o666)
        # The canary leads the process group in which every carrel is started.
        self.canary = subprocess.Popen(["sleep", "1000000"], process_group=0, stdin=subprocess.DEVNULL)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.abstract_name = f"abstract-{SECRET}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.abstract_name)
        self.abstract.listen()
        self.socket_path = str(self.directory / "socket")
        self.pathname = socket.socket(socket.AF_UNIX)
        self.pathname.bind(self.socket_path)
        self.pathname.listen()
        os.chmod(self.socket_path, 0o777)
        for listener in self.listeners():
            listener.setblocking(False)

    def listeners(self):
        return (self.tcp, self.abstract, self.pathname)

    def probe_arguments(self):
        return [f"host_pid={self.canary.pid}", f"secret={SECRET}", f"port={self.tcp.getsockname()[1]}", f"abstract={self.abstract_name}",
                f"host_file={self.host_file}", f"host_socket={self.socket_path}", f"hostname={os.uname().nodename}"]

    def probe_mount(self):
        return f"{self.probes}:/probe:ro"

    def close(self):
        self.canary.kill()
        self.canary.wait()
        for listener in self.listeners():
            listener.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass
class Result:
    pid: int
    status: int
    stdout: bytes
    stderr: bytes
    seconds: float
    report: dict = field(default_factory=dict)

    @property
    def outcome(self):
        return self.report.get("outcome")

    def lines(self):
        """The JSON lines that the probe wrote."""
        found = []
        for line in self.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return found

    def line(self):
        lines = self.lines()
        assert lines, f"the probe said nothing: {self}"
        return lines[-1]


WATCHED_SETTINGS = [
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/panic", "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/kptr_restrict", "/proc/sys/kernel/dmesg_restrict", "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/suid_dumpable", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/core/somaxconn", "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/shmmax", "/proc/sys/fs/mqueue/msg_max", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/kernel/domainname",
    "/sys/class/net/lo/mtu", "/proc/self/uid_map", "/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg",
]
WATCHED_FILES = ["/etc/passwd", "/etc/shadow", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache", "/usr/bin/env", "/usr/lib/os-release"]
WATCHED_PLACES = ["/", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/etc", "/dev", "/dev/shm", "/run", "/var/tmp", "/opt"]


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        return type(error).__name__


def fingerprint(path):
    try:
        info = os.stat(path)
        with open(path, "rb") as file:
            return info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        return type(error).__name__


def sysv_keys(path):
    """Key, id and owner of each System V object; the rest of a line changes with use."""
    rows = read(path)
    return rows if isinstance(rows, str) else sorted(tuple(row.split()[:2]) for row in rows.splitlines()[1:])


def settings():
    return {path: sysv_keys(path) if "sysvipc" in path else read(path) for path in WATCHED_SETTINGS}


def descendants():
    """pid -> name of every process below this one."""
    children = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = pathlib.Path(entry.path, "stat").read_text(errors="replace")     # a name may be anything
            except OSError:
                continue
            name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
            children.setdefault(int(rest[1]), []).append((int(entry.name), name))
    found, todo = {}, [os.getpid()]
    while todo:
        for pid, name in children.get(todo.pop(), []):
            found[pid] = name
            todo.append(pid)
    return found


def owner_of(cgroup):
    match = re.match(r"carrel-\d+-(\d+)-", cgroup)
    return int(match[1]) if match else None


def cgroups_of(*pids):
    """cgroup directories that these processes made: an owner's pid is the second number in the name."""
    found = []
    for top, names, _ in os.walk("/sys/fs/cgroup"):
        ours = [name for name in names if name.startswith("carrel-")]
        found += [os.path.join(top, name) for name in ours if owner_of(name) in pids]
        names[:] = [name for name in names if name not in ours and top.count("/") < 7]
    return found


def mounts():
    return set(pathlib.Path("/proc/self/mountinfo").read_text().splitlines())


def strange_files():
    found = []
    for place in WATCHED_PLACES:
        for name in ("carrel-was-here", "x-carrel", "left", "node-mem", "fill", "stolen", "linked", "by-fd", "own-setuid"):
            if os.path.lexists(os.path.join(place, name)):
                found.append(os.path.join(place, name))
    return found


def clock_offset():
    """The time of day less that since boot. Both are read at nearly the same moment, however busy the machine is."""
    readings = []
    while not readings or (min(readings)[0] > 0.05 and len(readings) < 100):
        before = time.monotonic()
        now = time.time()
        readings.append((time.monotonic() - before, now - before))
    return min(readings)[1]


def canary_state(pid):
    return (os.getpriority(os.PRIO_PROCESS, pid), sorted(os.sched_getaffinity(pid)), read(f"/proc/{pid}/oom_score_adj"), read(f"/proc/{pid}/limits"),
            read(f"/proc/{pid}/cgroup"), os.getpgid(pid))


class Snapshot:
    """What must be the same after a run."""

    def __init__(self):
        self.world = world()
        self.hostname = os.uname().nodename
        self.clock = clock_offset()
        self.settings = settings()
        watched = WATCHED_FILES + [CARREL, str(self.world.host_file)] + [str(p) for p in sorted(self.world.probes.iterdir())]
        self.files = {path: fingerprint(path) for path in watched}
        self.mounts = mounts()
        self.processes = descendants()
        self.strange = strange_files()
        self.canary = canary_state(self.world.canary.pid)

    def left_processes(self):
        left = {pid: name for pid, name in descendants().items() if pid not in self.processes}
        for pid in list(left):
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == pid:     # an orphan that came to us as its reaper
                    del left[pid]
            except ChildProcessError:
                pass
        return left

    def assert_same(self, pid=None):
        """pid: the carrel that has ended."""
        wait_until(lambda: not self.left_processes(), lambda: f"processes are left: {self.left_processes()}")
        if pid:
            wait_until(lambda: not cgroups_of(pid), lambda: f"cgroups are left: {cgroups_of(pid)}")
        wait_until(lambda: mounts() <= self.mounts, lambda: f"mounts are left: {mounts() - self.mounts}")
        assert self.world.canary.poll() is None, "a process of the host was killed"
        assert canary_state(self.world.canary.pid) == self.canary
        assert os.uname().nodename == self.hostname
        assert abs(clock_offset() - self.clock) < 0.5, "the host's clock was changed"
        assert settings() == self.settings
        changed = [(path, before, fingerprint(path)) for path, before in self.files.items() if fingerprint(path) != before]
        assert not changed, f"watched files were changed: {changed}"
        assert strange_files() == self.strange
        assert os.listdir(self.world.empty) == [], "the directory of the caller was written"
        for listener in self.world.listeners():
            try:
                listener.accept()
            except BlockingIOError:
                continue
            raise AssertionError(f"a listener of the host was reached: {listener}")
        keys = read("/proc/keys")
        assert isinstance(keys, str) or SECRET.encode() not in keys, "a key is left"


def wait_until(holds, complain, seconds=SETTLE_DEADLINE):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, complain() if callable(complain) else complain
        time.sleep(0.01)


started = []        # every carrel of the running test


def start(line, **options):
    """A carrel without a baseline of its own. The test's end ends it."""
    process = subprocess.Popen(line, cwd=world().empty, stdin=subprocess.DEVNULL, **options)
    started.append(process)
    return process


def end_started():
    """After a test, whatever its result: its boxes end, by their own pids."""
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
    started.clear()


class Box:
    """A running carrel with its baseline."""

    def __init__(self, command, *, limits=LIMITS, options=(), mounts=(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=(), prepare=None,
                 user=None, with_probe=True, new_session=False):
        self.world = world()
        self.snapshot = Snapshot()
        self.report_path = self.world.directory / f"report-{secrets.token_hex(4)}"
        if user is not None:    # a user who is not root cannot write there
            os.close(os.open(self.report_path, os.O_CREAT | os.O_WRONLY))
            os.chmod(self.report_path, 0o666)
        mounts = ([self.world.probe_mount()] if with_probe else []) + list(mounts)
        line = command_line(command, limits=limits, options=["--report", str(self.report_path), *options], mounts=mounts)
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "CALLERS_SECRET": SECRET, "LD_PRELOAD_X": SECRET}
        identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        group = {"start_new_session": True} if new_session else {"process_group": self.world.canary.pid}
        self.started = time.monotonic()
        self.process = subprocess.Popen(line, cwd=self.world.empty, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
                                        pass_fds=pass_fds, preexec_fn=prepare, **group, **identity)
        started.append(self.process)
        self.pid = self.process.pid

    def readline(self, seconds=RUN_DEADLINE):
        """One line of output, by a deadline."""
        import select
        line = b""
        end = time.monotonic() + seconds
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            assert ready, f"no line within {seconds} s: {line!r}"
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                self.process.wait(PROMPT)
                raise AssertionError(f"the box ended before it said a line: {self.process.returncode} {line!r} {self.process.stderr.read()!r}")
            line += byte
        return line

    def finish(self, seconds=RUN_DEADLINE, input=None, check=True):
        try:
            stdout, stderr = self.process.communicate(input, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, stderr = self.process.communicate()
            raise AssertionError(f"not ended after {seconds} s; output {(stdout or b'')[-500:]!r} {stderr[-500:]!r}") from None
        result = Result(self.pid, self.process.returncode, stdout or b"", stderr, time.monotonic() - self.started)
        try:
            result.report = json.loads(self.report_path.read_text())
        except (OSError, ValueError):
            pass
        self.report_path.unlink(missing_ok=True)
        if check:
            self.snapshot.assert_same(self.pid)
        return result

    def end(self, check=True):
        """Ends it from outside. The first signal is handed on to the command, the second ends the box."""
        self.process.terminate()
        self.process.terminate()
        deadline = time.monotonic() + PROMPT
        while self.process.poll() is None and time.monotonic() < deadline:
            self.process.terminate()
            time.sleep(0.01)
        return self.finish(check=check)


def run_box(command, *, seconds=RUN_DEADLINE, input=None, **options):
    if input is not None:
        options["stdin"] = subprocess.PIPE
        options["options"] = ("-i", *options.get("options", ()))
    return Box(command, **options).finish(seconds, input)


def bomb(name, *arguments, **options):
    return run_box(["/probe/probe", "bomb", name, *map(str, arguments)], **options)


@functools.cache
def attacks():
    """topic -> names, as the probe lists them."""
    listing = subprocess.run([PROBE, "list"], capture_output=True, text=True, check=True, timeout=PROMPT).stdout
    found = {}
    for row in listing.splitlines():
        topic, name = row.split()
        found.setdefault(topic, []).append(name)
    return found


def use_all_processors():
    """An affinity that the tests were started with is no boundary, and who runs in it may leave it."""
    os.sched_setaffinity(0, range(os.cpu_count()))


@functools.cache
def verdicts(topic, variant):
    """Runs all attacks of a topic in one box. Returns name -> verdict, and what was wrong outside, or None."""
    options = {"options": ("--profile", variant)} if variant in ("strict", "system") else {}
    if variant == "rootless":
        options = {"user": 65534, "limits": ()}
    directory = os.open(world().directory, os.O_RDONLY | os.O_DIRECTORY)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with open(world().host_file, "rb") as standard_input:
            arguments = world().probe_arguments()
            if variant == "rootless" or os.getuid() != 0:
                arguments += ["nested=1"] + (["single=1"] if variant == "rootless" or not has_id_range() else [])
            box = Box(["/probe/probe", "all", topic, *arguments], stdin=standard_input, pass_fds=(directory,), prepare=use_all_processors,
                      **{**options, "options": ("-i", *options.get("options", ()))})
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        os.close(directory)
    result = box.finish(check=False)
    found = {line["attack"]: line for line in result.lines() if "attack" in line}
    try:
        box.snapshot.assert_same(result.pid)
    except AssertionError as error:
        return result, found, str(error)
    return result, found, None


def has_id_range():
    """Whether /etc/subuid gives this user more than its own id."""
    name = pwd.getpwuid(os.getuid()).pw_name
    rows = read("/etc/subuid")
    return not isinstance(rows, str) and any(row.split(b":")[0].decode() in (name, str(os.getuid())) for row in rows.splitlines())


def attack_tests(topic, variants=("standard", "strict", "system", "rootless")):
    """Test functions for every attack of a topic, named as the sentences that they prove. A variant is a profile, or an ordinary user as caller."""
    import pytest

    def judge(name):
        @pytest.mark.parametrize("variant", variants)
        def test(variant):
            skip_variant(variant)
            result, found, _ = verdicts(topic, variant)
            assert name in found, f"no verdict; carrel ended with {result.status}: {result.stderr[-500:]!r} {result.stdout[-300:]!r}"
            if found[name]["verdict"] == "skipped":
                pytest.skip(found[name]["detail"])
            assert found[name]["verdict"] == "held", found[name]["detail"]
        return test

    @pytest.mark.parametrize("variant", variants)
    def outside(variant):
        skip_variant(variant)
        result, found, complaint = verdicts(topic, variant)
        assert complaint is None, complaint
        assert set(found) == set(attacks()[topic]), f"carrel ended with {result.status}: {result.stderr[-500:]!r}"
        assert result.status == 0

    tests = {f"test_{name}": judge(name) for name in attacks()[topic]}
    tests[f"test_{topic}_attacks_leave_the_host_untouched"] = outside
    return tests


def skip_variant(variant):
    import pytest
    if variant == "rootless" and (os.getuid() != 0 or WAY == "fork"):
        pytest.skip("needs root, to become an ordinary user")


def host_status(pid, key):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    raise KeyError(key)


def below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(host_status(pid, "PPid"))
    return False


def inits_of(keeper):
    """The init processes below it, outermost first. Over a zygote there are two: the family's and the box's."""
    found = []
    for pid in descendants():
        try:
            numbers = host_status(pid, "NSpid").split()
            if len(numbers) > 1 and numbers[-1] == "1" and below(pid, keeper):
                found.append((len(numbers), pid))
        except (OSError, KeyError):     # has just ended
            continue
    assert len(found) == (2 if WAY == "fork" else 1), found
    return [pid for _, pid in sorted(found)]


if sys.version_info < (3, 11):
    raise RuntimeError("these tests need Python 3.11 or newer")
