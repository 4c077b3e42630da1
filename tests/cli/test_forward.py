import re
import socket
import subprocess
import threading
import urllib.request

import pytest

from support.waiting import wait_for

SERVER = """
import socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        data = self.rfile.read()
        self.wfile.write(str(len(data)).encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(('127.0.0.1', 9000), H).serve_forever()
"""


@pytest.fixture
def forwarded(server, box):
    running = []

    def forward(port):
        process = server.start_carrel("forward", box, f"0:{port}", stdout=subprocess.PIPE, text=True)
        running.append(process)
        return int(re.match(r"127\.0\.0\.1:(\d+) -> ", process.stdout.readline())[1])

    yield forward
    for process in running:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def listens(server, box, port):
    line = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    return server.carrel("exec", box, "--", "python3", "-c", line).returncode == 0


def test_http_through_a_forwarded_port(server, box, forwarded):
    server.carrel("exec", "-d", box, "--", "python3", "-m", "http.server", "--bind", "127.0.0.1", "8888")
    wait_for(lambda: listens(server, box, 8888), "the server in the box listens")
    server.carrel("cp", "-", f"{box}:page", data="hello")
    port = forwarded(8888)
    for _ in range(3):
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=60).read() == b"hello"


def test_bytes_go_both_ways_and_a_half_close_is_handed_on(server, box, forwarded):
    server.carrel("exec", "-d", box, "--", "python3", "-c", SERVER)
    wait_for(lambda: listens(server, box, 9000), "the server in the box listens")
    port, answers = forwarded(9000), []

    def one():
        with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
            s.sendall(b"x" * (1 << 20))
            s.shutdown(socket.SHUT_WR)
            answers.append(s.recv(100))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert answers == [b"1048576"] * 8


def test_a_port_where_nobody_listens_closes_the_connection(server, box, forwarded):
    with socket.create_connection(("127.0.0.1", forwarded(4)), timeout=60) as s:
        assert s.recv(1) == b""


def test_a_port_that_is_taken_is_told(server, box):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = server.carrel("forward", box, f"{taken.getsockname()[1]}:80")
    assert result.returncode == 125 and "LOCAL:PORT" in result.stderr


def test_the_inlet_of_a_box_is_not_forwarded(server, box):
    """A connection to it has the box's grants."""
    for word in "807", "0:807", "8070:807":
        done = server.carrel("forward", box, word)
        assert (done.returncode, done.stdout) == (125, "") and "port 807" in done.stderr and "for its grants" in done.stderr
