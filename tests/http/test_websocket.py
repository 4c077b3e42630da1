"""WebSockets, against the websockets library and against raw frames."""
import base64
import hashlib
import os
import struct
import time

import pytest
import websockets
from websockets.sync.client import connect as websocket_connect

from conftest import DEADLINE, Answer, get

KEY = base64.b64encode(b"0123456789abcdef").decode()
UPGRADE = ("Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + KEY)


def connect(uri, **options):
    return websocket_connect(uri, open_timeout=DEADLINE, close_timeout=DEADLINE, **options)


def frame(first, payload=b"", mask=b"\x01\x02\x03\x04"):
    n = len(payload)
    size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
    return bytes([first]) + size + mask + bytes(b ^ mask[i & 3] for i, b in enumerate(payload))


def read_frame(f):
    first, size = f.read(2)
    assert not size & 0x80, "a server does not mask"
    if size == 126:
        size = struct.unpack(">H", f.read(2))[0]
    elif size == 127:
        size = struct.unpack(">Q", f.read(8))[0]
    return first, f.read(size)


@pytest.fixture
def raw(server):
    """An upgraded connection: (socket, file)."""
    with server.connect() as s:
        s.sendall(get("/ws", *UPGRADE))
        f = s.makefile("rb")
        a = Answer(f)
        assert a.status == 101
        accept = hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        assert a.head["sec-websocket-accept"] == base64.b64encode(accept).decode()
        yield s, f


def test_echo_with_the_websockets_library(server):
    with connect("ws://127.0.0.1:%d/ws" % server.port, max_size=None) as w:
        for message in ["", "hällo", b"", b"\0\xff", "x" * 125, "x" * 126, "x" * 65535, b"y" * 65536, os.urandom(3_000_000)]:
            w.send(message)
            assert w.recv(timeout=DEADLINE) == message
        w.send(["frag", "men", "ted"])
        assert w.recv(timeout=DEADLINE) == "fragmented"
        assert w.ping().wait(DEADLINE)
    server.wait_line("ws closed 1000 ")


def test_many_messages_in_flight(server):
    with connect("ws://127.0.0.1:%d/ws" % server.port) as w:
        for i in range(2000):
            w.send(str(i))
        for i in range(2000):
            assert w.recv(timeout=DEADLINE) == str(i)


@pytest.mark.parametrize("offered, agreed", [
    ([], None), (["echo"], "echo"), (["other"], None), (["echo", "v1.kernel.websocket.jupyter.org"], "v1.kernel.websocket.jupyter.org"),
])
def test_subprotocols(server, offered, agreed):
    with connect("ws://127.0.0.1:%d/ws" % server.port, subprotocols=offered or None) as w:
        assert w.subprotocol == agreed


def test_the_server_closes(server):
    with connect("ws://127.0.0.1:%d/ws" % server.port) as w:
        w.send("close")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            w.recv(timeout=DEADLINE)
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as you wish")
    server.wait_line("ws closed 4001 as you wish")


def test_too_large_a_message_is_1009(server):
    with connect("ws://127.0.0.1:%d/ws?max=1000" % server.port) as w:
        w.send("x" * 1000)
        assert len(w.recv(timeout=DEADLINE)) == 1000
        w.send("x" * 1001)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            w.recv(timeout=DEADLINE)
    assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("data, code", [
    (b"\x81\x05hello", 1002), (b"\xc1\x80\0\0\0\0", 1002), (frame(0x83), 1002), (frame(0x80, b"x"), 1002), (frame(0x09), 1002),
    (frame(0x01, b"a") + frame(0x81, b"b"), 1002), (frame(0x81, b"\xff\xfe"), 1007), (frame(0x88, b"\x03"), 1002),
    (frame(0x88, b"\x03\xed"), 1002), (frame(0x88, b"\x03\xe8\xff"), 1007), (frame(0x88), None), (frame(0x88, b"\x0f\xa0bye"), 4000),
])
def test_frames_that_end_it(raw, data, code):
    s, f = raw
    s.sendall(data)
    first, payload = read_frame(f)
    assert first == 0x88
    assert (struct.unpack(">H", payload[:2])[0] if payload else None) == code
    assert f.read() == b""


def test_frames_byte_by_byte_with_a_ping_inside_a_message(raw):
    s, f = raw
    for byte in frame(0x01, b"one ") + frame(0x89, b"p") + frame(0x80, b"two"):
        s.sendall(bytes([byte]))
    assert read_frame(f) == (0x8a, b"p")
    assert read_frame(f) == (0x81, b"one two")


def test_frames_that_come_with_the_upgrade(server):
    with server.connect() as s:
        s.sendall(get("/ws", *UPGRADE) + frame(0x81, b"early"))
        f = s.makefile("rb")
        assert Answer(f).status == 101
        assert read_frame(f) == (0x81, b"early")


@pytest.mark.parametrize("headers, status", [
    ((), 426),
    (UPGRADE[:2] + ("Sec-WebSocket-Version: 8", UPGRADE[3]), 426),
    (UPGRADE[:3], 400),
    (UPGRADE[:3] + ("Sec-WebSocket-Key: c2hvcnQ=",), 400),
    (UPGRADE[:3] + ("Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!==",), 400),
    (UPGRADE[:1] + UPGRADE[2:], 426),
])
def test_upgrades_that_are_refused(server, headers, status):
    a = server.ask(get("/ws", *headers))
    assert a.status == status
    assert status != 426 or a.head["sec-websocket-version"] == "13"


def test_a_vanished_client_is_noticed(server):
    with server.connect() as s:
        s.sendall(get("/ws", *UPGRADE))
        assert Answer(s.makefile("rb")).status == 101
    server.wait_line("ws closed 1006 ")


def test_a_silent_client_is_pinged_then_cut(server):
    seen, end = 0, time.monotonic() + DEADLINE
    while not seen:                             # again if we were too late with our pong
        assert time.monotonic() < end, "a pong does not help"
        with server.connect() as s:
            s.sendall(get("/ws?ping_ms=100", *UPGRADE))
            f = s.makefile("rb")
            assert Answer(f).status == 101
            try:
                assert read_frame(f) == (0x89, b"")
                s.sendall(frame(0x8a))
                while f.read(2) == b"\x89\0":
                    seen += 1
            except ConnectionError:
                assert not seen
        server.wait_line("ws closed 1006 ")
    assert seen <= 3


def test_a_client_that_does_not_read_is_held_back(start):
    s = start(fast=True)
    with s.connect(receive_buffer=16384) as c:
        c.sendall(get("/ws", *UPGRADE))
        f = c.makefile("rb")
        assert Answer(f).status == 101
        c.settimeout(1)
        message, sent = frame(0x82, b"z" * 100_000), 0
        with pytest.raises(TimeoutError):       # the echo blocks, so the server stops reading, so we block
            while sent < 2000:
                c.sendall(message)
                sent += 1
        assert sent < 1000
        assert s.memory_kb() < 30_000
        s.assert_rests()
        c.settimeout(DEADLINE)
        for _ in range(sent):                   # nothing was lost
            assert read_frame(f) == (0x82, b"z" * 100_000)
