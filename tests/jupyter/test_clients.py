"""Unmodified clients of others: jupyter_server's gateway client, nbclient, a whole jupyter_server in gateway mode."""
import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from support.ports import free_port
from support.waiting import wait_for

MATPLOTLIB = "%matplotlib inline\nimport matplotlib.pyplot as plt\n_ = plt.plot([1, 4, 9])"


@pytest.fixture
def gateway(server, monkeypatch, tmp_path):
    """This process as a client of the server, without a token: GatewayKernelClient sends none."""
    from jupyter_server.gateway.gateway_client import GatewayClient

    monkeypatch.setenv("JUPYTER_GATEWAY_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    GatewayClient.clear_instance()
    client = GatewayClient.instance()
    client.url = f"http://127.0.0.1:{server.port}"
    yield client
    GatewayClient.clear_instance()


async def execute(client, code):
    """The reply's content."""
    id = client.execute(code)
    while True:
        reply = await client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == id:
            return reply["content"]


def test_gateway_kernel_manager_and_client(gateway, anybody):
    from jupyter_server.gateway.managers import GatewayKernelManager, GatewayMappingKernelManager

    async def story():
        manager = GatewayKernelManager(parent=GatewayMappingKernelManager())
        await manager.start_kernel(kernel_name="python3", env={"KERNEL_NOTE": "hi"}, cwd="/home/nobody/here")
        client, kernel = manager.client(), manager.kernel["id"]
        await client.start_channels()
        try:
            await client.wait_for_ready(timeout=60)
            assert (await execute(client, "x = 41\nprint('hello')\nx + 1"))["status"] == "ok"
            seen = [await client.get_iopub_msg(timeout=60)]
            while seen[-1]["msg_type"] != "execute_result":
                seen.append(await client.get_iopub_msg(timeout=60))
            assert [m["content"]["text"] for m in seen if m["msg_type"] == "stream"] == ["hello\n"]
            assert [m["content"]["data"]["text/plain"] for m in seen if m["msg_type"] == "execute_result"] == ["42"]
            assert await manager.is_alive()
            running = asyncio.create_task(execute(client, "while True: pass"))
            while (await client.get_iopub_msg(timeout=60))["content"].get("code") != "while True: pass":
                pass
            await manager.interrupt_kernel()
            assert (await running)["ename"] == "KeyboardInterrupt"
            await manager.restart_kernel(now=True)
            assert (await execute(client, "x"))["ename"] == "NameError"
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)
        assert anybody.get(f"/api/kernels/{kernel}").status == 404

    asyncio.run(story())


def test_nbclient_runs_a_notebook(gateway):
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    cells = [nbformat.v4.new_code_cell(code) for code in ["x = 6", "print(x * 7)", MATPLOTLIB]]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}})
    manager = "jupyter_server.gateway.managers.GatewayKernelManager"
    NotebookClient(notebook, timeout=200, kernel_manager_class=manager).execute()
    assert notebook.cells[1].outputs[0]["text"] == "42\n"
    assert "image/png" in notebook.cells[2].outputs[0]["data"]
    # A kernel that dies ends the cell at once, with the reason.
    deadly = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os; os._exit(9)")], metadata=notebook.metadata)
    with pytest.raises(CellExecutionError, match="DeadKernelError.*status 9"):
        NotebookClient(deadly, timeout=100, kernel_manager_class=manager).execute()


@pytest.fixture(scope="module")
def lab(server, alice, tmp_path_factory):
    """A jupyter_server in gateway mode, with alice's token; gives a function that asks it."""
    folder, port = tmp_path_factory.mktemp("lab"), free_port()
    env = {**os.environ, "HOME": str(folder), "JUPYTER_CONFIG_DIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder), "JUPYTER_DATA_DIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True",
         f"--gateway-url=http://127.0.0.1:{server.port}", f"--GatewayClient.auth_token={alice.token}", f"--ServerApp.root_dir={folder}"],
        cwd=folder, env=env, stdout=open(folder / "log", "wb"), stderr=subprocess.STDOUT)

    def ask(method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            data = answer.read()
            return json.loads(data) if data.startswith((b"{", b"[")) else data

    def is_up():
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return ask("GET", "/api/kernelspecs")
        except OSError:
            return None

    try:
        wait_for(is_up, lambda: (folder / "log").read_text())
        ask.port = port
        yield ask
    finally:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:       # how soon a server of others ends is not ours to judge
            process.kill()
            process.wait()


def test_a_jupyter_server_in_gateway_mode(lab, alice):
    import websocket

    specs = lab("GET", "/api/kernelspecs")
    assert specs["default"] == "python3"
    assert lab("GET", specs["kernelspecs"]["python3"]["resources"]["logo-svg"]).startswith(b"<svg")
    session = lab("POST", "/api/sessions", {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "python3"}})
    kernel = session["kernel"]["id"]
    assert kernel in [k["id"] for k in alice.get("/api/kernels").json]
    socket = websocket.create_connection(f"ws://127.0.0.1:{lab.port}/api/kernels/{kernel}/channels?session_id=s1", timeout=60)
    socket.send(json.dumps({"header": {"msg_id": "m1", "msg_type": "execute_request", "session": "s1", "username": "u", "version": "5.3",
                                       "date": "2026-01-01T00:00:00Z"}, "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
                            "content": {"code": "print('through two servers')", "silent": False, "store_history": True, "user_expressions": {},
                                        "allow_stdin": False, "stop_on_error": True}}))
    text, idle = "", False
    while not idle:
        m = json.loads(socket.recv())
        if m["parent_header"].get("msg_id") == "m1":
            text += m["content"].get("text", "")
            idle = m["content"].get("execution_state") == "idle"
    assert text == "through two servers\n"
    assert lab("POST", f"/api/kernels/{kernel}/restart", {})["id"] == kernel
    socket.close()
    lab("DELETE", f"/api/sessions/{session['id']}")
    wait_for(lambda: kernel not in [k["id"] for k in alice.get("/api/kernels").json])
