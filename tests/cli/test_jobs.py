"""Commands in the background: jobs, logs, wait, kill; and messages about limits and dropped output."""
import json
import re
import subprocess

import pytest

from support.waiting import wait_for

MUCH = "seq 1 3000000"      # 22.9 MB
NUMBERS = "".join(f"{i}\n" for i in range(1, 3000001))


def start(server, box, line, *options):
    made = server.carrel("exec", "-d", *options, box, "--", "sh", "-c", line)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.mark.parametrize("way", ["exec", "follow"])
def test_a_reader_at_the_command_line_gets_every_byte_of_much_output(server, box, way):
    words = ("exec", box, "--", "sh", "-c", MUCH) if way == "exec" else ("logs", "-f", box, start(server, box, "sleep 0.5; " + MUCH))
    done = server.carrel(*words)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == NUMBERS


def test_logs_say_what_was_left_out_and_end_with_the_commands_status(server, box):
    job = start(server, box, MUCH + "; exit 3")
    assert server.carrel("wait", box, job).returncode == 3
    done = server.carrel("logs", box, job)
    assert done.returncode == 3 and done.stdout == NUMBERS[:5 << 20] + NUMBERS[-(len(done.stdout) - (5 << 20)):]
    assert done.stderr == f"\ncarrel: … {(len(NUMBERS) - len(done.stdout)) / 1e6:.1f} MB of output left out …\n"
    told = [json.loads(line) for line in server.carrel("logs", "--json", box, job).stdout.splitlines()]
    gap = next(event for event in told if event["type"] == "dropped")
    assert gap["stdout_bytes"] == told[-1]["stdout_dropped_bytes"] == len(NUMBERS) - len(done.stdout) and told[-1]["truncated"]


def test_logs_and_wait_mean_the_newest_command_in_the_background(server, box):
    none = server.carrel("logs", box)
    assert none.returncode == 125 and "carrel exec -d" in none.stderr
    start(server, box, "echo old; exit 5")
    start(server, box, "echo new; exit 6")
    assert server.carrel("exec", box, "echo", "foreground").stdout == "foreground\n"
    assert server.carrel("wait", box).returncode == 6
    done = server.carrel("logs", box)
    assert (done.stdout, done.returncode) == ("new\n", 6)


def test_logs_of_a_command_that_runs_are_no_failure(server, box):
    job = start(server, box, "echo so far; exec sleep 1000")
    wait_for(lambda: server.carrel("logs", box, job).stdout == "so far\n")
    assert server.carrel("logs", box, job).returncode == 0


def test_jobs_lists_what_runs_and_what_has_ended(server, box):
    ended, running = start(server, box, "exit 4"), start(server, box, "exec sleep 1000")
    assert server.carrel("wait", box, ended).returncode == 4
    assert server.carrel("exec", box, "true").returncode == 0
    wait_for(lambda: "running" in server.carrel("jobs", box).stdout)
    rows = [re.split(r"\s{2,}", line) for line in server.carrel("jobs", box).stdout.splitlines()]
    assert rows[0] == ["JOB", "STATE", "STATUS", "AGE", "COMMAND"]
    assert [(row[0], row[1], row[2], row[4]) for row in rows[1:]] == [
        (running, "running", "-", "sh -c exec sleep 1000"), (ended, "error", "4", "sh -c exit 4")]
    assert server.carrel("jobs", "-q", box).stdout.split() == [running, ended]
    assert len(server.carrel("jobs", "-a", "-q", box).stdout.split()) == 3
    assert [job["id"] for job in json.loads(server.carrel("jobs", "--json", box).stdout)] == [running, ended]


@pytest.mark.parametrize("words, status", [((), 143), (("KILL",), 137), (("sigint",), 130), (("9",), 137)])
def test_kill_sends_a_signal_and_wait_gives_its_status(server, box, words, status):
    job = start(server, box, "exec sleep 1000")
    wait_for(lambda: "running" in server.carrel("jobs", box).stdout)
    waiting = server.start_carrel("wait", box, job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert server.carrel("kill", box, job, *words).returncode == 0
    assert waiting.wait(60) == status
    late = server.carrel("kill", box, job)
    assert late.returncode == 125 and "has ended" in late.stderr


@pytest.mark.parametrize("words, says", [
    (("kill", "one"), "which command"), (("kill", "one", "x", "NONSENSE"), ""), (("wait",), "which box"), (("jobs",), "which box"),
    (("wait", "one", "../x"), "not the id"), (("wait", "one", "xnone"), ""), (("jobs", "nosuch"), "no box 'nosuch'"),
])
def test_bad_input_is_told(server, box, words, says):
    done = server.carrel(*words)
    assert done.returncode == 125 and says in done.stderr and done.stderr.startswith("carrel: ")


def test_an_output_limit_that_was_asked_for_is_told_everywhere(server, box):
    said = "carrel: the command was ended after 64k of output (--output-limit)\n"
    done = server.carrel("exec", "--output-limit", "64k", box, "yes")
    assert (done.returncode, len(done.stdout), done.stderr) == (137, 65536, said)
    job = start(server, box, "yes", "--output-limit", "64k")
    for words in (("wait", box, job), ("logs", box, job), ("logs", "-f", box, job)):
        done = server.carrel(*words)
        assert (done.returncode, done.stderr) == (137, said)


@pytest.mark.cgroups
@pytest.mark.parametrize("options, line, status, says", [
    (("--memory", "64M"), "head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null", None, "the box ran out of memory (--memory 64M)"),
    (("--disk", "1M"), "head -c 2000000 /dev/zero >/tmp/x", 1, "the box filled its disk (--disk 1M)"),
    (("--pids", "16"), "for i in $(seq 40); do sleep 60 & done; exit 1", 2, "the box reached its limit of 16 processes (--pids)"),
])
def test_exec_names_the_limit_that_held_as_run_does(server, options, line, status, says):
    assert server.carrel("create", "--name", "small", *options).returncode == 0
    done = server.carrel("exec", "small", "--", "sh", "-c", line)
    assert done.stderr.endswith(f"carrel: {says}\n") and (done.returncode == status if status else done.returncode != 0), done
    job = start(server, "small", line)
    assert server.carrel("wait", "small", job).stderr.endswith(f"carrel: {says}\n")
    told = json.loads(server.carrel("exec", "--json", "small", "--", "sh", "-c", line).stdout)
    assert told["remark"] == re.sub(r"--(\w+)", r"limits.\1", says)


def test_exec_names_its_timeout(server, box):
    done = server.carrel("exec", "--timeout", "200ms", box, "sleep", "30")
    assert (done.returncode, done.stderr) == (124, "carrel: the command was ended after 0.2 s (--timeout)\n")
