"""One request to a kernel and its answers, over any transport."""
from __future__ import annotations

import time
from typing import Any, Dict, Mapping

from ..errors import KernelDied, RunTimeout
from .schema import Assembly, PyBoxOut

LOOK_AFTER = 10.0           # seconds of silence before the kernel is checked
GRACE = 5.0                 # for an interrupted cell to end
ATTEMPTS = 5
ABORTED = "the code never ran: cells of others that fail keep emptying the kernel's queue"


def execute_content(code: str) -> Dict[str, Any]:
    return {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False, "stop_on_error": False}


class Cell:
    """The state of the answers to one request."""

    def __init__(self, msg_id: str, kind: str):
        self.msg_id = msg_id
        self._reply = kind.replace("_request", "_reply")
        self._assembly = Assembly()
        self.replied = self.idle = False
        self.aborted = False            # it never ran: an error of another client's cell emptied the kernel's queue

    def take(self, raw: Mapping[str, Any]) -> None:
        """KernelDied if the message reports that."""
        try:
            header, parent, content = raw["header"], raw.get("parent_header") or {}, raw.get("content") or {}
            kind = header["msg_type"]
        except (TypeError, KeyError):
            return          # no answer to us
        state = content.get("execution_state")
        if kind == "status" and state in ("dead", "restarting", "autorestarting"):
            raise KernelDied("the kernel died" + ("" if state == "dead" else "; the gateway starts a new one, whose state is empty"))
        if parent.get("msg_id") != self.msg_id:
            return
        if kind == self._reply:
            self.replied = True
            self.aborted = content.get("status") in ("aborted", "abort")
            # Carrel's answer for a dead kernel; a cell's own exception has a longer traceback.
            if content.get("ename") == "DeadKernelError" and len(content.get("traceback") or ()) <= 1:
                raise KernelDied(f"the kernel died: {content.get('evalue')}")
        elif kind == "status":
            self.idle = self.idle or state == "idle"
        elif kind in ("execute_result", "display_data"):
            self._assembly.bundle(content.get("data") or {})
        elif kind == "stream":
            self._assembly.text(str(content.get("name")), str(content.get("text", "")))
        elif kind == "error":
            self._assembly.failed(str(content.get("ename")), str(content.get("evalue")), [str(t) for t in content.get("traceback") or []])

    @property
    def done(self) -> bool:
        return self.idle and self.replied

    def finish(self) -> PyBoxOut:
        return self._assembly.finish()

    def timed_out(self) -> RunTimeout:
        return RunTimeout("the code ran too long and was interrupted" if self.idle else "the code ran too long and does not react to an interrupt")


class Clock:
    """Deadlines: when to give up, and when to check that the kernel lives."""

    def __init__(self, timeout: float | None):
        self._end = None if timeout is None else time.monotonic() + timeout
        self._half: float | None = None

    def wait(self, cell: Cell) -> float:
        """Seconds to wait for the next message."""
        if (cell.replied or cell.idle) and self._half is None:
            self._half = time.monotonic()
        left = LOOK_AFTER if self._half is None else GRACE
        if self._end is not None:
            left = min(left, self._end - time.monotonic())
        return max(left, 0.001)

    @property
    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def stuck(self) -> bool:
        """One of reply and end came long ago, but not the other: a channel was not connected in time."""
        return self._half is not None and time.monotonic() - self._half >= GRACE
