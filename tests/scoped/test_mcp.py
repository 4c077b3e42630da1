"""MCP: servers of the configuration, foreign ones in boxes; a session's tools for other clients."""
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from model_server import text, use

from carrel.environment import Sandbox, SandboxConfig
from carrel.execution import create_cli_session, create_local_notebook_session, create_local_session
from carrel.harness import AgentError, run_agent
from carrel.workspace import Library, Workspace
from support.waiting import wait_for

FOREIGN = pathlib.Path(__file__).with_name("foreign_server.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The server in a directory of its own, beside a secret."""
    above = tmp_path_factory.mktemp("foreign")
    (above / "secret").write_text("the user's secret")
    (above / "server").mkdir()
    shutil.copy(FOREIGN, above / "server/server.py")
    return above


def entry(place, **more):
    return {"tools": {"type": "stdio", "command": sys.executable, "args": [str(place / "server/server.py")], **more}}


def run(config, **kwargs):
    async def collect():
        return [m async for m in run_agent(prompt="p", mcp_config=config, kwargs=kwargs)]
    return asyncio.run(collect())


def results(messages):
    return [(b.content[0]["text"], b.is_error) for b in messages[2].content]


def test_a_foreign_server_works_in_a_box_and_reaches_nothing_else(model, place, monkeypatch):
    script = model([[use("t1", "mcp__tools__add", a=40, b=2), use("t2", "mcp__tools__look", path=str(place / "secret")),
                     use("t3", "mcp__tools__connect", host="127.0.0.1", port=1), use("t4", "mcp__tools__environment"),
                     use("t5", "mcp__tools__look", path=os.path.expanduser("~/.bashrc"))], [text("done")]])
    messages = run(entry(place, env={"GIVEN": "yes"}))
    added, looked, connected, env, home = results(messages)
    assert added == ("42", False)
    assert "FileNotFoundError" in looked[0] and "FileNotFoundError" in home[0]
    assert "ConnectionRefusedError" in connected[0]      # of the box's own loopback
    assert "'GIVEN': 'yes'" in env[0] and "key-of-the-harness" not in env[0]
    assert messages[0].data["mcp_servers"] == [{"name": "tools", "status": "connected"}]
    assert {t["name"] for t in script.requests[0]["tools"]} >= {"mcp__tools__add"}


def test_what_the_structured_part_alone_says_is_told(model, place):
    model([[use("t1", "mcp__tools__tell", words="2 entries"), use("t2", "mcp__tools__tell", words="a.txt, b")], [text("done")]])
    first, second = run(entry(place))[2].content
    assert [p["text"] for p in first.content] == ["2 entries", '{"names": ["a.txt", "b"], "complete": true}']
    assert [p["text"] for p in second.content] == ["a.txt, b"]


def test_a_foreign_server_runs_outside_if_told_so(model, place):
    model([[use("t1", "mcp__tools__look", path=str(place / "secret"))], [text("done")]])
    assert results(run(entry(place, box=False))) == [("the user's secret", False)]


@pytest.mark.parametrize("config, words", [
    ({"x": {"type": "stdio", "command": "no-such-command-here"}}, "no command"), ({"x": {"type": "sse", "url": "http://127.0.0.1:1"}}, "'sse'"),
    ({"x": {"type": "stdio", "command": "true", "colour": 1}}, "'colour'"), ({"x": {"type": "stdio", "command": "/bin/true"}}, "'x'"),
    ({"x": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}, "'x'"), ({"x": 1}, "mapping"),
    ({"x": {"type": "stdio", "command": "cat", "args": "file"}}, "'args'.*a list"), ({"x": {"type": "stdio", "command": "cat", "env": ["A"]}}, "'env'.*a mapping"),
    ({"x": {"type": "stdio"}}, "'command'")])
def test_a_server_that_does_not_work_is_named(model, config, words):
    model()
    with pytest.raises(AgentError, match=words):
        run(config)


def test_a_foreign_server_that_does_not_answer_is_told_of_its_box(model):
    model()
    with pytest.raises(AgentError, match="box without network.*\"box\": False"):
        run({"x": {"type": "stdio", "command": "/bin/true"}})
    with pytest.raises(AgentError) as outside:
        run({"x": {"type": "stdio", "command": "/bin/true", "box": False}})
    assert "without network" not in str(outside.value)


def test_the_script_of_this_package_is_ours_and_one_of_that_name_is_not(tmp_path, monkeypatch):
    from carrel.harness import mcp
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "carrel").write_text("#!/bin/sh\n")
    monkeypatch.setattr(mcp.sysconfig, "get_path", lambda name: str(tmp_path / "own"))
    assert mcp._is_ours(str(tmp_path / "own/carrel"), ["mcp"]) and not mcp._is_ours(str(tmp_path / "own/carrel"), ["exec"])
    assert not mcp._is_ours(str(tmp_path / "other/carrel"), ["mcp"])


def test_a_sessions_tools_for_another_client(tmp_path):
    import mcp
    workspace = Workspace(libraries=[Library.from_code("helpers", "def f():\n    return 42\n")])
    with create_local_session(workspace=workspace, workspace_dir=tmp_path / "w") as session:
        [settings] = session.mcp_config.values()
        settings = json.loads(json.dumps(settings))

        async def main():
            settings.pop("type")
            async with mcp.Client(mcp.StdioServerParameters(**settings)) as client:
                names = [t.name for t in (await client.list_tools()).tools]
                good = await client.call_tool("run_code", {"code": "import helpers, os\nhelpers.f(), os.getcwd()"})
                bad = await client.call_tool("run_code", {"code": "1 / 0"})
                elsewhere = await client.call_tool("run_code", {"code": "1", "box": session.box.id})
                for tool, given in (("run_command", {"command": "id"}), ("create_box", {}), ("list_boxes", {})):
                    with pytest.raises(Exception, match="no tool"):
                        await client.call_tool(tool, given)
                return names, good, bad, elsewhere
        names, good, bad, elsewhere = asyncio.run(main())
    assert names == ["run_code"] and good.content[0].text == f"(42, {str(tmp_path / 'w')!r})" and not good.is_error
    assert bad.is_error and "ZeroDivisionError" in bad.content[0].text
    assert elsewhere.is_error and "one box" in elsewhere.content[0].text


def call(settings, *calls):
    """What a server's tools answer, one after the other."""
    import mcp
    settings = {k: v for k, v in settings.items() if k != "type"}

    async def main():
        async with mcp.Client(mcp.StdioServerParameters(**settings)) as client:
            return [await client.call_tool(tool, given) for tool, given in calls]
    return asyncio.run(main())


def test_a_notebook_session_writes_the_cells_of_its_clients(tmp_path):
    with create_local_notebook_session(name="nb", notebook_dir=tmp_path / "out", workspace_dir=tmp_path / "w") as session:
        session.exec("x = 6", check=True)
        [settings] = session.mcp_config.values()
        assert session.mcp_config == {"notebooks": settings}
        good, bad = call(settings, ("run_code", {"code": "print('seen')\nx * 7"}), ("run_code", {"code": "1 / 0"}))
        assert good.content[0].text == "[stdout]\nseen\n[value]\n42" and bad.is_error
        session.exec("x = 7", hidden=True, check=True)

        def cells():
            return session.notebook.read()["cells"]
        wait_for(lambda: len(cells()) == 3 and cells()[2]["metadata"]["execution_status"] == "error", "the notebook has them")
        [_, seen, failed] = cells()
    assert "".join(seen["source"]) == "print('seen')\nx * 7" and seen["metadata"]["execution_status"] == "complete" and seen["execution_count"]
    assert seen["outputs"][0] == {"output_type": "stream", "name": "stdout", "text": ["seen\n"]}
    assert seen["outputs"][1]["data"]["text/plain"] == "42" and failed["outputs"][0]["ename"] == "ZeroDivisionError"


def test_a_cell_that_is_lost_sight_of_has_failed(tmp_path):
    with create_local_notebook_session(name="nb", notebook_dir=tmp_path / "out", workspace_dir=tmp_path / "w") as session:
        [settings] = session.mcp_config.values()
        process = subprocess.Popen([settings["command"], *settings["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        code = "print('begun', flush=True)\nimport time\ntime.sleep(1000)"
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_code", "arguments": {"code": code}}}).encode() + b"\n")
        process.stdin.flush()
        wait_for(lambda: any(c["outputs"] for c in session.notebook.read()["cells"]), "the cell runs")
        assert session.notebook.read()["cells"][0]["metadata"]["execution_status"] == "running"
    assert session.notebook.read()["cells"][0]["metadata"]["execution_status"] == "error"
    process.stdin.close()
    process.stdout.close()
    process.wait(30)


def test_a_cli_sessions_tools_have_its_directory_and_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_KEY", "key-of-the-sandbox")
    with Sandbox(SandboxConfig(secrets=["THE_KEY"])) as sandbox:
        with create_cli_session(sandbox) as session:
            [settings] = session.mcp_config.values()
            assert "key-of-the-sandbox" not in json.dumps(settings)
            written, told, read, listed = call(
                settings, ("write_file", {"path": "a.txt", "content": "text"}), ("run_command", {"command": "pwd; cat a.txt; echo; echo $THE_KEY"}),
                ("read_file", {"path": "a.txt"}), ("list_files", {}))
            assert written.structured_content["path"] == "/workspace/a.txt"
            assert told.structured_content["stdout"] == "/workspace\ntext\nkey-of-the-sandbox\n"
            assert read.content[0].text == "text" and "a.txt" in [e["name"] for e in listed.structured_content["entries"]]


def test_the_tools_of_a_session_that_ended_are_gone(tmp_path):
    with create_local_session(workspace_dir=tmp_path / "w") as session:
        [settings] = session.mcp_config.values()
    done = subprocess.run([settings["command"], *settings["args"]], input='{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}\n', capture_output=True,
                          text=True, timeout=60, check=False)
    assert json.loads(done.stdout)["id"] == 7 and "no such box" in json.loads(done.stdout)["error"]["message"]


def test_a_session_in_the_configuration_is_not_there_twice(model, tmp_path):
    script = model([[use("t1", "mcp__session__run_code", code="6 * 7")], [text("done")]])
    with create_local_session(workspace_dir=tmp_path / "w") as session:
        assert results(run(session.mcp_config)) == [("42", False)]
    assert [t["name"] for t in script.requests[0]["tools"]] == ["mcp__session__run_code"]
