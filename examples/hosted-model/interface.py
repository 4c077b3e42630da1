"""Runs in the sandbox: asks a hosted model. The variable of the key has a placeholder here; the broker puts the value in, outside of the box."""
import json
import os
import urllib.request

BASE_URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")


@expose  # noqa: F821 (it is there in an interface file)
def ask(question: str) -> str:
    """The model's answer to a question."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": question}]}).encode()
    fields = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{BASE_URL}/chat/completions", body, fields), timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
