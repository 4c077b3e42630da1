import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import runner  # noqa: E402


def pytest_generate_tests(metafunc):
    if "caller" in metafunc.fixturenames:
        metafunc.parametrize("caller", runner.callers().values(), ids=runner.callers().keys(), indirect=True)


@pytest.fixture
def caller(request):
    """Somebody who may call carrel; after the test nothing of his boxes is left."""
    who = request.param
    who.baseline = runner.Baseline()
    try:
        yield who
        who.baseline.assert_nothing_left([who.rundir] if not who.is_root else [])
    finally:
        who.baseline.end_started()


@pytest.fixture
def root():
    """The same, for what only root can do or what is the same for everybody."""
    who = next(iter(runner.callers().values()))
    who.baseline = runner.Baseline()
    try:
        yield who
        who.baseline.assert_nothing_left([])
    finally:
        who.baseline.end_started()


def pytest_sessionfinish():
    if runner.world.cache_info().currsize:
        runner.world().close()
