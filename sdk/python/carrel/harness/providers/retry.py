"""Retries of requests that were refused for now or broke off in the middle. The libraries retry a 429 themselves, but no broken stream."""
from __future__ import annotations

import asyncio
import random
from typing import Any, Awaitable, Callable, TypeVar

from . import ProviderFailed

T = TypeVar("T")
_FIRST, _LONGEST = 0.5, 30.0
_AGAIN = (408, 409, 429, 500, 502, 503, 504, 529)
_AGAIN_IN_STREAM = ("overloaded_error", "api_error", "rate_limit_error", "timeout_error")
_NOTHING = "what it sent is no answer of a model"


def _told(error: BaseException, key: str) -> str:
    """The provider's "type" and "message" of its error; empty if there are none."""
    body: Any = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    return str(inner.get(key) or "") if isinstance(inner, dict) else ""


def _words(error: BaseException) -> str:
    return _told(error, "message") or str(error) or _NOTHING


def _refusal(error: BaseException) -> str | None:
    """The name of a permanent refusal. An error within a stream comes after the status 200; only its type identifies it."""
    status = getattr(error, "status_code", None)
    if status == 200:
        kind = _told(error, "type")
        return kind if kind and kind not in _AGAIN_IN_STREAM else None
    return str(status) if status is not None and status not in _AGAIN else None


def _wait_of(error: BaseException, attempt: int) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        told = float(headers["retry-after"])
    except (KeyError, TypeError, ValueError):
        told = _FIRST * 2 ** attempt * (0.75 + random.random() / 2)
    return max(0.0, min(told, _LONGEST))


async def asking(ask: Callable[[], Awaitable[T]], tries: int, where: str) -> T:
    """The answer. A refusal that stays is ProviderFailed, with the provider's own words."""
    attempt = 0
    while True:
        try:
            return await ask()
        except ProviderFailed:
            raise
        except Exception as e:      # which classes a broken connection raises depends on the library's version
            if isinstance(e, (TypeError, AttributeError, LookupError)):     # the library, or we, misread something
                raise ProviderFailed(f"{where}: {_NOTHING} ({type(e).__name__}: {e}); check the provider and its address") from e
            refusal = _refusal(e)
            if refusal:
                hint = "; check the key" if refusal in ("401", "403") else "; check the model's name" if refusal == "404" else ""
                failed = ProviderFailed(f"{where} refused the request ({refusal}): {_words(e)}{hint}")
                failed.refusal = refusal
                raise failed from e
            if attempt >= tries:
                tries_made = "one try" if attempt == 0 else f"{attempt + 1} tries"
                raise ProviderFailed(f"{where} gave no answer in {tries_made}: {_words(e)}; check the provider and its address") from e
            await asyncio.sleep(_wait_of(e, attempt))
            attempt += 1
