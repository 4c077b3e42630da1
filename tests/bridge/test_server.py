"""Stock kernels as templates of a server: in a box, over the API."""
import os
import subprocess
import sys

import pytest

from puppet import PUPPET
from support import BUILD
from support.server import Server as Plain

PATIENCE = 120          # seconds for what must come: a first import on a slow machine takes its time
SETTINGS = {"templates.python.pool": "off", "templates.bash.python": sys.executable, "templates.bash.kernel": "{python} -m bash_kernel -f {connection_file}",
            "templates.stock.python": sys.executable, "templates.stock.kernel": "{python} -m ipykernel_launcher -f {connection_file}",
            "templates.stock.interrupt": "message", "templates.early.python": sys.executable,
            "templates.early.kernel": "{python} /tmp/early.py {connection_file}", "pool.size": "off"}
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")


class Server(Plain):
    def __init__(self):
        super().__init__(*(word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")))

    def ask(self, method, path, body=None, raw=None):
        return self.request(method, path, raw if body is None else body)

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
    s.stop()


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


# Its reply is slower than its idle status, as that of a kernel whose channels have threads of their own can be.
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
