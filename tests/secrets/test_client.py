"""carrel secret and --secret, the SDK, and what a private server of a program keeps of its secrets."""
import json
import os
import pathlib
import pty
import select
import subprocess
import textwrap

import pytest

from conftest import KERNEL_PYTHON, digest, fresh, in_files
from support.users import as_user, user_command
from support.waiting import DEADLINE_S

SDK = pathlib.Path(__file__).parents[2] / "sdk/python"


@pytest.fixture
def carrel(server):
    def carrel(*words, data="", status=0, **more):
        ran = server.carrel(*words, data=data, user=server.user, **more)
        assert ran.returncode == status, (words, ran.stdout, ran.stderr)
        return ran.stdout if status == 0 else ran.stderr
    yield carrel
    for s in json.loads(carrel("secret", "list", "--json")):
        carrel("secret", "rm", s["name"])


def test_the_command_line_from_a_value_to_a_process(carrel, tmp_path):
    value = fresh()
    assert carrel("secret", "create", "hf", data=value + "\n") == "hf\n"
    assert "already" in carrel("secret", "create", "hf", data="other", status=125)
    file = tmp_path / "cert"
    file.write_bytes(b"line\n")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and str(path).startswith("/tmp/carrel-pytest"):
            path.chmod(0o755)
    carrel("secret", "create", "cert", "--from-file", str(file))
    carrel("secret", "create", "env", "--from-env", "MINE", environment={"MINE": value})
    listed = carrel("secret", "list")
    assert value not in listed and [line.split()[:2] for line in listed.splitlines()[1:]] == [["cert", "5"], ["env", str(len(value))], ["hf", str(len(value))]]
    line = 'printf %s "$HF" | sha256sum; sha256sum </run/secrets/cert'
    uses = ("--secret", "hf=HF", "--secret", "cert=/run/secrets/cert")
    wanted = [digest(value), digest("line\n")]

    def sums(text):
        return [words.split()[0] for words in text.splitlines()]
    assert sums(carrel("run", *uses, "--", "sh", "-c", line)) == wanted
    box = carrel("create", *uses).strip()
    assert sums(carrel("exec", box, "--", "sh", "-c", line)) == wanted
    other = carrel("create").strip()
    assert sums(carrel("exec", *uses, other, "--", "sh", "-c", line)) == wanted
    code = "import hashlib, os; print(hashlib.sha256(os.environ['HF'].encode()).hexdigest())"
    assert sums(carrel("py", "--secret", "hf=HF", "-c", code)) == wanted[:1]
    second = fresh()
    carrel("secret", "create", "--replace", "hf", data=second)
    assert sums(carrel("exec", box, "--", "sh", "-c", line))[0] == digest(second)
    carrel("secret", "rm", "hf")
    assert "no secret 'hf'" in carrel("exec", box, "--", "true", status=125)
    assert "no secret 'hf'" in carrel("run", "--secret", "hf=HF", "--", "true", status=125)
    carrel("rm", box, other)


@pytest.mark.parametrize("words, said", [
    (("create", "hf", "value"), "never an argument"), (("create",), "a name"), (("create", "../x"), "'../x'"), (("create", "a/b"), "'a/b'"), (("create", ""), "''"),
    (("create", "n" * 300), "1 to 64"), (("create", "hf", "--from-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"), (("create", "hf", "--from-file", "/no/such"), "--from-file /no/such: No such file or directory"),
    (("create", "hf", "--from-file", "/tmp"), "--from-file /tmp: Is a directory"),
    (("create", "hf", "--from-file", "/dev/zero"), "65536"), (("create", "hf"), "empty"), (("create", "hf", "--from-env", "A", "--from-file", "b"), "exclude"),
    (("rm", "none"), "'none'"), (("rm",), "names"), (("show",), "'secret show'"), ((), "name an action"),
])
def test_what_makes_no_sense_is_refused(carrel, words, said):
    assert said in carrel("secret", *words, status=125)


@pytest.mark.parametrize("use", ["hf", "=HF", "hf=", "hf=/etc/passwd", "hf=1A", "../x=A"])
def test_uses_that_make_no_sense_are_refused(carrel, use):
    for line in (("create", "--secret", use), ("run", "--secret", use, "--", "true")):
        assert carrel(*line, status=125)
    assert "--secret is a server's, and --trace" in carrel("run", "--trace", "--secret", "hf=HF", "--", "true", status=125)


def test_a_value_typed_at_a_terminal_is_not_shown(server, carrel):
    value = fresh()
    pid, terminal = pty.fork()
    if pid == 0:
        line = [*user_command(server.user), str(pathlib.Path(server.place) / "carrel"), "secret", "create", "typed", "--url", server.url]
        os.execvp(line[0], line)
    shown = b""

    def read_until(words):
        nonlocal shown
        while words not in shown:
            assert select.select([terminal], [], [], DEADLINE_S)[0], shown
            shown += os.read(terminal, 4096)
    read_until(b"not shown): ")
    os.write(terminal, value.encode() + b"\n")
    read_until(b"typed\r\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and value.encode() not in shown
    os.close(terminal)
    assert [s["bytes"] for s in json.loads(carrel("secret", "list", "--json"))] == [len(value)]


# ---- Python ----

def run_python(server, code, user, environment=None, python="/usr/bin/python3"):
    place = pathlib.Path(server.place)
    variables = {"CARREL_BIN": str(place / "carrel"), "PYTHONPATH": str(SDK), "CARREL_URL": server.url, **(environment or {})}
    ran = subprocess.run([python, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=2 * DEADLINE_S, **as_user(user, **variables))
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    return ran.stdout


def test_the_sdk(server):
    value = fresh()
    code = f"""
        import asyncio, hashlib
        from carrel import AsyncCarrel, Box, Carrel, Conflict, InvalidRequest
        c = Carrel()
        value, line = {value!r}, 'printf %s "$HF" | sha256sum; sha256sum </run/secrets/hf'
        wanted = [hashlib.sha256(value.encode()).hexdigest()] * 2
        def sums(result): return [words.split()[0] for words in result.stdout.splitlines()]
        assert c.create_secret("hf", value)["bytes"] == len(value)
        try: c.create_secret("hf", b"other"); raise SystemExit("made twice")
        except Conflict: pass
        c.create_secret("hf", value.encode(), replace=True)
        assert [s["name"] for s in c.secrets()] == ["hf"]
        uses = {{"hf": "HF"}}
        with Box(server=c, secrets=["hf=HF", {{"name": "hf", "file": "/run/secrets/hf"}}]) as box:
            assert sums(box.exec(line)) == wanted and box.raw["env"] == []
        with Box(server=c) as box:
            assert sums(box.exec(line, secrets=[("hf=HF"), "hf=/run/secrets/hf"])) == wanted
            got = "import hashlib, os; print(hashlib.sha256(os.environ['HF'].encode()).hexdigest())"
            assert box.run(got, secrets=uses).stdout.split() == wanted[:1]
            box.kernel("own").start(secrets=uses)
            assert box.run(got, context="own").stdout.split() == wanted[:1]
        assert c.run(got, secrets=uses).stdout.split() == wanted[:1]
        for wrong in ("hf", ["hf"], {{"hf": ""}}):
            try: Box(server=c, secrets=wrong); raise SystemExit(wrong)
            except (TypeError, ValueError): pass
        try: Box(server=c, secrets={{"none": "X"}}); raise SystemExit("made")
        except InvalidRequest as e: assert "'none'" in str(e)
        async def main():
            a = AsyncCarrel()
            await a.create_secret("two", value)
            box = await a.create(secrets={{"two": "HF", "hf": "/run/secrets/hf"}})
            assert sums(await box.exec(line)) == wanted
            await box.kernel("own").start(secrets=uses)
            await box.delete()
            assert len(await a.secrets()) == 2
            await a.delete_secret("two")
        asyncio.run(main())
        c.delete_secret("hf")
        assert c.secrets() == []
        print("well")
    """
    assert run_python(server, code, server.user) == "well\n"


def test_a_sandbox_leaves_its_secrets_in_no_record_of_its_server(server, tmp_path):
    """The program stands still with a live sandbox and a live pybox while everything of its private server is searched."""
    values = [fresh("sandbox"), fresh("pybox")]
    code = """
        import hashlib, os, sys
        from carrel.environment import Sandbox, SandboxConfig
        from carrel.execution import create_cli_session
        from carrel.pybox import LocalPyBoxManager
        got = "import hashlib, os; print(hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest())"
        with Sandbox(SandboxConfig(secrets=["TOKEN"])) as sandbox, LocalPyBoxManager() as manager:
            session = create_cli_session(sandbox)
            print(session.exec(got).stdout.strip())
            print(sandbox.exec('printf %s "$TOKEN" | sha256sum').split()[0])
            box = manager.start(secrets={"TOKEN": os.environ["OTHER"]})
            out = box.run(got + "; assert hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest() == '" + hashlib.sha256(os.environ["OTHER"].encode()).hexdigest() + "'")
            print(not out.error)
            print(sandbox._server.directory, os.path.dirname(manager.kernel_manager._server({}).replace("unix:", "")), flush=True)
            sys.stdin.readline()
            session.terminate()
            from carrel import Carrel
            c = Carrel(sandbox._server.url)
            manager.cleanup()
        print(len(c.secrets()) if os.path.exists(sandbox._server.directory) else 0)
    """
    place = pathlib.Path(server.place)
    # What the program itself has in its environment is its own; its server must not have it.
    variables = {"CARREL_BIN": str(place / "carrel"), "PYTHONPATH": str(SDK), "TOKEN": values[0], "OTHER": values[1], "CARREL_URL": "", "TMPDIR": "/tmp"}
    program = subprocess.Popen([KERNEL_PYTHON, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               **as_user(server.user, **variables))
    try:
        said = [program.stdout.readline().strip() for _ in range(4)]
        if not said[-1]:
            raise AssertionError(program.communicate())
        assert said[:3] == [digest(values[0]), digest(values[0]), "True"], said
        folders, everything = set(said[-1].split()), [v.encode() for v in values]
        places = [p for folder in folders for p in pathlib.Path(folder).rglob("secrets") if p.is_dir()]
        assert sorted(v for place in places for _, v in in_files(place, everything)) == sorted(everything)
        for folder in folders:
            assert in_files(folder, everything, places) == []
        rest, errors = program.communicate("\n", timeout=2 * DEADLINE_S)
        assert program.returncode == 0 and rest.split() == ["0"], (rest, errors)
    finally:
        program.kill()
        program.wait()
