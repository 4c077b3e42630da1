"""Tools for agents: what sessions and servers of MCP give, and what the harness runs."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Dict, List

Raw = Dict[str, Any]
Run = Callable[[Raw], Awaitable["Outcome"]]


@dataclass
class Outcome:
    """What a call gave: blocks of text and images."""

    content: List[Raw]
    is_error: bool = False


def text_block(text: str) -> Raw:
    return {"type": "text", "text": text}


def image_block(media_type: str, data: str) -> Raw:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


@dataclass
class Tool:
    """A function that an agent may call."""

    name: str
    description: str
    input_schema: Raw
    run: Run

    def as_dict(self) -> Raw:
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}


def required_text(given: Raw, name: str) -> str:
    value: Any = given.get(name)
    if not isinstance(value, str):
        raise ValueError(f"the tool wants {name!r}, a text")
    return value
