"""The files of a box, for asyncio."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, List

from .aio import AsyncAnswer
from .errors import NotFound, conflict
from .files import FileInfo, Path, file_info, range_header
from .transport import absolute, file_path

if TYPE_CHECKING:
    from .asyncclient import AsyncBox


def _is_listing(answer: AsyncAnswer) -> bool:
    return answer.fields.get("content-type", "").split(";")[0].strip() == "application/json"


class AsyncFiles:
    """As Files. Paths without a leading slash are below the home directory."""

    def __init__(self, box: "AsyncBox"):
        self._box = box

    def _url(self, path: Path) -> str:
        return f"{self._box._path}/files/{file_path(path)}"

    async def read(self, path: Path, offset: int | None = None, length: int | None = None) -> bytes:
        """The file, or a part of it."""
        if length == 0:
            return b""
        answer = await self._box._transport.open("GET", self._url(path), headers=range_header(offset, length))
        data = await answer.all()
        if _is_listing(answer):
            raise conflict(f"{path} is a directory; list() tells what is in it", "is_directory")
        return data

    async def write(self, path: Path, data: str | bytes, *, mode: int | None = None, append: bool = False,
                    parents: bool = True) -> None:
        """Writes a file; whole or not at all, unless it appends."""
        body = data.encode() if isinstance(data, str) else data
        query = {"mode": None if mode is None else f"{mode:04o}", "append": append or None, "parents": parents or None}
        await (await self._box._transport.open("PUT", self._url(path), query=query, body=body)).all()

    async def list(self, path: Path = ".") -> List[FileInfo]:
        """The entries of a directory, in no particular order."""
        entries: List[FileInfo] = []
        cursor = None
        while True:
            answer = await self._box._transport.open("GET", self._url(path), query={"cursor": cursor, "limit": 10000})
            if not _is_listing(answer):
                answer.close()
                raise conflict(f"{path} is not a directory", "not_directory")
            page = json.loads(await answer.all())
            entries += [file_info(e) for e in page["entries"]]
            cursor = page.get("next")
            if not cursor:
                return entries

    async def stat(self, path: Path, follow: bool = True) -> FileInfo:
        """What a path is; with follow=False, what a link itself is."""
        query = {"stat": True, "follow": follow}
        return file_info(await self._box._transport.call("GET", self._url(path), query=query))

    async def exists(self, path: Path) -> bool:
        """Whether there is something at this path."""
        try:
            await self.stat(path)
            return True
        except NotFound as e:
            if e.code == "not_found":
                raise       # it is the box that is not there
            return False

    async def mkdir(self, path: Path, parents: bool = True, mode: int = 0o755) -> None:
        """Makes a directory, and those above it."""
        await self._box._transport.call("POST", self._url(path),
                                        json_body={"action": "mkdir", "parents": parents, "mode": f"{mode:04o}"})

    async def move(self, path: Path, to: Path, overwrite: bool = False) -> None:
        """Renames or moves within the box."""
        await self._box._transport.call("POST", self._url(path),
                                        json_body={"action": "move", "to": absolute(to), "overwrite": overwrite})

    async def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, or with recursive=True a directory."""
        await self._box._transport.call("DELETE", self._url(path), query={"recursive": recursive or None})

    async def get_archive(self, path: Path) -> bytes:
        """A directory of the box as a tar archive, with names relative to it."""
        return await (await self._box._transport.open("GET", f"{self._box._path}/archive",
                                                      query={"path": absolute(path)})).all()

    async def put_archive(self, path: Path, archive: bytes) -> None:
        """Unpacks a tar archive into a directory of the box."""
        await (await self._box._transport.open("PUT", f"{self._box._path}/archive", query={"path": absolute(path)},
                                               body=archive)).all()
