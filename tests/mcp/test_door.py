"""The door by hand: the protocol's rules, and attempts of a hostile client."""
import base64
import concurrent.futures
import http.client
import json
import re
import socket
import threading

import pytest
from conftest import STATELESS, Door
from support.client import UnixConnection
from support.waiting import wait_for

TOOLS = ["run_code", "run_command", "read_file", "write_file", "list_files", "create_box", "list_boxes", "delete_box"]
PNG = "import base64\nfrom IPython.display import Image, display\ndisplay(Image(data=base64.b64decode('%s'), format='png'))" % (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")


def said(result, last=r"[box"):
    """The text of a result without its last line, which says where it was."""
    text, _, end = ("\n" + result["content"][0]["text"]).rpartition("\n")
    assert end.startswith(last) or end.startswith("[") and end.endswith(" ms]"), result
    return text[1:]


# --- the two eras ---

@pytest.mark.parametrize("asked, spoken", [("2024-11-05",) * 2, ("2025-03-26",) * 2, ("2025-06-18",) * 2, ("2025-11-25",) * 2, ("1999-01-01", "2025-11-25")])
def test_a_handshake_agrees_on_a_revision(door, asked, spoken):
    status, answer = door.ask("initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    assert status == 200 and answer["result"]["protocolVersion"] == spoken and answer["result"]["serverInfo"]["name"] == "carrel"
    assert door.send({"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
    assert door.ask("ping")[1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_the_stateless_revision_needs_no_handshake(door):
    status, answer = door.stateless("server/discover")
    result = answer["result"]
    assert status == 200 and result["resultType"] == "complete" and STATELESS in result["supportedVersions"] and result["cacheScope"] == "private"
    status, answer = door.stateless("tools/list")
    assert status == 200 and [t["name"] for t in answer["result"]["tools"]] == TOOLS and answer["result"]["ttlMs"] > 0


def test_both_eras_list_the_same_tools_with_schemas_and_hints(door):
    old, new = door.ask("tools/list")[1]["result"]["tools"], door.stateless("tools/list")[1]["result"]["tools"]
    assert old == new
    for tool in old:
        assert tool["inputSchema"]["type"] == "object" and tool["description"] and tool["annotations"]["openWorldHint"] is False
    assert {t["name"] for t in old if t["annotations"]["readOnlyHint"]} == {"read_file", "list_files", "list_boxes"}


def test_one_box_has_tools_of_its_own_and_no_other_box(server, door, box):
    one = Door(server, f"/mcp/boxes/{box}")
    tools = one.ask("tools/list")[1]["result"]["tools"]
    assert [t["name"] for t in tools] == TOOLS[:5] and all("box" not in t["inputSchema"]["properties"] for t in tools)
    assert all("box" not in t["inputSchema"]["required"] for t in tools)
    assert one.call("run_code", code="x = 6 * 7\nx")["structuredContent"] | {"wall_ms": 0} == {
        "box": box, "outcome": "ok", "stdout": "", "stderr": "", "value": "42", "restarted": False, "images": 0, "wall_ms": 0}
    assert one.call("write_file", path="a", content="text")["structuredContent"]["box"] == box
    assert one.call("read_file", path="a")["content"][0]["text"] == "text"
    other = door.call("create_box")["structuredContent"]["id"]
    for tool, given in (("run_code", {"code": "1"}), ("run_command", {"command": "id"}), ("read_file", {"path": "a"})):
        assert "one box" in one.call(tool, box=other, **given)["content"][0]["text"]
    door.call("delete_box", box=other)
    for tool in TOOLS[5:]:
        assert one.ask("tools/call", {"name": tool, "arguments": {}})[1]["error"]["code"] == -32602
    assert Door(server, "/mcp/boxes/nobodys").ask("tools/list")[0] == 404 and Door(server, "/mcp/boxes/").ask("tools/list")[0] == 404


def test_a_client_may_have_fewer_tools(server, box):
    few = Door(server, f"/mcp/boxes/{box}?tools=run_code,list_files")
    assert [t["name"] for t in few.ask("tools/list")[1]["result"]["tools"]] == ["run_code", "list_files"]
    assert few.ask("tools/call", {"name": "run_command", "arguments": {"command": "id"}})[1]["error"]["code"] == -32602
    assert [t["name"] for t in Door(server, "/mcp?tools=list_boxes").ask("tools/list")[1]["result"]["tools"]] == ["list_boxes"]
    for wrong in (f"/mcp/boxes/{box}?tools=create_box", "/mcp?tools=run", "/mcp?tools=", "/mcp?tools=run_code,", "/mcp?tools=%"):
        assert Door(server, wrong).ask("tools/list")[0] == 400


def test_commands_in_one_box_run_where_its_kernel_does(server, box):
    connection = UnixConnection(server.socket)
    body = json.dumps({"cwd": "/tmp", "env": {"COLOUR": "blue"}})
    connection.request("POST", f"/v1/boxes/{box}/kernels", body=body, headers={"Content-Type": "application/json"})
    assert connection.getresponse().status == 201
    connection.close()
    one = Door(server, f"/mcp/boxes/{box}")
    assert one.call("run_command", command="pwd; echo $COLOUR")["structuredContent"]["stdout"] == "/tmp\nblue\n"
    assert one.call("run_command", command="pwd", cwd="/")["structuredContent"]["stdout"] == "/\n"
    assert one.call("write_file", path="deep/a", content="x")["structuredContent"]["path"] == "/tmp/deep/a"
    assert Door(server).call("run_command", command="pwd; echo $COLOUR", box=box)["structuredContent"]["stdout"] == "/home/box\n\n"


def test_bytes_that_are_no_text_are_shown_as_far_as_they_are(door, box):
    result = door.call("run_command", command=r"printf 'a\377b\303'; printf 'c\000\303\251' >&2", box=box)
    assert result["structuredContent"]["stdout"] == "a\ufffdb\ufffd" and result["structuredContent"]["stderr"] == "c\0\u00e9"
    assert said(result) == "[stdout]\na\ufffdb\ufffd\n[stderr]\nc\0\u00e9"


def test_of_much_output_beginning_and_end_are_shown_with_words_between_them(door, box):
    long = door.call("run_command", command="python3 -c 'print(\"a\" + \"\u00e9\" * 600000)'", box=box)
    told = long["structuredContent"]
    half = 1 << 19
    seam = "\n[\u2026 %.1f kB of output left out; write it to a file and read parts of that \u2026]\n" % (told["stdout_dropped_bytes"] / 1000)
    assert not long["isError"] and told["truncated"] and told["stdout_dropped_bytes"] == 1200002 - 2 * half + 2    # one character on each side
    assert told["stdout"] == "a" + "\u00e9" * (half // 2 - 1) + seam + "\u00e9" * (half // 2 - 1) + "\n" and said(long) == told["stdout"].rstrip("\n")
    flood = door.call("run_command", command="seq 1 3000000", box=box)
    assert not flood["isError"] and flood["structuredContent"]["stdout"].startswith("1\n2\n") and said(flood).endswith("3000000")
    assert not door.call("run_command", command="echo hi", box=box)["structuredContent"]["truncated"]


@pytest.mark.cgroups
def test_a_limit_is_named_with_its_size(door):
    small = door.call("create_box", memory="64M")["structuredContent"]["id"]
    bomb = door.call("run_command", command="head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null", box=small)
    assert bomb["isError"] and "the box ran out of memory (limits.memory 64M)" in said(bomb)
    assert bomb["structuredContent"]["remark"] == "the box ran out of memory (limits.memory 64M)"


@pytest.mark.parametrize("change, code", [
    ({"MCP-Protocol-Version": "2099-01-01"}, -32020), ({"Mcp-Method": "tools/call"}, -32020), ({"Mcp-Method": ""}, -32020)])
def test_fields_and_body_must_agree(door, change, code):
    status, answer = door.stateless("tools/list", headers=change)
    assert status == 400 and answer["error"]["code"] == code and answer["id"] == 1


def test_an_unknown_revision_is_told_with_those_that_there_are(door):
    status, answer = door.stateless("tools/list", version="2099-01-01")
    assert status == 400 and answer["error"]["code"] == -32022
    assert answer["error"]["data"]["requested"] == "2099-01-01" and STATELESS in answer["error"]["data"]["supported"]


def test_what_the_stateless_revision_removed_is_not_there(door):
    for method in ("initialize", "ping", "logging/setLevel"):
        status, answer = door.stateless(method)
        assert status == 404 and answer["error"]["code"] == -32601


@pytest.mark.parametrize("body, code", [
    (b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602)])
def test_what_is_no_request_is_refused_with_its_code(door, body, code):
    status, answer = door.send(body)
    assert status == 400 and answer["error"]["code"] == code


def test_ids_come_back_as_they_were(door):
    for id in (0, -1, "x", "", 2**53, "\u2603\""):
        assert door.send({"jsonrpc": "2.0", "id": id, "method": "ping"})[1]["id"] == id


def test_other_methods_and_types_are_refused(door):
    assert door.send(b"", method="GET")[0] == 405 and door.send(b"", method="DELETE")[0] == 405
    assert door.send(b"{}", headers={"Content-Type": "text/plain"})[0] == 415
    assert door.send(b"{}", headers={"Accept": "text/html"})[0] == 406


def test_a_page_of_another_origin_is_refused(door):
    assert door.ask("ping", headers={"Origin": "http://evil.example", "Host": "evil.example"})[0] == 403


# --- the tools ---

def test_code_runs_and_its_box_is_told(door):
    first = door.call("run_code", code="x = 41\nprint('said')")
    assert not first["isError"] and first["structuredContent"]["stdout"] == "said\n" and first["structuredContent"]["value"] is None
    again = door.call("run_code", code="x + 1", box=first["structuredContent"]["box"])
    assert again["structuredContent"]["value"] == "42" and said(again) == "42"
    assert re.fullmatch(r"said\n\[box (b\w+), new: name it in `box` to go on there, \d+ ms\]", first["content"][0]["text"])
    assert f"\n[box {first['structuredContent']['box']}, " in again["content"][0]["text"]
    door.call("delete_box", box=first["structuredContent"]["box"])


@pytest.mark.parametrize("code, text", [
    ("print('a', end=''); 7", "[stdout]\na\n[value]\n7"), ("print('a')", "a"), ("7", "7"), ("x = 1", ""), ("'\\\\n'", "'\\\\n'"),
    ("print('back\\\\', end=''); print('n', end='')", "back\\n"),
    ("import sys; print('e', file=sys.stderr)", "[stderr]\ne"), ("import sys; print('o'); print('e', file=sys.stderr); 5", "[stdout]\no\n[stderr]\ne\n[value]\n5")])
def test_the_text_tells_output_from_value(door, box, code, text):
    assert said(door.call("run_code", code=code, box=box)) == text


def test_a_timeout_and_a_new_kernel_are_told_in_the_text(door, box):
    late = door.call("run_code", code="kept = 5\nwhile True: pass", timeout=0.3, box=box)
    assert late["isError"] and "KeyboardInterrupt" in said(late) and late["structuredContent"]["reason"] in said(late)
    assert said(late).endswith("[timeout]\nthe cell ran longer than its timeout and was interrupted")
    assert said(door.call("run_code", code="kept", box=box)) == "5"
    assert door.call("run_code", code="import os; os._exit(3)", box=box)["isError"]
    fresh = door.call("run_code", code="'kept' in globals()", box=box)
    assert said(fresh) == "False\n[the kernel had ended and was restarted: its variables are gone]" and fresh["structuredContent"]["restarted"]
    command = door.call("run_command", command="echo so far; sleep 100", timeout=0.3, box=box)
    assert said(command) == "so far\n[timeout: the command was ended after 0.3 s (timeout)]"
    failed = door.call("run_command", command="echo a; exit 3", box=box)
    assert said(failed) == "a\n[exit code 3]" and failed["structuredContent"]["exit_code"] == 3


def test_lists_are_told_in_the_text(door, box):
    door.call("run_command", command="mkdir d; printf 12345 > 'a \"b\"'; ln -s d l; printf x > $(printf 'n\\nl')", box=box)
    listed = door.call("list_files", box=box)
    assert sorted(said(listed, last="[4 entries]").split("\n")) == sorted(['5  a "b"', "folder  d/", "link  l -> d", "1  n", "l"])
    boxes = door.call("list_boxes")
    assert f"box {box} is running\n" in boxes["content"][0]["text"] and all(b["id"] in boxes["content"][0]["text"] for b in boxes["structuredContent"]["boxes"])
    made = door.call("create_box", name="named-one")
    assert made["content"][0]["text"] == f"box {made['structuredContent']['id']}, named named-one is running\n"
    gone = door.call("delete_box", box="named-one")
    assert gone["content"][0]["text"] == f"box {made['structuredContent']['id']} is deleted"
    written = door.call("write_file", path="x", content="abc", box=box)["content"][0]["text"]
    assert written == f"3 bytes written to x\n[box {box}]"
    door.call("write_file", path="y", content_base64="/w==", box=box)
    assert door.call("read_file", path="y", box=box)["content"][-1] == {"type": "text", "text": "[not text, 1 bytes]"}


# --- a session's own box ---

def test_a_session_keeps_one_box(server, door):
    mine, other = (Door(server, headers={"Mcp-Session-Id": name}) for name in ("one", "two"))
    assert "there is no box yet" in mine.call("list_files")["content"][0]["text"]
    made = mine.call("run_code", code="x = 41", box=None, timeout=None)["structuredContent"]["box"]
    assert said(mine.call("run_code", code="x + 1")) == "42"
    assert mine.call("write_file", path="f", content="text", box=None)["structuredContent"]["box"] == made
    assert mine.call("read_file", path="f")["content"][0]["text"] == "text" and said(mine.call("run_command", command="cat f", cwd=None, box=None)) == "text"
    assert said(mine.call("list_files", box=None), last="[1 entries]") == "4  f"
    theirs = other.call("run_command", command="ls")["structuredContent"]["box"]
    assert theirs != made
    server.kill("front")
    assert said(mine.call("run_code", code="x + 1")) == "42"
    door.call("delete_box", box=made)
    assert "the session's box is gone" in mine.call("read_file", path="f")["content"][0]["text"]
    again = mine.call("run_code", code="'x' in globals()")
    assert ", new: the earlier one is gone, with its variables and files, " in again["content"][0]["text"] and said(again) == "False"
    for one in (mine, other):
        assert one.send(b"", method="DELETE") == (204, None)
    left = {b["id"] for b in door.call("list_boxes")["structuredContent"]["boxes"]}
    assert not left & {made, theirs, again["structuredContent"]["box"]}


def test_calls_of_a_session_at_once_share_its_box(server):
    door = Door(server, headers={"Mcp-Session-Id": "at-once"})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        boxes = {r["structuredContent"]["box"] for r in pool.map(lambda i: door.call("run_command", command="true"), range(8))}
    assert len(boxes) == 1
    assert door.send(b"", method="DELETE")[0] == 204


def test_a_session_has_a_name_that_can_be_one(server):
    for name in ("x" * 256, "a b"):
        assert Door(server, headers={"Mcp-Session-Id": name}).ask("ping")[0] == 400


def test_the_client_is_told_how_to_go_on(door):
    asked = door.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})[1]["result"]
    assert "later calls go on in it" in asked["instructions"] == door.stateless("server/discover")[1]["result"]["instructions"]


def test_an_exception_is_a_result_that_the_model_can_read(door, box):
    result = door.call("run_code", code="1 / 0", box=box)
    assert result["isError"] and "ZeroDivisionError: division by zero" in result["content"][0]["text"] and "\x1b" not in result["content"][0]["text"]


def test_an_image_is_an_image(door, box):
    result = door.call("run_code", code=PNG, box=box)
    (image,) = [c for c in result["content"] if c["type"] == "image"]
    assert image["mimeType"] == "image/png" and base64.b64decode(image["data"]).startswith(b"\x89PNG")


def test_prints_are_progress_if_somebody_asks(door, box):
    params = {"name": "run_code", "arguments": {"code": "for i in range(3): print(i, flush=True)", "box": box}, "_meta": {"progressToken": "p"}}
    status, messages = door.ask("tools/call", params)
    told = [m["params"] for m in messages[:-1]]
    assert status == 200 and told and all(p["progressToken"] == "p" for p in told) and "".join(p["message"] for p in told) == "0\n1\n2\n"
    assert [p["progress"] for p in told] == sorted({p["progress"] for p in told}) and messages[-1]["result"]["structuredContent"]["stdout"] == "0\n1\n2\n"


def test_code_that_takes_too_long_is_interrupted(door, box):
    result = door.call("run_code", code="while True: pass", box=box, timeout=1)
    assert result["isError"] and result["structuredContent"]["outcome"] == "timeout"
    assert door.call("run_code", code="1", box=box)["structuredContent"]["value"] == "1"


def test_a_command_has_its_output_and_code(door, box):
    result = door.call("run_command", command="echo out; echo err >&2; exit 3", box=box)
    told = result["structuredContent"]
    assert result["isError"] and (told["stdout"], told["stderr"], told["exit_code"], told["outcome"]) == ("out\n", "err\n", 3, "error")
    assert door.call("run_command", command="pwd", cwd="/tmp", box=box)["structuredContent"]["stdout"] == "/tmp\n"


def test_files_are_written_read_and_listed(door, box):
    assert door.call("write_file", path="a/b.txt", content="h\u00e4llo", box=box)["structuredContent"]["bytes"] == 6
    assert door.call("read_file", path="/home/box/a/b.txt", box=box)["content"] == [{"type": "text", "text": "h\u00e4llo"}]
    door.call("write_file", path="bytes", content_base64=base64.b64encode(b"\0\xff").decode(), box=box)
    resource = door.call("read_file", path="bytes", box=box)["content"][0]["resource"]
    assert base64.b64decode(resource["blob"]) == b"\0\xff"
    assert {e["name"] for e in door.call("list_files", box=box)["structuredContent"]["entries"]} >= {"a", "bytes"}
    big = "x" * 3_000_000
    door.call("write_file", path="big", content=big, box=box)
    assert door.call("read_file", path="big", box=box)["content"][0]["text"] == big


@pytest.mark.parametrize("tool, arguments, said", [
    ("run_code", {}, "code is missing"), ("run_code", {"code": 1}, "code must be a string"), ("run_code", {"code": "1", "bx": "y"}, "bx"),
    ("run_code", {"code": "1", "box": "none"}, "there is no box none"), ("run_command", {}, "command is missing"),
    ("run_command", {"command": 3}, "command"), ("read_file", {"path": "x"}, "there is no box yet"), ("write_file", {"path": "x"}, "content"),
    ("write_file", {"path": "x", "content_base64": "?"}, "base64"), ("create_box", {"memory": "lots"}, "memory"), ("delete_box", {}, "there is no box yet"), ("run_command", {"command": "true", "box": 7}, "box must be")])
def test_wrong_arguments_are_a_result_that_names_them(door, tool, arguments, said):
    result = door.call(tool, **arguments)
    assert result["isError"] and said in result["content"][0]["text"]


def test_a_file_that_is_not_there_is_a_result(door, box):
    result = door.call("read_file", path="/none", box=box)
    assert result["isError"] and "/none" in result["content"][0]["text"]


def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(door):
    assert door.ask("tools/call", {"name": "none"})[1]["error"]["code"] == -32602


# --- who goes away, who may not ---

def test_a_client_that_goes_takes_its_code_along(door, server, box):
    connection = UnixConnection(server.socket)
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "run_command", "arguments": {
        "command": "touch begun; sleep 600", "box": box}}}
    connection.request("POST", "/mcp", body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    wait_for(lambda: not door.call("read_file", path="begun", box=box)["isError"], "the command has begun")
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    wait_for(lambda: all(x["state"] == "ended" for x in server.request("GET", f"/v1/boxes/{box}/exec")[1]["execs"]), "the command has ended")


def test_a_cancelled_call_ends(door, server, box):
    answers = []
    body = {"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": {"name": "run_code", "arguments": {
        "code": "open('begun', 'w')\nimport time\ntime.sleep(600)", "box": box, "timeout": 600}}}
    waiting = threading.Thread(target=lambda: answers.append(door.send(body)))
    waiting.start()
    wait_for(lambda: not door.call("read_file", path="begun", box=box)["isError"], "the cell has begun")
    assert door.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})[0] == 202
    waiting.join(30)
    assert answers and answers[0][1]["error"]["message"] == "cancelled"
    assert door.call("run_code", code="6 * 7", box=box)["structuredContent"]["value"] == "42"


def test_a_token_without_a_scope_does_not_see_the_tools_that_need_it(server):
    made = server.request("POST", "/v1/tokens", {"identity": "reader", "scopes": ["boxes:read"]}, {"Content-Type": "application/json"})[1]
    import http.client

    port = server.port
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
    for method, params in (("tools/list", {}), ("tools/call", {"name": "run_code", "arguments": {"code": "1"}})):
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
                           {"Content-Type": "application/json", "Authorization": "Bearer " + made["token"]})
        result = json.loads(connection.getresponse().read())["result"]
        assert [t["name"] for t in result["tools"]] == ["list_boxes"] if method == "tools/list" else result["isError"]
    connection.close()


# --- a service as an MCP server ---

INTERFACE = '''
@expose
def add(a: int, b: int = 1) -> int:
    """Adds."""
    print("adding")
    return a + b

@expose
def hidden() -> str:
    return "no"

@expose
def fail():
    raise ValueError("on purpose")
'''


@pytest.fixture(scope="module")
def service(server):
    status, made = server.request("POST", "/v1/services", {"name": "sums", "code": INTERFACE, "filename": "interface.py"}, {"Content-Type": "application/json"})
    assert status == 201, made
    yield made["name"]
    server.request("DELETE", "/v1/services/sums")


def test_functions_of_a_service_are_tools_for_its_owner(server, service):
    door = Door(server, f"/mcp/services/{service}")
    tools = {t["name"]: t for t in door.ask("tools/list")[1]["result"]["tools"]}
    assert set(tools) == {"add", "hidden", "fail"} and tools["add"]["description"] == "Adds." and tools["add"]["inputSchema"]["required"] == ["a"]
    assert door.call("add", a=1, b=2) == {"content": [{"type": "text", "text": "3"}], "isError": False}
    failed = door.call("fail")
    assert failed["isError"] and "ValueError: on purpose" in failed["content"][0]["text"]
    wrong = door.call("add", a="x")
    assert wrong["isError"] and "a" in wrong["content"][0]["text"]
    assert door.ask("tools/call", {"name": "run_code", "arguments": {"code": "1"}})[1]["error"]["code"] == -32602


def test_a_box_is_no_way_around_a_grant_or_an_owner(server, service, box):
    grant = server.request("POST", "/v1/grants", {"service": service, "functions": ["add"]}, {"Content-Type": "application/json"})[1]
    other = server.request("POST", "/v1/tokens", {"identity": "somebody"}, {"Content-Type": "application/json"})[1]
    reader = server.request("POST", "/v1/tokens", {"identity": "viewer", "scopes": ["boxes:read"]}, {"Content-Type": "application/json"})[1]

    def listed(path, token):        # over TCP: on the socket the peer is the identity
        connection = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=30)
        connection.request("POST", path, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
                           {"Content-Type": "application/json", "Authorization": "Bearer " + token})
        status = connection.getresponse().status
        connection.close()
        return status
    for path in (f"/mcp/boxes/{box}", f"/mcp/boxes/{box}?tools=run_code", "/mcp"):
        assert listed(path, grant["token"]) == 403
    assert listed(f"/mcp/services/{service}", grant["token"]) == 200
    for token in (other["token"], reader["token"]):
        assert listed(f"/mcp/boxes/{box}", token) == 404
    for path in (f"/mcp/boxes/{box}/", f"/mcp/boxes/{box}/x", f"/mcp/boxes/%2e%2e", f"/mcp/boxes/{box}%00", "/mcp/boxes/x/../" + box, f"/mcp/services/{box}"):
        assert Door(server, path).ask("tools/list")[0] in (400, 404), path
    inside = Door(server).call("run_command", box=box, command="python3 -c 'import http.client; c = http.client.HTTPConnection(\"127.0.0.1\", 807, timeout=5); "
                               f"c.request(\"POST\", \"/mcp/boxes/{box}\", \"x\"); print(c.getresponse().status)'; true")
    assert "200" not in inside["structuredContent"]["stdout"]


def test_a_grant_shows_and_allows_what_it_names(server, service):
    grant = server.request("POST", "/v1/grants", {"service": service, "functions": ["add"]}, {"Content-Type": "application/json"})[1]
    door = Door(server, f"/mcp/services/{service}", {"Authorization": "Bearer " + grant["token"]})
    assert [t["name"] for t in door.ask("tools/list")[1]["result"]["tools"]] == ["add"]
    assert door.call("add", a=4)["content"][0]["text"] == "5"
    assert door.ask("tools/call", {"name": "hidden"})[1]["error"]["code"] == -32602
    assert Door(server, "/mcp/services/other", door.headers).ask("tools/list")[0] in (403, 404)


def test_a_service_of_nobody_is_not_there(server):
    assert Door(server, "/mcp/services/none").ask("tools/list")[0] == 404
