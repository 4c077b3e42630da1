import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness  # noqa: E402
from folders import tmp_path  # noqa: E402,F401


@pytest.fixture(autouse=True)
def no_box_outlives_its_test():
    yield
    harness.end_started()


def pytest_sessionfinish():
    if harness.world.cache_info().currsize:
        harness.world().close()
        harness.world.cache_clear()
