"""The module that stands for a service: its text, and what it does against a grant's socket."""
import http.server
import importlib.util
import inspect
import json
import os
import socketserver
import subprocess
import sys
import threading

import pytest

from carrel.environment.stub import make_stub

FUNCTIONS = [
    {"name": "plain", "doc": "Says \"\"\"something\"\"\" \\ odd.", "signature": "(text: str, n: int = 5, *, flag: bool = False) -> dict"},
    {"name": "names", "doc": "", "signature": "(x: List[torch.Tensor], y: Optional[Foo] = None, z=LIMIT) -> np.ndarray"},
    {"name": "positional", "doc": "d", "signature": "(a, b=2, /, c=3, *rest, d, **more)"},
    {"name": "odd", "doc": "d", "signature": "(x=<object object at 0x7f>)"},
    {"name": "clash", "doc": "d", "signature": "(_carrel_ask, fn_name, _a=1, _carrel_unset=LIMIT)"},
    {"name": "waits", "doc": "d", "signature": "()", "async": True},
]


class Grant(socketserver.ThreadingUnixStreamServer):
    """Answers as the server does; `answer` decides what."""

    daemon_threads = True

    def __init__(self, path):
        self.asked = []
        self.connections = 0
        self.answer = lambda body: (200, {"ok": True, "result": body})
        super().__init__(path, Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def address_string(self):
        return ""

    def log_message(self, *words):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        status, answer = self.server.answer(body)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def grant(tmp_path):
    server = Grant(str(tmp_path / "socket"))
    (tmp_path / "holder.json").write_text(json.dumps({"socket": str(tmp_path / "socket"), "token": "secret-token"}))
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def stubs(grant, tmp_path):
    def make(functions):
        folder = tmp_path / "workspace"
        folder.mkdir()
        (folder / "tools.py").write_text(make_stub("tools", "tools-1", functions, str(tmp_path / "holder.json"), {}))
        spec = importlib.util.spec_from_file_location("tools", folder / "tools.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return make


@pytest.fixture
def stub(stubs):
    return stubs(FUNCTIONS)


def test_signatures_and_docstrings_are_the_real_ones(stub):
    signature = inspect.signature(stub.plain)
    assert str(signature) == "(text: 'str', n: 'int' = 5, *, flag: 'bool' = False) -> 'dict'"
    assert stub.plain.__doc__ == FUNCTIONS[0]["doc"] and list(inspect.signature(stub.names).parameters) == ["x", "y", "z"]
    assert stub.__all__ == [f["name"] for f in FUNCTIONS]


def test_calls_by_position_and_by_name(stub, grant):
    stub.plain("hello")
    stub.plain(text="hello", n=6, flag=True)
    assert [b["kwargs"] for _, _, b in grant.asked] == [{"text": "hello", "n": 5, "flag": False}, {"text": "hello", "n": 6, "flag": True}]
    assert grant.asked[0][:2] == ("/v1/grant/call", "Bearer secret-token") and grant.asked[0][2]["service"] == "tools-1"
    with pytest.raises(TypeError):
        stub.plain()
    assert len(grant.asked) == 2


def test_every_kind_of_parameter(stub, grant):
    stub.positional(1, 2, 3, 4, 5, d=6, e=7)
    assert (grant.asked[0][2]["args"], grant.asked[0][2]["kwargs"]) == ([1, 2, 3, 4, 5], {"d": 6, "e": 7})
    stub.names([1])
    assert grant.asked[1][2]["kwargs"] == {"x": [1], "y": None}        # a default that is no plain value stays the server's
    stub.odd(1, y=2)
    assert (grant.asked[2][2]["args"], grant.asked[2][2]["kwargs"]) == ([1], {"y": 2})
    stub.clash(1, 2)
    assert grant.asked[3][2]["kwargs"] == {"_carrel_ask": 1, "fn_name": 2, "_a": 1}
    assert stub.waits() == {"service": "tools-1", "function": "waits", "args": [], "kwargs": {}, "prints": True}


POINT = object()        # a default that has no literal
CALLS = {
    "(a=POINT, b=2, /)": ["()", "(1)", "(1, 3)"],
    "(a=POINT, b=2, /, c=3, d=POINT)": ["()", "(c=4)", "(1, d=5)", "(1, 2, 3, 4)"],
    "(a=POINT, b=2, *rest)": ["()", "(b=5)", "(1, 3, 4, 5)", "(1)"],
    "(a, b=POINT, c=3, *rest, d=POINT, **more)": ["(1)", "(1, c=4)", "(1, 2, 3, 4, d=5)", "(a=1, c=2, x=3)", "(1, d=POINT2)"],
    "(a=POINT, /, b=2, *rest, **more)": ["()", "(b=5)", "(a=7)", "(a=7, b=5)", "(1, 2, 3, a=4)"],
    "(a=1, b=POINT, /, *rest, c=POINT)": ["()", "(5)", "(5, 6, 7)", "(c=8)"],
}


@pytest.mark.parametrize("signature, call", [(s, c) for s, calls in CALLS.items() for c in calls])
def test_the_function_gets_what_it_would_get_without_a_stub(stubs, grant, signature, call):
    names = {"POINT": POINT, "POINT2": 42}
    exec(f"def real{signature}: return locals()", names)
    text = signature.replace("POINT", "Point(x=1, y=2)")
    stub = stubs([{"name": "real", "doc": "d", "signature": text}])
    eval(f"stub.real{call}", {**names, "stub": stub})
    body = grant.asked[0][2]
    assert names["real"](*body["args"], **body["kwargs"]) == eval(f"real{call}", names), body


def test_the_remote_error_is_a_runtime_error_with_its_type_and_traceback(stub, grant):
    grant.answer = lambda body: (200, {"ok": False, "error": {"type": "KeyError", "message": "'x'", "traceback": "line 3"}})
    with pytest.raises(RuntimeError, match="KeyError: 'x'") as failed:
        stub.waits()
    assert (failed.value.type, failed.value.remote_traceback) == ("KeyError", "line 3") and "Remote traceback:\nline 3" in str(failed.value)


def test_the_remote_error_says_what_the_network_refused(stub, grant):
    refused = {"message": "this box has no network: other.test was refused", "rule": "other.test", "is_index": False}
    grant.answer = lambda body: (200, {"ok": False, "error": {"type": "E", "message": "m", "traceback": "t"}, "refused": refused})
    with pytest.raises(RuntimeError) as failed:
        stub.waits()
    assert failed.value.refused == refused["message"]
    assert str(failed.value) == "E: m (this box has no network: other.test was refused)\n\nRemote traceback:\nt"


@pytest.mark.parametrize("status, code, kind", [(422, "invalid_arguments", TypeError), (504, "timeout", TimeoutError), (403, "forbidden", RuntimeError),
                                                (502, "worker_died", RuntimeError)])
def test_refusals_say_why(stub, grant, status, code, kind):
    grant.answer = lambda body: (status, {"error": {"code": code, "message": "because"}})
    with pytest.raises(kind, match=r"waits\(\): because"):
        stub.waits()


def test_what_is_no_json_is_refused_before_it_is_sent(stub, grant):
    for value in ({1, 2}, float("nan"), object()):
        with pytest.raises(TypeError, match="cannot be sent as JSON"):
            stub.plain(value)
    assert grant.asked == []


def test_what_has_a_form_as_text_is_sent_as_that(stub, grant):
    import datetime
    import decimal
    import pathlib
    import uuid

    number = uuid.UUID(int=7)
    for value in (b"hi", datetime.datetime(2026, 1, 31, 12), datetime.date(2026, 1, 31), pathlib.Path("/a"), decimal.Decimal("1.10"), number):
        stub.plain(value)
    assert [b["kwargs"]["text"] for _, _, b in grant.asked] == ["aGk=", "2026-01-31T12:00:00", "2026-01-31", "/a", "1.10", str(number)]


def test_what_the_function_printed_is_printed_here(stub, grant, capsys):
    grant.answer = lambda body: (200, b'{"stdout": "line\\n", "stderr": "trouble\\n", "truncated": false, "ok": true, "result": 5}')
    assert stub.waits() == 5 and capsys.readouterr() == ("line\n", "trouble\n")


def test_an_answer_that_is_nonsense_is_an_error(stub, grant):
    grant.answer = lambda body: (200, b"<html>")
    with pytest.raises(RuntimeError, match="no JSON"):
        stub.waits()


def test_one_connection_is_used_again_and_not_by_a_child(stub, grant):
    stub.waits()
    stub.waits()
    assert grant.connections == 1
    pid = os.fork()
    if pid == 0:
        os._exit(0 if stub.waits()["function"] == "waits" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert stub.waits()["function"] == "waits" and grant.connections == 2


def test_a_sandbox_that_has_ended_says_so(stub, grant, tmp_path):
    grant.shutdown()
    grant.server_close()
    os.unlink(tmp_path / "socket")
    with pytest.raises(RuntimeError, match="may have ended"):
        stub.waits()


def test_it_works_from_plain_python_and_takes_no_module_of_the_agents(stub, grant, tmp_path):
    """In that directory an agent may have written json.py; what Python compiled is not taken from there, either."""
    folder = tmp_path / "workspace"
    for name in ("json", "socket", "http", "threading"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    done = subprocess.run(["/usr/bin/python3", "-S", "-c", "import tools; print(tools.plain('x')['kwargs']['n'])"], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert not (tmp_path / "ran").exists()


def test_nothing_but_the_standard_library(stub):
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({stub.__file__!r})"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
