"""A command's output, as far as the server keeps it."""
from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping

Raw = Dict[str, Any]


def bytes_of(raw: Mapping[str, Any], key: str) -> bytes:
    """Of a text that may not be UTF-8."""
    if key + "_base64" in raw:
        return base64.b64decode(raw[key + "_base64"])
    return str(raw.get(key, "")).encode("utf-8", "surrogatepass")


def left_out(count: int) -> str:
    """The text that replaces so many missing bytes."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.95:
            break
        size, unit = size / 1000, larger
    return f"… {count if unit == 'bytes' else f'{size:.1f}'} {unit} of output left out …"


def marked(data: bytes, missing: int, at: int | None) -> str:
    """The text, with words where bytes are missing."""
    if not missing:
        return data.decode("utf-8", "replace")
    at = len(data) if at is None else at
    return f"{data[:at].decode('utf-8', 'replace')}\n{left_out(missing)}\n{data[at:].decode('utf-8', 'replace')}"


@dataclass(frozen=True)
class ExecLogs:
    """What a command has written so far. Of long output the server keeps the beginning and the end; truncated says that bytes are
    missing between them, stdout_dropped_bytes and stderr_dropped_bytes how many, stdout_dropped_at and stderr_dropped_at where."""

    stdout_bytes: bytes = field(repr=False, default=b"")
    stderr_bytes: bytes = field(repr=False, default=b"")
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0
    stdout_dropped_at: int | None = None
    stderr_dropped_at: int | None = None

    @property
    def stdout(self) -> str:
        """Standard output, as text."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error, as text."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        """Whether something is missing."""
        return self.stdout_dropped_bytes + self.stderr_dropped_bytes > 0

    def __str__(self) -> str:
        """Both streams, with words where output is missing."""
        return (marked(self.stdout_bytes, self.stdout_dropped_bytes, self.stdout_dropped_at)
                + marked(self.stderr_bytes, self.stderr_dropped_bytes, self.stderr_dropped_at))

    def raw(self) -> Raw:
        """As the answer of a command that was waited for has it."""
        fields: Raw = {"truncated": self.truncated}
        for name in ("stdout", "stderr"):
            fields[name] = getattr(self, name)
            fields[name + "_base64"] = base64.b64encode(getattr(self, name + "_bytes")).decode()
            fields[name + "_dropped_bytes"] = getattr(self, name + "_dropped_bytes")
            fields[name + "_dropped_at"] = getattr(self, name + "_dropped_at")
        return fields


def gather(events: Iterable[Mapping[str, Any]]) -> ExecLogs:
    """The events of a command's output as one."""
    parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
    missing: Dict[str, Any] = {}
    for event in events:
        if event["type"] in parts:
            parts[event["type"]].append(bytes_of(event, "data"))
        for name in parts if event["type"] == "dropped" else ():
            if event[name + "_bytes"]:
                missing[name + "_dropped_bytes"] = missing.get(name + "_dropped_bytes", 0) + event[name + "_bytes"]
                missing.setdefault(name + "_dropped_at", sum(map(len, parts[name])))
    return ExecLogs(b"".join(parts["stdout"]), b"".join(parts["stderr"]), **missing)
