import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import server as servers  # noqa: E402
from places import place, shared  # noqa: E402, F401


@pytest.fixture
def server(shared):
    """A root server without boxes."""
    yield shared
    shared.clear()


@pytest.fixture
def make_server(place):
    """A server with options of its own."""
    made = []

    def make(*options, user=None):
        made.append(servers.Server(place, user, options))
        return made[-1]

    yield make
    for it in made:
        it.end()


@pytest.fixture
def box(server):
    made = server.carrel("create", *([] if server.user else ["--memory", "128M"]), "--name", "one")
    assert made.returncode == 0, made.stderr
    return "one"
