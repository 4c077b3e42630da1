"""Where things are kept that are made once: a directory of the user's."""
from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Iterator


def cache_dir(*parts: str) -> str:
    """~/.cache/carrel/... ($XDG_CACHE_HOME), made if it is not there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "carrel", *parts)
    os.makedirs(path, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """An exclusive lock among processes that lock the same path; the kernel releases it also if a process is killed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def human(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
