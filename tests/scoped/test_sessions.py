"""Sessions are boxes: what the agent's code can and cannot do there, and what is left afterwards."""
import asyncio
import json
import os
import pathlib
import subprocess
import sys

import pytest
from model_server import text, use

from carrel.environment import ConfigError, ExecutionMode, Sandbox, SandboxConfig, ScopedSandbox
from carrel.execution import CellFailed, create_cli_session, create_local_notebook_session, create_local_session, create_notebook_session
from carrel.execution.live import live_sessions
from carrel.harness import run_agent
from carrel.workspace import Library, Skill, Workspace

HELPERS = '"""Helpers."""\ndef add(a, b):\n    return a + b\n'


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    workspace = Workspace(libraries=[Library.from_code("helpers", HELPERS), Library("pack", {"pack/__init__.py": "x = 1\n", "pack/inner.py": "y = 2\n"})],
                          skills=[Skill("adding", "How to add.", "Use helpers.")])
    with create_local_session(workspace=workspace, workspace_dir=tmp_path_factory.mktemp("s") / "workspace", name="the session") as it:
        yield it


def test_a_session_has_its_libraries_and_keeps_its_state(session):
    session.exec("import helpers, pack.inner\nx = helpers.add(40, 2)", check=True)
    assert session.exec("x + pack.inner.y").text == "44"
    assert (session.name, session.workspace_dir) == ("the session", str(session.workspace_path))


def test_code_that_raises_is_a_runtime_error(session):
    with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero") as failed:
        session.exec("1 / 0", check=True)
    assert isinstance(failed.value, CellFailed) and "1 / 0" in failed.value.traceback


@pytest.mark.parametrize("code", [
    "open('helpers.py', 'w')", "os.unlink('helpers.py')", "os.rename('helpers.py', 'x.py')", "os.rename('x.py', 'helpers.py')", "open('pack/new.py', 'w')",
    "os.rename('pack', 'kcap')", "open('__pycache__/helpers.cpython-311.pyc', 'wb')", "os.rename('__pycache__', 'other')", "os.rename('.claude', 'x')",
    "open('.claude/skills/adding/SKILL.md', 'a')", "os.chmod('helpers.py', 0o777)", "os.truncate('helpers.py', 0)"])
def test_stubs_helpers_and_their_compiled_code_are_read_only(session, code):
    session.exec("import os\nopen('x.py', 'w').write('evil = 1')", check=True)
    with pytest.raises(RuntimeError, match="OSError|PermissionError"):
        session.exec(code, check=True)
    assert (session.workspace_path / "helpers.py").read_text() == HELPERS


def test_what_the_agent_writes_stays(session):
    session.exec("open('answer.txt', 'w').write('42')", check=True)
    assert (session.workspace_path / "answer.txt").read_text() == "42"


@pytest.mark.parametrize("code", ["socket.create_connection(('127.0.0.1', 22), 2)", "socket.create_connection(('192.0.2.1', 80), 2)",
                                  "socket.getaddrinfo('example.org', 80)"])
def test_there_is_no_network(session, code):
    with pytest.raises(RuntimeError, match="OSError|Refused|gaierror"):
        session.exec("import socket\n" + code, check=True)


def test_the_harness_keys_and_files_are_not_there(session, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-harness")
    seen = session.exec("import os, glob\nprint(dict(os.environ))\nfor p in glob.glob('/proc/[0-9]*/environ'):\n"
                        "    try:\n        print(open(p, 'rb').read())\n    except PermissionError:\n        pass").stdout
    assert "key-of-the-harness" not in seen
    for path in (os.path.expanduser("~/.bashrc"), session._server.directory, __file__):
        assert session.exec(f"import os; print(os.path.exists({str(path)!r}))").stdout == "False\n"


def test_a_session_twice_ended_is_harmless_and_leaves_no_box(tmp_path):
    session = create_local_session(workspace_dir=tmp_path / "w")
    assert live_sessions()[-1] is session
    session.terminate()
    session.terminate()
    assert session not in live_sessions()
    assert session.box.id not in [b.id for b in session.box._server.list()]


def test_a_link_that_an_agent_left_is_not_followed(tmp_path):
    """The user's own file must not be written through what an agent put into the workspace before."""
    place, victim = tmp_path / "w", tmp_path / "victim"
    place.mkdir()
    victim.write_text("mine")
    (place / "helpers.py").symlink_to(victim)
    workspace = Workspace(libraries=[Library.from_code("helpers", HELPERS)])
    with create_local_session(workspace=workspace, workspace_dir=place) as session:
        assert session.exec("import helpers; helpers.add(1, 1)").text == "2"
    assert victim.read_text() == "mine" and (place / "helpers.py").read_text() == HELPERS
    (place / "pack").symlink_to(tmp_path)
    with pytest.raises(RuntimeError, match="not a plain directory"):
        create_local_session(workspace=Workspace(libraries=[Library("pack", {"pack/__init__.py": ""})]), workspace_dir=place)


def test_what_is_no_workspace_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="workspace_dir='.*/file'"):
        create_local_session(workspace_dir=tmp_path / "file")
    with pytest.raises(TypeError, match="Workspace.*not list"):
        create_local_session([Library.from_code("helpers", HELPERS)], workspace_dir=tmp_path / "w")
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o555)
        with pytest.raises(PermissionError, match="workspace_dir='.*/closed'"):
            create_local_session(workspace_dir=tmp_path / "closed")


def test_the_name_of_a_notebook_is_no_path(tmp_path):
    with create_local_notebook_session(name="../a/b", notebook_dir=tmp_path / "out/inner", workspace_dir=tmp_path / "w") as session:
        assert os.path.dirname(session.notebook_path) == str(tmp_path / "out/inner") and session.notebook_path.endswith("_..-a-b.ipynb")


def test_files_of_the_workspace_are_the_agents(tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/one.txt").write_text("1")
    workspace = Workspace(local_files=[(str(tmp_path / "data.csv"), "/in/data.csv")], local_dirs=[(str(tmp_path / "folder"), "f")],
                          custom_init_code="ready = 'yes'")
    with create_local_session(workspace=workspace, workspace_dir=tmp_path / "w") as session:
        assert session.exec("open('in/data.csv', 'a').write('1,2\\n'); print(open('f/one.txt').read(), ready)").stdout == "1 yes\n"
    assert (tmp_path / "data.csv").read_text() == "a,b\n"


def test_the_agent_works_in_the_session_that_the_program_made(model, session):
    script = model([[text("I add."), use("t1", "python", code="import helpers\nhelpers.add(1, 2)")], [text("It is 3.")]])

    async def collect():
        return [m async for m in run_agent(prompt="Add.", mcp_config={}, provider="claude")]
    messages = asyncio.run(collect())
    assert messages[2].content[0].content[0]["text"] == "3" and messages[-1].result == "It is 3."
    assert str(session.workspace_path) in script.requests[0]["system"] and "helpers" in script.requests[0]["system"]


def test_cancelling_interrupts_the_cell(model, session):
    model([[use("t1", "python", code="open('began', 'w').close()\nimport time\ntime.sleep(1000)")]])

    async def main():
        async def collect():
            async for _ in run_agent(prompt="Wait.", mcp_config={}):
                pass
        task = asyncio.create_task(collect())
        while not (session.workspace_path / "began").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    asyncio.run(asyncio.wait_for(main(), 60))
    assert session.exec("1 + 1", timeout=30).text == "2"


def test_a_local_notebook_is_written_while_it_runs(tmp_path):
    with create_local_notebook_session(name="nb", notebook_dir=tmp_path / "out", workspace_dir=tmp_path / "w") as session:
        session.exec("hidden = 1", hidden=True, check=True)
        session.exec("print('seen', hidden)\n40 + 2", check=True)
        with pytest.raises(RuntimeError, match="ValueError: no"):
            session.exec("raise ValueError('no')", check=True)
        session.notebook.add_markdown("# Title")
        session.exec("from IPython.display import display, Image\nimport base64\ndisplay({'image/png': 'aGk='}, raw=True)", check=True)
        path = session.notebook_path
    import nbformat
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    first, failed, title, picture = notebook.cells
    assert first.source == "print('seen', hidden)\n40 + 2" and first.metadata.execution_status == "complete"
    assert first.outputs[0].text == "seen 1\n" and first.outputs[1].data["text/plain"] == "42"
    assert failed.metadata.execution_status == "error" and failed.outputs[0].ename == "ValueError"
    assert title.cell_type == "markdown" and "image/png" in picture.outputs[0].data
    with pytest.raises(ConfigError, match="port=9999"):
        create_local_notebook_session(port=9999, workspace_dir=tmp_path / "w")


def test_an_agent_writes_a_notebook(model, tmp_path):
    model([[use("t1", "execute_code", code="x = 1"), use("t2", "add_markdown", content="*so*")], [use("t3", "edit_cell", code="x = 2\nx")], [text("done")]])
    with create_local_notebook_session(name="nb", notebook_dir=tmp_path / "out", workspace_dir=tmp_path / "w") as session:
        async def collect():
            return [m async for m in run_agent(prompt="p", mcp_config={}, kwargs={"session": session})]
        messages = asyncio.run(collect())
        assert messages[4].content[0].content[0]["text"] == "2"
        cells = session.notebook.read()["cells"]
    assert sorted("".join(c["source"]) for c in cells) == ["*so*", "x = 2\nx"]


@pytest.fixture(scope="module")
def cli():
    with Sandbox(SandboxConfig(env={"COLOUR": "blue"})) as sandbox:
        yield sandbox


def test_a_sandbox_runs_commands_and_keeps_files(cli):
    assert cli.exec("echo $COLOUR") == "blue\n"
    with pytest.raises(RuntimeError, match="Command failed: bad"):
        cli.exec("echo bad >&2; exit 3")
    cli.write_file("/root/deep/one.txt", "text")
    assert cli.exec("cat /root/deep/one.txt") == "text" and cli.exec("cat /nosuch 2>/dev/null || echo none") == "none\n"
    assert cli.exec_python("print(6 * 7)") == "42\n"
    cli.ensure_dir("/workspace/a/b")
    assert cli.exec("ls /workspace/a") == "b\n" and cli.sandbox_id


def test_a_cli_session_has_a_shell(cli, model):
    model([[use("t1", "shell", command="echo $COLOUR; pwd"), use("t2", "python", code="import helpers; helpers.add(2, 2)")], [text("done")]])
    session = create_cli_session(cli, Workspace(libraries=[Library.from_code("helpers", HELPERS)]))
    assert session.exec_shell("pwd") == "/workspace\n"

    async def collect():
        return [m async for m in run_agent(prompt="p", mcp_config={}, kwargs={"session": session})]
    results = asyncio.run(collect())[2].content
    assert [r.content[0]["text"] for r in results] == ["blue\n/workspace", "4"]
    session.terminate()
    assert cli.exec("echo still") == "still\n"
    with pytest.raises(ConfigError, match="NOTEBOOK"):
        create_notebook_session(cli)


def test_a_notebook_session_in_a_sandbox(tmp_path):
    config = SandboxConfig(execution_mode=ExecutionMode.NOTEBOOK)
    with Sandbox(config) as sandbox:
        session = create_notebook_session(sandbox, Workspace(libraries=[Library.from_code("helpers", HELPERS)]), notebook_dir=tmp_path)
        assert session.exec("import helpers; helpers.add(1, 1)").text == "2"
        assert session.model_info_text == ""
        assert json.loads(pathlib.Path(session.notebook_path).read_text())["cells"][0]["metadata"]["execution_status"] == "complete"
        session.terminate()


def test_the_agent_does_not_run_in_a_scoped_sandbox():
    with pytest.raises(ConfigError, match="ScopedSandbox"):
        create_notebook_session(ScopedSandbox(SandboxConfig()))


def test_a_program_that_is_killed_leaves_nothing(tmp_path):
    code = ("import os, signal\nfrom carrel.execution import create_local_session\n"
            f"s = create_local_session(workspace_dir={str(tmp_path / 'w')!r})\ns.exec('1', check=True)\n"
            "print(s._server.directory, s._server.process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == -9, done.stderr
    directory, pid = done.stdout.split()
    from support.waiting import wait_for
    wait_for(lambda: not os.path.exists(f"/proc/{pid}") or "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0],
             "the server is gone")
    wait_for(lambda: not os.path.exists(directory), "its directory is gone")
