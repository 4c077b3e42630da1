import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

import server as servers  # noqa: E402
from places import place, shared  # noqa: E402, F401

SDK = servers.REPOSITORY / "sdk/python"
sys.path.insert(0, str(SDK))


@pytest.fixture
def carrel(shared):
    from carrel import Carrel
    yield Carrel(shared.url)
    shared.clear()


@pytest.fixture
def box(carrel):
    with carrel.create(memory="128M", name="one") as it:
        yield it


@pytest.fixture
def environment(place):
    """Of a program that has no server but what it starts itself."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CARREL", "XDG_RUNTIME_DIR"))}
    return {**clean, "CARREL_BIN": str(place / "carrel"), "PYTHONPATH": str(SDK)}
