"""Results of running code, and a gateway's answers. They read and print like pydantic's models, without needing it."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any, Collection, Dict, List, Mapping

_ANSI = re.compile(r"(?:\x9b|\x1b\[)[0-?]*[ -/]*[@-~]")


def clean_ansi_codes(source: str) -> str:
    """Without the sequences that colour a terminal."""
    return _ANSI.sub("", source)


def _plain(value: Any, exclude_none: bool) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        members = {f.name: getattr(value, f.name) for f in fields(value)}
        return {k: _plain(v, exclude_none) for k, v in members.items() if v is not None or not exclude_none}
    if isinstance(value, Mapping):
        return {k: _plain(v, exclude_none) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, exclude_none) for v in value]
    return value


class _Model:
    def _pairs(self) -> List[str]:
        return [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self)]  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._pairs())})"

    def __str__(self) -> str:
        return " ".join(self._pairs())

    def model_dump(self, *, mode: str = "python", include: Collection[str] | None = None, exclude: Collection[str] | None = None,
                   exclude_none: bool = False) -> Dict[str, Any]:
        """exclude_none: without members that are None; include and exclude: names of the model's own members."""
        dumped: Dict[str, Any] = {k: v for k, v in _plain(self, exclude_none).items()
                                  if (include is None or k in include) and k not in (exclude or ())}
        return json.loads(json.dumps(dumped, default=str)) if mode == "json" else dumped

    def model_dump_json(self, *, indent: int | None = None, include: Collection[str] | None = None,
                        exclude: Collection[str] | None = None, exclude_none: bool = False) -> str:
        """As model_dump(), as JSON."""
        dumped = self.model_dump(include=include, exclude=exclude, exclude_none=exclude_none)
        return json.dumps(dumped, default=str, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)


@dataclass(repr=False)
class ErrorContent(_Model):
    """The exception that ended the code. As text: its traceback without colours."""

    ename: str
    evalue: str
    traceback: List[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(clean_ansi_codes(line) for line in self.traceback)


@dataclass(repr=False)
class PyBoxOut(_Model):
    """`data` has one MIME bundle for each output, in order of arrival; prints are text/plain."""

    data: List[Dict[str, Any]] = field(default_factory=list)
    error: ErrorContent | None = None


class Assembly:
    """Joins outputs. Consecutive prints to one stream are one item, however they were split on the way."""

    def __init__(self) -> None:
        self.out = PyBoxOut()
        self._stream: str | None = None
        self._texts: List[str] = []

    def text(self, stream: str, text: str) -> None:
        if self._stream != stream:
            self._flush()
            self._stream = stream
        self._texts.append(text)

    def bundle(self, data: Mapping[str, Any]) -> None:
        self._flush()
        self.out.data.append(dict(data))

    def failed(self, ename: str, evalue: str, traceback: List[str]) -> None:
        self.out.error = ErrorContent(ename, evalue, traceback)

    def _flush(self) -> None:
        if self._stream is not None:
            self.out.data.append({"text/plain": "".join(self._texts)})
        self._stream, self._texts = None, []

    def finish(self) -> PyBoxOut:
        self._flush()
        return self.out


@dataclass(repr=False)
class Kernel(_Model):
    """A kernel as a gateway describes it."""

    id: str
    name: str = ""
    last_activity: datetime | None = None
    execution_state: str = ""
    connections: int = 0


def kernel_of(raw: Any) -> Kernel:
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
        raise RuntimeError(f"the gateway's answer is no kernel: {str(raw)[:200]}")
    try:
        activity = datetime.fromisoformat(str(raw.get("last_activity", "")).replace("Z", "+00:00"))
    except ValueError:
        activity = None
    return Kernel(raw["id"], str(raw.get("name", "")), activity, str(raw.get("execution_state", "")), int(raw.get("connections") or 0))


def text_env(env: Mapping[str, Any]) -> Dict[str, str]:
    """An environment of texts: volumes become JSON, paths and numbers their string form; entries without a value are left out."""
    return {str(name): json.dumps(value) if isinstance(value, (dict, list, tuple)) else str(value)
            for name, value in env.items() if value is not None}
