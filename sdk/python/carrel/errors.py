"""What can go wrong, by its reason."""
from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from .cells import Result
    from .client import ExecResult


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str) -> str:
    """Without the sequences that colour a terminal."""
    return _ANSI.sub("", text)


class CarrelError(Exception):
    """The server refused or failed. `code` is the API's typed reason, `status` the HTTP status."""

    def __init__(self, message: str, code: str = "error", status: int = 0, details: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = dict(details or {})


class InvalidRequest(CarrelError):
    """The request itself is wrong; the message says what and how to fix it."""


class Unauthorized(CarrelError):
    """No token, or one that is not known."""


class Forbidden(CarrelError):
    """The identity may not do this; or the token has expired or was revoked."""


class NotFound(CarrelError):
    """There is no such box, command or file, or it belongs to somebody else."""


class Conflict(CarrelError):
    """The box, the command or the file is in a state that does not allow it, or the name is taken."""


class FileMissing(NotFound, FileNotFoundError):
    """There is no such file in the box."""


class PermissionDenied(Forbidden, PermissionError):
    """The user of the box may not do this with the file, or it is read-only."""


class IsDirectory(Conflict, IsADirectoryError):
    """It is a directory, and a file was expected."""


class NotDirectory(Conflict, NotADirectoryError):
    """It is no directory, and one was expected; or what is above it is none."""


class QuotaExceeded(CarrelError):
    """The identity has used up its quota."""


class HostFull(CarrelError):
    """The host cannot guarantee what was requested; the message says what is free."""


class NoSpace(CarrelError):
    """The box, or the server's own disk, has no room for it."""


class Unsupported(CarrelError):
    """This server, or a box of this kind, cannot do it."""


class Unavailable(CarrelError):
    """The server is not there, or not ready yet."""


def last_lines(text: str, most: int = 10) -> str:
    """The end of what a program said, for a message."""
    lines = text.rstrip().splitlines()
    return "\n".join((["..."] if len(lines) > most else []) + [line[:500] for line in lines[-most:]])


class ExecFailed(CarrelError):
    """A command ended with something else than success. `result` has everything about it."""

    def __init__(self, result: "ExecResult"):
        said = last_lines(result.stderr)
        super().__init__(f"{result.command}: {result.reason}" + (f"\n{said}" if said else ""), code=result.outcome or "not_started")
        self.result = result


class ExecTimeout(ExecFailed, TimeoutError):
    """A command ran longer than its `timeout` and was ended."""


class CellFailed(CarrelError, RuntimeError):
    """A cell did not end well: it raised, said too much, or was interrupted. `result` has what it said until then."""

    def __init__(self, message: str, code: str = "error", result: "Result | None" = None):
        super().__init__(message, code=code)
        self.result = result

    @property
    def traceback(self) -> str:
        """Where it raised, without colours; empty if it did not."""
        error = self.result.error if self.result is not None else None
        return plain("\n".join(error.traceback)) if error is not None else ""


class RunTimeout(CellFailed, TimeoutError):
    """A cell ran longer than it was allowed to, and was interrupted. The kernel and its state are still there, unless the message says otherwise."""

    def __init__(self, message: str, result: "Result | None" = None):
        super().__init__(message, "timeout", result)


class KernelDied(CellFailed):
    """The kernel ended, and its state is lost. `code` says why (oom, killed, exit, ...)."""

    def __init__(self, message: str, code: str = "dead", result: "Result | None" = None):
        super().__init__(message, code, result)


class InterpreterUnavailable(Unavailable):
    """An interpreter cannot run in a box. The message says which, why, and the fix."""


class KernelUnavailable(Unavailable):
    """There can be no kernel: its interpreter lacks something. The message says what, and the fix."""


_BY_CODE: dict[str, type[CarrelError]] = {
    "quota_exceeded": QuotaExceeded, "host_full": HostFull, "disk_full": NoSpace, "interpreter_failed": InterpreterUnavailable,
    "file_not_found": FileMissing, "permission_denied": PermissionDenied, "read_only": PermissionDenied, "is_a_directory": IsDirectory,
    "is_directory": IsDirectory, "not_a_directory": NotDirectory, "not_directory": NotDirectory,
}
_ERRNO: dict[type[CarrelError], int] = {FileMissing: errno.ENOENT, PermissionDenied: errno.EACCES, IsDirectory: errno.EISDIR,
                                       NotDirectory: errno.ENOTDIR}
_BY_STATUS: dict[int, type[CarrelError]] = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: NotFound, 413: InvalidRequest,
    416: InvalidRequest, 422: InvalidRequest, 429: QuotaExceeded, 501: Unsupported, 502: Unavailable, 503: Unavailable, 504: Unavailable,
    507: NoSpace,
}


def from_response(status: int, body: Any) -> CarrelError:
    """The exception for an error answer."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    message = error.get("message") or (body if isinstance(body, str) and body else f"HTTP status {status}")
    code = str(error.get("code", "error"))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, CarrelError)
    made = kind(message, code=code, status=status, details=error.get("details"))
    if isinstance(made, OSError):
        made.errno = _ERRNO.get(kind)
    return made


def conflict(message: str, code: str) -> CarrelError:
    """What the server did not say, because it gave the directory's listing for a file, or a file for a listing."""
    return from_response(409, {"error": {"code": code, "message": message}})
