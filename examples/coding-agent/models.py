"""The language models that the agent can ask: one on this machine, or one behind an OpenAI-compatible API."""
from __future__ import annotations

import os
import re
from typing import Mapping, Optional, Protocol

NEW_TOKENS = 256


class Model(Protocol):
    name: str

    def complete(self, prompt: str) -> str: ...


class ModelUnavailable(Exception):
    """The model cannot be asked; the message says what to do."""


class LocalModel:
    """A model that download_model.py has put into the Hugging Face cache; nothing is fetched here."""

    def __init__(self, name: str, token: Optional[str] = None):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.name = name
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name, token=token, local_files_only=True)
            self._model = AutoModelForCausalLM.from_pretrained(name, token=token, local_files_only=True)
        except OSError as e:
            raise ModelUnavailable(f"{name} is not in the cache ({os.environ.get('HF_HOME', '~/.cache/huggingface')}): "
                                   f"run download_model.py first ({str(e).splitlines()[0]})") from e
        self._model.eval()
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token

    def complete(self, prompt: str) -> str:
        import torch

        # What is too long for the model loses its beginning: the end of a prompt says what is wanted.
        room = getattr(self._model.config, "max_position_embeddings", None) or getattr(self._model.config, "n_positions", 2048)
        self._tokenizer.truncation_side = "left"
        tokens = self._tokenizer(prompt, return_tensors="pt", truncation=True, max_length=max(1, room - NEW_TOKENS))
        tokens.pop("token_type_ids", None)
        with torch.no_grad():
            made = self._model.generate(**tokens, max_new_tokens=NEW_TOKENS, do_sample=True, temperature=0.2, top_p=0.95,
                                        repetition_penalty=1.1, pad_token_id=self._tokenizer.pad_token_id)
        return self._tokenizer.decode(made[0][tokens["input_ids"].shape[1]:], skip_special_tokens=True)


class HostedModel:
    """Any server with chat completions: a provider, vLLM, llama.cpp, Ollama."""

    def __init__(self, name: str, base_url: Optional[str], key: Optional[str]):
        import openai

        self.name = name
        self._openai = openai
        self._client = openai.OpenAI(base_url=base_url or None, api_key=key or "none")

    def complete(self, prompt: str) -> str:
        try:
            answer = self._client.chat.completions.create(
                model=self.name, messages=[{"role": "user", "content": prompt}], max_tokens=4 * NEW_TOKENS, temperature=0.2)
        except self._openai.OpenAIError as e:
            raise ModelUnavailable(f"{self.name} at {self._client.base_url} does not answer: {e}") from e
        if not answer.choices or not answer.choices[0].message.content:
            raise ModelUnavailable(f"{self.name} at {self._client.base_url} answered nothing")
        return answer.choices[0].message.content


def hosted(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(environ.get("OPENAI_MODEL"))


def open_model(name: str, token: Optional[str] = None, environ: Mapping[str, str] = os.environ) -> Model:
    """The hosted model if OPENAI_MODEL names one, else the local one."""
    if hosted(environ):
        return HostedModel(environ["OPENAI_MODEL"], environ.get("OPENAI_BASE_URL"), environ.get("OPENAI_API_KEY"))
    return LocalModel(name, token)


FENCE = re.compile(r"```[A-Za-z0-9_+-]*\s*\n(.*?)(?:\n```|\Z)", re.DOTALL)
PROSE = re.compile(r"^(Note|Explanation|Output|This code|The code|Here is|Here's)\b.*", re.IGNORECASE)
REPEATS = 4


def code_of(answer: str) -> str:
    """The Python of an answer: without fences and prose, and without the line that a small model repeats until its tokens are spent."""
    fenced = FENCE.search(answer)
    lines = (fenced.group(1) if fenced else answer).splitlines()
    kept: list[str] = []
    for line in lines:
        if not fenced and PROSE.match(line):
            if kept:
                break
            continue
        kept.append(line.rstrip())
        if len(kept) >= REPEATS and line.strip() and len({text for text in kept[-REPEATS:]}) == 1:
            del kept[-REPEATS + 1:]
            break
    return "\n".join(kept).strip("\n") + "\n"
