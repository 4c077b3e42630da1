"""The ways to get a kernel: `new` and `old` plainly, with ipykernel 7 and 6; `box` forked from a zygote into a box; `cold` executed in one."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import Dict, Iterator, List, Optional, Sequence

from client import Boxes, BoxKernel, Kernel

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", REPOSITORY / "build")).resolve()
GUEST = BUILD / "guest"
PROGRAM = str(GUEST / "carrel_kernel")
VENV = {"new": BUILD / "venv-kernel", "old": BUILD / "venv-kernel-old"}
IMMORTAL = {"3.12": BUILD / "venv-kernel-3.12", "3.13": BUILD / "venv-kernel-3.13"}      # where this machine has them
DRIVER = str(BUILD / "tests/guest_driver")
IMPORTS = "IPython,numpy,pandas,matplotlib"
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def environment(way: str) -> pathlib.Path:
    return {**VENV, **IMMORTAL}[way]


def python(way: str = "new") -> str:
    return str(environment(way) / "bin/python")


def base(way: str) -> List[str]:
    """The folder of an environment's interpreter, if a box does not have it anyway."""
    folder = pathlib.Path(python(way)).resolve().parents[1]
    return [] if folder.is_relative_to("/usr") else [str(folder)]


def plain(way: str = "new", arguments: Sequence[str] = (), env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None) -> Kernel:
    """With a home of its own, in which libraries keep what they like."""
    home = tempfile.mkdtemp(prefix="carrel-home-")
    k = Kernel([python(way), "-B", PROGRAM, "kernel", *arguments], env=dict(ENV, HOME=home, **(env or {})), cwd=cwd)
    k.home = home
    return k


def boxes(imports: str = IMPORTS, arguments: Sequence[str] = (), layers: Sequence[str] = (), way: str = "new",
          profile: str = "standard") -> Boxes:
    everything: List[str] = [str(environment(way)), str(GUEST), *base(way), *layers]
    return Boxes(DRIVER, everything, [python(way), "-B", PROGRAM, "zygote", "--imports", imports, *arguments], profile=profile)


def cold(family: Boxes, way: str = "new") -> BoxKernel:
    return BoxKernel(family, argv=[python(way), "-B", PROGRAM, "kernel"])


@contextlib.contextmanager
def kernel(way: str, family: Optional[Boxes] = None, slot: Optional[int] = None) -> Iterator[Kernel]:
    if way in VENV:
        k = plain(way)
        try:
            yield k
        finally:
            k.close()
        return
    own = family is None
    family = boxes(imports="IPython") if family is None else family
    try:
        k = cold(family) if way == "cold" else BoxKernel(family, slot)
        try:
            yield k
        finally:
            k.close()
    finally:
        if own:
            family.close()
