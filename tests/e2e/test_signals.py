"""Signals to carrel, and its death."""
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

from runner import DEADLINE
from support.boxes import cgroups_of
from support.waiting import SLOW, wait_for

TRAP = "trap 'echo got; exit 42' {0}; echo ready; while :; do sleep 0.05; done"


def ready(process):
    assert process.stdout.readline() == b"ready\n"


def is_pending(process, number):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(re.search(r"^ShdPnd:\s*(\w+)$", status, re.M)[1], 16) & 1 << (number - 1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_is_handed_on(caller, number):
    process = caller.start("run", "--", "sh", "-c", TRAP.format(int(number)))
    ready(process)
    process.send_signal(number)
    assert process.communicate(timeout=DEADLINE)[0] == b"got\n" and process.returncode == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_command_is_told(caller, number):
    report = caller.home / "report"
    process = caller.start("run", "--report", report, "--", "/usr/bin/python3", "-c", "import signal, time; signal.signal(2, signal.SIG_DFL); print('ready', "
                           "flush=True); time.sleep(1000)")
    ready(process)
    process.send_signal(number)
    assert process.wait(DEADLINE) == 128 + number
    assert '"outcome":"killed"' in report.read_text()


def test_the_second_signal_kills(caller):
    """Else it would take five seconds. A busy machine may take that long, but not each time."""
    took = []
    while not took or (took[-1] > 4 * SLOW and len(took) < 5):
        process = caller.start("run", "--", "sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep 1; done")
        ready(process)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: not is_pending(process, signal.SIGTERM), "carrel does not take its signal")     # signals of one number do not queue
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 128 + 15
        took.append(time.monotonic() - begin)
    assert took[-1] <= 4 * SLOW, took


def test_a_command_that_ignores_the_signal_is_ended_after_five_seconds(root):
    process = root.start("run", "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    ready(process)
    begin = time.monotonic()
    process.terminate()
    assert process.wait(DEADLINE) == 128 + 15 and 4.5 < time.monotonic() - begin


def test_a_signal_reaches_the_whole_group_of_the_command(caller):
    child = "trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.05; done"
    process = caller.start("run", "--", "sh", "-c", f'trap : TERM; sh -c "{child}" & wait; wait')
    ready(process)
    process.terminate()
    assert b"child" in process.communicate(timeout=DEADLINE)[0]


def test_a_signal_at_any_moment_of_the_making_ends_it(caller):
    for i in range(25):
        process = caller.start("run", "--", "sleep", "1000")
        time.sleep(random.uniform(0, 0.008) * SLOW)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) in (-15, 143), i


def test_after_kill_nothing_is_left(caller):
    """The fixture looks for what is left; the moments are random, each run has others."""
    for _ in range(40):
        process = caller.start("run", "--", "sh", "-c", "sleep 1000 & setsid sleep 1000 & sleep 1000")
        time.sleep(random.uniform(0, 0.010) * SLOW)
        process.kill()
        assert process.wait(DEADLINE) == -9


def test_after_kill_of_a_running_box_nothing_is_left(caller):
    process = caller.start("run", "--", "sh", "-c", "sleep 1000 & setsid sleep 1000 & echo ready; sleep 1000")
    ready(process)
    process.kill()
    process.wait()
    wait_for(lambda: not caller.baseline.left_processes(), lambda: f"{caller.baseline.left_processes()}")
    wait_for(lambda: not cgroups_of(process.pid), "its cgroups are left")


def test_after_kill_while_output_flows_nothing_is_left(caller):
    for _ in range(5):
        process = caller.start("run", "--", "yes")
        process.stdout.read(100000)
        process.kill()
        process.wait()


def test_a_stopped_carrel_goes_on(caller):
    process = caller.start("run", "-i", "--", "cat", stdin=subprocess.PIPE)
    process.stdin.write(b"a\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"a\n"
    process.send_signal(signal.SIGSTOP)
    process.stdin.write(b"b\n")
    process.stdin.flush()
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == b"b\n"
    process.stdin.close()
    assert process.wait(DEADLINE) == 0


def test_ignored_signals_of_the_caller_do_not_matter(caller):
    """As nohup and some init systems start programs."""
    def ignore():
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
    process = caller.start("run", "--", "sh", "-c", "sleep 0.01; echo out; exit 3", preexec_fn=ignore)
    assert process.communicate(timeout=DEADLINE)[0] == b"out\n" and process.returncode == 3


def test_blocked_signals_of_the_caller_do_not_matter(caller):
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    process = caller.start("run", "--timeout", "100s", "--", "sh", "-c", "echo ready; sleep 1000", preexec_fn=block)
    ready(process)
    process.terminate()
    assert process.wait(DEADLINE) == 143


def test_the_box_cannot_signal_carrel(caller):
    assert caller.sh("kill -9 0").status == 137
    assert caller.sh("kill -9 -1; echo alive").stdout == b"alive\n"      # all but itself and init
    assert caller.sh("kill -9 1 2>/dev/null; echo alive").stdout == b"alive\n"
