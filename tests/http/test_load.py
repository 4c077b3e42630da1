"""Memory and speed under load: the optimised build."""
import re
import resource
import shutil
import socket
import subprocess
import threading
import time

import pytest

from conftest import DEADLINE, Answer, get, say

GIGABYTE = 1 << 30


def drain(c, size):
    """Reads an answer of size bytes and more."""
    got, buffer = 0, bytearray(1 << 18)
    while got < size:
        n = c.recv_into(buffer)
        assert n, "the server closed after %d bytes" % got
        got += n
    return got


def test_a_gigabyte_up_to_a_slow_handler_in_constant_memory(start):
    s = start("--quiet", fast=True)
    s.stats()
    before = s.memory_kb()
    with s.connect(timeout=60) as c:
        c.sendall(get("/sink", "Content-Length: %d" % GIGABYTE, method="POST"))
        piece, most = bytes(1 << 20), 0
        begin = time.monotonic()
        for i in range(GIGABYTE >> 20):
            c.sendall(piece)
            if i % 64 == 0:
                most = max(most, s.memory_kb())
        assert Answer(c.makefile("rb")).body == b"%d" % GIGABYTE
        say("1 GiB up at %.0f MB/s, memory +%d kB" % (1074 / (time.monotonic() - begin), most - before))
    assert most - before < 4000
    with s.connect(timeout=1) as c:             # 64 KiB per 5 ms: far slower than we send
        c.sendall(get("/sink?every_ms=5", "Content-Length: %d" % GIGABYTE, method="POST"))
        sent, end = 0, time.monotonic() + 2
        c.setblocking(False)
        while time.monotonic() < end:
            try:
                sent += c.send(piece)
            except BlockingIOError:
                time.sleep(0.01)                # a slow sender, not a wait
            most = max(most, s.memory_kb())
    assert sent < 100 << 20, "it was not pushed back"
    assert most - before < 4000


@pytest.mark.parametrize("path", ["/flood?size=%d" % GIGABYTE, "/flood?chunked=1&size=%d" % GIGABYTE])
def test_a_gigabyte_down_in_constant_memory(start, path):
    s = start("--quiet", fast=True)
    s.stats()
    before = s.memory_kb()
    with s.connect(timeout=60) as c:
        begin = time.monotonic()
        c.sendall(get(path))
        time.sleep(0.2)                         # a slow reader: the server fills the buffers and must stop
        most = s.memory_kb()
        drain(c, GIGABYTE)
        most = max(most, s.memory_kb())
        say("%s at %.0f MB/s, memory +%d kB" % (path, 1074 / (time.monotonic() - begin), most - before))
    assert most - before < 4000


def test_a_vanished_reader_of_a_large_answer(start):
    s = start(fast=True)
    c = s.connect()
    c.sendall(get("/flood?size=%d" % GIGABYTE))
    c.recv(1000)
    c.close()
    s.wait_line("end gone /flood")


def test_five_thousand_idle_connections(start):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    s = start("--quiet", "--idle-ms", 600_000, "--max-from-one", 10_000, fast=True)
    s.stats()

    def two_hundred():
        cpu = s.cpu_seconds()
        for _ in range(200):
            assert s.ask(get("/hello")).status == 200
        return s.cpu_seconds() - cpu
    alone = two_hundred()
    before, clients = s.memory_kb(), []
    try:
        for i in range(5000):
            c = s.connect()
            c.sendall(get("/hello"))
            clients.append(c)
        for c in clients:
            assert c.recv(4096).startswith(b"HTTP/1.1 200")
        assert s.stats()["connections"] == 5001
        each = (s.memory_kb() - before) * 1024 / 5000
        begin = time.monotonic()
        among = two_hundred()
        say("5000 idle connections: %.0f bytes each; 200 more requests took %.0f ms" % (each, (time.monotonic() - begin) * 1000))
        assert each < 2048
        assert among < 20 * alone + 1           # idle connections are not touched
    finally:
        for c in clients:
            c.close()
    end = time.monotonic() + DEADLINE
    while s.stats()["connections"] > 1:
        assert time.monotonic() < end


def test_throughput(start):
    if not shutil.which("wrk"):
        pytest.skip("no wrk")
    s = start("--quiet", fast=True)
    for path in ("/hello", "/flood?size=100000"):
        out = subprocess.run(["wrk", "-t1", "-c64", "-d3s", "--timeout", "60s", "http://127.0.0.1:%d%s" % (s.port, path)], capture_output=True, text=True,
                             timeout=120, check=True).stdout
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
        say("wrk %s: %.0f requests/s" % (path, rate))
        assert "Non-2xx" not in out and "Socket errors" not in out
        assert rate > 0                         # how fast is a figure: it depends on the machine


def test_a_storm_of_clients_that_misbehave(start):
    """Everything at once on the checked build; it must still answer, and have let go of everything, afterwards."""
    s = start("--quiet", "--head-ms", 500, "--body-ms", 500)
    s.stats()
    fds = s.open_fds()
    requests = [get("/hello"), get("/wait"), get("/flood?size=10000000"), get("/flood?size=1000000&chunked=1"), b"GET / HT", b"\r\n\r\n",
                get("/sink", "Content-Length: 100000", method="POST") + b"x" * 500,
                get("/echo", "Transfer-Encoding: chunked", method="POST") + b"5\r\nhello\r\nzz", get("/hello") * 50, bytes(range(256)) * 10,
                get("/ws", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==") + b"\x81\x85abcdefghi\x82"]

    def client(seed):
        for i in range(60):
            try:
                with socket.create_connection(("127.0.0.1", s.port), timeout=0.2) as c:
                    c.sendall(requests[(seed + i * 7) % len(requests)])
                    if i % 3:
                        c.recv(1 << (i % 17))
                    if i % 5 == 0:
                        c.shutdown(socket.SHUT_WR)
            except OSError:
                pass
    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()                                # each wait of theirs has a deadline
    assert s.ask(get("/hello")).status == 200
    end = time.monotonic() + DEADLINE
    while s.stats()["connections"] > 1 or s.open_fds() > fds + 1:
        assert time.monotonic() < end, (s.stats(), s.open_fds(), fds)
