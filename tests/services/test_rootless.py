"""The same as an ordinary user, without root anywhere."""
import json
import shutil
import textwrap

import pytest

from conftest import ASK, PYTHON
from support import BUILD
from support.server import Server
from support.users import ORDINARY


@pytest.fixture(scope="module")
def mine(programs):
    """A user's own server."""
    shutil.copytree(BUILD / "guest", programs / "guest")
    server = Server("--set", f"templates.python.python={PYTHON}", user=ORDINARY, place=programs)
    yield server
    server.stop()


def ask(server, method, path, body=None, expect=None):
    status, answer = server.request(method, path, body)
    assert expect is None or status == expect, (status, answer, server.log_text())
    return answer


def run(server, box, code):
    shown = ask(server, "POST", f"/v1/boxes/{box}/exec", {"argv": [PYTHON, "-c", ASK + textwrap.dedent(code)]}, 200)
    assert shown["exit_code"] == 0, shown
    return json.loads(shown["stdout"])


def test_a_box_of_an_ordinary_user_calls_through_its_inlet(mine):
    s = ask(mine, "POST", "/v1/services", {"name": "mine", "code": "import os\n@expose\ndef echo(v): return v\n@expose\ndef pid(): return os.getpid()\n"}, 201)
    box = ask(mine, "POST", "/v1/boxes", {"template": "python"}, 201)["id"]
    assert run(mine, box, "try: ask('GET', '/v1/grant'); print('1')\nexcept ConnectionRefusedError: print('0')\n") == 0
    ask(mine, "POST", "/v1/grants", {"service": "mine", "box": box, "functions": ["echo"]}, 201)
    assert run(mine, box, "print(json.dumps(call('echo', [1])))") == [200, {"ok": True, "result": [1]}]
    assert run(mine, box, "print(json.dumps(call('pid')[0]))") == 404
    # Ports, boxes and the next inlet still work: no process was left in a box's network.
    other = ask(mine, "POST", "/v1/boxes", {"template": "python"}, 201)["id"]
    ask(mine, "POST", "/v1/grants", {"service": "mine", "box": other}, 201)
    assert run(mine, other, "print(json.dumps(call('echo', 2)[1]['result']))") == 2
    assert run(mine, box, """
import socket
s = socket.socket()
try: s.bind(("127.0.0.1", 807)); print("1")
except OSError: print("0")
""") == 0
    pid = ask(mine, "POST", "/v1/services/mine/call", {"function": "pid"}, 200)["result"]
    mine.kill("front")
    assert run(mine, box, "print(json.dumps(call('echo', 3)[1]['result']))") == 3
    assert ask(mine, "POST", "/v1/services/mine/call", {"function": "pid"}, 200)["result"] == pid
    for one in (box, other):
        ask(mine, "DELETE", "/v1/boxes/" + one)
    ask(mine, "DELETE", "/v1/services/" + s["name"])
