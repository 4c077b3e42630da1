"""Waiting with a bound."""
from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar

T = TypeVar("T")


async def within(seconds: float | None, what: Awaitable[T]) -> T:
    """The awaited result, or asyncio.TimeoutError. Before Python 3.12 asyncio.wait_for() loses a cancellation that comes at the very moment of
    the result; the cancelled caller then continues for ever."""
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not task.done():
        await _end(task)
        if task.cancelled():
            raise asyncio.TimeoutError
    return task.result()


async def _end(task: "asyncio.Future[T]") -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()        # so that asyncio does not report an unread exception
