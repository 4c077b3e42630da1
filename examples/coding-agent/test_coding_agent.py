"""`python -m pytest` here: the loop with scripted models, the runners with real processes. Boxes are tested where `carrel` is installed."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import download_model
import runner as runners
from coding_agent import MAX_FIXES, CodingAgent, report
from models import code_of
from runner import Run, SocketRunner, SubprocessRunner, passed_environment

HERE = Path(__file__).parent


class Scripted:
    """A model that gives the answers it was given."""

    name = "scripted"

    def __init__(self, *answers: str):
        self.answers = list(answers)
        self.prompts: list[str] = []

    def complete(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.answers.pop(0)


class Plain:
    """Runs code in a process of its own, as the runner container does."""

    def __init__(self):
        self.ran: list[str] = []

    def run(self, code: str) -> Run:
        self.ran.append(code)
        return SubprocessRunner(10).run(code)


def solve(*answers: str):
    model, place = Scripted(*answers), Plain()
    return CodingAgent(model=model, runner=place).solve("print a number"), model, place


# --- the loop ---

def test_code_that_works_is_run_once():
    state, model, place = solve("print(120)")
    assert state["error"] is None and state["output"] == "120\n" and state["fixes"] == 0
    assert len(place.ran) == 1 and "print a number" in model.prompts[0]


def test_an_error_is_shown_to_the_model_and_repaired():
    state, model, _ = solve("print(1/0)", "print(1)")
    assert state["error"] is None and state["output"] == "1\n" and state["fixes"] == 1
    assert "ZeroDivisionError" in model.prompts[1] and "print(1/0)" in model.prompts[1]


def test_three_fixes_are_tried_and_the_last_error_is_kept():
    state, _, place = solve("1/0", "open('/none')", "[][1]", "nothing")
    assert len(place.ran) == 1 + MAX_FIXES == 4
    assert "NameError" in state["error"] and "nothing" in state["code"]
    shown = report(state)
    assert "failed after 3 fixes" in shown and "nothing" in shown and "NameError" in shown


def test_output_before_a_failure_is_kept():
    state, *_ = solve(*["print('so far'); 1/0"] * 4)
    assert state["output"] == "so far\n"


# --- what a model says ---

@pytest.mark.parametrize("said, code", [
    ("print(1)", "print(1)\n"),
    ("Here is the code:\n```python\nprint(1)\n```\nNote: it prints", "print(1)\n"),
    ("```\nprint(1)", "print(1)\n"),
    ("print(1)\nExplanation: it prints", "print(1)\n"),
    ("def f():\n    return 1\nprint(f())\n", "def f():\n    return 1\nprint(f())\n"),
    ("x = 1\n" + "# end\n" * 50, "x = 1\n# end\n"),
])
def test_code_is_taken_out_of_an_answer(said, code):
    assert code_of(said) == code


# --- the environment ---

def test_only_named_variables_are_passed():
    given = {"PATH": "/bin", "LANG": "C", "HF_TOKEN": "secret", "SUBPROCESS_ENV_PASSTHROUGH": "VIRTUAL_ENV, PYTHONPATH,HTTP_PROXY",
             "VIRTUAL_ENV": "/v", "HTTP_PROXY": "p"}
    assert passed_environment(given) == {"PATH": "/bin", "LANG": "C", "VIRTUAL_ENV": "/v", "HTTP_PROXY": "p"}


def test_code_does_not_see_a_token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("EXTRA", "passed")
    monkeypatch.setenv("SUBPROCESS_ENV_PASSTHROUGH", "EXTRA")
    look = "import os; print(sorted(k for k in os.environ if k in ('HF_TOKEN', 'EXTRA', 'PATH')))"
    assert SubprocessRunner(10).run(look).output == "['EXTRA', 'PATH']\n"
    parents = "import os; print('secret' in open(f'/proc/{os.getppid()}/environ').read())"
    assert SubprocessRunner(10).run(parents).output == "False\n"


# --- time, output, processes ---

ESCAPE = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({mark!r}, 'w').write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists({mark!r}): time.sleep(0.01)
{rest}
"""


@pytest.mark.parametrize("rest, error", [("time.sleep(600)", "Execution timeout (3s)"), ("print('done')", None)])
def test_nothing_that_the_code_started_outlives_it(tmp_path, rest, error):
    mark = tmp_path / "pid"
    run = SubprocessRunner(3).run(ESCAPE.format(mark=str(mark), rest=rest))
    assert run.error == error
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_output_is_bounded():
    run = SubprocessRunner(20).run("print('x' * 10_000_000)")
    assert len(run.output) < runners.OUTPUT_LIMIT + 100 and "cut" in run.output


def test_a_signal_is_named():
    assert "SIGSEGV" in SubprocessRunner(10).run("import os; os.kill(os.getpid(), 11)").error


# --- the runner container ---

@pytest.fixture
def container(tmp_path):
    path = tmp_path / "runner.sock"
    server = subprocess.Popen([sys.executable, str(HERE / "runner.py"), "--serve", str(path), "--directory", str(tmp_path)],
                              stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
    assert b"listening" in server.stdout.readline()
    yield SocketRunner(str(path), 5), server
    server.kill()
    server.wait()


def test_code_runs_in_the_container_in_its_directory(container, tmp_path):
    asked, _ = container
    assert asked.run("open('made', 'w').write('x'); print(6 * 7)").output == "42\n"
    assert (tmp_path / "made").exists()


def test_variables_travel_with_the_request(container, monkeypatch):
    asked, _ = container
    monkeypatch.setenv("EXTRA", "passed")
    monkeypatch.setenv("SUBPROCESS_ENV_PASSTHROUGH", "EXTRA")
    assert asked.run("import os; print(os.environ['EXTRA'])").output == "passed\n"


def test_a_request_that_is_none_does_not_end_the_runner(container):
    import socket

    asked, _ = container
    for line in (b"\n", b"[]\n", b"{\"code\": 1}\n", b"{" * 5000 + b"\n", b"half"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(asked.path)
            connection.sendall(line)
    assert asked.run("print(1)").output == "1\n"


def test_the_runner_ends_at_once_on_sigterm_in_the_middle_of_a_run(container):
    asked, server = container
    done = threading.Thread(target=lambda: SocketRunner(asked.path, 60).run("import time; print('x', flush=True); time.sleep(60)"))
    done.start()
    server.terminate()
    assert server.wait(timeout=10) == 128 + 15
    done.join(timeout=10)


# --- the download ---

def test_a_cache_counts_only_when_its_list_and_all_files_are_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"0" * 100)
    assert not download_model.is_complete("a/b")
    assert download_model.write_list("a/b", str(snapshot)) == 102
    assert download_model.is_complete("a/b")
    (snapshot / "model.safetensors").write_bytes(b"0" * 50)
    assert not download_model.is_complete("a/b")
    (snapshot / "model.safetensors").unlink()
    assert not download_model.is_complete("a/b")


def test_a_hub_that_is_not_there_fails_the_init_container_with_the_reason(tmp_path):
    pytest.importorskip("huggingface_hub")
    run = subprocess.run([sys.executable, str(HERE / "download_model.py")], capture_output=True, text=True, timeout=120,
                         env={"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert run.returncode == 1 and "cannot download Salesforce/codegen-350M-mono" in run.stderr


# --- a box ---

def test_code_in_a_box_sees_neither_the_token_nor_the_network(monkeypatch):
    pytest.importorskip("carrel")
    monkeypatch.setenv("HF_TOKEN", "secret")
    look = "import os, socket\nprint('HF_TOKEN' in os.environ)\nsocket.create_connection(('192.0.2.1', 80), timeout=5)"
    run = runners.BoxRunner(20).run(look)
    assert run.output == "False\n" and "unreachable" in run.error


def test_a_passed_python_path_is_there_in_a_box_and_cannot_be_written(tmp_path, monkeypatch):
    pytest.importorskip("carrel")
    os.chmod(tmp_path, 0o755)
    (tmp_path / "mine.py").write_text("VALUE = 7\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SUBPROCESS_ENV_PASSTHROUGH", "PYTHONPATH")
    run = runners.BoxRunner(20).run(f"import mine; print(mine.VALUE); open({str(tmp_path / 'new')!r}, 'w')")
    assert run.output == "7\n" and "Read-only" in run.error
