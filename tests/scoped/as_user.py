"""Runs pytest with the given words as an ordinary user, in an environment and a home of its own."""
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
    line = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    if os.geteuid() == 0:
        make_user()
        shutil.chown(home, ORDINARY)
        environment = {"HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin", "CARREL_BUILD": os.environ["CARREL_BUILD"], "CARREL_LONG": "1"}
        line = ["/usr/sbin/runuser", "-u", ORDINARY, "--", "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in environment.items()), *line]
    try:
        return subprocess.run(line, check=False).returncode
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
