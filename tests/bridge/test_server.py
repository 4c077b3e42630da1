"""Stock kernels as templates of a server: in a box, over the API."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from puppet import PUPPET

BUILD = pathlib.Path(os.environ["CARREL_BUILD"])
PATIENCE = 120          # seconds for what must come: a first import on a slow machine takes its time
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")


class Server:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-bridge-"))
        self.folder.chmod(0o711)
        settings = {"templates.python.pool": "off", "templates.bash.python": sys.executable, "templates.bash.kernel": "{python} -m bash_kernel -f {connection_file}",
                    "templates.stock.python": sys.executable, "templates.stock.kernel": "{python} -m ipykernel_launcher -f {connection_file}",
                    "templates.stock.interrupt": "message", "templates.early.python": sys.executable,
                    "templates.early.kernel": "{python} /tmp/early.py {connection_file}", "pool.size": "off"}
        command = [BUILD / "carrel-server", "serve", "--socket", self.folder / "api.sock", "--state", self.folder / "state", "--run", self.folder / "run"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + PATIENCE
        while not self.is_ready():
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)

    def is_ready(self):
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, raw=None):
        c = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(PATIENCE)
        c.sock.connect(str(self.folder / "api.sock"))
        c.request(method, path, raw if body is None else json.dumps(body), {"Content-Type": "application/json"} if body is not None else {})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, json.loads(text) if text else None

    def box(self, template):
        status, answer = self.ask("POST", "/v1/boxes", {"template": template})
        assert status < 300, answer
        return answer["id"]

    def run(self, box, code, **more):
        status, answer = self.ask("POST", f"/v1/boxes/{box}/run", {"code": code, **more})
        assert status == 200, answer
        return answer


@pytest.fixture(scope="module")
def server():
    s = Server()
    yield s
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(PATIENCE) == 0
    s.log.close()
    shutil.rmtree(s.folder)


def test_bash_in_a_box(server):
    box = server.box("bash")
    assert server.run(box, "x=7; echo in $(id -u)")["stdout"] == "in 1000\n"
    got = server.run(box, "echo $x")
    assert (got["stdout"], got["outcome"], got["kernel"]["way"]) == ("7\n", "ok", "cold")
    server.ask("DELETE", f"/v1/boxes/{box}")


def test_plain_ipykernel_keeps_its_state_through_a_timeout(server):
    box = server.box("stock")
    assert server.run(box, "x = 7\nx + 1")["results"][0]["data"]["text/plain"] == "8"
    assert server.run(box, "import time\nwhile True: time.sleep(0.01)", timeout=1)["outcome"] == "timeout"
    assert server.run(box, "x")["results"][0]["data"]["text/plain"] == "7"
    assert server.run(box, "1/0")["error"]["name"] == "ZeroDivisionError"
    server.ask("DELETE", f"/v1/boxes/{box}")


def test_a_dead_stock_kernel_is_told(server):
    box = server.box("stock")
    got = server.run(box, "import os; os._exit(5)")
    assert got["outcome"] not in ("ok", "error") and got["kernel"]["state"] == "dead"
    assert server.run(box, "2 + 2")["results"][0]["data"]["text/plain"] == "4"
    server.ask("DELETE", f"/v1/boxes/{box}")


# Its reply is slower than the word that it is idle, as that of a kernel whose channels have threads of their own can be.
EARLY = PUPPET + """
while True:
    frames = shell.recv_multipart()
    header = json.loads(frames[frames.index(b"<IDS|MSG>") + 2])
    for state in "busy", "idle":
        send(iopub, b"status", "status", header, {"execution_state": state})
    time.sleep(0.1)
    send(shell, frames[0], header["msg_type"].replace("request", "reply"), header, {"status": "ok", "execution_count": 3})
"""


def test_a_reply_after_the_kernel_is_idle_ends_the_cell(server):
    box = server.box("early")
    assert server.ask("PUT", f"/v1/boxes/{box}/files/tmp/early.py", raw=EARLY.encode())[0] < 300
    got = server.run(box, "anything")
    assert (got["outcome"], got["execution_count"]) == ("ok", 3)
    server.ask("DELETE", f"/v1/boxes/{box}")


def test_a_command_without_its_file_is_refused():
    r = subprocess.run([BUILD / "carrel-server", "serve", "--set", "templates.x.kernel=python3 -m bash_kernel"], stderr=subprocess.PIPE, timeout=PATIENCE)
    assert r.returncode != 0 and b"{connection_file}" in r.stderr
