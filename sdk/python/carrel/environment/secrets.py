"""Secrets by the names of environment variables, from the program's environment and its .env file."""
from __future__ import annotations

import os
import sys
from typing import Dict, List, Mapping, Sequence

from ..dotenv import read_dotenv
from .config import warn_user


def _folders() -> List[str]:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [os.getcwd()]
    if main:
        folders.append(os.path.dirname(os.path.abspath(main)))
    return list(dict.fromkeys(folders))


def environment() -> Mapping[str, str]:
    """The program's environment over the .env of the current directory, or that beside the program."""
    for folder in _folders():
        path = os.path.join(folder, ".env")
        if os.path.isfile(path):
            return {**read_dotenv(path), **os.environ}
    return os.environ


def find_secrets(names: Sequence[str]) -> Dict[str, str]:
    """The values that are there; one warning for all that are not."""
    if not names:
        return {}
    known = environment()
    missing = [name for name in names if not known.get(name)]
    if missing:
        warn_user(f"secrets that are neither in the environment nor in .env: {', '.join(missing)}; the sandbox is without")
    return {name: known[name] for name in names if known.get(name)}
