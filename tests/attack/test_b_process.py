"""B. The boundary of processes, signals and identity."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from harness import (PROMPT, RUN_DEADLINE, WAY, Box, Snapshot, attack_tests, bomb, command_line, descendants, end_started, host_status, inits_of,
                     run_box, skip_variant, start, started, wait_for, world)

globals().update(attack_tests("process"))
globals().update(attack_tests("identity", ("standard", "strict", "rootless")))     # in the profile system there is a root, with five capabilities


def test_kill_of_everybody_reaches_only_the_own_box():
    neighbour = Box(["/probe/probe", "bomb", "wait"])
    neighbour.readline()
    line = bomb("kill-all").line()
    assert line["child"] == signal.SIGKILL
    assert neighbour.process.poll() is None
    neighbour.end()


@pytest.mark.parametrize("user", [None, 65534])
def test_a_command_cannot_give_its_parent_children(user):
    """They would be the keeper's, which knows nothing of them; dead and not reaped they keep the box from ending."""
    if user:
        skip_variant("rootless")
    result = bomb("siblings", user=user, **({"limits": ()} if user else {}), options=("--timeout", "5s"))
    assert result.line() == {"count": 0, "errno": "EPERM"} and result.status == 0


COMPANION = """
import ctypes, os, sys, time
CLONE_PARENT, CLONE_NEWPID = 0x8000, 0x20000000
libc, keeper = ctypes.CDLL(None, use_errno=True), os.getpid()
if os.fork():
    os.execv(sys.argv[1], sys.argv[1:])
end = time.monotonic() + 60
def init():
    for pid in open(f"/proc/{keeper}/task/{keeper}/children").read().split():
        rows = dict(row.split(":", 1) for row in open(f"/proc/{pid}/status").read().splitlines())
        if rows["NSpid"].split()[1:] == ["1"]:
            return pid
found = None
while not found and time.monotonic() < end:
    try:
        found = init()
    except (OSError, KeyError):
        pass
if not found or libc.setns(os.open(f"/proc/{found}/ns/pid", os.O_RDONLY), CLONE_NEWPID) < 0:
    sys.exit("no box, or no way into it")
for _ in range(4):
    if libc.syscall(56, CLONE_PARENT | 17, 0, 0, 0, 0) == 0:
        os._exit(0)
os.write(2, b"born\\n")
"""


@pytest.mark.skipif(os.getuid() != 0 or WAY == "fork", reason="needs root, to enter a plain box's pid namespace")
def test_children_that_carrel_does_not_know_do_not_hold_it_up():
    """Of any parent: here it is a process that was carrel's child before it was carrel."""
    line = [sys.executable, "-c", COMPANION, *command_line(["/bin/sh", "-c", "read line; exit 3"], options=("-i",))]
    carrel = subprocess.Popen(line, cwd=world().empty, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    started.append(carrel)
    assert carrel.stderr.readline() == b"born\n"
    carrel.communicate(b"\n", timeout=PROMPT)
    assert carrel.returncode == 3


def test_kill_of_the_own_group_reaches_only_the_command():
    """carrel and a canary are in one process group; the command is not."""
    result = bomb("kill-group")
    assert b"killing the group" in result.stdout
    assert result.status == 128 + signal.SIGKILL


def test_gentle_signals_to_the_own_group_do_not_reach_the_caller():
    assert bomb("kill-group-gently").line() == {"event": "lived"}


def test_two_live_boxes_have_different_ids_and_namespaces():
    boxes = [Box(["/probe/probe", "bomb", "wait"]) for _ in range(2)]
    views = []
    for box in boxes:
        box.readline()
        pid = next(pid for pid, name in descendants(box.pid).items() if name == "probe")
        names = {kind: os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("user", "mnt", "pid", "net", "ipc", "uts")}
        views.append((host_status(pid, "Uid").split()[0], host_status(pid, "Gid").split()[0], names))
    own = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in views[0][2]}
    for uid, gid, names in views:
        assert uid != "0" and gid != "0"
        for kind in names:
            assert names[kind] != own[kind], f"the host's {kind} namespace"
    if os.getuid() == 0:
        assert views[0][0] != views[1][0]
    for kind in own:
        assert views[0][2][kind] != views[1][2][kind]
    for box in reversed(boxes):
        box.end(check=box is boxes[0])


def test_init_is_no_child_of_the_payloads_cgroup():
    """Init must not need resources that the payload may use up: it is outside the limited cgroup."""
    box = Box(["/probe/probe", "bomb", "wait"])
    box.readline()
    payload = next(pid for pid, name in descendants(box.pid).items() if name == "probe")
    inner = inits_of(box.pid)
    limited = {row for row in pathlib.Path(f"/proc/{payload}/cgroup").read_text().splitlines() if "carrel-" in row}
    assert limited
    for pid in inner:
        free = set(pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines())
        assert not free & limited, free
        assert not any("carrel-" in row for row in free if "memory" in row or "pids" in row), free
    box.end()


def test_a_descriptor_of_the_caller_is_not_inherited():
    secret = os.open(world().host_file, os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        result = Box(["/bin/ls", "-l", "/proc/self/fd"], pass_fds=(secret,)).finish()
    finally:
        os.close(secret)
    rows = [row for row in result.stdout.splitlines() if b"->" in row]
    assert len(rows) == 4, result.stdout        # 0, 1, 2 and the directory itself
    assert b"host-file" not in result.stdout


def test_arguments_are_passed_on_untouched():
    words = ["--mount", "/:/host", "--memory=1T", "-it", "--", "", "a b", "a\nb", "$(id)", "\\", "*", "é"]
    result = bomb("echo", *words)
    assert [bytes.fromhex(row.removeprefix(b"arg").strip().decode()) for row in result.stdout.splitlines()] == [w.encode() for w in words]


def test_a_garbage_argument_is_passed_on_untouched():
    result = run_box(["/probe/probe", "bomb", "echo", b"\xff\xfe\x80"])
    assert result.stdout == b"arg fffe80\n"


def test_a_long_argument_is_passed_on_untouched():
    result = run_box(["/bin/sh", "-c", 'echo ${#1}', "sh", "x" * 100_000])
    assert result.stdout == b"100000\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT, signal.SIGSYS, 34, 64])
def test_a_death_by_signal_is_reported_as_such(number):
    result = bomb("die", int(number))
    assert result.status == 128 + number
    assert result.report["signal"] == number
    assert result.report["exit_code"] is None


def test_ending_carrel_ends_its_box():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        box = Box(["/probe/probe", "bomb", "ignore-all"])
        box.readline()
        box.process.send_signal(number)
        wait_for(lambda: ignoring_twice(box, number), "it did not end")
        result = box.finish()
        assert result.status != 0


def ignoring_twice(box, number):
    """The command hears the first signal; the next one ends the box, whether it listens or not."""
    if box.process.poll() is None:
        box.process.send_signal(number)
    return box.process.poll() is not None


def test_killing_carrel_ends_its_box():
    box = Box(["/probe/probe", "bomb", "ignore-all"])
    box.readline()
    box.process.kill()
    assert box.finish().status == -signal.SIGKILL


def test_a_stopped_command_is_ended_by_its_timeout():
    result = bomb("stop-self", options=("--timeout", "1s"))
    assert result.outcome == "timeout" and result.status == 124


def test_stopping_carrel_does_not_free_the_box():
    """A stopped keeper changes nothing for the box; a killed one takes it along."""
    box = Box(["/probe/probe", "bomb", "wait"])
    box.readline()
    os.kill(box.pid, signal.SIGSTOP)
    wait_for(lambda: host_status(box.pid, "State").startswith("T"), "carrel did not stop")
    os.kill(box.pid, signal.SIGKILL)
    box.finish()


def test_the_environment_holds_only_what_was_asked_for():
    result = run_box(["/usr/bin/env"], options=("--env", "ASKED=yes"))
    names = {row.split(b"=", 1)[0] for row in result.stdout.splitlines()}
    assert b"ASKED" in names
    assert names <= {b"ASKED", b"PATH", b"HOME", b"LANG", b"LC_ALL", b"TERM"}, names


def test_a_dynamic_loader_variable_of_the_caller_is_not_inside(tmp_path):
    line = Box(["/usr/bin/env"], prepare=lambda: os.environ.update(LD_PRELOAD="/nowhere.so")).finish()
    assert b"LD_PRELOAD" not in line.stdout


def test_a_process_that_closes_everything_is_still_reported():
    assert bomb("close-early").status == 5


def test_output_after_the_reader_left_ends_the_command():
    """The reader closes the pipe behind carrel: the flood ends, carrel too."""
    box = Box(["/probe/probe", "bomb", "flood"])
    assert box.process.stdout.read(10) == b"y" * 10
    box.process.stdout.close()
    box.process.stdout = None
    assert box.process.wait(PROMPT) != 0
    box.process.stderr.close()
    box.baseline.assert_nothing_left(box.pid)


def test_a_host_process_is_not_killed_by_a_pid_number_from_inside():
    script = f"kill -9 {world().canary.pid}; kill -9 -{world().canary.pid}; kill -9 {os.getpid()}; echo done"
    assert b"done" in run_box(["/bin/sh", "-c", script]).stdout


def test_a_second_command_of_the_same_name_is_another_box():
    results = [subprocess.run(line(), capture_output=True, timeout=PROMPT, cwd=world().empty).stdout for _ in range(2)]
    assert results[0] == results[1] == b"0\nx\n"


def line():
    return command_line(["/bin/sh", "-c", "ls /tmp/x 2>/dev/null | wc -l; echo x >/tmp/x; cat /tmp/x"])


def test_root_of_the_system_profile_holds_five_capabilities_of_its_own_namespace():
    """CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID: enough for a package manager, not for the kernel."""
    result = bomb("whoami", options=("--profile", "system"))
    assert result.stdout.startswith(b"uid 0 0 gid 0 0 caps cb nnp 1 seccomp 2 fds 3"), result.stdout


def test_root_of_the_system_profile_is_nobody_outside(tmp_path):
    """Capabilities over files end at the box's own ids: a private file of the host's root stays closed, on a mount too."""
    (tmp_path / "private").write_text("private")
    (tmp_path / "private").chmod(0o600)
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    if os.getuid() == 0:
        os.chown(tmp_path / "private", 12345, 12345)
    result = run_box(["/bin/sh", "-c", "cat /host/private; chown 0 /host/private; chmod 666 /host/private; rm -f /host/private; echo x >/host/private; true"],
                     options=("--profile", "system"), mounts=[f"{tmp_path}:/host:rw"])
    assert b"private\n" not in result.stdout.replace(b"/host/private", b"")
    if os.getuid() == 0:
        assert (tmp_path / "private").stat().st_uid == 12345 or not (tmp_path / "private").exists()


@pytest.mark.parametrize("user", [None, 65534], ids=["root", "rootless"])
def test_a_process_of_a_box_is_never_the_hosts_root(user):
    if os.getuid() != 0:
        pytest.skip("needs root, to become an ordinary user")
    box = Box(["/probe/probe", "bomb", "wait"], user=user, limits=())
    box.readline()
    seen = 0
    for pid in descendants(box.pid):
        try:
            if host_status(pid, "NSpid").count("\t"):
                assert "0" not in host_status(pid, "Uid").split()[1:], host_status(pid, "Name")
                seen += 1
        except OSError:     # has just ended
            continue
    assert seen >= 2        # init and the command
    box.end()


def test_a_command_never_runs_on_the_hosts_root():
    """A payload joins while init still builds the root. In any order of the two, it must find itself on the box's: many runs, some on one processor, some
    side by side, so that every order comes up. CARREL_RACE: how many."""
    script = f"test -e {world().host_file} && echo host; test -e /etc/shadow && echo host; test -e {world().probes} && echo host; echo end"
    line = command_line(["/bin/sh", "-c", script])
    alone = {min(os.sched_getaffinity(0))}
    before = Snapshot()
    runs = int(os.environ.get("CARREL_RACE", "300"))
    crowds = ((1, None), (1, alone), (4, None), (4, alone))
    for turn in range(0, runs, 10):
        size, processors = crowds[turn // 10 % len(crowds)]
        pin = (lambda: os.sched_setaffinity(0, alone)) if processors else None
        for _ in range(0, 10, size):
            for box in [start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=pin) for _ in range(size)]:
                out, err = box.communicate(timeout=RUN_DEADLINE)
                assert (box.returncode, out, err) == (0, b"end\n", b""), turn
            end_started()
    before.assert_nothing_left()
