"""Limits, outcomes, reports and cleanup of `carrel run` on a pure cgroup v2 host, as root and as an ordinary user.

Meant for the emulated machine of proof-qemu, but nothing in it depends on that: it runs wherever /sys/fs/cgroup is a v2
tree. The machine is slow, so no test asserts how fast something is; the deadlines only keep a hang from lasting.
"""

import json
import os
import signal
import subprocess
import time

import pytest

CARREL = os.environ.get("CARREL", "build/carrel")
CGROUPS = "/sys/fs/cgroup"
MIB = 1 << 20
DEADLINE = 120

pytestmark = pytest.mark.skipif(not os.path.exists(f"{CGROUPS}/cgroup.controllers"), reason="not a pure cgroup v2 host")


def carrel(*args, **kwargs):
    return subprocess.run([CARREL, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
                          **kwargs)


def report(*args):
    """The report of `carrel run --json`, with the exit status of carrel as "status"."""
    done = carrel("run", "--json", *args)
    assert done.stdout, f"no report: {done.stderr}"
    found = json.loads(done.stdout)
    assert "error" not in found, found["error"]
    return found | {"status": done.returncode}


def python(code):
    return ["--", "/usr/bin/python3", "-I", "-S", "-c", code]


def leaves():
    return {os.path.join(where, name) for where, names, _ in os.walk(CGROUPS) for name in names
            if name.startswith("carrel-")}


def processes():
    """{pid: command} of what looks like carrel's."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                name = file.read().split("(", 1)[1].rsplit(")", 1)[0]
        except OSError:
            continue
        if "carrel" in name:
            found[pid] = name
    return found


def mounts():
    with open("/proc/self/mountinfo") as file:
        return sorted(line.split()[4] for line in file)


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test, also a failing one, must leave the host as it was."""
    before = leaves(), set(processes()), mounts()
    yield
    assert wait_until(lambda: leaves() <= before[0]), f"cgroups left: {leaves() - before[0]}"
    assert wait_until(lambda: set(processes()) <= before[1]), f"processes left: {processes()}"
    assert mounts() == before[2]


def test_doctor_finds_v2_limits():
    done = carrel("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for what in ("cgroup v2 memory", "cgroup v2 pids", "cgroup v2 cpu"):
        assert what in done.stdout


def test_report_names_what_is_enforced():
    r = report("--memory", "64M", "--pids", "16", "--cpus", "0.5", "--disk", "8M", "--", "/bin/true")
    assert (r["outcome"], r["exit_code"], r["signal"], r["status"]) == ("ok", 0, None, 0)
    assert r["enforced"]["memory"] == "cgroup v2 memory"
    assert r["enforced"]["pids"] == "cgroup v2 pids"
    assert r["enforced"]["cpus"] == "cgroup v2 cpu"
    assert 0 < r["memory_peak_bytes"] <= 64 * MIB
    assert r["wall_ms"] > 0 and r["cpu_ms"] > 0


def test_exit_status_and_output_come_through():
    r = report("--", "/bin/sh", "-c", "echo out; echo err >&2; exit 42")
    assert (r["outcome"], r["exit_code"], r["status"]) == ("error", 42, 42)
    assert (r["stdout"], r["stderr"]) == ("out\n", "err\n")


def test_death_by_signal_is_told():
    r = report("--", "/bin/sh", "-c", "kill -SEGV $$")
    assert (r["outcome"], r["exit_code"], r["signal"]) == ("killed", None, signal.SIGSEGV)
    assert r["status"] == 128 + signal.SIGSEGV


def test_memory_hog_is_ended_as_oom():
    r = report("--memory", "48M", *python("x = bytearray(200 << 20); print(len(x))"))
    assert (r["outcome"], r["signal"], r["status"], r["stdout"]) == ("oom", signal.SIGKILL, 137, "")
    assert 40 * MIB <= r["memory_peak_bytes"] <= 50 * MIB


def test_memory_below_the_limit_is_given():
    r = report("--memory", "96M", *python("x = bytearray(48 << 20); print(len(x))"))
    assert (r["outcome"], r["stdout"].strip()) == ("ok", str(48 * MIB))
    assert r["memory_peak_bytes"] >= 48 * MIB


FORK_EIGHT = """
import os, signal
for i in range(8):
    if os.fork() == 0:
        x = bytearray(16 << 20)
        THEN
        os._exit(0)
    WAIT
while True:
    try:
        if os.WIFSIGNALED(os.wait()[1]):
            os._exit(9)
    except ChildProcessError:
        break
"""


def test_memory_of_many_processes_counts_together():
    one_by_one = FORK_EIGHT.replace("THEN", "pass").replace("WAIT", "os.wait()")
    assert report("--memory", "64M", *python(one_by_one))["outcome"] == "ok"
    at_once = FORK_EIGHT.replace("THEN", "signal.pause()").replace("WAIT", "pass")
    assert report("--memory", "64M", "--timeout", "60s", *python(at_once))["outcome"] == "oom"


def test_files_in_scratch_count_as_memory():
    r = report("--memory", "48M", "--disk", "200M", "--", "/bin/dd", "if=/dev/zero", "of=/tmp/big", "bs=1M",
               "count=150")
    assert r["outcome"] == "oom"


FORK_UNTIL_REFUSED = """
import os, signal
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            signal.pause()
        n += 1
except BlockingIOError:
    print(n)
    raise SystemExit(3)
"""


def test_process_limit_refuses_forks():
    r = report("--pids", "20", "--timeout", "60s", *python(FORK_UNTIL_REFUSED))
    assert (r["outcome"], r["exit_code"]) == ("pids", 3)
    assert 10 <= int(r["stdout"]) <= 20
    assert r["enforced"]["pids"] == "cgroup v2 pids"


def test_fork_bomb_is_over_at_its_timeout():
    r = report("--pids", "64", "--timeout", "3s", "--", "/bin/sh", "-c", "f() { f | f & }; f; while :; do :; done")
    assert r["outcome"] == "timeout"
    assert r["status"] == 124


def test_cpu_limit_holds_for_two_busy_processes():
    code = "import os, time\nos.fork()\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    r = report("--cpus", "0.4", *python(code))
    share = r["cpu_ms"] / r["wall_ms"]
    assert 0.05 < share < 0.6, r
    free = report(*python(code))
    assert free["cpu_ms"] / free["wall_ms"] > share


def test_disk_limit_counts_all_places_together():
    code = """
import errno, sys
written = 0
try:
    for place in ("/tmp", "/home/box", "/dev/shm"):
        with open(place + "/x", "wb", buffering=0) as f:
            for _ in range(6):
                written += f.write(bytes(1 << 20))
except OSError as e:
    print(written, errno.errorcode[e.errno])
    sys.exit(1)
"""
    r = report("--disk", "8M", *python(code))
    written, error = r["stdout"].split()
    assert error == "ENOSPC" and 6 * MIB < int(written) <= 8 * MIB
    assert r["outcome"] == "disk"
    assert r["disk_bytes"] <= 8 * MIB


def test_timeout_ends_the_command():
    r = report("--timeout", "1s", "--", "/bin/sleep", "1000")
    assert (r["outcome"], r["status"]) == ("timeout", 124)
    assert r["wall_ms"] >= 1000


def test_output_limit_ends_the_command():
    r = report("--output-limit", "64K", "--timeout", "60s", "--", "/usr/bin/yes")
    assert r["outcome"] == "output_limit"
    assert len(r["stdout"]) <= 64 * 1024


def test_what_the_command_left_running_dies_with_it():
    r = report("--", "/bin/sh", "-c", "setsid sleep 1000 & setsid setsid sleep 1000 & exit 0")
    assert r["outcome"] == "ok"


def test_eight_boxes_at_once():
    running = [subprocess.Popen([CARREL, "run", "--memory", "64M", "--pids", "16", "--", "/bin/sh", "-c", f"exit {n}"],
                                stdin=subprocess.DEVNULL) for n in range(8)]
    assert [p.wait(DEADLINE) for p in running] == list(range(8))


@pytest.mark.parametrize("victim_runs", ["sleep 1000", "setsid sleep 1000 & setsid sleep 1000 & wait"])
def test_killed_carrel_leaves_nothing(victim_runs):
    """The fixture looks for leftovers; here only: the box really was there before."""
    before = leaves()
    process = subprocess.Popen([CARREL, "run", "--memory", "64M", "--", "/bin/sh", "-c", f"echo up; {victim_runs}"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        assert len(leaves() - before) == 1
    finally:
        process.kill()
        process.wait(DEADLINE)
        process.stdout.close()
    assert wait_until(lambda: leaves() <= before)


def test_box_does_not_see_the_hosts_cgroups():
    r = report("--", "/bin/sh", "-c", "ls /sys/fs/cgroup 2>/dev/null | wc -l; grep -c cgroup /proc/mounts")
    assert r["stdout"].split() == ["0", "0"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user without a delegated cgroup")
def test_user_without_delegation_is_refused_a_limit_and_told_why():
    # The scope of this suite belongs to root here.
    as_user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", CARREL, "run"]
    done = subprocess.run([*as_user, "--memory", "64M", "--", "/bin/true"], stdin=subprocess.DEVNULL, timeout=DEADLINE,
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": "/home/user"})
    assert done.returncode == 125
    assert "memory" in done.stderr


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_mount_from_a_file_system_without_id_maps_is_refused_for_writing_only(mode):
    """tmpfs before Linux 6.3. An ordinary user needs no map there: the files are his in the box as well."""
    folder = f"/tmp/mount-{os.getpid()}-{mode}"
    os.mkdir(folder)
    with open(f"{folder}/there", "w") as file:
        file.write("content")
    done = carrel("run", "--mount", f"{folder}:/data:{mode}", "--", "/bin/sh", "-c", "cat /data/there; echo x >/data/new")
    refused = os.getuid() == 0 and mode == "rw" and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3)
    if refused:
        assert done.returncode == 125 and "does not map ids" in done.stderr and done.stdout == ""
    else:
        assert done.stdout == "content"
    assert os.path.exists(f"{folder}/new") == (mode == "rw" and not refused)


def test_a_request_is_the_weight_and_a_box_sees_its_own_limits():
    """Pure v2: the whole leaf is at /sys/fs/cgroup, read-only, and nothing above it."""
    found = report("--memory", "64M", "--pids", "20", "--cpus", "2", "--request-cpus", "1.5", *python(
        "import errno, os\n"
        "at = '/sys/fs/cgroup/'\n"
        "for name in ('cpu.weight', 'cpu.max', 'memory.max', 'pids.max'): print(open(at + name).read().strip())\n"
        "for name in os.listdir(at):\n"
        "    try: os.close(os.open(at + name, os.O_WRONLY)); print('opened', name)\n"
        "    except OSError as e: assert e.errno in (errno.EROFS, errno.EACCES), (name, e)\n"
        "print([line.split()[3:5] for line in open('/proc/self/mountinfo') if ' /sys/fs/cgroup ' in line], os.path.exists(at + '../cgroup/cgroup.max.depth'))\n"
        "print([name for name in os.listdir(at) if os.path.isdir(at + name)])"))
    lines = found["stdout"].splitlines()
    assert lines[:4] == ["1500", "200000 100000", str(64 * MIB), "20"], found
    assert lines[4:] == ["[['/', '/sys/fs/cgroup']] True", "[]"], lines
    assert found["enforced"]["cpu_share"] == "cgroup v2 cpu"


def test_busy_boxes_share_the_processors_as_they_requested():
    """Measured by the processor time of each: 3 to 1, with room for an emulated machine."""
    n = os.cpu_count()
    burn = f"import os, time\nend = time.monotonic() + 10\nfor i in range({n}):\n    if os.fork() == 0:\n        while time.monotonic() < end: pass\n        os._exit(0)\nfor i in range({n}): os.wait()"
    busy = [subprocess.Popen([CARREL, "run", "--json", "--cpus", str(n), "--request-cpus", str(part * n), *python(burn)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            for part in (0.75, 0.25)]
    large, small = (json.loads(one.communicate(timeout=DEADLINE)[0])["cpu_ms"] for one in busy)
    assert 2 < large / small < 4.5, (large, small)
