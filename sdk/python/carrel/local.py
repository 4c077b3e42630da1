"""Finding a server, or starting a private one that ends with this process."""
from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .errors import Unavailable


def find_binary() -> str:
    """The carrel program: CARREL_BIN, beside this package, or on PATH."""
    named = os.environ.get("CARREL_BIN")
    if named:
        return named
    packaged = os.path.join(os.path.dirname(__file__), "bin", "carrel")
    if os.access(packaged, os.X_OK):
        return packaged
    found = shutil.which("carrel")
    if not found:
        raise Unavailable("the program 'carrel' is neither on PATH nor named by CARREL_BIN")
    return found


def _answers(path: str) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1)
        probe.connect(path)
        return True
    except OSError:
        return False
    finally:
        probe.close()


def running_server() -> str | None:
    """The URL of a server that is there: CARREL_URL, the user's own, the machine's."""
    if os.environ.get("CARREL_URL"):
        return os.environ["CARREL_URL"]
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/carrel-{os.getuid()}"
    for path in (os.path.join(runtime, "carrel", "carrel.sock"), "/run/carrel/carrel.sock"):
        if os.path.exists(path) and _answers(path):
            return "unix:" + path
    return None


class PrivateServer:
    """A server of this process's own: started on demand, ended at exit, state thrown away."""

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="carrel-")
        self.socket = os.path.join(self.directory, "carrel.sock")
        self._log = open(os.path.join(self.directory, "log"), "wb")
        self._owner = os.getpid()
        self.process = subprocess.Popen(
            [find_binary(), "serve", "--socket", self.socket, "--state", os.path.join(self.directory, "state"),
             "--run", os.path.join(self.directory, "run")],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True)
        atexit.register(self.close)
        self._wait()

    def _wait(self, seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if os.path.exists(self.socket) and _ready(self.socket):
                return
            time.sleep(0.005)
        with open(self._log.name, "rb") as log:
            said = log.read()[-2000:].decode("utf-8", "replace").strip()
        self.close()
        raise Unavailable(f"the private server did not start: {said or 'it said nothing'}")

    @property
    def url(self) -> str:
        return "unix:" + self.socket

    def close(self) -> None:
        """Ends the server and all its boxes. A forked child leaves its parent's server alone."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _ready(path: str) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(2)
        probe.connect(path)
        probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in probe.recv(64)
    except OSError:
        return False
    finally:
        probe.close()
