"""How kernels begin and end."""

import json
import os

import pytest

from client import PATIENCE


def test_an_end_of_the_link_ends_the_kernel(fresh):
    k = fresh()
    k.run("import atexit, os; atexit.register(lambda: os.write(1, b'bye'))")
    k.socket.shutdown(2)
    assert k.process.wait(PATIENCE) == 0 and k.printed() == b"bye"


def test_a_thread_does_not_keep_it(fresh):
    k = fresh()
    k.run("import threading, time; threading.Thread(target=lambda: time.sleep(1000)).start()")
    k.socket.shutdown(2)
    assert k.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("code, status", [("import os; os._exit(5)", 5), ("import os; os.kill(os.getpid(), 9)", -9), ("import ctypes; ctypes.string_at(0)", -11)])
def test_a_death_is_a_death(fresh, code, status):
    k = fresh()
    k.submit(code)
    with pytest.raises((EOFError, ConnectionResetError)):
        while True:
            k.receive()
    assert k.process.wait(PATIENCE) == status


@pytest.mark.parametrize("way", ["new", "old"])
def test_a_shutdown_is_answered_and_done(fresh, way):
    k = fresh(way=way)
    k.run("1")
    assert k.request("shutdown_request", {"restart": False}, "control") == {"status": "ok", "restart": False}
    assert k.process.wait(PATIENCE) == 0


def test_exit_in_a_cell_ends_it(fresh):
    k = fresh()
    assert k.run("exit").reply["payload"][0]["source"] == "ask_exit"
    assert k.process.wait(PATIENCE) == 0


def test_startup_files_run_first(fresh, tmp_path):
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup/00-first.py").write_text("helper = 1")
    (tmp_path / "startup/10-second.ipy").write_text("%time other = helper + 1")
    (tmp_path / "startup/20-bad.py").write_text("1/0")
    k = fresh(arguments=["--startup", str(tmp_path)])
    ran = k.run("helper, other")
    assert ran.text == "(1, 2)" and ran.reply["execution_count"] == 1


def test_arguments_for_ipython_and_its_own_files_are_heeded(fresh, tmp_path):
    profile = tmp_path / "profile_default"
    (profile / "startup").mkdir(parents=True)
    (profile / "startup/00.py").write_text("from_startup = 1")
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.exec_lines = ['from_config = from_startup + 1']")
    (profile / "ipython_config.py").write_text("c.InteractiveShell.ast_node_interactivity = 'none'")
    words = ["--InteractiveShell.ast_node_interactivity=all", "--HistoryManager.hist_file=/x", "--ext", "autoreload"]
    k = fresh(env={"IPYTHONDIR": str(tmp_path), "CARREL_IPYTHON_ARGUMENTS": json.dumps(words)})
    ran = k.run("import os; ip = get_ipython(); 'CARREL_IPYTHON_ARGUMENTS' in os.environ; from_config; any('autoreload' in name for name in ip.extension_manager.loaded); ip.history_manager.hist_file")
    assert ran.reply["status"] == "ok", ran.reply
    shown = [m["content"]["data"]["text/plain"] for m in ran.messages if m["msg_type"] == "execute_result"]
    assert shown == ["False", "2", "True", "':memory:'"], shown
    k = fresh(env={"CARREL_IPYTHON_ARGUMENTS": json.dumps(["--Nonsense", "---", "--InteractiveShell.colors"])})
    assert k.run("1").text == "1"


def test_a_missing_ipykernel_is_one_clear_line(tmp_path):
    import json
    import subprocess

    import ways

    ended = subprocess.run(["/usr/bin/python3", "-S", ways.PROGRAM, "kernel"], stdin=subprocess.DEVNULL, capture_output=True, env=ways.ENV, timeout=PATIENCE)
    told = json.loads(ended.stderr)
    assert ended.returncode == 78 and told["carrel"] == "kernel" and "ipykernel" in told["error"] and "carrel setup" in told["hint"]
    assert os.listdir(tmp_path) == []
