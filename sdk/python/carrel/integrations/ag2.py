"""A sandbox for AG2, on this machine:

    from carrel.integrations.ag2 import CarrelEnvironment

    async with CarrelEnvironment(memory="1G") as environment:
        agent = Agent("coder", config=..., tools=[SandboxCodeTool(environment), SandboxShellTool(environment)])
"""
from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path, PurePosixPath
from typing import Any, AsyncGenerator, Dict, Optional

from ..client import Box
from ..errors import CarrelError
from .common import close_box, make_box, needs, why

with needs("ag2", "ag2", "1.2"):
    from ag2.exceptions import ToolExecutionError
    from ag2.tools.sandbox import ExecResult, SandboxBase

_HOME = PurePosixPath("/home/box")


class CarrelSandbox(SandboxBase):
    """One box, made by the first use and deleted by aclose() or `async with`. Further options are those of Box."""

    def __init__(self, *, timeout: float = 60, max_output: int = 100_000, **options: Any):
        if timeout <= 0:
            raise ValueError("`timeout` must be > 0 seconds.")
        self._timeout, self._max_output, self._options = timeout, max_output, options
        self._lock = threading.Lock()       # uses come from several event loops
        self._box: Optional[Box] = None
        self.closed = False

    @property
    def workdir(self) -> PurePosixPath:
        return _HOME

    @property
    def host_workdir(self) -> Optional[Path]:
        return None

    @property
    def supported_languages(self) -> tuple[str, ...]:
        return ("python", "bash")

    def box(self) -> Box:
        with self._lock:
            if self.closed:
                raise RuntimeError("CarrelSandbox has been closed.")
            if self._box is None:
                try:
                    self._box = make_box(**self._options)
                except CarrelError as e:
                    raise ToolExecutionError(f"No box for the tool: {e}") from e
            return self._box

    async def __aenter__(self) -> "CarrelSandbox":
        await asyncio.to_thread(self.box)
        return self

    async def exec(self, argv: list[str], *, env: Dict[str, str] | None = None,
                   timeout: float | None = None) -> ExecResult:
        if not argv:
            return ExecResult(output="", exit_code=2)
        box = await asyncio.to_thread(self.box)
        limit = self._timeout if timeout is None else timeout
        try:
            result = await box.aio.exec(argv, env=env, timeout=limit, merge_stderr=True)
        except CarrelError as e:
            raise ToolExecutionError(f"The command did not run: {e}") from e
        if result.outcome == "timeout":
            return ExecResult(output=f"Command timed out after {limit}s", exit_code=124)
        reason = why(result)
        output = (result.shown() + (f"\n{reason}" if reason else "")).strip()
        if len(output) > self._max_output:
            cut = f"[truncated: showing first {self._max_output} of {len(output)} chars]"
            output = "\n".join([output[:self._max_output], cut, *([reason] if reason else [])])
        return ExecResult(output=output, exit_code=result.exit_code)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"Path must stay below the working directory: {path}")
        box = await asyncio.to_thread(self.box)
        await box.aio.files.write(str(_HOME / path), content)

    async def aclose(self) -> None:
        with self._lock:
            box, self._box, self.closed = self._box, None, True
        if box is not None:
            await asyncio.to_thread(close_box, box)


class CarrelEnvironment:
    """A SandboxFactory over one box, which the tools that share it share."""

    def __init__(self, **options: Any):
        self._options = options
        self._lock = threading.Lock()
        self.sandbox = CarrelSandbox(**options)

    @property
    def workdir(self) -> PurePosixPath:
        return _HOME

    @contextlib.asynccontextmanager
    async def open(self, context: Any = None) -> AsyncGenerator[CarrelSandbox, None]:
        with self._lock:
            if self.sandbox.closed:
                self.sandbox = CarrelSandbox(**self._options)
            sandbox = self.sandbox
        await sandbox.__aenter__()
        yield sandbox       # not closed here: the next call finds the same box

    async def aclose(self) -> None:
        await self.sandbox.aclose()

    async def __aenter__(self) -> "CarrelEnvironment":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __deepcopy__(self, memo: Any) -> "CarrelEnvironment":
        return self         # agents copy their tools; the box stays one
