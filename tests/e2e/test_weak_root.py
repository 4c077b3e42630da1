"""Root without a capability that a keeper needs, as in many containers: boxes are made as an ordinary user makes them, and nothing hangs or stays."""
import os
import subprocess

import pytest

from support.boxes import started
from runner import DEADLINE, world

NEEDED = ("sys_admin", "setuid", "setgid", "setpcap", "kill", "chown", "dac_override", "mknod", "sys_ptrace")

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="gives up capabilities of root")


def without(capability, who, *words):
    command = ["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}", world().carrel, *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=who.environment)
    started.append(process)
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out, err


@pytest.mark.parametrize("capability", NEEDED)
def test_a_box_can_be_made_without_it_and_ends(root, capability):
    status, out, err = without(capability, root, "run", "--", "/bin/sh", "-c", "sleep 1000 & grep CapEff /proc/self/status")
    assert (status, out.split(), err) == (0, ["CapEff:", "0" * 16], "")


@pytest.mark.parametrize("capability", NEEDED)
def test_the_doctor_names_it_and_says_that_boxes_can_be_made(root, capability):
    status, out, err = without(capability, root, "doctor")
    assert status == 0, out + err
    assert f"root without CAP_{capability.upper()}" in out


def test_the_doctor_needs_no_more_than_a_box(root):
    status, out, err = without("setfcap", root, "run", "--", "true")
    assert (status, err) == (0, "")
    status, out, err = without("setfcap", root, "doctor")
    assert status == 0, out + err
