"""A sandbox for deepagents, on this machine:

    from carrel.integrations.deepagents import CarrelSandbox

    with CarrelSandbox(memory="1G") as sandbox:
        agent = create_deep_agent(model=..., backend=sandbox)
"""
from __future__ import annotations

import posixpath
from types import TracebackType
from typing import Any

from ..client import Box, ExecResult
from ..errors import CarrelError, FileMissing, IsDirectory, NotDirectory, PermissionDenied, Unsupported
from .common import close_box, is_at_least, is_cut, make_box, needs, why

with needs("deepagents", "deepagents", "0.6"):
    from deepagents.backends.protocol import (FILE_NOT_FOUND, INVALID_PATH, IS_DIRECTORY, PERMISSION_DENIED,
                                              ExecuteResponse, FileDownloadResponse, FileUploadResponse, LsResult,
                                              WriteResult)
    from deepagents.backends.sandbox import BaseSandbox

_OVERWRITES = is_at_least("deepagents", "0.7")
_ARTIFACTS = ("/large_tool_results", "/conversation_history", "/blobs")
_CODES = ((FileMissing, FILE_NOT_FOUND), (PermissionDenied, PERMISSION_DENIED), (IsDirectory, IS_DIRECTORY),
          (NotDirectory, INVALID_PATH))


def _code(error: CarrelError) -> str:
    return next((code for kind, code in _CODES if isinstance(error, kind)), str(error))


class CarrelSandbox(BaseSandbox):
    """One box for one agent or thread; deleted by the context manager or close(), and with the process. Further options
    are those of Box."""

    def __init__(self, *, box: Box | None = None, timeout: float = 30 * 60, **options: Any):
        self._own = box is None
        self._box = box or self._make(options)
        self._aio = self._box.aio
        self._timeout = timeout

    def _make(self, options: Any) -> Box:
        """With the folders below / in which deepagents stores long messages, if a box may have them: not a box of an ordinary
        user. There use CompositeBackend(artifacts_root="/home/box")."""
        if not {"root", "user", "writable_root"} & set(options):
            try:
                box = make_box(writable_root=True, **options)
                self.enable_capture_offload = box.exec(["/bin/mkdir", "-m", "0777", *_ARTIFACTS], user="0:0").ok
                return box
            except Unsupported:
                pass
        return make_box(**options)

    @property
    def id(self) -> str:
        return self._box.id

    @property
    def box(self) -> Box:
        return self._box

    def close(self) -> None:
        if self._own:
            close_box(self._box)

    def __enter__(self) -> "CarrelSandbox":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    # ---- commands ----

    def _options(self, timeout: float | None) -> dict[str, Any]:
        return {"timeout": self._timeout if timeout is None else timeout, "merge_stderr": True}

    @staticmethod
    def _response(result: ExecResult) -> ExecuteResponse:
        reason = why(result)
        output = result.shown() + (f"\nError: {reason}\n" if reason else "")
        return ExecuteResponse(output=output, exit_code=result.exit_code, truncated=is_cut(result))

    @staticmethod
    def _failure(error: CarrelError) -> ExecuteResponse:
        return ExecuteResponse(output=f"Error: the command did not run: {error}", exit_code=125)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        try:
            return self._response(self._box.exec(command, **self._options(timeout)))
        except CarrelError as e:
            return self._failure(e)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Cancelling it ends the command."""
        try:
            return self._response(await self._aio.exec(command, **self._options(timeout)))
        except CarrelError as e:
            return self._failure(e)

    # ---- files ----

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return INVALID_PATH
        try:
            self._box.files.write(path, content)
            return None
        except CarrelError as e:
            return _code(e)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error=INVALID_PATH)
        try:
            return FileDownloadResponse(path=path, content=self._box.files.read(path))
        except CarrelError as e:
            return FileDownloadResponse(path=path, error=_code(e))

    # Natively, where the base class would start an interpreter in the box.

    def _write_preflight(self, file_path: str) -> WriteResult | None:
        """An upload makes the directories above. Before 0.7 the base class also refuses to overwrite here."""
        return None if _OVERWRITES else super()._write_preflight(file_path)

    async def _awrite_preflight(self, file_path: str) -> WriteResult | None:
        return None if _OVERWRITES else await super()._awrite_preflight(file_path)

    def ls(self, path: str) -> LsResult:
        try:
            found = self._box.files.list(path)
        except FileMissing:
            return LsResult(error=f"Path '{path}': path_not_found")
        except NotDirectory:
            return LsResult(error=f"Path '{path}': not_a_directory")
        except CarrelError as e:
            return LsResult(error=f"Path '{path}': {_code(e)}")
        return LsResult(entries=[{"path": posixpath.join(path, entry.name), "is_dir": entry.is_dir} for entry in found])

    async def als(self, path: str) -> LsResult:
        return self.ls(path)
