"""Results of cells, and the kernels of a box."""
from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping

from .errors import CellFailed, KernelDied, KernelUnavailable, RunTimeout, Unavailable
from .network import refused_line
from .named import Secrets, secrets_body
from .transport import segment

if TYPE_CHECKING:
    from .client import Box

Raw = Dict[str, Any]
Answer = Callable[[str, bool], str]

# The beginning of the server's reason if a kernel's process ended before any cell could run, and its last line was no explanation.
_NEVER_READY = "the kernel did not start: "
# Outcomes of a cell after which its kernel lives on.
_ALIVE = ("ok", "error", "timeout", "interrupted", "aborted", "output_limit")


@dataclass(frozen=True)
class CellError:
    """The exception that ended a cell."""

    name: str
    value: str
    traceback: List[str] = field(repr=False, default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Output:
    """One rich output: the value of the cell's last expression (kind "result") or something that it displayed (kind "display")."""

    kind: str
    data: Dict[str, Any]
    metadata: Dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def text(self) -> str | None:
        """It as text (text/plain)."""
        text: str | None = self.data.get("text/plain")
        return text

    @property
    def html(self) -> str | None:
        """It as HTML, if it has that form."""
        html: str | None = self.data.get("text/html")
        return html

    @property
    def json(self) -> Any:
        """It as JSON (application/json), if it has that form."""
        return self.data.get("application/json")

    @property
    def png(self) -> bytes | None:
        """It as a PNG picture, if it has that form."""
        encoded = self.data.get("image/png")
        return None if encoded is None else base64.b64decode(encoded)


@dataclass(frozen=True)
class Result:
    """A cell that has ended. outcome: ok; error (the cell raised: see `error`); interrupted; output_limit (it said
    more than it may and was interrupted; what is here is the beginning); timeout; or how its kernel died."""

    outcome: str
    stdout: str = ""
    stderr: str = ""
    results: List[Output] = field(default_factory=list)
    error: CellError | None = None
    execution_count: int | None = None
    wall_ms: float = 0.0
    cpu_ms: float | None = None     # None: nothing counts it (a box without cgroups)
    memory_peak_bytes: int | None = None
    kernel: Raw = field(repr=False, default_factory=dict)
    raw: Raw = field(repr=False, default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the cell ended well."""
        return self.outcome == "ok"

    @property
    def text(self) -> str | None:
        """The value of the cell's last expression, as text."""
        return next((o.text for o in reversed(self.results) if o.kind == "result"), None)

    @property
    def png(self) -> bytes | None:
        """The first picture."""
        return next((o.png for o in self.results if "image/png" in o.data), None)

    @property
    def pngs(self) -> List[bytes]:
        """All pictures."""
        return [png for png in (o.png for o in self.results) if png is not None]

    @property
    def refused(self) -> str:
        """The box's refused connections meanwhile, in one line; empty if there were none."""
        return refused_line(self.raw)

    @property
    def bill(self) -> Dict[str, float | None]:
        """What it cost; None where nothing counts it."""
        return {"wall_ms": self.wall_ms, "cpu_ms": self.cpu_ms, "memory_peak_bytes": self.memory_peak_bytes}

    @property
    def is_alive(self) -> bool:
        """Whether the kernel lives on, with its variables."""
        return self.outcome in _ALIVE and self.kernel.get("state") != "dead"

    @property
    def reason(self) -> str:
        """Why it did not end well, in words; empty if it did."""
        said = str(self.raw.get("reason") or "")
        if self.outcome == "timeout":
            lost = "" if self.is_alive else "; the kernel did not react to an interrupt and was ended, its state is lost"
            return f"the cell ran too long and was interrupted{lost}"
        if not self.is_alive:
            return f"the kernel died: {said or self.outcome}"
        return "" if self.ok else said or str(self.error or self.outcome)

    def check(self) -> "Result":
        """Itself, or CellFailed: RunTimeout after a timeout, KernelDied if the kernel ended."""
        if self.outcome == "timeout":
            raise RunTimeout(self.reason, self)
        if not self.is_alive:
            raise KernelDied(self.reason, self.outcome, self)
        if not self.ok:
            raise CellFailed(self.reason, self.outcome, self)
        return self


def cell_error(raw: Mapping[str, Any] | None) -> CellError | None:
    if not raw or "name" not in raw:
        return None
    return CellError(str(raw["name"]), str(raw.get("value", "")), [str(line) for line in raw.get("traceback") or []])


def result_of(raw: Raw) -> Result:
    """From the server's one answer."""
    return Result(
        outcome=str(raw.get("outcome")), stdout=raw.get("stdout") or "", stderr=raw.get("stderr") or "",
        results=[Output(str(o.get("type")), o.get("data") or {}, o.get("metadata") or {}) for o in raw.get("results") or []],
        error=cell_error(raw.get("error")), execution_count=raw.get("execution_count"), wall_ms=raw.get("wall_ms") or 0.0,
        cpu_ms=raw.get("cpu_ms"), memory_peak_bytes=raw.get("memory_peak_bytes"), kernel=raw.get("kernel") or {}, raw=raw)


class Collector:
    """Makes one result of a stream of events."""

    def __init__(self) -> None:
        self._text: Dict[str, List[str]] = {"stdout": [], "stderr": []}
        self._results: List[Raw] = []
        self._shown: Dict[str, List[Raw]] = {}      # by display id, for updates
        self._error: Raw | None = None
        self._end: Raw | None = None

    def take(self, event: Raw) -> None:
        kind = event.get("type")
        if kind in self._text:
            self._text[kind].append(event.get("text", ""))
        elif kind in ("display", "result"):
            shown = {"type": kind, "data": event.get("data"), "metadata": event.get("metadata")}
            self._results.append(shown)
            self._shown.setdefault(str((event.get("transient") or {}).get("display_id")), []).append(shown)
        elif kind == "update_display":
            for shown in self._shown.get(str((event.get("transient") or {}).get("display_id")), []):
                shown.update(data=event.get("data"), metadata=event.get("metadata"))
        elif kind == "error":
            self._error = event
        elif kind == "outcome":
            self._end = event

    def result(self) -> Result:
        if self._end is None:
            raise Unavailable("the server broke off in the middle of a cell")
        return result_of({**self._end, "stdout": "".join(self._text["stdout"]), "stderr": "".join(self._text["stderr"]),
                          "results": self._results, "error": self._error or self._end.get("error")})


def _no_kernel(said: str) -> None:
    """KernelUnavailable if the kernel's last words are that its interpreter lacks something."""
    for line in said.splitlines():
        if line.startswith('{"carrel"'):
            try:
                words = json.loads(line)
            except ValueError:
                continue
            raise KernelUnavailable("; ".join(str(words[k]) for k in ("error", "hint") if words.get(k)), code="no_ipykernel")


def made(result: Result, check: bool = False) -> Result:
    """Itself. KernelUnavailable if there could be no kernel; with check also the errors of Result.check()."""
    said = str(result.raw.get("reason") or "")
    if not result.is_alive and result.outcome != "timeout":
        # Only text from before the kernel was ready is trusted, because the cell could have printed the rest; the server knows when that was.
        if said.startswith(_NEVER_READY):
            _no_kernel(result.stderr)
        if ("ipykernel" in said and "pip install" in said) or "carrel setup" in said:
            raise KernelUnavailable(said, code="no_ipykernel")
        if said.startswith("exec: ") and said.endswith("Permission denied"):
            raise KernelUnavailable(f"{said}; the directory of the interpreter is closed to the user of the box: chmod -R go+rX it", code="closed_prefix")
    return result.check() if check else result


def run_body(code: str, options: Mapping[str, Any]) -> Raw:
    body: Raw = {"code": code}
    body.update({k: v for k, v in options.items() if v is not None})
    if "env" in body:
        body["env"] = dict(body["env"])
    if "secrets" in body:
        body["secrets"] = secrets_body(body["secrets"]) or []
    return body


class Kernel:
    """A live interpreter in a box, by the name of its context. It starts with its first cell, or by start()."""

    def __init__(self, box: "Box", context: str):
        self._box = box
        self.context = context

    def __repr__(self) -> str:
        return f"<Kernel {self.context} of {self._box.id}>"

    @property
    def _path(self) -> str:
        return f"{self._box._path}/kernels/{segment(self.context)}"

    def start(self, *, env: Mapping[str, str] | None = None, cwd: str | None = None, template: str | None = None,
              secrets: Secrets | None = None) -> "Kernel":
        """Starts it, with an environment, secrets (as for Box) and a working directory of its own."""
        options = {"context": self.context, "env": dict(env) if env else None, "cwd": cwd, "template": template, "secrets": secrets_body(secrets)}
        self._box._transport.call("POST", f"{self._box._path}/kernels", json_body={k: v for k, v in options.items() if v is not None})
        return self

    def info(self) -> Raw:
        """Its state, its id and how it was started."""
        info: Raw = self._box._transport.call("GET", self._path)
        return info

    def run(self, code: str, **options: Any) -> Result:
        """As Box.run()."""
        return self._box.run(code, context=self.context, **options)

    def stream(self, code: str, **options: Any) -> Iterator[Raw]:
        """As Box.stream()."""
        return self._box.stream(code, context=self.context, **options)

    def interrupt(self) -> None:
        """Interrupts the cell that runs: KeyboardInterrupt."""
        self._box._transport.call("POST", self._path + "/interrupt")

    def restart(self) -> None:
        """A new interpreter under the same name; the box and its files stay."""
        self._box._transport.call("POST", self._path + "/restart")

    def input(self, value: str) -> None:
        """Answers an input_request event of stream(..., allow_stdin=True)."""
        self._box._transport.call("POST", self._path + "/input", json_body={"value": value})

    def delete(self) -> None:
        """Ends it; the next cell starts another."""
        self._box._transport.call("DELETE", self._path)
