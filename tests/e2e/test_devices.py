"""Devices by CDI, with a specification of harmless ones: /dev/null and /dev/zero under other names, a variable, a read-only mount."""
import os
import pathlib
import re

import pytest

from runner import assert_refused

KIND = "carrel-e2e.test/thing"
SPECIFICATION = """
cdiVersion: 0.6.0
kind: carrel-e2e.test/thing
containerEdits:
  env: [THINGS=all of them]
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/things/nothing
      hostPath: /dev/null
      type: c
      major: 1
      minor: 3
      permissions: rw
    - path: /dev/zeros
      hostPath: /dev/zero
    env: [THING=0]
    mounts:
    - hostPath: /etc/cdi
      containerPath: /opt/things
      options: [ro, nosuid, bind]
- name: closed
  containerEdits: {deviceNodes: [{path: /dev/closed, hostPath: /dev/kmsg}]}
- name: readable
  containerEdits: {deviceNodes: [{path: /dev/readable, hostPath: /dev/full, permissions: r}]}
- name: number
  containerEdits: {deviceNodes: [{path: /dev/number, hostPath: /dev/zero, major: 1, minor: 3}]}
- name: file
  containerEdits: {deviceNodes: [{path: /dev/file, hostPath: /etc/hostname}]}
- name: taken
  containerEdits: {deviceNodes: [{path: /dev/null, hostPath: /dev/zero}]}
- name: hooked
  containerEdits: {hooks: [{hookName: createContainer, path: /usr/bin/false}]}
"""


@pytest.fixture(autouse=True)
def specification():
    folder = pathlib.Path("/etc/cdi")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    path = folder / f"carrel-e2e-{os.getpid()}.yaml"
    path.write_text(SPECIFICATION)
    yield path
    path.unlink(missing_ok=True)
    if made:
        try:
            folder.rmdir()
        except OSError:
            pass    # another process has put something there


def test_nodes_mounts_and_variables_of_a_device_are_there(caller):
    result = caller.sh("stat -c '%n %t:%T %a' /dev/things/nothing /dev/zeros; echo x >/dev/things/nothing && head -c 3 /dev/zeros | od -An -tx1; "
                       "echo \"$THING $THINGS\"; ls /opt/things; touch /opt/things/new 2>&1", "--device", KIND + "=0")
    lines = result.text.splitlines()
    assert lines[:2] == ["/dev/things/nothing 1:3 666", "/dev/zeros 1:5 666"], result
    assert lines[2].split() == ["00"] * 3 and lines[3] == "0 all of them"
    assert any(re.fullmatch(r"carrel-e2e-\d+.yaml", line) for line in lines[4:-1]) and "Read-only file system" in lines[-1]


def test_a_variable_of_the_caller_s_own_counts_more(caller):
    assert caller.sh("echo $THING", "--device", KIND + "=0", "--env", "THING=mine").text == "mine\n"


def test_without_it_nothing_of_it_is_there(caller):
    assert caller.sh("ls -d /dev/things /dev/zeros /opt/things; echo $THINGS").text == "\n"


def test_a_device_can_neither_be_made_nor_removed_in_the_box(caller):
    result = caller.sh("rm /dev/zeros; mknod /dev/mine c 1 3; mknod /tmp/mine c 1 3; mv /dev/zeros /dev/ones; ls /dev/zeros; ls /dev/mine /tmp/mine", "--device", KIND + "=0",
                       "--profile", "system")
    assert result.text == "/dev/zeros\n", result


def test_what_cannot_be_held_is_refused_in_words(caller, specification):
    def refused(name, *words):
        assert_refused(caller.run("--device", f"{KIND}={name}", ["true"]), *words)

    refused("hooked", "hook createContainer (/usr/bin/false)")
    refused("number", "has the number 1:5, not 1:3")
    refused("file", "not the kind of device")
    refused("taken", "/dev/null")
    refused("other", "there is no device", KIND + "=0")
    assert_refused(caller.run("--device", "nonsense", ["true"]), "vendor.com/class=device")
    if caller.user:
        refused("closed", "not open to everybody")
        refused("readable", "only root can give")
    specification.chmod(0o666)
    refused("0", "others than root can write it")


def test_permissions_of_a_device_hold(root):
    result = root.sh("head -c 2 /dev/readable | od -An -tx1; echo x >/dev/readable || echo closed", "--device", KIND + "=readable", "--profile", "system")
    assert result.text.split() == ["00", "00", "closed"], result


def test_a_zygote_gets_no_device(root):
    assert_refused(root.run("--device", KIND + "=0", "--zygote", "/bin/true", ["true"]), "exclude each other")


def test_doctor_shows_devices(root):
    result = root.call("doctor")
    assert "devices (CDI)" in result.text and KIND + "=0" in result.text and "hook createContainer" in result.text
