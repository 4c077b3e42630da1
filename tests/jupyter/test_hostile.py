"""Clients that break the rules are disconnected; others do not notice."""
import json
import os
import struct

import pytest

from support.client import WebSocket
from support.waiting import wait_for
from wire import V1, pack_v1

HEADER = {"msg_id": "m", "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3", "date": "2026-01-01T00:00:00Z"}
GOOD = {"header": HEADER, "parent_header": {}, "metadata": {}, "content": {"code": "1"}, "channel": "shell"}


def close_code(wire):
    with pytest.raises(EOFError):
        wire.until(lambda m: False)
    return wire.closed and wire.closed[0]


TEXTS = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"header":1}', b'{"header":{}}', b'{"header":{"msg_id":1,"msg_type":2}}', json.dumps({**GOOD, "channel": "hb"}).encode(),
         json.dumps({**GOOD, "content": []}).encode(), json.dumps({**GOOD, "header": {**HEADER, "msg_id": "x" * 5000}}).encode(),
         json.dumps({**GOOD, "header": {**HEADER, "note": "y" * 20000}}).encode(), json.dumps(GOOD).encode() + b"}", b'{"header":{"msg_id":"a\\ud800","msg_type":"x"}',
         b'{"a":' * 5000 + b"1" + b"}" * 5000, json.dumps(GOOD).encode()[:-1] + b',"z":"\xc3("}']


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_wrong_text(shared_kernel, connect, text):
    wire = connect(shared_kernel)
    wire.send(text, WebSocket.TEXT)
    assert close_code(wire) == 1007


def offsets(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


WHOLE = pack_v1(GOOD)
V1_FRAMES = [b"", b"\0" * 7, offsets(0), offsets(6), offsets(2 ** 64 - 1), offsets(5, 48, 48, 48, 48, 48), offsets(6, 0, 0, 0, 0, 0, 0), offsets(6, *[2 ** 63] * 6),
             offsets(6, 56, 55, 56, 56, 56, 56), offsets(6, *[56] * 6), WHOLE[:-1], offsets(100000) + WHOLE[8:], pack_v1({**GOOD, "channel": "hb"}),
             WHOLE.replace(b'"msg_id"', b'"msg_ix"'), WHOLE.replace(b"{}", b"[]"), os.urandom(500)]


@pytest.mark.parametrize("frame", V1_FRAMES, ids=range(len(V1_FRAMES)))
def test_wrong_new_frames(shared_kernel, connect, frame):
    wire = connect(shared_kernel, protocol=V1)
    wire.send(frame, WebSocket.BINARY)
    assert close_code(wire) in (1003, 1007)


BINARIES = [b"", b"\0\0\0", b"\0\0\0\0", b"\xff" * 4, struct.pack(">2I", 1, 4), struct.pack(">2I", 1, 9), struct.pack(">3I", 2, 12, 11) + b"{}", struct.pack(">2I", 1, 8) + b"{",
            struct.pack(">3I", 2, 12, 2 ** 32 - 1) + b"{}", os.urandom(300)]


@pytest.mark.parametrize("frame", BINARIES, ids=range(len(BINARIES)))
def test_wrong_old_binary_frames(shared_kernel, connect, frame):
    wire = connect(shared_kernel)
    wire.send(frame, WebSocket.BINARY)
    assert close_code(wire) in (1003, 1007)


def test_a_message_that_is_too_big(shared_kernel, connect):
    wire = connect(shared_kernel)
    # A header that promises 40 MB is enough.
    wire.sock.sendall(b"\x81\xff" + struct.pack(">Q", 40 << 20) + b"\0\0\0\0" + b"x" * 1000)
    assert close_code(wire) == 1009


def test_wrong_websocket_frames(shared_kernel, connect):
    for raw in [b"\x81\x05hello", b"\xf1\x80\0\0\0\0", b"\x83\x80\0\0\0\0", b"\x80\x80\0\0\0\0", b"\x09\x80\0\0\0\0"]:
        wire = connect(shared_kernel)
        wire.sock.sendall(raw)
        assert close_code(wire) == 1002


def test_others_do_not_notice(shared_kernel, connect):
    good = connect(shared_kernel)
    for text in TEXTS[:6]:
        connect(shared_kernel).send(text, WebSocket.TEXT)
    assert good.run("'fine'").result == ["'fine'"]


def test_a_client_that_does_not_read_is_cut_and_the_others_go_on(make_kernel, connect, server, alice):
    """More than every buffer holds; the memory of the front stays small."""
    kernel = make_kernel()
    lazy, eager = connect(kernel), connect(kernel)
    eager.run("1")
    before = server.front_bytes()
    id = eager.start("for i in range(400): print('x' * 100000)")
    size = 0
    for m in iter(eager.next, None):
        if m["parent_header"].get("msg_id") == id:
            size += len(m["content"].get("text", ""))
            if m["content"].get("execution_state") == "idle":
                break
    assert size >= 40_000_000
    assert server.front_bytes() - before < 100 << 20
    wait_for(lambda: alice.get(f"/api/kernels/{kernel}").json["connections"] == 1)
    assert eager.run("'here'").result == ["'here'"]
    lazy.close()


def test_what_a_kernel_shows_may_be_odd(shared_kernel, connect):
    wire = connect(shared_kernel)
    assert wire.run("print(chr(0x1F600))").text == "\U0001F600\n"
    assert wire.run("print('\\ud800')").reply["status"] in ("ok", "error")
    assert wire.run("float('nan')").result == ["nan"]
    assert wire.run("x = []; x.append(x); x").result == ["[[...]]"]
    bad = wire.run("class R:\n    def __repr__(self): raise ValueError('no')\nR()")
    assert bad.reply["status"] in ("ok", "error")
    shown = wire.run("from IPython.display import display; display({'application/json': {'a': 1}}, raw=True)")
    assert shown.of("display_data")[0]["content"]["data"]["application/json"] == {"a": 1}
    assert wire.run("'still here'").result == ["'still here'"]
