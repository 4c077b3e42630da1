"""The command `carrel` of an installed package: the program that it carries, or the one on this machine."""
from __future__ import annotations

import importlib.util
import os
import sys
from typing import NoReturn

from . import local
from .errors import Unavailable


def main() -> NoReturn:
    # Kernels use the environment that this package is installed in, if it has the required packages.
    if sys.executable and importlib.util.find_spec("ipykernel"):
        os.environ.setdefault("CARREL_PYTHON", os.path.abspath(sys.executable))
    try:
        program, guest = local.find_binary(), local.find_guest()
    except Unavailable as e:
        sys.exit(f"carrel: {e}")
    if guest:
        os.environ.setdefault("CARREL_GUEST", guest)
    os.execv(program, ["carrel", *sys.argv[1:]])


if __name__ == "__main__":
    main()
