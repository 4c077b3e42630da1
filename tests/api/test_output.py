"""A command's output: beginning and end are kept, a live reader gets all of it, and only an explicit limit ends the command."""
import http.client
import json
import socket
import time

import pytest

from support.client import lines
from support.waiting import wait_for

MIB = 1 << 20
KEPT = 10 * MIB                         # defaults.output
NUMBERS = 3_000_000
LINE = f"seq 1 {NUMBERS}"               # 22.9 MB


@pytest.fixture(scope="module")
def numbers():
    return "".join(f"{i}\n" for i in range(1, NUMBERS + 1))


def collect(response):
    """Bytes of both streams in order, the reported gaps, and the last line."""
    got, missed, line = {"stdout": [], "stderr": []}, 0, None
    for line in lines(response):
        if line["type"] in got:
            got[line["type"]].append(line["data"])
        elif line["type"] == "dropped":
            missed += line["stdout_bytes"] + line["stderr_bytes"]
    return {key: "".join(parts) for key, parts in got.items()}, missed, line


def is_beginning_and_end(got, numbers, missing):
    return len(got) + missing == len(numbers) and got == numbers[:KEPT // 2] + numbers[KEPT // 2 + missing:]


def test_much_output_does_not_end_a_command_and_its_beginning_and_end_are_told(run, numbers):
    answer = run(LINE)
    assert (answer["outcome"], answer["exit_code"], answer["output_limit"]) == ("ok", 0, None)
    assert answer["truncated"] and answer["output_bytes"] == len(numbers) and not answer["cut"]
    assert is_beginning_and_end(answer["stdout"], numbers, answer["stdout_dropped_bytes"])
    assert answer["stdout_dropped_at"] == KEPT // 2 and answer["stderr_dropped_bytes"] == 0 and "stderr_dropped_at" not in answer


def test_output_within_the_bound_is_told_whole(run, numbers):
    answer = run(f"{LINE} | head -c {KEPT}")
    assert not answer["truncated"] and answer["stdout"] == numbers[:KEPT] and answer["stdout_dropped_bytes"] == 0
    assert "stdout_dropped_at" not in answer


def test_each_stream_says_what_it_lacks(run, numbers):
    answer = run(f"echo first >&2; {LINE}; echo last >&2")
    assert answer["stderr"] == "first\nlast\n" and answer["stderr_dropped_bytes"] == 0
    seam, missing = answer["stdout_dropped_at"], answer["stdout_dropped_bytes"]
    assert missing > 0 and answer["stdout"] == numbers[:seam] + numbers[seam + missing:]


def test_a_character_at_the_seam_is_not_cut_in_two(run):
    answer = run("yes 'äöü€𝄞' | head -n 2000000")
    assert answer["truncated"] and "stdout_base64" not in answer and "\ufffd" not in answer["stdout"]
    assert len(answer["stdout"].encode()) + answer["stdout_dropped_bytes"] == answer["output_bytes"]


def test_a_background_command_runs_on_and_says_what_its_log_lacks(alice, box, numbers):
    path = f"{box}/exec/{alice.post(box + '/exec', {'shell': LINE + '; exit 3', 'background': True}).json['id']}"
    ended = alice.get(path + "?wait=true").json
    assert (ended["state"], ended["exit_code"], ended["truncated"], ended["output_bytes"]) == ("ended", 3, True, len(numbers))
    got, missed, last = collect(alice.open("GET", path + "/output"))
    assert missed == ended["stdout_dropped_bytes"] > 0 and is_beginning_and_end(got["stdout"], numbers, missed)
    assert last["type"] == "exit" and last["truncated"] and last["stdout_dropped_bytes"] == missed


def test_a_live_reader_gets_every_byte(alice, box, numbers):
    got, missed, last = collect(alice.open("POST", box + "/exec?stream=true", {"shell": f"{LINE}; {LINE} >&2"}))
    assert missed == 0 and got == {"stdout": numbers, "stderr": numbers}
    assert (last["outcome"], last["output_bytes"]) == ("ok", 2 * len(numbers))


def raw_stream(client, method, path, body=None):
    """A connection on which the answer is not read yet."""
    text = json.dumps(body) if body else ""
    s = client.raw_socket()
    who = f"Authorization: Bearer {client.token}\r\n" if client.token else ""
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{who}Connection: close\r\n"
              f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
    return s


def events_of(s):
    """The answer on that connection, to its end."""
    response = http.client.HTTPResponse(s)
    response.begin()
    told = list(lines(response))
    s.close()
    return told


def stands_still(get):
    """The value once two looks, with requests between them, give the same."""
    seen = []
    wait_for(lambda: seen.append(get()) or (len(seen) > 20 and len(set(seen[-20:])) == 1))
    return seen[-1]


def test_a_foreground_command_waits_for_a_reader_that_stops(alice, box, numbers):
    s = raw_stream(alice, "POST", box + "/exec?stream=true", {"shell": f"{LINE}; {LINE}"})
    x = wait_for(lambda: alice.get(box + "/exec").json["execs"])[0]["id"]
    written = lambda: alice.get(f"{box}/exec/{x}").json["output_bytes"]
    wait_for(lambda: written() > KEPT)
    assert stands_still(written) < 2 * len(numbers) and alice.get(f"{box}/exec/{x}").json["state"] == "running"
    told = events_of(s)
    assert "".join(e["data"] for e in told if e["type"] == "stdout") == numbers * 2
    assert told[-1]["outcome"] == "ok" and not [e for e in told if e["type"] == "dropped"]


def test_a_background_command_does_not_wait_for_a_reader_that_stops(alice, box, numbers):
    x = alice.post(box + "/exec", {"shell": f"read go; {LINE}; {LINE}", "background": True, "stdin": True}).json["id"]
    s = raw_stream(alice, "GET", f"{box}/exec/{x}/output?follow=true")
    assert s.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    assert alice.post(f"{box}/exec/{x}/stdin", b"go\n").status == 200
    ended = alice.get(f"{box}/exec/{x}?wait=true").json
    assert ended["outcome"] == "ok" and ended["output_bytes"] == 2 * len(numbers)
    told = events_of(s)
    gaps = [e for e in told if e["type"] == "dropped"]
    got, missed = "".join(e["data"] for e in told if e["type"] == "stdout"), sum(e["stdout_bytes"] for e in gaps)
    assert gaps and len(got) + missed == 2 * len(numbers) and (numbers * 2).endswith(got[-1000:]) and (numbers * 2).startswith(got[:1000])


def test_a_front_that_is_killed_under_output_loses_and_doubles_nothing(server, alice, box, numbers):
    path = f"{box}/exec/{alice.post(box + '/exec', {'shell': LINE + '; echo err >&2; ' + LINE, 'background': True}).json['id']}"

    def written():
        try:
            return alice.get(path).json["output_bytes"]
        except (OSError, KeyError, ValueError):        # no front, or one that is just starting
            return -1
    for most in range(2, 42, 4):
        wait_for(lambda: written() >= most * MIB)
        server.kill("front")
    ended = wait_for(lambda: written() >= 0 and alice.get(path + "?wait=true").json)
    assert (ended["outcome"], ended["output_bytes"]) == ("ok", 2 * len(numbers) + 4)
    got, missed, _ = collect(alice.open("GET", path + "/output"))
    assert got["stderr"] in ("err\n", "") and missed == ended["stdout_dropped_bytes"] + ended["stderr_dropped_bytes"]
    assert ended["stdout_dropped_bytes"] + len(got["stdout"]) == 2 * len(numbers)
    assert is_beginning_and_end(got["stdout"], numbers * 2, ended["stdout_dropped_bytes"])


def test_an_output_limit_that_was_asked_for_ends_the_command_and_is_named(alice, box):
    body = {"shell": "yes", "output_limit": "64k"}
    ways = [alice.post(box + "/exec", body).json, list(lines(alice.open("POST", box + "/exec?stream=true", body)))[-1],
            alice.get(f"{box}/exec/{alice.post(box + '/exec', {**body, 'background': True}).json['id']}?wait=true").json]
    for ended in ways:
        assert (ended["outcome"], ended["output_bytes"], ended["output_limit"]) == ("output_limit", 65536, 65536)
        assert ended["limit"] == {"name": "output_limit", "value": 65536} and not ended["truncated"]
        assert ended["remark"] == "the command was ended after 64k of output (output_limit)"


@pytest.mark.cgroups
@pytest.mark.parametrize("line, outcome, limit, remark", [
    ("head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null", "oom", {"name": "memory", "value": 256 * MIB},
     "the box ran out of memory (limits.memory 256M)"),
    ("head -c 200000000 /dev/zero > /tmp/x", "disk", {"name": "disk", "value": 128 * MIB}, "the box filled its disk (limits.disk 128M)"),
    ("for i in $(seq 100); do sleep 60 & done; exit 1", "pids", {"name": "pids", "value": 64}, "the box reached its limit of 64 processes (limits.pids)"),
])
def test_a_limit_of_the_box_is_named_with_its_size(run, line, outcome, limit, remark):
    ended = run(line)
    assert (ended["outcome"], ended["limit"], ended["remark"]) == (outcome, limit, remark)


def test_a_timeout_is_named_and_what_ends_well_has_no_remark(run):
    late = run("sleep 60", timeout="300ms")
    assert (late["timeout"], late["limit"]) == (0.3, {"name": "timeout", "value": 0.3})
    assert late["remark"] == "the command was ended after 0.3 s (timeout)"
    assert "remark" not in run("true") and "limit" not in run("exit 3") and run("true")["timeout"] is None


def test_waiting_answers_at_the_end_and_leaves_the_command_alone(alice, box):
    x = alice.post(box + "/exec", {"shell": "read x; exit 5", "background": True, "stdin": True}).json["id"]
    gone = raw_stream(alice, "GET", f"{box}/exec/{x}?wait=true")
    gone.close()
    s = raw_stream(alice, "GET", f"{box}/exec/{x}?wait=true")
    assert alice.post(f"{box}/exec/{x}/stdin", b"go\n").status == 200
    answer = b"".join(iter(lambda: s.recv(65536), b""))
    s.close()
    assert b'"exit_code":5' in answer
    assert alice.get(f"{box}/exec/{x}?wait=true").json["exit_code"] == 5 and alice.get(f"{box}/exec/{x}?wait=x").status == 400


def test_a_background_command_waits_for_a_reader_that_reads_slowly(admin, make_box, numbers):
    """Less than a frame in the time after which a reader is given up, but something all the time."""
    box = "/v1/boxes/" + make_box(admin)["id"]
    x = admin.post(box + "/exec", {"shell": f"read go; {LINE}", "background": True, "stdin": True}).json["id"]
    s = raw_stream(admin, "GET", f"{box}/exec/{x}/output?follow=true")
    response = http.client.HTTPResponse(s)
    response.begin()
    assert admin.post(f"{box}/exec/{x}/stdin", b"go\n").status == 200
    written = lambda: admin.get(f"{box}/exec/{x}").json["output_bytes"]
    wait_for(lambda: written() > KEPT)
    until, read = time.monotonic() + 7, []
    while time.monotonic() < until:         # a reader that takes nothing is given up after five seconds
        read.append(response.read(100))
        assert written() < len(numbers)
    told = [json.loads(line) for line in (b"".join(read) + response.read()).splitlines()]
    s.close()
    assert "".join(e["data"] for e in told if e["type"] == "stdout") == numbers and told[-1]["outcome"] == "ok"
