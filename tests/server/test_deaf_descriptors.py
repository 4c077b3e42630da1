"""Descriptors of local users that block every process that touches them: they may cost their owner a request, and other users nothing."""
import concurrent.futures
import os
import socket

import pytest

from deaf import Deaf
from support.waiting import wait_for
from traces import OTHER_UID, SMALL, Server, UserClient, descendants, make_box, run


@pytest.fixture
def deaf(server):
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no /dev/fuse")
    with Deaf() as d:
        yield d
    wait_for(lambda: not openers(server), lambda: "an opener is left")


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
    """The process of a local user; it hangs after it has reported the answer."""
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
    assert not answer.startswith("201") and "do not answer" in answer, answer
    alice.delete(path)


def test_mounts_that_do_not_answer_are_few(server, deaf):
    """The processes that inspect them cannot be killed; the caller's next request is refused, others' are not."""
    told = [deaf.hold(ask_for_mount(server, deaf.file)) for _ in range(8)]
    answers = [t.readline() for t in told]
    assert all("do not answer" in a for a in answers), answers
    answer = deaf.hold(ask_for_mount(server, deaf.file)).readline()
    assert f"8 mounts of user {OTHER_UID} do not answer" in answer, answer
    made = server.admin.create_with_mounts({}, {"/x": "/usr/share"})
    assert server.admin.delete("/v1/boxes/" + made["id"]).status in (200, 202, 204)


def test_a_keeper_that_dies_with_a_deaf_mount_is_followed_by_another():
    """A hanging process holds nothing that the next keeper needs."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no /dev/fuse")
    s = Server()
    try:
        with Deaf() as d:
            d.hold(ask_for_mount(s, d.file))
            assert d.wait("GETATTR") in openers(s)
            s.kill("keeper")
            path = make_box(s.admin, store="disk")
            assert run(s.admin, path, "echo alive")["stdout"] == "alive\n"
        wait_for(lambda: not openers(s), lambda: "an opener is left")
    finally:
        s.stop()


def test_many_mounts_at_once_are_all_opened(server):
    """As many as a caller requests, as long as they answer."""
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        made = list(pool.map(lambda _: server.admin.create_with_mounts({"limits": SMALL}, {"/x": "/usr/share"}), range(80)))
    for box in made:
        assert server.admin.delete("/v1/boxes/" + box["id"]).status in (200, 202, 204)
