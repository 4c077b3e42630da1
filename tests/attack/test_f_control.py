"""F. Attacks of the box on its caller: forged results, a killed keeper, a spoilt report."""
import os
import signal
import subprocess
import time

import pytest

from harness import LIMITS, PROMPT, Box, Snapshot, bomb, cgroups_of, command_line, inits_of, run_box, skip_variant, start, wait_for, world


def test_a_forged_status_is_not_believed():
    result = bomb("forge")
    assert result.status == 7
    assert result.report["exit_code"] == 7
    assert result.outcome == "error"
    assert b'"written":0' in result.stdout


@pytest.mark.parametrize("code", [0, 1, 2, 42, 124, 125, 126, 127, 128, 137, 255])
def test_an_exit_code_is_reported_as_it_is(code):
    result = bomb("exit", code)
    assert result.status == code
    assert result.report["exit_code"] == code
    assert result.outcome == ("ok" if code == 0 else "error")


def test_killing_twenty_keepers_at_once_leaves_nothing():
    before = Snapshot()
    line = command_line(["/probe/probe", "bomb", "wait"], mounts=[world().probe_mount()])
    boxes = [start(line, stdout=subprocess.PIPE) for _ in range(20)]
    for box in boxes:
        assert b"waiting" in box.stdout.readline()
    for box in boxes:
        box.kill()
    for box in boxes:
        box.wait()
    wait_for(lambda: not before.left_processes(), lambda: f"left: {before.left_processes()}")
    wait_for(lambda: not any(cgroups_of(box.pid) for box in boxes), "cgroups are left")
    before.assert_nothing_left()


def test_a_keeper_killed_while_it_builds_leaves_nothing():
    """At any moment of the making: killed after a growing number of microseconds."""
    before = Snapshot()
    line = command_line(["/bin/true"])
    pids = []
    for step in range(40):
        box = start(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + step * 0.0002
        while time.monotonic() < end:
            pass
        box.kill()
        box.wait()
        pids.append(box.pid)
    wait_for(lambda: not before.left_processes(), lambda: f"left: {before.left_processes()}")
    wait_for(lambda: not any(cgroups_of(pid) for pid in pids), lambda: f"left: {[cgroups_of(pid) for pid in pids if cgroups_of(pid)]}")
    before.assert_nothing_left()


def test_killing_init_from_outside_ends_the_box():
    box = Box(["/probe/probe", "bomb", "wait"])
    box.readline()
    os.kill(inits_of(box.pid)[-1], signal.SIGKILL)
    result = box.finish()
    assert result.status not in (0, None)


def test_a_report_path_that_is_a_link_of_the_callers_is_only_the_callers_affair():
    """The report is written outside; nothing inside can name or race it."""
    result = run_box(["/bin/sh", "-c", "find / -xdev -name 'report-*' 2>/dev/null; echo end"])
    assert result.stdout == b"end\n"
    assert result.outcome == "ok"


def test_a_failed_exec_is_told_apart_from_a_failed_command():
    assert run_box(["/no/such/program"]).status == 127
    assert run_box(["/etc/passwd"]).status == 126
    assert run_box(["/bin/sh", "-c", "exit 127"]).report.get("exit_code") == 127


def test_a_program_that_is_a_directory_or_a_device_is_refused():
    for path in ("/usr", "/dev/null", "/proc/self/mem"):
        assert run_box([path]).status in (126, 127)


def test_limits_that_cannot_be_are_refused():
    for options in (("--memory", "0"), ("--memory", "-1"), ("--memory", "1e309"), ("--pids", "0"), ("--pids", "99999999999999999999"),
                    ("--disk", "0"), ("--cpus", "nan"), ("--cpus", "-1"), ("--timeout", "-1s"), ("--mount", "/no/such/dir:/x"),
                    ("--mount", "/tmp:/../x/.."), ("--mount", "/tmp:relative"), ("--hostname", "a\nb"), ("--user", "-1"), ("--profile", "root")):
        result = run_box(["/bin/true"], limits=(), options=options)
        assert result.status == 125, (options, result)
        assert result.stderr.startswith(b"carrel: "), (options, result)


@pytest.mark.parametrize("target", ["/", "/proc", "/proc/self", "/dev", "/dev/null", "/usr/bin", "/etc/passwd", "/sys"])
def test_a_mount_over_the_boxs_own_parts_is_refused_or_harmless(target, tmp_path):
    """The caller may shoot his own foot, but the box never gets more than its caller had."""
    tmp_path.chmod(0o755)
    result = run_box(["/probe/probe", "bomb", "whoami"], mounts=[f"{tmp_path}:{target}:ro"])
    if result.status == 0:
        assert b"caps 0 nnp 1 seccomp 2 fds 3" in result.stdout
    else:
        assert result.stderr


@pytest.mark.parametrize("user", [None, 65534])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_in_the_place_of_the_report_is_not_followed(tmp_path, user, when, what):
    """The box may write where the report goes: neither a link that an earlier box left nor one that this one makes leads carrel anywhere."""
    if user:
        skip_variant("rootless")
        os.chown(tmp_path, user, user)
    victim = tmp_path.parent / "victim"
    victim.mkdir()
    (victim / "report").write_text("precious")
    if user:
        os.chown(victim, user, user)
        os.chown(victim / "report", user, user)
    # The link that the box makes leads to somewhere outside of what it sees.
    plant = {"file": f"rm -f out/report; ln -s {victim}/report out/report", "folder": f"rm -rf out; ln -s {victim} out"}[what]
    (tmp_path / "out").mkdir()
    if user:
        os.chown(tmp_path / "out", user, user)
    identity = {"user": user, "group": user, "extra_groups": []} if user else {}

    def carrel(script, *options):
        line = command_line(["/bin/sh", "-c", script], limits=() if user else LIMITS, mounts=[f"{tmp_path}:/work:rw"],
                            options=(*options, "--workdir", "/work"))
        return subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=PROMPT, **identity)

    report = ("--report", str(tmp_path / "out/report"))
    if when == "before":
        assert carrel(plant).returncode == 0
        done = carrel("echo ran", *report)
        assert done.returncode == 125 and b"link" in done.stderr and done.stdout == b"", done
    else:
        assert carrel(plant, *report).returncode == 0
    assert (tmp_path / "out").is_symlink() or (tmp_path / "out/report").is_symlink(), "the box did not plant its link"
    assert (victim / "report").read_text() == "precious" and os.listdir(victim) == ["report"]
