"""MCP: servers of the configuration, foreign ones in boxes; a session's tools for other clients."""
import asyncio
import json
import os
import pathlib
import shutil
import sys

import pytest
from model_server import text, use

from carrel.execution import create_local_session
from carrel.harness import AgentError, run_agent
from carrel.workspace import Library, Workspace

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
                good = await client.call_tool("python", {"code": "import helpers\nhelpers.f()"})
                bad = await client.call_tool("python", {"code": "1 / 0"})
                with pytest.raises(Exception, match="Unknown tool"):
                    await client.call_tool("shell", {"command": "id"})
                return names, good, bad
        names, good, bad = asyncio.run(main())
    assert names == ["python"] and good.content[0].text == "42" and not good.is_error
    assert bad.is_error and "ZeroDivisionError" in bad.content[0].text


def test_a_session_in_the_configuration_is_not_there_twice(model, tmp_path):
    script = model([[use("t1", "mcp__session__python", code="6 * 7")], [text("done")]])
    with create_local_session(workspace_dir=tmp_path / "w") as session:
        assert results(run(session.mcp_config)) == [("42", False)]
    assert [t["name"] for t in script.requests[0]["tools"]] == ["mcp__session__python"]
