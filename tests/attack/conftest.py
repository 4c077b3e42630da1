import os
import pathlib
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness  # noqa: E402


@pytest.fixture(autouse=True)
def no_box_outlives_its_test():
    yield
    harness.end_started()


@pytest.fixture
def tmp_path():
    """Not below pytest's own folder: another pytest that starts closes that for other users."""
    with tempfile.TemporaryDirectory(prefix="carrel-attack-", ignore_cleanup_errors=True) as above:
        os.chmod(above, 0o755)
        path = pathlib.Path(above, "folder")
        path.mkdir()
        yield path


def pytest_sessionfinish():
    if harness.world.cache_info().currsize:
        harness.world().close()
        harness.world.cache_clear()
