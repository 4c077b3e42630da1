"""The agent's loop: calls the model, runs the tools that it calls, sends it their results, until it makes no more calls or a bound is reached."""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import uuid
from types import TracebackType
from typing import Any, AsyncIterator, Dict, List, Mapping

from ..within import within
from .messages import (AgentError, AssistantMessage, Message, Raw, ResultMessage, SystemMessage, TextBlock, ToolUseBlock, UserMessage, block_raw,
                       error_result, text_of)
from .providers import Provider, Turn, make_provider
from .settings import Settings, settings_of
from .show import Screen
from .tools import Toolset

_BEGIN = "Begin."       # for user_message="": no model takes an empty message
_COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Transcript:
    """Every message as one line of JSON, as it happens; a file for the user alone. It may be in a directory where an agent left a link."""

    def __init__(self, path: str | os.PathLike[str] | None):
        self._file = None
        if path is not None:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as e:
                raise AgentError(f"cannot write the transcript {os.fspath(path)}: {e.strerror}") from e
            self._file = open(descriptor, "w", encoding="utf-8")

    def write(self, message: Message) -> None:
        if self._file is not None:
            json.dump(message.as_dict(), self._file, ensure_ascii=False)
            self._file.write("\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Conversation:
    """A model, tools, and the conversation so far. One question after the other: ask() gives the messages of each."""

    def __init__(self, prompt: str, mcp_config: Mapping[str, Any] | None, provider: str, settings: Settings, screen: Screen):
        self.settings = settings
        self.session_id = uuid.uuid4().hex
        self._prompt = prompt
        self._mcp_config = mcp_config
        self._provider_name = provider
        self._screen = screen
        self._stack = contextlib.AsyncExitStack()
        self._messages: List[Raw] = []
        self._used: Dict[str, int] = {}
        self._turns = 0
        self._started = time.monotonic()
        self._asking_s = 0.0
        self._cost_usd: float | None = None     # until the provider tells one

    async def __aenter__(self) -> "Conversation":
        from .equipment import equip
        try:
            self._provider: Provider = make_provider(self._provider_name, self.settings)
            self._stack.push_async_callback(self._provider.aclose)
            self._transcript = Transcript(self.settings.record)
            self._stack.callback(self._transcript.close)
            equipment = await equip(self._stack, self._mcp_config, self.settings)
            self._tools: Toolset = equipment.tools
            self._system = "\n\n".join(part for part in (self._prompt.strip(), equipment.words) if part)
            self._servers = equipment.servers
            self.work_session = equipment.session
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    def _tell(self, message: Message) -> Message:
        self._transcript.write(message)
        self._screen.show(message)
        return message

    def init(self) -> Message:
        return self._tell(SystemMessage("init", {
            "session_id": self.session_id, "provider": self._provider_name, "model": self._provider.model, "tools": self._tools.names,
            "mcp_servers": self._servers, "session": getattr(self.work_session, "name", None), "permissionMode": "bypassPermissions"}))

    def _result(self, subtype: str, text: str | None) -> Message:
        return self._tell(ResultMessage(subtype, int((time.monotonic() - self._started) * 1000), int(self._asking_s * 1000), subtype != "success",
                                        self._turns, self.session_id, self._cost_usd, dict(self._used), text))

    def _spent(self) -> int:
        return self._used.get("input_tokens", 0) + self._used.get("output_tokens", 0)

    def _left(self) -> float | None:
        limit = self.settings.timeout
        return None if limit is None else limit - (time.monotonic() - self._started)

    async def _ask_model(self) -> Turn:
        began = time.monotonic()
        try:
            turn = await within(self._left(), self._provider.turn(self._system, self._messages, self._tools.as_list(), self._screen.say))
        finally:
            self._asking_s += time.monotonic() - began
        self._turns += 1
        for name in _COUNTED:
            if isinstance(turn.usage.get(name), int):
                self._used[name] = self._used.get(name, 0) + turn.usage[name]
        if turn.cost_usd is not None:
            self._cost_usd = (self._cost_usd or 0.0) + turn.cost_usd
        return turn

    def _bound(self) -> tuple[str, str] | None:
        """Which bound forbids another turn."""
        most = self.settings.max_total_tokens
        left = self._left()
        if self._turns >= self.settings.max_turns:
            return "error_max_turns", f"the run has had its {self.settings.max_turns} turns (max_turns)"
        if most is not None and self._spent() >= most:
            return "error_max_tokens", f"the run has used {self._spent()} tokens of {most} (max_total_tokens)"
        if left is not None and left <= 0:
            return "error_timeout", f"the run took longer than {self.settings.timeout:g} s (timeout)"
        return None

    async def _use_tools(self, uses: List[ToolUseBlock]) -> UserMessage:
        """Every call is answered, also if the run is cancelled meanwhile."""
        try:
            answers = await within(self._left(), self._tools.answer_all(uses))
        except asyncio.TimeoutError:
            answers = [error_result(use.id, "the time of the run is over") for use in uses]
        except BaseException:
            self._give_up(uses)
            raise
        return self._add(UserMessage(list(answers)))

    def _give_up(self, uses: List[ToolUseBlock]) -> None:
        self._add(UserMessage([error_result(use.id, "the run was cancelled") for use in uses]))

    def _add(self, message: UserMessage) -> UserMessage:
        self._messages.append({"role": "user", "content": [block_raw(b) for b in message.content]})
        self._tell(message)
        return message

    async def ask(self, words: str) -> AsyncIterator[Message]:
        """The messages of one question, the last one a result. max_turns and timeout bound each question by itself."""
        self._turns, self._started = 0, time.monotonic()
        said = [{"type": "text", "text": words.strip() or _BEGIN}]
        if self._messages and self._messages[-1]["role"] == "user":
            self._messages[-1]["content"] += said      # after a run that was cancelled while tools ran
        else:
            self._messages.append({"role": "user", "content": said})
        try:
            while True:
                bound = self._bound()
                if bound is not None:
                    yield self._result(*bound)
                    return
                turn = await self._ask_model()
                if not turn.content:
                    turn.content = [TextBlock("(no answer)")]
                self._messages.append({"role": "assistant", "content": [block_raw(b) for b in turn.content]})
                answer = AssistantMessage(turn.content, turn.model or self._provider.model, turn.usage, turn.stop_reason)
                self._tell(answer)
                uses = [b for b in turn.content if isinstance(b, ToolUseBlock)]
                if not uses:
                    yield answer
                    yield self._end(turn)
                    return
                try:
                    yield answer
                except BaseException:       # leaving the loop here leaves no open call behind
                    self._give_up(uses)
                    raise
                yield await self._use_tools(uses)
        except asyncio.TimeoutError:
            yield self._result("error_timeout", f"the run took longer than {self.settings.timeout:g} s (timeout)")
        except AgentError as e:
            yield self._result("error_during_execution", str(e))
            raise
        except asyncio.CancelledError:
            self._result("cancelled", None)
            raise

    def _end(self, turn: Turn) -> Message:
        text = text_of(turn.content)
        if turn.stop_reason == "max_tokens":
            return self._result("error_max_tokens", f"the answer was longer than {self.settings.max_tokens} tokens (max_tokens): {text}")
        if turn.stop_reason == "refusal":
            return self._result("error_during_execution", f"the model refused to answer: {text}")
        return self._result("success", text)


async def run_agent(prompt: str, mcp_config: Mapping[str, Any] | None = None, user_message: str = "", provider: str = "claude",
                    model: str | None = None, kwargs: Mapping[str, Any] | None = None, enable_logging: bool = True) -> AsyncIterator[Message]:
    """Runs an agent: `prompt` is its system prompt, `user_message` what the user says. Its tools are Python in the box of the session that the
    program made (kwargs={"session": ...} names another), and the servers of `mcp_config`. With logging it is shown as it happens.

    Providers: claude, openai, replay. kwargs: see Settings. Leaving the loop, or cancelling the task, ends the run and what it started."""
    settings = settings_of(kwargs, model)
    screen = Screen(enable_logging)
    async with Conversation(prompt, mcp_config, provider, settings, screen) as conversation:
        yield conversation.init()
        messages = conversation.ask(user_message)
        try:
            async for message in messages:
                yield message
        finally:
            await messages.aclose()     # type: ignore[attr-defined]
