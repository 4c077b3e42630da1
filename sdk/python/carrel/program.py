"""The command `carrel` of an installed package: the program that it carries, or the one on this machine."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import local
from .errors import Unavailable


def main() -> NoReturn:
    guest = local.find_guest()
    if guest:
        os.environ.setdefault("CARREL_GUEST", guest)
    try:
        program = local.find_binary()
    except Unavailable as e:
        sys.exit(f"carrel: {e}")
    os.execv(program, ["carrel", *sys.argv[1:]])


if __name__ == "__main__":
    main()
