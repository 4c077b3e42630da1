"""The network of an MCP client's boxes: its user sets it in the address, or behind `carrel mcp`; the model cannot."""
import json
import os
import subprocess

import pytest
from conftest import Door
from support.web import hello_server


@pytest.fixture(scope="module")
def web():
    with hello_server() as port:
        yield port


def get(name, port):
    # Not curl, which takes every name below localhost for 127.0.0.1 without asking.
    return {"command": f"/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"http://{name}:{port}/\", timeout=20).read().decode())'"}


def text(result):
    return result["content"][0]["text"]


@pytest.fixture
def client(server):
    """A door whose user chose this query; its boxes go with it."""
    made = []

    def make(query, session):
        it = Door(server, f"/mcp{query}", headers={"Mcp-Session-Id": session})
        made.append(it)
        return it
    yield make
    for it in made:
        assert Door(server, "/mcp", headers=it.headers).send(b"", method="DELETE")[0] == 204


def test_boxes_of_a_client_reach_what_its_address_allows_and_nothing_else(client, web):
    door = client(f"?allow=api.localhost:{web},files.example.org&deny=x.example.org", "net-one")
    assert text(door.call("run_command", **get("api.localhost", web))).startswith("hello from the host")
    told = text(door.call("run_command", **get("other.localhost", web)))
    box = told.rsplit("[box ", 1)[1].split(",")[0]
    assert f"you cannot allow it, your user can: carrel net {box} --allow other.localhost" in told
    told = text(door.call("run_code", code=f"import urllib.request as u; print(u.urlopen('http://api.localhost:{web}/').read())"))
    assert "hello from the host" in told


def test_the_tools_say_what_a_box_reaches(client, server, door):
    allowed = client("?allow=index.example.org,*.models.example.org:443", "net-two")
    said = {t["name"]: t["description"] for t in allowed.ask("tools/list")[1]["result"]["tools"]}
    assert said["run_code"].endswith(" Network: only index.example.org, *.models.example.org:443.")
    assert "Network" not in said["list_files"]
    first = allowed.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    assert first[1]["result"]["instructions"].endswith("Network: only index.example.org, *.models.example.org:443.")
    for query, words in (("", "No network."), ("?net=none", "No network."), ("?net=public", "Network: public addresses.")):
        tools = Door(server, f"/mcp{query}").ask("tools/list")[1]["result"]["tools"]
        assert tools[0]["description"].endswith(" " + words), query


@pytest.mark.parametrize("query, words", [
    ("?allow=a..b", "net.allow[0] 'a..b', character 3"), ("?allow=", "net.allow[0]"), ("?net=nothing", "'nothing' is none"),
    ("?net=none&allow=x.org", "net=public"), ("?allow=%zz", ""), ("?deny=%ff", "")])
def test_an_address_with_a_rule_that_means_nothing_is_refused(server, query, words):
    status, answer = Door(server, f"/mcp{query}").ask("tools/list")
    assert status == 400 and words in (answer or {}).get("error", {}).get("message", "") if words else status == 400


def test_a_box_that_is_there_keeps_its_network(server, box):
    status, answer = Door(server, f"/mcp/boxes/{box}?allow=x.example.org").ask("tools/list")
    assert status == 400 and "is there already" in answer["error"]["message"]


@pytest.mark.parametrize("asked", [{"net": "public"}, {"net": {"allow": ["x.example.org"]}}, {"mounts": []}, {"env": {"A": "b"}}])
def test_a_model_chooses_no_network_and_nothing_else_of_its_user(door, asked):
    before = len(door.call("list_boxes")["structuredContent"]["boxes"])
    made = door.call("create_box", **asked)
    assert made["isError"] and next(iter(asked)) in text(made)
    assert len(door.call("list_boxes")["structuredContent"]["boxes"]) == before


def test_boxes_that_a_model_makes_have_the_clients_network(client, web):
    door = client(f"?allow=api.localhost:{web}", "net-three")
    made = door.call("create_box")["structuredContent"]
    try:
        assert made["net"]["allow"] == [f"api.localhost:{web}"]
        assert text(door.call("run_command", box=made["id"], **get("api.localhost", web))).startswith("hello from the host")
    finally:
        door.call("delete_box", box=made["id"])


def ask(process, number, tool, **arguments):
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call",
                                    "params": {"name": tool, "arguments": arguments}}) + "\n")
    process.stdin.flush()
    while True:
        told = json.loads(process.stdout.readline())
        if told.get("id") == number:
            return text(told["result"])


@pytest.mark.parametrize("own", [False, True])
def test_the_command_hands_its_rules_on(server, web, own):
    """With the server that runs, and with one of its own: then only its arguments can allow more."""
    line = [server.place / "carrel", "mcp", "--allow", f"api.localhost:{web}", "--deny", "no.example.org"]
    environment = {k: v for k, v in os.environ.items() if k != "CARREL_URL"} | ({} if own else {"CARREL_URL": server.url})
    process = subprocess.Popen(line, stdin=-1, stdout=-1, text=True, env=environment)
    try:
        assert ask(process, 1, "run_command", **get("api.localhost", web)).startswith("hello from the host")
        told = ask(process, 2, "run_command", **get("other.localhost", web))
        assert ("adding --allow other.localhost" if own else "--allow other.localhost") in told
    finally:
        process.stdin.close()
        process.wait(60)


def test_the_configuration_has_the_rules(server):
    rules = ["--net", "public", "--allow", "a.example.org", "--allow", "10.1.0.0/16:5432", "--deny", "*.b.example.org"]
    made = json.loads(server.carrel("mcp", "config", *rules).stdout)
    assert made["mcpServers"]["carrel"]["args"] == ["mcp", *rules]


@pytest.mark.parametrize("options, words", [
    (("--allow", "a b"), "--allow 'a b', character 2"), (("--allow", "x.org", "--box", "b"), "carrel net BOX --allow RULE"),
    (("--net", "none", "--allow", "x.org"), "--net"), (("--allow", "x.org", "--service", "s"), "carrel net BOX")])
def test_the_command_refuses_rules_that_mean_nothing(server, options, words):
    ended = server.carrel("mcp", *options)
    assert ended.returncode != 0 and words in ended.stderr
