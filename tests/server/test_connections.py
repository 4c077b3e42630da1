"""Clients that are slow, rude, many or gone."""
import concurrent.futures
import json
import pathlib
import re
import resource
import shutil
import socket
import struct
import tempfile
import threading
import time

import pytest

from support.client import Client, WebSocket, lines
from support.processes import descriptors, resident_bytes
from support.waiting import wait_for
from traces import Counter, Server, amount, run

MIB = 1 << 20


def head(client, method, path, *fields):
    auth = [f"Authorization: Bearer {client.token}"] if client.token else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *auth, *fields, "", ""]).encode()


def answer_of(sock):
    """Status and body of the next answer with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None, data
        data += piece
    top, body = data.split(b"\r\n\r\n", 1)
    length = [int(line.split(b":")[1]) for line in top.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while length and len(body) < length[0]:
        body += sock.recv(65536)
    return int(top.split()[1]), body


def test_a_slow_loris_is_dropped_and_harms_nobody(server, alice):
    socks = [alice.raw_socket() for _ in range(200)]
    for s in socks:
        s.sendall(b"GET /v1/me HTTP/1.1\r\nHost: loc")
    end = time.monotonic() + 40
    open_ones = list(socks)
    while open_ones and time.monotonic() < end:
        assert alice.get("/v1/me").status == 200
        for s in list(open_ones):
            try:
                s.sendall(b"a")         # one byte now and then: the head as a whole must come in time
                s.settimeout(0.001)
                if s.recv(4096) is not None:
                    open_ones.remove(s)
            except TimeoutError:
                pass
            except OSError:
                open_ones.remove(s)
        time.sleep(0.3)
    for s in socks:
        s.close()
    assert not open_ones


def test_thousands_of_idle_connections(server, alice):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(5000, hard - 1000)
    before, fds = resident_bytes(server.front()), len(descriptors(server.front()))
    socks = []
    for i in range(count):
        s = socket.socket(socket.AF_UNIX) if i % 2 else socket.socket()
        s.connect(server.socket if i % 2 else server.tcp)
        socks.append(s)
    slowest = 0
    for _ in range(50):
        begin = time.monotonic()
        assert alice.get("/v1/me").status == 200
        slowest = max(slowest, time.monotonic() - begin)
    wait_for(lambda: len(descriptors(server.front())) >= fds + count - 8)
    assert slowest < 2
    per_connection = (resident_bytes(server.front()) - before) / count
    assert per_connection < 20000, per_connection
    # Half of them ask something after all.
    for s in socks[::2]:
        s.sendall(head(alice, "GET", "/v1/me"))
    assert all(answer_of(s)[0] == 200 for s in socks[::2])
    for s in socks:
        s.close()
    wait_for(lambda: len(descriptors(server.front())) <= fds + 8)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_client_that_vanishes_ends_its_command_within_a_second(server, alice, box, how, stream):
    body = json.dumps({"argv": ["sleep", "7531"]}).encode()
    s = alice.raw_socket()
    s.sendall(head(alice, "POST", f"{box}/exec?stream={stream}", f"Content-Length: {len(body)}") + body)
    pid = wait_for(lambda: [p.name for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and sleeper(p)])
    assert pid
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half-close":
        s.shutdown(socket.SHUT_WR)
    else:
        s.close()
    begin = time.monotonic()
    wait_for(lambda: not pathlib.Path("/proc", pid[0]).exists() or not sleeper(pathlib.Path("/proc", pid[0])), deadline_s=5, every_s=0.005)
    assert time.monotonic() - begin < 1
    s.close()


def sleeper(folder):
    try:
        return (folder / "cmdline").read_bytes() == b"sleep\x007531\0"
    except OSError:
        return False


def test_half_open_connections_end_and_leave_nothing(server, alice, box):
    run(alice, box, "mkdir /tmp/own")
    fds = len(descriptors(server.front()))
    for i in range(100):
        s = alice.raw_socket()
        s.sendall([head(alice, "GET", "/v1/me")[:20], head(alice, "PUT", box + "/files/tmp/own/x", "Content-Length: 100") + b"half",
                   head(alice, "POST", "/v1/boxes", "Transfer-Encoding: chunked") + b"5\r\n{", b""][i % 4])
        if i % 3 == 0:
            s.shutdown(socket.SHUT_WR)
        s.close()
    wait_for(lambda: len(descriptors(server.front())) <= fds + 12)
    assert run(alice, box, "ls -A /tmp/own")["stdout"] == ""


def test_many_requests_at_once_on_one_connection(alice):
    s = alice.raw_socket()
    n = 500
    threading.Thread(target=s.sendall, args=[head(alice, "GET", "/v1/me") * n], daemon=True).start()
    data = b""
    while data.count(b"HTTP/1.1 200") < n:
        piece = s.recv(1 << 20)
        assert piece, data[-500:]
        data += piece
    s.close()


def test_pipelined_requests_are_answered_in_order(alice, box):
    s = alice.raw_socket()
    body = json.dumps({"shell": "sleep 0.3; echo slow"}).encode()
    s.sendall(head(alice, "POST", box + "/exec", f"Content-Length: {len(body)}") + body + head(alice, "GET", "/v1/me", "Connection: close"))
    data = b""
    while piece := s.recv(65536):
        data += piece
    assert data.count(b"HTTP/1.1 200") == 2 and data.index(b"slow") < data.index(b'"identity"')


@pytest.mark.parametrize("text, statuses", [
    (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", [400]),
    (b"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
    (b"GET /v1/me HTTP/1.1\nHost: localhost\n\n", [400]),
    (b"GET /v1/me HTTP/1.1\r\nHost : localhost\r\n\r\n", [400]),
    (b"GET /v1/me HTTP/1.1\r\n\r\n", [400]),
    (b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", [400]),
    (b"GET /v1/me HTTP/9.9\r\nHost: localhost\r\n\r\n", [400, 505]),
    (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", [400]),
    (b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (10 * MIB) + b"\r\n\r\n", [400, 431, None]),
    (b"GET /" + b"a" * MIB + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", [400, 414, 431, None]),
    (b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100000 + b"\r\n", [400, 431, None]),
    (b"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", [400, 413]),
    (b"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", [400]),
    (b"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", [400, 413]),
    (b"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [400, 501]),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400, 505]),
])
def test_what_is_not_clean_http_is_refused(server, text, statuses):
    before = resident_bytes(server.front())
    s = Client(server.socket).raw_socket()
    try:
        s.sendall(text)
    except OSError:
        pass        # refused while it was sent
    try:
        status, _ = answer_of(s)
    except OSError:
        status = None
    s.close()
    assert status in statuses
    assert resident_bytes(server.front()) - before < 8 * MIB
    assert server.admin.get("/v1/me").status == 200


def test_a_reader_who_stops_holds_back_only_himself(server, alice, box):
    before = resident_bytes(server.front())
    body = json.dumps({"shell": "head -c 8000000 /dev/zero", "output_limit": "16M"}).encode()
    stuck = []
    for _ in range(10):
        s = alice.raw_socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(head(alice, "POST", box + "/exec?stream=true", f"Content-Length: {len(body)}") + body)
        stuck.append(s)
    assert run(alice, box, "echo fine")["stdout"] == "fine\n"
    wait_for(lambda: not alice.get(box).json["execs_running"])
    assert resident_bytes(server.front()) - before < 32 * MIB
    for s in stuck:
        s.close()


# ---- the interactive way ----

def raw_websocket(client, path):
    return WebSocket(client, path)


def test_an_interactive_command(alice, box):
    w = raw_websocket(alice, box + "/exec/ws?argv=cat")
    assert w.status == 101 and json.loads(w.receive())["type"] == "started"
    w.send(b"\0hello\n")
    assert w.receive() == b"\1hello\n"
    w.send('{"type":"close_stdin"}')
    assert json.loads(w.receive())["exit_code"] == 0
    w.close()


@pytest.mark.parametrize("frames", [
    [b"\x81\x85abcdhello"],                                   # text that is no order, masked
    [b"\x81\x05hello"],                                       # not masked
    [b"\xff\x80abcd"], [b"\x83\x80abcd"], [b"\x8f\x80abcd"],  # reserved bits and opcodes
    [b"\x82\xff" + b"\xff" * 8 + b"abcd"],                    # 2^64 - 1 bytes
    [b"\x82\xff" + struct.pack(">Q", 1 << 40) + b"abcd"],
    [b"\x89\xfe\xff\xff" + b"abcd" + b"x" * 65535],           # a ping too large
    [b"\x80\x80abcd"],                                        # a continuation of nothing
    [b"\x02\x80abcd", b"\x02\x80abcd"],                       # a message in a message
    [b"\x81\x82abcd" + bytes(x ^ y for x, y in zip(b"\xff\xfe", b"ab"))],     # text that is no UTF-8
    [b"\x82\x81abcd" + bytes([9 ^ ord("a")])],                # input for a stream that there is not
    [b"\x88\x81abcdx"],                                       # a close of one byte
    [b"\x00\x80abcd"] * 10,
])
def test_a_rude_websocket_ends_alone(server, alice, box, frames):
    w = raw_websocket(alice, box + "/exec/ws?argv=sleep&argv=1000")
    assert w.status == 101
    try:
        for f in frames:
            w.sock.sendall(f)
        w.sock.settimeout(0.2)
        while w.sock.recv(65536):
            pass
    except OSError:
        pass
    w.close()
    wait_for(lambda: not alice.get(box).json["execs_running"], deadline_s=10)
    assert alice.get("/v1/me").status == 200


def test_attaching_many_times_and_leaving(alice, box):
    counter = Counter(alice, box)
    for i in range(40):
        w = raw_websocket(alice, counter.path + "/attach")
        assert w.status == 101
        if i % 2:
            assert json.loads(w.receive())["type"] == "started"
        w.close()
    seen = counter.check_more()
    wait_for(lambda: counter.check_more() > seen)
    wait_for(lambda: alice.get(counter.path).json["state"] == "running")
    # One writes, the others only look.
    first, second = (raw_websocket(alice, counter.path + "/attach") for _ in range(2))
    second.send(b"\0x")
    wait_for(lambda: alice.get(counter.path).json["state"] == "running")
    first.close()
    second.close()


def test_a_websocket_that_does_not_read_costs_no_memory(server, alice, box):
    before = resident_bytes(server.front())
    w = raw_websocket(alice, box + "/exec/ws?argv=cat&argv=/dev/zero&output_limit=100000000")
    assert w.status == 101
    wait_for(lambda: not alice.get(box).json["execs_running"])
    assert resident_bytes(server.front()) - before < 16 * MIB
    w.close()


def test_a_websocket_where_there_is_none(alice, box):
    for path in (box + "/exec/ws", "/v1/me", box + "/exec/xaaaaaaaaaaaa/attach"):
        assert raw_websocket(alice, path).status in (200, 400, 404, 426)
    assert alice.get(box + "/exec/ws?argv=true").status == 426


# ---- use after free ----

def test_old_commands_are_forgotten_while_somebody_asks_about_them(alice, new_box):
    """A slow request about a command, and so many newer ones that the command is forgotten meanwhile."""
    box = new_box(limits={"memory": "256M", "disk": "32M", "pids": 64})
    x = alice.post(box + "/exec", {"shell": "echo old"}).json
    slow = []
    for way in ("signal", "resize", "stdin"):
        s = alice.raw_socket()
        s.sendall(head(alice, "POST", f"{box}/exec/{x['id']}/{way}", "Content-Length: 14") + b'{"sig')
        slow.append(s)
    streaming = alice.raw_socket()
    streaming.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps({"shell": "head -c 4000000 /dev/zero", "output_limit": "8M"}).encode()
    streaming.sendall(head(alice, "POST", box + "/exec?stream=true", f"Content-Length: {len(body)}") + body)
    for _ in range(300):
        assert alice.post(box + "/exec", {"argv": ["true"]}).status == 200
    for s in slow:
        try:
            s.sendall(b'nal": 9 }')
            assert answer_of(s)[0] in (400, 404, 409)
        except OSError:
            pass
        s.close()
    streaming.recv(1000)
    streaming.close()
    assert alice.get(f"{box}/exec/{x['id']}").status in (200, 404)
    assert alice.get("/healthz").status == 200


def test_output_of_thousands_of_commands_takes_no_descriptors(server, alice, new_box):
    before = len(descriptors(server.front()))
    boxes = [new_box() for _ in range(3)]
    for box in boxes:
        for i in range(amount(40, 250)):
            assert run(alice, box, f"echo {i}")["stdout"] == f"{i}\n"
    assert len(descriptors(server.front())) < before + 30
    x = alice.get(boxes[0] + "/exec").json["execs"][-1]
    assert [line["data"] for line in lines(alice.open("GET", f"{boxes[0]}/exec/{x['id']}/output")) if line["type"] == "stdout"] == ["0\n"]


@pytest.fixture
def fake_kernels():
    """A server whose interpreters start quickly and send on their link what a cell contains."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-fake-"))
    folder.chmod(0o755)
    shutil.copy(pathlib.Path(__file__).parents[1] / "kernels/fake.py", folder / "carrel_kernel")
    (folder / "carrel_kernel").chmod(0o644)
    s = Server("--set", "limits.memory=8G", variables={"CARREL_GUEST": str(folder)})
    yield s, s.token("alice")
    s.stop()
    shutil.rmtree(folder)


def test_a_box_that_is_forgotten_before_its_run_is_read(fake_kernels):
    """The caller of /v1/run deletes the run's own box and reads on when the box is one of so many dead ones that it is forgotten."""
    server, alice = fake_kernels
    front = server.front()
    slow = alice.raw_socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    code = """
import select
link.socket.setblocking(False)
while True:
    try: link.send('iopub', 'stream', {'name': 'stdout', 'text': 'y' * 100000}, header)
    except BlockingIOError:
        if not select.select([], [link.socket], [], 1)[1]: break
open('/tmp/full', 'w')
time.sleep(1000)
"""
    body = json.dumps({"code": code, "template": "python", "limits": {"memory": "64M", "pids": 32}}).encode()
    slow.sendall(head(alice, "POST", "/v1/run?stream=true", f"Content-Length: {len(body)}") + body)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += slow.recv(100)
    own = re.search(rb"(?i)\r\ncarrel-box: (\S+)", answer).group(1).decode()
    is_full = {"argv": ["test", "-e", "/tmp/full"]}
    wait_for(lambda: alice.post(f"/v1/boxes/{own}/exec", is_full).json["outcome"] == "ok")
    assert alice.delete("/v1/boxes/" + own).status == 204

    def make_dead(_):
        made = alice.post("/v1/boxes", {"limits": {"memory": "16M", "pids": 8}})
        assert made.status == 201, made.body
        assert alice.delete("/v1/boxes/" + made.json["id"]).status == 204
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(make_dead, range(1001)))
    wait_for(lambda: alice.get("/v1/boxes/" + own).status == 404)
    slow.close()
    assert wait_for(lambda: alice.get("/v1/boxes?limit=1").status == 200) and server.front() == front, server.log_text()[-3000:]
