"""Fetching a model from a hub, once, into the cache that other programs use, too."""
from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from typing import Any, List, Mapping

from .cache import cache_dir, human, locked

_TRIES = 5
_OTHER_WEIGHTS = ("*.bin", "*.pth", "*.h5", "*.msgpack", "*.ot")    # the same numbers again, beside *.safetensors


class ModelUnavailable(RuntimeError):
    """An unavailable model. The message has the reason, in the hub's own words, and the remedy."""


def _hub() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise ModelUnavailable("to fetch a model, the Python package huggingface_hub is needed; the fix: pip install 'carrel[models]' (or name a "
                               "directory that has the model in CARREL_MODELS)") from None


def _endpoint(environment: Mapping[str, str]) -> str:
    return (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_cache() -> str:
    """The cache of the hub's own library."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")
    return os.path.abspath(os.path.expanduser(named or os.path.join(home, "hub")))


def _status(error: BaseException) -> int | None:
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def _refused(name: str, endpoint: str, error: BaseException) -> ModelUnavailable:
    """In the hub's own words."""
    kind = type(error).__name__
    said = str(getattr(error, "server_message", None) or error).strip()
    if kind == "GatedRepoError":
        return ModelUnavailable(f"{name} is gated: {said}\nWhat to do: ask for access at {endpoint}/{name}, then set HF_TOKEN to a token of that account")
    if kind == "RepositoryNotFoundError" or _status(error) in (401, 404):
        return ModelUnavailable(f"{endpoint} has no model {name}, or not for everybody: {said}\nWhat to do: check the name; if it is private, set HF_TOKEN")
    return ModelUnavailable(f"cannot fetch {name} from {endpoint}: {said or kind}\nWhat to do: check the network and HF_ENDPOINT, or name a directory that "
                            "has the model in CARREL_MODELS")


def _again(error: BaseException) -> bool:
    """Whether trying again may help: a connection that broke, a server that is busy."""
    if type(error).__name__ in ("GatedRepoError", "RepositoryNotFoundError", "RevisionNotFoundError", "LocalEntryNotFoundError"):
        return False
    status = _status(error)
    return status is None or status == 429 or status >= 500


def _asking(name: str, endpoint: str, ask: Any) -> Any:
    for attempt in range(_TRIES):
        try:
            return ask()
        except Exception as e:      # which classes these are depends on the library's version
            if attempt == _TRIES - 1 or not _again(e):
                raise _refused(name, endpoint, e) from e
            time.sleep(min(0.2 * 2 ** attempt, 5))
    raise AssertionError


def _wanted(files: List[Any]) -> List[Any]:
    import fnmatch
    has_safetensors = any(f.rfilename.endswith(".safetensors") for f in files)
    return [f for f in files if not (has_safetensors and any(fnmatch.fnmatch(f.rfilename, p) for p in _OTHER_WEIGHTS))]


def fetch_model(name: str, environment: Mapping[str, str]) -> str:
    """The directory of the model's snapshot. Files of an interrupted download are reused."""
    hub = _hub()
    endpoint = _endpoint(environment)
    token = environment.get("HF_TOKEN") or None
    cache = hub_cache()
    os.makedirs(cache, exist_ok=True)
    with locked(os.path.join(cache_dir("models"), name.replace("/", "--") + ".lock")):
        info = _asking(name, endpoint, lambda: hub.HfApi(endpoint=endpoint, token=token).model_info(name, files_metadata=True))
        files = _wanted(list(info.siblings or []))
        _check_space(name, cache, files)
        total = sum(f.size or 0 for f in files)
        print(f"carrel: fetching {name}, {human(total)}, into {cache}", file=sys.stderr, flush=True)
        folder = _asking(name, endpoint, lambda: hub.snapshot_download(
            name, revision=info.sha, cache_dir=cache, endpoint=endpoint, token=token, allow_patterns=[f.rfilename for f in files]))
        for file in files:
            path = os.path.join(folder, file.rfilename)
            if not os.path.isfile(path) or (file.size is not None and os.path.getsize(path) != file.size):
                raise ModelUnavailable(f"{name}: {file.rfilename} did not arrive whole; try again, what is there is used")
        _point_main_at(cache, name, str(info.sha))
    return str(folder)


def _point_main_at(cache: str, name: str, commit: str) -> None:
    """So that other programs, which ask for 'main', find it without network."""
    refs = os.path.join(cache, "models--" + name.replace("/", "--"), "refs")
    os.makedirs(refs, exist_ok=True)
    with open(os.path.join(refs, "main"), "w", encoding="ascii") as file:
        file.write(commit)


def _check_space(name: str, cache: str, files: List[Any]) -> None:
    blobs = os.path.join(cache, "models--" + name.replace("/", "--"), "blobs")
    have = sum(os.path.getsize(os.path.join(blobs, b)) for b in os.listdir(blobs)) if os.path.isdir(blobs) else 0
    need = max(0, sum(f.size or 0 for f in files) - have)
    free = shutil.disk_usage(cache).free
    if need > free:
        raise ModelUnavailable(f"{name} needs {human(need)} more, and {cache} has {human(free)} free; make room, or set HF_HOME to a larger disk")
