"""The package's errors, by their reasons."""
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
    """The request itself is wrong; the message names the fault and the remedy."""


class Unauthorized(CarrelError):
    """No token, or an unknown one."""


class Forbidden(CarrelError):
    """The identity may not do this; or the token has expired or was revoked."""


class NotFound(CarrelError):
    """There is no such box, command or file, or it belongs to another user."""


class Conflict(CarrelError):
    """The box, the command or the file is in a state that does not allow it, or the name is taken."""


class FileMissing(NotFound, FileNotFoundError):
    """There is no such file in the box."""


class PermissionDenied(Forbidden, PermissionError):
    """The user of the box may not do this with the file, or it is read-only."""


class IsDirectory(Conflict, IsADirectoryError):
    """It is a directory, and a file was expected."""


class NotDirectory(Conflict, NotADirectoryError):
    """A directory was expected, here or above in the path."""


class QuotaExceeded(CarrelError):
    """The identity has used up its quota."""


class PackagesUnavailable(InvalidRequest, RuntimeError):
    """Packages cannot be installed: there is no such package or version, they do not go together, the index does not answer. The message has the
    installer's own words."""


class HostFull(CarrelError):
    """The host cannot guarantee the requested resources; the message has the free ones."""


class NoSpace(CarrelError):
    """The box, or the server's own disk, has no room for it."""


class Unsupported(CarrelError):
    """This server, or a box of this kind, cannot do it."""


class Unavailable(CarrelError):
    """The server is not there, or not ready yet."""


def last_lines(text: str, most: int = 10) -> str:
    """The end of a program's output, for a message."""
    lines = text.rstrip().splitlines()
    return "\n".join((["..."] if len(lines) > most else []) + [line[:500] for line in lines[-most:]])


class ExecFailed(CarrelError):
    """A command ended with something else than success. `result` has everything about it."""

    def __init__(self, result: "ExecResult"):
        said = last_lines(result.stderr)
        super().__init__(f"{result.command}: {result.reason}" + (f"\n{said}" if said else ""), code=result.outcome)
        self.result = result


class ExecTimeout(ExecFailed, TimeoutError):
    """A command ran longer than its `timeout` and was ended."""


class CellFailed(CarrelError, RuntimeError):
    """A cell did not end well: it raised, printed too much, or was interrupted. `result` has its output until then."""

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
    """There can be no kernel: its interpreter lacks something. The message names it, and the remedy."""


_BY_CODE: dict[str, type[CarrelError]] = {
    "quota_exceeded": QuotaExceeded, "host_full": HostFull, "disk_full": NoSpace, "packages_failed": PackagesUnavailable, "interpreter_failed": InterpreterUnavailable,
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
    """The server gave a directory's listing for a file, or a file for a listing; this is the missing error."""
    return from_response(409, {"error": {"code": code, "message": message}})
