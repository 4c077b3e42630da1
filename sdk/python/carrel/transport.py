"""HTTP over TCP or a unix socket, with the standard library."""
from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from typing import Any, Iterator
from urllib.parse import quote, urlencode, urlsplit

from .errors import Unavailable, from_response


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """One server. Connections are kept per thread and used again."""

    def __init__(self, url: str, token: str | None = None, timeout: float | None = None):
        self.url = url
        self.token = token
        self.timeout = timeout
        self._local = threading.local()

    def connection(self) -> http.client.HTTPConnection:
        """A new connection."""
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url[len("unix:"):].removeprefix("//"), self.timeout)
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise Unavailable(f"{self.url} is neither http://HOST:PORT nor unix:PATH")
        return http.client.HTTPConnection(parts.hostname, parts.port or 7070, timeout=self.timeout)

    def headers(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        result = dict(extra or {})
        if self.token:
            result["Authorization"] = f"Bearer {self.token}"
        return result

    def open(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None,
             headers: dict[str, str] | None = None, fresh: bool = False) -> http.client.HTTPResponse:
        """Sends a request and returns the answer, whose body is still to be read. Errors become exceptions."""
        if query:
            path += "?" + urlencode({k: _text(v) for k, v in query.items() if v is not None}, doseq=True)
        for attempt in (0, 1):
            conn = None if fresh else getattr(self._local, "conn", None)
            reused = conn is not None
            if conn is None:
                conn = self.connection()
            self._local.conn = None
            try:
                conn.request(method, path, body=body, headers=self.headers(headers))
                response = conn.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as e:
                conn.close()
                # A kept connection may have been closed by the server meanwhile: that is no failure of this request.
                if reused and attempt == 0 and (body is None or isinstance(body, (bytes, str))):
                    continue
                raise Unavailable(f"the server closed the connection: {e}") from e
            except OSError as e:
                conn.close()
                raise Unavailable(f"cannot reach the server at {self.url}: {e}") from e
            break
        response.carrel_conn = conn  # type: ignore[attr-defined]
        response.carrel_fresh = fresh  # type: ignore[attr-defined]
        if response.status >= 400:
            data = response.read()
            self.finish(response)
            raise from_response(response.status, _decode(data))
        return response

    def finish(self, response: http.client.HTTPResponse) -> None:
        """The body has been read: the connection may be used again."""
        conn = response.carrel_conn  # type: ignore[attr-defined]
        if response.carrel_fresh or response.will_close or not response.isclosed():  # type: ignore[attr-defined]
            conn.close()
        else:
            self._local.conn = conn

    def call(self, method: str, path: str, *, query: dict[str, Any] | None = None, json_body: Any = None,
             headers: dict[str, str] | None = None) -> Any:
        """A request with a JSON answer."""
        headers = dict(headers or {})
        body = None
        if json_body is not None:
            body = json.dumps(json_body).encode()
            headers["Content-Type"] = "application/json"
        response = self.open(method, path, query=query, body=body, headers=headers)
        data = response.read()
        self.finish(response)
        return _decode(data)

    def lines(self, method: str, path: str, *, query: dict[str, Any] | None = None, json_body: Any = None) -> Iterator[dict[str, Any]]:
        """A request with an NDJSON answer, line by line as it comes. Closing the iterator closes the connection."""
        headers = {"Accept": "application/x-ndjson"}
        body = None
        if json_body is not None:
            body = json.dumps(json_body).encode()
            headers["Content-Type"] = "application/json"
        response = self.open(method, path, query=query, body=body, headers=headers, fresh=True)
        try:
            for line in response:
                if line.strip():
                    yield json.loads(line)
        finally:
            response.close()
            response.carrel_conn.close()  # type: ignore[attr-defined]


def segment(text: str) -> str:
    """One path segment."""
    return quote(text, safe="")


def file_path(text: str | os.PathLike[str]) -> str:
    """A path in a box as the rest of a URL. A path without a leading slash is below the home directory."""
    name = os.fspath(text)
    if not name.startswith("/"):
        name = "/home/box/" + name
    return quote(name, safe="/")


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _decode(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
