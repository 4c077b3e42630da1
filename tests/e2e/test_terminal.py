"""-t: a terminal of the box's own, driven through a pty as a person would."""
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios

import pytest

from runner import DEADLINE, read_until


class Terminal:
    """A pty; carrel gets the other side, as its controlling terminal or only as its streams."""

    def __init__(self, rows=24, columns=80):
        self.master, self.side = pty.openpty()
        self.resize(rows, columns)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def start(self, caller, *words, controlling=True):
        side = self.side

        def take():
            os.setsid()
            if controlling:
                fcntl.ioctl(side, termios.TIOCSCTTY, 0)
        if caller.user:
            os.fchown(side, caller.uid, -1)
        return caller.start("run", *words, stdin=side, stdout=side, stderr=side, preexec_fn=take)

    def write(self, data):
        os.write(self.master, data)

    def wait_for(self, text):
        return read_until(self.master, text)

    def close(self):
        for fd in (self.master, self.side):
            try:
                os.close(fd)
            except OSError:
                pass


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    made.close()


def test_the_command_has_a_terminal_of_the_boxs_own(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "tty; test -t 0 && test -t 1 && test -t 2 && echo all; stty size; exit 6")
    got = terminal.wait_for(b"24 80")
    assert process.wait(DEADLINE) == 6
    assert b"/dev/pts/0" in got and b"all" in got


def test_the_terminal_is_resized_with_ours(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done")
    terminal.wait_for(b"ready")
    terminal.resize(50, 132)
    terminal.wait_for(b"50 132")
    terminal.write(b"\x03")
    assert process.wait(DEADLINE) == 130


def test_keys_reach_the_command(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "echo ready; read x; echo got-$x-$((6*7))")
    terminal.wait_for(b"ready")
    terminal.write(b"word\r")
    terminal.wait_for(b"got-word-42")
    assert process.wait(DEADLINE) == 0


def test_control_c_means_what_it_means(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.02; done")
    terminal.wait_for(b"ready")
    terminal.write(b"\x03")
    terminal.wait_for(b"interrupted")
    assert process.wait(DEADLINE) == 9


def test_control_d_means_what_it_means(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "echo ready; cat; echo end-$?")
    terminal.wait_for(b"ready")
    terminal.write(b"\x04")
    terminal.wait_for(b"end-0")
    assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize("how", ["exit 0", "exit 3", "kill -9 $$"])
def test_our_terminal_is_as_before_afterwards(caller, terminal, how):
    before = termios.tcgetattr(terminal.side)
    process = terminal.start(caller, "-it", "--", "sh", "-c", f"stty raw -echo; {how}")
    process.wait(DEADLINE)
    assert termios.tcgetattr(terminal.side) == before


def test_our_terminal_is_as_before_after_a_timeout(caller, terminal):
    before = termios.tcgetattr(terminal.side)
    process = terminal.start(caller, "-it", "--timeout", "300ms", "--", "sleep", "1000")
    assert process.wait(DEADLINE) == 124
    assert termios.tcgetattr(terminal.side) == before


def test_a_terminal_that_goes_away_ends_the_command(caller):
    for words in (("-it", "--", "sh", "-c", "echo ready; sleep 1000"), ("-i", "--", "sh", "-c", "echo ready; sleep 1000")):
        one = Terminal()
        process = one.start(caller, *words)
        one.wait_for(b"ready")
        one.close()
        assert process.wait(DEADLINE) in (129, 128 + 9, 128 + 1, 0, 1), words


def test_a_terminal_that_goes_away_without_a_signal_ends_a_command_that_writes(caller):
    one = Terminal()
    process = one.start(caller, "-it", "--", "yes", controlling=False)
    one.wait_for(b"y\r\ny")
    one.close()
    assert process.wait(DEADLINE) is not None


def test_a_lot_of_output_through_a_terminal(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "seq 20000; echo the-end")
    got = terminal.wait_for(b"the-end")
    assert process.wait(DEADLINE) == 0
    assert got.replace(b"\r", b"").split()[:20000] == [str(i).encode() for i in range(1, 20001)]


def test_t_without_a_terminal_of_ours(caller):
    """Output comes through, and the end of our input is the end of the command's."""
    result = caller.run("-t", ["sh", "-c", "test -t 1 && echo terminal; exit 4"])
    assert result.status == 4 and result.stdout == b"terminal\r\n"
    result = caller.run("-it", ["cat"], data=b"a line\n")
    assert result.status == 0 and b"a line" in result.stdout
    assert caller.run("-t", ["cat"]).status == 0


def test_a_box_cannot_take_all_terminals_of_the_host(caller):
    script = "import os\nn = 0\ntry:\n    while n < 200:\n        os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)\n        n += 1\nexcept OSError:\n    pass\nprint(n)"
    result = caller.run("-t", ["python3", "-c", script])
    assert result.status == 0 and int(result.stdout) == 63, result      # and its own


def test_a_missing_command_with_a_terminal_is_told(caller, terminal):
    for _ in range(5):
        process = terminal.start(caller, "-it", "--", "/not/there")
        assert process.wait(DEADLINE) == 127
    assert b"/not/there" in terminal.wait_for(b"not/there")


def test_kill_of_carrel_with_a_terminal_leaves_nothing(caller, terminal):
    process = terminal.start(caller, "-it", "--", "sh", "-c", "trap '' HUP; echo ready; sleep 1000")
    terminal.wait_for(b"ready")
    process.send_signal(signal.SIGKILL)
    assert process.wait(DEADLINE) == -9


def test_input_that_is_at_its_end_ends_every_reader_of_the_terminal(caller):
    """Each cat takes an end of file of its own; a shell may lose one while it sets up its terminal."""
    for words in (["sh", "-c", "cat; cat; cat; echo done"], ["bash"]):
        process = caller.start("run", "-t", "--", *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0 and (b"done" in out or words == ["bash"]), out
