"""What the tests of the command line and those of the SDK stand on."""
import os
import shutil

import pytest

import server as servers


@pytest.fixture(scope="session")
def place():
    if os.geteuid() != 0:
        pytest.skip("these tests need root: they act as several users")
    servers.make_user()
    where = servers.programs()
    yield where
    shutil.rmtree(where)


@pytest.fixture(scope="session")
def shared(place):
    it = servers.Server(place, os.environ.get("CARREL_AS"))     # an ordinary user's server, which root may use as well
    yield it
    it.end()
