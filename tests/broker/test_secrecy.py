"""Where the value is, and where it is not: while a box works with it, and afterwards."""

import os
import pathlib
import signal
import subprocess

import pytest
from keys import HOST, VALUE, command, variables

from support.processes import children
from support.users import ORDINARY
from support.waiting import wait_for

NEEDLE = VALUE.encode()


def holds(pid, needle=NEEDLE):
    """Whether any readable memory, the environment or the command line of a process has the value."""
    base = pathlib.Path(f"/proc/{pid}")
    try:
        if needle in (base / "environ").read_bytes() or needle in (base / "cmdline").read_bytes():
            return True
        with open(base / "mem", "rb", 0) as memory:
            for line in (base / "maps").read_text().splitlines():
                span, rights = line.split()[:2]
                if "r" not in rights or "[v" in line:
                    continue
                start, end = (int(one, 16) for one in span.split("-"))
                for at in range(start, end, 1 << 24):
                    memory.seek(at)
                    try:
                        if needle in memory.read(min(1 << 24, end - at)):
                            return True
                    except OSError:
                        pass
    except (FileNotFoundError, ProcessLookupError):
        pass
    return False


def family(pid):
    yield pid
    for child in children(pid):
        yield from family(child)


def name_of(pid):
    """"": it has ended meanwhile."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(params=["root", ORDINARY])
def working(request, upstream, shared_programs):
    """A box that has used its key and holds its connection."""
    user = None if request.param == "root" else request.param
    code = f"""
import http.client, os, ssl, time
c = http.client.HTTPSConnection("{HOST}", context=ssl.create_default_context())
for path in ("/leak", "/echo"):
    c.request("GET", path, headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}}); c.getresponse().read()
open("/tmp/x", "w").write(os.environ["API_KEY"]); print("used", flush=True); time.sleep(600)
"""
    process = upstream.world.host.start(*command(user, [], "python3", "-c", code, carrel=shared_programs / "carrel" if user else None), env=variables(), cwd="/",
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout.readline() == "used\n", process.stderr.read()
    yield process
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=30)


def test_only_the_broker_has_the_value(working, upstream):
    pids = {pid: name_of(pid) for pid in family(working.pid)}
    carrel = min(pid for pid, name in pids.items() if name == "carrel")
    below = {pid: pids[pid] for pid in family(carrel)}
    assert {"carrel-broker", "carrel-egress", "python3"} <= set(below.values()), below
    found = {name for pid, name in below.items() if holds(pid)}
    assert found == {"carrel-broker"}, found
    broker = next(pid for pid, name in below.items() if name == "carrel-broker")
    assert NEEDLE not in pathlib.Path(f"/proc/{broker}/environ").read_bytes() + pathlib.Path(f"/proc/{broker}/cmdline").read_bytes()


def test_the_broker_is_confined(working, request):
    broker = next(pid for pid in family(working.pid) if name_of(pid) == "carrel-broker")
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{broker}/status").read_text().splitlines())
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    limits = pathlib.Path(f"/proc/{broker}/limits").read_text()
    assert next(line for line in limits.splitlines() if line.startswith("Max core")).split()[4:6] == ["0", "0"]
    # Not dumpable: its files in /proc belong to root, so no other process of its user reads its memory.
    assert os.stat(f"/proc/{broker}/mem").st_uid == 0
    if request.node.callspec.params["working"] == "root":
        assert status["Uid"].split()[0] == "64996"
    kinds = {os.readlink(one).split(":")[0] for one in pathlib.Path(f"/proc/{broker}/fd").iterdir()}
    assert not any(one.startswith("/") and one not in ("/dev/null",) and not one.startswith("/tmp/pytest") for one in kinds), kinds


def test_a_broker_that_dies_fails_closed_and_the_box_lives(upstream):
    code = f"""
import os, time, urllib.request
def ask():
    request = urllib.request.Request("https://{HOST}/hello", headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}})
    return urllib.request.urlopen(request, timeout=20).read()
print(ask(), flush=True)
input()
try: print(ask())
except OSError as error: print("failed")
print(os.path.exists("/tmp"))
"""
    process = upstream.world.host.start(*command(None, ["-i"], "python3", "-c", code), env=variables(), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout.readline() == "b'hello\\n'\n"
    upstream.requests()
    broker = next(pid for pid in family(process.pid) if name_of(pid) == "carrel-broker")
    os.kill(broker, signal.SIGKILL)
    out, errors = process.communicate("\n", timeout=60)
    assert out == "failed\nTrue\n" and "the process that has its key is not there" in errors, errors
    assert upstream.requests() == []


def test_kills_under_load_leave_nothing(upstream):
    code = f"""
import os, threading, urllib.request
def work():
    for _ in range(200):
        try: urllib.request.urlopen(urllib.request.Request("https://{HOST}/leak", headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}}), timeout=10).read()
        except OSError: pass
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads: one.start()
print("up", flush=True)
for one in threads: one.join()
"""
    for victim in ("carrel-broker", "carrel-egress", "carrel"):
        process = upstream.world.host.start(*command(None, [], "python3", "-c", code), env=variables(), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout.readline() == "up\n"
        pids = list(family(process.pid))
        os.kill(next(pid for pid in pids if name_of(pid) == victim), signal.SIGKILL)
        process.terminate()
        process.communicate(timeout=60)
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), f"everything ends after {victim}")


def test_the_value_is_in_no_file_afterwards(upstream, tmp_path):
    report = tmp_path / "report.json"
    done = upstream.world.host.run(*command(None, ["--report", report, "--trace"], "sh", "-c", f'curl -sS -H "Authorization: Bearer $API_KEY" https://{HOST}/leak'),
                                   env=variables(), check=False, capture_output=True, text=True, cwd="/")  # fmt: skip
    assert done.returncode == 0 and VALUE not in done.stdout + done.stderr + report.read_text()
    found = subprocess.run(["grep", "-rlsF", "--exclude-dir=upstream", VALUE, upstream.world.folder, tmp_path, "/run", "/var/log"], capture_output=True, text=True).stdout
    assert found == ""
