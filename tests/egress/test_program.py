"""carrel-egress over its link: ways of catching connections, live policies, bounds, events, hostile frames. With
sanitizers."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
from outside import Namespace
from driver import BOX, COMMAND, FLOW, FRONT, GONE, POLICY, PUBLIC, REFUSED, SHOW, USAGE, BoxNetwork, Egress, policy

from support.waiting import wait_for

CURL = ["curl", "-sS", "--max-time", "20"]
OPEN = """
import socket, sys
kept = []
for line in sys.stdin:
    name, port = line.split()
    try:
        s = socket.create_connection((name, int(port)), timeout=20); s.sendall(b"ping")
        print(s.recv(4).decode() or "end"); kept.append(s)
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture
def egress(world, tmp_path):
    made = Egress(world, os.environ.get("CARREL_EGRESS_ASAN", "build/egress/carrel-egress"), tmp_path)
    yield made
    if made.process.poll() is None:
        words = made.close()
        assert "ERROR" not in words and "runtime error" not in words, words


@pytest.fixture
def network():
    made = []

    def make(way):
        made.append(BoxNetwork(Namespace(), way))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_each_way_carries_and_refuses(egress, network, way):
    box = network(way)
    egress.send(POLICY, 5, policy(["good.test:80", "other.test:7"]))
    box.attach(egress, 5)
    done = box.run(*CURL, "http://good.test/")
    assert json.loads(done.stdout)["host"] == ["good.test"], done.stderr
    assert box.run(*CURL, "http://friend.test/").returncode == 6
    # An address of a name that is allowed for another port only.
    refused = box.run(*CURL, "http://other.test/")
    if way == "hold":
        assert refused.returncode == 7
    else:
        assert "is not allowed by the network policy of this box" in refused.stdout, refused.stderr
    assert {(one[3], one[1]) for one in egress.refused()} == {("friend.test", 0), ("other.test", 80)}
    assert egress.show(5)[1][2] == 1


def test_without_hold_denied_tls_gets_an_alert_and_others_a_reset(egress, network):
    box = network("tproxy")
    egress.send(POLICY, 5, policy(["good.test:7"]))
    box.attach(egress, 5)
    assert "alert" in box.run(*CURL, "-k", "https://good.test/").stderr
    child = box.python(OPEN)
    out, _ = child.communicate("good.test 25\ngood.test 7\n", timeout=30)
    assert out.split() == ["ConnectionResetError", "ping"]


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_a_policy_that_changes_cuts_what_it_no_longer_allows_at_once(egress, network, way):
    box = network(way)
    egress.send(POLICY, 9, policy(["good.test", "four.test"]))
    box.attach(egress, 9)
    code = """
import socket
a = socket.create_connection(("good.test", 7), timeout=30); b = socket.create_connection(("four.test", 7), timeout=30)
for s in a, b: s.sendall(b"ping"); s.recv(4)
print("up")
try: print(a.recv(1))
except ConnectionResetError: print("cut")
b.sendall(b"pong"); print(b.recv(4).decode())
"""
    child = box.python(code)
    assert child.stdout.readline() == "up\n"
    egress.send(POLICY, 9, policy(["four.test"]))
    assert child.communicate(timeout=30)[0].split() == ["cut", "pong"]


def test_a_box_without_a_policy_and_one_that_is_gone_reach_nothing(egress, network):
    box = network("hold")
    box.attach(egress, 3)
    assert box.run(*CURL, "http://good.test/").returncode == 6
    assert box.run(*CURL, "http://203.0.113.10/").returncode == 7
    egress.send(POLICY, 3, policy(["good.test"]))
    assert box.run(*CURL, "http://good.test/").returncode == 0
    egress.send(GONE, 3)
    egress.show(3)
    assert box.run(*CURL, "http://good.test/").returncode == 6


def test_another_boxs_addresses_stand_for_nothing_here(egress, network):
    one, two = network("hold"), network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    egress.send(POLICY, 2, policy(["other.test"]))
    one.attach(egress, 1)
    two.attach(egress, 2)
    address = one.run("dig", "+short", "good.test").stdout.strip()
    assert one.run(*CURL, f"http://{address}/").returncode == 0
    assert two.run(*CURL, f"http://{address}/").returncode == 7


def test_addresses_of_names_stay_when_egress_is_restarted(world, tmp_path, egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    address = box.run("dig", "+short", "good.test").stdout.strip()
    egress.process.kill()
    egress.process.wait()
    assert box.run(*CURL, f"http://{address}/").returncode != 0
    second = Egress(world, os.environ.get("CARREL_EGRESS", "build/carrel-egress"), tmp_path)
    try:
        again = network("hold")
        second.send(POLICY, 1, policy(["good.test"]))
        again.attach(second, 1)
        assert again.run(*CURL, f"http://{address}/").returncode == 0
    finally:
        second.close()


DOWNLOAD = """
import socket, sys
s = socket.create_connection(("good.test", 5001), timeout=30); s.sendall(b"100000000\\n"); s.recv(1)
print("begun", flush=True); sys.stdin.readline()
try:
    while s.recv(1 << 16): pass
    print("an end")
except ConnectionResetError: print("an error")
"""


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_what_egress_left_unfinished_ends_with_an_error(egress, network, way):
    box = network(way)
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    child = box.python(DOWNLOAD)
    assert child.stdout.readline() == "begun\n"
    egress.process.kill()
    egress.process.wait()
    assert child.communicate("go on\n", timeout=30)[0] == "an error\n"


def test_a_second_try_from_the_same_port_takes_the_place_of_the_first(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["203.0.113.0/24"]))
    box.attach(egress, 1)
    code = """
import socket, sys
for line in sys.stdin:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("10.0.2.100", 40001))
    s.setblocking(False)
    print(s.connect_ex(("203.0.113.99", 80)) in (0, 115)); sys.stdin.readline(); s.close()
"""
    child = box.python(code)

    def begun():
        """When the one connection that is under way was begun."""
        egress.show(1)
        flows = [f for f in egress.frames if f[0] == FLOW]
        return time.monotonic() * 1000 - struct.unpack_from("=Q", flows[0][3], 16)[0] if len(flows) == 1 else None

    def ask(word):
        child.stdin.write(word)
        child.stdin.flush()

    ask("open\n")
    assert child.stdout.readline() == "True\n"
    first = wait_for(begun, "the first try")
    wait_for(lambda: time.monotonic() * 1000 > first + 300, "a moment to tell them apart")
    ask("close\nopen\n")
    assert child.stdout.readline() == "True\n"
    wait_for(lambda: (begun() or 0) > first + 200, "the second try", deadline_s=2)
    child.communicate("close\n", timeout=20)


def test_the_number_of_connections_is_bounded(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"], connections=10))
    box.attach(egress, 1)
    child = box.python(OPEN)
    out, _ = child.communicate("good.test 7\n" * 12, timeout=60)
    assert out.split().count("ping") == 10
    assert [one[0] for one in egress.refused()][0] == 3
    assert wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")


def test_a_rate_holds_for_all_connections_together(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"], rate=4 << 20))
    box.attach(egress, 1)
    code = """
import socket, threading, time
def one():
    s = socket.create_connection(("good.test", 5001), timeout=60); s.sendall(b"4194304\\n"); n = 0
    while d := s.recv(1 << 16): n += len(d)
    assert n == 4194304
start = time.monotonic(); all = [threading.Thread(target=one) for _ in range(3)]
for t in all: t.start()
for t in all: t.join()
print(time.monotonic() - start)
"""
    took = float(box.python(code).communicate(timeout=90)[0])
    assert took > 2.5  # 12 MiB at 4 MiB/s, less what a bucket holds at the start
    flows, usage = egress.show(1)
    assert usage[1] == 3 * (4 << 20)


def test_slow_readers_hold_up_no_one_else(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    code = """
import socket, sys
kept = [socket.create_connection(("good.test", 5001), timeout=60) for _ in range(50)]
for s in kept: s.sendall(b"100000000\\n")
print("stuck"); sys.stdin.read()
"""
    child = box.python(code)
    assert child.stdout.readline() == "stuck\n"
    wait_for(lambda: sum(f[3] for f in egress.show(1)[0]) > 50 * 65536, "every reader to be full")
    assert box.run(*CURL, "http://good.test/").returncode == 0
    child.communicate(timeout=20)
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")


def test_refusals_are_told_at_once_then_once_a_second(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    child = box.python(OPEN)
    child.communicate("203.0.113.11 80\n" * 200, timeout=60)
    told = egress.refused()
    assert told[0] == (0, 80, 1, "203.0.113.11", "")
    assert len(told) < 20
    wait_for(lambda: egress.refused()[-1][2] == 200, "the last count")


def test_the_next_command_is_told_the_same_refusal_before_its_program_is_answered(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    child = box.python(OPEN)
    for turn in range(1, 6):
        egress.send(COMMAND, 1)
        child.stdin.write("203.0.113.11 80\n")
        child.stdin.flush()
        assert child.stdout.readline() == "OSError\n"
        assert [one[:4] for one in egress.refused()][-1] == (0, 80, turn, "203.0.113.11")
    child.communicate(timeout=20)


def test_a_crowd_of_programs_waits_for_one_answer(egress, network):
    """200 questions come while the name is looked up for the first."""
    box = network("hold")
    egress.send(POLICY, 1, policy(["tardy.evil.test"]))
    box.attach(egress, 1)
    code = r"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.53", 53)); s.settimeout(20)
for i in range(200):
    s.send(b"\1%c\1\0\0\1\0\0\0\0\0\0\5tardy\4evil\4test\0\0\1\0\1" % i)
codes = [s.recv(512)[3] & 15 for _ in range(200)]
print(codes.count(0), "of", len(codes))
"""
    assert box.run(sys.executable, "-c", code).stdout == "200 of 200\n"


CROWDED = r"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.53", 53)); s.settimeout(20)
for i in range(100):
    name = b"tardy%d" % i
    s.send(b"\1\2\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name + b"\4evil\4test\0\0\1\0\1")
failed = [s.recv(512)[3] & 15 for _ in range(36)]
try: socket.create_connection((sys.argv[1], 7), timeout=20); print("connected")
except OSError: print(failed.count(2))
"""


def test_names_beyond_those_that_can_be_looked_up_at_once_are_refused_with_a_reason(world, tmp_path, egress, network):
    rules = policy(["*.evil.test", "good.test"])
    first, box = network("hold"), network("hold")
    egress.send(POLICY, 1, rules)
    first.attach(egress, 1)
    address = first.run("dig", "+short", "good.test").stdout.strip()
    # Another one gives the name the same address and has not looked it up.
    second = Egress(world, os.environ.get("CARREL_EGRESS_ASAN", "build/egress/carrel-egress"), tmp_path)
    try:
        second.send(POLICY, 1, rules)
        box.attach(second, 1)
        assert box.run(sys.executable, "-c", CROWDED, address).stdout == "36\n"
        refused = {(one[3], one[1]) for one in second.refused() if one[0] == 7}
        assert len(refused) == 37 and ("tardy99.evil.test", 0) in refused and ("good.test", 7) in refused
    finally:
        second.close()


def test_a_flood_of_questions_in_one_box_does_not_starve_another(egress, network):
    flooded, quiet = network("hold"), network("hold")
    egress.send(POLICY, 1, policy(["*.evil.test"]))
    egress.send(POLICY, 2, policy(["good.test"]))
    flooded.attach(egress, 1)
    quiet.attach(egress, 2)
    code = r"""
import itertools, socket, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0))).start()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.53", 53)); s.setblocking(False)
print("on")
for i in itertools.count():
    name = b"x%d" % i
    try: s.send(b"\1\2\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name + b"\4evil\4test\0\0\1\0\1")
    except BlockingIOError: pass
    try: s.recv(512)
    except BlockingIOError: pass
"""
    child = flooded.python(code)
    assert child.stdout.readline() == "on\n"
    for _ in range(5):
        assert quiet.run(*CURL, "http://good.test/").returncode == 0
    child.communicate(timeout=20)


def test_frames_that_are_not_right_are_dropped_and_the_rest_goes_on(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    read, write = os.pipe()
    egress.send(99, 1)
    egress.send(0, 1)
    egress.link.send(b"short")
    egress.link.send(b"x" * 60000)
    egress.send(BOX, 1, struct.pack("=II", 0, 0x7F), fds=[read])
    egress.send(BOX, 2, struct.pack("=II", 0, 1), fds=[read])
    egress.send(BOX, 2, struct.pack("=II", 9, 0))
    egress.send(BOX, 2, struct.pack("=II", 0, 1 << 20), fds=[read])
    egress.send(FRONT, 0, fds=[write])
    egress.send(FRONT, 0)
    egress.send(GONE, 1, fds=[read])
    egress.send(REFUSED, 1)
    egress.send(POLICY, 1, policy([])[:-1])
    egress.send(POLICY, 1, policy([]) + bytes(282))
    insane = bytearray(policy(["good.test"]))
    insane[20:24] = struct.pack("=I", 10_000)
    egress.send(POLICY, 1, bytes(insane))
    egress.send(SHOW, 12345, serial=3)
    wait_for(
        lambda: egress.hear() or any(f[0] == USAGE and f[1] == 3 for f in egress.frames),
        "an answer for a box that is not known",
    )
    os.close(read)
    os.close(write)
    assert box.run(*CURL, "http://good.test/").returncode == 0
    assert egress.words.read_text().count("is dropped") == 15


HALVES = """
import socket, sys
kept = []
for _ in range(300):
    s = socket.create_connection(("good.test", 443), timeout=20)
    try: s.sendall(b"\\x16\\x03\\x01\\x3f\\x00\\x01\\x00\\x3e\\xfc" + bytes(15900))
    except OSError: pass
    kept.append(s)
print("sent", flush=True); sys.stdin.read()
"""


def test_halves_of_hellos_fill_no_memory(egress, network):
    box, other = network("hold"), network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    egress.send(POLICY, 2, policy(["good.test"]))
    box.attach(egress, 1)
    other.attach(egress, 2)
    child = box.python(HALVES)
    assert child.stdout.readline() == "sent\n"
    # 4 MiB of 16 KiB each; the rest was reset.
    wait_for(lambda: egress.show(1)[1][4] <= 264, "those beyond the bound are ended")
    assert other.run(*CURL, "-k", "https://good.test/").returncode == 0
    child.communicate(timeout=20)
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")
    assert box.run(*CURL, "-k", "https://good.test/").returncode == 0


def test_without_descriptors_questions_over_tcp_cost_no_turns(world, tmp_path, network):
    program = os.environ.get("CARREL_EGRESS_ASAN", "build/egress/carrel-egress")
    egress = Egress(world, program, tmp_path, before=["prlimit", "--nofile=60:60"])
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    code = """
import socket, sys
kept = []
for _ in range(40):
    try: kept.append(socket.create_connection(("good.test", 7), timeout=20))
    except OSError: pass
for _ in range(4):
    try: print(socket.create_connection(("127.0.0.53", 53), timeout=20).recv(1) == b"", flush=True)
    except ConnectionResetError: print(True, flush=True)
"""
    out, _ = box.python(code).communicate(timeout=90)
    assert out.split() == ["True"] * 4
    egress.close()


def test_a_client_that_is_gone_is_looked_for(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    child = box.python("import socket, sys; s = socket.create_connection(('good.test', 7)); print('up', flush=True); sys.stdin.read()")
    assert child.stdout.readline() == "up\n"
    wait_for(lambda: "timer:(keepalive," in box.run("ss", "-tnoH", "sport", "=", ":7").stdout, "a timer on our side of it")
    child.communicate(timeout=20)


def test_all_connections_of_a_crowd_are_counted_and_a_thousand_are_shown(egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test"], connections=6000))
    box.attach(egress, 1)
    code = "import socket, sys; kept = [socket.create_connection(('good.test', 7)) for _ in range(1100)]; print('up', flush=True); sys.stdin.read()"
    child = box.start("prlimit", "--nofile=9000:9000", sys.executable, "-c", code)
    assert child.stdout.readline() == "up\n"
    # Asked for five times before the first answer is read, so that they do not fit into its queue.
    for serial in range(100, 105):
        egress.send(SHOW, 1, serial=serial)
    _, usage = egress.show(1)
    assert usage[4] == 1100
    assert 0 < sum(f[0] == FLOW and f[1] == 100 for f in egress.frames) <= 1000
    child.communicate(timeout=20)


def test_a_new_front_can_send_a_hundred_policies_at_once(egress):
    egress.process.send_signal(signal.SIGSTOP)
    egress.link.setblocking(False)
    for box in range(100):
        egress.send(POLICY, box, policy(["good.test", "*.wild.test"]))
    egress.link.setblocking(True)
    egress.process.send_signal(signal.SIGCONT)
    egress.show(99)
    assert "dropped" not in egress.words.read_text()


def test_it_is_confined(world, egress, network):
    box = network("hold")
    egress.send(POLICY, 1, policy(mode=PUBLIC))
    box.attach(egress, 1)
    assert box.run(*CURL, "http://good.test/").returncode == 0
    status = dict(
        line.split(":\t", 1) for line in open(f"/proc/{egress.process.pid}/status").read().splitlines() if ":\t" in line
    )
    assert status["Uid"].split() == ["64997"] * 4 and status["Groups"].strip() == ""
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" and status["Threads"] == "1"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) == 0
    with pytest.raises(PermissionError):
        os.setresuid(64997, 64997, 0)
        try:
            os.listdir(f"/proc/{egress.process.pid}/fd")
        finally:
            os.setresuid(0, 0, 0)


def test_only_the_user_of_the_keeper_may_connect(world, tmp_path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = tmp_path / "egress.sock"
    listener.bind(str(place))
    listener.listen(8)
    program = os.environ.get("CARREL_EGRESS", "build/carrel-egress")
    for uid, works in ((0, True), (1234, False)):
        child = world.host.start(
            program,
            "--listen-fd",
            listener.fileno(),
            "--peer-uid",
            uid,
            "--uid",
            64997,
            "--gid",
            64997,
            pass_fds=[listener.fileno()],
            stderr=-3,
        )
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
            keeper.settimeout(20)
            keeper.connect(str(place))
            front, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            its_fd = its.fileno()
            if works:
                socket.send_fds(keeper, [struct.pack("=IIQ", FRONT, 0, 0)], [its_fd])
                front.settimeout(20)
                front.send(struct.pack("=IIQ", SHOW, 8, 5))
                assert struct.unpack_from("=II", front.recv(4096)) == (USAGE, 8)
            else:
                try:
                    assert keeper.recv(10) == b""
                except ConnectionResetError:
                    pass
        child.terminate()
        assert child.wait(20) == 0
    listener.close()


def test_bad_options_say_what_is_missing():

    program = os.environ.get("CARREL_EGRESS", "build/carrel-egress")
    for options, part in (
        (["--nothing", "1"], "--nothing"),
        ([], "--listen-fd or --link-fd is missing"),
        (["--listen-fd", "3"], "--peer-uid is missing"),
        (["--link-fd", "x"], "--link-fd"),
        (["--link-fd", "3", "--uid", "3"], "--uid and --gid"),
        (["--link-fd"], "a number must follow"),
    ):
        done = subprocess.run([program, *options], capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and part in done.stderr and len(done.stderr.splitlines()) == 1


CROWD = """
import socket, sys
kept, broken = [], 0
for _ in range(int(sys.argv[1])):
    try:
        s = socket.create_connection(("good.test", 7), timeout=20)
        s.sendall(b"x")
        broken += s.recv(1) != b"x"
        kept.append(s)
    except OSError:
        broken += 1
print(len(kept), broken)
"""


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_it_gives_back_all_that_connections_took(egress, network, way):
    box = network(way)
    egress.send(POLICY, 1, policy(["good.test", "four.test:81"]))
    box.attach(egress, 1)
    descriptors = f"/proc/{egress.process.pid}/fd"
    assert box.run(sys.executable, "-c", CROWD, "1").stdout == "1 0\n"
    wait_for(lambda: egress.show(1)[1][4] == 0, "the first connection to end")
    before = len(os.listdir(descriptors))
    assert box.run(sys.executable, "-c", CROWD, "400").stdout == "400 0\n"
    for target in ("203.0.113.11 80", "four.test 81", "good.test 5003", "198.18.9.9 1"):
        box.python(OPEN).communicate(f"{target}\n" * 50, timeout=60)
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")
    # Spare pipes stay, sixteen at most.
    assert len(os.listdir(descriptors)) <= before + 32


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_when_descriptors_are_short_connections_fail_and_others_go_on(world, tmp_path, network, way):
    program = os.environ.get("CARREL_EGRESS_ASAN", "build/egress/carrel-egress")
    egress = Egress(world, program, tmp_path, before=["prlimit", "--nofile=100:100"])
    box = network(way)
    egress.send(POLICY, 1, policy(["good.test"]))
    box.attach(egress, 1)
    kept, broken = map(int, box.run(sys.executable, "-c", CROWD, "80").stdout.split())
    assert 20 < kept < 60 and broken == 80 - kept
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")
    assert box.run(sys.executable, "-c", CROWD, "10").stdout == "10 0\n"
    used = open(f"/proc/{egress.process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]
    assert sum(map(int, used)) < 500  # ticks: it did not turn for nothing
    egress.close()
