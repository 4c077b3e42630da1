import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

import server as servers  # noqa: E402

SDK = servers.REPOSITORY / "sdk/python"
sys.path.insert(0, str(SDK))


@pytest.fixture(scope="session")
def place():
    if os.geteuid() != 0:
        pytest.skip("these tests need root: they act as several users")
    if subprocess.run(["id", servers.USER], capture_output=True).returncode:
        subprocess.run(["useradd", "--create-home", servers.USER], check=True)
    where = servers.programs()
    yield where
    shutil.rmtree(where)


@pytest.fixture(scope="session")
def shared(place):
    it = servers.Server(place)
    yield it
    it.end()


@pytest.fixture
def carrel(shared):
    from carrel import Carrel
    yield Carrel(shared.url)
    shared.clear()


@pytest.fixture
def box(carrel):
    with carrel.create(memory="128M", name="one") as it:
        yield it


@pytest.fixture
def environment(place):
    """Of a program that has no server but what it starts itself."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CARREL", "XDG_RUNTIME_DIR"))}
    return {**clean, "CARREL_BIN": str(place / "carrel"), "PYTHONPATH": str(SDK)}
