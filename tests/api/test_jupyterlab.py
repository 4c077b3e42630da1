"""Real JupyterLab in a box without network, used through the port proxy as a browser does: pages, files, a kernel's WebSocket."""
import json
import os
import re
import uuid

import pytest
from websockets.sync.client import connect

from support.client import Client
from support.waiting import wait_for

LAB = os.environ.get("CARREL_JUPYTERLAB")        # a Python environment with jupyterlab in it
pytestmark = pytest.mark.skipif(not LAB, reason="make jupyterlab runs it, with a JupyterLab of its own")
SECRET = "a-secret-of-the-lab"


@pytest.fixture(scope="module")
def lab(server, admin):
    """A client whose paths are those of JupyterLab, and the path that it is told it lives under."""
    made = admin.create_with_mounts({"limits": {"memory": "1G", "disk": "256M", "pids": 512}, "labels": {"carrel/keep-prefix": "8888"}},
                            {"/opt/lab": LAB})
    base = f"/v1/boxes/{made['id']}/ports/8888"
    started = admin.post(f"/v1/boxes/{made['id']}/exec", {"background": True, "argv": [
        "/opt/lab/bin/python", "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=8888", f"--ServerApp.base_url={base}/",
        f"--IdentityProvider.token={SECRET}", "--ServerApp.root_dir=/home/box", "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]})
    assert started.status == 202, started.body
    x = f"/v1/boxes/{made['id']}/exec/{started.json['id']}"

    def ready():
        assert admin.get(x).json["state"] != "ended", admin.get(x + "/output").body
        return admin.get(base + "/api").status == 200
    wait_for(ready, lambda: admin.get(x + "/output").body, deadline_s=90, every_s=0.3)
    yield admin, base
    admin.delete(f"/v1/boxes/{made['id']}")


def test_the_page_and_all_that_it_loads(lab):
    client, base = lab
    page = client.get(f"{base}/lab?token={SECRET}")
    assert page.status == 200 and b"JupyterLab" in page.body
    wanted = set(re.findall(rb'(?:src|href)="([^"#]+)"', page.body))
    assert wanted and all(path.startswith(base.encode()) for path in wanted), wanted
    for path in wanted:
        assert client.get(path.decode()).status == 200, path
    assert client.get(base + "/api/contents").status == 403        # its own token is still required


def test_files(lab):
    client, base = lab
    body = {"type": "file", "format": "text", "content": "hello from outside"}
    assert client.put(f"{base}/api/contents/note.txt?token={SECRET}", body).status == 201
    assert client.get(f"{base}/api/contents/note.txt?token={SECRET}").json["content"] == "hello from outside"


def test_a_cell_over_the_websocket(lab, server):
    client, base = lab
    kernel = client.post(f"{base}/api/kernels?token={SECRET}", {"name": "python3"})
    assert kernel.status == 201, kernel.body
    code = "import socket, os; print(open('/home/box/note.txt').read()) if os.path.exists('/home/box/note.txt') else None; 6 * 7"
    head = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "t", "session": uuid.uuid4().hex, "version": "5.3",
            "date": "2026-01-01T00:00:00Z"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    message = {"header": head, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
    path = f"{base}/api/kernels/{kernel.json['id']}/channels?token={SECRET}"
    with connect("ws://localhost" + path, sock=client.raw_socket(), open_timeout=20) as ws:
        ws.send(json.dumps(message))
        results, done = [], False
        while not done:
            answer = json.loads(ws.recv(timeout=60))
            if answer["parent_header"].get("msg_id") != head["msg_id"]:
                continue
            if answer["msg_type"] == "execute_result":
                results.append(answer["content"]["data"]["text/plain"])
            assert answer["msg_type"] != "error", answer
            done = answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle"
    assert results == ["42"]
    assert client.delete(f"{base}/api/kernels/{kernel.json['id']}?token={SECRET}").status == 204


def test_strangers_see_nothing_of_it(lab, server, bob):
    _, base = lab
    assert bob.get(f"{base}/lab?token={SECRET}").status == 404
    assert Client(("127.0.0.1", server.port)).get(f"{base}/lab?token={SECRET}").status == 401
