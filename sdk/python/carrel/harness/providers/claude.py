"""Models behind the Messages API, with the package anthropic."""
from __future__ import annotations

import importlib
import os
from typing import Any, Dict, List

from ..messages import Raw, block_of
from ..settings import Settings
from . import DEFAULT_MODELS, Say, Turn, missing_key, missing_package
from .retry import asking

_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Claude:
    def __init__(self, settings: Settings):
        try:
            anthropic: Any = importlib.import_module("anthropic")
        except ImportError:
            raise missing_package("anthropic") from None
        key = settings.api_key or os.environ.get("ANTHROPIC_API_KEY")
        if not key and not os.environ.get("ANTHROPIC_AUTH_TOKEN"):
            raise missing_key("ANTHROPIC_API_KEY")
        self._settings = settings
        self.model = settings.model or DEFAULT_MODELS["claude"]
        # Repeating is done in one place, where also a broken stream is repeated.
        self._client: Any = anthropic.AsyncAnthropic(api_key=key, base_url=settings.base_url, max_retries=0)

    @property
    def _where(self) -> str:
        return str(self._client.base_url)

    async def turn(self, system: str, messages: List[Raw], tools: List[Raw], say: Say) -> Turn:
        request: Dict[str, Any] = {"model": self.model, "max_tokens": self._settings.max_tokens, "messages": _cached(messages)}
        if system:
            request["system"] = system
        if tools:
            request["tools"] = tools
        for name in ("temperature", "thinking"):
            if getattr(self._settings, name) is not None:
                request[name] = getattr(self._settings, name)

        async def ask() -> Any:
            async with self._client.messages.stream(**request) as stream:
                async for event in stream:
                    if event.type == "text":
                        say(event.text)
                answer = await stream.get_final_message()
            if answer.stop_reason is None:      # the library takes a stream that ended early for a whole one
                raise ConnectionError("the answer broke off in the middle")
            return answer

        answer = await asking(ask, self._settings.max_retries, self._where)
        usage = answer.usage.model_dump() if answer.usage else {}
        return Turn([block_of(_clean(b.model_dump(exclude_none=True))) for b in answer.content], answer.stop_reason,
                    {k: usage[k] for k in _USAGE if usage.get(k)}, answer.model)

    async def aclose(self) -> None:
        await self._client.close()


def _cached(messages: List[Raw]) -> List[Raw]:
    """The provider keeps all up to the last block, and finds it again at the next turn: tools, prompt and what was said cost a tenth then."""
    if not messages or not messages[-1]["content"]:
        return messages
    *before, last = messages
    *blocks, end = last["content"]
    return [*before, {**last, "content": [*blocks, {**end, "cache_control": {"type": "ephemeral"}}]}]


def _clean(raw: Raw) -> Raw:
    """Without fields that the library adds for its callers and the server does not accept."""
    return {k: v for k, v in raw.items() if k not in ("parsed_output", "_snapshot")}
