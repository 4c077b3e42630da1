"""Servers inside a box."""
from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Mapping
from urllib.parse import quote, urlsplit

from .errors import Unavailable

if TYPE_CHECKING:
    from .client import Box
    from .transport import Transport

_CHUNK = 1 << 16


class Ports:
    """A server in a box, as HTTP through Carrel's server or as a port of this machine."""

    def __init__(self, box: "Box"):
        self._box = box

    def url(self, port: int, path: str = "/") -> str:
        """The path below the server's address under which a port of the box answers."""
        return f"{self._box._path}/ports/{port}/{quote(path.lstrip('/'), safe='/?&=%')}"

    def request(self, port: int, path: str = "/", method: str = "GET", body: bytes | None = None,
                headers: Mapping[str, str] | None = None) -> bytes:
        """A request by HTTP to a port of the box; the answer."""
        return self._box._transport.open(method, self.url(port, path), body=body, headers=headers).all()

    def forward(self, port: int, local: int = 0) -> "Forward":
        """Forwards a port of 127.0.0.1 to a port of the box, until it is closed."""
        return Forward(self._box._transport, f"{self._box._path}/tunnel/{port}", local)


class Forward:
    """A listener on 127.0.0.1; `port` says where. A context manager."""

    def __init__(self, transport: "Transport", path: str, local: int):
        self._transport = transport
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", local))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Forward":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """No new connections; those that are there go on."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                local, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(local,), daemon=True).start()

    def _open(self) -> tuple[socket.socket, bytes]:
        """A tunnel, and the bytes right after its head."""
        connection = self._transport.connection()
        connection.connect()
        sock = connection.sock
        assert isinstance(sock, socket.socket)
        host = "localhost" if self._transport.is_unix else urlsplit(self._transport.url).netloc
        fields = {"Host": host, "Connection": "Upgrade", "Upgrade": "carrel-tunnel", "Content-Length": "0"}
        head = "".join(f"{k}: {v}\r\n" for k, v in self._transport.headers(fields).items())
        sock.sendall(f"POST {self._path} HTTP/1.1\r\n{head}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = sock.recv(_CHUNK)
            if not data:
                break
            answer += data
        first, _, rest = answer.partition(b"\r\n\r\n")
        if b" 101 " not in first.split(b"\r\n")[0]:
            sock.close()
            raise Unavailable("the tunnel was refused")
        return sock, rest

    def _serve(self, local: socket.socket) -> None:
        with local:
            try:
                remote, rest = self._open()
            except (OSError, Unavailable):
                return
            with remote:
                up = threading.Thread(target=_pump, args=(local, remote), daemon=True)
                up.start()
                if rest:
                    local.sendall(rest)
                _pump(remote, local)
                # The box's side has ended: further bytes are not read.
                try:
                    local.shutdown(socket.SHUT_RD)
                except OSError:
                    pass
                up.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    except OSError:
        pass
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
