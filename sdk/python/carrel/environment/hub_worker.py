"""The program in the box that talks to a hub. It is sent there as text, so it imports the standard library and
huggingface_hub alone.

One line of JSON comes in: the request, with a token if the broker cannot hold it. Lines of JSON go out: progress, then
the answer or the error."""
from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator
from urllib.parse import urlsplit

_STATIC = ("GatedRepoError", "RepositoryNotFoundError", "RevisionNotFoundError", "LocalEntryNotFoundError",
           "RemoteEntryNotFoundError", "EntryNotFoundError")
_PARALLEL = 4
_lock = threading.Lock()


def _tell(**words: Any) -> None:
    with _lock:
        print(json.dumps(words), flush=True)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that led to it."""
    at: BaseException | None = error
    for _ in range(10):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__


def _status(error: BaseException) -> Any:
    return getattr(getattr(error, "response", None), "status_code", None)


def _is_full(error: BaseException) -> bool:
    return any(getattr(one, "errno", None) == 28 for one in _chain(error))


def _again(error: BaseException) -> bool:
    """Whether trying again may help: a connection that broke, a server that is busy. A name that egress refuses, or a
    full disk, stays so."""
    is_refused = any("Name or service not known" in str(e) for e in _chain(error))
    if is_refused or _is_full(error) or type(error).__name__ in _STATIC:
        return False
    status = _status(error)
    return status is None or status == 429 or status >= 500


def _asking(tries: int, ask: Any) -> Any:
    for attempt in range(tries):
        try:
            return ask()
        except Exception as e:      # which classes these are depends on the library's version
            if attempt == tries - 1 or not _again(e):
                raise
            time.sleep(min(0.2 * 2 ** attempt, 5))
    raise AssertionError


def _list(hub: Any, asked: Dict[str, Any], token: Any) -> None:
    api = hub.HfApi(endpoint=asked["endpoint"], token=token)
    info = _asking(asked["tries"], lambda: api.model_info(asked["name"], files_metadata=True))
    files = []
    for file in info.siblings or []:
        lfs = getattr(file, "lfs", None)
        digest = lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)
        files.append({"name": file.rfilename, "size": file.size, "blob": file.blob_id, "sha256": digest})
    _tell(commit=info.sha, files=files)


def _taken(folder: str) -> int:
    return sum(os.lstat(os.path.join(base, name)).st_size for base, _, names in os.walk(folder) for name in names)


def _watch(folder: str, done: threading.Event) -> None:
    while not done.wait(0.5):
        try:
            _tell(progress=_taken(folder))
        except OSError:
            pass


def _fetch(hub: Any, asked: Dict[str, Any], token: Any, name: str) -> None:
    """One file. The part that is there goes on; the library itself begins again in every process. Another host does not
    get the token."""
    http_get = importlib.import_module("huggingface_hub.file_download").http_get
    url = hub.hf_hub_url(asked["name"], name, revision=asked["commit"], endpoint=asked["endpoint"])
    known = hub.get_hf_file_metadata(url, token=token)
    target = os.path.join(asked["folder"], name)
    if os.path.isfile(target) and os.path.getsize(target) == known.size:
        return
    headers = hub.utils.build_hf_headers(token=token)
    if urlsplit(known.location)[:2] != urlsplit(asked["endpoint"])[:2]:
        headers.pop("authorization", None)
    part = os.path.join(asked["folder"], ".cache", hashlib.sha256(f"{name}\n{known.etag}".encode()).hexdigest())
    if os.path.exists(part) and known.size is not None and os.path.getsize(part) > known.size:
        os.unlink(part)
    with open(part, "ab") as file:
        http_get(known.location, file, resume_size=file.tell(), headers=headers, expected_size=known.size)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.replace(part, target)


def _get(hub: Any, asked: Dict[str, Any], token: Any) -> None:
    os.makedirs(os.path.join(asked["folder"], ".cache"), exist_ok=True)
    done = threading.Event()
    threading.Thread(target=_watch, args=(asked["folder"], done), daemon=True).start()
    with ThreadPoolExecutor(_PARALLEL) as pool:
        results = [pool.submit(_asking, asked["tries"], functools.partial(_fetch, hub, asked, token, name))
                   for name in asked["files"]]
        try:
            for result in results:
                result.result()
        finally:
            done.set()
            for result in results:
                result.cancel()
    _tell(got=len(asked["files"]))


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    token = asked.get("token") or os.environ.get("HF_TOKEN") or False
    try:
        {"list": _list, "get": _get}[asked["do"]](importlib.import_module("huggingface_hub"), asked, token)
    except Exception as e:
        said = str(getattr(e, "server_message", None) or e).strip()[:2000]
        _tell(error={"kind": type(e).__name__, "status": _status(e), "said": said, "no_space": _is_full(e)})


if __name__ == "__main__":
    main()
