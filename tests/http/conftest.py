"""A live server under test, and clients that speak as raw as a test needs."""
import os
import queue
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

DEADLINE = 60
FIGURES = []


def say(text):
    """A measurement, to be shown at the end of the run."""
    FIGURES.append(text)


def pytest_terminal_summary(terminalreporter):
    for text in FIGURES:
        terminalreporter.write_line("  " + text)


class Server:
    """One run of the echo program; what it prints can be waited for."""

    def __init__(self, program, *args):
        env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1", UBSAN_OPTIONS="halt_on_error=1")
        self.process = subprocess.Popen([program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.port = int(self.wait_line(r"port (\d+)").group(1))
        self.wait_line("ready")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def wait_line(self, pattern, deadline=DEADLINE):
        end = time.monotonic() + deadline
        while True:
            try:
                line = self.lines.get(timeout=max(0.001, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError("the server did not print %r in %s s" % (pattern, deadline)) from None
            if line is None:
                raise AssertionError("the server ended: " + self.process.stderr.read())
            found = re.fullmatch(pattern, line)
            if found:
                return found

    def connect(self, timeout=DEADLINE, receive_buffer=None):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(timeout)
        s.connect(("127.0.0.1", self.port))
        return s

    def ask(self, request, **options):
        """Sends on a new connection, returns one answer."""
        with self.connect(**options) as s:
            s.sendall(request)
            return Answer(s.makefile("rb"))

    def stats(self):
        import json
        return json.loads(self.ask(get("/stats")).body)

    def memory_kb(self):
        with open("/proc/%d/status" % self.process.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.process.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def assert_rests(self, window=0.3):
        """It uses next to no processor time. Asked again for a while: what it had to do before may not be done yet."""
        end = time.monotonic() + DEADLINE
        while True:
            before = self.cpu_seconds()
            time.sleep(window)                  # a measurement, not a wait
            used = self.cpu_seconds() - before
            if used <= window / 10:
                return
            assert time.monotonic() < end, "it used %.2f s of %.2f s" % (used, window)

    def open_fds(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def stop(self):
        """Ends it as an operator would; a leak or a sanitizer's finding shows in the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            status = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        errors = self.process.stderr.read()
        assert status == 0, errors
        assert not errors, errors


class Answer:
    """One parsed response from a file."""

    def __init__(self, f, method="GET"):
        line = f.readline()
        if not line:
            raise ConnectionError("no answer")
        self.status = int(line.split()[1])
        self.head = {}
        while True:
            line = f.readline()
            if line == b"\r\n":
                break
            if not line:
                raise ConnectionError("the head was cut")
            name, value = line.decode("latin-1").split(":", 1)
            self.head[name.lower()] = value.strip()
        self.body = b""
        if method == "HEAD" or self.status < 200 or self.status in (204, 304):
            return
        if self.head.get("transfer-encoding") == "chunked":
            while True:
                size = int(f.readline(), 16)
                self.body += f.read(size)
                assert f.readline() == b"\r\n"
                if size == 0:
                    break
        elif "content-length" in self.head:
            self.body = f.read(int(self.head["content-length"]))
            if len(self.body) != int(self.head["content-length"]):
                raise ConnectionError("the body was cut")
        else:
            self.body = f.read()


def get(path, *headers, method="GET"):
    return "".join(["%s %s HTTP/1.1\r\nHost: test\r\n" % (method, path), *[h + "\r\n" for h in headers], "\r\n"]).encode()


def post(path, body, *headers):
    return get(path, "Content-Length: %d" % len(body), *headers, method="POST") + body


@pytest.fixture
def start():
    """start(*args) runs the checked build, start(*args, fast=True) the optimised one."""
    servers = []

    def run(*args, fast=False):
        servers.append(Server(os.environ["HTTP_ECHO" if fast else "HTTP_ECHO_ASAN"], *args))
        return servers[-1]
    yield run
    for s in servers:
        s.stop()


@pytest.fixture(scope="module")
def server():
    s = Server(os.environ["HTTP_ECHO_ASAN"])
    yield s
    s.stop()
