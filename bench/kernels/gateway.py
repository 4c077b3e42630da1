"""A real Jupyter Enterprise Gateway beside the Jupyter door, measured by the same client: from asking for a kernel to its first result, and a warm cell.

The gateway is as somebody installs it, in an environment of its own, and runs without rights; it does not isolate its kernels."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time


class Gateway:
    def __init__(self, venv):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-bench-gateway-"))
        self.folder.chmod(0o755)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        someone = []
        if os.geteuid() == 0:
            someone = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(self.folder, 65534, 65534)
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*someone, f"{venv}/bin/jupyter", "enterprisegateway", "--ip=127.0.0.1", f"--port={self.port}", "--EnterpriseGatewayApp.unauthorized_users=[]"],
                env={"HOME": str(self.folder), "PATH": f"{venv}/bin:/usr/bin:/bin", "JUPYTER_RUNTIME_DIR": str(self.folder / "run")}, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 60
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def answers(self):
        try:
            self.raw().close()
            return True
        except OSError:
            return False

    def end(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


class Door:
    """Our own server, the same way: over its unix socket."""

    def __init__(self, server):
        self.server = server

    def connect(self):
        return self.server.connect()

    def raw(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(self.server.socket)
        return s


def ask(peer, method, path, body=None):
    c = peer.connect()
    try:
        c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read()
        if r.status >= 300:
            raise RuntimeError(f"{method} {path}: {r.status}: {text[:400]!r}")
        return json.loads(text) if text else None
    finally:
        c.close()


def measure(peer, make_socket, rounds, cells):
    """Seconds of each start, and of each warm cell."""
    starts, warm = [], []
    for i in range(rounds):
        t = time.perf_counter()
        kernel = ask(peer, "POST", "/api/kernels", {})["id"]
        ws = make_socket(peer.raw(), kernel)
        ws.cell("1+1")
        starts.append(time.perf_counter() - t)
        for _ in range(cells if i == 0 else 0):
            t = time.perf_counter()
            ws.cell("1+1")
            warm.append(time.perf_counter() - t)
        ws.s.close()
        ask(peer, "DELETE", f"/api/kernels/{kernel}")
    return starts, warm
