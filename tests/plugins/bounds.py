"""A plugin for all suites: skipped tests are counted, and more than the suite's bound (tests/skips) fail it.

A test that is skipped where it was meant to run proves nothing, and such counts are easily overlooked. SUITE is the make target; without it nothing is bounded."""
import os
import pathlib

import pytest

# What tests start is not to see how they were started.
SUITE = os.environ.pop("SUITE", "")
for name in ("PYTHONPATH", "PYTEST_PLUGINS"):
    os.environ.pop(name, None)
TABLE = pathlib.Path(__file__).resolve().parents[1] / "skips"


def read_bound(suite, is_root, table=TABLE):
    """Of a suite: a number, or None if it has none."""
    for line in table.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words and words[0] == suite:
            bound = words[1 if is_root else 2]
            return None if bound == "-" else int(bound)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    bound = read_bound(SUITE, os.geteuid() == 0)
    if bound is None or reporter is None or session.config.option.keyword or session.config.option.collectonly:
        return
    skipped = reporter.stats.get("skipped", [])
    if len(skipped) > bound and exitstatus == 0:
        session.exitstatus = 1
        reporter.write_line(f"\n{SUITE}: {len(skipped)} skipped, and at most {bound} may be (tests/skips):", red=True)
        for report in skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            reporter.write_line(f"  {report.nodeid}: {reason}")
