"""Taking downloaded files over from a tree that a hostile program may have made: names, links, kinds, sizes and digests
are checked.

It also runs in a box, where it is sent as text, so it imports the standard library alone. The tree's writers must have
ended before."""
from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from typing import Any, Dict, Iterator, List

_DEEPEST, _LONGEST, _MOST_FILES = 16, 255, 20_000
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PIECE = 1 << 20
File = Dict[str, Any]


class Refused(Exception):
    """What came is not what was promised. The message says what is wrong with which file."""


class Incomplete(Exception):
    """A file is missing or shorter than promised: another try continues."""


def _is_plain(name: str) -> bool:
    """Whether a name leads to a place below a directory, and nowhere else."""
    if "\\" in name or not name.isprintable():     # no surrogate is, either
        return False
    parts = name.split("/")
    if len(parts) > _DEEPEST or parts[0] == ".cache":
        return False
    return all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST for part in parts)


def _digest(value: Any, lengths: str) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{lengths}", value) else None


def checked_list(told: Any) -> tuple[str, List[File]]:
    """The commit and the files that a hub names: name, size, blob, sha256. Refused for what no honest hub says."""
    commit, files = (told.get("commit"), told.get("files")) if isinstance(told, dict) else (None, None)
    if _digest(commit, "{7,64}") is None or not isinstance(files, list) or len(files) > _MOST_FILES:
        raise Refused("its answer is no list of files of a commit")
    made: Dict[str, File] = {}
    for file in files:
        name = file.get("name") if isinstance(file, dict) else None
        if not isinstance(name, str) or not _is_plain(name):
            raise Refused(f"it names a file {str(name)[:200]!r}, which would lie outside of the model's directory")
        size, digest = file.get("size"), _digest(file.get("sha256"), "{64}")
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise Refused(f"it gives {name} the size {str(size)[:40]}")
        made[name] = {"name": name, "size": size, "sha256": digest, "blob": digest or _digest(file.get("blob"), "{40}")}
    for name in made:
        for i, c in enumerate(name):
            if c == "/" and name[:i] in made:
                raise Refused(f"it names {name[:i]} as a file and as a directory")
    return str(commit), list(made.values())


def open_below(folder: int, name: str) -> int:
    """A regular file below a directory; no link is followed on the way. FileNotFoundError if it is not there."""
    at = os.dup(folder)
    try:
        *parents, last = name.split("/")
        for part in parents:
            deeper = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = deeper
        file = os.open(last, _FLAGS, dir_fd=at)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise Refused(f"{name} is no plain file ({e.strerror})") from None
    finally:
        os.close(at)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(file)
        raise Refused(f"{name} is no plain file")
    return file


def _pieces(file: int, size: int) -> Iterator[bytes]:
    os.lseek(file, 0, os.SEEK_SET)
    while size > 0:
        piece = os.read(file, min(_PIECE, size))
        if not piece:
            return
        size -= len(piece)
        yield piece


def _check(file: int, promised: File) -> str:
    """The name of its blob. The sha256 is computed only as a proof, or because the hub gives the file no other name."""
    size, name = os.fstat(file).st_size, promised["name"]
    if promised["size"] is not None and size < promised["size"]:
        raise Incomplete(f"{name} did not arrive whole")
    if promised["size"] is not None and size > promised["size"]:
        raise Refused(f"{name} has {size} bytes, and the hub's list says {promised['size']}")
    if promised["blob"] and not promised["sha256"]:
        return str(promised["blob"])
    digest = hashlib.sha256()
    for piece in _pieces(file, size):
        digest.update(piece)
    if promised["sha256"] and digest.hexdigest() != promised["sha256"]:
        raise Refused(f"{name} is not the file that the hub's list describes: its sha256 is {digest.hexdigest()}")
    return digest.hexdigest()


def check_all(stage: int, files: List[File]) -> Dict[str, str]:
    """Checks each file of the list in a staging directory. The names of their blobs, by their own names."""
    blobs = {}
    for promised in files:
        try:
            file = open_below(stage, promised["name"])
        except FileNotFoundError:
            raise Incomplete(f"{promised['name']} did not arrive") from None
        try:
            blobs[promised["name"]] = _check(file, promised)
        finally:
            os.close(file)
    return blobs


def _parent(folder: int, name: str) -> tuple[int, str]:
    *parents, last = name.split("/")
    at = os.dup(folder)
    for part in parents:
        deeper = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = deeper
    return at, last


def move_out(stage: int, name: str, target: int, to: str) -> None:
    """Moves a checked file of the staging directory into a directory of the same file system."""
    file = open_below(stage, name)
    try:
        os.fchmod(file, 0o644)
        parent, last = _parent(stage, name)
        try:
            os.rename(last, to, src_dir_fd=parent, dst_dir_fd=target)
        finally:
            os.close(parent)
        moved = os.stat(to, dir_fd=target, follow_symlinks=False)
        if (moved.st_dev, moved.st_ino) != (os.fstat(file).st_dev, os.fstat(file).st_ino):
            raise Refused(f"{name} was exchanged while it was moved")
    finally:
        os.close(file)


def _copy(stage: int, promised: File, target: str) -> None:
    file = open_below(stage, promised["name"])
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "xb") as out:
            for piece in _pieces(file, os.fstat(file).st_size):
                out.write(piece)
            os.fsync(out.fileno())
        copied = os.open(target, _FLAGS)
        try:
            _check(copied, promised)
        finally:
            os.close(copied)
    finally:
        os.close(file)


def copy_all(stage: str, files: List[File], target: str, fresh: str) -> None:
    """Copies a checked tree to `target`, which is there as a whole or not at all; `fresh` is beside it and new."""
    import shutil
    staged = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        check_all(staged, files)
        shutil.rmtree(fresh, ignore_errors=True)
        os.makedirs(fresh)
        for promised in files:
            _copy(staged, promised, os.path.join(fresh, promised["name"]))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(target):       # without its configuration, so it was fetched again
            shutil.rmtree(target)
        os.rename(fresh, target)
    finally:
        os.close(staged)


def main() -> None:
    """In a box: copies what one line of JSON names. An answer of one line."""
    asked = json.loads(sys.stdin.readline())
    try:
        copy_all(asked["stage"], asked["files"], asked["target"], asked["fresh"])
        answer: Dict[str, Any] = {"landed": True}
    except (Refused, Incomplete, OSError) as e:
        no_space = getattr(e, "errno", None) == 28
        answer = {"error": {"kind": type(e).__name__, "said": str(e)[:2000], "no_space": no_space}}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
