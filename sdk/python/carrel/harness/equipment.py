"""The tools of a run: Python in the session's box, and the servers of the configuration."""
from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, List, Mapping

from .messages import AgentError, Raw
from .settings import Settings
from .tools import Tool, Toolset


@dataclass
class Equipment:
    tools: Toolset
    words: str = ""             # for the system prompt: describes the session
    servers: List[Raw] = field(default_factory=list)
    session: Any = None


def _session_of(settings: Settings, config: Mapping[str, Any]) -> Any:
    """The session whose tools are wanted: the named one, or the newest live one; none if the configuration has its tools already."""
    from ..execution.live import live_sessions
    if settings.session is not None:
        return settings.session
    newest = next(reversed(live_sessions()), None)
    if newest is None or any(config.get(name) == entry for name, entry in newest._mcp_entry().items()):
        return None
    return newest


async def equip(stack: contextlib.AsyncExitStack, mcp_config: Mapping[str, Any] | None, settings: Settings) -> Equipment:
    """Starts everything needed; the stack ends it."""
    config = mcp_config or {}
    if not isinstance(config, Mapping) or not all(isinstance(entry, Mapping) for entry in config.values()):
        raise AgentError("mcp_config is a mapping of names to servers: {'NAME': {'type': 'stdio', 'command': ..., 'args': [...]}}")
    tools: List[Tool] = []
    words = ""
    session = _session_of(settings, config)
    if session is not None:
        tools += await session.agent_tools(stack)
        words = session.agent_words()
    servers: List[Raw] = []
    for name, entry in config.items():
        from .mcp import connect
        tools += await connect(stack, name, entry)
        servers.append({"name": name, "status": "connected"})
    tools = [tool for tool in tools if settings.allows(tool.name)]
    return Equipment(Toolset(tools, timeout=settings.tool_timeout, most=settings.max_tool_output), words, servers, session)
