"""The reverse proxy: one echo server in front of another, or of a server made up for the test."""
import os
import socket
import statistics
import threading
import time

import pytest
from websockets.sync.client import connect as websocket_connect

from conftest import DEADLINE, Answer, get, post, say


def connect(uri, **options):
    return websocket_connect(uri, open_timeout=DEADLINE, close_timeout=DEADLINE, **options)


@pytest.fixture
def pair(start):
    back = start()
    return start("--upstream", back.port), back


class Upstream:
    """Takes one connection, keeps what it receives, says what it is told."""

    def __init__(self, answer, hang_up=True):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.received = b""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._serve, args=(answer, hang_up), daemon=True)
        self.thread.start()

    def _serve(self, answer, hang_up):
        c, _ = self.listener.accept()
        with c:
            c.settimeout(DEADLINE)
            while b"\r\n\r\n" not in self.received:
                data = c.recv(65536)
                if not data:
                    return
                self.received += data
            c.sendall(answer)
            if not hang_up and c.recv(65536) == b"":
                self.ended.set()


@pytest.fixture
def ask_behind(start):
    def ask(answer, request=get("/proxy/x")):
        up = Upstream(answer)
        server = start("--upstream", up.port)
        with server.connect() as c:
            c.sendall(request)
            return Answer(c.makefile("rb"), request.split()[0].decode()), up
    return ask


def test_requests_and_bodies_pass(pair):
    front, _ = pair
    body = os.urandom(3_000_000)
    with front.connect() as c:
        f = c.makefile("rb")
        c.sendall(get("/proxy/hello") + get("/proxy/hello", method="HEAD") + get("/proxy/greet/a%2Fb"))
        assert Answer(f).body == b"hello\n"
    assert front.ask(post("/proxy/echo", body)).body == body
    assert front.ask(post("/proxy/echo", b"")).body == b""
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[i:i + 99999] for i in range(0, len(body), 99999)))
    assert front.ask(get("/proxy/echo", "Transfer-Encoding: chunked", method="POST") + pieces + b"0\r\n\r\n").body == body
    assert len(front.ask(get("/proxy/flood?size=5000000&chunked=1")).body) == 5000000
    assert len(front.ask(get("/proxy/flood?size=5000000")).body) == 5000000
    assert front.ask(get("/proxy/greet/a%2Fb")).body == b"a/b"
    assert front.ask(get("/proxy/nothing")).status == 404


def test_one_hop_fields_stay_and_forwarding_fields_are_ours(ask_behind):
    answer, up = ask_behind(
        b"HTTP/1.1 201 Made\r\nContent-Length: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: x\r\nSet-Cookie: a=b\r\n"
        b"Set-Cookie: c=d\r\nDate: never\r\n\r\nok",
        get("/proxy/a%20b?c=d", "Connection: X-Mine, close", "X-Mine: 1", "TE: trailers", "X-Forwarded-For: 192.0.2.1", "Forwarded: for=x",
            "Authorization: Bearer secret", "X-Keep: yes", "Proxy-Authorization: x"))
    assert (answer.status, answer.body) == (201, b"ok")
    assert "x-hop" not in answer.head and "keep-alive" not in answer.head
    assert answer.head["set-cookie"] == "c=d" and answer.head["date"] != "never"
    line, *fields = up.received.decode().split("\r\n\r\n")[0].split("\r\n")
    assert line == "GET /a%20b?c=d HTTP/1.1"
    seen = dict(f.split(": ", 1) for f in fields)
    assert len(seen) == len(fields)
    assert set(seen) == {"Host", "X-Keep", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id", "Connection", "X-Added"}
    assert (seen["X-Forwarded-For"], seen["Host"], seen["X-Forwarded-Host"], seen["Connection"]) == ("127.0.0.1", "test", "test", "close")
    assert seen["X-Request-Id"] == answer.head["x-request-id"]


def test_answers_that_end_with_the_connection_become_chunked(ask_behind):
    answer, _ = ask_behind(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
    assert (answer.body, answer.head["transfer-encoding"]) == (b"until the end", "chunked")


def test_interim_answers_are_swallowed(ask_behind):
    answer, _ = ask_behind(b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert (answer.status, answer.body) == (200, b"x")


def test_head_and_304_have_no_body(ask_behind):
    answer, _ = ask_behind(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", get("/proxy/x", method="HEAD"))
    assert (answer.status, answer.head["content-length"]) == (200, "500")
    assert ask_behind(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")[0].head["etag"] == "x"


def test_an_early_answer_reaches_a_client_that_still_sends(ask_behind):
    answer, _ = ask_behind(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\n\r\nno",
                           get("/proxy/x", "Content-Length: 100000", method="POST") + b"x" * 1000)
    assert (answer.status, answer.body) == (413, b"no")


@pytest.mark.parametrize("answer", [
    b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
    b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: " + b"a" * 40000,
])
def test_answers_that_cannot_be_understood_are_502(ask_behind, answer):
    assert ask_behind(answer)[0].status == 502


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
])
def test_an_answer_that_breaks_off_breaks_off_for_the_client(ask_behind, answer):
    with pytest.raises((ConnectionError, ValueError)):
        ask_behind(answer)


def test_nobody_there_is_502_and_silence_is_504(start):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        front = start("--upstream", port, "--connect-ms", 500, "--reply-ms", 1500)
        assert front.ask(get("/proxy/x")).status == 504         # it accepts and says nothing
    assert front.ask(get("/proxy/x")).status == 502
    assert front.ask(get("/proxy/never")).status == 504         # no socket ever comes
    front.wait_line("proxy cancelled")


def test_a_vanished_client_ends_the_upstream_request(pair):
    front, back = pair
    c = front.connect()
    c.sendall(get("/proxy/wait"))
    back.wait_line("waiting")
    c.close()
    back.wait_line("end gone /wait")


def test_a_client_that_vanishes_before_the_socket_comes(start):
    front = start()
    c = front.connect()
    c.sendall(get("/proxy/never"))
    c.close()
    front.wait_line("proxy cancelled")


def test_websockets_pass(pair):
    front, back = pair
    with connect("ws://127.0.0.1:%d/proxy/ws" % front.port, subprotocols=["echo"], max_size=None) as w:
        assert w.subprotocol == "echo"
        for message in ["hello", os.urandom(2_000_000)]:
            w.send(message)
            assert w.recv(timeout=DEADLINE) == message
        w.send("close")
        with pytest.raises(Exception) as closed:
            w.recv(timeout=DEADLINE)
        assert closed.value.rcvd.code == 4001
    back.wait_line("ws closed 4001 .*")
    with front.connect() as c:
        c.sendall(get("/proxy/ws", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                      "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="))
        assert Answer(c.makefile("rb")).status == 101
    back.wait_line("ws closed 1006 ")
    assert front.ask(get("/proxy/ws")).status == 426


def test_the_proxy_adds_little(start):
    back = start("--quiet", fast=True)
    front = start("--quiet", "--upstream", back.port, fast=True)

    def median_us(server, path):
        times = []
        with server.connect() as c:
            f = c.makefile("rb")
            for _ in range(1500):
                begin = time.perf_counter()
                c.sendall(get(path))
                assert Answer(f).status == 200
                times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e6
    direct, proxied = median_us(back, "/hello"), median_us(front, "/proxy/hello")
    say("direct %.0f µs, through the proxy %.0f µs: adds %.0f µs" % (direct, proxied, proxied - direct))
    assert direct > 0 and proxied > 0
