"""Providers of answers: a model behind the field's own library, or a transcript."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, List, Protocol

from ..messages import AgentError, Block, Raw
from ..settings import Settings

DEFAULT_MODELS = {"claude": "claude-sonnet-5-5", "openai": "gpt-5.5", "replay": "replay"}
Say = Callable[[str], None]


@dataclass
class Turn:
    """One answer of a model. usage: input_tokens, output_tokens, cache_read_input_tokens. cost_usd: if the provider tells it."""

    content: List[Block]
    stop_reason: str | None
    usage: Raw = field(default_factory=dict)
    model: str | None = None
    cost_usd: float | None = None


class ProviderFailed(AgentError):
    """The provider refused, or did not answer. refusal: the HTTP status of a refusal that stays, or the provider's word for it."""

    refusal: str | None = None


class Provider(Protocol):
    """`messages` are those of the Messages API: role and blocks. say() gets the answer's text while it comes."""

    model: str

    async def turn(self, system: str, messages: List[Raw], tools: List[Raw], say: Say) -> Turn: ...

    async def aclose(self) -> None: ...


_WAYS = ("the ways to run an agent: provider='claude' with ANTHROPIC_API_KEY (and ANTHROPIC_BASE_URL for another server); provider='openai' with "
         "OPENAI_API_KEY, or kwargs={'base_url': 'http://127.0.0.1:8000/v1'} for a server of your own (vLLM, llama.cpp, Ollama); provider='replay' "
         "with kwargs={'transcript': FILE}, which needs neither key nor network")


def missing_key(name: str) -> AgentError:
    return AgentError(f"{name} is not set, nor is api_key in kwargs; {_WAYS}")


def missing_package(package: str) -> AgentError:
    return AgentError(f"the Python package {package!r} is not installed; the fix: pip install 'carrel[agents]' (or pip install {package})")


def make_provider(name: str, settings: Settings) -> Provider:
    made: Any
    if name == "claude":
        from .claude import Claude as made
    elif name == "openai":
        from .openai import OpenAI as made
    elif name == "replay":
        from .replay import Replay as made
    else:
        raise AgentError(f"there is no provider {name!r}; {_WAYS}")
    if settings.transcript is not None and name != "replay":
        raise AgentError("transcript is for provider='replay', which replays it; the file that a run is written to is kwargs={'record': FILE}")
    provider: Provider = made(settings)
    return provider
