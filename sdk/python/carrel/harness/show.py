"""A run on the screen while it happens: the agent's words on stdout, everything else on stderr."""
from __future__ import annotations

import os
import re
import sys
from typing import Any

from .messages import AssistantMessage, Message, ResultMessage, SystemMessage, ToolResultBlock, ToolUseBlock, UserMessage

_MOST = 2000
# Terminal commands: they could rewrite lines above, the window's title, or the clipboard.
_COMMANDS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _limit() -> int:
    try:
        return int(os.environ.get("CARREL_LOG_MAX_CHARS", _MOST))
    except ValueError:
        return _MOST


def harmless(text: str) -> str:
    """The text without terminal commands: the output of agents, tools and servers is untrusted."""
    return _COMMANDS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


class Screen:
    """With enabled=False it says nothing."""

    def __init__(self, enabled: bool):
        self._enabled = enabled
        self._middle = False        # of a line of the agent's
        self._most = _limit()

    def say(self, text: str) -> None:
        """A part of the agent's output."""
        text = harmless(text)
        if self._enabled and text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._middle = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._middle:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._middle = False

    def note(self, head: str, text: str = "") -> None:
        if not self._enabled:
            return
        self._end_line()
        head, text = harmless(head), harmless(text).strip("\n")
        if len(text) > self._most:
            text = text[:self._most] + f" [... {len(text) - self._most} more characters]"
        body = "".join(f"\n  | {line}" for line in text.splitlines())
        sys.stderr.write(f"[{head}]{body}\n")
        sys.stderr.flush()

    def show(self, message: Message) -> None:
        if isinstance(message, SystemMessage):
            data = message.data
            self.note(f"agent {data.get('session_id', '')}: {data.get('provider')} {data.get('model')}, tools: "
                      f"{', '.join(data.get('tools', [])) or 'none'}")
        elif isinstance(message, AssistantMessage):
            self._end_line()
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    self.note(block.name, _input_text(block.input))
        elif isinstance(message, UserMessage):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    self.note("error" if block.is_error else "result", "\n".join(_part_text(part) for part in block.content))
        elif isinstance(message, ResultMessage):
            cost = f", ${message.total_cost_usd:.4f}" if message.total_cost_usd is not None else ""
            tokens = message.usage.get("input_tokens", 0), message.usage.get("output_tokens", 0)
            self.note(f"{message.subtype}: {message.num_turns} turns, {tokens[0]} tokens in, {tokens[1]} out{cost}, "
                      f"{message.duration_ms / 1000:.1f} s", message.result or "" if message.is_error else "")


def _input_text(given: Any) -> str:
    if set(given) in ({"code"}, {"command"}):
        return str(next(iter(given.values())))
    return "\n".join(f"{name}: {value}" for name, value in given.items())


def _part_text(part: Any) -> str:
    return str(part["text"]) if part.get("type") == "text" else f"[{part.get('type')}]"
