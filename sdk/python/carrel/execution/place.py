"""Putting files into a directory that an agent may have written to before: no link of its is followed."""
from __future__ import annotations

import os
import stat
from typing import List


class UnsafePlace(RuntimeError):
    """Something lies in the way that only an agent, or somebody else, can have put there."""


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
    """Writes root/inner anew. What is there under that name is replaced, and never written through."""
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
