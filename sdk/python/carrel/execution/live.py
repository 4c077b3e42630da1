"""The sessions that this program has made and not ended, oldest first."""
from __future__ import annotations

import os
from typing import Any, List, Tuple

_sessions: List[Tuple[int, Any]] = []


def add_session(session: Any) -> None:
    _sessions.append((os.getpid(), session))


def forget_session(session: Any) -> None:
    _sessions[:] = [(owner, s) for owner, s in _sessions if s is not session]


def live_sessions() -> List[Any]:
    """Those of a parent are not a forked child's."""
    return [session for owner, session in _sessions if owner == os.getpid() and session.is_alive]
