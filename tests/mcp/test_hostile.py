"""Attacks of a client, a kernel or a worker on the door: memory, framing, others' calls."""
import base64
import json
import pathlib
import threading

import pytest
from conftest import Door
from support.client import UnixConnection
from support.waiting import wait_for

MIB = 1 << 20
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def door(server):
    return Door(server)


@pytest.fixture
def box(door):
    made = door.call("create_box")["structuredContent"]["id"]
    yield made
    door.call("delete_box", box=made)


def front_status(server, name):
    for line in pathlib.Path(f"/proc/{server.child('front')}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def reset_peak(server):
    pathlib.Path(f"/proc/{server.child('front')}/clear_refs").write_text("5")
    return front_status(server, "VmRSS")


# --- memory ---

def test_a_file_for_a_box_that_is_not_there_leaves_nothing(door, server):
    content = base64.b64encode(bytes(9 * MIB)).decode()
    assert door.call("write_file", path="x", box="none", content_base64=content)["isError"]
    before = front_status(server, "VmRSS")
    for _ in range(20):
        assert door.call("write_file", path="x", box="none", content_base64=content)["isError"]
    assert front_status(server, "VmRSS") - before < 60 * MIB


@pytest.mark.parametrize("piece", ["{}", "[]", "0"])
def test_a_body_that_becomes_much_more_than_it_is_is_refused(door, server, piece):
    """Of 15 MB of empty objects a tree of more than a gigabyte would be made."""
    bomb = ",".join([piece] * (15 * MIB // (len(piece) + 1)))
    before = reset_peak(server)
    status, answer = door.send(('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%s]}}' % bomb).encode())
    assert status == 429 and "quota.buffers" in answer["error"]["message"]
    assert front_status(server, "VmHWM") - before < 100 * MIB
    assert door.ask("ping")[0] == 200


def test_an_ordinary_large_body_is_taken(door):
    numbers = [i + 0.25 for i in range(500_000)]
    assert door.ask("ping", {"x": numbers, "code": "f(a, b, {'c': []}),\n" * 200_000})[0] == 200


def test_nesting_is_bounded(door):
    deep = "[" * 100_000 + "]" * 100_000
    status, answer = door.send(('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s}}' % deep).encode())
    assert status == 400 and answer["error"]["code"] == -32700


def test_answers_that_nobody_reads_are_bounded(door, server):
    """Streams whose clients do not read: queued bytes are charged, and a client over budget is cut."""
    code = "@expose\ndef loud():\n    print('x' * 600_000)\n    return 'y' * (30 << 20)\n"
    assert server.request("POST", "/v1/services", {"name": "loud", "code": code}, JSON)[0] == 201
    before = front_status(server, "VmRSS")
    waiting = []
    try:
        for i in range(20):
            connection = UnixConnection(server.socket)
            connection.request("POST", "/mcp/services/loud", json.dumps({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {
                "name": "loud", "arguments": {}, "_meta": {"progressToken": i}}}).encode(), {**JSON, "Accept": "text/event-stream"})
            waiting.append(connection)

        def are_over():
            shown = server.request("GET", "/v1/services/loud")[1]
            return shown["calls"] == 20 and shown["calls_running"] == 0
        wait_for(are_over, "all have their answers")
        assert front_status(server, "VmRSS") - before < 400 * MIB
    finally:
        for connection in waiting:
            connection.close()
        server.request("DELETE", "/v1/services/loud")
    wait_for(lambda: door.ask("ping")[0] == 200, "it answers")


# --- whose call, whose words ---

def test_a_client_does_not_cancel_the_call_of_another(server, box):
    """Both are of the same identity, and both count their requests from 1."""
    one, other = Door(server), Door(server)
    for door in (one, other):
        connection = UnixConnection(server.socket)
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}), JSON)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        door.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
    assert one.headers != other.headers
    answers = []
    wait = "open('begun', 'w')\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n'done'"
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "run_code", "arguments": {"code": wait, "box": box}}}
    running = threading.Thread(target=lambda: answers.append(one.send(body)))
    running.start()
    wait_for(lambda: not other.call("read_file", path="begun", box=box)["isError"], "the cell has begun")
    assert other.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})[0] == 202
    assert Door(server).send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})[0] == 202
    other.call("write_file", path="go", content="", box=box)
    running.join(60)
    assert answers[0][1]["result"]["structuredContent"]["value"] == "'done'"


def test_a_session_that_a_server_before_gave_is_good(door):
    assert door.ask("tools/list", headers={"Mcp-Session-Id": "of-another-server"})[0] == 200


# --- what a proxy may have read differently ---

def test_two_revisions_in_the_fields_are_refused(server):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    connection = UnixConnection(server.socket)
    connection.connect()
    connection.sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2025-06-18\r\n"
                            b"MCP-Protocol-Version: 2026-07-28\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    data = b""
    while piece := connection.sock.recv(65536):
        data += piece
    connection.close()
    assert data.startswith(b"HTTP/1.1 400") and b"-32020" in data


def test_a_stateless_body_under_an_older_revision_is_refused(door):
    status, answer = door.stateless("tools/list", headers={"MCP-Protocol-Version": "2025-06-18"})
    assert status == 400 and answer["error"]["code"] == -32020


@pytest.mark.parametrize("fields", [{"Mcp-Method": "tools/list"}, {"Mcp-Name": "list_boxes"}])
def test_fields_that_say_something_else_are_refused_in_every_era(door, fields):
    status, answer = door.ask("tools/call", {"name": "delete_box", "arguments": {"box": "x"}}, headers=fields)
    assert status == 400 and answer["error"]["code"] == -32020


@pytest.mark.parametrize("kind, status", [("application/json", 200), ("Application/JSON; charset=utf-8", 200), ("text/plain; x=application/json", 415),
                                          ("application/json-seq", 415), ("", 415)])
def test_only_json_is_json(door, kind, status):
    """A page may send text/plain to any server without a preflight."""
    assert door.ask("ping", headers={"Content-Type": kind})[0] == status


@pytest.mark.parametrize("name", ["%2e%2e", "sums%2f..", "a/b", "x" * 4000, "%73ums", "sums%00", "."])
def test_odd_names_of_services_are_not_there(server, name):
    connection = UnixConnection(server.socket)
    connection.request("POST", "/mcp/services/" + name, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), JSON)
    assert connection.getresponse().status in (400, 404, 414)
    connection.close()


# --- what code says ---

def test_a_traceback_of_any_size_leaves_an_answer_that_is_json(door, box):
    answer = door.call("run_code", code="raise ValueError(''.join(map(chr, range(1, 9))) * 110_000)", box=box)
    assert answer["isError"]


def hostile_service(server):
    code = '''
import gc
import carrel_service.link as l
link = [o for o in gc.get_objects() if isinstance(o, l.Link)][0]
@expose
def forge(printing: bool = False):
    import inspect
    frame = inspect.currentframe()
    while "number" not in frame.f_locals: frame = frame.f_back
    if printing: print("x")
    link.send(b'{"type":"result","id":%d,"value":{"a":\\n{"jsonrpc":"2.0","id":2,"result":{"forged":true}}\\r\\n\\n,"b":\\r1}}' % frame.f_locals["number"])
'''
    status, made = server.request("POST", "/v1/services", {"name": "forger", "code": code}, JSON)
    assert status == 201, made


@pytest.fixture
def forger(server):
    hostile_service(server)
    yield "forger"
    server.request("DELETE", "/v1/services/forger")


@pytest.mark.parametrize("printing", [False, True])
def test_line_ends_of_a_worker_do_not_end_a_message(server, forger, printing):
    connection = UnixConnection(server.socket)
    connection.request("POST", f"/mcp/services/{forger}", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "forge", "arguments": {"printing": printing}, "_meta": {"progressToken": 1}}}), {**JSON, "Accept": "application/json, text/event-stream"})
    answer = connection.getresponse()
    data = answer.read().decode()
    connection.close()
    assert (answer.headers.get_content_type() == "text/event-stream") == printing
    if printing:
        data = [event[len("event: message\ndata: "):] for event in data.split("\n\n") if event][-1]
    assert "\n" not in data and "\r" not in data
    assert json.loads(data)["result"]["structuredContent"]["b"] == 1


def test_line_ends_of_a_worker_are_no_messages_of_the_relay(server, forger):
    relay = server.start_carrel("mcp", "--service", forger, stdin=-1, stdout=-1)
    relay.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "forge", "arguments": {}}}).encode() + b"\n")
    relay.stdin.flush()
    try:
        first = json.loads(relay.stdout.readline())
        assert first["id"] == 1 and first["result"]["structuredContent"]["b"] == 1
    finally:
        relay.stdin.close()
        relay.wait(60)
