"""A small and strict WebSocket client (RFC 6455) without extensions, for threads and for asyncio.

`Frames` is the protocol without input and output: bytes go in, messages come out. Whatever a server must not send (a masked
frame, a reserved bit, a broken sequence of fragments, text that is not UTF-8, a message over the bound) ends the connection with the
code that the standard has for it."""
from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import struct
import time
from dataclasses import replace
from typing import Iterator, List, Mapping, Tuple, Union
from urllib.parse import urlsplit

from .errors import CarrelError
from .net import MAX_HEAD, Address, parse_address, parse_head, request_head
from .within import within

MAX_MESSAGE = 128 << 20
PING_AFTER = 20.0           # seconds of silence until we ask whether the other side is still there, and as many to wait for its answer
_CHUNK = 1 << 18
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUE, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10

Message = Union[str, bytes]
Event = Tuple[int, bytes]


class WebSocketError(CarrelError, ConnectionError):
    """The connection cannot be used, or no longer."""


class WebSocketRefused(WebSocketError):
    """The server did not open a WebSocket; `status` is its HTTP status."""


class WebSocketClosed(WebSocketError):
    """The connection has ended. `close_code` is the server's, 1006 if it gave none."""

    def __init__(self, close_code: int, reason: str = ""):
        super().__init__(f"the connection was closed ({close_code}{': ' + reason if reason else ''})", code="closed")
        self.close_code = close_code
        self.reason = reason


class ProtocolError(WebSocketError):
    """The server broke the protocol."""

    def __init__(self, message: str, close_code: int = 1002):
        super().__init__(message, code="protocol")
        self.close_code = close_code


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    pad = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(pad, "little")).to_bytes(size, "little")


def encode_frame(opcode: int, data: bytes) -> bytes:
    """One whole masked frame, as a client sends it."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    mask = os.urandom(4)
    return head + mask + _masked(data, mask)


class Frames:
    """Parses bytes of a server. An event is (opcode, data) of a whole message or of a control frame."""

    def __init__(self, max_size: int = MAX_MESSAGE):
        self._max = max_size
        self._buffer = bytearray()
        self._need = 2                  # the fewest bytes that can be parsed
        self._parts = bytearray()
        self._kind: int | None = None   # of the message whose fragments arrive

    def feed(self, data: bytes) -> List[Event]:
        self._buffer += data
        return list(self._events()) if len(self._buffer) >= self._need else []

    def _events(self) -> Iterator[Event]:
        while True:
            frame = self._frame()
            if frame is None:
                return
            event = self._take(*frame)
            if event is not None:
                yield event

    def _frame(self) -> tuple[int, bool, bytes] | None:
        """The next whole frame; None if it is incomplete."""
        have = self._buffer
        self._need = 2
        if len(have) < 2:
            return None
        first, second = have[0], have[1]
        final, opcode, short = bool(first & 0x80), first & 0x0F, second & 0x7F
        if first & 0x70:
            raise ProtocolError("a reserved bit is set")
        if second & 0x80:
            raise ProtocolError("a masked frame from a server")
        if opcode not in (_CONTINUE, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise ProtocolError(f"unknown opcode {opcode}")
        if opcode >= 8 and (short > 125 or not final):
            raise ProtocolError("a control frame that is too long or in parts")
        offset = {126: 4, 127: 10}.get(short, 2)
        if len(have) < offset:
            self._need = offset
            return None
        size = short
        if short == 126:
            size = struct.unpack_from("!H", have, 2)[0]
        elif short == 127:
            size = struct.unpack_from("!Q", have, 2)[0]
        if (short == 126 and size < 126) or (short == 127 and size < 1 << 16):
            raise ProtocolError("a length that is not written the short way")
        if opcode < 8 and len(self._parts) + size > self._max:
            raise ProtocolError(f"a message of more than {self._max} bytes", 1009)
        if len(have) < offset + size:
            self._need = offset + size
            return None
        with memoryview(have) as view:
            data = bytes(view[offset:offset + size])
        del have[:offset + size]
        return opcode, final, data

    def _take(self, opcode: int, final: bool, data: bytes) -> Event | None:
        if opcode >= 8:
            if opcode == _CLOSE:
                _check_close(data)
            return opcode, data
        if opcode == _CONTINUE:
            if self._kind is None:
                raise ProtocolError("a continuation of nothing")
        elif self._kind is not None:
            raise ProtocolError("a new message in the middle of another")
        else:
            if final:
                return opcode, data
            self._kind = opcode
        self._parts += data
        if not final:
            return None
        kind, whole = self._kind, bytes(self._parts)
        self._kind, self._parts = None, bytearray()
        assert kind is not None
        return kind, whole


def _check_close(data: bytes) -> None:
    if len(data) == 1:
        raise ProtocolError("half a close code")
    if data:
        code = int.from_bytes(data[:2], "big")
        if not (1000 <= code <= 1014 and code not in (1004, 1005, 1006) or 3000 <= code <= 4999):
            raise ProtocolError(f"close code {code}")
        try:
            data[2:].decode()
        except UnicodeDecodeError as e:
            raise ProtocolError("a reason that is not UTF-8", 1007) from e


class Handshake:
    """The opening of a connection, without input and output."""

    def __init__(self, url: str, headers: Mapping[str, str] | None, subprotocols: tuple[str, ...], unix: str | None):
        self.address: Address = replace(parse_address(url), unix=unix)
        self._subprotocols = subprotocols
        key = base64.b64encode(os.urandom(16))
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        fields = {**self.address.fields(), "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key.decode(),
                  "Sec-WebSocket-Version": "13", **(headers or {})}
        if subprotocols:
            fields["Sec-WebSocket-Protocol"] = ", ".join(subprotocols)
        parts = urlsplit(url)
        self.request = request_head("GET", (parts.path or "/") + ("?" + parts.query if parts.query else ""), fields)
        self.subprotocol: str | None = None

    def check(self, head: bytes, rest: bytes) -> None:
        status, fields = parse_head(head)
        if status != 101:
            said = rest[:2000].decode("utf-8", "replace").strip()
            raise WebSocketRefused(f"the server answered {status} instead of opening a WebSocket{': ' + said if said else ''}",
                                   code="refused", status=status)
        tokens = [t.strip().lower() for t in fields.get("connection", "").split(",")]
        if fields.get("upgrade", "").lower() != "websocket" or "upgrade" not in tokens:
            raise ProtocolError("the server agrees to something else than a WebSocket")
        if fields.get("sec-websocket-accept") != self._accept:
            raise ProtocolError("the server's answer does not belong to our key")
        if fields.get("sec-websocket-extensions"):
            raise ProtocolError("the server uses an extension that was not offered", 1010)
        self.subprotocol = fields.get("sec-websocket-protocol")
        if self.subprotocol is not None and self.subprotocol not in self._subprotocols:
            raise ProtocolError("the server uses a subprotocol that was not offered")


class _Common:
    """Shared by both clients: the queue of received messages, and automatic answers."""

    def __init__(self, max_size: int):
        self._frames = Frames(max_size)
        self._ready: list[Event] = []
        self._closed: WebSocketError | None = None
        self._asked = False             # a ping is on its way

    def _next(self) -> tuple[Message | None, bytes]:
        """The next message, if there is one, and bytes to send at once."""
        answer = b""
        while self._ready:
            opcode, data = self._ready.pop(0)
            self._asked = False
            if opcode == _TEXT:
                try:
                    return data.decode(), answer
                except UnicodeDecodeError as e:
                    raise ProtocolError("text that is not UTF-8", 1007) from e
            if opcode == _BINARY:
                return data, answer
            if opcode == _PING:
                answer += encode_frame(_PONG, data)
            elif opcode == _CLOSE:
                code = int.from_bytes(data[:2], "big") if data else 1005
                self._closed = WebSocketClosed(code, data[2:].decode())
                return None, answer + encode_frame(_CLOSE, data[:2])
        return None, answer


class WebSocket(_Common):
    """For threads. A context manager. With `unix` the connection goes to that socket, whatever host the URL names."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, subprotocols: tuple[str, ...] = (),
                 unix: str | None = None, timeout: float | None = 30, max_size: int = MAX_MESSAGE):
        super().__init__(max_size)
        self._early = b""               # bytes right after the handshake
        handshake = Handshake(url, headers, subprotocols, unix)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._sock: socket.socket = handshake.address.connect(timeout)
        except OSError as e:
            raise WebSocketError(f"cannot reach {url}: {e}", code="unreachable") from e
        try:
            self._send(handshake.request)
            self._open(handshake, deadline)
        except BaseException:
            self._sock.close()
            raise
        self.subprotocol = handshake.subprotocol

    def _open(self, handshake: Handshake, deadline: float | None) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            if len(data) > MAX_HEAD:
                raise ProtocolError("a head without an end")
            data += self._receive(deadline)
        head, _, rest = data.partition(b"\r\n\r\n")
        handshake.check(head, rest)
        self._early = rest

    def __enter__(self) -> "WebSocket":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        self._sock.settimeout(PING_AFTER * 2)
        try:
            self._sock.sendall(data)
        except OSError as e:
            self._closed = WebSocketError(f"the server does not take what is sent: {e}", code="closed")
            raise self._closed from e

    def _receive(self, deadline: float | None) -> bytes:
        if self._early:
            data, self._early = self._early, b""
            return data
        left = PING_AFTER if deadline is None else min(deadline - time.monotonic(), PING_AFTER)
        if left <= 0:
            raise TimeoutError("no message in time")
        self._sock.settimeout(left)
        try:
            data = self._sock.recv(_CHUNK)
        except socket.timeout:
            raise TimeoutError("no message in time") from None
        except OSError as e:
            raise WebSocketClosed(1006, str(e)) from e
        if not data:
            raise WebSocketClosed(1006)
        return data

    def send(self, message: Message) -> None:
        if self._closed is not None:
            raise self._closed
        text = isinstance(message, str)
        self._send(encode_frame(_TEXT if text else _BINARY, message.encode() if isinstance(message, str) else message))

    def recv(self, timeout: float | None = None) -> Message:
        """The next message. TimeoutError after `timeout` seconds; the connection can still be used then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                message, answer = self._next()
                if answer:
                    self._send(answer)
                if message is not None:
                    return message
                if self._closed is not None:
                    raise self._closed
                self._more(deadline)
        except WebSocketError as e:
            self._fail(e)
            raise

    def _more(self, deadline: float | None) -> None:
        try:
            self._ready += self._frames.feed(self._receive(deadline))
            self._asked = False
        except TimeoutError:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            if self._asked:
                raise WebSocketClosed(1006, "the server is silent") from None
            self._send(encode_frame(_PING, b""))
            self._asked = True

    def _fail(self, error: WebSocketError) -> None:
        if self._closed is None and isinstance(error, ProtocolError):
            try:
                self._send(encode_frame(_CLOSE, error.close_code.to_bytes(2, "big")))
            except WebSocketError:
                pass
        self._closed = self._closed or error
        self._sock.close()

    def close(self) -> None:
        """Says goodbye, without waiting for the answer."""
        if self._closed is None:
            self._closed = WebSocketClosed(1000)
            try:
                self._sock.settimeout(1)
                self._sock.sendall(encode_frame(_CLOSE, (1000).to_bytes(2, "big")))
            except OSError:
                pass
        self._sock.close()


class AsyncWebSocket(_Common):
    """For asyncio; made by `await AsyncWebSocket.connect(url)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_size: int):
        super().__init__(max_size)
        self._reader, self._writer = reader, writer
        self.subprotocol: str | None = None

    @classmethod
    async def connect(cls, url: str, *, headers: Mapping[str, str] | None = None, subprotocols: tuple[str, ...] = (),
                      unix: str | None = None, timeout: float | None = 30, max_size: int = MAX_MESSAGE) -> "AsyncWebSocket":
        handshake = Handshake(url, headers, subprotocols, unix)
        try:
            return await within(timeout, cls._connect(url, handshake, max_size))
        except asyncio.TimeoutError:
            raise TimeoutError(f"{url} does not answer") from None

    @classmethod
    async def _connect(cls, url: str, handshake: Handshake, max_size: int) -> "AsyncWebSocket":
        try:
            reader, writer = await handshake.address.open()
        except OSError as e:
            raise WebSocketError(f"cannot reach {url}: {e}", code="unreachable") from e
        it = cls(reader, writer, max_size)
        try:
            await it._send(handshake.request)
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError as e:
                raise ProtocolError("a head without an end") from e
            except (OSError, asyncio.IncompleteReadError) as e:
                raise WebSocketClosed(1006, str(e)) from e
            rest = b"" if head.startswith(b"HTTP/1.1 101") else await reader.read(2000)
            handshake.check(head, rest)
            it.subprotocol = handshake.subprotocol
        except BaseException:
            writer.close()
            raise
        return it

    async def __aenter__(self) -> "AsyncWebSocket":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as e:
            self._closed = WebSocketError(f"the server does not take what is sent: {e}", code="closed")
            raise self._closed from e

    async def send(self, message: Message) -> None:
        if self._closed is not None:
            raise self._closed
        text = isinstance(message, str)
        await self._send(encode_frame(_TEXT if text else _BINARY, message.encode() if isinstance(message, str) else message))

    async def recv(self, timeout: float | None = None) -> Message:
        """The next message. TimeoutError after `timeout` seconds; the connection can still be used then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                message, answer = self._next()
                if answer:
                    await self._send(answer)
                if message is not None:
                    return message
                if self._closed is not None:
                    raise self._closed
                await self._more(deadline)
        except WebSocketError as e:
            self._fail(e)
            raise

    async def _more(self, deadline: float | None) -> None:
        left = PING_AFTER if deadline is None else min(deadline - time.monotonic(), PING_AFTER)
        try:
            if left <= 0:
                raise asyncio.TimeoutError
            data = await within(left, self._reader.read(_CHUNK))
        except asyncio.TimeoutError:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("no message in time") from None
            if self._asked:
                raise WebSocketClosed(1006, "the server is silent") from None
            await self._send(encode_frame(_PING, b""))
            self._asked = True
            return
        except OSError as e:
            raise WebSocketClosed(1006, str(e)) from e
        if not data:
            raise WebSocketClosed(1006)
        self._ready += self._frames.feed(data)
        self._asked = False

    def _fail(self, error: WebSocketError) -> None:
        if self._closed is None and isinstance(error, ProtocolError):
            self._writer.write(encode_frame(_CLOSE, error.close_code.to_bytes(2, "big")))
        self._closed = self._closed or error
        self._writer.close()

    async def close(self) -> None:
        """Says goodbye, without waiting for the answer."""
        if self._closed is None:
            self._closed = WebSocketClosed(1000)
            self._writer.write(encode_frame(_CLOSE, (1000).to_bytes(2, "big")))
        self._writer.close()
