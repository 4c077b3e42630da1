"""The files of a box."""
from __future__ import annotations

import json
import os
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any, Iterable, List, Mapping, Union

from .errors import Conflict, NotFound, Unsupported
from .transport import absolute, file_path

if TYPE_CHECKING:
    from .client import Box

_CHUNK = 1 << 20
Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class FileInfo:
    """type: file, directory, symlink, fifo, socket, device."""

    name: str
    type: str
    size: int
    mode: int
    mtime: float
    uid: int
    gid: int
    target: str | None = None

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"


def _time(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()


def _info(e: Mapping[str, Any]) -> FileInfo:
    return FileInfo(name=e["name"], type=e["type"], size=e["size"], mode=int(e["mode"], 8), mtime=_time(e["modified_at"]), uid=e["uid"],
                    gid=e["gid"], target=e.get("target"))


class Files:
    """The files of a box. Paths without a leading slash are below the home directory."""

    def __init__(self, box: "Box"):
        self._box = box

    def _url(self, path: Path) -> str:
        return f"{self._box._path}/files/{file_path(path)}"

    def read(self, path: Path, offset: int | None = None, length: int | None = None) -> bytes:
        """The file, or a part of it."""
        if length == 0:
            return b""
        headers = {}
        if offset is not None or length is not None:
            start = offset or 0
            headers["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        answer = self._box._transport.open("GET", self._url(path), headers=headers)
        data = answer.all()
        if answer.type == "application/json":
            raise Conflict(f"{path} is a directory; list() tells what is in it", code="is_directory", status=409)
        return data

    def read_text(self, path: Path, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def download(self, path: Path, to: Path | IO[bytes]) -> int:
        """Copies a file out of the box; returns its size."""
        answer = self._box._transport.open("GET", self._url(path), fresh=True)
        try:
            if answer.type == "application/json":
                raise Conflict(f"{path} is a directory; use get_tree()", code="is_directory", status=409)
            if isinstance(to, (str, os.PathLike)):
                with open(to, "wb") as out:
                    return self._copy(answer, out)
            return self._copy(answer, to)
        finally:
            answer.close()

    @staticmethod
    def _copy(answer: Any, out: IO[bytes]) -> int:
        size = 0
        while chunk := answer.read(_CHUNK):
            out.write(chunk)
            size += len(chunk)
        return size

    def write(self, path: Path, data: bytes | str | IO[bytes] | Iterable[bytes], *, mode: int | None = None, append: bool = False,
              parents: bool = True) -> None:
        """Writes a file; whole or not at all, unless it appends."""
        body = data.encode() if isinstance(data, str) else data
        query = {"mode": None if mode is None else f"{mode:04o}", "append": append or None, "parents": parents or None}
        self._box._transport.open("PUT", self._url(path), query=query, body=body).all()

    def upload(self, source: Path, path: Path) -> None:
        """Copies a file into the box, with its permissions."""
        with open(source, "rb") as data:
            self.write(path, data, mode=os.fstat(data.fileno()).st_mode & 0o777)

    def list(self, path: Path = ".") -> List[FileInfo]:
        """What is in a directory, in no particular order."""
        entries: List[FileInfo] = []
        cursor = None
        while True:
            answer = self._box._transport.open("GET", self._url(path), query={"cursor": cursor, "limit": 10000}, fresh=True)
            if answer.type != "application/json":
                answer.close()
                raise Conflict(f"{path} is not a directory", code="not_directory", status=409)
            page = json.loads(answer.all())
            entries += [_info(e) for e in page["entries"]]
            cursor = page.get("next")
            if not cursor:
                return entries

    def stat(self, path: Path, follow: bool = True) -> FileInfo:
        return _info(self._box._transport.call("GET", self._url(path), query={"stat": True, "follow": follow}))

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
            return True
        except NotFound as e:
            if e.code == "not_found":
                raise  # it is the box that is not there
            return False

    def mkdir(self, path: Path, parents: bool = True, mode: int = 0o755) -> None:
        self._box._transport.call("POST", self._url(path), json_body={"action": "mkdir", "parents": parents, "mode": f"{mode:04o}"})

    def move(self, path: Path, to: Path, overwrite: bool = False) -> None:
        self._box._transport.call("POST", self._url(path), json_body={"action": "move", "to": absolute(to), "overwrite": overwrite})

    def chmod(self, path: Path, mode: int) -> None:
        self._box._transport.call("POST", self._url(path), json_body={"action": "chmod", "mode": f"{mode:04o}"})

    def remove(self, path: Path, recursive: bool = False) -> None:
        self._box._transport.call("DELETE", self._url(path), query={"recursive": recursive or None})

    def get_tree(self, path: Path, to: Path) -> None:
        """Copies a directory out of the box. Names and links that would leave the target directory are refused."""
        if not hasattr(tarfile, "data_filter"):
            raise Unsupported("this Python cannot unpack strangers' archives safely; 3.9.17, 3.10.12, 3.11.4 and later can")
        answer = self._box._transport.open("GET", f"{self._box._path}/archive", query={"path": absolute(path)}, fresh=True)
        try:
            with tarfile.open(fileobj=answer.response, mode="r|") as archive:
                archive.extractall(to, filter="data")
        finally:
            answer.close()

    def put_tree(self, source: Path, path: Path) -> None:
        """Copies a directory into the box."""
        with tempfile.TemporaryFile() as data:
            with tarfile.open(fileobj=data, mode="w") as archive:
                archive.add(source, arcname=".")
            data.seek(0)
            self._box._transport.open("PUT", f"{self._box._path}/archive", query={"path": absolute(path)}, body=data).all()
