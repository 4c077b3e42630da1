"""Models behind chat completions, with the package openai: OpenAI's own, and every server that speaks the same."""
from __future__ import annotations

import importlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List

from ..messages import AgentError, Block, Raw, TextBlock, ToolUseBlock
from ..settings import Settings
from . import DEFAULT_MODELS, ProviderFailed, Say, Turn, missing_key, missing_package
from .retry import asking

_STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


class OpenAI:
    def __init__(self, settings: Settings):
        try:
            openai: Any = importlib.import_module("openai")
        except ImportError:
            raise missing_package("openai") from None
        base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL")
        # Servers of one's own want no key, but the library does.
        key = settings.api_key or os.environ.get("OPENAI_API_KEY") or ("none" if base_url else None)
        if not key:
            raise missing_key("OPENAI_API_KEY")
        if settings.thinking is not None:
            raise AgentError("thinking is for provider='claude'; leave it out")
        self._settings = settings
        self.model = settings.model or DEFAULT_MODELS["openai"]
        self._client: Any = openai.AsyncOpenAI(api_key=key, base_url=base_url, max_retries=0)
        self._names: Dict[str, str] = {}
        self._sees = True           # until the model refuses pictures

    async def turn(self, system: str, messages: List[Raw], tools: List[Raw], say: Say) -> Turn:
        request: Dict[str, Any] = {"model": self.model, "messages": self._messages(system, messages), "stream": True,
                                   "stream_options": {"include_usage": True}}
        has_pictures = any(isinstance(m["content"], list) for m in request["messages"])
        # Servers of one's own know the old name only, OpenAI's newer models the new one only.
        request["max_completion_tokens" if "api.openai.com" in str(self._client.base_url) else "max_tokens"] = self._settings.max_tokens
        if tools:
            request["tools"] = [{"type": "function", "function": {"name": self._name(t["name"]), "description": t.get("description") or "",
                                                                  "parameters": t["input_schema"]}} for t in tools]
        if self._settings.temperature is not None:
            request["temperature"] = self._settings.temperature
        try:
            return await asking(lambda: self._ask(request, say), self._settings.max_retries, str(self._client.base_url))
        except ProviderFailed as e:
            if not has_pictures or e.refusal not in ("400", "415", "422"):
                raise
            self._sees = False      # many models of one's own read texts alone
            try:
                request["messages"] = self._messages(system, messages)
                return await asking(lambda: self._ask(request, say), self._settings.max_retries, str(self._client.base_url))
            except ProviderFailed:
                self._sees = True
                raise e from None   # it was something else

    async def _ask(self, request: Raw, say: Say) -> Turn:
        text: List[str] = []
        calls: Dict[int, _Call] = {}
        finish, usage, model = None, None, None
        stream = await self._client.chat.completions.create(**request)
        async with stream:
            async for chunk in stream:
                model = chunk.model or model
                usage = chunk.usage or usage
                for choice in chunk.choices[:1]:
                    finish = choice.finish_reason or finish
                    delta = choice.delta
                    if delta is not None and delta.content:
                        text.append(delta.content)
                        say(delta.content)
                    for part in (delta.tool_calls if delta is not None else None) or ():
                        call = calls.setdefault(part.index, _Call())
                        call.id = part.id or call.id
                        if part.function is not None:
                            call.name = call.name or part.function.name or ""
                            call.arguments += part.function.arguments or ""
        if finish is None:
            raise ConnectionError("the answer broke off in the middle")
        if not text and not calls and finish == "stop" and model is None:
            raise ProviderFailed(f"{self._client.base_url} answered without content")
        content: List[Block] = [TextBlock("".join(text))] if text else []
        content += [self._use(index, call) for index, call in sorted(calls.items())]
        counted = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens} if usage else {}
        kept = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
        if kept:
            counted["cache_read_input_tokens"] = kept
        cost = getattr(usage, "cost", None)         # routers tell it
        return Turn(content, "tool_use" if calls else _STOP.get(str(finish), str(finish)), counted, model,
                    float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None)

    def _use(self, index: int, call: _Call) -> ToolUseBlock:
        block = ToolUseBlock(str(call.id or f"call_{index}"), self._names.get(call.name, str(call.name)), {})
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError as e:
            block.broken = f"the arguments are not JSON ({e}): {call.arguments[:200]}"
            return block
        if isinstance(arguments, dict):
            block.input = arguments
        else:
            block.broken = "the arguments must be a JSON object"
        return block

    def _name(self, name: str) -> str:
        """As functions may be called there: 64 characters without dots. The way back is remembered."""
        short = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[-64:]
        while self._names.get(short, name) != name:
            short = short[1:] + "_"
        self._names[short] = name
        return short

    def _messages(self, system: str, messages: List[Raw]) -> List[Raw]:
        out: List[Raw] = [{"role": "system", "content": system}] if system else []
        for message in messages:
            blocks = message["content"]
            text = "".join(b["text"] for b in blocks if b["type"] == "text")
            uses = [b for b in blocks if b["type"] == "tool_use"]
            pictures: List[Raw] = []
            for block in blocks:
                if block["type"] == "tool_result":
                    out.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": _flat(block, self._sees)})
                    pictures += _pictures(block)
            if pictures and self._sees:     # after all answers of tools, which are texts alone
                out.append({"role": "user", "content": pictures})
            if uses:
                out.append({"role": "assistant", "content": text or None, "tool_calls": [
                    {"id": b["id"], "type": "function", "function": {"name": self._name(b["name"]), "arguments": json.dumps(b["input"])}}
                    for b in uses]})
            elif text or message["role"] == "assistant":
                out.append({"role": message["role"], "content": text})
        return out

    async def aclose(self) -> None:
        await self._client.close()


def _pictures(block: Raw) -> List[Raw]:
    """Those of a result, each after the call that it is of."""
    out: List[Raw] = []
    for part in block["content"]:
        source = part.get("source", {})
        if part["type"] == "image" and source.get("type") == "base64":
            out += [{"type": "text", "text": f"Picture of the call {block['tool_use_id']}:"},
                    {"type": "image_url", "image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}]
    return out


def _flat(block: Raw, sees: bool) -> str:
    """A result as text: a message of a tool has nothing else here."""
    how = "see the next message" if sees else "not shown"
    parts = [part["text"] if part["type"] == "text" else f"[{part['type']}: {part.get('source', {}).get('media_type', '')}, {how}]"
             for part in block["content"]]
    return ("error: " if block.get("is_error") else "") + "\n".join(parts)
