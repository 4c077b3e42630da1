"""A server of an ordinary user, whose boxes are the same user outside: they share the kernel's per-user counts."""
import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from support.waiting import wait_for
from traces import OTHER_UID, Server, make_box, run

# Sends descriptors without a receiver, until so many are in flight, and waits.
FLIGHT = """
import os, socket, sys
ours, sent = [], 0
fd = os.open("/dev/null", os.O_RDONLY)
while sent < int(sys.argv[1]):
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.append(pair)
    socket.send_fds(pair[0], [b"x"], [fd] * 250)
    sent += 250
print(sent, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def flight():
    started = []

    def start(count):
        p = subprocess.Popen([sys.executable, "-c", FLIGHT, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=OTHER_UID, group=OTHER_UID,
                             extra_groups=[], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)))
        started.append(p)
        assert int(p.stdout.readline()) >= count
        return p
    yield start
    for p in started:
        p.kill()
        p.communicate()


def few():
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))


def test_descriptors_on_their_way_do_not_cost_the_front(flight):
    """More of them than the server may have: requests that need descriptors are refused, all others work, and afterwards those do, too."""
    server = Server(user=OTHER_UID, prepare=few)
    try:
        alice = server.as_uid()
        box = make_box(alice, limits=None)
        front, keeper = server.front(), server.keeper()
        hog = flight(2500)
        for _ in range(3):
            answer = alice.post(box + "/exec", {"shell": "echo here"})
            assert answer.json["error"]["errno"] == errno.ETOOMANYREFS, answer.body
        assert [b["id"] for b in alice.get("/v1/boxes").json["boxes"]] == [box.rsplit("/", 1)[1]]
        gone = alice.delete(box)
        assert gone.status in (200, 204), gone.body
        assert server.is_ready() and (server.front(), server.keeper()) == (front, keeper)
        os.kill(front, signal.SIGKILL)      # the next one can be given its connection to the keeper only when they are fewer
        wait_for(lambda: server.front() not in (None, front), server.log_text)
        hog.communicate()
        assert wait_for(server.is_ready) and server.keeper() == keeper, server.log_text()
        assert run(alice, make_box(alice, limits=None), "echo here")["stdout"] == "here\n"
    finally:
        server.stop()


def test_a_keeper_that_cannot_send_descriptors_keeps_its_front(flight):
    server = Server(user=OTHER_UID)
    try:
        alice = server.as_uid()
        box = make_box(alice, limits=None)
        background = alice.post(box + "/exec", {"shell": "sleep 1000", "background": True})
        assert background.status == 202, background.body
        front, keeper = server.front(), server.keeper()
        subprocess.run(["prlimit", "--nofile=2000:2000", "--pid", str(keeper)], user=OTHER_UID, group=OTHER_UID, extra_groups=[], check=True)
        hog = flight(2500)
        answer = alice.post(box + "/exec", {"shell": "echo here"})
        assert answer.json["error"]["errno"] == errno.ETOOMANYREFS, answer.body
        assert server.is_ready() and (server.front(), server.keeper()) == (front, keeper)
        server.kill("front")        # the next front learns of the command, but cannot be given its pipes
        gone = alice.delete(box)
        assert gone.status in (200, 204), gone.body
        assert server.keeper() == keeper
        hog.communicate()
        assert run(alice, make_box(alice, limits=None), "echo here")["stdout"] == "here\n"
    finally:
        server.stop()
