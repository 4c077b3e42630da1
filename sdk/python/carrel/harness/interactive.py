"""A conversation with an agent at the terminal. ESC, or Ctrl-C, ends the answer that is being given; 'exit' or 'quit' ends the conversation."""
from __future__ import annotations

import asyncio
import contextlib
import select
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
            if select.select([sys.stdin], [], [], 0.1)[0] and sys.stdin.read(1) == "\x1b":
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


async def _answer(conversation: Conversation, words: str) -> None:
    async for _ in conversation.ask(words):
        pass


async def run_agent_interactive(prompt: str, mcp_config: Mapping[str, Any] | None = None, user_message: str = "", provider: str = "claude",
                                model: str | None = None, kwargs: Mapping[str, Any] | None = None) -> None:
    """Talks with an agent until 'exit', 'quit' or the end of the input. With user_message, that is the first thing said."""
    settings = settings_of(kwargs, model)
    loop = asyncio.get_running_loop()
    async with Conversation(prompt, mcp_config, provider, settings, Screen(True)) as conversation:
        conversation.init()
        words = user_message
        while True:
            if not words.strip():
                try:
                    words = await loop.run_in_executor(None, input, "> ")
                except EOFError:
                    return
                if words.strip().lower() in ("exit", "quit"):
                    return
                if not words.strip():
                    continue
            answering = asyncio.ensure_future(_answer(conversation, words))
            with _escape(partial(_cancel_from_thread, loop, answering)):
                try:
                    await answering
                except asyncio.CancelledError:
                    if not answering.cancelled() or _cancelling():
                        raise
            words = ""


def _cancel_from_thread(loop: asyncio.AbstractEventLoop, answering: "asyncio.Future[None]") -> None:
    loop.call_soon_threadsafe(answering.cancel)


def _cancelling() -> bool:
    """Whether somebody wants this very task to end, and not only the answer."""
    task = asyncio.current_task()
    count = getattr(task, "cancelling", None)
    return bool(count and count())
