"""Volumes: directories of a server that outlive boxes."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Union
from urllib.parse import quote

from . import local
from .errors import Unsupported

if TYPE_CHECKING:
    from .asyncclient import AsyncCarrel
    from .client import Carrel

Raw = Dict[str, Any]
Volumes = Union[Mapping[str, str], Sequence[str]]
Shares = Union[str, Sequence[str]]


def _use(name: str, place: str) -> Raw:
    path, mode = (place[:-3], place[-3:]) if place[-3:] in (":ro", ":rw") else (place, ":rw")
    if not name or not path.startswith("/"):
        raise ValueError(f"a volume is NAME:/PATH or NAME:/PATH:ro, not {name}:{place}")
    return {"name": name, "path": path, "read_only": mode == ":ro"}


def volumes_body(volumes: Volumes | None) -> List[Raw] | None:
    """{"data": "/data", "uid:0/models": "/models:ro"}, or ["data:/data", ...], in the API's form."""
    if not volumes:
        return None
    if isinstance(volumes, str):
        raise TypeError("volumes is a mapping or a list, as in volumes={\"data\": \"/data\"}")
    if isinstance(volumes, Mapping):
        return [_use(str(name), place) for name, place in volumes.items()]
    return [_use(text.partition(":/")[0], "/" + text.partition(":/")[2]) for text in volumes]


def create_volume_body(name: str, size: str | int | None, many: bool | None, shared_with: Shares | None) -> Raw:
    return {"name": name, **_body(size=size, many=many, shared_with=shared_with)}


def _body(**options: Any) -> Raw:
    return {k: list(v) if k == "shared_with" and not isinstance(v, str) else v for k, v in options.items() if v is not None}


def check_stays(url: str) -> None:
    """A private server ends with this process, and its volumes with it."""
    if local.is_private(url):
        raise Unsupported("volumes are kept by a server that stays, and none is running; start one with 'carrel serve'", code="not_implemented")


def volume_path(name: str) -> str:
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is not the name of a volume: NAME or OWNER/NAME")
    return "/v1/volumes/" + quote(name, safe="/")


class Volume:
    """A directory that outlives boxes. Made by Carrel.create_volume(); a box has it with Box(volumes={"data": "/data"}).

    `raw` is what the server said last: refresh() asks again. size and used are bytes; used is None on a server without
    root, where a volume is a plain directory and its size is not enforced."""

    def __init__(self, server: "Carrel", raw: Raw):
        self._server = server
        self.raw = raw
        self.id: str = raw["id"]
        self.name: str = raw["name"]

    def __repr__(self) -> str:
        return f"<Volume {self.name} {self.raw.get('phase')}>"

    def _change(self, method: str, body: Raw | None = None) -> "Volume":
        self.raw = self._server._transport.call(method, volume_path(self.id), json_body=body)
        return self

    @property
    def size(self) -> int:
        """Its size in bytes, when the server was last asked."""
        return int(self.raw["size"])

    @property
    def used(self) -> int | None:
        """The bytes that it takes on the server's disk, when the server was last asked."""
        used: int | None = self.raw["used"]
        return used

    def refresh(self) -> "Volume":
        """Asks the server how the volume is now. Returns the volume."""
        return self._change("GET")

    def resize(self, size: str | int) -> "Volume":
        """Makes it larger, while no box has it. Returns the volume."""
        return self._change("PATCH", {"size": size})

    def share(self, with_: Shares) -> "Volume":
        """Lets these identities, or "all", read it; [] for none. Returns the volume."""
        return self._change("PATCH", _body(shared_with=with_))

    def delete(self) -> None:
        """Removes it and its files, while no box has it."""
        self._server._transport.call("DELETE", volume_path(self.id))


class AsyncVolume:
    """The same for asyncio."""

    def __init__(self, server: "AsyncCarrel", raw: Raw):
        self._server = server
        self.raw = raw
        self.id: str = raw["id"]
        self.name: str = raw["name"]

    def __repr__(self) -> str:
        return f"<AsyncVolume {self.name} {self.raw.get('phase')}>"

    async def _change(self, method: str, body: Raw | None = None) -> "AsyncVolume":
        self.raw = await (await self._server._ready()).call(method, volume_path(self.id), json_body=body)
        return self

    async def refresh(self) -> "AsyncVolume":
        """Asks the server how the volume is now. Returns the volume."""
        return await self._change("GET")

    async def resize(self, size: str | int) -> "AsyncVolume":
        """Makes it larger, while no box has it. Returns the volume."""
        return await self._change("PATCH", {"size": size})

    async def share(self, with_: Shares) -> "AsyncVolume":
        """Lets these identities, or "all", read it; [] for none. Returns the volume."""
        return await self._change("PATCH", _body(shared_with=with_))

    async def delete(self) -> None:
        """Removes it and its files, while no box has it."""
        await (await self._server._ready()).call("DELETE", volume_path(self.id))
