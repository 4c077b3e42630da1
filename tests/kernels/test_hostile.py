"""Kernels that break every rule of the link: each is ended with a reason, or its messages are harmless; the server and other kernels are not affected."""
import json
import os

import pytest

from conftest import Kernels
from support.server import limits
from support.waiting import wait_for
from test_run import result

HEADER = '{"msg_id":"a","msg_type":"stream"}'
BREAKERS = {
    "a packet without contents": "link.socket.send(struct.pack('<II', 100, 0))",
    "half a packet header": "link.socket.send(b'abc')",
    "an empty packet": "link.socket.send(b'')",
    "a packet that is too large": "link.socket.send(struct.pack('<II', 200000, 0) + b'x' * 140000)",
    "a message of four gigabytes": "link.socket.send(struct.pack('<II', 0xffffffff, 0) + b'x' * 1000)",
    "a message of 65 megabytes": "link.socket.send(struct.pack('<II', 65 << 20, 0) + b'x' * 1000)",
    "a packet beyond its message": "link.socket.send(struct.pack('<II', 60, 0) + b'x' * 100)",
    "a packet at another offset": "link.socket.send(struct.pack('<II', 1000, 0) + b'x' * 100); link.socket.send(struct.pack('<II', 1000, 300) + b'x')",
    "a packet of another size": "link.socket.send(struct.pack('<II', 1000, 0) + b'x' * 100); link.socket.send(struct.pack('<II', 999, 100) + b'x')",
    "no offsets": "link.send_bytes(struct.pack('<7Q', *[0] * 7))",
    "too many offsets": "link.send_bytes(struct.pack('<Q', 1 << 62) + b'x' * 100)",
    "offsets that go back": "link.send_bytes(struct.pack('<7Q', 6, 56, 70, 60, 61, 62, 63) + b'x' * 7)",
    "offsets beyond the end": "link.send_bytes(struct.pack('<7Q', 6, 56, 57, 58, 59, 60, 1 << 60) + b'x' * 7)",
    "an end before the end": "link.send_bytes(link.pack('iopub', *[b'{}'] * 4) + b'more')",
    "an unknown channel": "link.send_bytes(link.pack('nope', %r, b'{}', b'{}', b'{}'))" % HEADER.encode(),
    "a header without an id": "link.send_bytes(link.pack('iopub', b'{}', b'{}', b'{}', b'{}'))",
    "a header that is a list": "link.send_bytes(link.pack('iopub', b'[]', b'{}', b'{}', b'{}'))",
    "broken JSON": "link.send_bytes(link.pack('iopub', %r, b'{}', b'{}', b'{\"a\": }'))" % HEADER.encode(),
    "a number that JSON does not have": "link.send_bytes(link.pack('iopub', %r, b'{}', b'{}', b'{\"a\": NaN}'))" % HEADER.encode(),
    "bytes that are not UTF-8": "link.send_bytes(link.pack('iopub', %r, b'{}', b'{}', b'{\"a\": \"\\xff\"}'))" % HEADER.encode(),
    "JSON of a million levels": "link.send_bytes(link.pack('iopub', %r, b'{}', b'{}', b'{\"a\":' + b'[' * 1000000 + b']' * 1000000 + b'}'))" % HEADER.encode(),
    "an id of a megabyte": "link.send_bytes(link.pack('iopub', b'{\"msg_id\":\"' + b'x' * 1000000 + b'\",\"msg_type\":\"stream\"}', b'{}', b'{}', b'{}'))",
    "a closed link": "link.socket.close(); os.close(0)",
}


@pytest.fixture(scope="module")
def crowd(alice):
    """One box for all of them, and a kernel that must go on."""
    answer = alice.post("/v1/boxes", {"template": "python", "limits": limits(memory="1G", pids=256)})
    box = Kernels(alice, answer.json["id"])
    box.run("x = 7", context="witness")
    yield box
    alice.delete(box.path)


@pytest.mark.parametrize("what", BREAKERS)
def test_what_breaks_the_rules_ends_its_kernel_with_a_reason(crowd, server, what):
    front = server.front_pid()
    answer = crowd.run(BREAKERS[what] + "\ntime.sleep(1000)")
    assert answer["kernel"]["state"] == "dead"
    assert answer["outcome"] in ("died", "output_limit") and "kernel was ended because it" in answer["reason"], answer
    assert crowd.run(result("x"), context="witness")["results"][0]["data"]["text/plain"] == "7" and server.front_pid() == front


SEND_FILE = """
import socket
try:
    socket.send_fds(link.socket, [struct.pack('<II', 1000, 0)], [os.memfd_create('large')])
    said = 'sent'
except OSError as e:
    said = e.__class__.__name__
link.send('iopub', 'stream', {'name': 'stdout', 'text': said}, header)
"""


@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 16), reason="SO_PASSRIGHTS came with Linux 6.16")
def test_a_link_takes_no_descriptors(crowd):
    """The front would close them, and the last close of a large file in memory holds it up for all."""
    assert crowd.run(SEND_FILE, context="sender")["stdout"] == "PermissionError"


def test_a_message_that_is_begun_anew_replaces_the_half_one(crowd):
    answer = crowd.run("link.socket.send(struct.pack('<II', 1000, 0) + b'x' * 100); link.send('iopub', 'stream', {'name': 'stdout', 'text': 'ok'}, header)")
    assert answer["outcome"] == "ok" and answer["stdout"] == "ok"


def test_messages_for_others_are_nobodys(crowd, pool):
    """A parent id of no request, one of another context, a reply to nothing."""
    crowd.run("1", context="b")
    other = pool.submit(crowd.run, "time.sleep(1); print('mine', flush=True)", context="b")
    wait_for(lambda: crowd.kernel("b")["state"] == "busy")
    forge = "\n".join([
        "for parent in ({'msg_id': 'nobody'}, {'msg_id': 'fake_1', 'session': 'x'}, {}):",
        "    link.send('iopub', 'stream', {'name': 'stdout', 'text': 'forged'}, parent)",
        "    link.send('shell', 'execute_reply', {'status': 'ok'}, parent)",
        "    link.send('iopub', 'status', {'execution_state': 'idle'}, parent)"])
    answer = crowd.run(forge + "\nprint('end', flush=True)")
    assert answer["outcome"] == "ok" and answer["stdout"] == "end\n"
    assert other.result()["stdout"] == "mine\n"


def test_no_line_of_a_stream_can_be_forged(crowd):
    """A line end between the tokens of a kernel's JSON is a blank for JSON, but a new line for a client."""
    content = '{"data":{"a":[\\n{"type":"outcome","outcome":"ok","forged":true}\\n]},\\r\\n"metadata":{},"transient":{}}'
    code = "link.send_bytes(link.pack('iopub', b'{\"msg_id\":\"a\",\"msg_type\":\"display_data\"}', json.dumps(header).encode(), b'{}', '%s'.encode()))" % content
    events = crowd.stream(code)
    assert [e["type"] for e in events] == ["display", "outcome"] and "forged" not in events[1]
    assert events[0]["data"] == {"a": [{"type": "outcome", "outcome": "ok", "forged": True}]}


def test_odd_contents_are_passed_on_or_left_out(crowd):
    code = """
link.send('iopub', 'stream', {'name': 'stdout', 'text': 5}, header)
link.send('iopub', 'stream', {'name': ['stderr'], 'text': 'a\\ud83d\\ude00\\udc80'}, header)
link.send('iopub', 'execute_result', {}, header)
link.send('iopub', 'error', {}, header)
link.send('iopub', 'comm_open', {'x': 1}, header, [b'bytes', b''])
link.send('control', 'who_knows', {}, header)
"""
    answer = crowd.run(code)
    assert answer["outcome"] == "ok" and answer["stdout"] == "a😀\udc80" and answer["results"][0]["data"] == {}
    assert answer["error"] == {"type": "error", "name": "", "value": "", "traceback": []}


def test_endless_messages_do_not_stop_the_server(crowd, server, alice):
    """A thread that prints for ever after its cell, without listeners."""
    code = """
import threading
go = threading.Event()
def flood(header):
    go.wait()
    while True: link.send('iopub', 'stream', {'name': 'stdout', 'text': 'y' * 10000}, header)
threading.Thread(target=flood, args=(header,), daemon=True).start()
"""
    before = server.front_bytes()
    assert crowd.run(code, context="flood")["outcome"] == "ok" and crowd.run("go.set()", context="flood")["outcome"] == "ok"
    for _ in range(40):
        assert crowd.run("1", context="witness")["outcome"] == "ok"
    assert server.front_bytes() - before < 64 << 20
    assert alice.delete(crowd.path + "/kernels/flood").status == 204


def test_a_million_displays_are_bounded(crowd, server):
    before = server.front_bytes()
    code = """
m = link.pack('iopub', b'{"msg_id":"a","msg_type":"display_data"}', json.dumps(header).encode(), b'{}', b'{"data":{"text/plain":"x"},"metadata":{},"transient":{}}')
m = struct.pack('<II', len(m), 0) + m
for i in range(100000): link.socket.send(m)
"""
    answer = crowd.run(code, output_limit="2M", timeout=100)
    assert answer["outcome"] == "output_limit" and 1000 < len(answer["results"]) < 100000
    assert server.front_bytes() - before < 64 << 20


def test_descriptors_that_a_kernel_sends_are_not_kept(crowd, server):
    crowd.run("1")
    fds = len(os.listdir(f"/proc/{server.front_pid()}/fd"))
    send = "socket.send_fds(link.socket, [struct.pack('<II', 1000, 0) + b'x'], [1, 2])"
    answer = crowd.run(f"import socket\nfor i in range(100):\n    try: {send}\n    except PermissionError: pass       # from Linux 6.16 on")
    assert answer["outcome"] == "ok" and wait_for(lambda: len(os.listdir(f"/proc/{server.front_pid()}/fd")) <= fds + 2)


def test_a_kernel_that_does_not_read_is_told_no_more(crowd):
    """What waits for it has a bound."""
    crowd.run("1", context="deaf")
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(crowd.run, "time.sleep(1000)", context="deaf")
        wait_for(lambda: crowd.kernel("deaf")["state"] == "busy")
        question = json.dumps({"type": "inspect", "content": {"code": "x" * (9 << 20), "cursor_pos": 0}, "timeout": "10ms"})
        answers = [crowd.client.post(f"{crowd.path}/kernels/deaf/ask", question) for _ in range(8)]
        assert {a.status for a in answers} <= {429, 504} and answers[-1].status == 429
        assert crowd.client.delete(crowd.path + "/kernels/deaf").status == 204 and running.result()["outcome"] == "killed"


def test_os_fork_in_a_cell_leaves_one_kernel(crowd):
    answer = crowd.run("p = os.fork()\nif p == 0: os._exit(0)\nos.waitpid(p, 0); print('parent', flush=True)")
    assert answer["stdout"] == "parent\n" and json.dumps(answer)


@pytest.mark.cgroups
def test_a_link_that_floods_after_its_kernels_end_does_not_stop_the_server(make, crowd, server):
    """Children that the kernel leaves behind have the link, too, and are never silent."""
    front, box = server.front_pid(), make()
    code = """
import socket
m = link.pack('iopub', b'{"msg_id":"a","msg_type":"display_data"}', b'{}', b'{}', b'{"data":[0' + b',[]' * 40000 + b']}')       # quick to send, slow to check
m = struct.pack('<II', len(m), 0) + m
link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
begun = os.pipe()
for i in range(8):
    if os.fork() == 0:
        os.setsid()
        for k in range(1 << 40):
            if k == 10: os.write(begun[1], b'x')
            try: link.socket.send(m, socket.MSG_DONTWAIT)       # nobody sleeps until there is room
            except BlockingIOError: pass
            except OSError: os._exit(0)
for i in range(8): os.read(begun[0], 1)
link.send('iopub', 'stream', {'name': 'stdout', 'text': 'last words'}, header)
os._exit(3)
"""
    answer = box.run(code)
    assert answer["outcome"] == "died" and "status 3" in answer["reason"] and answer["stdout"] == "last words", answer
    assert crowd.run(result("x"), context="witness")["results"][0]["data"]["text/plain"] == "7" and server.front_pid() == front


@pytest.mark.parametrize("more, outcome", [({"timeout": 1}, "timeout"), ({"output_limit": 1000}, "output_limit")])
def test_saying_idle_and_busy_in_turns_does_not_outlive_a_bound(box, more, outcome):
    """Idle ends the ladder that stops a cell, and busy with the same id means that it continues."""
    code = """
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    link.send('iopub', 'status', {'execution_state': 'idle'}, header)
    link.send('iopub', 'status', {'execution_state': 'busy'}, header)
    link.send('iopub', 'stream', {'name': 'stdout', 'text': 'y' * 100}, header)
    time.sleep(.3)
"""
    answer = box.run(code, **more)
    assert answer["outcome"] == outcome, answer
    assert box.post("restart").status == 200 and box.run("pass")["outcome"] == "ok"


def test_a_kernel_whose_last_words_are_no_text_can_be_shown(make):
    """It dies while it starts, with bytes that are not UTF-8 on its stderr."""
    box = make()
    words = "Größe \N{SNOWMAN} ".encode() + b"a\xff\xc3(\xe2\x98"
    answer = box.run("1", env={"FAKE_LAST_WORDS": words.hex()})
    assert answer["outcome"] == "died" and answer["reason"].endswith(": Größe \N{SNOWMAN} a??(??"), answer
    assert box.kernel()["reason"] == answer["reason"]
    assert [k["reason"] for k in box.client.get(box.path + "/kernels").json["kernels"]] == [answer["reason"]]
