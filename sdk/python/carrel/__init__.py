"""Isolated boxes for code that nobody has read."""
from .client import Box, Carrel, Exec, ExecResult, event_bytes
from .errors import (CarrelError, Conflict, ExecFailed, Forbidden, HostFull, InvalidRequest, NoSpace, NotFound, QuotaExceeded,
                     Unauthorized, Unavailable, Unsupported)
from .files import FileInfo, Files
from .ports import Forward, Ports

__all__ = ["Box", "Carrel", "CarrelError", "Conflict", "Exec", "ExecFailed", "ExecResult", "FileInfo", "Files", "Forbidden", "Forward",
           "HostFull", "InvalidRequest", "NoSpace", "NotFound", "Ports", "QuotaExceeded", "Unauthorized", "Unavailable", "Unsupported",
           "event_bytes"]
