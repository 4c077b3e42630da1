"""Standard input, output and error."""
import hashlib
import os
import subprocess
import threading
import time

from support.boxes import started
from runner import DEADLINE, world

BIG = 50 << 20
GENERATE = "import sys\nblock = bytes(range(256)) * 256\nfor i in range(%d): sys.stdout.buffer.write(i.to_bytes(8, 'big') + block)"


def big_data(rounds):
    block = bytes(range(256)) * 256
    return b"".join(i.to_bytes(8, "big") + block for i in range(rounds))


def test_the_output_of_a_fast_command_is_never_lost(caller):
    for _ in range(30):
        assert caller.run(["echo", "hi"]).stdout == b"hi\n"


def test_the_output_of_a_fast_command_is_never_lost_in_a_file(caller):
    path = caller.home / "out"
    for _ in range(20):
        with open(path, "wb") as file:
            caller.run(["sh", "-c", "echo out; echo err >&2"], stdout=file, stderr=file)
        assert sorted(path.read_text().split()) == ["err", "out"]


def test_a_slow_reader_gets_everything(caller):
    """All of it fits into pipes, so the command has ended long before the first byte is read."""
    for size in (70000, 100000, 130000, 190000):
        process = caller.start("run", "--", "head", "-c", str(size), "/dev/zero")
        end = time.monotonic() + 0.2
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.01)
        assert len(process.communicate(timeout=DEADLINE)[0]) == size


def test_fifty_megabytes_out(caller):
    rounds = BIG // 65544
    result = caller.run(["/usr/bin/python3", "-c", GENERATE % rounds])
    assert result.status == 0 and hashlib.sha256(result.stdout).digest() == hashlib.sha256(big_data(rounds)).digest()


def test_fifty_megabytes_in(caller):
    data = big_data(BIG // 65544)
    result = caller.run("-i", ["sha256sum"], data=data)
    assert result.text.split()[0] == hashlib.sha256(data).hexdigest()


def test_fifty_megabytes_through(caller):
    data = big_data(BIG // 65544)
    result = caller.run("-i", ["cat"], data=data)
    assert result.status == 0 and result.stdout == data


def test_a_file_as_standard_input(caller):
    path = caller.file(caller.home / "input", os.urandom(3000000))
    with open(path, "rb") as file:
        process = caller.start("run", "-i", "--", "sha256sum", stdin=file)
        assert process.communicate(timeout=DEADLINE)[0].split()[0].decode() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_without_i_standard_input_is_empty(caller):
    result = caller.run(["cat"], data=b"for nobody")
    assert result.status == 0 and result.stdout == b""


def test_streams_stay_apart(caller):
    result = caller.sh("for i in $(seq 100); do echo o$i; echo e$i >&2; done")
    assert result.text.split() == [f"o{i}" for i in range(1, 101)] and result.complaint.split() == [f"e{i}" for i in range(1, 101)]


def test_output_comes_when_it_is_written(caller):
    process = caller.start("run", "-i", "--", "sh", "-c", "echo one; read x; echo $x; read x; echo $x", stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"one\n"
    for word in (b"two\n", b"three\n"):
        process.stdin.write(word)
        process.stdin.flush()
        assert process.stdout.readline() == word
    assert process.wait(DEADLINE) == 0


def test_a_command_that_closes_its_input_does_not_block_the_writer(caller):
    result = caller.run("-i", ["head", "-c", "10"], data=b"x" * 5000000)
    assert result.status == 0 and result.stdout == b"x" * 10


def test_a_command_that_ends_does_not_wait_for_input(caller):
    process = caller.start("run", "-i", "--", "true", stdin=subprocess.PIPE)
    assert process.wait(DEADLINE) == 0


def test_when_nobody_reads_the_writer_hears_it(caller):
    process = caller.start("run", "--", "yes")
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(DEADLINE) == 128 + 13


def test_a_pipeline_in_the_box_ends_quietly(caller):
    result = caller.sh("yes | head -1")
    assert result.status == 0 and result.stdout == b"y\n" and result.stderr == b""


def test_a_grandchild_that_holds_the_output_does_not_delay(caller):
    result = caller.sh("sleep 1000 & setsid sleep 1000 & echo done")
    assert result.status == 0 and result.stdout == b"done\n"


def shell(caller, words):
    """carrel from a shell, as one line."""
    identity = {"user": caller.uid, "group": caller.gid, "extra_groups": []} if caller.user else {}
    process = subprocess.Popen(["sh", "-c", f"exec {world().carrel} {words}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd=caller.home, env=caller.environment, **identity)
    started.append(process)
    return process


def test_closed_descriptors_are_no_surprise(caller):
    report = caller.home / "report"
    for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"):
        report.unlink(missing_ok=True)
        process = shell(caller, f"run -i --report {report} -- sh -c 'cat; echo out; echo err >&2; ls /proc/self/fd | wc -l >/tmp/n; exit 5' {closed}")
        stdout, stderr = process.communicate(timeout=DEADLINE)
        assert process.returncode == 5 and report.exists(), (closed, stderr)
        assert stdout == (b"" if ">&- " in closed + " " and "2>&-" != closed else b"out\n"), (closed, stdout)
        assert stderr == (b"" if "2>&-" in closed else b"err\n"), (closed, stderr)


def test_no_terminal_and_no_session(caller):
    process = caller.start("run", "-i", "--", "sh", "-c", "cat; echo done", start_new_session=True)
    assert process.communicate(timeout=DEADLINE)[0] == b"done\n" and process.returncode == 0


def test_a_full_pipe_and_a_deadline(caller):
    """The reader sleeps; carrel's timeout must work all the same."""
    process = caller.start("run", "--timeout", "300ms", "--", "yes")
    reader = threading.Thread(target=lambda: (time.sleep(1), process.communicate()))
    reader.start()
    reader.join(DEADLINE)
    assert not reader.is_alive() and process.returncode == 124


def test_a_reader_that_never_reads_can_be_left(caller):
    """The command has ended, its last output cannot be delivered, and carrel gets a signal to end."""
    process = caller.start("run", "--", "head", "-c", "120000", "/dev/zero")
    begin = time.monotonic()
    while time.monotonic() - begin < 0.3:
        time.sleep(0.01)
    process.terminate()
    assert process.wait(DEADLINE) != 125


def test_output_to_a_full_device_is_told_or_ends_the_command(caller):
    with open("/dev/full", "wb") as full:
        process = caller.start("run", "--", "sh", "-c", "echo lost; sleep 0.2; echo lost; exit 0", stdout=full)
        assert process.wait(DEADLINE) in (0, 1, 125, 141)


def test_the_report_can_go_to_a_pipe(root):
    process = shell(root, "run --report /dev/fd/3 -- echo out 3>&1 >/dev/null")
    stdout = process.communicate(timeout=DEADLINE)[0]
    assert process.returncode == 0 and b'"outcome":"ok"' in stdout
