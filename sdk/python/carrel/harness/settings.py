"""The bounds and options of a run: the names in run_agent's `kwargs`."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, List, Mapping

from .messages import AgentError, Raw


@dataclass
class Settings:
    """None: unbounded."""

    session: Any = None                     # a session of carrel.execution; else the program's last one
    model: str | None = None
    max_turns: int = 50                     # answers of the model
    max_tokens: int = 8192                  # of one answer
    max_total_tokens: int | None = None     # input and output of the whole run
    timeout: float | None = None            # seconds, the whole run
    tool_timeout: float = 600               # seconds, one call of a tool
    max_tool_output: int = 100_000          # characters of text that one call gives to the model
    transcript: str | os.PathLike[str] | None = None    # the file that provider="replay" replays
    record: str | os.PathLike[str] | None = None        # a file that gets every message
    allowed_tools: List[str] | None = None              # their full names, as in the first message of a run; None: all
    disallowed_tools: List[str] = field(default_factory=list)
    base_url: str | None = None
    api_key: str | None = None
    temperature: float | None = None
    thinking: Raw | None = None             # {"type": "enabled", "budget_tokens": 2000}; claude only
    max_retries: int = 4                    # of a request that was refused for now, or whose answer broke off

    def allows(self, name: str) -> bool:
        """A server chooses the names of its tools, so a tool is allowed by its full name, and can also be forbidden by the last part of it."""
        forbidden = {name, name.rpartition("__")[2]} & set(self.disallowed_tools)
        return not forbidden and (self.allowed_tools is None or name in self.allowed_tools)


def settings_of(kwargs: Mapping[str, Any] | None, model: str | None) -> Settings:
    known = {f.name for f in fields(Settings)}
    given = dict(kwargs or {})
    for name in given:
        if name not in known:
            raise AgentError(f"run_agent(kwargs={{...}}) has no option {name!r}; it takes {', '.join(sorted(known))}")
    settings = Settings(**given)
    if model is not None:
        settings.model = model
    for name in ("max_turns", "max_tokens", "max_total_tokens", "timeout", "tool_timeout", "max_tool_output"):
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
            raise AgentError(f"{name} must be a number above 0, not {value!r}")
    for name in ("allowed_tools", "disallowed_tools"):
        value = getattr(settings, name)
        if isinstance(value, str) or not all(isinstance(tool, str) for tool in value or ()):
            raise AgentError(f"{name} is a list of tools' names, not {value!r}")
    if settings.record is None:
        settings.record = os.environ.get("CARREL_TRANSCRIPT") or None
    return settings
