"""A server with one door more (bell.c), linked in by one line of doors.c."""
import pytest

from support import BUILD
from support.server import Server


@pytest.fixture
def make_server():
    running = []

    def make(*options):
        running.append(Server(*options, place=BUILD / "door"))
        return running[-1]

    yield make
    for server in running:
        server.stop()


@pytest.fixture
def server(make_server):
    return make_server()
