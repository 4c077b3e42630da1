"""The world outside of the boxes, one for all tests."""

import os
import shutil

import pytest
from outside import World


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    if os.geteuid() != 0 or not shutil.which("dnsmasq"):
        pytest.skip("needs root and dnsmasq")
    folder = tmp_path_factory.mktemp("egress")
    folder.chmod(0o755)
    made = World(folder)
    yield made
    made.close()
