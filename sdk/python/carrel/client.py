"""The server and its boxes."""
from __future__ import annotations

import base64
import io
import os
import tarfile
from dataclasses import dataclass, field
from typing import IO, Any, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from . import local
from .errors import ExecFailed, NotFound
from .transport import Transport, file_path, segment

_CHUNK = 1 << 20


@dataclass(frozen=True)
class ExecResult:
    """A command that has ended."""

    id: str
    outcome: str | None
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    wall_ms: float
    cpu_ms: float
    memory_peak_bytes: int
    raw: dict[str, Any] = field(repr=False, default_factory=dict)
    stdout_bytes: bytes = field(repr=False, default=b"")
    stderr_bytes: bytes = field(repr=False, default=b"")

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    def check(self) -> "ExecResult":
        """Itself, or ExecFailed if the command did not end well."""
        if not self.ok:
            raise ExecFailed(self)
        return self


@dataclass(frozen=True)
class FileInfo:
    name: str
    type: str
    size: int
    mode: int
    mtime: float


def _bytes_of(raw: Mapping[str, Any], key: str) -> bytes:
    if key + "_base64" in raw:
        return base64.b64decode(raw[key + "_base64"])
    return raw.get(key, "").encode()


def _result(raw: dict[str, Any]) -> ExecResult:
    return ExecResult(
        id=raw["id"], outcome=raw.get("outcome"), exit_code=raw.get("exit_code"), signal=raw.get("signal"),
        stdout=raw.get("stdout", ""), stderr=raw.get("stderr", ""), wall_ms=raw.get("wall_ms", 0.0), cpu_ms=raw.get("cpu_ms", 0.0),
        memory_peak_bytes=raw.get("memory_peak_bytes", 0), raw=raw, stdout_bytes=_bytes_of(raw, "stdout"),
        stderr_bytes=_bytes_of(raw, "stderr"))


class Exec:
    """A command in the background."""

    def __init__(self, box: "Box", raw: dict[str, Any]):
        self._box = box
        self.raw = raw
        self.id: str = raw["id"]

    @property
    def _path(self) -> str:
        return f"{self._box._path}/exec/{segment(self.id)}"

    def refresh(self) -> "Exec":
        self.raw = self._box._transport.call("GET", self._path)
        return self

    @property
    def running(self) -> bool:
        return self.refresh().raw["state"] != "ended"

    def output(self, offset: int = 0, follow: bool = True) -> Iterator[dict[str, Any]]:
        """Events of the command from an offset; with follow, until it ends."""
        return self._box._transport.lines("GET", self._path + "/output", query={"offset": offset, "follow": follow})

    def wait(self) -> ExecResult:
        """Waits for the end and returns everything."""
        parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        end: dict[str, Any] = {}
        for event in self.output():
            if event["type"] in parts:
                parts[event["type"]].append(event_bytes(event))
            elif event["type"] == "exit":
                end = event
        out, err = b"".join(parts["stdout"]), b"".join(parts["stderr"])
        raw = {**self.refresh().raw, **{k: v for k, v in end.items() if k != "type"}}
        result = _result({**raw, "id": self.id, "stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")})
        return ExecResult(**{**result.__dict__, "stdout_bytes": out, "stderr_bytes": err})

    def write(self, data: bytes, close: bool = False) -> None:
        """Sends data to the command's standard input."""
        response = self._box._transport.open("POST", self._path + "/stdin", query={"close": close}, body=data)
        response.read()
        self._box._transport.finish(response)

    def close_stdin(self) -> None:
        self.write(b"", close=True)

    def signal(self, signal: int | str) -> None:
        self._box._transport.call("POST", self._path + "/signal", json_body={"signal": signal})

    def kill(self) -> None:
        self._box._transport.call("DELETE", self._path)

    def resize(self, rows: int, cols: int) -> None:
        self._box._transport.call("POST", self._path + "/resize", json_body={"rows": rows, "cols": cols})


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """The bytes of a stdout or stderr event."""
    if "data_base64" in event:
        return base64.b64decode(event["data_base64"])
    return event.get("data", "").encode()


class Files:
    """The files of a box. Paths without a leading slash are below the home directory."""

    def __init__(self, box: "Box"):
        self._box = box

    def _url(self, path: str | os.PathLike[str]) -> str:
        return f"{self._box._path}/files{file_path(path)}"

    def read(self, path: str | os.PathLike[str], offset: int | None = None, length: int | None = None) -> bytes:
        headers = {}
        if offset is not None or length is not None:
            start = offset or 0
            headers["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        response = self._box._transport.open("GET", self._url(path), headers=headers)
        data = response.read()
        self._box._transport.finish(response)
        return data

    def read_text(self, path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def download(self, path: str | os.PathLike[str], to: str | os.PathLike[str] | IO[bytes]) -> int:
        """Copies a file out of the box; returns its size."""
        response = self._box._transport.open("GET", self._url(path), fresh=True)
        own = isinstance(to, (str, os.PathLike))
        out = open(to, "wb") if own else to  # type: ignore[arg-type]
        size = 0
        try:
            while chunk := response.read(_CHUNK):
                out.write(chunk)  # type: ignore[union-attr]
                size += len(chunk)
        finally:
            if own:
                out.close()  # type: ignore[union-attr]
            self._box._transport.finish(response)
        return size

    def write(self, path: str | os.PathLike[str], data: bytes | str | IO[bytes] | Iterable[bytes], *, mode: int | None = None,
              append: bool = False, parents: bool = True) -> None:
        """Writes a file, whole or not at all unless it appends."""
        if isinstance(data, str):
            data = data.encode()
        query = {"mode": None if mode is None else oct(mode)[2:], "append": append or None, "parents": parents or None}
        response = self._box._transport.open("PUT", self._url(path), query=query, body=data)
        response.read()
        self._box._transport.finish(response)

    def upload(self, source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
        with open(source, "rb") as data:
            self.write(path, data, mode=os.fstat(data.fileno()).st_mode & 0o777)

    def list(self, path: str | os.PathLike[str] = ".") -> list[FileInfo]:
        entries: list[FileInfo] = []
        cursor = None
        while True:
            answer = self._box._transport.call("GET", self._url("" if path == "." else path), query={"cursor": cursor})
            entries += [_file_info(e) for e in answer["entries"]]
            cursor = answer.get("next")
            if not cursor:
                return entries

    def stat(self, path: str | os.PathLike[str]) -> FileInfo:
        return _file_info(self._box._transport.call("GET", self._url(path), query={"stat": True}))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        try:
            self.stat(path)
            return True
        except NotFound:
            return False

    def mkdir(self, path: str | os.PathLike[str], parents: bool = True) -> None:
        self._box._transport.call("POST", self._url(path), json_body={"action": "mkdir", "parents": parents})

    def move(self, path: str | os.PathLike[str], to: str | os.PathLike[str]) -> None:
        self._box._transport.call("POST", self._url(path), json_body={"action": "move", "to": _absolute(to)})

    def chmod(self, path: str | os.PathLike[str], mode: int) -> None:
        self._box._transport.call("POST", self._url(path), json_body={"action": "chmod", "mode": oct(mode)[2:]})

    def remove(self, path: str | os.PathLike[str], recursive: bool = False) -> None:
        self._box._transport.call("DELETE", self._url(path), query={"recursive": recursive or None})

    def get_tree(self, path: str | os.PathLike[str], to: str | os.PathLike[str]) -> None:
        """Copies a directory out of the box. Names that would leave the target directory are refused."""
        response = self._box._transport.open("GET", f"{self._box._path}/archive", query={"path": _absolute(path)}, fresh=True)
        try:
            with tarfile.open(fileobj=response, mode="r|") as archive:  # type: ignore[arg-type]
                archive.extractall(to, filter="data")
        finally:
            response.close()
            self._box._transport.finish(response)

    def put_tree(self, source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
        """Copies a directory into the box."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            archive.add(source, arcname=".")
        response = self._box._transport.open("PUT", f"{self._box._path}/archive", query={"path": _absolute(path)}, body=data.getvalue())
        response.read()
        self._box._transport.finish(response)


def _absolute(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    return name if name.startswith("/") else "/home/box/" + name


def _file_info(e: Mapping[str, Any]) -> FileInfo:
    mode = e.get("mode", 0)
    return FileInfo(name=e.get("name", ""), type=e["type"], size=e.get("size", 0), mode=int(mode, 8) if isinstance(mode, str) else mode,
                    mtime=e.get("mtime", 0.0))


class Ports:
    """HTTP servers inside a box."""

    def __init__(self, box: "Box"):
        self._box = box

    def url(self, port: int, path: str = "/") -> str:
        """The path below the server's address under which a port of the box answers."""
        return f"{self._box._path}/ports/{port}{quote(path)}"

    def request(self, port: int, path: str = "/", method: str = "GET", body: bytes | None = None,
                headers: dict[str, str] | None = None) -> bytes:
        response = self._box._transport.open(method, self.url(port, path), body=body, headers=headers)
        data = response.read()
        self._box._transport.finish(response)
        return data


class Box:
    """An isolated place to run code. As a context manager it is deleted at the end.

    Without `server` it uses the running server, or starts a private one."""

    def __init__(self, *, server: "Carrel | None" = None, name: str | None = None, memory: str | int | None = None,
                 cpus: float | None = None, pids: int | None = None, disk: str | int | None = None, profile: str | None = None,
                 root: str | None = None, env: Mapping[str, str] | None = None, mounts: Sequence[Mapping[str, Any]] | None = None,
                 labels: Mapping[str, str] | None = None, ttl: str | int | None = None, idle_timeout: str | int | None = None,
                 on_idle: str | None = None, hostname: str | None = None, idempotency_key: str | None = None,
                 requests: Mapping[str, Any] | None = None, _raw: dict[str, Any] | None = None):
        self._server = server or Carrel()
        self._transport = self._server._transport
        if _raw is None:
            limits = {"memory": memory, "cpus": cpus, "pids": pids, "disk": disk}
            body: dict[str, Any] = {
                "name": name, "profile": profile, "root": root, "env": dict(env) if env else None, "mounts": list(mounts) if mounts else None,
                "labels": dict(labels) if labels else None, "ttl": ttl, "idle_timeout": idle_timeout, "on_idle": on_idle,
                "hostname": hostname, "requests": dict(requests) if requests else None,
                "limits": {k: v for k, v in limits.items() if v is not None} or None,
            }
            headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
            _raw = self._transport.call("POST", "/v1/boxes", json_body={k: v for k, v in body.items() if v is not None}, headers=headers)
        self.raw: dict[str, Any] = _raw
        self.id: str = _raw["id"]
        self.files = Files(self)
        self.ports = Ports(self)

    @property
    def _path(self) -> str:
        return f"/v1/boxes/{segment(self.id)}"

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.delete()
        except NotFound:
            pass

    def __repr__(self) -> str:
        return f"<Box {self.id} {self.raw.get('phase')}>"

    def refresh(self) -> "Box":
        self.raw = self._transport.call("GET", self._path)
        return self

    @property
    def phase(self) -> str:
        return self.refresh().raw["phase"]

    def exec(self, argv: Sequence[str] | str, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
             timeout: str | float | None = None, stdin: str | None = None, output_limit: str | int | None = None,
             check: bool = False) -> ExecResult:
        """Runs a command to its end. A string is a line for the shell."""
        raw = self._transport.call("POST", self._path + "/exec",
                                   json_body=_command(argv, cwd=cwd, env=env, timeout=timeout, stdin=stdin, output_limit=output_limit))
        result = _result(raw)
        return result.check() if check else result

    def stream(self, argv: Sequence[str] | str, **options: Any) -> Iterator[dict[str, Any]]:
        """Runs a command and yields its events as they happen. Ending the iteration early ends the command."""
        return self._transport.lines("POST", self._path + "/exec", query={"stream": True}, json_body=_command(argv, **options))

    def spawn(self, argv: Sequence[str] | str, **options: Any) -> Exec:
        """Starts a command in the background."""
        raw = self._transport.call("POST", self._path + "/exec", json_body={**_command(argv, **options), "background": True})
        return Exec(self, raw)

    def execs(self) -> list[Exec]:
        return [Exec(self, raw) for raw in self._transport.call("GET", self._path + "/exec")["execs"]]

    def shell(self, line: str, **options: Any) -> ExecResult:
        """Runs a line with the shell."""
        return self.exec(line, **options)

    def pause(self) -> None:
        self.raw = self._transport.call("POST", self._path + "/pause")

    def resume(self) -> None:
        self.raw = self._transport.call("POST", self._path + "/resume")

    def update(self, **changes: Any) -> None:
        """Changes limits (a mapping), ttl, idle_timeout or labels."""
        self.raw = self._transport.call("PATCH", self._path, json_body=changes)

    def usage(self) -> dict[str, Any]:
        return self._transport.call("GET", self._path + "/usage")

    def events(self) -> list[dict[str, Any]]:
        return self._transport.call("GET", self._path + "/events")["events"]

    def delete(self) -> None:
        self._transport.call("DELETE", self._path)


def _command(argv: Sequence[str] | str, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"shell": argv} if isinstance(argv, str) else {"argv": list(argv)}
    body.update({k: v for k, v in options.items() if v is not None})
    if "env" in body:
        body["env"] = dict(body["env"])
    return body


_private: local.PrivateServer | None = None


class Carrel:
    """A server. Without url: the one that runs, or a private one."""

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float | None = None):
        global _private
        found = url or local.running_server()
        if not found:
            if _private is None or _private.process.poll() is not None:
                _private = local.PrivateServer()
            found = _private.url
        self._transport = Transport(found, token or os.environ.get("CARREL_TOKEN"), timeout)
        self.url = found

    def create(self, **options: Any) -> Box:
        return Box(server=self, **options)

    def get(self, id_or_name: str) -> Box:
        return Box(server=self, _raw=self._transport.call("GET", f"/v1/boxes/{segment(id_or_name)}"))

    def list(self, labels: Mapping[str, str] | None = None) -> list[Box]:
        boxes: list[Box] = []
        cursor = None
        while True:
            query = {"label": [f"{k}={v}" for k, v in (labels or {}).items()] or None, "cursor": cursor, "limit": 500}
            answer = self._transport.call("GET", "/v1/boxes", query=query)
            boxes += [Box(server=self, _raw=raw) for raw in answer["boxes"]]
            cursor = answer.get("next")
            if not cursor:
                return boxes

    def info(self) -> dict[str, Any]:
        return self._transport.call("GET", "/v1/info")
