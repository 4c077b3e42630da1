"""plan, doctor, gc, help and version."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from runner import DEADLINE, assert_refused


def test_no_word_at_all_shows_the_usage(root):
    result = root.call()
    assert result.status == 125 and "usage: carrel" in result.complaint


def test_help_and_version(root):
    for word in ("help", "--help"):
        result = root.call(word)
        assert result.status == 0 and all(name in result.text for name in ("run", "plan", "doctor", "gc"))
    assert re.fullmatch(r"carrel \d+\.\d+\.\d+\n", root.call("--version").text)


def test_an_unknown_command(root):
    assert_refused(root.call("fly"), "fly")


def test_plan_shows_the_steps_in_order(caller):
    result = caller.call("plan", "--hostname", "here", "--mount", "/usr/lib:/data", "--", "true")
    assert result.status == 0, result
    lines = result.text.splitlines()
    parts = [line for line in lines if not line.startswith(" ")]
    assert parts == ["keeper", "init", "payload"]
    assert any("here" in line for line in lines) and any("/data <- /usr/lib" in line and "ro" in line for line in lines)
    order = [next(i for i, line in enumerate(lines) if word in line) for word in ("  pivot", "capabilities of profile", "  seccomp", "  exec")]
    assert order == sorted(order)


def test_plan_is_the_same_each_time(caller):
    assert caller.call("plan", "--", "true").stdout == caller.call("plan", "--", "true").stdout


def test_plan_refuses_what_run_refuses(caller):
    assert_refused(caller.call("plan", "--mount", "/not/there:/x", "--", "true"), "/not/there")
    assert_refused(caller.call("plan"), "no command")


@pytest.mark.parametrize("words", [["--json"], ["--report", "/tmp/report.json"], ["--trace"]])
def test_plan_refuses_what_only_a_run_can_do(root, words):
    assert_refused(root.call("plan", *words, "--", "true"), "carrel plan runs nothing", words[0])


def test_doctor_says_that_boxes_can_be_made(caller):
    result = caller.call("doctor")
    assert result.status == 0 and "Boxes can be made here" in result.text, result


def test_doctor_as_json(caller):
    result = caller.call("doctor", "--json")
    report = json.loads(result.stdout)
    assert result.status == 0 and report["boxes"] is True
    assert report["kernel"] == os.uname().release and report["cgroup"] in ("v1", "v2", "hybrid", "none")
    for check in report["checks"]:
        assert check["state"] in ("ok", "limited", "missing") and check["name"]
        assert check["state"] == "ok" or check["costs"] or check["fix"] or check["name"] == "cgroups", check


def test_doctor_and_run_agree_about_limits(caller):
    report = json.loads(caller.call("doctor", "--json").stdout)
    told = caller.report(["true"]).report
    if report["cgroup"] == "none":
        assert not caller.limits
    for name in caller.limits:
        assert name not in told["not_enforced"] or told["not_enforced"][name] == "not asked for"


def test_doctor_refuses_words(root):
    assert_refused(root.call("doctor", "--frob"), "--frob")
    assert_refused(root.call("gc", "now"), "now")


def cgroup_bases():
    top = pathlib.Path("/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        return [top]
    return [path for path in (top / "memory", top / "pids", top / "unified") if path.is_dir()]


def own_start(pid="self"):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


@pytest.fixture
def leaf(root):
    """Makes leaves that look like carrel's; those that are left are removed."""
    if not root.is_root:
        pytest.skip("needs root")
    made = []

    def make(pid, start):
        namespace = os.stat("/proc/self/ns/pid").st_ino
        for base in cgroup_bases():
            path = base / f"carrel-{namespace}-{pid}-{start}-7"
            path.mkdir()
            made.append(path)
        return made[-len(cgroup_bases()):]
    yield make
    for path in made:
        if path.exists():
            path.rmdir()


def test_gc_removes_what_a_dead_keeper_left(root, leaf):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    start = own_start(dead.pid)
    dead.wait()
    left = leaf(dead.pid, start)
    result = root.call("gc")
    assert result.status == 0 and f"process {dead.pid}" in result.text
    assert not any(path.exists() for path in left)


def test_gc_ends_processes_that_a_dead_keeper_left(root, leaf):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    start = own_start(dead.pid)
    dead.wait()
    left = leaf(dead.pid, start)
    orphan = subprocess.Popen(["sleep", "1000"])
    for path in left:
        (path / "cgroup.procs").write_text(str(orphan.pid))
    result = root.call("gc", "--json")
    report = json.loads(result.stdout)
    assert orphan.wait(DEADLINE) == -9 and result.status == 0
    assert [entry for entry in report["cgroups"] if entry["owner"] == dead.pid][0]["removed"] is True
    assert not any(path.exists() for path in left)


def test_gc_does_not_touch_what_is_alive(root, leaf):
    mine = leaf(os.getpid(), own_start())
    process = root.start("run", "-i", "--", "cat", stdin=subprocess.PIPE)
    process.stdin.write(b"x\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"x\n"
    assert root.call("gc").status == 0
    assert all(path.exists() for path in mine)
    process.stdin.write(b"y\n")
    process.stdin.close()
    assert process.stdout.readline() == b"y\n" and process.wait(DEADLINE) == 0


def test_gc_without_anything_to_do(caller):
    result = caller.call("gc")
    assert result.status == 0 and result.stdout
