"""The world of egress's tests, with an upstream whose authority this host trusts."""

import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "egress"))

from keys import Upstream  # noqa: E402
from outside import CARREL, World  # noqa: E402


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    if os.geteuid() != 0 or not shutil.which("dnsmasq"):
        pytest.skip("needs root and dnsmasq")
    folder = tmp_path_factory.mktemp("broker")
    folder.chmod(0o755)
    made = World(folder)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared_programs(programs):
    """The programs where an ordinary user runs them."""
    for name in ("carrel-egress", "carrel-broker"):
        shutil.copy(pathlib.Path(CARREL).parent / name, programs / name)
    return programs


@pytest.fixture(scope="session")
def upstream(world):
    made = Upstream(world)
    yield made
    made.close()


@pytest.fixture(scope="session")
def checked(upstream, tmp_path_factory):
    """A carrel whose broker is built with sanitizers: what they say is on its standard error."""
    asan = os.environ.get("CARREL_BROKER_ASAN", "build/broker/carrel-broker")
    folder = tmp_path_factory.mktemp("checked")
    for name in ("carrel", "carrel-egress"):
        shutil.copy(pathlib.Path(CARREL).parent / name, folder / name)
    shutil.copy(asan, folder / "carrel-broker")
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    return folder / "carrel"
