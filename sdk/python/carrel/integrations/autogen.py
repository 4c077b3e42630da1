"""A code executor for AutoGen, on this machine:

    from carrel.integrations.autogen import CarrelCodeExecutor

    async with CarrelCodeExecutor(memory="1G") as executor:
        agent = CodeExecutorAgent("runner", code_executor=executor)
"""
from __future__ import annotations

import asyncio
import hashlib
import posixpath
from typing import Any, Dict, List, Optional

from ..asyncclient import AsyncBox
from ..errors import CarrelError
from .common import close_async_box, make_async_box, needs, why

with needs("autogen", "autogen-core", "0.7"):
    from autogen_core import CancellationToken, Component
    from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
    from pydantic import BaseModel

_HOME = "/home/box"
_PROGRAMS = {"python": "python3", "py": "python3", "bash": "bash", "sh": "sh", "shell": "sh"}


class CarrelCodeExecutorConfig(BaseModel):
    timeout: float = 60
    work_dir: str = _HOME
    box: Dict[str, Any] = {}


class CarrelCodeExecutor(CodeExecutor, Component[CarrelCodeExecutorConfig]):
    """One box from start() to stop(), or from the first block on; files stay from block to block. Languages: python,
    bash, sh. Further options are those of Box."""

    component_config_schema = CarrelCodeExecutorConfig
    component_provider_override = "carrel.integrations.autogen.CarrelCodeExecutor"

    def __init__(self, timeout: float = 60, work_dir: str = _HOME, **options: Any):
        if timeout <= 0:
            raise ValueError("timeout must be greater than 0.")
        self.timeout = timeout
        self.work_dir = posixpath.join(_HOME, work_dir)
        self._options = options
        self.box: Optional[AsyncBox] = None

    async def start(self) -> None:
        if self.box is None:
            try:
                self.box = await make_async_box(**self._options)
                await self.box.files.mkdir(self.work_dir)
            except CarrelError as e:
                await self.stop()
                raise RuntimeError(f"No box for the code: {e}") from e

    async def stop(self) -> None:
        box, self.box = self.box, None
        if box is not None:
            await close_async_box(box)

    async def restart(self) -> None:
        """A new box: no file and no process of the old one."""
        await self.stop()
        await self.start()

    async def execute_code_blocks(self, code_blocks: List[CodeBlock],
                                  cancellation_token: CancellationToken) -> CodeResult:
        await self.start()
        output = ""
        for block in code_blocks:
            language = block.language.lower()
            if language not in _PROGRAMS:
                return CodeResult(
                    exit_code=1,
                    output=f"{output}\nunknown language {language}; a box has {', '.join(sorted(_PROGRAMS))}")
            task = asyncio.ensure_future(self._run(_PROGRAMS[language], block.code))
            cancellation_token.link_future(task)
            try:
                result = await task
            except asyncio.CancelledError:
                return CodeResult(exit_code=125, output=output + "\nCancelled")
            output += result.output
            if result.exit_code != 0:
                return CodeResult(exit_code=result.exit_code, output=output)
        return CodeResult(exit_code=0, output=output)

    async def _run(self, program: str, code: str) -> CodeResult:
        assert self.box is not None
        path = self._path(code, program)
        if path is None:
            return CodeResult(exit_code=1, output="Filename is not in the workspace")
        try:
            await self.box.files.write(path, code)
            result = await self.box.exec([program, path], cwd=self.work_dir, timeout=self.timeout, merge_stderr=True)
        except CarrelError as e:
            raise RuntimeError(f"The code did not run: {e}") from e
        if result.outcome == "timeout":
            return CodeResult(exit_code=124, output=f"{result.shown()}\nTimeout: {result.reason}")
        reason = why(result)
        return CodeResult(exit_code=result.exit_code, output=result.shown() + (f"\n{reason}\n" if reason else ""))

    def _path(self, code: str, program: str) -> Optional[str]:
        """Where a block goes: its first line may name its file, which must be below the working directory."""
        first = code.split("\n", 1)[0]
        if first.startswith("# filename:"):
            path = posixpath.normpath(posixpath.join(self.work_dir, first.split(":", 1)[1].strip()))
            return path if path.startswith(self.work_dir.rstrip("/") + "/") else None
        ending = "py" if program == "python3" else "sh"
        return f"{self.work_dir}/tmp_code_{hashlib.sha256(code.encode()).hexdigest()[:16]}.{ending}"

    def _to_config(self) -> CarrelCodeExecutorConfig:
        return CarrelCodeExecutorConfig(timeout=self.timeout, work_dir=self.work_dir, box=self._options)

    @classmethod
    def _from_config(cls, config: CarrelCodeExecutorConfig) -> "CarrelCodeExecutor":
        return cls(timeout=config.timeout, work_dir=config.work_dir, **config.box)
