"""Exit codes, typed outcomes, and the figures that go with them."""
import json
import signal
import subprocess
import time

import pytest

from runner import DEADLINE, assert_refused

MB = 1 << 20
EAT = "b = []\nwhile True: b.append(bytearray(1 << 20))"


def need(caller, limit):
    """A limit that cannot be had must be refused with the reason; then there is nothing more to test."""
    if limit in caller.limits:
        return
    value = {"memory": "64M", "pids": "16", "cpus": "0.5"}[limit]
    assert_refused(caller.run(f"--{limit}", value, ["true"]), "cannot limit", "cgroup")
    pytest.skip(f"no limit of {limit} for this caller")


@pytest.mark.parametrize("code", [0, 1, 2, 42, 124, 125, 126, 127, 255])
def test_the_status_is_the_commands(caller, code):
    result = caller.report(["sh", "-c", f"exit {code}"])
    assert result.status == code and result.stderr == b""
    assert result.report["exit_code"] == code and result.report["outcome"] == ("error" if code else "ok")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGSYS])
def test_a_signal_is_128_and_its_number(caller, number):
    result = caller.report(["sh", "-c", f"kill -{int(number)} $$"])
    assert result.status == 128 + number
    assert result.report["signal"] == number and result.report["exit_code"] is None and result.report["outcome"] == "killed"


def test_a_command_that_is_not_there_is_127(caller):
    assert_refused(caller.run(["no-such-command"]), "exec", "no-such-command", status=127)
    assert_refused(caller.run(["/no/such/command"]), "/no/such/command", status=127)
    assert_refused(caller.run("--env", "PATH=/nowhere", ["true"]), "true", status=127)


def test_a_command_that_cannot_run_is_126(caller):
    assert_refused(caller.run(["/etc/passwd"]), "/etc/passwd", "permission", status=126)
    assert_refused(caller.run(["/usr/bin"]), "/usr/bin", status=126)
    folder = caller.folder("data")
    caller.file(folder / "nonsense", b"\x00\x01\x02", 0o755)
    caller.file(folder / "script", "#!/no/interpreter\n", 0o755)
    assert_refused(caller.run("--mount", f"{folder}:/data", ["/data/nonsense"]), "nonsense", status=126)
    assert_refused(caller.run("--mount", f"{folder}:/data", ["/data/script"]), "script", status=127)


def test_a_report_of_success_has_sane_figures(caller):
    """carrel has seen the start before the pause that is counted begins; how late it sees it is not the command's time."""
    path, begin = caller.home / "report", time.monotonic()
    path.unlink(missing_ok=True)
    script = "echo ready; read go; i=0; while test $i -lt 20000; do i=$((i+1)); done; sleep 0.3; head -c 1000000 /dev/zero >/tmp/f"
    process = caller.start("run", "-i", "--report", path, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.communicate(b"go\n", DEADLINE)
    report = json.loads(path.read_text())
    assert report["outcome"] == "ok" and report["exit_code"] == 0 and report["signal"] is None
    assert 250 <= report["wall_ms"] <= (time.monotonic() - begin) * 1000
    assert 0 < report["cpu_ms"] < report["wall_ms"]
    assert 100000 < report["memory_peak_bytes"] < 200 * MB
    assert 1000000 <= report["disk_bytes"] <= 1100000
    assert report["pids_peak"] is None or 1 <= report["pids_peak"] <= 8


def test_the_wall_time_of_a_short_command_is_short(caller):
    result = caller.report(["true"])
    assert 0 <= result.report["wall_ms"] <= result.seconds * 1000


def test_timeout(caller):
    for seconds in (0.3, 3, 30):
        result = caller.report("--timeout", f"{seconds}s", ["sh", "-c", "trap '' TERM INT; echo started; sleep 1000"])
        assert result.status == 124 and result.stdout in (b"started\n", b"")
        assert result.report["outcome"] == "timeout" and seconds * 1000 <= result.report["wall_ms"] <= result.seconds * 1000
        assert result.complaint.splitlines() == [f"carrel: the command was ended after {seconds} s (--timeout)"]
        if result.stdout:       # else the machine is so busy that the shell did not get that far: once more with more time
            return
    raise AssertionError("what the command wrote before its end did not come")


def test_timeout_ends_the_whole_tree(caller):
    script = "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & done; sleep 1000"
    result = caller.run("--timeout", "400ms", ["sh", "-c", script])
    assert result.status == 124


def test_timeout_is_not_reached(caller):
    assert caller.report("--timeout", "20s", ["true"]).report["outcome"] == "ok"


def test_oom(caller):
    need(caller, "memory")
    result = caller.report("--memory", "64M", ["/usr/bin/python3", "-c", EAT])
    assert result.status == 137 and result.report["outcome"] == "oom"
    assert 48 * MB < result.report["memory_peak_bytes"] <= 65 * MB
    assert result.complaint.count("\n") == 1 and "out of memory" in result.complaint


def test_oom_of_a_child_is_told_too(caller):
    need(caller, "memory")
    result = caller.report("--memory", "64M", ["sh", "-c", f"/usr/bin/python3 -c '{EAT}'; exit 7"])
    assert result.status in (7, 137) and result.report["outcome"] == "oom"       # the whole box may go with it


def test_the_disk_counts_as_memory(caller):
    need(caller, "memory")
    result = caller.report("--memory", "64M", "--disk", "512M", ["sh", "-c", "head -c 200000000 /dev/zero >/tmp/f"])
    assert result.status != 0 and result.report["outcome"] == "oom"


def test_the_box_sees_its_memory_as_the_machines(caller):
    need(caller, "memory")
    assert caller.sh("head -1 /proc/meminfo", "--memory", "64M").text.split() == ["MemTotal:", "65536", "kB"]


def test_pids(caller):
    need(caller, "pids")
    program = "import os, time\nfor i in range(100):\n  if os.fork() == 0: time.sleep(1000)"
    result = caller.report("--pids", "16", ["/usr/bin/python3", "-c", program])
    assert result.status == 1 and result.report["outcome"] == "pids" and b"Resource temporarily unavailable" in result.stderr
    assert result.report["pids_peak"] in (16, None)


def test_a_fork_bomb_ends_with_its_timeout(caller):
    need(caller, "pids")
    result = caller.report("--pids", "64", "--timeout", "1s", ["sh", "-c", "b() { b | b & }; b 2>/dev/null; sleep 100"])
    assert result.status in (124, 2) and result.report["outcome"] in ("timeout", "pids")


def test_cpus(caller):
    need(caller, "cpus")
    result = caller.report("--cpus", "0.25", "--timeout", "1s", ["sh", "-c", "while :; do :; done"])
    assert result.report["outcome"] == "timeout"
    assert result.report["cpu_ms"] < 0.5 * result.report["wall_ms"]
    assert caller.sh("grep -c ^processor /proc/cpuinfo", "--cpus", "0.25").text == "1\n"


def test_disk(caller):
    result = caller.report("--disk", "8M", ["sh", "-c", "head -c 20000000 /dev/zero >/tmp/f"])
    assert result.status == 1 and result.report["outcome"] == "disk"
    assert 7 * MB < result.report["disk_bytes"] <= 8 * MB
    assert b"No space left" in result.stderr and "carrel: the box filled its disk" in result.complaint


def test_the_disk_is_one_for_all_places(caller):
    result = caller.report("--disk", "9M", ["sh", "-c", "for d in /tmp /home/box /dev/shm; do head -c 4000000 /dev/zero >$d/f || exit 9; done"])
    assert result.status == 9 and result.report["outcome"] == "disk"


def test_too_many_small_files_fill_the_disk_too(caller):
    result = caller.report("--disk", "1M", ["/usr/bin/python3", "-c", "for i in range(100000): open(f'/tmp/{i}', 'w')"])
    assert result.status == 1 and result.report["outcome"] == "disk"


def test_a_full_disk_that_the_command_survives_is_no_failure(caller):
    assert caller.report("--disk", "1M", ["sh", "-c", "head -c 2000000 /dev/zero >/tmp/f 2>/dev/null; exit 0"]).report["outcome"] == "ok"


def test_output_limit_gives_exactly_so_much(caller):
    result = caller.report("--output-limit", "100000", ["yes"])
    assert result.report["outcome"] == "output_limit" and result.status == 137
    assert result.stdout == (b"y\n" * 50000)
    assert "carrel: the command was ended after 100000 bytes of output (--output-limit)" in result.complaint


def test_output_limit_counts_both_streams(caller):
    result = caller.report("--output-limit", "1000", ["sh", "-c", "head -c 600 /dev/zero; head -c 600 /dev/zero >&2; sleep 100"])
    assert result.report["outcome"] == "output_limit"
    assert len(result.stdout) + result.stderr.count(b"\0") == 1000


def test_output_limit_holds_for_what_a_command_wrote_before_it_ended(caller):
    """It may be gone when its output is read."""
    for _ in range(10):
        result = caller.report("--output-limit", "100000", ["head", "-c", "120000", "/dev/zero"])
        assert (result.report["outcome"], result.status, len(result.stdout)) == ("output_limit", 137, 100000), result


def test_output_up_to_the_limit_is_no_failure(caller):
    result = caller.report("--output-limit", "1000", ["head", "-c", "1000", "/dev/zero"])
    assert result.report["outcome"] == "ok" and len(result.stdout) == 1000


def test_output_limit_holds_for_json(caller):
    result = caller.run("--json", "--output-limit", "5000", ["yes"])
    assert b'"outcome":"output_limit"' in result.stdout and len(result.stdout) < 16384


def test_a_limit_that_is_too_small_for_the_command_is_told(caller):
    """The kernel may not even be able to start the program: no hang, no success."""
    need(caller, "pids")
    assert caller.run("--pids", "1", ["sh", "-c", "true | true"]).status != 0
    assert caller.run("--pids", "1", ["true"]).status == 0
