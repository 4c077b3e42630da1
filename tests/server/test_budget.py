"""The front's memory for one identity is bounded, others do not notice, and it is freed."""
import http.client
import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import tempfile

import pytest

from support.client import WebSocket
from support.processes import resident_bytes
from support.waiting import wait_for
from traces import OTHER_UID, Server, make_box, run
from test_connections import answer_of, head

MIB = 1 << 20


@pytest.fixture(scope="module")
def narrow():
    """A server with small budgets, whose interpreters start quickly and do what a cell says."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-fake-"))
    folder.chmod(0o755)
    shutil.copy(pathlib.Path(__file__).parents[1] / "kernels/fake.py", folder / "carrel_kernel")
    (folder / "carrel_kernel").chmod(0o644)
    s = Server("--set", "quota.buffers=8M", variables={"CARREL_GUEST": str(folder)})
    yield s
    s.stop()
    shutil.rmtree(folder)


@pytest.fixture
def carol(narrow):
    return narrow.token("carol")


@pytest.fixture
def dave(narrow):
    return narrow.token("dave")


def with_body(client, path, body, sent=None):
    """A request on a socket of its own, with only a part of its body sent."""
    s = client.raw_socket()
    data = json.dumps(body).encode()
    s.sendall(head(client, "POST", path, f"Content-Length: {len(data)}") + data[:sent])
    return s


def refused(status, body):
    return status == 429 and json.loads(body)["error"]["code"] == "quota_exceeded" and "quota.buffers" in json.loads(body)["error"]["message"]


def test_input_that_no_command_reads(narrow, carol, dave):
    box, other = make_box(carol), make_box(dave)
    sleep = {"argv": ["sleep", "1000"], "stdin": "x" * 3 * MIB, "background": True}
    started, last = [], None
    for _ in range(10):
        last = carol.post(box + "/exec", sleep)
        if last.status != 202:
            break
        started.append(f"{box}/exec/{last.json['id']}")
    assert refused(last.status, last.body) and last.headers["Retry-After"] == "1" and started
    # Small requests work, other identities have their own budget, and ended requests free theirs.
    assert run(carol, box, "echo fine", stdin="abc")["stdout"] == "fine\n"
    assert dave.post(other + "/exec", sleep).status == 202
    for path in started:
        assert carol.delete(path).status in (200, 202, 204)
    wait_for(lambda: carol.post(box + "/exec", sleep).status == 202)
    for client, path in ((carol, box), (dave, other)):
        assert client.delete(path).status == 204
    again = make_box(carol)
    assert carol.post(again + "/exec", sleep).status == 202
    assert carol.delete(again).status == 204


def test_a_command_whose_output_is_cut_ends(narrow, carol):
    """It belongs to its request, also if we end that: here because the client does not read, and others' input takes most of the room."""
    box, streams = make_box(carol, limits={"pids": 200, "memory": "256M"}), []
    while carol.post(box + "/exec", {"argv": ["sleep", "1000"], "stdin": "x" * 3 * MIB, "background": True}).status == 202:
        pass
    talk = "while :; do head -c 50000 /dev/zero; sleep 0.02; done"
    body = json.dumps({"shell": talk, "output_limit": "1G"}).encode()
    for _ in range(20):
        s = carol.raw_socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(head(carol, "POST", box + "/exec?stream=true", f"Content-Length: {len(body)}") + body)
        streams.append(s)

    def ended():
        return [x for x in carol.get(box + "/exec").json["execs"] if talk in x["argv"] and x["state"] == "ended"]
    wait_for(ended)
    assert {x["outcome"] for x in ended()} == {"killed"}
    for s in streams:
        s.close()
    assert carol.delete(box).status == 204


def test_bodies_that_do_not_end(narrow, carol, dave):
    box, other = make_box(carol), make_box(dave)
    before = resident_bytes(narrow.front())
    body = {"argv": ["cat"], "stdin": "x" * 3 * MIB}
    slow = [with_body(carol, box + "/exec", body, 2 * MIB) for _ in range(2)]
    wait_for(lambda: refused(*answer_of(with_body(carol, box + "/exec", body, 2 * MIB))))
    assert len(dave.post(other + "/exec", body).json["stdout"]) == 3 * MIB
    for s in slow:
        s.close()
    wait_for(lambda: carol.post(box + "/exec", body).status == 200)
    assert resident_bytes(narrow.front()) - before < 64 * MIB
    for client, path in ((carol, box), (dave, other)):
        assert client.delete(path).status == 204


def kernel_box(client):
    return make_box(client, template="python", limits={"memory": "256M", "disk": "32M", "pids": 64})


def say(bytes_, piece=100000):
    return f"for _ in range({bytes_ // piece}): link.send('iopub', 'stream', {{'name': 'stdout', 'text': 'y' * {piece}}}, header)"


def test_answers_of_runs_that_are_gathered(narrow, carol):
    box = kernel_box(carol)
    many = carol.post(box + "/run", {"code": say(12 * MIB), "output_limit": "64M"})
    assert refused(many.status, many.body)
    some = carol.post(box + "/run", {"code": say(2 * MIB), "output_limit": "64M"})
    assert some.status == 200 and len(some.json["stdout"]) == 2 * MIB // 100000 * 100000
    # As a stream nothing is gathered.
    stream = carol.post(box + "/run?stream=true", {"code": say(12 * MIB), "output_limit": "64M"})
    assert stream.status == 200 and len(stream.body) > 12 * MIB - 100000 and b'"outcome"' in stream.body[-2000:]
    assert carol.delete(box).status == 204


def test_answers_that_nobody_reads(narrow, carol, dave):
    box = kernel_box(carol)
    code = {"code": say(6 * MIB), "output_limit": "64M"}     # more than a socket takes
    stuck = []
    for _ in range(10):
        s = carol.raw_socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        data = json.dumps(code).encode()
        s.sendall(head(carol, "POST", box + "/run", f"Content-Length: {len(data)}") + data)
        stuck.append(s)
    wait_for(lambda: refused(*(lambda a: (a.status, a.body))(carol.post(box + "/run", code))))
    other = kernel_box(dave)
    assert dave.post(other + "/run", code).status == 200
    for s in stuck:
        s.close()
    wait_for(lambda: carol.post(box + "/run", code).status == 200)
    for client, path in ((carol, box), (dave, other)):
        assert client.delete(path).status == 204


def test_code_and_questions_that_wait_for_a_kernel(narrow, carol):
    box = kernel_box(carol)
    first = with_body(carol, box + "/run", {"code": "open('/tmp/runs', 'w'); time.sleep(1000)"})
    wait_for(lambda: carol.get(box + "/files/tmp/runs").status == 200)
    large = {"code": "#" + "x" * 2 * MIB, "timeout": "600s"}
    waiting = [with_body(carol, box + "/run", large) for _ in range(3)]
    wait_for(lambda: refused(*(lambda a: (a.status, a.body))(carol.post(box + "/run", {"code": "#" + "x" * 3 * MIB, "timeout": "1s"}))))
    for s in waiting:
        s.close()
    # The same with messages: the kernel does not read them while it sleeps.
    ask = {"type": "complete", "content": {"code": "x" * MIB, "cursor_pos": 1}, "timeout": "600s"}
    asking = []

    def one_more():
        s = with_body(carol, box + "/kernels/default/ask", ask)
        s.settimeout(0.2)
        try:
            return refused(*answer_of(s))
        except TimeoutError:
            asking.append(s)
            return False
    wait_for(one_more, lambda: len(asking))
    assert len(asking) < 15
    for s in [first, *asking]:
        s.close()
    assert carol.delete(box).status == 204
    again = kernel_box(carol)
    assert carol.post(again + "/run", large).status == 200
    assert carol.delete(again).status == 204


def test_messages_of_kernels_that_do_not_end(narrow, carol, dave):
    """Room for four of the largest; the fifth is ended, and only that."""
    box, other = kernel_box(carol), kernel_box(dave)
    code = """
for at in range(0, 33 << 20, 131072): link.socket.send(struct.pack('<II', 64 << 20, at) + bytes(131072))
open('/tmp/%d', 'w')
time.sleep(1000)
"""
    waiting = []
    for i in range(4):
        waiting.append(with_body(carol, box + "/run", {"code": code % i, "context": f"k{i}"}))
        wait_for(lambda: carol.get(f"{box}/files/tmp/{i}").status == 200)
    fifth = carol.post(box + "/run", {"code": code % 4, "context": "k4"})
    assert fifth.status == 200 and fifth.json["outcome"] == "output_limit" and "no memory" in fifth.json["reason"], fifth.body
    assert dave.post(other + "/run", {"code": say(3 * MIB, 3 * MIB), "output_limit": "64M"}).json["outcome"] == "ok"
    assert {k["state"] for k in carol.get(box + "/kernels").json["kernels"] if k["context"] != "k4"} == {"busy"}
    for s in waiting:
        s.close()
    for client, path in ((carol, box), (dave, other)):
        assert client.delete(path).status == 204


def jupyter_kernel(client):
    made = client.post("/api/kernels", {"name": "python"})
    assert made.status == 201, made.body
    return made.json["id"]


def test_a_message_in_pieces_over_a_websocket(narrow, carol):
    kernel = jupyter_kernel(carol)
    w = WebSocket(carol, f"/api/kernels/{kernel}/channels")
    assert w.status == 101
    w.sock.sendall(b"\x81\xff" + struct.pack(">Q", 24 * MIB) + bytes(4))
    try:
        w.sock.sendall(b" " * (23 * MIB))
    except OSError:
        pass        # it was closed before the end
    try:
        while w.receive() is not None:
            pass
    except (EOFError, ConnectionError):
        w.closed = w.closed or (1013, "")
    assert w.closed[0] == 1013
    w = WebSocket(carol, f"/api/kernels/{kernel}/channels")
    assert w.status == 101
    w.close()
    assert carol.delete(f"/api/kernels/{kernel}").status == 204


def test_websockets_that_do_not_read(narrow, carol):
    """Each would get up to 4 MiB; together they may not have so much, and the kernel lives on."""
    kernel = jupyter_kernel(carol)
    before = resident_bytes(narrow.front())
    stuck = []
    for _ in range(8):
        w = WebSocket(carol, f"/api/kernels/{kernel}/channels")
        assert w.status == 101
        stuck.append(w)
    talker = WebSocket(carol, f"/api/kernels/{kernel}/channels")
    message = {"header": {"msg_id": "one", "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3", "date": ""},
               "parent_header": {}, "metadata": {}, "content": {"code": say(30 * MIB)}, "channel": "shell", "buffers": []}
    talker.send(json.dumps(message))
    while True:
        said = json.loads(talker.receive())
        if said["channel"] == "shell" and said["header"]["msg_type"] == "execute_reply":
            break
    assert resident_bytes(narrow.front()) - before < 64 * MIB
    for w in [*stuck, talker]:
        w.sock.close()
    assert carol.delete(f"/api/kernels/{kernel}").status == 204


# ---- connections ----

def many(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 1000:
        pytest.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_served(client):
    try:
        return client.get("/v1/me").status == 200
    except (OSError, http.client.HTTPException):    # refused before it had asked
        return False


def connect_as_other(server):
    s = socket.socket(socket.AF_UNIX)       # without a timeout: then it waits where too many wait to be accepted
    os.seteuid(OTHER_UID)
    try:
        s.connect(server.socket)
    finally:
        os.seteuid(0)
    s.settimeout(60)
    return s


def test_one_user_cannot_take_all_connections(narrow):
    many(5100)
    user = narrow.as_uid(OTHER_UID)
    socks = [connect_as_other(narrow) for _ in range(5000)]
    try:
        s = connect_as_other(narrow)
        assert answer_of(s)[0] == 429 and s.recv(1) == b""
        s.close()
        socks[0].sendall(head(user, "GET", "/v1/me"))
        assert answer_of(socks[0])[0] == 200
        assert narrow.admin.get("/v1/me").status == 200
    finally:
        for s in socks:
            s.close()
    wait_for(lambda: is_served(user))


def test_one_identity_cannot_take_all_connections(narrow, dave):
    """A user with a token of its own, half by the socket and half by TCP, where all of loopback is one source."""
    many(5100)
    user, other_way = narrow.as_uid(OTHER_UID), narrow.token(f"uid:{OTHER_UID}")

    def ask(client, source=None):
        s = socket.create_connection(narrow.tcp, 60, (source, 0)) if source else client.raw_socket()
        s.sendall(head(client, "GET", "/v1/me"))
        return s, answer_of(s)[0]
    socks = []
    try:
        for i in range(5000):
            s, status = ask(other_way, f"127.0.0.{2 + i // 2 % 2}") if i % 2 else ask(user)
            socks.append(s)
            assert status == 200
        for client, source in ((user, None), (other_way, "127.0.0.4")):
            s, status = ask(client, source)
            assert status == 429 and s.recv(1) == b""
            s.close()
        s, status = ask(dave, "127.0.0.4")
        assert status == 200
        s.close()
    finally:
        for s in socks:
            s.close()
    wait_for(lambda: is_served(other_way))


def test_loopback_is_one_source_and_root_has_places(narrow, carol):
    many(11000)
    socks = []

    def by_tcp():
        socks.append(socket.create_connection(narrow.tcp, 60, (f"127.0.1.{1 + len(socks) % 200}", 0)))
        return socks[-1]

    def by_socket():
        socks.append(connect_as_other(narrow))
        return socks[-1]
    try:
        for _ in range(5000):
            by_tcp()
        assert answer_of(by_tcp())[0] == 429
        for _ in range(4900):
            by_socket()
        assert answer_of(by_socket())[0] == 503
        assert is_served(narrow.admin)
    finally:
        for s in socks:
            s.close()
    wait_for(lambda: is_served(carol))
