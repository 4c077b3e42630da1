import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import runner  # noqa: E402
from support.boxes import Baseline, end_started  # noqa: E402


def pytest_generate_tests(metafunc):
    if "caller" in metafunc.fixturenames:
        metafunc.parametrize("caller", runner.callers().values(), ids=runner.callers().keys(), indirect=True)


def watched(who, rundirs):
    """Runs a test; then what it left running is ended, and nothing of any box is left."""
    who.baseline = Baseline()
    try:
        yield who
    finally:
        pids = end_started()
    who.baseline.assert_nothing_left(*pids)
    for rundir in rundirs:
        strange = [name for name in os.listdir(rundir) if name != "ids"] if os.path.isdir(rundir) else []
        assert not strange, f"files are left in {rundir}: {strange}"


@pytest.fixture
def caller(request):
    """A caller of carrel."""
    who = request.param
    yield from watched(who, [] if who.is_root else [who.rundir])


@pytest.fixture
def root():
    """One caller, root if possible, for what is the same for everybody."""
    yield from watched(next(iter(runner.callers().values())), [])


def pytest_sessionfinish():
    if runner.world.cache_info().currsize:
        runner.world().close()
