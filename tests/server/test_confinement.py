"""What the front could do if somebody took it over, seen from outside."""
import ctypes
import os
import pathlib
import re
import socket

from support import descriptors, run, status_of, wait_for

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
    assert wait_for(lambda: not [d for d in descriptors(server.front()) if not known.match(d)]), descriptors(server.front())


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
    path = str(server.folder / "run" / "keeper.sock")

    def connect():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(path)
    assert as_user(1001, connect) == 13
    # Root may connect, but not take the place of a front that is there.
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
             "  except OSError as e: print('refused')\n" % (server.port, server.socket, str(server.folder / "run" / "keeper.sock")))
    answer = alice.post(box + "/exec", {"argv": ["python3", "-c", probe]}).json
    assert answer["stdout"].split() == ["refused"] * 3, answer
