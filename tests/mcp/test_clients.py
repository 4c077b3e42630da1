"""The official Python client, over HTTP and over standard input and output."""
import asyncio
import json
import os
import pathlib

import pytest
from support import BUILD

mcp = pytest.importorskip("mcp")


def stdio(server, *words):
    from mcp import StdioServerParameters

    return StdioServerParameters(command=str(BUILD / "carrel"), args=["mcp", *words], env={**os.environ, "CARREL_URL": server.url})


async def converse(target):
    from mcp import Client

    async with Client(target) as client:
        tools = await client.list_tools()
        result = await client.call_tool("run_code", {"code": "print('hi')\n6 * 7"})
        failed = await client.call_tool("run_code", {"code": "1 / 0", "box": result.structured_content["box"]})
        await client.call_tool("delete_box", {"box": result.structured_content["box"]})
        return [t.name for t in tools.tools], result, failed


def check(told):
    names, result, failed = told
    assert "run_code" in names and result.structured_content["value"] == "42" and result.content[0].text.startswith("[stdout]\nhi\n[value]\n42\n[box b")
    assert failed.is_error and "ZeroDivisionError" in failed.content[0].text


def test_the_official_client_over_stdio(server):
    check(asyncio.run(asyncio.wait_for(converse(stdio(server)), 120)))


def test_the_official_client_over_http(server):
    check(asyncio.run(asyncio.wait_for(converse(f"http://127.0.0.1:{server.port}/mcp"), 120)))


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_a_client_keeps_its_box_until_it_goes(server, way):
    from mcp import Client

    async def go():
        async with Client(stdio(server) if way == "stdio" else f"http://127.0.0.1:{server.port}/mcp", mode="legacy") as client:
            first = await client.call_tool("run_code", {"code": "x = 41"})
            second = await client.call_tool("run_code", {"code": "x + 1"})
            return first.structured_content["box"], second.structured_content

    box, second = asyncio.run(asyncio.wait_for(go(), 120))
    assert (second["box"], second["value"]) == (box, "42")
    assert server.admin.get(f"/v1/boxes/{box}").json["phase"] in ("deleting", "deleted")


def test_calls_over_stdio_run_side_by_side(server):
    from mcp import Client

    async def go():
        async with Client(stdio(server)) as client:
            one = (await client.call_tool("create_box", {})).structured_content["id"]
            wait = "while not __import__('os').path.exists('go'): __import__('time').sleep(0.05)"
            slow = asyncio.ensure_future(client.call_tool("run_code", {"code": wait, "box": one}))
            quick = await client.call_tool("write_file", {"path": "go", "content": "", "box": one})
            result = await slow
            await client.call_tool("delete_box", {"box": one})
            return quick, result

    quick, slow = asyncio.run(asyncio.wait_for(go(), 120))
    assert not quick.is_error and not slow.is_error


def test_the_configuration_names_the_program(server):
    done = server.carrel("mcp", "config")
    told = json.loads(done.stdout)["mcpServers"]["carrel"]
    assert pathlib.Path(told["command"]).samefile(BUILD / "carrel") and told["args"] == ["mcp", "--url", server.url] or told["args"] == ["mcp"]


def test_the_configuration_names_the_token_that_a_service_needs(server):
    """Its owner on this machine needs none; whoever else starts it does, and over TCP everybody."""
    mine = server.carrel("mcp", "config", "--service", "tools")
    assert "env" not in json.loads(mine.stdout)["mcpServers"]["tools"] and "carrel grant create tools" in mine.stderr
    far = server.carrel("mcp", "config", "--service", "tools", "--url", "http://127.0.0.1:7070")
    assert "CARREL_TOKEN" in json.loads(far.stdout)["mcpServers"]["tools"]["env"] and "carrel grant create tools" in far.stderr
    given = server.carrel("mcp", "config", "--service", "tools", environment={"CARREL_TOKEN": "carrel_x"})
    assert json.loads(given.stdout)["mcpServers"]["tools"]["env"] == {"CARREL_TOKEN": "carrel_x"} and given.stderr == ""
