"""Waiting with a bound, in the moments that matter."""
import asyncio

import pytest
from carrel.within import within


def run(scene):
    return asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_result_that_comes_in_time_is_given():
    async def scene():
        assert await within(20, asyncio.sleep(0, "x")) == "x" and await within(None, asyncio.sleep(0, "y")) == "y"
    run(scene)


def test_what_takes_too_long_is_ended():
    ended = []

    async def long():
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    async def scene():
        with pytest.raises(asyncio.TimeoutError):
            await within(0.01, long())
    run(scene)
    assert ended


def test_a_cancellation_in_the_moment_of_the_result_is_not_lost():
    async def scene():
        result = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(within(60, result))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        result.set_result(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    run(scene)


def test_an_exception_comes_through():
    async def fail():
        raise ValueError("on purpose")

    async def scene():
        with pytest.raises(ValueError):
            await within(20, fail())
    run(scene)
