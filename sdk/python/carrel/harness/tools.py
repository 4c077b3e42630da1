"""The agent's tools: functions with a name, a schema and a bound on their output."""
from __future__ import annotations

import asyncio
from typing import Dict, Iterable, List

from ..tools import Outcome, Tool, image_block, required_text, text_block
from ..within import within
from .messages import AgentError, Raw, ToolResultBlock, ToolUseBlock, error_result

__all__ = ["Outcome", "Tool", "Toolset", "bounded", "image_block", "required_text", "text_block"]
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST_IMAGES = 4
_MOST_IMAGE = 5_000_000     # characters of one picture in base64; a provider refuses the whole request if one is larger


def _shorten(text: str, most: int) -> str:
    """The beginning and the end: there a program says what it does and why it failed."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def bounded(content: Iterable[Raw], most: int) -> List[Raw]:
    """No more than that many characters of text, a few images, and never nothing."""
    out: List[Raw] = []
    images = 0
    for block in content:
        if block.get("type") == "text":
            if block.get("text") and most > 0:
                text = _shorten(str(block["text"]), most)
                most -= len(text)
                out.append(text_block(text))
        elif block.get("type") == "image" and len(str(block.get("source", {}).get("data", ""))) > _MOST_IMAGE:
            out.append(text_block(f"[image: {len(block['source']['data']) / 1e6:.1f} MB, more than a model takes; left out]"))
        elif block.get("type") == "image" and block.get("source", {}).get("media_type") in _IMAGES and images < _MOST_IMAGES:
            images += 1
            out.append(block)
        else:
            out.append(text_block(f"[{block.get('type')}: left out]"))
    return out or [text_block("(no output)")]


class Toolset:
    """The tools of a run by their names."""

    def __init__(self, tools: Iterable[Tool], *, timeout: float, most: int):
        self._tools: Dict[str, Tool] = {}
        self._timeout = timeout
        self._most = most
        for tool in tools:
            if tool.name in self._tools:
                raise AgentError(f"two tools are called {tool.name}; give one of the servers another name in mcp_config")
            self._tools[tool.name] = tool

    @property
    def names(self) -> List[str]:
        return list(self._tools)

    def as_list(self) -> List[Raw]:
        return [tool.as_dict() for tool in self._tools.values()]

    async def answer(self, use: ToolUseBlock) -> ToolResultBlock:
        """The result of a call, whatever happens to it."""
        tool = self._tools.get(use.name)
        if tool is None:
            return error_result(use.id, f"there is no tool {use.name!r}; there are: {', '.join(self._tools) or 'none'}")
        if use.broken is not None:
            return error_result(use.id, use.broken)
        try:
            outcome = await within(self._timeout, tool.run(use.input))
        except asyncio.TimeoutError:
            return error_result(use.id, f"it took longer than {self._timeout:g} s and was ended")
        except Exception as e:
            return error_result(use.id, _shorten(f"{type(e).__name__}: {e}", self._most))
        return ToolResultBlock(use.id, bounded(outcome.content, self._most), outcome.is_error)

    async def answer_all(self, uses: List[ToolUseBlock]) -> List[ToolResultBlock]:
        """Side by side, in the order of the calls."""
        return list(await asyncio.gather(*(self.answer(use) for use in uses)))
