"""A command that is forked from a zygote runs as one that is exec'd: same stdio, status, limits and outcomes."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import pytest
from conftest import LIMITS, Run, run
from support.processes import descendants
from support.waiting import DEADLINE_S


def test_a_builtin_runs_without_exec():
    result = run(["@echo", "hello", "box"])
    assert (result.status, result.stdout, result.stderr) == (0, "hello box\n", "")
    assert result.report["outcome"] == "ok"


def test_an_executed_command_gets_its_arguments_environment_and_directory():
    result = run(["/bin/sh", "-c", 'echo "$1:$GREETING:$PWD"', "sh", "one"], options=(*LIMITS, "--env", "GREETING=hi", "--workdir", "/tmp"))
    assert result.stdout == "one:hi:/tmp\n"


def test_standard_input_reaches_the_child():
    process = Run(["@cat"], options=(*LIMITS, "-i"), stdin=subprocess.PIPE)
    assert process.finish("a line\n").stdout == "a line\n"


def test_standard_error_is_separate():
    result = run(["/bin/sh", "-c", "echo out; echo err >&2"])
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_exit_code_is_the_commands(code):
    assert run(["@exit", code]).status == code


def test_a_signal_is_reported():
    result = run(["@abort"])
    assert result.status == 128 + signal.SIGABRT and result.report["signal"] == signal.SIGABRT


@pytest.mark.parametrize("command, status", [(["no-such-command"], 127), (["/etc/passwd"], 126)])
def test_a_command_that_cannot_run_is_told_as_by_a_shell(command, status):
    assert run(command).status == status


def test_a_timeout_ends_the_box():
    result = run(["@sleep", "100"], options=(*LIMITS, "--timeout", "300ms"))
    assert result.status == 124 and result.report["outcome"] == "timeout"


def test_memory_that_a_child_touches_is_charged_to_its_box():
    result = run(["@touch", "20"])
    assert result.stdout == "touched cc\n"
    assert 28 << 20 <= result.report["memory_peak_bytes"] <= 40 << 20, "20 MB of its own and 8 MB that were the zygote's"


def test_a_child_over_its_memory_limit_is_ended():
    result = run(["@touch", "100"])
    assert result.report["outcome"] == "oom" and result.status == 137


def test_the_zygotes_own_memory_is_not_the_boxs():
    assert run(["@echo"]).report["memory_peak_bytes"] < 4 << 20


def test_a_fork_bomb_stops_at_the_limit():
    result = run(["/bin/sh", "-c", "for i in $(seq 100); do sleep 1000 & done; exit 3"])
    assert result.report["outcome"] == "pids" and result.report["pids_peak"] <= 32


def test_children_of_one_zygote_state_have_different_random_numbers():
    assert len({run(["@random"]).stdout for _ in range(3)}) == 3


def test_a_child_holds_no_descriptor_of_the_zygote():
    assert run(["@fds"]).stdout.split() == ["0", "1", "2"]
    assert run(["/bin/ls", "/proc/self/fd"]).stdout.split() == ["0", "1", "2", "3"], "3 is the listing itself"


def test_a_child_is_alone_in_its_box_with_init():
    names = run(["/bin/sh", "-c", "echo /proc/[0-9]*; cat /proc/[0-9]*/comm"]).stdout.split()
    assert names == ["/proc/1", "/proc/2", "init", "sh"]


def test_a_child_has_nothing_left_to_give_up():
    status = run(["@cat", "/proc/self/status"]).stdout
    for key, wanted in (("CapPrm", "0" * 16), ("CapEff", "0" * 16), ("CapBnd", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2"), ("Groups", "")):
        assert re.search(rf"^{key}:\s*{wanted}\s*$", status, re.M), (key, status)
    assert re.search(r"^Uid:\t1000\t1000\t1000\t1000$", status, re.M)


def test_a_child_cannot_join_nor_unshare():
    code = ("import ctypes, errno, os\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "for call in (lambda: libc.setns(os.open('/proc/1/ns/user', os.O_RDONLY), 0x10000000), lambda: libc.unshare(0x10000000)):\n"
            "    try:\n"
            "        r = call()\n"
            "    except OSError as e:\n"
            "        print(errno.errorcode[e.errno]); continue\n"
            "    print(r, errno.errorcode.get(ctypes.get_errno()))\n")
    lines = run(["/usr/bin/python3", "-c", code]).stdout.splitlines()
    assert lines[0] in ("EACCES", "-1 EPERM") and lines[1] == "-1 EPERM"


def test_renaming_between_directories_works():
    assert run(["/bin/sh", "-c", "mkdir a b; echo x >a/f; python3 -c 'import os; os.rename(\"a/f\", \"b/f\")'; cat b/f"]).stdout == "x\n"


@pytest.mark.parametrize("profile", ["strict", "standard", "system"])
def test_every_profile_can_be_forked(profile):
    result = run(["/bin/sh", "-c", "grep CapEff /proc/self/status"], options=(*LIMITS, "--profile", profile, "--user", "0:0"))
    assert result.status == 0, result.stderr
    assert (int(result.stdout.split()[1], 16) != 0) == (profile == "system")


@pytest.mark.skipif(os.getuid() != 0, reason="with the host's own root for root only")
def test_a_writable_root_and_a_terminal_work():
    result = run(["/bin/sh", "-c", "echo x >/usr/new && cat /usr/new; test -t 0 && echo tty"],
                 options=(*LIMITS, "--writable-root", "--user", "0:0", "--profile", "system", "-t"))
    assert result.stdout.replace("\r", "") == "x\ntty\n", result.stderr


def test_mounts_of_the_caller_are_the_boxs_and_not_the_zygotes(tmp_path):
    (tmp_path / "file").write_text("from outside")
    result = run(["/bin/sh", "-c", "cat /data/file; echo x >/data/file || echo refused"], options=(*LIMITS, "--mount", f"{tmp_path}:/data:ro"))
    assert result.stdout == "from outsiderefused\n"
    assert (tmp_path / "file").read_text() == "from outside"


def test_a_folder_below_var_tmp_can_be_mounted_at_its_own_path():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        result = run(["/bin/sh", "-c", f"echo in >{folder}/made && echo own >/var/tmp/own && cat /var/tmp/own && ls {folder}"], options=(*LIMITS, "--mount", f"{folder}:{folder}:rw"))
        assert (result.stdout, os.listdir(folder)) == ("own\nmade\n", ["made"]), result.stderr


def test_a_zygote_can_be_a_program_of_the_boxs_own_path():
    result = run(["@echo"], zygote="true")
    assert result.status == 125 and "zygote ended before it was ready" in result.stderr


def test_a_missing_zygote_is_told():
    result = run(["@echo"], zygote="/nonexistent/zygote")
    assert result.status == 125 and "/nonexistent/zygote" in result.stderr


def test_the_payload_outlives_the_zygote():
    box = Run(["/bin/sh", "-c", "read line; echo got $line"], options=(*LIMITS, "-i"), stdin=subprocess.PIPE)
    payload, zygote = box.find("sh"), box.find("zygote")
    os.kill(zygote, signal.SIGKILL)
    fate = pathlib.Path(f"/proc/{zygote}/stat")
    assert payload in descendants(box.pid)
    result = box.finish("after\n")
    assert (result.status, result.stdout) == (0, "got after\n") and not fate.exists()


def test_the_end_of_the_family_is_the_end_of_its_boxes():
    box = Run(["@sleep", "100"])
    box.process.stdout.readline()
    inits = [pid for pid, name in descendants(box.pid).items() if name == "init"]
    depth = {len([line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid")][0].split()): pid
             for pid in inits}
    os.kill(depth[min(depth)], signal.SIGKILL)
    assert box.finish().report["outcome"] == "killed"


def test_nothing_outlives_the_keeper():
    box = Run(["@sleep", "100"])
    box.process.stdout.readline()
    assert len(descendants(box.pid)) >= 4
    os.kill(box.pid, signal.SIGKILL)
    box.process.communicate(timeout=DEADLINE_S)
    box.report.unlink()
    box.baseline.assert_nothing_left(box.pid)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes an ordinary user")
@pytest.mark.parametrize("user", [65534, "carreltest"])
def test_an_ordinary_user_can_fork_too(user, plain):
    result = run(["/bin/sh", "-c", "id -u; echo x >/tmp/x; cat /tmp/x"], zygote=plain, options=("--disk", "16M"), user=user)
    assert (result.status, result.stdout) == (0, "1000\nx\n"), result.stderr


def test_open_files_end_at_nofile_in_what_was_forked():
    result = run(["/bin/sh", "-c", "ulimit -Sn; ulimit -Hn"], options=(*LIMITS, "--nofile", "100"))
    assert result.stdout.split() == ["100", "100"]
    refused = run(["@exit", 0], options=(*LIMITS, "--nofile", "5000"))
    assert refused.status == 125 and "nofile may be" in refused.stderr
