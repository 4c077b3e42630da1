"""The files of a box."""
from __future__ import annotations

import itertools
import json
import os
import pathlib
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any, Iterable, List, Mapping, Union, cast

from .errors import InvalidRequest, NotFound, conflict
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
        """Whether it is a directory."""
        return self.type == "directory"


def _time(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()


def file_info(e: Mapping[str, Any]) -> FileInfo:
    return FileInfo(name=e["name"], type=e["type"], size=e["size"], mode=int(e["mode"], 8), mtime=_time(e["modified_at"]), uid=e["uid"],
                    gid=e["gid"], target=e.get("target"))


def range_header(offset: int | None, length: int | None) -> dict[str, str]:
    """For a part of a file."""
    if offset is None and length is None:
        return {}
    start = offset or 0
    return {"Range": f"bytes={start}-{'' if length is None else start + length - 1}"}


def _unsafe(member: tarfile.TarInfo, why: str) -> InvalidRequest:
    return InvalidRequest(f"{member.name!r} in the box's folder {why}; nothing after it was copied", code="unsafe_archive")


def _place(member: tarfile.TarInfo, to: str) -> str:
    """The destination of a member. Its name must stay below, and no folder on the way may be a link, not even one from the same archive."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.name.startswith("/") or ".." in parts:
        raise _unsafe(member, "leads out of it")
    path = to
    for part in parts[:-1]:
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise _unsafe(member, "leads through a link")
        os.makedirs(path, exist_ok=True)
    return os.path.join(path, *parts[-1:])


def _unpack(archive: tarfile.TarFile, to: str) -> None:
    """An untrusted archive. Python's own filters for that are newer than many Pythons."""
    if os.path.islink(pathlib.PurePath(to)):
        # It may have come from a box, with an earlier copy.
        raise InvalidRequest(f"{to} is a link, which is not followed; name the directory itself: os.path.realpath()", code="unsafe_target")
    os.makedirs(to, exist_ok=True)
    for member in archive:
        path = _place(member, to)
        if member.isdir():
            if os.path.islink(path) and path != to:
                raise _unsafe(member, "is a link here already")
            os.makedirs(path, exist_ok=True)
            continue
        if os.path.lexists(path):
            os.unlink(path)
        if member.issym():
            # Its target, relative to its own place, must be below as well. A ".." after a name cannot be judged, because the name may be a link.
            inside = os.path.relpath(os.path.dirname(path), to)
            steps = [part for part in member.linkname.split("/") if part not in ("", ".")]
            climbs_later = ".." in itertools.dropwhile(lambda part: part == "..", steps)
            if (member.linkname.startswith("/") or climbs_later
                    or os.path.normpath(os.path.join(inside, member.linkname)).split("/")[0] == ".."):
                raise _unsafe(member, "is a link that leads out of it")
            os.symlink(member.linkname, path)
        elif member.isreg():
            source = archive.extractfile(member)
            assert source is not None
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, member.mode & 0o777)
            with source, open(fd, "wb") as out:
                shutil.copyfileobj(source, out, _CHUNK)
        else:
            raise _unsafe(member, "is neither a file nor a folder")


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
        answer = self._box._transport.open("GET", self._url(path), headers=range_header(offset, length))
        data = answer.all()
        if answer.type == "application/json":
            raise conflict(f"{path} is a directory; list() tells what is in it", "is_directory")
        return data

    def read_text(self, path: Path, encoding: str = "utf-8") -> str:
        """A file as text."""
        return self.read(path).decode(encoding)

    def download(self, path: Path, to: Path | IO[bytes]) -> int:
        """Copies a file out of the box and returns its size; or a directory with all that is in it (0)."""
        answer = self._box._transport.open("GET", self._url(path), fresh=True)
        try:
            if answer.type == "application/json":
                if not isinstance(to, (str, os.PathLike)):
                    raise conflict(f"{path} is a directory; name a directory to copy it to", "is_directory")
                self.get_tree(path, to)
                return 0
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
        """Copies a file into the box, with its permissions; or a directory with all that is in it, which is called path then."""
        if os.path.isdir(source):
            self.mkdir(path)
            self.put_tree(source, path)
            return
        with open(source, "rb") as data:
            self.write(path, data, mode=os.fstat(data.fileno()).st_mode & 0o777)

    def list(self, path: Path = ".") -> List[FileInfo]:
        """The entries of a directory, in no particular order."""
        entries: List[FileInfo] = []
        cursor = None
        while True:
            answer = self._box._transport.open("GET", self._url(path), query={"cursor": cursor, "limit": 10000}, fresh=True)
            if answer.type != "application/json":
                answer.close()
                raise conflict(f"{path} is not a directory", "not_directory")
            page = json.loads(answer.all())
            entries += [file_info(e) for e in page["entries"]]
            cursor = page.get("next")
            if not cursor:
                return entries

    def stat(self, path: Path, follow: bool = True) -> FileInfo:
        """What a path is; with follow=False, what a link itself is."""
        return file_info(self._box._transport.call("GET", self._url(path), query={"stat": True, "follow": follow}))

    def exists(self, path: Path) -> bool:
        """Whether there is something at this path."""
        try:
            self.stat(path)
            return True
        except NotFound as e:
            if e.code == "not_found":
                raise  # it is the box that is not there
            return False

    def mkdir(self, path: Path, parents: bool = True, mode: int = 0o755) -> None:
        """Makes a directory, and those above it."""
        self._box._transport.call("POST", self._url(path), json_body={"action": "mkdir", "parents": parents, "mode": f"{mode:04o}"})

    def move(self, path: Path, to: Path, overwrite: bool = False) -> None:
        """Renames or moves within the box."""
        self._box._transport.call("POST", self._url(path), json_body={"action": "move", "to": absolute(to), "overwrite": overwrite})

    def chmod(self, path: Path, mode: int) -> None:
        """Changes permissions."""
        self._box._transport.call("POST", self._url(path), json_body={"action": "chmod", "mode": f"{mode:04o}"})

    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, or with recursive=True a directory."""
        self._box._transport.call("DELETE", self._url(path), query={"recursive": recursive or None})

    def get_archive(self, path: Path) -> bytes:
        """A directory of the box as a tar archive, with names relative to it."""
        return self._box._transport.open("GET", f"{self._box._path}/archive", query={"path": absolute(path)}, fresh=True).all()

    def put_archive(self, path: Path, archive: bytes) -> None:
        """Unpacks a tar archive into a directory of the box."""
        self._box._transport.open("PUT", f"{self._box._path}/archive", query={"path": absolute(path)}, body=archive).all()

    def get_tree(self, path: Path, to: Path) -> None:
        """Copies a directory out of the box. Names and links that would leave the target directory are refused,
        and so is a target that is a link."""
        answer = self._box._transport.open("GET", f"{self._box._path}/archive", query={"path": absolute(path)}, fresh=True)
        try:
            with tarfile.open(fileobj=cast(Any, answer), mode="r|") as archive:
                _unpack(archive, os.fspath(to))
        finally:
            answer.close()

    def put_tree(self, source: Path, path: Path) -> None:
        """Copies a directory into the box."""
        with tempfile.TemporaryFile() as data:
            with tarfile.open(fileobj=data, mode="w") as archive:
                archive.add(source, arcname=".")
            data.seek(0)
            self._box._transport.open("PUT", f"{self._box._path}/archive", query={"path": absolute(path)}, body=data).all()
