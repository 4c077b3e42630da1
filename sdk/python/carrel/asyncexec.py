"""A command in the background, for asyncio."""
from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Sequence

from .client import ExecResult, Raw, command_body, exec_result
from .errors import CarrelError, Conflict
from .outputs import ExecLogs, gather
from .transport import segment

if TYPE_CHECKING:
    from .asyncclient import AsyncBox


class AsyncExec:
    """As Exec."""

    def __init__(self, box: "AsyncBox", raw: Raw):
        self._box = box
        self.raw = raw
        self.id: str = raw["id"]

    def __repr__(self) -> str:
        return f"<AsyncExec {self.id} {self.raw.get('state')}>"

    @property
    def _path(self) -> str:
        return f"{self._box._path}/exec/{segment(self.id)}"

    async def refresh(self) -> "AsyncExec":
        """Asks the server how the command is now. Returns the command."""
        self.raw = await self._box._transport.call("GET", self._path)
        return self

    def output(self, offset: int = 0, follow: bool = True) -> AsyncIterator[Raw]:
        """Events of the command from an offset (that of an event's `next`); with follow, until it ends."""
        return self._box._transport.lines("GET", self._path + "/output", query={"offset": offset, "follow": follow})

    async def logs(self) -> ExecLogs:
        """Its output so far, as much as the server keeps."""
        return gather([event async for event in self.output(follow=False)])

    async def wait(self) -> ExecResult:
        """Waits for the end and returns the result, with the output that the server keeps."""
        self.raw = await self._box._transport.call("GET", self._path, query={"wait": True})
        return exec_result({**self.raw, **(await self.logs()).raw()})

    async def write(self, data: bytes, close: bool = False) -> None:
        """Sends data to the command's standard input; returns when it was taken."""
        await (await self._box._transport.open("POST", self._path + "/stdin", query={"close": close}, body=data)).all()

    async def signal(self, signal: int | str) -> None:
        """Sends it a signal, by number."""
        await self._box._transport.call("POST", self._path + "/signal", json_body={"signal": signal})

    async def kill(self) -> None:
        """Ends it and its children at once."""
        await self._box._transport.call("DELETE", self._path)

    async def resize(self, rows: int, cols: int) -> None:
        """Changes the size of its terminal."""
        await self._box._transport.call("POST", self._path + "/resize", json_body={"rows": rows, "cols": cols})


async def spawn(box: "AsyncBox", argv: Sequence[str] | str, options: Mapping[str, Any]) -> AsyncExec:
    """Starts a command in the background. If the task is cancelled meanwhile, no command is left behind."""
    start = asyncio.ensure_future(
        box._transport.call("POST", box._path + "/exec",
                            json_body={**command_body(argv, **options), "background": True}))
    try:
        return AsyncExec(box, await asyncio.shield(start))
    except asyncio.CancelledError:
        with contextlib.suppress(CarrelError):
            await AsyncExec(box, await start).kill()
        raise


async def exec_with_input(box: "AsyncBox", argv: Sequence[str] | str, stdin: bytes,
                          options: Mapping[str, Any]) -> ExecResult:
    """Runs a command to its end, with input that need not be text."""
    command = await spawn(box, argv, {**options, "stdin": True})
    try:
        try:
            await command.write(stdin, close=True)
        except Conflict:
            pass        # it ended, or closed its input, before it had read everything
        return await command.wait()
    except BaseException:
        with contextlib.suppress(CarrelError):
            await asyncio.shield(command.kill())
        raise
