"""Runs attacks in boxes (support.boxes), and compares the host before and after with more than what any box must not leave."""
import functools
import hashlib
import json
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from support import BUILD
from support import boxes
from support.boxes import CARREL, LIMITS, WAY, Baseline, Run, become_subreaper, cgroups_of, command_line, end_started, started  # noqa: F401
from support.processes import descendants
from support.waiting import DEADLINE_S, SLOW, wait_for  # noqa: F401

PROBE = os.environ.get("CARREL_PROBE", str(BUILD / "tests/probe"))
# How long something may take on a busy machine that takes milliseconds on an idle one. Nothing waits that long unless it fails.
RUN_DEADLINE = 240 * SLOW
PROMPT = DEADLINE_S
SECRET = "secret" + secrets.token_hex(8)


@functools.cache
def world():
    """Made once: a directory with probes, a secret file, canaries."""
    return World()


class World:
    def __init__(self):
        for program in (CARREL, PROBE):
            if not os.access(program, os.X_OK):
                raise FileNotFoundError(f"{program} is not built; run make attack")
        become_subreaper()
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


class Snapshot(Baseline):
    """What must be the same after a run."""

    def __init__(self):
        super().__init__()
        self.world = world()
        self.hostname = os.uname().nodename
        self.clock = clock_offset()
        self.settings = settings()
        watched = WATCHED_FILES + [CARREL, str(self.world.host_file)] + [str(p) for p in sorted(self.world.probes.iterdir())]
        self.files = {path: fingerprint(path) for path in watched}
        self.strange = strange_files()
        self.canary = canary_state(self.world.canary.pid)

    def assert_nothing_left(self, *pids):
        super().assert_nothing_left(*pids)
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


def start(line, **options):
    """A carrel without a baseline of its own."""
    return boxes.start(line, cwd=world().empty, **options)


class Box(Run):
    """A running carrel with the probe in its box."""

    def __init__(self, command, *, limits=LIMITS, options=(), mounts=(), prepare=None, user=None, with_probe=True, new_session=False, **more):
        self.world = world()
        report = self.world.directory / f"report-{secrets.token_hex(4)}"
        if user is not None:    # a user who is not root cannot write there
            os.close(os.open(report, os.O_CREAT | os.O_WRONLY))
            os.chmod(report, 0o666)
        mounts = ([self.world.probe_mount()] if with_probe else []) + list(mounts)
        line = command_line(command, limits=limits, options=["--report", str(report), *options], mounts=mounts)
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "CALLERS_SECRET": SECRET, "LD_PRELOAD_X": SECRET}
        identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        group = {"start_new_session": True} if new_session else {"process_group": self.world.canary.pid}
        super().__init__(line, baseline=Snapshot(), report=report, cwd=self.world.empty, env=environment, preexec_fn=prepare, **group, **identity, **more)

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

    def finish(self, data=None, seconds=RUN_DEADLINE, check=True):
        return super().finish(data, seconds, check)

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
    return Box(command, **options).finish(input, seconds)


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
    """An affinity that the tests were started with is no boundary, and their processes may leave it."""
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
        box.baseline.assert_nothing_left(result.pid)
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


def inits_of(keeper):
    """The init processes below it, outermost first. Over a zygote there are two: the family's and the box's."""
    found = []
    for pid in descendants(keeper):
        try:
            numbers = host_status(pid, "NSpid").split()
            if len(numbers) > 1 and numbers[-1] == "1":
                found.append((len(numbers), pid))
        except (OSError, KeyError):     # has just ended
            continue
    assert len(found) == (2 if WAY == "fork" else 1), found
    return [pid for _, pid in sorted(found)]


if sys.version_info < (3, 11):
    raise RuntimeError("these tests need Python 3.11 or newer")
