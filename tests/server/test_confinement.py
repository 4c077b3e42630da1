"""The abilities of a front that was taken over, seen from outside."""
import ctypes
import errno
import json
import os
import pathlib
import platform
import re
import resource
import signal
import socket
import subprocess
import sys

import pytest

from support.processes import descriptors, processes, status_of
from support.waiting import wait_for
from traces import Server, make_box, run

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206


def as_user(uid, what):
    """Runs what() in a child with that user and no rights; its result as an errno."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        try:
            os._exit(what() or 0)
        except OSError as e:
            os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ids(pid, what):
    return [int(n) for n in status_of(pid)[what].split()]


def test_the_front_is_nobody(server):
    front = server.front()
    status = status_of(front)
    assert len(set(ids(front, "Uid"))) == 1 and ids(front, "Uid")[0] not in (0, 65534) and len(set(ids(front, "Gid"))) == 1
    assert status["Groups"].strip() == ""
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2" and int(status["Seccomp_filters"]) >= 1
    assert ids(server.keeper(), "Uid") == [0] * 4


def test_a_front_that_is_started_with_few_descriptors_takes_what_it_may_have():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        s = Server()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        line = re.search(r"Max open files +(\d+) +(\d+)", pathlib.Path(f"/proc/{s.front()}/limits").read_text())
        assert line and line.groups() == (str(hard), str(hard))
    finally:
        s.stop()


def test_the_front_has_no_network(server):
    front = server.front()
    assert os.readlink(f"/proc/{front}/ns/net") != os.readlink("/proc/self/ns/net") == os.readlink(f"/proc/{server.keeper()}/ns/net")
    devices = [line.split(":")[0].strip() for line in pathlib.Path(f"/proc/{front}/net/dev").read_text().splitlines()[2:]]
    # Whatever tunnels the kernel puts into every new namespace, and a loopback that is down.
    assert not [d for d in devices if not re.match(r"(lo|tunl0|sit0|ip6tnl0|gre0|gretap0|erspan0|ip_vti0|ip6_vti0|ip6gre0)$", d)]
    assert len(pathlib.Path(f"/proc/{front}/net/route").read_text().splitlines()) <= 1


def test_the_front_holds_nothing_but_what_it_needs(server, alice, box):
    run(alice, box, "echo x")
    alice.get(box + "/files/")
    known = re.compile(r"/dev/null$|%s/|%s$|socket:|pipe:|anon_inode:\[(eventpoll|signalfd|pidfd|eventfd|timerfd)\]|/memfd:" % (re.escape(str(server.state)), re.escape(str(server.folder / "log"))))
    wait_for(lambda: not [d for d in descriptors(server.front()) if not known.match(d)], lambda: descriptors(server.front()))


def test_not_even_its_own_user_can_look_into_the_front(server):
    front = server.front()
    uid = ids(front, "Uid")[0]
    libc = ctypes.CDLL(None, use_errno=True)

    def trace(request):
        return ctypes.get_errno() if libc.ptrace(request, front, 0, 0) < 0 else 0
    assert as_user(uid, lambda: trace(PTRACE_ATTACH)) == 1
    assert as_user(uid, lambda: trace(PTRACE_SEIZE)) == 1
    for name in ("mem", "environ", "maps", "fd"):
        assert as_user(uid, lambda: os.close(os.open(f"/proc/{front}/{name}", os.O_RDONLY))) == 13, name
    # The state is the front's alone.
    assert server.state.stat().st_mode & 0o077 == 0
    assert as_user(1001, lambda: len(os.listdir(server.state)) * 0) == 13
    for path in server.state.rglob("*"):
        assert path.lstat().st_mode & 0o077 == 0, path


def test_only_the_front_may_speak_to_the_keeper(server):
    path = server.keeper_socket()

    def connect():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(path)
    assert as_user(1001, connect) == 13
    # Root may connect, but not replace a live front.
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(5)
    s.connect(path)
    try:
        assert s.recv(4096) == b""
    except ConnectionResetError:
        pass
    assert server.admin.get("/readyz").status == 200


def test_a_box_cannot_reach_the_server(server, alice, new_box):
    box = new_box()
    probe = ("import socket,os\n"
             "for a in [(socket.AF_INET,('127.0.0.1',%d))]:\n"
             "  s=socket.socket(a[0]); s.settimeout(2)\n"
             "  try: s.connect(a[1]); print('reached')\n"
             "  except OSError as e: print('refused')\n"
             "for p in [%r,%r]:\n"
             "  try: socket.socket(socket.AF_UNIX).connect(p); print('reached')\n"
             "  except OSError as e: print('refused')\n" % (server.port, server.socket, server.keeper_socket()))
    answer = alice.post(box + "/exec", {"argv": ["python3", "-c", probe]}).json
    assert answer["stdout"].split() == ["refused"] * 3, answer


# ---- a front that was taken over: it makes the calls itself ----

AT_FDCWD, O_RDWR, O_CREAT, CLONE_FS, CLONE_NEWUSER = -100, 2, 0o100, 0x200, 0x10000000
CONNECT, SOCKETPAIR = 42, 53
READ, OPEN, CLOSE, SOCKET, CLONE, FORK, VFORK, EXECVE, KILL, RENAME, UNLINK, MKNOD, PTRACE, SETUID, MOUNT = 0, 2, 3, 41, 56, 57, 58, 59, 62, 82, 87, 133, 101, 105, 165
X32 = 0x40000000


def take_over(pid, calls):
    done = subprocess.run([sys.executable, pathlib.Path(__file__).parent / "inject.py", str(pid)], input=json.dumps(calls), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def victim():
    if platform.machine() != "x86_64":
        pytest.skip("system calls are injected on x86_64 only")
    s = Server("--set", "limits.memory=8G")
    s.box = make_box(s.admin)
    yield s
    s.stop()


@pytest.fixture
def twin(victim):
    """A process that has the front's id."""
    uid = ids(victim.front(), "Uid")[0]
    with subprocess.Popen(["sleep", "1000"], user=uid, group=uid, extra_groups=[], cwd="/") as process:
        yield process
        process.kill()


def test_servers_of_root_have_fronts_with_ids_of_their_own(victim):
    other = Server()
    try:
        mine, theirs = (ids(s.front(), "Uid")[0] for s in (victim, other))
        assert len({mine, theirs, 0}) == 3
        assert victim.state.stat().st_uid == mine
        victim.process.send_signal(signal.SIGTERM)
        victim.process.wait(60)
        victim.start()
        assert ids(victim.front(), "Uid")[0] == mine
    finally:
        other.stop()


def test_a_front_that_is_taken_over_reaches_nothing_but_its_state(victim, twin):
    front, keeper, state = victim.front(), victim.keeper(), str(victim.state)
    calls = {
        # Allowed calls, so that the other results mean something.
        "its database": ([OPEN, state + "/state.db", 0, 0], 0),
        "a pair of sockets": ([SOCKETPAIR, socket.AF_UNIX, 1 | socket.SOCK_CLOEXEC, 0, {"bytes": "00" * 8}], 0),
        "a pair for packets": ([SOCKETPAIR, socket.AF_UNIX, 5, 0, {"bytes": "00" * 8}], 0),
        # Files of others, also of those that everybody may read.
        "read /etc/passwd": ([OPEN, "/etc/passwd", 0, 0], errno.EACCES),
        "list /": ([OPEN, "/", os.O_DIRECTORY, 0], errno.EACCES),
        "write to /tmp": ([OPEN, "/tmp/carrel-taken-over", O_RDWR | O_CREAT, 0o666], errno.EACCES),
        "its own memory from outside": ([OPEN, f"/proc/{keeper}/mem", O_RDWR, 0], errno.EACCES),
        "the keeper's environment": ([OPEN, f"/proc/{keeper}/environ", 0, 0], errno.EACCES),
        "the run folder": ([UNLINK, victim.keeper_socket()], errno.EACCES),
        "out of its state": ([RENAME, state + "/state.db", "/tmp/carrel-taken-over"], errno.EACCES),
        "a device": ([MKNOD, state + "/device", 0o20666, 0x101], errno.EPERM),
        # Other programs and processes. The pair of flags would be invalid if the call were let through.
        "execve": ([EXECVE, "/bin/true", 0, 0], errno.EPERM),
        "fork": ([FORK], errno.EPERM),
        "vfork": ([VFORK], errno.EPERM),
        "clone": ([CLONE, CLONE_NEWUSER | CLONE_FS | int(signal.SIGCHLD), 0, 0, 0, 0], errno.EPERM),
        "clone3": ([435, 0, 0], errno.ENOSYS),
        "kill the keeper": ([KILL, keeper, 0], errno.EPERM),
        "kill the supervisor": ([KILL, victim.process.pid, 0], errno.EPERM),
        "ptrace": ([PTRACE, 16, keeper, 0, 0], errno.EPERM),
        "process_vm_readv": ([310, keeper, 0, 0, 0, 0, 0], errno.EPERM),
        "pidfd_getfd": ([438, 0, 0, 0], errno.EPERM),
        # The kernel allows these among processes of one user.
        **{f"{name} to a process of its own id": ([number, *rest], errno.EPERM) for name, number, rest in (
            ("kill", 62, [twin.pid, 0]), ("tkill", 200, [twin.pid, 0]), ("tgkill", 234, [twin.pid, twin.pid, 0]), ("rt_sigqueueinfo", 129, [twin.pid, 0, 0]),
            ("pidfd_send_signal", 424, [-1, 0, 0, 0]), ("prlimit64", 302, [twin.pid, 7, 0, 0]), ("sched_setaffinity", 203, [twin.pid, 0, 0]),
            ("setpriority", 141, [0, twin.pid, 19]), ("ioprio_set", 251, [1, twin.pid, 0]))},
        "setuid": ([SETUID, 0], errno.EPERM),
        # Sockets that others have in the file system, with a connection or without.
        "connect": ([CONNECT, -1, {"bytes": (b"\1\0" + victim.keeper_socket().encode()).ljust(110, b"\0").hex()}, 110], errno.EPERM),
        **{f"unix socket of type {kind}": ([SOCKET, socket.AF_UNIX, kind, 0], errno.EPERM) for kind in (1, 2, 3, 5, 2 | socket.SOCK_CLOEXEC)},
        **{f"pair of type {kind}": ([SOCKETPAIR, socket.AF_UNIX, kind, 0, {"bytes": "00" * 8}], errno.EPERM) for kind in (2, 3, 2 | socket.SOCK_CLOEXEC, 1 << 32 | 2)},
        "pair of another family": ([SOCKETPAIR, 30, 1, 0, {"bytes": "00" * 8}], errno.EPERM),
        # Networks and the kernel.
        **{f"socket of family {f}": ([SOCKET, f, kind, 0], errno.EPERM) for f, kind in ((2, 1), (2, 2), (10, 1), (16, 3), (17, 3), (38, 5), (40, 1), (15, 3), (44, 3), (1 << 32 | 2, 1))},
        "unshare": ([272, CLONE_NEWUSER], errno.EPERM),
        "setns": ([308, 0, 0], errno.EPERM),
        "mount": ([MOUNT, "none", state, "tmpfs", 0, 0], errno.EPERM),
        **{name: ([number, 0, 0, 0, 0, 0], errno.EPERM) for name, number in (
            ("umount2", 166), ("pivot_root", 155), ("chroot", 161), ("bpf", 321), ("perf_event_open", 298), ("userfaultfd", 323),
            ("kexec_load", 246), ("kexec_file_load", 320), ("init_module", 175), ("finit_module", 313), ("reboot", 169), ("open_by_handle_at", 304),
            ("open_tree", 428), ("move_mount", 429), ("fsopen", 430), ("fsconfig", 431), ("fsmount", 432), ("fspick", 433), ("mount_setattr", 442), ("personality", 135),
            ("acct", 163), ("quotactl", 179), ("iopl", 172), ("ioperm", 173), ("modify_ldt", 154), ("syslog", 103), ("sethostname", 170), ("clock_settime", 227),
            ("adjtimex", 159), ("clock_adjtime", 305), ("swapon", 167), ("vhangup", 153), ("lookup_dcookie", 212), ("memfd_secret", 447), ("quotactl_fd", 443))},
        **{name: ([number, 0, 0, 0, 0, 0], errno.ENOSYS) for name, number in (
            ("io_uring_setup", 425), ("keyctl", 250), ("add_key", 248), ("a call of later years", 600))},
    }
    results = dict(zip(calls, take_over(front, [call for call, _ in calls.values()])))
    wrong = {name: (results[name], -code) for name, (_, code) in calls.items() if (results[name] < 0 if code == 0 else results[name] != -code)}
    assert not wrong, "\n".join(f"{n}: {w}" for n, w in wrong.items())
    assert not pathlib.Path("/tmp/carrel-taken-over").exists()
    # It was only borrowed.
    assert victim.front() == front and run(victim.admin, victim.box, "echo fine")["stdout"] == "fine\n"


@pytest.mark.parametrize("call", [{"i386": 20}, [X32 | OPEN, "/", 0, 0]], ids=["i386", "x32"])
def test_a_front_that_calls_the_32_bit_way_is_ended(victim, call):
    front = victim.front()
    assert take_over(front, [call]) == [{"signal": int(signal.SIGSYS)}]
    assert wait_for(lambda: victim.front() not in (None, front)) and wait_for(victim.is_ready)
    assert run(victim.admin, victim.box, "echo fine")["stdout"] == "fine\n"


def connector(server):
    """The process that connects to the keeper for the front."""
    found = [pid for pid, (parent, state) in processes().items() if parent == server.front() and state != "Z"]
    return found[0] if found else None


def test_who_connects_for_the_front_has_nothing_else(victim):
    pid, front = connector(victim), victim.front()
    status = status_of(pid)
    assert ids(pid, "Uid") == ids(front, "Uid") and ids(pid, "Uid")[0] != 0 and int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    assert len([d for d in descriptors(pid) if d.startswith("socket:")]) == 1
    assert not [d for d in descriptors(pid) if str(victim.state) in d]


def test_a_front_that_has_lost_who_connects_is_replaced(victim):
    front = victim.front()
    os.kill(connector(victim), signal.SIGKILL)
    assert wait_for(lambda: victim.front() not in (None, front)) and wait_for(victim.is_ready)
    assert run(victim.admin, victim.box, "echo fine")["stdout"] == "fine\n"     # its boxes did not notice


def test_who_connects_ends_with_the_front(victim):
    pid = connector(victim)
    victim.kill("front")
    wait_for(lambda: pid not in processes())
    assert run(victim.admin, victim.box, "echo fine")["stdout"] == "fine\n"
