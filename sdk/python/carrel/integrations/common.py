"""Shared by the modules for the frameworks."""
from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import re
import time
from typing import Any, Iterator, Tuple

from ..asyncclient import AsyncBox, AsyncCarrel
from ..client import Box, ExecResult
from ..errors import CarrelError, QuotaExceeded


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def is_at_least(package: str, least: str) -> bool:
    return _numbers(importlib.metadata.version(package)) >= _numbers(least)


@contextlib.contextmanager
def needs(extra: str, package: str, least: str) -> Iterator[None]:
    """Around the imports from a framework: says in one sentence which extra is missing, or that the framework's version
    does not fit."""
    install = f"pip install 'carrel[{extra}]'"
    try:
        have = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"carrel.integrations.{extra} needs {package}, which is not installed: {install}") from None
    if not is_at_least(package, least):
        raise ImportError(
            f"carrel.integrations.{extra} needs {package} {least} or later, and {have} is installed: {install}")
    try:
        yield
    except ImportError as e:
        raise ImportError(
            f"carrel.integrations.{extra} does not fit {package} {have} ({e}); it was made for {least}: {install}"
        ) from None


_PATIENCE_S = 60


def _waits(started: float) -> Iterator[float]:
    """Pauses between tries while the server has no room for one more box: others may end soon."""
    pause = 0.05
    while time.monotonic() - started < _PATIENCE_S:
        yield pause
        pause = min(pause * 1.5, 1)


def make_box(**options: Any) -> Box:
    """A box for one agent: no kernels unless requested, and deleted when this process ends in any way."""
    waits = _waits(time.monotonic())
    while True:
        try:
            return Box(**{"template": None, **options}).leash()
        except QuotaExceeded as e:
            if e.code != "too_many" or (pause := next(waits, None)) is None:
                raise
            time.sleep(pause)


def close_box(box: Box) -> None:
    """Deletes it. A missing one, perhaps with its server, is no error."""
    with contextlib.suppress(CarrelError):
        box.delete()


async def make_async_box(**options: Any) -> AsyncBox:
    """The same for asyncio."""
    waits = _waits(time.monotonic())
    while True:
        try:
            return await (await AsyncCarrel().create(**{"template": None, **options})).leash()
        except QuotaExceeded as e:
            if e.code != "too_many" or (pause := next(waits, None)) is None:
                raise
            await asyncio.sleep(pause)


async def close_async_box(box: AsyncBox) -> None:
    with contextlib.suppress(CarrelError):
        await box.delete()


def why(result: ExecResult) -> str:
    """For the agent: the limit that ended the command, or the refused connections of a failed one; empty if the command
    ended by itself."""
    ended = result.reason if result.error or result.outcome in ("oom", "pids", "disk", "output_limit", "timeout") else ""
    return "; ".join(filter(None, [ended, "" if result.ok else result.refused]))


def is_cut(result: ExecResult) -> bool:
    """Whether the command wrote more than is here."""
    return result.truncated or result.outcome == "output_limit"
