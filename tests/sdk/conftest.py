import os
import sys

import pytest

from support import SDK
from support.server import Server, limits

sys.path.insert(0, str(SDK))


@pytest.fixture(scope="session")
def place(programs):
    return programs


@pytest.fixture(scope="session")
def shared(place):
    it = Server(place=place)
    yield it
    it.stop()


@pytest.fixture
def carrel(shared):
    from carrel import Carrel
    yield Carrel(shared.url)
    shared.clear()


@pytest.fixture
def box(carrel):
    with carrel.create(name="one", **limits(memory="128M")) as it:
        yield it


@pytest.fixture
def environment(place):
    """Of a program that has no server but what it starts itself."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CARREL", "XDG_RUNTIME_DIR"))}
    return {**clean, "CARREL_BIN": str(place / "carrel"), "PYTHONPATH": str(SDK)}
