"""For all suites: temporary folders of the run's own; what an ordinary user's server cannot hold is left out where servers are an ordinary user's (CARREL_AS)."""
import os
import pathlib
import shutil
import tempfile

import pytest

from support import BUILD, USER
from support.users import make_user


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """pytest closes the folder that all its runs of a user share to others whenever one begins, also under a test of another run whose boxes and users look into it."""
    if not config.option.basetemp:
        place = tempfile.mkdtemp(prefix="carrel-pytest-")
        os.chmod(place, 0o755)
        config.option.basetemp = place + "/t"
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))


def pytest_collection_modifyitems(config, items):
    if USER:
        out = [i for i in items if i.get_closest_marker("cgroups")]
        config.hook.pytest_deselected(items=out)
        items[:] = [i for i in items if i not in out]


@pytest.fixture(scope="session")
def programs():
    """The programs where every user can run them, and such a user."""
    if os.geteuid() != 0:
        pytest.skip("root is needed to become another user")
    make_user()
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-programs-"))
    place.chmod(0o755)
    for name in ("carrel", "carrel-server"):
        shutil.copy(BUILD / name, place / name)
        (place / name).chmod(0o755)
    yield place
    shutil.rmtree(place)
