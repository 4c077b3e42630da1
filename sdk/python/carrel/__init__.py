"""Isolated boxes for code that nobody has read."""
from .client import Box, Carrel, Exec, ExecResult, FileInfo
from .errors import (CarrelError, Conflict, ExecFailed, Forbidden, HostFull, InvalidRequest, NotFound, QuotaExceeded, Unauthorized,
                     Unavailable)

__all__ = ["Box", "Carrel", "CarrelError", "Conflict", "Exec", "ExecFailed", "ExecResult", "FileInfo", "Forbidden", "HostFull",
           "InvalidRequest", "NotFound", "QuotaExceeded", "Unauthorized", "Unavailable"]
