"""A transcript that is played again: the model's answers come from a file, the tools run for real."""
from __future__ import annotations

import json
import os
from typing import Dict, List

from ..messages import AgentError, Raw, block_of
from ..settings import Settings
from . import Say, Turn


def read_transcript(path: str | os.PathLike[str]) -> List[Raw]:
    """The messages of a file: one JSON object per line."""
    messages = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    message = json.loads(line)
                except ValueError as e:
                    raise AgentError(f"{os.fspath(path)}, line {number}: not a message in JSON ({e})") from None
                if not isinstance(message, dict) or "type" not in message:
                    raise AgentError(f"{os.fspath(path)}, line {number}: a message has a type")
                messages.append(message)
    except OSError as e:
        raise AgentError(f"cannot read the transcript {os.fspath(path)}: {e.strerror}") from e
    return messages


class Replay:
    def __init__(self, settings: Settings):
        if settings.transcript is None:
            raise AgentError("provider='replay' needs kwargs={'transcript': FILE}; a run writes one with kwargs={'record': FILE}")
        self._path = os.fspath(settings.transcript)
        self._answers = [m["message"] for m in read_transcript(self._path) if m["type"] == "assistant" and isinstance(m.get("message"), dict)]
        if not self._answers:
            raise AgentError(f"{self._path} has no message of type assistant, so there is nothing to replay")
        self._next = 0
        self.model = settings.model or str(self._answers[0].get("model") or "replay")

    async def turn(self, system: str, messages: List[Raw], tools: List[Raw], say: Say) -> Turn:
        if self._next == len(self._answers):
            raise AgentError(f"{self._path} has {len(self._answers)} answers, and the run wants another one")
        answer: Dict[str, object] = self._answers[self._next]
        self._next += 1
        blocks = answer.get("content")
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not isinstance(blocks, list) or not all(isinstance(b, dict) for b in blocks):
            raise AgentError(f"{self._path}: answer {self._next} has no list of blocks as its content")
        content = [block_of(b) for b in blocks]
        for block in content:
            if getattr(block, "text", ""):
                say(getattr(block, "text"))
        uses = any(b.type == "tool_use" for b in content)
        usage = answer.get("usage")
        return Turn(content, "tool_use" if uses else "end_turn", usage if isinstance(usage, dict) else {}, self.model)

    async def aclose(self) -> None:
        pass
