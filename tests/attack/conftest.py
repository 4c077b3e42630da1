import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness  # noqa: E402


def pytest_sessionfinish():
    if harness.world.cache_info().currsize:
        harness.world().close()
