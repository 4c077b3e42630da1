"""Agents: a model in a loop with tools. run_agent() runs one, run_agent_interactive() talks with one."""
from __future__ import annotations

from .agent import run_agent
from .interactive import run_agent_interactive
from .messages import (AgentError, AssistantMessage, Message, ResultMessage, SystemMessage, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock,
                       UserMessage)

__all__ = ["AgentError", "AssistantMessage", "Message", "ResultMessage", "SystemMessage", "TextBlock", "ThinkingBlock", "ToolResultBlock",
           "ToolUseBlock", "UserMessage", "run_agent", "run_agent_interactive"]
