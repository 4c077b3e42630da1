"""What can go wrong, by its reason."""
from __future__ import annotations

from typing import Any


class CarrelError(Exception):
    """The server refused or failed. `code` is the API's typed reason, `status` the HTTP status."""

    def __init__(self, message: str, code: str = "error", status: int = 0, details: dict[str, Any] | None = None):
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = details or {}


class InvalidRequest(CarrelError):
    """The request itself is wrong; the message says what and how to fix it."""


class Unauthorized(CarrelError):
    """No token, or one that is not known, expired or revoked."""


class Forbidden(CarrelError):
    """The identity may not do this."""


class NotFound(CarrelError):
    """There is no such box, command or file, or it belongs to somebody else."""


class Conflict(CarrelError):
    """The box is in a state that does not allow it, or the name is taken."""


class QuotaExceeded(CarrelError):
    """The identity has used up its quota."""


class HostFull(CarrelError):
    """The host cannot guarantee what was requested; the message says what is free."""


class Unavailable(CarrelError):
    """The server is not there, or not ready yet."""


class ExecFailed(CarrelError):
    """A command ended with something else than success. `result` has everything about it."""

    def __init__(self, result: Any):
        what = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        super().__init__(f"{result.outcome}: {what}", code=result.outcome or "error")
        self.result = result


_BY_STATUS = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: NotFound, 413: InvalidRequest,
    416: InvalidRequest, 422: InvalidRequest, 429: QuotaExceeded, 502: Unavailable, 503: Unavailable, 504: Unavailable, 507: HostFull,
}


def from_response(status: int, body: Any) -> CarrelError:
    """The exception for an error answer."""
    error = body.get("error", {}) if isinstance(body, dict) else {}
    message = error.get("message") or (body if isinstance(body, str) and body else f"HTTP status {status}")
    kind = _BY_STATUS.get(status, CarrelError)
    return kind(message, code=error.get("code", "error"), status=status, details=error.get("details"))
