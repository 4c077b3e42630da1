"""What one box can use up of an egress that serves others, too: descriptors, lookups, memory of the kernel's, turns."""

import os
import re
import subprocess

import pytest
from driver import POLICY, BoxNetwork, SharedEgress, policy
from outside import Namespace

from support.waiting import wait_for

PROGRAM = os.environ.get("CARREL_EGRESS_ASAN", "build/egress/carrel-egress")


@pytest.fixture
def shared(world, tmp_path):
    made = []

    def make(before=()):
        made.append(SharedEgress(world, PROGRAM, tmp_path, before))
        return made[-1]

    yield make
    for one in made:
        words = one.close()
        assert "ERROR" not in words and "runtime error" not in words, words


@pytest.fixture
def network():
    made = []

    def make(way="hold"):
        made.append(BoxNetwork(Namespace(), way))
        return made[-1]

    yield make
    for one in made:
        one.close()


def two_boxes(egress, network, way="hold", **more):
    boxes = network(way), network(way)
    for number, box in enumerate(boxes, 1):
        egress.send(POLICY, number, policy(["good.test", "*.test", "*.evil.test"], **more))
        box.attach(egress, number)
    return boxes


CONNECT = """
import socket, sys
kept, broken = [], 0
for _ in range(int(sys.argv[1])):
    try:
        s = socket.create_connection(("good.test", 7), timeout=20); s.sendall(b"x")
        broken += s.recv(1) != b"x"; kept.append(s)
    except OSError: broken += 1
print(len(kept), broken, flush=True); sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_a_box_that_wants_all_descriptors_leaves_others_theirs(shared, network, way):
    egress = shared(["prlimit", "--nofile=600:600"])
    greedy, quiet = two_boxes(egress, network, way, connections=5000)
    child = greedy.python(CONNECT, "400")
    kept, broken = map(int, child.stdout.readline().split())
    assert 50 < kept < 200 and kept + broken == 400
    why = {one[0] for one in egress.refused()}
    assert why == {3}
    other = quiet.python(CONNECT, "20")
    assert other.stdout.readline() == "20 0\n"
    other.communicate(timeout=20)
    # It gets them back when it needs fewer, as often as it likes.
    child.communicate(timeout=20)
    wait_for(lambda: egress.show(1)[1][4] == 0 == egress.show(2)[1][4], "all connections to end")
    again = greedy.python(CONNECT, "400")
    assert again.stdout.readline() == f"{kept} {broken}\n"
    again.communicate(timeout=20)


SILENT = r"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("203.0.113.61", 53)); print("up", flush=True)
while True:
    data, who = s.recvfrom(4096)
    if b"silent" in data: continue
    s.sendto(data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + data[12:data.index(b"\0", 12) + 5] + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xcb\0\x71\x0a", who)
"""

# Each question is given up at once by a reset, and the next one asked.
GIVE_UP = r"""
import itertools, os, socket, struct, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
for i in itertools.count():
    s = socket.create_connection(("127.0.0.53", 53)); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    name = b"x%d" % i
    question = b"\1\2\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name + b"\6silent\4test\0\0\1\0\1"
    s.sendall(struct.pack(">H", len(question)) + question)
    s.settimeout(0.002)
    try: s.recv(1)
    except OSError: pass
    s.close()
    if i == 1500: print("on", flush=True)
"""


def test_lookups_that_a_box_gives_up_keep_others_from_nothing(world, shared, network):
    world.world.ip("addr add 203.0.113.61/24 dev inside")
    resolver = world.world.start("python3", "-c", SILENT, stdout=subprocess.PIPE)
    before = world.settings.read_text()
    try:
        assert resolver.stdout.readline() == b"up\n"
        world.settings.write_text("nameserver 203.0.113.61\n")
        egress = shared()
        greedy, quiet = two_boxes(egress, network)
        child = greedy.python(GIVE_UP)
        assert child.stdout.readline() == "on\n"
        for i in range(10):
            done = quiet.run("dig", "+short", "+tries=1", "+timeout=10", f"fresh{i}.test")
            assert done.stdout.startswith("198."), done
        child.communicate(timeout=20)
    finally:
        world.settings.write_text(before)
        resolver.kill()
        resolver.wait()
        world.world.ip("addr del 203.0.113.61/24 dev inside")


STUCK = """
import socket, sys
kept = [socket.create_connection(("good.test", 5001), timeout=60) for _ in range(300)]
for s in kept: s.sendall(b"100000000\\n")
print("stuck", flush=True); sys.stdin.read()
"""


def test_readers_that_do_not_read_hold_little_memory_of_the_kernels(world, shared, network):
    egress = shared()
    greedy, _ = two_boxes(egress, network)
    child = greedy.python(STUCK)
    assert child.stdout.readline() == "stuck\n"

    def held():
        """What waits at egress's sockets towards the world, in bytes."""
        told = world.host.run("ss", "-tmnH", "dport", "=", ":5001", capture_output=True, text=True).stdout
        return sum(int(r) for r in re.findall(r"skmem:\(r(\d+)", told))

    amounts = [0]

    def stands():
        amounts.append(held())
        return amounts[-1] > 20 << 20 and amounts[-1] - amounts[-2] < 1 << 20

    wait_for(stands, "all to be full", every_s=0.5)
    assert amounts[-1] < 160 << 20
    child.communicate(timeout=30)
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")


@pytest.mark.parametrize("way", ["hold", "tproxy"])
def test_urgent_bytes_cost_no_turns_and_all_others_arrive(shared, network, way):
    egress = shared()
    box, _ = two_boxes(egress, network, way)
    code = """
import socket, sys
s = socket.create_connection(("good.test", 7), timeout=20)
s.sendall(b"ab"); s.send(b"!", socket.MSG_OOB); s.sendall(b"cd")
got = b""
while len(got) < 5: got += s.recv(10)
print(got.decode(), flush=True); sys.stdin.read()
"""

    def ticks():
        return sum(map(int, open(f"/proc/{egress.process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))

    child = box.python(code)
    assert child.stdout.readline() == "ab!cd\n"
    before = ticks()
    done = box.run("sleep", "2")
    assert done.returncode == 0 and ticks() - before < 50
    child.communicate(timeout=20)
