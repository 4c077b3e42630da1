"""HTTP for asyncio, with the standard library; the counterpart of transport.py for threads."""
from __future__ import annotations

import asyncio
import json
import os
import select
import socket
from typing import Any, AsyncIterator, List, Mapping, Sequence, Tuple
from urllib.parse import urlencode

from .errors import Unavailable, from_response
from .net import MAX_HEAD, Address, parse_address, parse_head, request_head, send_descriptors
from .transport import REPEATABLE, decode, encode, text_of

_CHUNK = 1 << 16
_MOST_KEPT = 8
Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncAnswer:
    """An answer whose body can be read. Reading all of it returns the connection for reuse; close() ends it in any case."""

    def __init__(self, owner: "AsyncTransport | None", streams: Streams, status: int, fields: Mapping[str, str], empty: bool):
        self._owner = owner
        self._reader, self._writer = streams
        self.status = status
        self.fields = fields
        self._chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        length = fields.get("content-length")
        # Remaining bytes of the body, or of the chunk; None: until the end of the connection.
        self._left: int | None = 0 if empty or self._chunked else int(length) if length is not None else None
        self._first_chunk = True
        self._done = empty

    async def read(self) -> bytes:
        """Some of the body; b"" at its end."""
        try:
            data = await self._read()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            self.close()
            raise Unavailable(f"the server broke off in the middle: {e!r}") from e
        except BaseException:
            self.close()
            raise
        if not data:
            self._finish()
        return data

    async def _read(self) -> bytes:
        if self._done:
            return b""
        if self._chunked and not self._left:
            self._left = await self._chunk_size()
            if not self._left:
                while (await self._reader.readline()) not in (b"\r\n", b"\n", b""):
                    pass
                self._done = True
                return b""
        if self._left == 0:
            self._done = True
            return b""
        data = await self._reader.read(_CHUNK if self._left is None else min(self._left, _CHUNK))
        if self._left is None:
            self._done = not data
            return data
        if not data:
            raise asyncio.IncompleteReadError(b"", self._left)
        self._left -= len(data)
        return data

    async def _chunk_size(self) -> int:
        if not self._first_chunk:
            await self._reader.readuntil(b"\r\n")
        self._first_chunk = False
        size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0].strip(), 16)
        if size < 0:
            raise ValueError("a chunk's size")
        return size

    async def all(self) -> bytes:
        parts = []
        while data := await self.read():
            parts.append(data)
        return b"".join(parts)

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of the body, as they come."""
        rest = bytearray()
        try:
            while data := await self.read():
                searched = len(rest)
                rest += data
                start = 0
                while (end := rest.find(b"\n", max(start, searched))) >= 0:
                    yield bytes(rest[start:end + 1])
                    start = end + 1
                del rest[:start]
            if rest:
                yield bytes(rest)
        finally:
            self.close()

    def _finish(self) -> None:
        if self._owner is not None and self._left == 0 and self.fields.get("connection", "").lower() != "close":
            self._owner.keep((self._reader, self._writer))
            self._owner = None
        else:
            self.close()

    def close(self) -> None:
        if self._owner is not None or not self._done:
            self._writer.close()
        self._owner = None
        self._done = True


class AsyncTransport:
    """One server. Connections are kept and used again, by the event loop and the process that made them."""

    def __init__(self, url: str, token: str | None = None, *, default_port: int | None = 7070, scheme: str = "Bearer"):
        self.url = url
        self.token = token
        self.address: Address = parse_address(url, default_port)
        self._scheme = scheme
        self._kept: List[Tuple[int, asyncio.AbstractEventLoop, Streams]] = []

    def keep(self, streams: Streams) -> None:
        if len(self._kept) < _MOST_KEPT:
            self._kept.append((os.getpid(), asyncio.get_running_loop(), streams))
        else:
            streams[1].close()

    def _take(self) -> Streams | None:
        while self._kept:
            owner, loop, (reader, writer) = self._kept.pop()
            if owner != os.getpid() or loop is not asyncio.get_running_loop():
                continue        # not ours to close, either
            sock = writer.get_extra_info("socket")
            # Something to read before a request was sent can only be the end.
            if reader.at_eof() or writer.is_closing() or sock is None or select.select([sock.fileno()], [], [], 0)[0]:
                writer.close()
                continue
            return reader, writer
        return None

    async def _with_descriptors(self, head: bytes, fds: Sequence[int]) -> Streams:
        """A connection on which the head, and with it the descriptors, has been sent."""
        if self.address.unix is None:
            raise Unavailable("mounts need a server on this machine, reached by its unix socket")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, self.address.unix)
            sent = send_descriptors(sock, head, fds)     # a new socket's buffer is empty
            if sent < len(head):
                await loop.sock_sendall(sock, head[sent:])
            return await asyncio.open_unix_connection(sock=sock, limit=MAX_HEAD)
        except BaseException:
            sock.close()
            raise

    async def open(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: bytes | None = None,
                   headers: Mapping[str, str] | None = None, fds: Sequence[int] = (), check: bool = True) -> AsyncAnswer:
        """Sends a request and returns the answer. Errors become exceptions."""
        if query:
            pairs = {k: text_of(v) for k, v in query.items() if v is not None}
            path += "?" + urlencode(pairs, doseq=True) if pairs else ""
        fields = {**self.address.fields(), **(headers or {})}
        if self.token:
            fields["Authorization"] = f"{self._scheme} {self.token}"
        if body is not None or method in ("POST", "PUT", "PATCH"):
            fields["Content-Length"] = str(len(body or b""))
        head = request_head(method, self.address.base + path, fields)
        while True:
            kept = None if fds else self._take()
            try:
                answer = await self._exchange(kept, method, head, body, fds)
                break
            except (OSError, EOFError, asyncio.LimitOverrunError) as e:
                # The server may have closed a kept connection just now. A request that must not happen twice is not retried.
                if kept is not None and method in REPEATABLE:
                    continue
                raise Unavailable(f"cannot reach the server at {self.url}: {e or type(e).__name__}") from e
        if check and answer.status >= 400:
            raise from_response(answer.status, decode(await answer.all()))
        return answer

    async def _exchange(self, kept: Streams | None, method: str, head: bytes, body: bytes | None, fds: Sequence[int]) -> AsyncAnswer:
        if fds:
            streams = await self._with_descriptors(head, fds)
            head = b""
        else:
            streams = kept or await self.address.open()
        reader, writer = streams
        try:
            writer.write(head + body if body is not None and len(body) < _CHUNK else head)
            if body is not None and len(body) >= _CHUNK:
                writer.write(body)
            try:
                await writer.drain()
            except OSError:
                pass        # a server that refuses an upload answers before it has read everything; the answer counts
            status, fields = parse_head(await reader.readuntil(b"\r\n\r\n"))
            while status < 200:
                status, fields = parse_head(await reader.readuntil(b"\r\n\r\n"))
        except BaseException:
            writer.close()
            raise
        return AsyncAnswer(self, streams, status, fields, empty=method == "HEAD" or status in (204, 304))

    async def call(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json_body: Any = None,
                   headers: Mapping[str, str] | None = None, fds: Sequence[int] = ()) -> Any:
        """A request with a JSON answer."""
        body, extra = encode(json_body, headers)
        return decode(await (await self.open(method, path, query=query, body=body, headers=extra, fds=fds)).all())

    async def lines(self, method: str, path: str, *, query: Mapping[str, Any] | None = None,
                    json_body: Any = None) -> AsyncIterator[dict[str, Any]]:
        """A request with an NDJSON answer, line by line as it comes. Leaving the iterator (aclose) ends the request."""
        body, extra = encode(json_body, {"Accept": "application/x-ndjson"})
        answer = await self.open(method, path, query=query, body=body, headers=extra)
        try:
            async for line in answer.lines():
                if line.strip():
                    yield json.loads(line)
        finally:
            answer.close()

    async def aclose(self) -> None:
        """Closes the kept connections."""
        while (streams := self._take()) is not None:
            streams[1].close()
