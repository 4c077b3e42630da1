"""Boxes that end with this process, however it ends: their time to live is short, and a thread of this process prolongs
it again and again."""
from __future__ import annotations

import os
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Dict, Tuple

from .errors import CarrelError, NotFound

if TYPE_CHECKING:
    from .client import Box

# By id: the box, the seconds of its lease, when its own time to live is over.
_held: Dict[str, Tuple["Box", float, float]] = {}
_changed = threading.Condition()


def _new_condition() -> None:
    global _changed
    _changed = threading.Condition()
    _held.clear()       # they are the parent's, which prolongs them


os.register_at_fork(after_in_child=_new_condition)


def _end_of(box: "Box") -> float:
    """When the box would end by its own time to live, in seconds since 1970."""
    text = box.raw.get("expires_at")
    if not text:
        return float("inf")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()


def _prolong(box: "Box", seconds: float, end: float) -> bool:
    """Whether there is something left to prolong."""
    left = end - time.time()
    try:
        if left > seconds:
            box.update(ttl=seconds)
            return True
        box.update(ttl=max(left, 1))
        return False
    except NotFound:
        return False
    except CarrelError:
        return True         # the server restarts, perhaps: there is a next time


def _run(changed: threading.Condition) -> None:
    while True:
        with changed:
            while not _held:
                changed.wait()
            held = list(_held.items())
        for name, (box, seconds, end) in held:
            if not _prolong(box, seconds, end):
                drop(name)
        with changed:
            changed.wait(min((seconds for _, seconds, _ in _held.values()), default=60) / 4)


def hold(box: "Box", seconds: float) -> None:
    """From now on the box lives so many seconds longer than this process."""
    end = _end_of(box)
    if end - time.time() <= seconds:
        return              # it has less than that by its own settings
    box.update(ttl=seconds)
    with _changed:
        is_first = not any(thread.name == "carrel-leases" for thread in threading.enumerate())
        _held[box.id] = box, seconds, end
        _changed.notify()
    if is_first:
        threading.Thread(target=_run, args=(_changed,), name="carrel-leases", daemon=True).start()


def drop(name: str) -> None:
    with _changed:
        _held.pop(name, None)
