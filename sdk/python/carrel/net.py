"""Addresses of servers, and connections to them: TCP, TLS or a unix socket."""
from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from dataclasses import dataclass
from typing import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from .errors import Unavailable

MAX_HEAD = 1 << 16      # bytes of an answer's first line and its fields


@dataclass(frozen=True)
class Address:
    """The address of a server. `base` is the prefix of every path."""

    host: str
    port: int
    tls: bool = False
    base: str = ""
    unix: str | None = None
    credentials: str | None = None

    @property
    def authority(self) -> str:
        """For the field Host."""
        if self.unix is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def fields(self) -> dict[str, str]:
        """Fields of every request."""
        result = {"Host": self.authority}
        if self.credentials is not None:
            result["Authorization"] = "Basic " + base64.b64encode(self.credentials.encode()).decode()
        return result

    def connect(self, timeout: float | None = None) -> socket.socket:
        if self.unix is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(timeout)
                sock.connect(self.unix)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((self.host, self.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.tls:
            return sock
        try:
            return ssl.create_default_context().wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.unix is not None:
            return await asyncio.open_unix_connection(self.unix, limit=MAX_HEAD)
        return await asyncio.open_connection(self.host, self.port, ssl=ssl.create_default_context() if self.tls else None, limit=MAX_HEAD)


def parse_address(url: str, default_port: int | None = None) -> Address:
    """http, https, ws, wss, or unix:PATH. default_port is for http; without it 80."""
    if url.startswith("unix:"):
        return Address("localhost", 0, unix=url[len("unix:"):].removeprefix("//"))
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise Unavailable(f"{url} is neither http://HOST[:PORT] nor https://HOST[:PORT] nor unix:PATH")
    tls = parts.scheme in ("https", "wss")
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Address(parts.hostname, parts.port or (443 if tls else default_port or 80), tls, parts.path.rstrip("/"), credentials=credentials)


def request_head(method: str, target: str, fields: Mapping[str, str]) -> bytes:
    """The head of a request. Nothing in it may start a line of its own."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(c in line for line in lines for c in "\r\n\0"):
        raise ValueError("a line break in the head of a request")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "strict")


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and fields of an answer; the names in small letters, repeated ones joined with commas."""
    first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (words[1].isascii() and words[1].isdigit() and len(words[1]) == 3):
        raise Unavailable(f"not an HTTP answer: {first[:80]!r}")
    fields: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Unavailable(f"not an HTTP answer: {line[:80]!r}")
        name = name.lower()
        fields[name] = f"{fields[name]}, {value.strip()}" if name in fields else value.strip()
    return int(words[1]), fields


def send_descriptors(sock: socket.socket, data: bytes, fds: Sequence[int]) -> int:
    """Sends descriptors with the first bytes of data, and says how many bytes went with them."""
    return socket.send_fds(sock, [data], list(fds))
