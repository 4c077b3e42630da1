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


def values(item):
    return {str(value) for value in getattr(getattr(item, "callspec", None), "params", {}).values()}


def missing(items):
    """Tests that need an interpreter that this machine, or this user, does not have: one for each says so, the others are left out."""
    out = []
    for version, folder in ways.IMMORTAL.items():
        if not os.access(ways.python(version), os.X_OK):
            first, *others = [i for i in items if version in values(i)] or [None]
            if first is not None:
                first.add_marker(pytest.mark.skip(reason="there is no Python %s that this user can run: %s, and %d tests more" % (version, folder, len(others))))
            out += others
    return out


def pytest_collection_modifyitems(config, items):
    """The oldest ipykernel and a second interpreter are for `make proof`."""
    out = missing(items)
    if os.environ.get("CARREL_LONG") != "1":
        out += [i for i in items if i not in out and (getattr(i.cls, "way", None) == "old" or values(i) & {"old", "3.13"})]
    config.hook.pytest_deselected(items=out)
    items[:] = [i for i in items if i not in out]
