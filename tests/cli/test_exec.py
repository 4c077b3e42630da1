import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import fcntl

import pytest

from support.waiting import wait_for


@pytest.mark.parametrize("line, status", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_the_exit_status_is_the_commands(server, box, line, status):
    assert server.carrel("exec", box, "--", "sh", "-c", line).returncode == status


@pytest.mark.parametrize("command, status", [("nosuch", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_run_is_told_apart(server, box, command, status):
    result = server.carrel("exec", box, command)
    assert result.returncode == status and command in result.stderr


def test_a_timeout_is_124(server, box):
    result = server.carrel("exec", "--timeout", "200ms", box, "sleep", "30")
    assert result.returncode == 124 and "--timeout" in result.stderr


def test_streams_stay_apart_and_bytes_stay_as_they_are(server, box):
    result = server.carrel("exec", box, "--", "sh", "-c", "printf 'a\\377\\000b'; echo e >&2", text=False)
    assert (result.stdout, result.stderr) == (b"a\xff\0b", b"e\n")


def test_much_output_arrives_whole(server, box):
    result = server.carrel("exec", "--output-limit", "64M", box, "--", "seq", "1000000")
    assert result.stdout == "".join(f"{n}\n" for n in range(1, 1000001))


def test_output_limit_ends_the_command(server, box):
    result = server.carrel("exec", "--output-limit", "100k", box, "yes")
    assert result.returncode == 137 and "--output-limit" in result.stderr


def test_options_may_stand_on_both_sides_of_the_box(server, box):
    assert server.carrel("exec", "-e", "A=1", box, "-e", "B=2", "--", "sh", "-c", "echo $A$B").stdout == "12\n"
    assert server.carrel("exec", box, "echo", "-n", "x").stdout == "x"


def test_json_has_outcome_bill_and_output(server, box):
    result = server.carrel("exec", "--json", box, "--", "sh", "-c", "echo hi; exit 3")
    report = json.loads(result.stdout)
    assert result.returncode == 3
    assert (report["outcome"], report["exit_code"], report["stdout"]) == ("error", 3, "hi\n")
    assert report["wall_ms"] > 0


def test_standard_input_is_handed_on_with_i(server, box):
    data = os.urandom(3 << 20)
    result = server.carrel("exec", "-i", box, "--", "cat", data=data, text=False)
    assert result.returncode == 0 and result.stdout == data


def test_a_command_that_does_not_read_its_input_ends(server, box):
    assert server.carrel("exec", "-i", box, "true", data=b"x" * (8 << 20), text=False).returncode == 0


def test_without_i_there_is_no_input(server, box):
    assert server.carrel("exec", box, "cat", data="x").stdout == ""


def test_background_and_logs(server, box):
    exec_id = server.carrel("exec", "-d", box, "--", "sh", "-c", "echo one; echo two >&2").stdout.strip()
    assert exec_id.startswith("x")
    shown = server.carrel("logs", "-f", box, exec_id)
    assert (shown.stdout, shown.stderr) == ("one\n", "two\n")
    assert server.carrel("logs", box).stdout == "one\n"


def test_a_signal_is_handed_on(server, box):
    running = server.start_carrel("exec", box, "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done",
                                  stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=60)[0] == "caught\n" and running.returncode == 9


def test_a_client_that_is_killed_takes_its_command_along(server, box):
    running = server.start_carrel("exec", box, "--", "sh", "-c", "echo ready; sleep 1000", stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "ready\n"
    running.kill()
    running.communicate()
    wait_for(lambda: server.request("GET", f"/v1/boxes/{box}")[1]["execs_running"] == 0, "the command is gone")


def fill_pipe(running):
    """Its output is not read, until the pipe is full."""
    def is_full():
        waiting = struct.unpack("i", fcntl.ioctl(running.stdout, termios.FIONREAD, b"\0" * 4))[0]
        return waiting > fcntl.fcntl(running.stdout, 1032) - 8192      # F_GETPIPE_SZ; what goes in is at most PIPE_BUF at once
    wait_for(is_full, "the pipe is full")


@contextlib.contextmanager
def started(server, box, *command, **pipes):
    """Ended at the latest with the test; then nothing of it runs in the box."""
    running = server.start_carrel(*command, stdout=subprocess.PIPE, **pipes)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()
    wait_for(lambda: server.request("GET", f"/v1/boxes/{box}")[1]["execs_running"] == 0, "the command is gone")


@pytest.mark.parametrize("command", [("exec", "one", "--", "yes"), ("run", "--volume", "kept:/kept:ro", "--", "yes")])
def test_a_signal_counts_while_nobody_reads_the_output(server, kept, box, command):
    with started(server, box, *command) as running:
        fill_pipe(running)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143


def test_the_second_signal_ends_it_all_also_while_nobody_reads(server, box):
    with started(server, box, "exec", box, "--", "sh", "-c", "trap '' INT; echo trapped >&2; exec yes", stderr=subprocess.PIPE) as running:
        assert running.stderr.readline() == b"trapped\n"
        fill_pipe(running)
        running.send_signal(signal.SIGINT)
        pending = lambda: int(re.search(r"ShdPnd:\s*(\w+)", pathlib.Path(f"/proc/{running.pid}/status").read_text())[1], 16)
        wait_for(lambda: pending() == 0, "the first one is taken")
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130


def test_a_signal_ends_a_report_that_nobody_reads(server, kept):
    running = server.start_carrel("run", "--volume", "kept:/kept:ro", "--json", "--", "seq", "100000", stdout=subprocess.PIPE)
    try:
        fill_pipe(running)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("away", ["gone", "deaf"])
def test_a_signal_ends_the_client_of_a_server_that_does_not_answer(make_server, away):
    server = make_server()
    assert server.carrel("create", "--name", "one").returncode == 0
    running = server.start_carrel("exec", "one", "--", "sh", "-c", "echo ready; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    front = server.child("front")
    stopped = server.process.pid if away == "gone" else front      # who would start another front
    try:
        assert running.stdout.readline() == "ready\n"
        os.kill(stopped, signal.SIGSTOP)
        if away == "gone":
            os.kill(front, signal.SIGKILL)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143
    finally:
        os.kill(stopped, signal.SIGCONT)
        running.kill()
        running.communicate()
    wait_for(server.is_ready, "the server is there again")


class Terminal:
    """A carrel in a terminal of its own."""

    def __init__(self, server, *words):
        self.master, slave = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(self.master)
        self.process = server.start_carrel(*words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                           preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.text = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, text, seconds=60):
        deadline = time.monotonic() + seconds
        while text.encode() not in self.text:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], (text, self.text)
            try:
                self.text += os.read(self.master, 65536)
            except OSError:
                break
        before, found, self.text = self.text.partition(text.encode())
        assert found, before
        return before

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(server, box):
    made = []

    def open_terminal(*words):
        made.append(Terminal(server, *words))
        return made[-1]

    yield open_terminal
    for it in made:
        it.end()


def test_a_terminal_has_the_size_of_ours_and_follows_it(terminal, box):
    t = terminal("exec", "-it", box, "--", "sh", "-c", "trap 'stty size' WINCH; stty size; echo ready; while :; do sleep 0.05; done")
    t.expect("30 100")
    t.expect("ready")
    t.resize(41, 77)
    t.expect("41 77")


def test_a_shell_in_a_terminal(terminal, box):
    t = terminal("shell", box)
    t.type("echo $((6*7)); tty\n")
    t.expect("42")
    t.expect("/dev/pts/")
    t.type("exit 5\n")
    assert t.process.wait(60) == 5


def test_ctrl_c_is_the_commands_and_the_terminal_is_restored(terminal, box):
    t = terminal("shell", box)
    # The speaking process is the one to interrupt: between two commands a shell may miss the key.
    t.expect("$ ")
    t.type("sh -c 'echo on$((1+1)); exec sleep 100'\n")
    t.expect("on2")
    t.type("\x03")
    t.expect("$ ")
    t.type("echo after $((1+1))\n")
    t.expect("after 2")
    t.expect("$ ")
    t.type("exit\n")
    t.process.wait(60)
    after = termios.tcgetattr(t.master)
    assert after == t.before and after[3] & termios.ICANON


def test_a_shell_without_a_terminal_reads_a_script(server, box):
    result = server.carrel("shell", box, data="echo $((20+1))\nexit 3\n")
    assert result.returncode == 3 and result.stdout == "21\n"


def test_user_of_its_own(server, box):
    assert server.carrel("exec", "--user", "42:43", box, "id", "-u").stdout == "42\n"
    assert server.carrel("exec", "-u", "42:43", box, "id", "-g").stdout == "43\n"
    assert server.carrel("shell", "--user", "42", box, data="id -u\n").stdout == "42\n"
    refused = server.carrel("exec", "--user", "nobody", box, "id")
    assert refused.returncode == 125 and "--user" in refused.stderr


@pytest.mark.parametrize("line", [("cat; cat; echo done",), None], ids=["two readers", "bash"])
def test_input_that_is_at_its_end_ends_every_reader_of_a_terminal(server, box, line):
    words = ["sh", "-c", *line] if line else ["bash"]
    done = server.carrel("exec", "-it", box, "--", *words)
    assert done.returncode == 0 and (not line or "done" in done.stdout), done
