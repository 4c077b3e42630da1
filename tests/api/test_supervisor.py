"""kill -9 of the supervisor, and servers beside each other: a state has one server, and a server has its own boxes."""
import concurrent.futures
import contextlib
import ctypes
import http.client
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess

import pytest

from support.processes import processes
from support.server import Server, limits
from support.users import as_user
from support.waiting import wait_for

SMALL = limits(memory="64M", pids=32)
PIDFD_GETFD = 438
BROKEN = (OSError, http.client.HTTPException, ValueError)


@pytest.fixture
def make_server():
    made = []

    def make(*options, **more):
        made.append(Server(*options, **more))
        return made[-1]

    yield make
    for s in made:
        s.stop()


def lives(pid):
    return processes().get(pid, (0, "X"))[1] not in "ZX"


def tree(pid):
    """A process and all below it."""
    everything, found = processes(), {pid}
    while more := {p for p, (parent, _) in everything.items() if parent in found} - found:
        found |= more
    return found


def kill_supervisor(server):
    server.process.kill()
    server.process.wait()


def make_box(client, **body):
    made = client.post("/v1/boxes", {"limits": SMALL, **body})
    assert made.status == 201, made.body
    return "/v1/boxes/" + made.json["id"]


def names_of_the_living(server):
    with contextlib.closing(sqlite3.connect(f"file:{server.state}/state.db?mode=ro", uri=True, timeout=60)) as db:
        return [name for name, in db.execute("SELECT name FROM boxes WHERE alive AND name IS NOT NULL")]


def test_a_supervisor_that_is_killed_leaves_nobody_who_writes_although_requests_are_in_flight(make_server):
    """A front that is asked to end first answers open requests: it would do that beside its successor, with the successor's keeper."""
    server = make_server()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for turn in range(3):
            box = make_box(server.admin)
            waiting = [pool.submit(server.admin.post, box + "/exec", {"argv": ["sleep", "1000"]}) for _ in range(4)]
            wait_for(lambda: sum(x["state"] == "running" for x in server.admin.get(box + "/exec").json["execs"]) == 4)
            waiting += [pool.submit(server.admin.post, "/v1/boxes", {"limits": SMALL, "name": f"one-{i % 4}"}) for i in range(12)]
            front, keeper = server.front_pid(), server.keeper_pid()
            kill_supervisor(server)
            server.start()
            assert not lives(front) and not lives(keeper), f"turn {turn}: front {front}, keeper {keeper}"
            for w in waiting:
                with contextlib.suppress(*BROKEN):      # most were cut off
                    w.result(60)
            assert server.admin.get(box).json["phase"] == "failed" and server.admin.get(box).json["reason"] == "keeper_lost"
            assert names_of_the_living(server) == []
            server.clear()


def test_a_supervisor_that_is_killed_while_it_starts_leaves_nobody(make_server):
    """Alone, with one child, with two, and when those have children of their own."""
    server = make_server()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    for n in (1, 2, 2, 3, 3, 3, 4, 4, 5):
        server.start(ready=False)
        seen = set()
        while len(seen) < n:
            assert server.process.poll() is None, server.log_text()
            seen = tree(server.process.pid)
        seen |= tree(server.process.pid)
        kill_supervisor(server)
        wait_for(lambda: not any(map(lives, seen)), lambda: f"of {n}: {[p for p in seen if lives(p)]} of {seen}")
    server.start()
    assert make_box(server.admin)


@pytest.mark.parametrize("background", [False, True])
def test_a_command_that_was_asked_for_when_the_keeper_went_is_refused(make_server, background):
    """It never ran, so it is no result; the client may ask again."""
    server = make_server()
    box, keeper = make_box(server.admin), server.keeper_pid()
    os.kill(keeper, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.admin.post, box + "/exec", {"argv": ["true"], "background": background})
        wait_for(lambda: server.admin.get(box + "/exec").json["execs"])
        os.kill(keeper, signal.SIGKILL)
        answer = asked.result(60)
    assert (answer.status, answer.code) == (503, "unavailable"), answer.body


def test_an_orphan_that_does_not_end_is_waited_for(make_server):
    """A keeper that is stopped, for example: its successor does not begin beside it."""
    server = make_server()
    keeper = server.keeper_pid()
    os.kill(keeper, signal.SIGSTOP)
    try:
        kill_supervisor(server)
        server.start(ready=False)
        wait_for(lambda: "waiting" in server.log_text(), server.log_text)
        assert not pathlib.Path(server.socket).exists() or not can_connect(server)
    finally:
        os.kill(keeper, signal.SIGCONT)
    wait_for(server.is_ready, server.log_text)
    assert not lives(keeper)
    assert make_box(server.admin)


def can_connect(server):
    try:
        return server.admin.get("/healthz").status
    except BROKEN:
        return False


def serve_too(server, *options):
    """What a second `carrel serve` says that is to end by itself."""
    other = server.folder / "other"
    return subprocess.run([server.place / server.program, "serve", "--no-config", "--socket", other / "api.sock", "--state", server.state, "--run", other / "run",
                           "--set", "templates.python.pool=off", *options], capture_output=True, text=True, timeout=60, **as_user(server.user))


@pytest.mark.parametrize("child", ["egress", "broker"])
def test_a_dying_child_of_an_earlier_server_does_not_stop_the_next_one(make_server, child):
    """Neither holds the lock of the state. The test keeps the listener of one open, as a process does that has not ended yet."""
    server = make_server()

    def words_of():
        for pid, (parent, _) in processes().items():
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if parent == server.process.pid else [b""]
            if words[0].endswith(b"carrel-" + child.encode()) and b"--listen-fd" in words:
                return words
        return None
    words = wait_for(words_of, server.log_text)
    fd = int(words[words.index(b"--listen-fd") + 1])
    process = os.pidfd_open(server.process.pid)
    kept = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, fd, 0)
    assert kept >= 0, os.strerror(ctypes.get_errno())
    try:
        kill_supervisor(server)
        server.start()
        assert server.admin.get("/v1/boxes").status == 200
    finally:
        os.close(kept)
        os.close(process)


def test_a_second_server_on_the_same_state_is_refused_in_words(make_server):
    server = make_server()
    box = make_box(server.admin)
    other = server.folder / "other"
    other.mkdir()
    if server.user:
        shutil.chown(other, server.user)
    for state in (server.state, server.folder / "link"):
        if state != server.state:
            state.symlink_to(server.state)
        refused = serve_too(server, "--state", state)
        assert refused.returncode == 125, refused.stderr
        for word in (str(state), str(server.process.pid), "--state"):
            assert word in refused.stderr, refused.stderr
    server.kill("front")        # the next one has it, too
    assert serve_too(server).returncode == 125
    assert server.admin.get(box).json["phase"] == "running"


def test_two_servers_of_one_user_have_their_own_boxes(make_server):
    """They differ in --socket and --state alone; what is internal of both lies in one folder."""
    one = make_server()
    two = make_server("--run", one.folder / "run")
    first, second = make_box(one.admin, name="mine"), make_box(two.admin, name="mine")
    for server, box, other in ((one, first, second), (two, second, first)):
        assert server.admin.post(box + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"
        assert server.admin.get(other).status == 404
    for server in (one, two):
        server.kill("front")
    assert one.carrel("gc", user=one.user).returncode == 0
    for server, box in ((one, first), (two, second)):
        assert server.admin.get(box).json["phase"] == "running"
        assert server.admin.post(box + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    two.kill("keeper")          # sweeps when it starts
    wait_for(lambda: two.admin.get(second).json["phase"] == "failed")
    assert one.admin.get(first).json["phase"] == "running"
    kill_supervisor(two)
    two.start()
    two.process.send_signal(signal.SIGTERM)
    two.process.wait(60)
    assert one.admin.post(first + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    assert len(list((one.folder / "run").glob("keeper*"))) == 1


def test_a_second_server_with_the_same_keeper_gets_none_of_its_boxes(make_server):
    one = make_server()
    box = make_box(one.admin)
    two = make_server("--keeper", one.keeper_socket(), ready=False)
    wait_for(lambda: "has another server" in two.log_text(), two.log_text)
    assert two.admin.get("/readyz").status == 503
    assert one.admin.post(box + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"


def test_a_second_keeper_does_not_take_the_place_of_the_first(make_server):
    server = make_server()
    box = make_box(server.admin)
    refused = subprocess.run([server.place / "carrel", "keeper", "--listen", server.keeper_socket(), "--front-uid", "1"], capture_output=True, text=True,
                             timeout=60, **as_user(server.user))
    assert refused.returncode == 125 and "another keeper" in refused.stderr, refused.stderr
    server.kill("front")        # which finds the first
    assert server.admin.post(box + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"
