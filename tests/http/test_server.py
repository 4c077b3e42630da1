"""Requests and answers on a live server."""
import os
import re
import signal
import socket
import struct
import time
from email.utils import parsedate_to_datetime

import pytest

from conftest import DEADLINE, Answer, get, post, say


def test_keep_alive_pipelining_and_head(server):
    before = time.time()
    with server.connect() as s:
        s.sendall(get("/hello") + get("/hello", method="HEAD") + post("/sink", b"x" * 1000) + get("/greet/you") + get("/none"))
        f = s.makefile("rb")
        first, head = Answer(f), Answer(f, "HEAD")
        assert (first.status, first.body) == (200, b"hello\n")
        assert (head.status, head.head["content-length"], head.body) == (200, "6", b"")
        assert [(a.status, a.body) for a in (Answer(f), Answer(f), Answer(f))] == [
            (200, b"1000"), (200, b"you"), (404, b'{"error":{"code":"not_found","message":"Not Found","details":{}}}')]
        assert re.fullmatch("[0-9a-f]{16}", first.head["x-request-id"])
        assert first.head["x-request-id"] != head.head["x-request-id"]
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", first.head["date"])
        assert int(before) - 1 <= parsedate_to_datetime(first.head["date"]).timestamp() <= time.time()


def test_a_request_byte_by_byte(server):
    with server.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post("/echo", b"body") + get("/hello"):
            s.send(bytes([byte]))
        f = s.makefile("rb")
        assert Answer(f).body == b"body"
        assert Answer(f).body == b"hello\n"


def test_method_not_allowed_names_the_methods(server):
    a = server.ask(get("/greet/x", method="DELETE"))
    assert (a.status, a.head["allow"]) == (405, "GET, HEAD, PUT")


def test_path_parameters_are_decoded(server):
    assert server.ask(get("/greet/a%2Fb%20%C3%BC")).body == "a/b ü".encode()
    assert server.ask(get("/files/a/b%20c")).body == b"a/b c"


@pytest.mark.parametrize("request_bytes, status", [
    (b"GET /hello HTTP/1.1\nHost: a\n\n", 400),
    (b"GET /hello HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    (b"GET /hello HTTP/1.1\r\n\r\n", 400),
    (b"GET /hello HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /../hello HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 33000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 100 + b"\r\n", 431),
    (b"POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    (b"POST /sink HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (b"POST /sink HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST /sink HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", 417),
    (b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501),
])
def test_a_refused_request_gets_its_status_and_the_connection_ends(server, request_bytes, status):
    with server.connect() as s:
        s.sendall(request_bytes + get("/hello"))
        f = s.makefile("rb")
        a = Answer(f)
        assert (a.status, a.head["connection"]) == (status, "close")
        assert f.read() == b""


def test_a_long_head_in_pieces(server):
    request = get("/hello", "A: " + "a" * 30000)
    with server.connect() as s:
        for i in range(0, len(request), 1000):
            s.sendall(request[i:i + 1000])
        s.sendall(get("/hello"))
        f = s.makefile("rb")
        assert [Answer(f).status, Answer(f).status] == [200, 200]


def test_continue_is_sent_only_when_the_body_is_wanted(server):
    with server.connect() as s:
        s.sendall(get("/echo", "Content-Length: 4", "Expect: 100-continue", method="POST"))
        assert s.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"     # this handler begins its answer first
    with server.connect() as s:
        s.sendall(get("/sink", "Content-Length: 4", "Expect: 100-continue", method="POST"))
        f = s.makefile("rb")
        assert Answer(f).status == 100
        s.sendall(b"abcd")
        assert Answer(f).body == b"4"
        s.sendall(get("/hello", "Content-Length: 4", "Expect: 100-continue"))
        a = Answer(f)
        assert (a.status, a.head["connection"]) == (200, "close")       # the handler does not read it: no 100
        assert f.read() == b""


def test_an_unread_body_is_skipped_or_ends_the_connection(server):
    with server.connect() as s:
        f = s.makefile("rb")
        chunked = get("/hello", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
        s.sendall(get("/hello", "Content-Length: 5000") + b"x" * 5000 + chunked + get("/greet/after"))
        assert [Answer(f).status, Answer(f).status] == [200, 200]
        assert Answer(f).body == b"after"
    with server.connect() as s:
        f = s.makefile("rb")
        s.sendall(get("/hello", "Content-Length: 500000") + b"x" * 100)
        assert Answer(f).status == 200
        assert f.read() == b""


def test_a_body_over_the_bound_is_413(server):
    assert server.ask(post("/collect?max=10", b"x" * 10)).body == b"x" * 10
    assert server.ask(post("/collect?max=10", b"x" * 11)).status == 413
    chunked = get("/collect?max=10", "Transfer-Encoding: chunked", method="POST")
    assert server.ask(chunked + b"a\r\n0123456789\r\n0\r\n\r\n").body == b"0123456789"
    assert server.ask(chunked + b"b\r\n0123456789x\r\n0\r\n\r\n").status == 413
    assert server.ask(post("/collect", b"")).body == b""


def test_http_1_0_gets_a_body_that_ends_with_the_connection(server):
    with server.connect() as s:
        s.sendall(b"GET /flood?size=100000&chunked=1 HTTP/1.0\r\n\r\n")
        data = s.makefile("rb").read()
    head, body = data.split(b"\r\n\r\n", 1)
    assert b"chunked" not in head and b"Connection: close" in head and len(body) == 100000


@pytest.mark.parametrize("path", ["/flood?size=3000000", "/flood?size=3000000&chunked=1"])
def test_large_answers(server, path):
    with server.connect() as s:
        f = s.makefile("rb")
        for _ in range(2):
            s.sendall(get(path) + get("/hello"))
            assert len(Answer(f).body) == 3000000
            assert Answer(f).body == b"hello\n"


def test_an_answer_shorter_than_promised_cuts_the_connection(server):
    with pytest.raises(ConnectionError):
        server.ask(get("/flood?size=1000&promised=2000"))
    server.wait_line("end aborted /flood")


def test_echo_of_a_large_body_both_framings(server):
    body = os.urandom(1 << 20)
    assert server.ask(post("/echo", body)).body == body
    pieces = b"".join(b"%x;n=%d\r\n%s\r\n" % (len(p), i, p) for i, p in
                      enumerate(body[i:i + 70001] for i in range(0, len(body), 70001)))
    assert server.ask(get("/echo", "Transfer-Encoding: chunked", method="POST") + pieces + b"0\r\nT: x\r\n\r\n").body == body


def test_unix_sockets_tell_who_connects(start, tmp_path):
    s = start("--unix", tmp_path / "socket")
    c = socket.socket(socket.AF_UNIX)
    c.connect(str(tmp_path / "socket"))
    c.sendall(get("/peer"))
    assert Answer(c.makefile("rb")).body.split() == [b"1", b"%d" % os.getuid(), b"%d" % os.getpid()]
    c.close()
    assert s.ask(get("/peer")).body.split()[0] == b"2"


@pytest.mark.parametrize("kind", ["close", "half", "reset", "pipelined", "unix"])
def test_a_vanished_client_is_noticed_at_once(start, tmp_path, kind):
    s = start("--unix", tmp_path / "socket", fast=True)
    worst = 0
    for _ in range(5):
        if kind == "unix":
            c = socket.socket(socket.AF_UNIX)
            c.connect(str(tmp_path / "socket"))
        else:
            c = s.connect()
        c.sendall(get("/wait") + (get("/hello") if kind == "pipelined" else b""))
        s.wait_line("waiting")
        start_time = time.monotonic()
        if kind == "reset":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if kind == "half":
            c.shutdown(socket.SHUT_WR)
        else:
            c.close()
        s.wait_line("end gone /wait")           # no deadline of the server's own would end it
        worst = max(worst, time.monotonic() - start_time)
        c.close()
    s.assert_rests()
    say("a vanished client (%s) is noticed within %.1f ms" % (kind, worst * 1000))
    assert s.stats()["connections"] == 1        # the requesting one


def connect(s, kind, path):
    if kind == "tcp":
        return s.connect()
    c = socket.socket(socket.AF_UNIX)
    c.settimeout(DEADLINE)
    c.connect(str(path))
    return c


UPGRADE = ("Connection: Upgrade", "Upgrade: count")


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("size", [0, 5, 3_000_000])
def test_an_upgraded_connection_may_be_half_closed(start, tmp_path, kind, size):
    s = start("--unix", tmp_path / "socket", "--send-ms", 300)
    with connect(s, kind, tmp_path / "socket") as c:
        f = c.makefile("rb")
        c.sendall(get("/count", *UPGRADE))
        assert Answer(f).status == 101
        c.sendall(b"x" * size)
        c.shutdown(socket.SHUT_WR)
        assert f.read() == b"%d" % size
    s.wait_line("end done /count")


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_half_closed_client_that_vanishes_is_noticed(start, tmp_path, kind):
    s = start("--unix", tmp_path / "socket", fast=True)
    c = connect(s, kind, tmp_path / "socket")
    c.sendall(get("/count?silent=1", *UPGRADE))
    assert Answer(c.makefile("rb")).status == 101
    c.sendall(b"abc")
    c.shutdown(socket.SHUT_WR)
    s.wait_line("counted 3")
    s.assert_rests()
    if kind == "tcp":
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    s.wait_line("end gone /count")
    s.assert_rests()


def test_waiting_behind_pipelined_bytes_does_not_spin(start):
    s = start(fast=True)
    with s.connect() as c:
        c.sendall(get("/wait") + get("/hello") * 100)
        s.wait_line("waiting")
        s.assert_rests(0.5)


def test_slow_heads_and_bodies_are_dropped(start):
    s = start("--head-ms", 300, "--body-ms", 300)
    with s.connect() as c:
        begin = time.monotonic()
        c.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n")
        c.settimeout(0.05)
        while True:                             # a slow loris: a field now and then
            try:
                c.sendall(b"A: b\r\n")
                data = c.recv(4096)
                break
            except socket.timeout:
                assert time.monotonic() - begin < DEADLINE
        assert data.startswith(b"HTTP/1.1 408 ") and time.monotonic() - begin > 0.25
    with s.connect() as c:
        c.sendall(get("/hold", "Content-Length: 100000", method="POST") + b"x")
        assert Answer(c.makefile("rb")).status == 408
        s.wait_line("end timeout /hold")


def test_idle_connections_are_closed_without_a_word(start):
    s = start("--idle-ms", 600)
    end = time.monotonic() + DEADLINE
    while True:
        with s.connect() as c:
            begin = time.monotonic()
            try:
                c.sendall(get("/hello"))
                f = c.makefile("rb")
                assert Answer(f).status == 200
            except ConnectionError:             # we were late, and idle already
                assert time.monotonic() < end
                continue
            assert f.read() == b"" and time.monotonic() - begin > 0.5
            break
    with s.connect() as c:                      # so is a silent one
        assert c.recv(1) == b""


def test_a_client_that_never_reads_is_dropped(start):
    s = start("--send-ms", 300, fast=True)
    with s.connect(receive_buffer=4096) as c:
        c.sendall(get("/flood?size=100000000"))
        s.wait_line("end timeout /flood")


def test_connections_beyond_the_bound_get_503(start):
    s = start("--max-connections", 10, "--max-from-one", 10)
    held = [s.connect() for _ in range(10)]
    for c in held:
        c.sendall(get("/hello"))
        assert Answer(c.makefile("rb")).status == 200
    a = s.ask(get("/hello"))
    assert (a.status, a.head["retry-after"]) == (503, "1")
    held.pop().close()
    end = time.monotonic() + DEADLINE
    while s.ask(get("/hello")).status != 200:
        assert time.monotonic() < end
    for c in held:
        c.close()


def test_connections_of_one_source_beyond_half_of_them_get_429(start):
    s = start("--max-connections", 10)
    held = [s.connect() for _ in range(5)]
    for c in held:
        c.sendall(get("/hello"))
        assert Answer(c.makefile("rb")).status == 200
    a = s.ask(get("/hello"))
    assert (a.status, a.head["retry-after"], a.head["connection"]) == (429, "1", "close")
    held.pop().close()
    end = time.monotonic() + DEADLINE
    while s.ask(get("/hello")).status != 200:
        assert time.monotonic() < end
    for c in held:
        c.close()


def test_running_out_of_fds_does_not_spin_or_hang(start):
    import resource
    s = start(fast=True)
    soft, hard = resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (40, hard))
    clients = [s.connect() for _ in range(80)]
    s.assert_rests(0.5)
    for c in clients:
        c.close()
    resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    end = time.monotonic() + DEADLINE
    while True:
        try:
            assert s.ask(get("/hello")).status == 200
            break
        except ConnectionError:
            assert time.monotonic() < end


def test_drain_lets_requests_end_and_closes_the_idle(start):
    s = start("--drain-ms", 100 * DEADLINE * 1000)
    idle, busy = s.connect(), s.connect()
    idle.sendall(get("/hello"))
    assert Answer(idle.makefile("rb")).status == 200
    busy.sendall(get("/sink", "Content-Length: 4", method="POST") + b"ab")
    assert s.ask(get("/hello")).status == 200   # the server has seen the others' bytes by now
    s.process.send_signal(signal.SIGTERM)
    assert idle.recv(1) == b""
    with pytest.raises(ConnectionError):
        s.ask(get("/hello"))
    busy.sendall(b"cd")
    f = busy.makefile("rb")
    a = Answer(f)
    assert (a.body, a.head["connection"], f.read()) == (b"4", "close", b"")
    f.close()
    busy.close()
    s.wait_line("drained")
    assert s.process.wait(DEADLINE) == 0        # at once, not after the grace


def test_drain_cuts_what_does_not_end(start):
    s = start()
    c = s.connect()
    c.sendall(get("/wait"))
    s.wait_line("waiting")
    s.process.send_signal(signal.SIGTERM)
    s.wait_line("end aborted /wait")
    s.wait_line("drained")
    c.close()


def test_stopping_with_requests_under_way_leaks_nothing(start):
    s = start()
    clients = [s.connect() for _ in range(5)]
    for c in clients:
        c.sendall(get("/wait"))
        s.wait_line("waiting")
    s.stop()                                    # the sanitizer counts
    for c in clients:
        c.close()
