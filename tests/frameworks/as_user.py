"""Runs pytest with the given words as an ordinary user, in a home of its own; the whole cut."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.users import ORDINARY, make_user  # noqa: E402


def main(words):
    home = tempfile.mkdtemp(prefix="carrel-user-", dir="/var/tmp")
    line = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W",
            "ignore::pytest.PytestDeprecationWarning", *words]
    if os.geteuid() == 0:
        make_user()
        shutil.chown(home, ORDINARY)
        kept = {k: os.environ[k] for k in ("CARREL_BUILD", "CARREL_EXAMPLES")}
        environment = {"HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin", "CARREL_LONG": "1", **kept}
        line = [
            "/usr/sbin/runuser", "-u", ORDINARY, "--", "/usr/bin/env", "-i",
            *(f"{k}={v}" for k, v in environment.items()), *line
        ]
    try:
        return subprocess.run(line, check=False).returncode
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
