"""The WebSocket client against a server of the test's own, with and without asyncio."""
import asyncio
import time

import pytest

import carrel.ws as ws
from support.waiting import wait_for
from wsserver import Server, accept_of, frame, read_frame

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Threads:
    """Both clients under one set of calls."""

    def __init__(self, url, **options):
        self.it = ws.WebSocket(url, **options)

    def send(self, message):
        self.it.send(message)

    def recv(self, timeout=60):
        return self.it.recv(timeout)

    def close(self):
        self.it.close()


class Asyncio:
    def __init__(self, url, **options):
        self.loop = asyncio.new_event_loop()
        try:
            self.it = self.loop.run_until_complete(ws.AsyncWebSocket.connect(url, **options))
        except BaseException:
            self.loop.close()
            raise

    def send(self, message):
        self.loop.run_until_complete(self.it.send(message))

    def recv(self, timeout=60):
        return self.loop.run_until_complete(self.it.recv(timeout))

    def close(self):
        if self.loop.is_closed():
            return
        self.loop.run_until_complete(self.it.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture
def serve():
    servers = []

    def start(talk, head=None):
        servers.append(Server(talk, head))
        return servers[-1]
    yield start
    for it in servers:
        it.close()


@pytest.fixture(params=[Threads, Asyncio])
def client(request, serve):     # closed before the server
    opened = []

    def connect(url, **options):
        opened.append(request.param(url, **options))
        return opened[-1]
    yield connect
    for it in opened:
        it.close()


def echo(sock):
    while True:
        opcode, data = read_frame(sock)
        sock.sendall(frame(opcode, data))
        if opcode == CLOSE:
            return


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 3 << 20])
def test_messages_of_all_sizes_come_back(client, serve, size):
    it = client(serve(echo).url)
    text = ("ü€" * (size // 5 + 1))[:size]
    it.send(text)
    assert it.recv() == text
    it.send(b"\xff" * size)
    assert it.recv() == b"\xff" * size


def test_the_request_is_what_the_standard_wants(client, serve):
    server = serve(echo)
    client(server.url, headers={"Authorization": "token x"})
    head = server.requests[0].decode().split("\r\n")
    assert head[0] == "GET /some/where?x=1 HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in head[1:] if line)
    assert fields["Host"] == f"127.0.0.1:{server.port}" and fields["Authorization"] == "token x"
    assert (fields["Upgrade"], fields["Connection"], fields["Sec-WebSocket-Version"]) == ("websocket", "Upgrade", "13")
    assert "Sec-WebSocket-Extensions" not in fields


def test_fragments_and_pings_between_them(client, serve):
    answers = []

    def talk(sock):
        sock.sendall(frame(TEXT, b"\xc3", first=0) + frame(PING, b"there?") + frame(0, b"\xbc", first=0) + frame(0, b"!"))
        answers.append(read_frame(sock))
        sock.sendall(frame(TEXT, b"thanks"))
        read_frame(sock)
    it = client(serve(talk).url)
    assert it.recv() == "ü!" and it.recv() == "thanks"
    assert answers == [(PONG, b"there?")]


def test_what_comes_byte_by_byte(client, serve):
    def talk(sock):
        for byte in frame(TEXT, b"x" * 300) + frame(BINARY, b"y"):
            sock.sendall(bytes([byte]))
        read_frame(sock)
    it = client(serve(talk).url)
    assert it.recv() == "x" * 300 and it.recv() == b"y"


def test_what_comes_together_with_the_handshake(client, serve):
    def head(key):
        return (f"HTTP/1.1 101 x\r\nupgrade: WebSocket\r\nconnection: keep-alive, upgrade\r\nsec-websocket-accept: {accept_of(key)}\r\n\r\n"
                ).encode() + frame(TEXT, b"at once")
    assert client(serve(read_frame, head).url).recv() == "at once"


@pytest.mark.parametrize("bad,code", [
    (frame(TEXT, b"x", first=0xC0), 1002),                      # a reserved bit
    (frame(TEXT, b"x", mask=b"abcd"), 1002),                    # masked
    (frame(3, b"x"), 1002),                                     # unknown
    (frame(PING, b"x" * 126), 1002),                            # a long control frame
    (frame(PING, b"x", first=0), 1002),                         # a control frame in parts
    (frame(0, b"x"), 1002),                                     # a continuation of nothing
    (frame(TEXT, b"x", first=0) + frame(TEXT, b"y"), 1002),     # a message in a message
    (b"\x81\x7e\x00\x05hello", 1002),                           # a length not in its shortest form
    (b"\x81\x7f" + b"\0" * 7 + b"\x05hello", 1002),
    (b"\x81\x7f" + b"\xff" * 8, 1009),                          # a length that cannot be
    (frame(TEXT, b"\xff"), 1007),                               # not UTF-8
    (frame(CLOSE, b"\x03"), 1002),                              # half a code
    (frame(CLOSE, b"\x03\xed"), 1002),                          # 1005 is never sent
    (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    (frame(TEXT, b"x" * 1001), 1009),                           # over the bound
    (frame(TEXT, b"x" * 600, first=0) + frame(0, b"x" * 600), 1009),
])
def test_a_server_that_breaks_the_rules_is_left(client, serve, bad, code):
    goodbye = []

    def talk(sock):
        sock.sendall(bad)
        goodbye.append(read_frame(sock))
        assert sock.recv(1) == b""
    server = serve(talk)
    it = client(server.url, max_size=1000)
    with pytest.raises(ws.ProtocolError) as caught:
        it.recv()
    assert caught.value.close_code == code
    with pytest.raises(ws.WebSocketError):
        it.send("more")
    it.close()
    wait_for(lambda: goodbye, "the server has heard of it")
    assert goodbye == [(CLOSE, code.to_bytes(2, "big"))]


def head_with(**changes):
    def head(key):
        fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept_of(key), **changes}
        return ("HTTP/1.1 101 x\r\n" + "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode()
    return head


@pytest.mark.parametrize("head", [
    head_with(Upgrade="h2c"), head_with(Connection="close"), head_with(**{"Sec-WebSocket-Accept": "wrong"}),
    head_with(**{"Sec-WebSocket-Extensions": "permessage-deflate"}), head_with(**{"Sec-WebSocket-Protocol": "other"}),
    lambda key: b"HTTP/1.1 101 x\r\n" + b"x: " + b"y" * (1 << 17) + b"\r\n\r\n",
])
def test_a_handshake_that_is_wrong_is_refused(client, serve, head):
    with pytest.raises(ws.WebSocketError):
        client(serve(lambda sock: sock.recv(1), head).url)


def test_a_refusal_tells_the_status_and_the_words(client, serve):
    server = serve(lambda sock: None, lambda key: b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nno kernel")
    with pytest.raises(ws.WebSocketRefused, match="404.*no kernel") as caught:
        client(server.url)
    assert caught.value.status == 404


def test_a_close_tells_code_and_reason(client, serve):
    it = client(serve(lambda sock: sock.sendall(frame(CLOSE, (4001).to_bytes(2, "big") + b"bye")) or read_frame(sock)).url)
    for _ in range(2):
        with pytest.raises(ws.WebSocketClosed, match="bye") as caught:
            it.recv()
        assert caught.value.close_code == 4001


def test_an_end_without_a_close_is_1006(client, serve):
    it = client(serve(lambda sock: None).url)
    with pytest.raises(ws.WebSocketClosed) as caught:
        it.recv()
    assert caught.value.close_code == 1006


def test_a_timeout_leaves_the_connection_usable(client, serve):
    it = client(serve(echo).url)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        it.recv(0.2)
    assert time.monotonic() - begin > 0.15
    it.send("still here")
    assert it.recv() == "still here"


def test_a_server_that_is_silent_for_good_is_noticed(client, serve, monkeypatch):
    monkeypatch.setattr(ws, "PING_AFTER", 0.2)
    pings = []

    def talk(sock):
        pings.append(read_frame(sock)[0])
        sock.recv(1)
    it = client(serve(talk).url)
    with pytest.raises(ws.WebSocketClosed, match="silent"):
        it.recv(60)
    wait_for(lambda: pings, "the server has seen a ping")
    assert pings == [PING]


def test_a_server_that_answers_pings_may_think_as_long_as_it_wants(client, serve, monkeypatch):
    monkeypatch.setattr(ws, "PING_AFTER", 0.1)
    encode, feed = ws.encode_frame, ws.Frames.feed

    # Only the silence before a ping is short here: how soon a thread answers it is up to the machine.
    def sent(opcode, data):
        ws.PING_AFTER = 60 if opcode == PING else ws.PING_AFTER
        return encode(opcode, data)

    def fed(self, data):
        ws.PING_AFTER = 0.1
        return feed(self, data)
    monkeypatch.setattr(ws, "encode_frame", sent)
    monkeypatch.setattr(ws.Frames, "feed", fed)

    def talk(sock):
        for _ in range(3):
            opcode, data = read_frame(sock)
            assert opcode == PING
            sock.sendall(frame(PONG, data))
        sock.sendall(frame(TEXT, b"at last"))
        read_frame(sock)
    assert client(serve(talk).url).recv(100) == "at last"


def test_nobody_listens(client):
    with pytest.raises(ws.WebSocketError, match="cannot reach"):
        client("ws://127.0.0.1:1/")
