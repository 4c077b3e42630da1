"""E. The kernel's surface and global state."""
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios

import pytest

from harness import PROMPT, attack_tests, bomb, command_line, world
from syscall_table import LAST, PROFILES, is_refused, read_table, try_system_calls

globals().update(attack_tests("kernel"))
globals().update(attack_tests("cpu"))
globals().update(attack_tests("memory"))
globals().update(attack_tests("misc"))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_system_call_answers_as_the_table_says(profile):
    """What was refused must be refused, what was answered must not be refused. An older kernel may know fewer calls."""
    got = try_system_calls("n", LAST, profile)
    differences = [f"{number} {name}: {got[number]} instead of {outcome}" for number, (name, outcome) in read_table(profile).items()
                   if is_refused(got[number]) != is_refused(outcome) and got[number] != "ENOSYS"]
    assert differences == []


REFUSED = """unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr keyctl
add_key request_key io_uring_setup io_uring_enter io_uring_register ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd perf_event_open bpf
userfaultfd memfd_secret init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff syslog acct quotactl quotactl_fd iopl
ioperm vhangup settimeofday clock_settime sethostname setdomainname open_by_handle_at name_to_handle_at fanotify_init clone3
lookup_dcookie nfsservctl _sysctl create_module""".split()


@pytest.mark.parametrize("profile", PROFILES)
def test_dangerous_system_calls_are_refused_in_the_table(profile):
    by_name = {name: outcome for name, outcome in read_table(profile).values()}
    for name in REFUSED:
        assert by_name[name] in ("EPERM", "ENOSYS", "signal-31"), f"{name}: {by_name[name]}"
    for number, (name, outcome) in read_table(profile).items():
        if name == "-":
            assert outcome == "ENOSYS", f"unknown call {number}: {outcome}"


def test_no_32_bit_system_call_is_answered():
    got = try_system_calls("i", 470)
    assert {outcome for outcome in got.values()} <= {"signal-31", "signal-11"}


def test_no_x32_system_call_is_answered():
    got = try_system_calls("x", 600)
    assert {outcome for outcome in got.values()} <= {"signal-31", "ENOSYS", "EPERM"}


def test_escape_sequences_are_delivered_as_data():
    result = bomb("escapes")
    assert result.stdout == b"\033[2J\033]0;owned\007\033[6n\033P+q544e\033\\\x9b5n\x05\x00\x7f\xff\xfe\r\n"
    assert result.stderr == b""


LEADER = """
import fcntl, json, os, struct, subprocess, sys, termios
before = termios.tcgetattr(0)
status = subprocess.run(json.loads(sys.argv[1])).returncode
pending = struct.unpack('i', fcntl.ioctl(0, termios.FIONREAD, b'\\0' * 4))[0]
after = termios.tcgetattr(0)
os.write(3, json.dumps({'status': status, 'pending': pending, 'same': before[:6] == after[:6], 'foreground': os.tcgetpgrp(0) == os.getpgrp()}).encode())
"""


def run_on_terminal(line):
    """Runs line below a session leader on a terminal of its own. Returns what the terminal showed and what the leader saw afterwards."""
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ICANON        # so that pushed characters can be counted
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    seen, tell = os.pipe()

    def prepare():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.dup2(tell, 3)

    leader = subprocess.Popen([sys.executable, "-c", LEADER, json.dumps(line)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                              pass_fds=(tell, 3), preexec_fn=prepare, cwd=world().empty)
    os.close(slave)
    os.close(tell)
    shown = b""
    try:
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data
        leader.wait(PROMPT)
    finally:
        leader.kill()
        leader.wait()
    verdict = json.loads(os.read(seen, 4096))
    os.close(seen)
    os.close(master)
    return shown, verdict


@pytest.mark.parametrize("options", [(), ("-i",), ("-t",), ("-i", "-t")], ids=["plain", "-i", "-t", "-it"])
def test_nothing_is_pushed_into_the_callers_terminal(options):
    shown, seen = run_on_terminal(command_line(["/probe/probe", "bomb", "terminal"], options=options, mounts=[world().probe_mount()]))
    rows = [json.loads(row) for row in shown.decode("utf-8", "replace").replace("\r", "").splitlines() if row.startswith("{")]
    assert len(rows) == 4, shown
    for row in rows:
        assert row["sti"] == -1 and row["high"] == -1 and row["tioclinux"] == -1, row
    assert seen == {"status": 0, "pending": 0, "same": True, "foreground": True}


def test_the_callers_terminal_stays_usable_after_a_crash_inside():
    shown, seen = run_on_terminal(command_line(["/bin/sh", "-c", "stty raw -echo; kill -9 $$"], options=("-i", "-t")))
    assert seen["status"] == 137, shown
    assert seen["same"] and seen["foreground"] and seen["pending"] == 0
