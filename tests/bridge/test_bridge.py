"""Stock kernels through the bridge: real ipykernel, xeus-python and bash, each with its own ZeroMQ library."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "guest"))
from client import PATIENCE, Client  # noqa: E402
from puppet import PUPPET  # noqa: E402

BUILD = pathlib.Path(os.environ["CARREL_BUILD"])
BRIDGE = BUILD / "guest" / "carrel-bridge"
FILE = "{connection_file}"
KERNELS = {
    "ipykernel": [sys.executable, "-m", "ipykernel_launcher", "-f", FILE],
    "xpython": [sys.executable, "-m", "xpython_launcher", "-f", FILE],
    "bash": [sys.executable, "-m", "bash_kernel", "-f", FILE],
}


class Bridge:
    def __init__(self, argv, *options):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        with theirs:
            self.process = subprocess.Popen([BRIDGE, *options, "--", *argv], stdin=theirs, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            start_new_session=True, env={**os.environ, "PATH": path})
        self.socket = ours
        self.client = Client(ours)

    def wait_idle(self):
        """The first idle that belongs to no request: the bridge says that the kernel answers."""
        while True:
            m = self.client.receive()
            assert m["msg_type"] != "iopub_welcome"
            if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" and not m["parent_header"]:
                return

    def end(self):
        self.socket.close()
        try:
            return self.process.wait(PATIENCE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    before = set(pathlib.Path("/tmp").glob(".kernel-*"))
    yield
    left, deadline = set(pathlib.Path("/tmp").glob(".kernel-*")) - before, time.monotonic() + PATIENCE
    while any(p.exists() for p in left):        # a foreign one dies with its kernel
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.fixture(params=sorted(KERNELS))
def bridge(request):
    b = Bridge(KERNELS[request.param])
    b.name = request.param
    b.wait_idle()
    yield b
    b.end()


def test_cells_run_and_keep_their_state(bridge):
    one, two = ("x=41", "echo $((x+1))") if bridge.name == "bash" else ("x = 41", "print(x + 1)")
    assert bridge.client.run(one).reply["status"] == "ok"
    assert bridge.client.run(two).stdout.strip() == "42"
    assert bridge.client.request("kernel_info_request")["status"] == "ok"


def test_the_bridge_ends_the_kernel_with_the_link(bridge):
    [kernel] = pathlib.Path(f"/proc/{bridge.process.pid}/task/{bridge.process.pid}/children").read_text().split()
    assert bridge.end() == 0
    deadline = time.monotonic() + PATIENCE
    while not has_ended(kernel):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_large_messages_and_buffers_pass_whole():
    b = Bridge(KERNELS["ipykernel"])
    b.wait_idle()
    text = "é" * 3_000_000
    assert b.client.run(f"s = {text!r}; print(len(s)); print(s)").stdout == f"3000000\n{text}\n"
    code = "from comm import create_comm; c = create_comm('t', data={}, buffers=[bytes(range(256)) * 1000, b'x'])"
    opened = [m for m in b.client.run(code).messages if m["msg_type"] == "comm_open"]
    assert opened[0]["buffers"] == [bytes(range(256)) * 1000, b"x"]
    assert b.end() == 0


@pytest.mark.parametrize("options", [[], ["--interrupt-by-message"]])
def test_a_signal_to_the_group_interrupts_a_cell(options):
    b = Bridge(KERNELS["ipykernel"], *options)
    b.wait_idle()
    msg_id = b.client.submit("x = 7\nprint('in it', flush=True)\nimport time\nwhile True: time.sleep(0.01)")
    while b.client.receive()["msg_type"] != "stream":
        pass
    os.killpg(b.process.pid, signal.SIGINT)
    found = b.client.collect(msg_id)
    assert [m["content"]["ename"] for m in found if m["msg_type"] == "error"] == ["KeyboardInterrupt"]
    assert b.client.run("print(x)").stdout == "7\n"
    b.end()


def test_input_is_asked_for_and_answered():
    b = Bridge(KERNELS["ipykernel"])
    b.wait_idle()
    msg_id = b.client.submit("name = input('who? '); print('hello', name)", allow_stdin=True)
    while True:
        m = b.client.receive()
        if m["channel"] == "stdin":
            break
    assert m["content"]["prompt"] == "who? "
    b.client.send("input_reply", {"value": "box"}, channel="stdin", parent=m["header"])
    assert "".join(m["content"]["text"] for m in b.client.collect(msg_id) if m["msg_type"] == "stream") == "hello box\n"
    b.end()


@pytest.mark.parametrize("code, status", [("import os; os._exit(3)", 3), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9)])
def test_the_bridge_ends_as_its_kernel_does(code, status):
    b = Bridge(KERNELS["ipykernel"])
    b.wait_idle()
    b.client.submit(code)
    assert b.process.wait(PATIENCE) == status
    b.socket.close()


def test_the_bridge_ends_with_a_kernel_whose_children_hold_its_sockets():
    b = Bridge(KERNELS["ipykernel"])
    b.wait_idle()
    b.client.submit("import os, signal\nif os.fork() == 0:\n    signal.pause()\nos.kill(os.getpid(), signal.SIGKILL)")
    try:
        assert b.process.wait(PATIENCE) == -9
    finally:
        os.killpg(b.process.pid, signal.SIGKILL)
        b.process.wait(PATIENCE)
        b.socket.close()


def test_a_command_that_is_not_there_is_told():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        r = subprocess.run([BRIDGE, "--", "/no/such/kernel", FILE], stdin=theirs, stderr=subprocess.PIPE, timeout=PATIENCE)
    assert r.returncode == 127 and b"/no/such/kernel" in r.stderr
    r = subprocess.run([BRIDGE, "nothing"], stderr=subprocess.PIPE, timeout=PATIENCE)
    assert r.returncode == 125 and b"usage" in r.stderr


FORGER = PUPPET + """
while True:
    frames = shell.recv_multipart()
    header = json.loads(frames[frames.index(b"<IDS|MSG>") + 2])
    send(iopub, b"status", "status", header, {"execution_state": "idle"})
    send(shell, frames[0], "forged", header, {}, key="another key")
    shell.send_multipart([frames[0], b"no delimiter at all"])
    send(shell, frames[0], "honest", header, {})
"""


def test_messages_with_wrong_signatures_are_dropped(tmp_path):
    (tmp_path / "forger.py").write_text(FORGER)
    b = Bridge([sys.executable, str(tmp_path / "forger.py"), FILE])
    b.wait_idle()
    msg_id = b.client.send("execute_request", {})
    seen = []
    while "honest" not in seen:
        m = b.client.receive()
        seen += [m["msg_type"]] if m["parent_header"].get("msg_id") == msg_id else []
    assert "forged" not in seen
    b.end()


def test_a_kernel_that_talks_nonsense_ends_the_bridge_not_more(tmp_path):
    (tmp_path / "liar.py").write_text(
        "import json, socket, sys\nc = json.load(open(sys.argv[1]))\n"
        "l = []\n"
        "for p in 'shell_port', 'control_port', 'stdin_port', 'iopub_port':\n"
        "    s = socket.socket(socket.AF_UNIX); s.bind(f\"{c['ip']}-{c[p]}\"); s.listen(); l.append(s)\n"
        "for s in l:\n    a, _ = s.accept(); a.sendall(b'GET / HTTP/1.1' * 50); l.append(a)\n")
    b = Bridge([sys.executable, str(tmp_path / "liar.py"), FILE])
    assert b.process.wait(PATIENCE) == 125
    b.socket.close()
