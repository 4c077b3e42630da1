import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import ways  # noqa: E402

os.umask(0o022)           # boxes read what is made here


@pytest.fixture(scope="session")
def family():
    """One zygote for all."""
    boxes = ways.boxes()
    yield boxes
    boxes.close()


@pytest.fixture(scope="module", params=["new", "old", "box"])
def kernel(request):
    """A kernel of each kind, shared by the tests of a file: they leave it as a cell leaves it."""
    family = request.getfixturevalue("family") if request.param == "box" else None
    with ways.kernel(request.param, family) as k:
        k.way = request.param
        yield k


@pytest.fixture
def fresh():
    """A plain kernel of one's own, for tests that end it."""
    kernels = []

    def make(**more):
        k = ways.plain(**more)
        kernels.append(k)
        return k

    yield make
    for k in kernels:
        k.close()
