"""carrel service and carrel grant."""
import json
import subprocess

import pytest

from support import BUILD
from support.client import Client

CODE = """
@expose
def add(a: int, b: int = 1) -> int:
    \"\"\"Adds two numbers.\"\"\"
    return a + b
@expose
def text(s: str): return s
@expose
def fail(): raise ValueError("no")
"""


@pytest.fixture
def carrel(server):
    def carrel(*arguments, status=0):
        done = subprocess.run([BUILD / "carrel", *arguments, "--url", "unix:" + server.socket], capture_output=True, text=True, timeout=120)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    return carrel


def test_a_service_from_its_making_to_its_end(carrel, tmp_path, server, admin):
    (tmp_path / "calc.py").write_text(CODE)
    made = carrel("service", "create", "cli-calc", str(tmp_path / "calc.py"), "--memory", "max", "--env", "A=b")
    assert made.stdout.splitlines()[0] == "add(a: int, b: int = 1) -> int"
    try:
        assert "cli-calc" in carrel("service", "ls").stdout
        assert "Adds two numbers." in carrel("service", "show", "cli-calc").stdout
        assert carrel("service", "call", "cli-calc", "add", "2", "b=40").stdout.strip() == "42"
        assert carrel("service", "call", "cli-calc", "text", "s=a b").stdout.strip() == '"a b"'
        failed = carrel("service", "call", "cli-calc", "fail", status=1)
        assert "ValueError: no" in failed.stderr and 'File "calc.py"' in failed.stderr
        assert "must be an integer" in carrel("service", "call", "cli-calc", "add", "x", status=125).stderr
        assert "there is no function" in carrel("service", "call", "cli-calc", "nope", status=125).stderr
        token = carrel("grant", "create", "cli-calc", "add", "--expires", "1h", "--max-calls", "1").stdout.strip()
        holder = Client(server.tcp, token)
        assert holder.post("/v1/grant/call", {"function": "add", "args": [1]}).json["result"] == 2
        listed = json.loads(carrel("grant", "ls", "--json").stdout)
        mine = [g for g in listed if g["service"] == "cli-calc"]
        assert mine[0]["calls"] == 1 and "1/1" in carrel("grant", "ls").stdout
        carrel("grant", "rm", mine[0]["id"])
        assert holder.post("/v1/grant/call", {"function": "add", "args": [1]}).status == 403
        assert [line.split()[2] for line in carrel("service", "log", "cli-calc").stdout.splitlines()[1:3]] == ["add", "text"]
        carrel("service", "restart", "cli-calc")
    finally:
        carrel("service", "rm", "cli-calc")
    assert admin.get("/v1/services/cli-calc").status == 404


def test_a_file_that_cannot_be_loaded_shows_its_traceback(carrel, tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_like_this\n")
    failed = carrel("service", "create", "bad", str(tmp_path / "bad.py"), status=125)
    assert 'File "bad.py", line 1' in failed.stderr and "nothing_like_this" in failed.stderr
    assert "cannot be read" in carrel("service", "create", "bad", str(tmp_path / "missing.py"), status=125).stderr
    carrel("service", status=125)
    carrel("grant", "create", status=125)
