"""Boxes that may reach a hub, and nothing else: one asks for a model's list of files, one fetches them."""
from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Protocol
from urllib.parse import urlsplit, urlunsplit

from ..client import Box, Carrel
from ..errors import CarrelError
from ..local import closed_prefix
from ..named import LentSecrets
from . import hub_worker
from .cache import human
from .landing import File, Refused, checked_list
from .server import PROGRAM

LAYER_PYTHON = "/opt/venv/bin/python"       # of a box with packages
_LIBRARY = "huggingface_hub"
_PUBLIC = ("huggingface.co", "hf.co")
_FILES = ("*.huggingface.co:443", "*.hf.co:443")        # where the public hub keeps large files
_LONGEST_ANSWER = 64 << 20
_ENV = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": "/tmp/hf"}
Raw = Dict[str, Any]


class ModelUnavailable(RuntimeError):
    """An unavailable model. The message has the reason, in the hub's own words, and the remedy."""


class Bound(Protocol):
    """Ends a box that takes too much."""

    words: str

    def watch(self, box: Any) -> None: ...


@dataclass(frozen=True)
class Hub:
    """A hub as a box reaches it: by rules, and with a token that the broker holds if the hub speaks TLS on port 443."""

    endpoint: str       # as the user named it
    inside: str         # as the box names it: a hub on this machine's loopback has another name there
    rules: List[str]
    broker_host: str    # empty: the broker cannot speak to it

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Hub":
        """That of HF_ENDPOINT; CARREL_MODEL_HOSTS has further rules."""
        endpoint = (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        parts = urlsplit(endpoint)
        try:
            host, port = (parts.hostname or "").rstrip("."), parts.port or {"http": 80, "https": 443}[parts.scheme]
        except (ValueError, KeyError):
            host = ""
        if not host:
            raise ModelUnavailable(f"HF_ENDPOINT={endpoint} is not the address of a hub; one looks like "
                                   "https://huggingface.co")
        inside = endpoint
        if host == "::1" or host == "localhost" or host.startswith("127."):
            host = "hub.carrel.internal"
            inside = urlunsplit((parts.scheme, f"{host}:{port}", parts.path, "", ""))
        more = [rule.strip() for rule in (environment.get("CARREL_MODEL_HOSTS") or "").split(",") if rule.strip()]
        files = list(_FILES) if host in _PUBLIC else []
        has_broker = parts.scheme == "https" and port == 443 and not host.replace(".", "").isdigit() and ":" not in host
        own = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(endpoint, inside, [own, *files, *more], host if has_broker else "")


def find_token(environment: Mapping[str, str]) -> str:
    """HF_TOKEN, else that of 'hf auth login', as the hub's own library finds it; empty without one."""
    named = environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN")
    if named or environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return (named or "").strip()
    caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = environment.get("HF_HOME") or os.path.join(caches, "huggingface")
    place = environment.get("HF_TOKEN_PATH") or os.path.join(home, "token")
    try:
        with open(os.path.expanduser(place), encoding="utf-8") as file:
            return file.read(4097).strip()
    except (OSError, ValueError):
        return ""


class HubBox:
    """Asks one hub for one model in boxes of a server. As a context manager: the broker has the token meanwhile."""

    def __init__(self, name: str, environment: Mapping[str, str], server: Callable[[], Carrel], own: bool, tries: int):
        """own: the server's boxes run this program's interpreter."""
        self.name, self.hub = name, Hub.of(environment)
        self._token = find_token(environment)
        self._server, self._own, self._tries = server, own, tries
        self._is_quiet = bool(environment.get("HF_HUB_DISABLE_PROGRESS_BARS"))
        self._lent: LentSecrets | None = None
        self._way: Raw | None = None

    def __enter__(self) -> "HubBox":
        try:
            self.carrel = self._server()
            if self._token and self.hub.broker_host:
                self._lent = LentSecrets(self.carrel, {"HF_TOKEN": self._token})
        except CarrelError as e:
            raise self._no_box(e) from e
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._lent is not None:
            self._lent.drop()

    # --- what is asked ---

    def list(self) -> tuple[str, List[File]]:
        """The commit that is called main, and its files."""
        try:
            return checked_list(self._ask({"do": "list"}))
        except Refused as e:
            raise ModelUnavailable(f"{self.hub.endpoint} gave an answer for {self.name} that is refused: {e}. "
                                   "Nothing was fetched") from None

    def get(self, commit: str, files: List[File], bound: "Bound | None" = None, **options: Any) -> None:
        """Fetches files into /staging of a box with these options. The box has ended then."""
        total = sum(f["size"] or 0 for f in files)
        asked = {"do": "get", "commit": commit, "files": [f["name"] for f in files], "folder": "/staging"}
        self._ask(asked, bound, _Progress(total, self._is_quiet), **options)

    def _ask(self, asked: Raw, bound: "Bound | None" = None, progress: "_Progress | None" = None,
             **options: Any) -> Raw:
        answer: Raw = {}
        for way in self._ways():
            if "packages" in way and self._way != way:
                words = f"carrel: the box that fetches {self.name} has {_LIBRARY} as a package, which is installed once"
                print(words, file=sys.stderr, flush=True)
            self._way = way
            answer, refused = self._run(way, asked, bound, progress, options)
            if not self._is_lacking(answer):
                break
        if bound is not None and bound.words:
            raise ModelUnavailable(f"{self.name}: {bound.words}")
        if "error" in answer:
            raise self._failed(answer["error"], refused)
        return answer

    # --- boxes ---

    def _ways(self) -> Iterator[Raw]:
        """Interpreters with the hub's library: the program's or the server's own, else one of a layer."""
        if self._way is not None:
            yield self._way
            return
        template = PROGRAM if self._own else "python"
        if not self._own or (importlib.util.find_spec(_LIBRARY) is not None and not closed_prefix()):
            yield {"template": template}
        yield {"template": template, "packages": [_LIBRARY]}

    @staticmethod
    def _is_lacking(answer: Raw) -> bool:
        return str(answer.get("error", {}).get("kind")) in ("ModuleNotFoundError", "ImportError")

    def _create(self, way: Raw, options: Raw) -> Box:
        uses = self._lent.uses if self._lent else []
        keys = [{"secret": use["name"], "name": "HF_TOKEN", "host": self.hub.broker_host} for use in uses]
        rules = self.hub.rules[1:] if keys else self.hub.rules       # a key is a rule
        try:
            return self.carrel.create(**way, **options, env=_ENV, keys=keys or None, allow=rules or None)
        except CarrelError as e:
            raise self._no_box(e) from e

    def _python(self, way: Raw) -> str:
        if "packages" in way:
            return LAYER_PYTHON
        return str(next(t["python"] for t in self.carrel.info()["templates"] if t["name"] == way["template"]))

    def _run(self, way: Raw, asked: Raw, bound: "Bound | None", progress: "_Progress | None",
             options: Raw) -> tuple[Raw, Raw]:
        """The answer of the worker, and what egress refused."""
        with self._create(way, options) as box:
            if bound is not None:
                bound.watch(box)
            token = {"token": self._token} if self._token and not self._lent else {}
            line = json.dumps({**asked, "name": self.name, "endpoint": self.hub.inside, "tries": self._tries, **token})
            heard = _Heard(progress)
            try:
                program = [self._python(way), "-I", "-c", inspect.getsource(hub_worker)]
                for event in box.exec_stream(program, stdin=line + "\n"):
                    heard.take(event)
            except CarrelError as e:
                heard.answer = {"error": {"kind": type(e).__name__, "said": str(e)}}
            finally:
                if progress is not None:
                    progress.end()
        return heard.result()

    # --- words ---

    def _no_box(self, error: Exception) -> ModelUnavailable:
        return ModelUnavailable(
            f"{self.name} is fetched in a box that reaches only the hub, and that cannot be had: {error}\nWhat to do: "
            f"see 'carrel doctor', or fetch it yourself into the hub's cache ('hf download {self.name}'), or name a "
            "directory that has the model in CARREL_MODELS")

    def _failed(self, error: Raw, refused: Raw) -> ModelUnavailable:
        """In the hub's own words."""
        name, endpoint, kind, status = self.name, self.hub.endpoint, str(error.get("kind")), error.get("status")
        said = plain(str(error.get("said") or "")).replace(self.hub.inside, endpoint)
        if kind == "GatedRepoError":
            words = (f"{name} is gated: {said}",
                     f"ask for access at {endpoint}/{name}, then set HF_TOKEN to a token of that account")
        elif kind == "RepositoryNotFoundError" or status in (401, 404):
            words = (f"{endpoint} has no model {name}, or not for everybody: {said}",
                     "check the name; if it is private, set HF_TOKEN")
        elif error.get("no_space"):
            words = (f"cannot fetch {name}: the disk is full",
                     "make room, or set HF_HOME to a larger disk; what is there is used")
        elif refused.get("rule"):
            rule = plain(str(refused["rule"]))
            words = (f"cannot fetch {name} from {endpoint}: {plain(str(refused.get('message')))}",
                     f"if this hub keeps its files there, allow it with CARREL_MODEL_HOSTS={rule}")
        else:
            words = (f"cannot fetch {name} from {endpoint}: {said or kind}",
                     "check the network and HF_ENDPOINT, or name a directory that has the model in CARREL_MODELS")
        return ModelUnavailable("\nWhat to do: ".join(words))


def plain(text: str) -> str:
    """Without commands for the terminal: a hub may have chosen the words."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)[:2000]


class _Heard:
    """What a worker said, which is a stranger's word: lines of JSON, the last one the answer."""

    def __init__(self, progress: "_Progress | None"):
        self.answer: Raw = {}
        self._progress, self._rest, self._heard, self._errors = progress, "", 0, ""
        self._end: Raw = {}

    def take(self, event: Raw) -> None:
        if event.get("type") == "stdout":
            text = str(event.get("data") or "")
            self._heard += len(text)
            if self._heard > _LONGEST_ANSWER:
                raise CarrelError("its answer does not end")
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._line(line)
        elif event.get("type") == "stderr":
            self._errors = (self._errors + str(event.get("data") or ""))[-2000:]
        elif event.get("type") == "exit":
            self._end = event

    def _line(self, line: str) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        if "progress" in said:
            if self._progress is not None and isinstance(said["progress"], int):
                self._progress.show(said["progress"])
        else:
            self.answer = said

    def result(self) -> tuple[Raw, Raw]:
        refused = self._end.get("refused")
        answer = self.answer
        if not answer or (self._end and self._end.get("outcome") != "ok" and "error" not in answer):
            said = self._errors.strip() or str(self._end.get("remark") or self._end.get("outcome"))
            answer = {"error": {"kind": "WorkerFailed", "said": said}}
        if "error" in answer and not isinstance(answer["error"], dict):
            answer = {"error": {"kind": "WorkerFailed", "said": "its answer cannot be read"}}
        return answer, refused if isinstance(refused, dict) else {}


class _Progress:
    """One line that grows at a terminal; elsewhere a line for each tenth."""

    def __init__(self, total: int, is_quiet: bool):
        self._total, self._is_quiet, self._is_terminal = total, is_quiet, sys.stderr.isatty()
        self._tenth = self._shown = 0

    def show(self, size: int) -> None:
        size = max(0, min(size, self._total))
        tenth = size * 10 // self._total if self._total else 0
        if self._is_quiet or (not self._is_terminal and tenth <= self._tenth):
            return
        self._tenth, self._shown = tenth, 1
        words = f"carrel: {human(size)} of {human(self._total)}"
        before, after = ("\r", "\x1b[K") if self._is_terminal else ("", "\n")
        print(before + words, end=after, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown and self._is_terminal:
            print(file=sys.stderr, flush=True)
