import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from traces import Server, become_reaper, make_box  # noqa: E402


def pytest_configure():
    become_reaper()


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the server of these tests runs as root"))


@pytest.fixture(scope="session")
def server():
    """One server for the tests that do not harm it."""
    s = Server("--set", "limits.memory=8G")
    yield s
    s.stop()


@pytest.fixture(scope="session")
def alice(server):
    return server.token("alice")


@pytest.fixture(scope="session")
def bob(server):
    return server.token("bob")


@pytest.fixture
def new_box(alice):
    """Makes boxes for alice (or the given owner) that are deleted after the test; their paths."""
    made = []

    def new(client=alice, **body):
        made.append((client, make_box(client, **body)))
        return made[-1][1]
    yield new
    for client, path in made:
        client.delete(path)


@pytest.fixture
def box(new_box):
    return new_box()
