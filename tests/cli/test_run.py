"""carrel run by a server and without one: the same words, the same report, the same exit status."""
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import threading

import pytest

from support import USER as AS
from support.users import ORDINARY as USER
from support.waiting import DEADLINE_S, wait_for

HERE, THERE = (), ("--volume", "kept:/kept:ro")      # what only a server has makes the run its own

pytestmark = pytest.mark.usefixtures("kept")


@pytest.fixture(params=[HERE, THERE], ids=["here", "there"])
def run(request, server):
    def run(*words, **options):
        return server.carrel("run", *request.param, *words, **options)
    return run


def boxes(server, everything=False):
    return json.loads(server.carrel("ps", "--json", "--everybody", *(["-a"] if everything else [])).stdout)


def used_server(server, *words, **options):
    """Whether a run went through the server."""
    before = {b["id"] for b in boxes(server, True)}
    done = server.carrel("run", *words, **options)
    assert done.returncode == 0, done.stderr
    return bool({b["id"] for b in boxes(server, True)} - before)


@pytest.mark.parametrize("words, status, out, error", [
    (("sh", "-c", "echo out; echo err >&2; exit 7"), 7, "out\n", "err\n"),
    (("sh", "-c", "kill -TERM $$"), 143, "", ""),
    (("/no/such/program",), 127, "", "carrel: exec: /no/such/program: No such file or directory\n"),
    (("/etc/passwd",), 126, "", "carrel: exec: /etc/passwd: Permission denied\n"),
    (("--timeout", "200ms", "sleep", "100"), 124, "", "carrel: the command was ended after 0.2 s (--timeout)\n"),
    (("--output-limit", "3", "sh", "-c", "printf 123456; sleep 100"), 137, "123", "carrel: the command was ended after 3 bytes of output (--output-limit)\n"),
    (("--output-limit", "3", "printf", "123456"), 137, "123", "carrel: the command was ended after 3 bytes of output (--output-limit)\n"),
    (("--memory", "1G", "--disk", "512M", "df", "-m", "--output=size", "/tmp"), 0, "1M-blocks\n      512\n", ""),
    (("--memory", "32M", "sh", "-c", "head -c 100000000 /dev/zero | tail -c 90000000"), None, "",
     "carrel: the box ran out of memory (--memory 32M)\n"),
    (("--env", "A=b", "--workdir", "/tmp", "sh", "-c", "echo $A $PWD $HOME $PATH"), 0,
     "b /tmp /home/box /run/carrel/first:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/carrel/bin:/home/box/.local/bin\n", ""),
    (("--user", "12:34", "--hostname", "desk", "sh", "-c", "id -u; id -g; hostname"), 0, "12\n34\ndesk\n", ""),
    (("--profile", "system", "id", "-u"), 0, "0\n", ""),
    (("--writable-root", "--profile", "system", "sh", "-c", "mkdir /usr/x && echo ok"), 0, "ok\n", ""),
    (("--profile", "odd", "true"), 125, "", None),
])
def test_the_same_end(run, words, status, out, error):
    done = run(*words)
    assert done.stdout == out, done.stderr
    assert error is None or (done.stderr.endswith(error) if error else not done.stderr)      # a shell may say "Killed" before
    assert done.returncode == status if status is not None else done.returncode != 0


def test_a_server_may_allow_less_output(make_server):
    small = make_server("--set", "limits.output=64k", "--set", "defaults.output=16k")
    assert small.carrel("volume", "create", "kept", "--size", "16M").returncode == 0
    done = small.carrel("run", *THERE, "head", "-c", "3000000", "/dev/zero")
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 3000000, "")        # more than any limit, but none was set
    refused = small.carrel("run", *THERE, "--output-limit", "65k", "true")
    assert refused.returncode == 125 and "limits.output" in refused.stderr


def test_the_same_report(server, tmp_path):
    line = ("--memory", "64M", "--json", "--report", tmp_path / "r", "sh", "-c", "echo hi; echo oh >&2; exit 3")
    reports = []
    for where in (HERE, THERE):
        done = server.carrel("run", *where, *line)
        assert done.returncode == 3 and done.stderr == ""
        reports.append(json.loads(done.stdout))
        assert json.loads((tmp_path / "r").read_text()).keys() == reports[-1].keys()
    here, there = reports
    assert list(here) == list(there)
    for key in ("outcome", "exit_code", "signal", "stdout", "stderr", "truncated"):
        assert here[key] == there[key], key
    assert set(here["enforced"]) - set(there["enforced"]) == set()
    assert {name: there["enforced"][name] for name in here["enforced"]} == here["enforced"]     # one host, the same means
    assert there["memory_peak_bytes"] > 0


def test_a_failure_has_the_same_report(run):
    done = run("--json", "/no/such/program")
    assert json.loads(done.stdout) == {"outcome": "not_started", "error": {"step": "exec", "errno": 2,
                                                                 "message": "exec: /no/such/program: No such file or directory"}}
    assert done.returncode == 127


def test_what_a_terminal_would_obey_is_escaped_in_json(run):
    done = run("--json", "printf", r"\033[1m \302\23331m \177 \303\251")
    assert json.loads(done.stdout)["stdout"] == "\x1b[1m \x9b31m \x7f \xe9"
    assert not set(done.stdout) & {"\x1b", "\x9b"}


def test_standard_input(run):
    assert run("-i", "wc", "-c", data="x" * 1_000_000).stdout.strip() == "1000000"
    assert run("wc", "-c", data="x").stdout.strip() == "0"
    assert json.loads(run("-i", "--json", "cat", data="abc").stdout)["stdout"] == "abc"


def test_more_output_than_a_server_keeps_by_default(run):
    assert len(run("head", "-c", "12000000", "/dev/zero").stdout) == 12000000


def test_mounts_have_the_callers_rights(run, server, tmp_path):
    (tmp_path / "f").write_text("data")
    assert run("--mount", f"{tmp_path}:/data", "cat", "/data/f").stdout == "data"
    assert run("--mount", f"{tmp_path}:/data:rw", "touch", "/data/g").returncode == 0 and (tmp_path / "g").exists()
    (tmp_path / "link").symlink_to("f")
    assert "symbolic link" in server.carrel("run", "--mount", f"{tmp_path}/link:/data", "true").stderr
    refused = run("--mount", "/root:/x", "ls", "/x", user=USER)
    assert refused.returncode != 0 and "ermission denied" in refused.stderr


@pytest.mark.parametrize("where", [HERE, THERE], ids=["here", "there"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_handed_on(server, where, number):
    trap = "trap 'echo caught; exit 9' INT TERM; echo ready; while :; do sleep 0.01; done"
    process = server.start_carrel("run", *where, "sh", "-c", trap, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.read() == "caught\n" and process.wait(60) == 9
    process.stdout.close()
    plain = server.start_carrel("run", *where, "sh", "-c", "echo ready; sleep 1000", stdout=subprocess.PIPE, text=True)
    assert plain.stdout.readline() == "ready\n"
    plain.send_signal(number)
    assert plain.wait(60) == 128 + number
    plain.stdout.close()


@contextlib.contextmanager
def slow_reader(fd):
    """Reads more slowly than bytes come: the writer is behind on entry, and stays so."""
    some, over = threading.Event(), threading.Event()

    def read():
        with contextlib.suppress(OSError):      # a terminal without a reader at its other end
            seen = 0
            while not over.is_set() and (n := len(os.read(fd, 16))):
                seen += n
                if seen > 500_000:
                    some.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert some.wait(DEADLINE_S)
    try:
        yield
    finally:
        over.set()
        thread.join()


def commands(server):
    return sum(b["execs_running"] for b in server.request("GET", "/v1/boxes?all=true")[1]["boxes"])


@pytest.fixture
def fast(make_server, monkeypatch):
    """A server by TCP, whose buffers are so large that there is always something to read."""
    server = make_server()
    monkeypatch.setenv("CARREL_TOKEN", server.carrel("token", "create", "t").stdout.strip())
    server.url = f"http://127.0.0.1:{server.port}"
    assert server.carrel("volume", "create", "kept", "--size", "16M").returncode == 0
    return server


@pytest.mark.parametrize("line, number", [("yes", None), ("yes", signal.SIGTERM), ("trap '' TERM; yes", signal.SIGTERM)])
def test_keys_and_signals_are_seen_while_output_flows_without_a_pause(fast, line, number):
    ours, theirs = pty.openpty()
    process = fast.start_carrel("run", *THERE, "-t", "sh", "-c", line, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        with slow_reader(ours):
            assert commands(fast) == 1
            process.send_signal(number) if number else os.write(ours, b"\3")
            wait_for(lambda: commands(fast) == 0, "the command is gone")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("where", [HERE, THERE], ids=["here", "there"])
def test_a_terminal(server, where):
    ours, theirs = pty.openpty()
    process = server.start_carrel("run", *where, "-t", "sh", "-c", "tty; read x; echo got $x", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"/dev/pts" not in seen:
        seen += os.read(ours, 1000)
    os.write(ours, b"abc\n")
    while b"got abc" not in seen:
        seen += os.read(ours, 1000)
    assert process.wait(60) == 0
    os.close(ours)


def test_nothing_is_left(server):
    for words in (["true"], ["/no/such/program"], ["--timeout", "100ms", "sleep", "9"], ["--json", "true"]):
        server.carrel("run", *THERE, *words)
        assert boxes(server) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_client_that_is_killed_leaves_no_box(server, number):
    process = server.start_carrel("run", *THERE, "sh", "-c", "trap '' TERM INT; echo ready; while :; do sleep 1; done", stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n" and len(boxes(server)) == 1
    process.send_signal(number)
    process.wait(60)
    process.stdout.close()
    wait_for(lambda: boxes(server) == [], "the box is gone")


def test_only_what_a_server_alone_has_makes_a_run_the_servers(server, tmp_path):
    assert not used_server(server, "true") and not used_server(server, "true", user=USER)
    assert used_server(server, *THERE, "true")
    for words, what in ((("--root", "/", "true"), "--root"), (("--trace", "true"), "--trace"), (("--memory", "64M", "--disk", "128M", "true"), "--disk")):
        refused = server.carrel("run", *THERE, *words)
        assert refused.returncode == 125 and refused.stderr.startswith("carrel: --volume is a server's") and what in refused.stderr
    for option in ("--server", "--local"):
        refused = server.carrel("run", option, "true")
        assert refused.returncode == 125 and f"unknown option {option}; 'carrel run' makes its box itself" in refused.stderr
    nobody = {"CARREL_URL": f"unix:{tmp_path}/none"}
    assert server.carrel("run", "echo", "alone", environment=nobody).stdout == "alone\n"
    alone = server.carrel("run", *THERE, "true", environment=nobody)
    assert alone.returncode == 125 and re.search("no server answers", alone.stderr)


@pytest.mark.skipif(bool(AS), reason="only a server with cgroups guarantees memory")
def test_memory_that_is_guaranteed_makes_a_run_the_servers(server):
    words = "--memory", "64M", "--request-memory", "32M", "sh", "-c", "echo hi"
    assert used_server(server, *words)
    assert server.carrel("plan", *words).stderr == "carrel: carrel plan runs nothing and has no --request-memory; leave it out\n"


def test_what_the_server_refuses_stays_refused(make_server):
    server = make_server("--set", "quota.boxes=1", "--set", "limits.memory=512M")
    assert server.carrel("volume", "create", "kept", "--size", "16M").returncode == 0
    assert server.carrel("create").returncode == 0
    refused = server.carrel("run", *THERE, "true")
    assert refused.returncode == 125 and "may have 1 boxes" in refused.stderr and refused.stdout == ""
    server.clear()
    refused = server.carrel("run", *THERE, "--json", "--memory", "1G", "true")
    assert refused.returncode == 125 and json.loads(refused.stdout)["outcome"] == "not_started"
    assert "limits.memory" in json.loads(refused.stdout)["error"]["message"]
