"""carrel-runtime's commands that go on and its kernels, through carrel.cluster's Sandbox, with the runtime on loopback."""

import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from support.ports import free_port

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = TREE / "packaging/images/carrel-runtime"
sys.path.insert(0, str(TREE / "sdk/python"))

from carrel import CellFailed, Conflict, InvalidRequest, KernelDied, NotFound, RunTimeout, Unavailable, Unsupported  # noqa: E402
from carrel.client import event_bytes  # noqa: E402
from carrel.cluster import Sandbox, SandboxFiles, _error, _Runtime  # noqa: E402

PYTHON = os.environ["KERNEL_PYTHON"]  # has ipykernel


class Answer:
    """What urllib3 gives for an answer."""

    def __init__(self, response):
        self.response, self.status = response, response.status

    @property
    def data(self):
        return self.response.read()

    def stream(self, size):
        """Pieces as they come if they are announced as such; else so many bytes at a time."""
        while data := self.response.read1(size) if self.response.chunked else self.response.read(size):
            yield data

    def close(self):
        self.response.close()


class Pod(Sandbox):
    """A Sandbox without a cluster: only the way to its runtime is another."""

    def __init__(self, port, on_refused):
        self.on_refused = on_refused
        self.port, self.raw = port, {"status": {"sandbox": {"name": "pod"}}}
        self.files, self._transport, self._path = SandboxFiles(self), _Runtime(self), "/v1/box"

    def _send(self, method, path, body=None, headers=None, timeout=60, stream=False):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, dict(headers or {}), method=method)
        try:
            return Answer(urllib.request.urlopen(request, timeout=timeout))
        except urllib.error.HTTPError as error:
            raise _error(error.code, error.read(), f"{method} {path}") from error
        except urllib.error.URLError as error:
            self.on_refused()
            raise Unavailable(str(error), code="unavailable") from error


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    root, port, started = tmp_path_factory.mktemp("root"), free_port(), []

    def start():
        """Not before the first request was refused: a Pod may be Ready before its runtime listens."""
        if not started:
            started.append(subprocess.Popen(
                [PYTHON, "-B", PROGRAM, "--host", "127.0.0.1", "--port", str(port), "--rest-port", "0"],
                env={**os.environ, "SANDBOX_BASE_DIR": str(root)},
                stdout=subprocess.DEVNULL,
            ))

    pod = Pod(port, start)
    assert pod.exec(["true"]).ok
    yield pod
    for kernel in pod.kernels():
        pod.kernel(kernel["context"]).delete()
    started[0].send_signal(signal.SIGTERM)
    started[0].wait(10)


def test_output_comes_while_the_command_runs(box):
    events = box.exec_stream("echo one; read x; echo $x >&2; exit 3", stdin=True, env={"A": "b"}, cwd=".")
    started = next(events)
    assert started["type"] == "started" and event_bytes(next(events)) == b"one\n"
    box.get_exec(started["exec"]).write(b"two\n")
    event = next(events)
    assert (event["type"], event_bytes(event)) == ("stderr", b"two\n")
    last = next(events)
    assert (last["type"], last["outcome"], last["exit_code"]) == ("exit", "error", 3) and list(events) == []


def test_who_stops_listening_ends_the_command(box):
    events = box.exec_stream(["sleep", "1000"])
    command = box.get_exec(next(events)["exec"])
    events.close()
    assert command.wait().outcome == "killed"


def test_a_command_in_the_background(box):
    command = box.spawn(["sh", "-c", 'cat; printf "\\377"'], stdin=True)
    assert command.running and command.id in [one.id for one in box.execs()]
    command.write(b"in", close=True)
    done = command.wait()
    assert done.ok and done.stdout_bytes == b"in\xff" and not command.running
    assert command.logs().stdout_bytes == b"in\xff"
    sleeper = box.spawn("sleep 1000 & wait")
    sleeper.signal("TERM")
    assert sleeper.wait().signal == signal.SIGTERM
    assert box.spawn(["sleep", "1000"], timeout="100ms").wait().outcome == "timeout"
    assert box.spawn(["/nothing"]).wait().exit_code == 127


def test_of_long_output_the_newest_is_kept_and_the_rest_counted(box):
    command = box.spawn("head -c 20000000 /dev/zero; echo end")
    done = command.wait()
    assert done.truncated and done.stdout.endswith("end\n")
    assert len(done.stdout_bytes) + done.stdout_dropped_bytes == 20000004


def test_cells_share_their_variables(box):
    assert box.run("import os\nx = 6\nprint('hi')").stdout == "hi\n"
    done = box.run("x * 7")
    assert done.ok and done.text == "42" and done.execution_count == 2
    assert box.run("x", context="other").error.name == "NameError"
    with pytest.raises(CellFailed, match="ZeroDivisionError"):
        box.run("1/0", check=True)
    assert [event["type"] for event in box.stream("print(1); 2")] == ["stdout", "result", "outcome"]
    assert box.run("input('who? ')", answer=lambda prompt, password: prompt + "me").text == "'who? me'"
    assert {k["context"] for k in box.kernels()} == {"default", "other"}


def test_a_cell_that_takes_too_long_is_interrupted_and_its_kernel_stays(box):
    box.run("y = 1")
    with pytest.raises(RunTimeout):
        box.run("while True: pass", timeout=0.5, check=True)
    assert box.run("y").text == "1"
    assert box.run("while True: print('x' * 1000)", output_limit=100000).outcome == "output_limit"
    assert box.run("y").text == "1"


def test_who_stops_listening_interrupts_the_cell(box):
    events = box.stream("print('go', flush=True)\nimport time\ntime.sleep(1000)")
    assert next(events)["type"] == "stdout"
    events.close()
    assert box.run("'free'").text == "'free'"


def test_a_kernel_that_dies_is_told_and_replaced(box):
    box.run("z = 1")
    with pytest.raises(KernelDied, match="signal 9"):
        box.run("import os; os.kill(os.getpid(), 9)", check=True)
    assert box.run("z").error.name == "NameError"
    kernel = box.kernel("mine").start(cwd=".", env={"W": "1"})
    assert kernel.run("import os; os.environ['W']").text == "'1'"
    kernel.restart()
    assert kernel.run("'os' in dir()").text == "False" and kernel.info()["state"] == "alive"
    kernel.delete()
    with pytest.raises(NotFound, match="no kernel"):
        kernel.info()


@pytest.mark.parametrize("bad, error", [
    (lambda box: box.spawn([]), InvalidRequest),
    (lambda box: box.run("1", timeout="soon"), InvalidRequest),
    (lambda box: box.run("1", output_limit="1M"), InvalidRequest),
    (lambda box: box.get_exec("nothing"), NotFound),
    (lambda box: box.spawn(["cat"]).write(b"x"), Conflict),
    (lambda box: box.spawn(["sleep", "5"], timeout=5).signal("NOTHING"), InvalidRequest),
    (lambda box: box.spawn("true", user="1"), Unsupported),
    (lambda box: box.pause, Unsupported),
    (lambda box: box._transport.call("GET", "/v1/nothing"), Unsupported),
])
def test_what_is_wrong_is_told(box, bad, error):
    with pytest.raises(error):
        bad(box)
