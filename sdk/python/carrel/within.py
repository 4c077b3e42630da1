"""Waiting with a bound."""
from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar

T = TypeVar("T")


async def within(seconds: float | None, what: Awaitable[T]) -> T:
    """What it waits for, or asyncio.TimeoutError. asyncio.wait_for() loses, before Python 3.12, a cancellation that comes in the very moment in
    which the result does; then a caller that was cancelled goes on for ever."""
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
        task.exception()        # looked at, so that nobody is told that it was not
