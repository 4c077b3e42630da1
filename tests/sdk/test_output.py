"""Much output, and limits that held, as a Python program sees them."""
import pytest

import carrel as sdk
from carrel import event_bytes
from support.waiting import wait_for

MUCH = "seq 1 3000000"      # 22.9 MB
NUMBERS = "".join(f"{i}\n" for i in range(1, 3000001)).encode()


def is_beginning_and_end(said):
    missing = said.stdout_dropped_bytes
    return said.truncated and missing > 0 and said.stdout_bytes == NUMBERS[:5 << 20] + NUMBERS[(5 << 20) + missing:]


@pytest.mark.parametrize("stdin", [None, b""])
def test_much_output_does_not_end_a_command_and_the_result_says_what_is_missing(box, stdin):
    done = box.exec(MUCH, stdin=stdin)
    assert done.ok and done.exit_code == 0 and is_beginning_and_end(done) and done.stdout == done.stdout_bytes.decode()
    assert f"\n… {done.stdout_dropped_bytes / 1e6:.1f} MB of output left out …\n" in done.shown() and "left out" not in done.stdout
    assert box.exec("echo hi").shown() == "hi\n" and not box.exec("echo hi").truncated


def test_a_command_in_the_background_keeps_beginning_and_end(box):
    command = box.spawn(MUCH + "; exit 3")
    done = command.wait()
    assert (done.outcome, done.exit_code) == ("error", 3) and is_beginning_and_end(done)
    logs = box.get_exec(command.id).logs()
    assert isinstance(logs, sdk.ExecLogs) and is_beginning_and_end(logs) and "of output left out" in str(logs)


def test_logs_of_a_command_that_runs(box):
    command = box.spawn("echo so far; echo oh >&2; exec sleep 1000")
    wait_for(lambda: command.logs().stderr == "oh\n")
    logs = command.logs()
    assert (logs.stdout, logs.truncated, str(logs)) == ("so far\n", False, "so far\noh\n")
    command.signal("TERM")
    assert command.wait().exit_code == 143


def test_a_stream_has_every_byte(box):
    events = list(box.exec_stream(MUCH))
    assert b"".join(event_bytes(e) for e in events if e["type"] == "stdout") == NUMBERS and events[-1]["outcome"] == "ok"


@pytest.mark.cgroups
def test_a_limit_is_named_with_its_size_in_the_words_of_the_sdk(carrel):
    with carrel.create(memory="64M", disk="1M", pids=16) as box:
        full = box.exec("head -c 2000000 /dev/zero >/tmp/x")
        assert full.reason == "the box filled its disk (disk 1M); exit code 1"
        box.exec("rm /tmp/x", check=True)
        crowd = box.exec("for i in $(seq 40); do sleep 60 & done; exit 1")
        assert crowd.reason.startswith("the box reached its limit of 16 processes (pids); ")
        bomb = box.exec(["python3", "-c", "x = b'x' * 10**9"])
        assert bomb.reason.startswith("the box ran out of memory (memory 64M); ")
        with pytest.raises(sdk.ExecFailed, match="memory 64M"):
            bomb.check()
