"""Puts the model into the Hugging Face cache (HF_HOME), once.

The init container runs this before the agent starts. A list of the files and their sizes is written last, so that a download that broke
off is never taken for a whole one; the next try goes on where it stopped. Any failure ends with status 1 and the reason.
"""
from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from models import hosted

MODEL_ID = "Salesforce/codegen-350M-mono"

TRIES = 4
# Other frameworks' copies of the same weights.
NOT_NEEDED = ["*.h5", "*.msgpack", "*.onnx", "*.ot", "*.gguf", "flax_model*", "tf_model*", "onnx/*", "coreml/*"]


def home() -> Path:
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def list_path(model: str) -> Path:
    return home() / f".complete--{model.replace('/', '--')}.json"


def is_complete(model: str) -> bool:
    """Whether all files that the list names are there, whole."""
    try:
        files = json.loads(list_path(model).read_text())
        return bool(files) and all(os.path.getsize(path) == size for path, size in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def write_list(model: str, snapshot: str) -> int:
    files = {str(path): path.stat().st_size for path in sorted(Path(snapshot).rglob("*")) if path.is_file()}
    unfinished = list_path(model).with_suffix(".new")
    unfinished.write_text(json.dumps(files, indent=1))
    unfinished.rename(list_path(model))
    return sum(files.values())


def check_room(api, model: str, token: str | None) -> list[str]:
    """Which patterns to leave out; fails if the disk is too small."""
    from fnmatch import fnmatch

    siblings = api.model_info(model, files_metadata=True, token=token).siblings or []
    left_out = list(NOT_NEEDED)
    if any(s.rfilename.endswith(".safetensors") for s in siblings):
        left_out.append("*.bin")
    size = sum(s.size or 0 for s in siblings if not any(fnmatch(s.rfilename, pattern) for pattern in left_out))
    free = shutil.disk_usage(home()).free
    print(f"{model}: {size / 1e6:.0f} MB, {free / 1e6:.0f} MB are free in {home()}", flush=True)
    if size > free:
        raise SystemExit(f"{model} needs {size / 1e6:.0f} MB and {home()} has {free / 1e6:.0f}: give its volume more room")
    return left_out


def download(model: str, token: str | None) -> str:
    from huggingface_hub import HfApi, snapshot_download

    left_out = check_room(HfApi(), model, token)
    for attempt in range(TRIES):
        try:
            return snapshot_download(model, token=token, ignore_patterns=left_out)
        except Exception as e:  # noqa: BLE001: which one a broken connection raises depends on the release
            if refused(e) or attempt == TRIES - 1:
                raise
            print(f"broken off ({e}); going on", flush=True)
            time.sleep(2 ** attempt)
    raise AssertionError("not reached")


def refused(e: Exception) -> bool:
    """Whether the hub said no, so that another try is in vain."""
    response = getattr(e, "response", None)
    return getattr(response, "status_code", None) in (401, 403, 404)


def main() -> int:
    if hosted():
        print(f"a hosted model is used ({os.environ['OPENAI_MODEL']}); nothing is downloaded")
        return 0
    token = os.environ.get("HF_TOKEN") or None
    if token and token.startswith("<"):
        token = None    # the placeholder of deployment.yaml
    if is_complete(MODEL_ID):
        print(f"{MODEL_ID} is in the cache ({home()})")
        return 0
    home().mkdir(parents=True, exist_ok=True)
    try:
        size = write_list(MODEL_ID, download(MODEL_ID, token))
    except Exception as e:  # noqa: BLE001: the reason must be the last line of the container's log
        print(f"cannot download {MODEL_ID}: {' '.join(str(e).split())}", file=sys.stderr)
        return 1
    print(f"{MODEL_ID} is complete: {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
