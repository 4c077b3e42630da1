"""Fetching a model from a hub, once, into the cache that other programs use, too. Boxes speak to the hub; this program
checks the files that they bring."""
from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from typing import Any, Iterator, List, Mapping

from ..errors import CarrelError
from .cache import cache_dir, human, locked
from .hub_box import HubBox, ModelUnavailable
from .landing import File, Incomplete, Refused, check_all, move_out
from .server import connect, scoped_server

__all__ = ["ModelUnavailable", "fetch_model", "hub_cache", "wanted"]
_TRIES = 5
_OTHER_WEIGHTS = (".bin", ".pth", ".h5", ".msgpack", ".ot")    # the same numbers again, beside *.safetensors
_SLACK = 64 << 20           # what a download may take beyond its files: notes, and parts that are fetched again
_MOST_ENTRIES = 100_000     # of a staging directory


def hub_cache() -> str:
    """The cache of the hub's own library."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")
    return os.path.abspath(os.path.expanduser(named or os.path.join(home, "hub")))


def wanted(files: List[File]) -> List[File]:
    """Without weights that are there again in another format."""
    has_safetensors = any(f["name"].endswith(".safetensors") for f in files)
    return [f for f in files if not (has_safetensors and f["name"].endswith(_OTHER_WEIGHTS))]


def fetch_model(name: str, environment: Mapping[str, str]) -> str:
    """The directory of the model's snapshot. Files of an interrupted download are reused."""
    cache = hub_cache()
    os.makedirs(cache, exist_ok=True)
    lock = os.path.join(cache_dir("models"), name.replace("/", "--") + ".lock")
    with locked(lock), HubBox(name, environment, lambda: connect(scoped_server()), own=True, tries=_TRIES) as boxes:
        commit, files = boxes.list()
        return _Download(name, cache, commit, wanted(files)).run(boxes)


class _Download:
    """Of one commit of a model: boxes write into a staging directory, and checked files are moved from there."""

    def __init__(self, name: str, cache: str, commit: str, files: List[File]):
        self.name, self.cache, self.commit, self.files = name, cache, commit, files
        self.store = os.path.join(cache, "models--" + name.replace("/", "--"))
        self.blobs = os.path.join(self.store, "blobs")
        self.stages = os.path.join(self.store, ".carrel")
        self.stage = os.path.join(self.stages, commit)

    def run(self, boxes: HubBox) -> str:
        missing = [f for f in self.files if not self._is_there(f)]
        self._check_space(missing)
        words = f"carrel: fetching {self.name}, {human(_sum(self.files))}, into {self.cache}"
        print(words, file=sys.stderr, flush=True)
        os.makedirs(self.blobs, exist_ok=True)
        if missing:
            self._make_stage()
            with _Bound(self.stage, _sum(missing)) as bound:
                mount = {"source": self.stage, "target": "/staging", "writable": True}
                boxes.get(self.commit, missing, bound, mounts=[mount])
        return self._land(missing)

    def _is_there(self, file: File) -> bool:
        place = os.path.join(self.blobs, file["blob"] or "")
        return bool(file["blob"]) and os.path.isfile(place) and file["size"] in (None, os.path.getsize(place))

    def _check_space(self, missing: List[File]) -> None:
        need = max(0, _sum(missing) - (taken(self.stage)[0] if os.path.isdir(self.stage) else 0))
        free = shutil.disk_usage(self.cache).free
        if need > free:
            raise ModelUnavailable(f"{self.name} needs {human(need)} more, and {self.cache} has {human(free)} free; "
                                   "make room, or set HF_HOME to a larger disk")

    def _make_stage(self) -> None:
        """That of this commit, perhaps of a download that was interrupted; older ones go."""
        os.makedirs(self.stages, mode=0o700, exist_ok=True)
        for other in os.listdir(self.stages):
            if other != self.commit:
                discard(os.path.join(self.stages, other))
        os.makedirs(self.stage, mode=0o700, exist_ok=True)

    def _land(self, missing: List[File]) -> str:
        """Called when the boxes have ended: no process changes the staging directory between its check and the move."""
        try:
            self._take(missing)
        except Refused as e:
            discard(self.stages)
            raise ModelUnavailable(f"{self.name}: {e}. Nothing of it was kept") from None
        except Incomplete as e:
            raise ModelUnavailable(f"{self.name}: {e}; try again, what is there is used") from None
        discard(self.stages)
        return self._point()

    def _take(self, missing: List[File]) -> None:
        if not missing:
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
        stage, blobs = os.open(self.stage, flags), os.open(self.blobs, flags)
        try:
            names = check_all(stage, missing)
            for file in missing:
                file["blob"] = names[file["name"]]
            for file in missing:
                move_out(stage, file["name"], blobs, file["blob"])
        finally:
            os.close(stage)
            os.close(blobs)

    def _point(self) -> str:
        """Links of the snapshot, and the name main, by which other programs find it without network."""
        folder = os.path.join(self.store, "snapshots", self.commit)
        for file in self.files:
            link = os.path.join(folder, file["name"])
            os.makedirs(os.path.dirname(link), exist_ok=True)
            target = os.path.relpath(os.path.join(self.blobs, file["blob"]), os.path.dirname(link))
            if not os.path.islink(link) or os.readlink(link) != target:
                if os.path.lexists(link):
                    os.unlink(link)
                os.symlink(target, link)
        refs = os.path.join(self.store, "refs")
        os.makedirs(refs, exist_ok=True)
        with open(os.path.join(refs, "main"), "w", encoding="ascii") as main:
            main.write(self.commit)
        return folder


def _sum(files: List[File]) -> int:
    return sum(f["size"] or 0 for f in files)


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    """All that is below a directory, a directory before its entries, however deep; no link is followed."""
    ahead = [folder]
    while ahead:
        place = ahead.pop()
        try:
            with os.scandir(place) as found:
                entries = list(found)
        except OSError:
            continue
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                ahead.append(entry.path)


def taken(folder: str) -> tuple[int, int]:
    """The bytes and entries of a directory that others change meanwhile. The count ends early where it is too much."""
    size = entries = 0
    for entry in _entries(folder):
        entries += 1
        with contextlib.suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        if entries > _MOST_ENTRIES:
            break
    return size, entries


def discard(folder: str) -> None:
    """Removes a tree that a box has written, as far as it can be: its directories may be closed, and deeper than a path
    is long."""
    folders = [folder]
    for entry in _entries(folder):
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                folders.append(entry.path)
            else:
                os.unlink(entry.path)
    for made in reversed(folders):
        with contextlib.suppress(OSError):
            os.rmdir(made)


class _Bound:
    """Ends the box that writes more into a directory than the files that it fetches can take."""

    def __init__(self, folder: str, size: int):
        self._folder = folder
        self._most = 2 * size + _SLACK      # a part may be there twice while it is put in its place
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._boxes: List[Any] = []
        self.words = ""

    def __enter__(self) -> "_Bound":
        self._thread.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._done.set()
        self._thread.join()

    def watch(self, box: Any) -> None:
        """Called with the box before it begins."""
        self._boxes.append(box)

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            size, entries = taken(self._folder)
            if size > self._most or entries > _MOST_ENTRIES:
                self.words = (f"the box that fetches it wrote {human(size)} and {entries} files, more than the model "
                              "has; it was ended")
                for box in self._boxes:
                    with contextlib.suppress(CarrelError):
                        box.delete()
                return
