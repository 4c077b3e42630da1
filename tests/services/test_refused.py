"""What a function was refused by the network of its box is told in the answer to its call."""
import contextlib
import os
import signal

import pytest

from support.client import lines

CODE = """
import socket

def ask(name):
    try:
        socket.getaddrinfo(name, 80)
    except OSError:
        print("over", flush=True)
        raise

@expose
def fetch(name: str): ask(name)
@expose
def try_to_fetch(name: str):
    try: ask(name)
    except OSError: return "not there"
@expose
def nothing(): return 1
@expose
async def ping(): return "pong"
"""
REFUSED = {"message": "this box has no network: other.test was refused", "rule": "other.test", "is_index": False}


@pytest.fixture
def service(create):
    return create(CODE)


@contextlib.contextmanager
def standing_still(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_call_tells_what_it_was_refused_and_the_next_one_does_too(service):
    for _ in range(4):
        answer = service.ask("fetch", "other.test").json
        assert not answer["ok"] and answer["error"]["type"] == "gaierror" and answer["refused"] == REFUSED
        answer = service.ask("nothing").json
        assert answer == {"ok": True, "result": 1}


def test_a_streamed_call_tells_what_it_was_refused(service):
    last = service.stream("fetch", "other.test")[-1]
    assert last["type"] == "result" and last["refused"] == REFUSED


def test_a_holder_of_a_grant_is_told_what_its_call_was_refused(service, grant, box, run):
    grant(service, box=box)
    status, answer = run(box, "print(json.dumps(call('fetch', 'other.test')))")
    assert status == 200 and answer["refused"] == REFUSED, answer


def test_the_command_line_tells_what_a_call_was_refused(service, server):
    done = server.carrel("service", "call", service.name, "fetch", "other.test")
    assert done.returncode == 1
    assert done.stderr.endswith("carrel: this box has no network: other.test was refused; allow it with --allow other.test\n")


def test_a_tool_tells_what_it_was_refused(service, alice):
    def use(tool, **arguments):
        answer = alice.post(f"/mcp/services/{service.name}",
                            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
                            headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"})
        return answer.json["result"]

    failed = use("fetch", name="other.test")
    box = service.show()["box"]
    line = f"[this box has no network: other.test was refused; you cannot allow it, your user can: carrel net {box} --allow other.test]"
    assert failed["isError"] and failed["content"][0]["text"].rstrip().endswith(line), failed
    assert use("nothing") == {"content": [{"type": "text", "text": "1"}], "isError": False}


def test_a_call_that_failed_waits_for_the_name_that_it_was_refused(service, server):
    """The name comes over the keeper, which stands still here until the worker has answered."""
    with standing_still(server.keeper_pid()):
        answer = service.open("fetch", "other.test")
        events = lines(answer)
        assert any("over" in str(event) for event in events)
        for _ in range(3):      # the worker's answers come in their order
            assert service.call("ping") == "pong"
    last = list(events)[-1]
    assert last["type"] == "result" and last["refused"] == REFUSED, last
    assert service.call("nothing") == 1


def test_a_call_whose_caller_goes_while_it_waits_leaves_a_service_that_works(service, server):
    with standing_still(server.keeper_pid()):
        answer = service.open("fetch", "other.test")
        assert any("over" in str(event) for event in lines(answer))
        assert service.call("ping") == "pong"
        answer.connection.close()
        assert service.call("ping") == "pong"
    assert service.call("nothing") == 1
    assert service.ask("fetch", "other.test").json["refused"] == REFUSED
