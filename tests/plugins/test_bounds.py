"""The bound of skipped tests holds: a suite that skips more fails."""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("n, status", [(2, 0), (3, 1)])
@pytest.mark.parametrize("user", [0, 65534])
def test_more_skips_than_the_bound_fail_the_suite(tmp_path, n, status, user):
    if os.geteuid() != 0 and user == 0:
        user = os.geteuid()
    (tmp_path / "skips").write_text("tried 2 2   # as root, as an ordinary user\n")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/bounds.py").write_text((HERE / "bounds.py").read_text())
    (tmp_path / "test_one.py").write_text(f"import pytest\n@pytest.mark.parametrize('i', range({n}))\ndef test_it(i): pytest.skip('why')\ndef test_other(): pass\n")
    for path in (tmp_path, *tmp_path.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(0o755)
    environment = {**os.environ, "SUITE": "tried", "PYTEST_PLUGINS": "bounds", "PYTHONPATH": str(tmp_path / "plugins"), "PYTHONDONTWRITEBYTECODE": "1"}
    r = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True, timeout=120,
                       user=user if os.geteuid() == 0 and user else None)
    assert r.returncode == status, r.stdout
    assert ("at most 2 may be" in r.stdout) == bool(status) and ("why" in r.stdout) == bool(status)


def test_every_suite_of_make_test_has_a_bound():
    suites = os.environ["TEST_TARGETS"].split()
    table = {line.split()[0] for line in (HERE.parent / "skips").read_text().splitlines() if line.strip() and not line.startswith("#")}
    assert set(suites) <= table, sorted(set(suites) - table)
