import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness  # noqa: E402
from support.boxes import no_box_outlives_its_test, tmp_path  # noqa: E402,F401


def pytest_sessionfinish():
    if harness.world.cache_info().currsize:
        harness.world().close()
        harness.world.cache_clear()
