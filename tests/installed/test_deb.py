"""The Debian package: what is in it runs where it lies, and its units name programs that are in it."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from support import BUILD, IS_LONG, REPOSITORY
from support.users import ORDINARY, make_user


def make_deb(place):
    place.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "CARREL"))} | {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run([REPOSITORY / "tools/make-deb", "--version", "0.0.1", "--programs", BUILD / "wheel/bin", "--out", place, "--", "make",
                           "--no-print-directory", "install", f"BUILD={BUILD}", "PREFIX=/usr", "APPARMOR=no"],
                          capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    return place / "carrel_0.0.1_amd64.deb"


@pytest.fixture(scope="module")
def place():
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-deb-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def deb(place):
    return make_deb(place / "one")


@pytest.fixture(scope="module")
def root(place, deb):
    subprocess.run(["dpkg-deb", "-x", deb, place / "root"], check=True, timeout=60)
    return place / "root"


def test_its_programs_run_for_an_ordinary_user(root):
    if os.geteuid() == 0:
        make_user()
    as_user = ["runuser", "-u", ORDINARY, "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*as_user, root / "usr/bin/carrel", "run", "--", "echo", "hi"], capture_output=True, text=True, timeout=60, cwd="/")
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


def test_its_units_name_programs_that_are_in_it(root):
    units = sorted((root / "usr/lib/systemd/system").glob("*.service"))
    assert len(units) >= 3
    for unit in units:
        assert "/usr/local" not in unit.read_text()
        for program in re.findall(r"^Exec\w+=[+]?(/usr/(?:bin|libexec)/carrel\S*)", unit.read_text(), re.MULTILINE):
            assert os.access(root / program[1:], os.X_OK), f"{unit.name}: {program}"


if IS_LONG:
    def test_the_same_input_gives_the_same_package(place, deb):
        assert make_deb(place / "two").read_bytes() == deb.read_bytes()
