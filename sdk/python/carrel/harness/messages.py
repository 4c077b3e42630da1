"""A run's messages, in the shapes of the Claude agent SDK: system (init), assistant, user (results of tools), result."""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Union

Raw = Dict[str, Any]


class AgentError(RuntimeError):
    """A run that cannot begin or continue; the message has the remedy."""


@dataclass
class TextBlock:
    """Text of the model's."""

    text: str
    type: str = "text"


@dataclass
class ThinkingBlock:
    """What the model thought, with the provider's signature."""

    thinking: str
    signature: str = ""
    type: str = "thinking"


@dataclass
class ToolUseBlock:
    """A call of a tool."""

    id: str
    name: str
    input: Raw
    type: str = "tool_use"
    # The model's text instead of an input, if it is no JSON. The call is answered with an error, not run.
    broken: str | None = field(default=None, repr=False)


@dataclass
class ToolResultBlock:
    """What a tool answered."""

    tool_use_id: str
    content: List[Raw]
    is_error: bool = False
    type: str = "tool_result"


@dataclass
class OpaqueBlock:
    """A block that only the provider understands; it goes back unchanged."""

    raw: Raw

    @property
    def type(self) -> str:
        return str(self.raw.get("type"))


Block = Union[TextBlock, ThinkingBlock, ToolUseBlock, ToolResultBlock, OpaqueBlock]


def block_raw(block: Block) -> Raw:
    """The block as the Messages API has it."""
    if isinstance(block, OpaqueBlock):
        return block.raw
    raw = asdict(block)
    raw.pop("broken", None)
    if isinstance(block, ToolResultBlock) and not block.is_error:
        del raw["is_error"]
    return raw


def block_of(raw: Raw) -> Block:
    kind = raw.get("type")
    if kind == "text":
        return TextBlock(str(raw.get("text", "")))
    if kind == "thinking":
        return ThinkingBlock(str(raw.get("thinking", "")), str(raw.get("signature") or ""))
    if kind == "tool_use":
        return ToolUseBlock(str(raw.get("id")), str(raw.get("name")), raw["input"] if isinstance(raw.get("input"), dict) else {})
    return OpaqueBlock(raw)


@dataclass
class SystemMessage:
    """The first message (subtype init): model, tools, servers, session."""

    subtype: str
    data: Raw
    type: str = "system"

    def as_dict(self) -> Raw:
        """For a record."""
        return {"type": self.type, "subtype": self.subtype, **self.data}


@dataclass
class AssistantMessage:
    """What the model said, and the tools that it calls."""

    content: List[Block]
    model: str
    usage: Raw = field(default_factory=dict)
    stop_reason: str | None = None
    type: str = "assistant"

    def as_dict(self) -> Raw:
        """For a record."""
        message = {"role": "assistant", "model": self.model, "content": [block_raw(b) for b in self.content], "stop_reason": self.stop_reason,
                   "usage": self.usage}
        return {"type": self.type, "message": message, "parent_tool_use_id": None}


@dataclass
class UserMessage:
    """Results of tools, or the user's text."""

    content: List[Block]
    type: str = "user"

    def as_dict(self) -> Raw:
        """For a record."""
        return {"type": self.type, "message": {"role": "user", "content": [block_raw(b) for b in self.content]}, "parent_tool_use_id": None}


@dataclass
class ResultMessage:
    """The last message. subtype: success; error_max_turns, error_max_tokens, error_timeout, error_during_execution, cancelled."""

    subtype: str
    duration_ms: int
    duration_api_ms: int
    is_error: bool
    num_turns: int
    session_id: str
    total_cost_usd: float | None = None
    usage: Raw = field(default_factory=dict)
    result: str | None = None
    type: str = "result"

    def as_dict(self) -> Raw:
        """For a record."""
        return asdict(self)


Message = Union[SystemMessage, AssistantMessage, UserMessage, ResultMessage]


def text_of(content: List[Block]) -> str:
    return "".join(b.text for b in content if isinstance(b, TextBlock))


def error_result(tool_use_id: str, words: str) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id, [{"type": "text", "text": words}], is_error=True)
