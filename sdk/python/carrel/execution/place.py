"""The directory that an agent shares with the user: exclusive use, the user's own files in it, and safe writes to it.

An agent may have written to it before, so no link in it is followed."""
from __future__ import annotations

import fcntl
import os
import site
import stat
import sys
from typing import List, Sequence

from ..environment.server import holds, server_places
from .live import live_sessions


class UnsafePlace(RuntimeError):
    """A directory that an agent must not have, or a file in it that only an agent, or another user, can have put there."""


def take_place(place: str) -> int:
    """Takes the directory for one session, and gives the descriptor that holds it until it is closed.

    Another session's agent could write where this session shows its libraries. A server's socket in it would let the agent make boxes of
    its own, with all files that the user can read."""
    for socket_place in server_places():
        if holds(place, socket_place):
            raise UnsafePlace(f"workspace_dir={place!r} has {socket_place} in it, from where an agent could command the server of its own box; "
                              "choose a directory of its own")
    taken = f"workspace_dir={place!r} belongs to another session that has not ended; end that one (terminate()), or choose another directory"
    for session in live_sessions():
        if session.sandbox is None and (holds(place, session.workspace_dir) or holds(session.workspace_dir, place)):
            raise UnsafePlace(taken)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UnsafePlace(taken) from None
    except OSError:
        pass            # a file system without locks
    return descriptor


def leave_place(descriptor: int) -> None:
    """Also for a forked child, which has the same lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass
    os.close(descriptor)


def users_own(place: str, others: Sequence[str] = ()) -> List[str]:
    """The names in `place` of directories that the agent must not write to, though they are there: the program's own Python environment, which
    the user will run again, and `others`. The names are at the top of `place`: a directory further down could be moved away."""
    found = set()
    for path in {sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages(), *others}:
        path = os.path.abspath(path)
        inner = os.path.relpath(os.path.realpath(path), os.path.realpath(place))
        if inner == ".":
            raise UnsafePlace(f"workspace_dir={place!r} is also {path}, where the agent must not write; choose another directory")
        if path.startswith(place + "/") and inner != os.path.relpath(path, place):
            raise UnsafePlace(f"{path} is, or is behind, a link, which the agent could turn to another place; remove it, or choose another workspace_dir")
        if inner.split("/")[0] != ".." and (path in map(os.path.abspath, others) or os.path.isdir(path)):
            found.add(inner.split("/")[0])
    return sorted(found)


def _folder(above: int, name: str, path: str) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=above)
    except FileExistsError:
        pass
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as e:
        raise UnsafePlace(f"{path} is not a plain directory ({e.strerror}); remove it") from e


def put_file(root: str, inner: str, data: bytes) -> None:
    """Replaces root/inner. An existing file of that name is replaced, and never written through."""
    parts: List[str] = [p for p in inner.split("/") if p not in ("", ".")]
    if not parts or ".." in parts:
        raise ValueError(f"{inner!r} is no path below {root}")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, part in enumerate(parts[:-1]):
            inside = _folder(folder, part, os.path.join(root, *parts[:depth + 1]))
            os.close(folder)
            folder = inside
        _replace(folder, parts[-1], data, os.path.join(root, *parts))
    finally:
        os.close(folder)


def _replace(folder: int, name: str, data: bytes, path: str) -> None:
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise UnsafePlace(f"{path} is a directory, and a file is to be there; remove it")
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with open(descriptor, "wb") as file:
        file.write(data)


def make_folder(root: str, name: str) -> None:
    """A plain directory root/name."""
    above = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_folder(above, name, os.path.join(root, name)))
    finally:
        os.close(above)
