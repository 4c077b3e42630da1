"""The test machine itself: what the other suites take for granted there."""

import os
import subprocess


def test_cgroup_tree_is_pure_v2():
    assert os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    with open("/proc/self/cgroup") as file:
        assert file.read().strip() == "0::/test.slice/suite.scope"


def test_controllers_reach_the_suite():
    with open("/sys/fs/cgroup/test.slice/suite.scope/cgroup.controllers") as file:
        assert {"memory", "pids", "cpu"} <= set(file.read().split())


def test_own_cgroup_can_be_divided():
    os.mkdir("/sys/fs/cgroup/test.slice/suite.scope/probe")
    os.rmdir("/sys/fs/cgroup/test.slice/suite.scope/probe")


def test_user_namespace_can_be_made():
    subprocess.run(["unshare", "--user", "--map-root-user", "true"], check=True, timeout=60)


def test_id_range_can_be_mapped():
    if os.getuid() == 0:
        return
    subprocess.run(["unshare", "--user", "--map-auto", "--map-root-user", "true"], check=True, timeout=60)


def test_landlock_is_active():
    with open("/sys/kernel/security/lsm") as file:
        assert "landlock" in file.read().split(",")


def test_program_is_there():
    assert os.access(os.environ["CARREL"], os.X_OK)
