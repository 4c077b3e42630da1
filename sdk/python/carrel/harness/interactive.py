"""A conversation with an agent at the terminal. ESC, or Ctrl-C, ends the answer that is being given; 'exit', 'quit', or Ctrl-C at the prompt, the
conversation."""
from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
from functools import partial
from typing import Any, Callable, Iterator, Mapping

from .agent import Conversation
from .settings import settings_of
from .show import Screen


@contextlib.contextmanager
def _escape(pressed: Callable[[], None]) -> Iterator[None]:
    """Calls pressed() when ESC is hit; nothing if there is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty
    before = termios.tcgetattr(sys.stdin)
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            # One byte by itself: keys like the arrows send it with others.
            if select.select([sys.stdin], [], [], 0.1)[0] and os.read(sys.stdin.fileno(), 64) == b"\x1b":
                pressed()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    tty.setcbreak(sys.stdin)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _interrupt(loop: asyncio.AbstractEventLoop, pressed: Callable[[], None]) -> Iterator[None]:
    """Calls pressed() on Ctrl-C, where that can be had: in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, pressed)
    except (ValueError, RuntimeError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


async def _read_line(loop: asyncio.AbstractEventLoop) -> str | None:
    """A line of the user's; None at the end of the input, or after Ctrl-C. The reading thread may stay behind, waiting for a line that is no longer wanted."""
    line: asyncio.Future[str | None] = loop.create_future()

    def settle(words: str | None) -> None:
        if not line.done():
            line.set_result(words)

    def read() -> None:
        try:
            words: str | None = input("> ")
        except (EOFError, OSError, ValueError):
            words = None
        with contextlib.suppress(RuntimeError):     # the loop is closed
            loop.call_soon_threadsafe(settle, words)

    with _interrupt(loop, lambda: settle(None)):        # before the prompt appears, which invites Ctrl-C
        threading.Thread(target=read, daemon=True).start()
        return await line


async def _answer(conversation: Conversation, words: str) -> None:
    async for _ in conversation.ask(words):
        pass


async def run_agent_interactive(prompt: str, mcp_config: Mapping[str, Any] | None = None, user_message: str = "", provider: str = "claude",
                                model: str | None = None, kwargs: Mapping[str, Any] | None = None) -> None:
    """Talks with an agent until 'exit', 'quit' or the end of the input. user_message, if given, is the first message."""
    settings = settings_of(kwargs, model)
    loop = asyncio.get_running_loop()
    async with Conversation(prompt, mcp_config, provider, settings, Screen(True)) as conversation:
        conversation.init()
        words = user_message
        while True:
            if not words.strip():
                said = await _read_line(loop)
                if said is None or said.strip().lower() in ("exit", "quit"):
                    return
                words = said
                if not words.strip():
                    continue
            answering = asyncio.ensure_future(_answer(conversation, words))
            with _escape(partial(_cancel_from_thread, loop, answering)), _interrupt(loop, lambda: _cancel(answering)):
                try:
                    await answering
                except asyncio.CancelledError:
                    if not answering.cancelled() or _cancelling():
                        raise
            words = ""


def _cancel(answering: "asyncio.Future[None]") -> None:
    answering.cancel()


def _cancel_from_thread(loop: asyncio.AbstractEventLoop, answering: "asyncio.Future[None]") -> None:
    loop.call_soon_threadsafe(answering.cancel)


def _cancelling() -> bool:
    """Whether the task itself was cancelled, and not only the answer."""
    task = asyncio.current_task()
    count = getattr(task, "cancelling", None)
    return bool(count and count())
