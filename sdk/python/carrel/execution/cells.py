"""The output of a cell or a command, as blocks of text and images for an agent."""
from __future__ import annotations

import base64
from typing import Any, Dict, List

from ..cells import Result
from ..client import ExecResult
from ..errors import plain

Raw = Dict[str, Any]


def result_content(result: Result) -> List[Raw]:
    parts = [plain(result.stdout), plain(result.stderr)]
    images: List[Raw] = []
    for output in result.results:
        png = output.png
        if png is not None:
            images.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}})
        elif output.text:
            parts.append(plain(output.text))
    if result.error is not None:
        parts.append(plain("\n".join(result.error.traceback)) or str(result.error))
    if result.outcome not in ("ok", "error"):
        parts.append(f"[{result.outcome}: {result.reason}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    return [*([{"type": "text", "text": text}] if text else []), *images]


def command_content(done: ExecResult) -> List[Raw]:
    parts = [plain(done.shown("stdout")), plain(done.shown("stderr"))]
    if not done.ok:
        parts.append(f"[{done.reason}; exit status {done.exit_code}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    return [{"type": "text", "text": text}] if text else []
