"""HTTP over TCP or a unix socket, with the standard library."""
from __future__ import annotations

import http.client
import json
import os
import posixpath
import select
import socket
import threading
from typing import IO, Any, Iterable, Iterator, Mapping, Sequence, Union, cast
from urllib.parse import quote, urlencode, urlsplit

from .errors import Unavailable, from_response

Body = Union[bytes, IO[bytes], Iterable[bytes], None]
REPEATABLE = ("GET", "HEAD", "PUT", "DELETE")


class _UnixConnection(http.client.HTTPConnection):
    """A connection that can hand descriptors over with the first bytes of a request."""

    def __init__(self, path: str, timeout: float | None):
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.fds: Sequence[int] = ()

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def send(self, data: Any) -> None:
        if self.fds and isinstance(data, bytes):
            if self.sock is None:
                self.connect()
            fds, self.fds = self.fds, ()
            sent = socket.send_fds(self.sock, [data], list(fds))
            data = data[sent:]
        super().send(data)


class Answer:
    """An answer whose body can be read. Reading all of it returns the connection for reuse; close() ends it in any case."""

    def __init__(self, transport: "Transport", connection: http.client.HTTPConnection, response: http.client.HTTPResponse, keep: bool):
        self._transport = transport
        self._connection = connection
        self._keep = keep
        self.response = response
        self.status = response.status

    @property
    def type(self) -> str:
        return (self.response.getheader("Content-Type") or "").split(";")[0].strip()

    def read(self, size: int | None = None) -> bytes:
        try:
            data = self.response.read() if size is None else self.response.read(size)
            if not data and size and self.response.length:
                # http.client does not report that a part was the last because nothing more came.
                raise http.client.IncompleteRead(b"", self.response.length)
            return data
        except (http.client.HTTPException, OSError) as e:
            self.close()
            raise Unavailable(f"the server broke off in the middle: {e!r}") from e

    def all(self) -> bytes:
        try:
            return self.read()
        finally:
            self.close()

    def lines(self) -> Iterator[bytes]:
        """The lines of the body, as they come."""
        try:
            while line := self.response.readline():
                yield line
        except (http.client.HTTPException, OSError) as e:
            raise Unavailable(f"the server broke off in the middle: {e!r}") from e
        finally:
            self.close()

    def close(self) -> None:
        if self._keep and self.response.isclosed() and not self.response.will_close:
            self._transport.give_back(self._connection)
        else:
            self.response.close()
            self._connection.close()
        self._keep = False


class Transport:
    """One server. A connection is kept per thread and used again, but never by a forked child."""

    def __init__(self, url: str, token: str | None = None, timeout: float | None = None):
        self.url = url
        self.token = token
        self.timeout = timeout
        self._local = threading.local()

    @property
    def is_unix(self) -> bool:
        return self.url.startswith("unix:")

    def connection(self) -> http.client.HTTPConnection:
        """A new connection."""
        if self.is_unix:
            return _UnixConnection(self.url[len("unix:"):].removeprefix("//"), self.timeout)
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise Unavailable(f"{self.url} is neither http://HOST:PORT nor unix:PATH")
        return http.client.HTTPConnection(parts.hostname, parts.port or 7070, timeout=self.timeout)

    def _kept(self) -> http.client.HTTPConnection | None:
        kept: tuple[int, http.client.HTTPConnection] | None = getattr(self._local, "kept", None)
        self._local.kept = None
        if kept is None:
            return None
        owner, connection = kept
        # A forked child has its parent's connection: two processes on one would read each other's answers.
        if owner != os.getpid() or connection.sock is None:
            return None
        # Something to read before a request was sent can only be the end.
        if select.select([connection.sock], [], [], 0)[0]:
            connection.close()
            return None
        return connection

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        self._local.kept = (os.getpid(), connection)

    def headers(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        result = dict(extra or {})
        if self.token:
            result["Authorization"] = f"Bearer {self.token}"
        return result

    def open(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Body = None,
             headers: Mapping[str, str] | None = None, fresh: bool = False, fds: Sequence[int] = ()) -> Answer:
        """Sends a request and returns the answer. Errors become exceptions."""
        if query:
            pairs = {k: text_of(v) for k, v in query.items() if v is not None}
            path += "?" + urlencode(pairs, doseq=True) if pairs else ""
        while True:
            kept = None if fresh else self._kept()
            connection = kept or self.connection()
            if fds:
                if not isinstance(connection, _UnixConnection):
                    raise Unavailable("mounts need a server on this machine, reached by its unix socket")
                connection.fds = fds
            try:
                connection.request(method, path, body=cast(Any, body), headers=self.headers(headers))
                response = connection.getresponse()
            except (http.client.HTTPException, OSError) as e:
                answer = self._early_answer(connection, e)
                if answer is not None:
                    response = answer
                else:
                    connection.close()
                    # The server may have closed a kept connection just now. A request that must not happen twice is not retried.
                    if kept is not None and method in REPEATABLE and (body is None or isinstance(body, bytes)):
                        fresh = True
                        continue
                    raise Unavailable(f"cannot reach the server at {self.url}: {e or type(e).__name__}") from e
            except BaseException:
                connection.close()      # Ctrl-C: the server sees the client go away, and ends the request
                raise
            break
        result = Answer(self, connection, response, keep=not fresh)
        if result.status >= 400:
            raise from_response(result.status, decode(result.all()))
        return result

    @staticmethod
    def _early_answer(connection: http.client.HTTPConnection, error: Exception) -> http.client.HTTPResponse | None:
        """A server that refuses an upload answers and closes before it has read everything; the answer counts."""
        if not isinstance(error, (BrokenPipeError, ConnectionResetError)) or connection.sock is None:
            return None
        response = http.client.HTTPResponse(connection.sock)
        try:
            response.begin()
        except (http.client.HTTPException, OSError):
            return None
        return response

    def call(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json_body: Any = None,
             headers: Mapping[str, str] | None = None, fds: Sequence[int] = ()) -> Any:
        """A request with a JSON answer."""
        body, extra = encode(json_body, headers)
        return decode(self.open(method, path, query=query, body=body, headers=extra, fds=fds).all())

    def lines(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json_body: Any = None) -> Iterator[dict[str, Any]]:
        """A request with an NDJSON answer, line by line as it comes. The request is sent at once; closing the iterator ends it."""
        body, extra = encode(json_body, {"Accept": "application/x-ndjson"})
        answer = self.open(method, path, query=query, body=body, headers=extra, fresh=True)
        return (json.loads(line) for line in answer.lines() if line.strip())

    def sse(self, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The data of server-sent events."""
        answer = self.open("GET", path, query=query, headers={"Accept": "text/event-stream"}, fresh=True)
        return (json.loads(line[6:]) for line in answer.lines() if line.startswith(b"data: "))


def segment(text: str) -> str:
    """One path segment."""
    return quote(text, safe="")


def absolute(path: str | os.PathLike[str]) -> str:
    """A path in a box; one without a leading slash is below the home directory."""
    name = os.fspath(path)
    return posixpath.normpath(posixpath.join("/home/box", name))


def file_path(path: str | os.PathLike[str]) -> str:
    """A path in a box as the rest of a URL. Names need not be UTF-8."""
    return quote(os.fsencode(absolute(path)).lstrip(b"/"), safe="/")


def encode(json_body: Any, headers: Mapping[str, str] | None) -> tuple[bytes | None, dict[str, str]]:
    extra = dict(headers or {})
    if json_body is None:
        return None, extra
    extra["Content-Type"] = "application/json"
    return json.dumps(json_body).encode(), extra


def text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def decode(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
