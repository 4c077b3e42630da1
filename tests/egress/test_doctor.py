"""`carrel doctor --net`: tries the walls from boxes, reports the results, and fails if one does not hold."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest
from support.users import make_user, user_command

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", "build"))


def doctor(*words, user=None, place=BUILD):
    return subprocess.run([*map(str, user_command(user)), str(place / "carrel"), "doctor", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("as_user", [False, True], ids=["root", "user"])
def test_the_walls_hold_and_each_is_named(as_user):
    ended = doctor("--net", user=make_user().pw_name if as_user else None)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rule, _, rest = ended.stdout.partition("a box without rules")
    assert rule.startswith("a box with --allow doctor.localhost:") and "(hold: " in rule
    rest = rest.partition("The walls of the network hold here.")[0]
    states = [line.split()[0] for line in (rule + rest).splitlines() if line.startswith("  ")]
    assert len(states) >= 12 and set(states) == {"ok"}
    assert rule.count(" reached; ") == 1 and " reached; " not in rest
    assert "[::1]:" in rule and "[fd00:ec2::254]:80" in rule
    assert "other.localhost" in rule and "169.254.169.254:80" in rule and "UDP" in rule


def test_programs_read_the_same():
    told = json.loads(doctor("--net", "--json").stdout)
    assert told["holds"] and told["network"].startswith("hold: ")
    assert [t["target"].split(":")[1] for t in told["trials"] if t["must_reach"]] == ["doctor.localhost"]
    assert all(t["holds"] for t in told["trials"])


@pytest.fixture
def installed(tmp_path):
    """A copy of carrel, with another program in the place of carrel-egress."""
    tmp_path.chmod(0o755)
    shutil.copy(BUILD / "carrel", tmp_path)

    def put(text):
        if text is not None:
            (tmp_path / "carrel-egress").write_text(text)
            (tmp_path / "carrel-egress").chmod(0o755)
        return tmp_path
    return put


def test_an_egress_that_does_not_work_is_a_failure(installed):
    ended = doctor("--net", place=installed("#!/bin/sh\nexit 1\n"))
    assert ended.returncode == 1
    assert "NOT hold" in ended.stdout or "cannot be tried" in ended.stderr, ended


def test_without_egress_it_says_what_is_missing(installed):
    place = installed(None)
    ended = doctor("--net", place=place)
    assert ended.returncode == 1 and "carrel-egress is not installed beside this program" in ended.stderr
    row = next(r for r in json.loads(doctor("--json", place=place).stdout)["checks"] if r["name"] == "network by rules")
    assert row["state"] == "limited" and "carrel-egress" in row["found"] and "--allow" in row["costs"]


def test_the_doctor_says_which_way_holds():
    row = next(r for r in json.loads(doctor("--json").stdout)["checks"] if r["name"] == "network by rules")
    assert row["state"] == "ok" and row["found"].startswith("hold: ")
