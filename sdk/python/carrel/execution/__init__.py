"""Sessions: where the agent's code runs."""
from __future__ import annotations

from .local_session import LocalSession, create_local_session
from .session import CellFailed, Session

__all__ = ["CellFailed", "LocalSession", "Session", "create_local_session"]
