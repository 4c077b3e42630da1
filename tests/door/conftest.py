"""A server with one door more (bell.c), linked in by one line of doors.c."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", HERE.parents[1] / "build"))
sys.path[:0] = [str(HERE.parent / "cli")]

import server as servers  # noqa: E402


@pytest.fixture
def make_server():
    running = []

    def make(*options):
        running.append(servers.Server(BUILD / "door", options=options))
        return running[-1]

    yield make
    for server in running:
        server.end()


@pytest.fixture
def server(make_server):
    return make_server()
