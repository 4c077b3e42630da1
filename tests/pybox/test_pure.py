"""What needs no kernel: results, environment files, a gateway that misbehaves."""
import subprocess
import sys

import pytest

import carrel
from carrel import pybox
from carrel.dotenv import parse_dotenv
from carrel.pybox.schema import text_env


def test_a_result_prints_as_the_page_shows_it():
    assert str(pybox.PyBoxOut(data=[{"text/plain": "4.0"}])) == "data=[{'text/plain': '4.0'}] error=None"
    assert repr(pybox.PyBoxOut()) == "PyBoxOut(data=[], error=None)"
    error = pybox.ErrorContent(ename="E", evalue="v", traceback=["\x1b[31mline 1\x1b[0m", "line 2"])
    assert str(error) == "line 1\nline 2"
    out = pybox.PyBoxOut(error=error)
    assert str(out) == "data=[] error=ErrorContent(ename='E', evalue='v', traceback=['\\x1b[31mline 1\\x1b[0m', 'line 2'])"
    assert out.model_dump() == {"data": [], "error": {"ename": "E", "evalue": "v", "traceback": error.traceback}}
    assert pybox.PyBoxOut() == pybox.PyBoxOut() != out


def test_a_result_is_dumped_as_pydantic_would():
    out = pybox.PyBoxOut(data=[{"text/plain": "ü", "x": None}])
    assert out.model_dump(exclude_none=True) == {"data": [{"text/plain": "ü", "x": None}]} == out.model_dump(include={"data"})
    assert out.model_dump(exclude={"data"}) == {"error": None} and out.model_dump(mode="json") == out.model_dump()
    assert out.model_dump_json() == '{"data":[{"text/plain":"ü","x":null}],"error":null}'
    assert pybox.PyBoxOut().model_dump_json(indent=2) == '{\n  "data": [],\n  "error": null\n}'
    assert pybox.PyBoxOut().model_dump_json(exclude_none=True) == '{"data":[]}'


def test_nothing_but_the_standard_library_is_imported():
    code = "import sys, carrel.pybox\nprint(*sorted(n for n in ('pydantic', 'jupyter_client', 'zmq', 'requests', 'aiohttp', 'IPython') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


@pytest.mark.parametrize("text,expected", [
    ("A=1\nB = two words \n", {"A": "1", "B": "two words"}),
    ("# comment\n\n  export A=1 # why\n", {"A": "1"}),
    ("A='single # quoted'\nB=\"line\\nbreak \\\"q\\\"\"", {"A": "single # quoted", "B": 'line\nbreak "q"'}),
    ("A='it\\'s'\nB='back\\\\slash \\n'", {"A": "it's", "B": "back\\slash \\n"}),
    ("A=\"two\nlines\"\nB=x", {"A": "two\nlines", "B": "x"}),
    ("A=\nB=#x\nC=a#b", {"A": "", "B": "#x", "C": "a#b"}),
    ("A=1\nB=${A}2\nC=${NONE:-d}\nD=${NONE}\nE=${HOST}", {"A": "1", "B": "12", "C": "d", "D": "", "E": "outer"}),
    ("ALONE\nA=1", {"A": "1"}),
    ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
    ("\ufeffA=1", {"A": "1"}),
    ("A=1\nA=2", {"A": "2"}),
    ("KERNEL_VOLUMES='[{\"name\": \"x\"}]'", {"KERNEL_VOLUMES": '[{"name": "x"}]'}),
])
def test_environment_files(text, expected):
    assert parse_dotenv(text, {"HOST": "outer"}) == expected


@pytest.mark.parametrize("text,line", [("A=1\n=2\n", 2), ("A=1\n\nB='open\n", 3), ('A="x" y', 1)])
def test_a_broken_environment_file_says_where(text, line):
    with pytest.raises(ValueError, match=f"line {line}"):
        parse_dotenv(text)


def test_an_environment_file_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        pybox.RemotePyBoxManager(host="http://127.0.0.1:1", env_file="/no/such/file")


def test_values_of_an_environment_become_text():
    assert text_env({"A": 1, "B": None, "KERNEL_VOLUMES": [{"a": 1}]}) == {"A": "1", "KERNEL_VOLUMES": '[{"a": 1}]'}


@pytest.mark.parametrize("host,url", [
    ("http://example.com", "ws://example.com/api/kernels/foo/channels"),
    ("https://example.com:8443/", "wss://example.com:8443/api/kernels/foo/channels"),
    ("http://example.com/gateway", "ws://example.com/gateway/api/kernels/foo/channels"),
    ("http://[::1]:8888", "ws://[::1]:8888/api/kernels/foo/channels"),
])
def test_addresses_of_kernels(host, url):
    assert pybox.RemotePyBoxManager(host).get_ws_url("foo") == url


def test_nobody_at_the_gateways_address():
    with pytest.raises(carrel.Unavailable, match="cannot reach"):
        pybox.RemotePyBoxManager("http://127.0.0.1:1").start()


def test_no_ipykernel_is_one_clear_error(monkeypatch):
    import importlib.util
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("CARREL_ENVIRONMENT", "/nonexistent")
    with pytest.raises(carrel.KernelUnavailable, match="-m pip install ipykernel"):
        pybox.LocalPyBoxManager().start()


def test_a_closed_prefix_is_one_clear_error(monkeypatch, tmp_path):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(carrel.KernelUnavailable, match=f"chmod -R go.rX {tmp_path}"):
        pybox.LocalPyBoxManager().start()


def test_a_kernel_that_cannot_start_says_what_is_missing():
    from carrel.cells import made, result_of
    for reason, code in (("/x/python has no ipykernel (No module); /x/python -m pip install 'ipykernel>=6.17'", "no_ipykernel"),
                         ("exec: /x/python: Permission denied", "closed_prefix")):
        with pytest.raises(carrel.KernelUnavailable) as caught:
            made(result_of({"outcome": "died", "reason": reason, "kernel": {"state": "dead"}}))
        assert caught.value.code == code and reason in str(caught.value)
    words = '{"carrel": "kernel", "error": "no ipykernel", "hint": "install it"}\n'
    ended = "the kernel's process exited with status 78"
    with pytest.raises(carrel.KernelUnavailable, match="no ipykernel; install it"):
        made(result_of({"outcome": "died", "stderr": words, "reason": "the kernel did not start: " + ended, "kernel": {"state": "dead"}}))
    with pytest.raises(carrel.KernelDied):
        made(result_of({"outcome": "died", "stderr": words, "reason": ended, "kernel": {"state": "dead"}}), check=True)
