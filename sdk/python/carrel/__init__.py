"""Isolated boxes for untrusted code."""
from __future__ import annotations

from typing import Any

from .asyncclient import AsyncBox, AsyncCarrel, AsyncKernel
from .asyncexec import AsyncExec
from .asyncfiles import AsyncFiles
from .cells import CellError, Kernel, Output, Result
from .client import Box, Carrel, Exec, ExecResult, event_bytes
from .errors import (CarrelError, CellFailed, Conflict, ExecFailed, ExecTimeout, FileMissing, Forbidden, HostFull, InterpreterUnavailable,
                     InvalidRequest, IsDirectory, KernelDied, KernelUnavailable, NoSpace, NotDirectory, NotFound, PackagesUnavailable, PermissionDenied,
                     QuotaExceeded, RunTimeout, Unauthorized, Unavailable, Unsupported)
from .files import FileInfo, Files
from .local import setup
from .outputs import ExecLogs
from .ports import Forward, Ports
from .volumes import AsyncVolume, Volume

__version__ = "0.1.0"
__all__ = [
    "AsyncBox", "AsyncCarrel", "AsyncExec", "AsyncFiles", "AsyncKernel", "AsyncVolume", "Box", "Carrel", "CarrelError", "CellError",
    "CellFailed", "Conflict", "Exec", "ExecFailed", "ExecLogs", "ExecResult", "ExecTimeout", "FileInfo", "FileMissing",
    "Files", "Forbidden", "Forward", "HostFull", "InterpreterUnavailable", "InvalidRequest", "IsDirectory", "Kernel",
    "KernelDied", "KernelUnavailable", "NoSpace", "NotDirectory", "NotFound", "Output", "PackagesUnavailable",
    "PermissionDenied", "Ports", "QuotaExceeded", "Result", "RunTimeout", "Unauthorized", "Unavailable", "Unsupported", "Volume", "arun", "event_bytes", "run",
    "setup"]


def run(code: str, **options: Any) -> Result:
    """Runs a cell of Python in a box that is made for it and ends with it. Options as for Box and Box.run()."""
    return Carrel().run(code, **options)


async def arun(code: str, **options: Any) -> Result:
    """The same for asyncio."""
    async with AsyncCarrel() as server:
        return await server.run(code, **options)
