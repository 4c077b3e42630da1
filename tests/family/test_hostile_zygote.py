"""The zygote runs the tenant's code. Whatever it does, the keeper reports the fault clearly and nothing is left."""
import os

import pytest
from conftest import LIMITS, Run, run
from support.waiting import DEADLINE_S

COMMAND = ["/bin/echo", "ran"]
USERS = [pytest.param(user, marks=pytest.mark.skipif(os.getuid() != 0, reason="becomes an ordinary user")) for user in (65534, "carreltest")] + [None]

REFUSED = {
    "unsealed": "capabilities", "capabilities": "capabilities", "threads": "threads", "session": "foreign session", "user": "another user",
    "unfiltered": "no filter of its own", "unlimited": "not in the box's cgroup", "network": "not in the box's namespaces",
    "orphan": "not the keeper's child",
}


@pytest.mark.parametrize("habit", REFUSED)
def test_a_child_that_is_not_sealed_is_refused(hostile, habit):
    result = run(COMMAND, zygote=hostile(habit))
    assert result.status == 125 and result.stdout == ""
    assert "the zygote's child was refused" in result.stderr and REFUSED[habit] in result.stderr


def test_a_zygote_that_offers_itself_is_refused(hostile):
    result = run(COMMAND, zygote=hostile("liar"))
    assert result.status == 125 and "refused" in result.stderr


@pytest.mark.parametrize("habit", ["early", "strangers", "inside"])
def test_children_that_nobody_asked_for_are_reaped(hostile, habit):
    """Before, beside and within the box; dead and alive; in the zygote's process group and out of it."""
    result = run(COMMAND, zygote=hostile(habit))
    assert (result.status, result.stdout) == (0, "ran\n"), result.stderr


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("habit", ["junk", "answers"])
def test_a_zygote_that_serves_listeners_itself_or_sends_init_others_gets_nothing(hostile, habit, user):
    """Init closes what is no listener and refuses calls of foreign filters; the zygote may receive no call of its own listener."""
    result = run(["/bin/sh", "-c", "ls /proc/self/fd | wc -l; echo ran"], zygote=hostile(habit), user=user, options=("--disk", "16M"))
    assert (result.status, result.stdout.split()[-1:]) == (0, ["ran"]), result.stderr


def test_processes_that_move_into_the_box_are_still_counted(hostile):
    """Where joining is the zygote's own to do, it can put as many into its box as it likes: all of them together are bounded."""
    result = run(COMMAND, zygote=hostile("crowd"))
    assert (result.status, result.stdout) == (0, "ran\n"), result.stderr


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("habit", ["hidden", "unsealed", "capabilities", "early", "inside", "idle"])
def test_an_ordinary_users_keeper_reaps_them_too(hostile, habit, user):
    """It may look at fewer of them: of those that have ended and were not dumpable, the kernel shows it next to nothing."""
    waits = ("--timeout", "300ms") if habit == "idle" else ()
    for _ in range(1 if waits else 3):
        result = run(COMMAND, zygote=hostile(habit), user=user, options=("--disk", "16M", *waits))
        if habit in ("hidden", "early", "inside"):
            assert (result.status, result.stdout) == (0, "ran\n"), result.stderr
        else:
            assert result.status == (124 if habit == "idle" else 125) and result.stdout == ""


@pytest.mark.parametrize("user", USERS)
def test_a_command_of_an_ordinary_user_that_cannot_run_leaves_nothing(plain, user):
    for _ in range(5):
        assert run(["/etc/passwd"], zygote=plain, user=user, options=("--disk", "16M")).status == 126


@pytest.mark.parametrize("habit, word", [("refuse", "zygote's child"), ("flood", "zygote's child"), ("die", "zygote"),
                                         ("mute", "ended before it was ready"), ("garbled", "first word")])
def test_a_zygote_that_breaks_the_protocol_is_told(hostile, habit, word):
    result = run(COMMAND, zygote=hostile(habit))
    assert result.status == 125 and word in result.stderr


def test_a_zygote_that_hangs_is_given_up(hostile):
    result = run(COMMAND, zygote=hostile("hang"))
    assert result.status == 125 and "in time" in result.stderr


def test_a_child_that_never_starts_its_command_meets_the_timeout(hostile):
    result = run(COMMAND, zygote=hostile("idle"), options=(*LIMITS, "--timeout", "300ms"))
    assert result.status == 124 and result.report["outcome"] == "timeout"


def test_a_keeper_that_is_interrupted_while_the_zygote_hangs_leaves_nothing(hostile):
    box = Run(COMMAND, zygote=hostile("hang"))
    box.find("init")
    box.process.kill()
    box.process.communicate(timeout=DEADLINE_S)
    box.report.unlink()
    box.baseline.assert_nothing_left(box.pid)
