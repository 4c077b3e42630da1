"""carrel kernel, started by the unmodified jupyter_client as every kernel is."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from jupyter_client.manager import start_new_kernel

from conftest import MARK
from support import BUILD
from support.server import Server
from support.waiting import wait_for

STARTUP_S = 120


def left():
    """Folders of private servers but those that a stranger's server has, and the processes that these tests have started."""
    processes, strangers = set(), b""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes().split(b"\0")
        except PermissionError:
            environment = []
        except OSError:
            continue
        if MARK.encode() in environment:
            processes.add(entry.name)
        else:
            strangers += command
    return processes | {str(p) for p in pathlib.Path("/tmp").glob("carrel-??????") if bytes(p) not in strangers}


class Kernel:
    def __init__(self, cwd, **more):
        self.manager, self.client = start_new_kernel(kernel_name="python3", startup_timeout=STARTUP_S, cwd=str(cwd), **more)

    def run(self, code, **more):
        messages = []
        reply = self.client.execute_interactive(code, output_hook=messages.append, timeout=120, **more)
        self.messages = messages
        found = [m["content"]["data"]["text/plain"] for m in messages if m["msg_type"] == "execute_result"]
        return reply["content"], found[0] if found else None

    def value(self, code):
        content, text = self.run(code)
        assert content["status"] == "ok", content
        return eval(text)


@pytest.fixture
def folder():
    path = pathlib.Path("/tmp") / f"carrel-work-{os.getpid()}-{time.monotonic_ns()}"
    path.mkdir()
    yield path
    subprocess.run(["rm", "-rf", path])


@pytest.fixture
def kernel(folder):
    before = left()
    k = Kernel(folder)
    k.folder = folder
    yield k
    k.client.stop_channels()
    if k.manager.has_kernel:
        k.manager.shutdown_kernel(now=False)
    wait_for(lambda: left() <= before)


def test_a_kernel_in_a_box(kernel):
    assert kernel.value("1 + 1") == 2
    assert kernel.value("import os; os.getcwd()") == str(kernel.folder)
    assert kernel.value("os.path.exists('/root/.bashrc'), os.path.exists('/etc/shadow')") == (False, False)
    kernel.value("open('made', 'w').write('x')")
    assert (kernel.folder / "made").stat().st_uid == os.getuid()
    content, _ = kernel.run("import socket; socket.create_connection(('192.0.2.1', 80), 2)")
    assert content["ename"] == "OSError"
    content, _ = kernel.run("print('out'); import sys; print('err', file=sys.stderr); 1/0")
    assert content["ename"] == "ZeroDivisionError"
    printed = [m["content"] for m in kernel.messages if m["msg_type"] == "stream"]
    assert ["".join(p["text"] for p in printed if p["name"] == name) for name in ("stdout", "stderr")] == ["out\n", "err\n"]


def test_the_home_directory_is_there_only_if_it_is_asked_for(folder, jupyter_path, monkeypatch):
    below = folder / "notebooks"
    below.mkdir()
    (folder / "secret").write_text("x")
    monkeypatch.setenv("HOME", str(folder))
    spec = jupyter_path / "share/jupyter/kernels/python3/kernel.json"
    plain = spec.read_text()
    asked = json.loads(plain)
    asked["argv"].insert(2, "--home")
    for cwd, text, sees in ((below, plain, False), (folder, plain, False), (folder, json.dumps(asked), True)):
        spec.write_text(text)
        k = Kernel(cwd)
        try:
            assert k.value(f"import os; os.path.exists('{folder}/secret')") is sees
            told = "".join(m["content"]["text"] for m in k.messages if m["msg_type"] == "stream" and m["content"]["name"] == "stderr")
            assert ("carrel kernelspec install --home" in told) == (cwd == folder and not sees), told
            assert k.value("os.getcwd()") == (str(cwd) if cwd == below or sees else "/home/box")
            assert k.messages and not [m for m in k.messages if m["msg_type"] == "stream"]      # it is said once
        finally:
            spec.write_text(plain)
            k.client.stop_channels()
            k.manager.shutdown_kernel(now=False)


def test_interrupt_restart_and_input(kernel):
    kernel.run("x = 5")
    kernel.client.execute("import time\nwhile True: time.sleep(0.1)")
    while kernel.client.get_iopub_msg(timeout=120)["msg_type"] != "execute_input":
        pass
    kernel.manager.interrupt_kernel()
    assert kernel.client.get_shell_msg(timeout=120)["content"]["ename"] == "KeyboardInterrupt"
    assert kernel.value("x") == 5

    def answer(message):
        kernel.client.input(message["content"]["prompt"].upper())
    assert kernel.run("input('who? ')", allow_stdin=True, stdin_hook=answer)[1] == "'WHO? '"
    kernel.manager.restart_kernel(now=False)
    kernel.client.wait_for_ready(timeout=STARTUP_S)
    assert kernel.run("x")[0]["ename"] == "NameError"
    assert kernel.client.is_alive()


def test_arguments_for_ipython_are_handed_on(folder, capfd):
    # nbclient adds the first one to every kernel called python3, 'jupyter run' its files.
    k = Kernel(folder, extra_arguments=["--HistoryManager.hist_file=:memory:", "--InteractiveShell.ast_node_interactivity=all", "--IPKernelApp.exec_lines=early=5", "a.py"])
    try:
        assert k.run("early; 6")[0]["status"] == "ok"
        assert [m["content"]["data"]["text/plain"] for m in k.messages if m["msg_type"] == "execute_result"] == ["5", "6"]
    finally:
        k.client.stop_channels()
        k.manager.shutdown_kernel(now=False)
    assert "'a.py' is not handed on" in capfd.readouterr().err
    r = subprocess.run([BUILD / "carrel", "kernel", "-f", "/nonexistent", "--momery", "2G"], stderr=subprocess.PIPE, timeout=120)
    assert r.returncode == 125 and b"momery" in r.stderr


PROGRAM = """
import json, os, sys
from jupyter_client.manager import start_new_kernel
os.environ["SET_BY_THE_PROGRAM"] = "1"
manager, client = start_new_kernel(kernel_name="python3", startup_timeout=120, env=dict(os.environ, FOR_START="2 3", HOME="/somewhere"))
names = ["SET_BY_THE_PROGRAM", "FOR_START", "OF_THE_SPEC", "LIKE_THE_SHELL_S", "TOKEN_OF_THE_SHELL", "HOME", "CARREL_URL", "PATH"]
said = []
client.execute_interactive("import os; print([os.environ.get(name) for name in %r])" % names, timeout=120,
                           output_hook=lambda m: said.append(m["content"].get("text")))
client.stop_channels()
manager.shutdown_kernel()
sys.stdout.write("".join(text for text in said if text))
"""


def test_what_is_given_to_a_kernel_arrives_and_the_shell_s_environment_does_not(folder, tmp_path, jupyter_path):
    place = tmp_path / "jupyter/kernels/python3"
    place.mkdir(parents=True)
    spec = json.loads((jupyter_path / "share/jupyter/kernels/python3/kernel.json").read_text())
    spec["env"] = {"OF_THE_SPEC": "at ${FOR_START}", "LIKE_THE_SHELL_S": "same"}
    (place / "kernel.json").write_text(json.dumps(spec))
    environment = {**os.environ, "JUPYTER_PATH": str(tmp_path / "jupyter"), "LIKE_THE_SHELL_S": "same", "TOKEN_OF_THE_SHELL": "secret"}
    r = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=folder, stdout=subprocess.PIPE, timeout=300, check=True)
    said = eval(r.stdout)
    assert said[:4] == ["1", "2 3", "at 2 3", "same"]
    assert said[4] is None and said[5] == "/home/box" and said[6] is None and "/usr/bin" in said[7]


def test_a_kernel_s_death_is_no_error_of_a_cell(folder, tmp_path):
    """nbclient looks whether the process lives, and takes an answer for the cell's."""
    with open(tmp_path / "said", "wb") as said:
        k = Kernel(folder, stderr=said)
    try:
        k.client.execute("import os; os.kill(os.getpid(), 9)")
        wait_for(lambda: not k.manager.is_alive())
        for channel in (k.client.shell_channel, k.client.iopub_channel):
            while channel.msg_ready():
                assert channel.get_msg(timeout=5)["msg_type"] not in ("error", "execute_reply")
    finally:
        k.client.stop_channels()
        k.manager.shutdown_kernel(now=True)
    assert "killed by signal 9" in (tmp_path / "said").read_text()


def test_a_kernel_that_dies_ends_the_launcher(kernel):
    kernel.client.execute("import os; os._exit(3)")
    wait_for(lambda: not kernel.manager.is_alive())


def test_a_killed_launcher_gives_its_ports_back_at_once(kernel):
    for i in range(3):
        kernel.value("1")
        kernel.manager.restart_kernel(now=True)     # kills it and starts the next one with the same connection file
        kernel.client.wait_for_ready(timeout=STARTUP_S)
        assert kernel.manager.is_alive() and kernel.value("1 + 1") == 2


def test_a_killed_launcher_leaves_nothing(folder):
    before = left()
    k = Kernel(folder)
    assert k.value("2 + 2") == 4
    k.client.stop_channels()
    os.kill(k.manager.provisioner.pid, signal.SIGKILL)
    wait_for(lambda: not k.manager.is_alive())
    wait_for(lambda: left() <= before)


@contextlib.contextmanager
def connection(folder):
    """A connection file, and a client for whoever serves it."""
    path, _ = write_connection_file(str(folder / "c.json"))
    client = BlockingKernelClient(connection_file=path)
    client.load_connection_file()
    client.start_channels()
    try:
        yield [str(BUILD / "carrel"), "kernel", "--python", sys.executable, "-f", path], client
    finally:
        client.stop_channels()


def test_the_thread_that_started_a_launcher_may_end(folder):
    before, over = left(), threading.Event()
    with connection(folder) as (words, client):
        started = []
        thread = threading.Thread(target=lambda: (started.append(subprocess.Popen(words, cwd=folder)), over.wait()))
        thread.start()
        try:
            client.wait_for_ready(timeout=STARTUP_S)
            over.set()
            thread.join()
            wait_for(lambda: not pathlib.Path(f"/proc/self/task/{thread.native_id}").exists())
            assert client.execute_interactive("1", timeout=120)["content"]["status"] == "ok"
            client.shutdown()
            assert started[0].wait(120) == 0
        finally:
            over.set()
            thread.join()
            started[0].kill()
            started[0].wait()
    wait_for(lambda: left() <= before)


def test_a_launcher_ends_with_the_process_that_started_it(folder):
    before = left()
    with connection(folder) as (words, client):
        parent = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *words], cwd=folder)
        try:
            client.wait_for_ready(timeout=STARTUP_S)
        finally:
            parent.kill()
            parent.wait()
        wait_for(lambda: left() <= before)


def test_with_a_server_the_kernel_is_forked_from_its_zygote(folder, tmp_path, monkeypatch):
    subprocess.run([BUILD / "carrel", "kernelspec", "install", "--name", "python3", "--prefix", tmp_path], check=True, stdout=subprocess.DEVNULL, timeout=120)
    server = Server("--set", f"templates.python.python={sys.executable}", "--set", "templates.python.pool=1")
    try:
        wait_for(lambda: "a family of kernels is ready" in server.log_text(), server.log_text)
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
        monkeypatch.setenv("CARREL_URL", server.url)
        k = Kernel(folder)
        try:
            [box] = server.request("GET", "/v1/boxes")[1]["boxes"]
            [told] = server.request("GET", f"/v1/boxes/{box['id']}/kernels")[1]["kernels"]
            assert told["way"] == "forked", told
            assert k.value("import os; os.getcwd()") == str(folder)
            k.value("open('made', 'w').write('x')")
            assert (folder / "made").stat().st_uid == os.getuid()
        finally:
            k.client.stop_channels()
            k.manager.shutdown_kernel(now=False)
    finally:
        server.stop()


def test_a_launcher_that_is_killed_while_it_starts_leaves_nothing(tmp_path, folder):
    before = left()
    for i in range(20):
        with contextlib.ExitStack() as sockets:
            names = [f"{n}_port" for n in ("shell", "iopub", "stdin", "control", "hb")]
            ports = {n: sockets.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for n in names}
        (tmp_path / "c.json").write_text(json.dumps({"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256", **ports}))
        p = subprocess.Popen([BUILD / "carrel", "kernel", "--python", sys.executable, "-f", tmp_path / "c.json"], cwd=folder, start_new_session=True)
        time.sleep(0.002 * i)       # each at another moment of its start
        if i % 2:
            os.killpg(p.pid, signal.SIGINT)     # as managers do first
        p.kill()
        p.wait()
    wait_for(lambda: left() <= before)


@pytest.mark.parametrize("change, word", [({"transport": "udp"}, b"transport"), ({"shell_port": 0}, b"shell_port"), ({"signature_scheme": "hmac-md5"}, b"hmac-sha256"),
                                          ({"curve_publickey": "x"}, b"CURVE"), (None, b"connection file")])
def test_a_wrong_connection_file_is_one_clear_line(tmp_path, change, word):
    good = {"transport": "tcp", "ip": "127.0.0.1", "shell_port": 45001, "iopub_port": 45002, "stdin_port": 45003, "control_port": 45004, "hb_port": 45005,
            "key": "k", "signature_scheme": "hmac-sha256"}
    (tmp_path / "c.json").write_text("{" if change is None else json.dumps({**good, **change}))
    r = subprocess.run([BUILD / "carrel", "kernel", "-f", tmp_path / "c.json"], stderr=subprocess.PIPE, timeout=120)
    assert r.returncode == 125 and word in r.stderr and r.stderr.count(b"\n") == 1


def test_the_kernelspec_is_written_and_taken_away(tmp_path):
    command = [BUILD / "carrel", "kernelspec"]
    made = subprocess.run([*command, "install", "--prefix", tmp_path, "--memory", "1G"], stdout=subprocess.PIPE, timeout=120, check=True).stdout.decode().strip()
    spec = json.loads(pathlib.Path(made).read_text())
    assert spec["argv"][1:] == ["kernel", "--spec", "{resource_dir}", "--memory", "1G", "-f", "{connection_file}"] and os.access(spec["argv"][0], os.X_OK)
    for wrong in (["--memory", "much"], ["--name", "a/b"]):
        assert subprocess.run([*command, "install", "--prefix", tmp_path, *wrong], stderr=subprocess.PIPE, timeout=120).returncode == 125
    subprocess.run([*command, "remove", "--prefix", tmp_path], timeout=120, check=True)
    assert not pathlib.Path(made).parent.exists()
