"""Descriptors of local users that block whoever touches them: they may cost their owner a request, and nobody else anything."""
import os
import socket

import pytest

from deaf import Deaf
from support import OTHER_UID, UserClient, descendants, make_box, run, wait_for


@pytest.fixture
def deaf(server):
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no /dev/fuse")
    with Deaf() as d:
        yield d
    assert wait_for(lambda: not openers(server)), "an opener is left"


def openers(server):
    found = []
    for pid in descendants(server.process.pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if b"opener" in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def ask_for_mount(server, path, uid=OTHER_UID):
    """What a local user's process does; it hangs when it has told the answer."""
    def work(tell):
        os.seteuid(uid)
        fd = os.open(path, os.O_RDONLY)
        ours, theirs = socket.socketpair()
        socket.send_fds(ours, [b"\0"], [fd])
        os.seteuid(0)
        answer = UserClient(server.socket, uid).post_with_fds(
            "/v1/boxes", {"mounts": [{"source": "/deaf", "target": "/x", "fd": 0}]}, [theirs.fileno()])
        tell(f"{answer.status} {answer.body}")
    return work


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_mount_that_does_not_answer_stops_nobody_else(server, deaf, alice, what):
    told = deaf.hold(ask_for_mount(server, getattr(deaf, what)))
    assert deaf.wait("GETATTR") in openers(server)
    path = make_box(alice)
    assert run(alice, path, "echo alive")["stdout"] == "alive\n"
    answer = told.readline()
    assert not answer.startswith("201") and "does not answer" in answer, answer
    alice.delete(path)


def test_mounts_that_do_not_answer_are_few(server, deaf, alice):
    """They cannot be killed while they wait; the next is refused, others' are not."""
    told = [deaf.hold(ask_for_mount(server, deaf.file)) for _ in range(9)]
    answers = sorted(t.readline() for t in told)
    assert sum("do not answer; try again" in a for a in answers) == 1, answers
    assert sum("does not answer" in a for a in answers) == 8, answers
    made = server.admin.create_with_mounts({}, {"/x": "/usr/share"})
    assert server.admin.delete("/v1/boxes/" + made["id"]).status in (200, 202, 204)
