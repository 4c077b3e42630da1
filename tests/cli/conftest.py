import pytest

from support import USER
from support.server import Server
from support.users import ORDINARY


@pytest.fixture(scope="session")
def place(programs):
    return programs


@pytest.fixture(scope="session")
def shared(place):
    it = Server(place=place, program="carrel")      # with CARREL_AS an ordinary user's, which root may use as well
    yield it
    it.stop()


@pytest.fixture(scope="session")
def kept(shared):
    """A volume of that name for each user: what makes `carrel run` the server's."""
    for user in (None, ORDINARY):
        made = shared.carrel("volume", "create", "kept", "--size", "16M", user=user)
        assert made.returncode == 0 or "exists" in made.stderr or "already" in made.stderr, made.stderr


@pytest.fixture
def server(shared):
    """A root server without boxes."""
    yield shared
    shared.clear()


@pytest.fixture
def make_server(place):
    """A server with options of its own."""
    made = []

    def make(*options, user=None, **more):
        made.append(Server(*options, user=user, place=place, program="carrel", **more))
        return made[-1]

    yield make
    for it in made:
        it.stop()


@pytest.fixture
def box(server):
    made = server.carrel("create", *([] if USER else ["--memory", "128M"]), "--name", "one")
    assert made.returncode == 0, made.stderr
    return "one"
