"""A. Abuse of resources. Limits are small, so that reaching them takes no time."""
import ctypes
import os
import pathlib
import resource
import subprocess

import pytest

from harness import (LIMITS, PROMPT, Box, Snapshot, bomb, cgroups_of, command_line, end_started, host_status, run_box, skip_variant, start, wait_for,
                     world)

MEBI = 1 << 20
MEMORY, PIDS, DISK = 64 * MEBI, 64, 16 * MEBI


def test_a_fork_bomb_stops_at_the_pids_limit():
    result = bomb("fork-bomb")
    assert result.line()["errno"] == "EAGAIN"
    assert PIDS - 8 <= result.line()["count"] <= PIDS


def test_a_fork_storm_is_ended_by_its_timeout():
    result = bomb("fork-storm", options=("--timeout", "1s"))
    assert result.outcome == "timeout"


def test_a_neighbour_is_not_slowed_down_by_a_fork_storm():
    storm = Box(["/probe/probe", "bomb", "fork-storm"], limits=("--pids", "64", "--memory", "64M", "--cpus", "0.5"))
    storm.readline()
    for _ in range(5):
        done = subprocess.run(command_line(["/bin/true"]), cwd=world().empty, timeout=PROMPT)
        assert done.returncode == 0
    storm.end()


def test_a_thread_bomb_stops_at_the_pids_limit():
    line = bomb("thread-bomb").line()
    assert line["errno"] == "EAGAIN"
    assert PIDS - 8 <= line["count"] <= PIDS


@pytest.mark.parametrize("how", ["memory-bomb", "populate-bomb", "memfd-fill"])
def test_a_memory_bomb_is_reported_as_oom(how):
    result = bomb(how, options=("--timeout", "100s"))
    assert result.outcome == "oom", result
    assert result.status == 137
    assert result.report["memory_peak_bytes"] <= MEMORY + MEBI


def test_a_memory_bomb_in_a_child_ends_the_whole_box():
    """Half a box that lives on without its workers is worse than none."""
    result = bomb("memory-bomb-child", options=("--timeout", "100s"))
    assert result.outcome == "oom", result


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/home/box"])
def test_scratch_memory_counts_as_memory(place):
    result = bomb("disk-fill", place, limits=("--memory", "64M", "--pids", "64", "--disk", "512M"), options=("--timeout", "100s"))
    assert result.outcome == "oom", result


@pytest.mark.parametrize("how", ["pipe-fill", "socket-fill", "flight-fill", "page-table-fill", "sysv-fill", "mapping-fill", "lock-fill",
                                 "semaphore-fill", "queue-fill", "watch-fill", "tcp-fill", "xattr-fill", "terminal-fill"])
def test_kernel_memory_is_bounded(how):
    """Refused by a count, or charged to the box until it ends: never paid by the host."""
    result = bomb(how, options=("--timeout", "100s"))
    assert result.outcome != "timeout", result
    assert result.status != 9, f"no bound was met: {result}"
    assert result.report["memory_peak_bytes"] <= MEMORY + 4 * MEBI


@pytest.mark.parametrize("how, most", [
    (("netlink-fill", 300), 64 * 128 << 10),                # 64 sockets, each with its buffer and one answer beyond it
    (("error-fill", 300), 0), (("stamp-fill", 300), 0),
    (("stamp-fill", 100, "message"), 100 * 256 << 10),      # what a datagram socket has by default; no option is needed for that
    (("backlog-fill", 400), 400 * 128 << 10)])
@pytest.mark.parametrize("variant", ["standard", "strict", "rootless"])
def test_sockets_keep_little_that_is_charged_to_nobody(how, most, variant):
    """Unread answers, errors and times of sent datagrams, connections that are not accepted: no limit on memory bounds them."""
    skip_variant(variant)
    options = {"user": 65534, "limits": ()} if variant == "rootless" else {"options": ("--profile", variant)}
    line = bomb(*how, **options).line()
    assert line["held"] <= most, line


def test_netlink_sockets_are_few_and_their_messages_small():
    """Also if they are open in several processes or on their way in a message; one that is closed may be opened again."""
    line = bomb("netlink-count", 300).line()
    assert line == {"opened": 64, "errno": "ENOBUFS", "child": 0, "in_flight": 0, "again": 64, "large": "EMSGSIZE"}


def test_strict_has_no_netlink_and_answers_as_libraries_expect():
    line = bomb("netlink-count", 1, options=("--profile", "strict")).line()
    assert (line["opened"], line["errno"]) == (0, "EINVAL")


def test_datagrams_that_nobody_reads_are_charged():
    line = bomb("datagram-fill", 300).line()
    assert 0 < line["held"] <= MEMORY // 4, line


@pytest.mark.parametrize("how", ["disk-fill", "disk-allocate", "disk-many"])
@pytest.mark.parametrize("place", ["/tmp", "/home/box", "/dev/shm"])
def test_the_disk_limit_holds(how, place):
    line = bomb(how, place).line()
    assert line["errno"] in ("ENOSPC", "EDQUOT")
    assert DISK // 2 <= line["count"] <= DISK


def test_the_disk_limit_is_one_for_all_places():
    script = "for d in /tmp /dev/shm /home/box; do dd if=/dev/zero of=$d/f bs=64k 2>/dev/null; done; cat /tmp/f /dev/shm/f /home/box/f | wc -c"
    result = run_box(["/bin/sh", "-c", script])
    assert int(result.stdout) <= DISK


def test_there_is_an_end_of_inodes():
    result = bomb("inode-fill", "/tmp", options=("--timeout", "100s"))
    assert result.outcome != "timeout"
    if result.outcome != "oom":
        assert result.line()["errno"] in ("ENOSPC", "EDQUOT", "ENOMEM")
        assert result.line()["count"] < 1_000_000


def test_a_sparse_exabyte_costs_nothing():
    result = bomb("sparse-file")
    assert result.report["disk_bytes"] <= DISK


def test_deep_directories_are_removed_quickly():
    result = bomb("deep-directories", 100_000, options=("--timeout", "100s"))
    assert result.outcome != "timeout"


def test_descriptors_end_at_their_limit():
    line = bomb("file-limit").line()
    assert line["errno"] == "EMFILE"
    assert line["count"] <= 4096


SEND_ONE = """
import os, socket, sys
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [os.open("/dev/null", os.O_RDONLY)])
print("sent")
"""


def test_descriptors_on_their_way_leave_the_callers_own_programs_theirs():
    """The kernel counts them per user, and an ordinary user's box is the same user: a user with the usual 1,024 descriptors can still send one."""
    skip_variant("rootless")
    box = Box(["/probe/probe", "bomb", "flight-hold"], user=65534, limits=())
    assert b"ETOOMANYREFS" in box.readline()
    done = subprocess.run(["/usr/bin/python3", "-c", SEND_ONE], user=65534, group=65534, extra_groups=[], capture_output=True, timeout=PROMPT,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)))
    assert done.stdout == b"sent\n", done
    box.end()


def open_files():
    return int(pathlib.Path("/proc/sys/fs/file-nr").read_text().split()[0])


def test_descriptors_of_many_processes_are_bounded():
    """What one box can take from the host's table of files is bounded by its processes and its memory."""
    before = open_files()
    result = bomb("file-limit-all", options=("--timeout", "100s"))
    assert result.outcome in ("ok", "oom"), result
    if result.outcome == "ok":
        assert result.line()["count"] <= 40 * 4096
    wait_for(lambda: open_files() < before + 10_000, lambda: f"{open_files()} files are open, {before} were before")


def test_the_processor_limit_holds():
    result = bomb("spin", 4, 2000, limits=("--cpus", "0.5", "--memory", "64M", "--pids", "64"))
    wall = result.report["wall_ms"]
    assert result.line()["cpu_ms"] <= 0.5 * wall * 1.05 + 60
    assert result.line()["cpu_ms"] > 0      # how much is for those to say who want the processors, too


def test_a_spinning_box_is_ended_by_its_timeout():
    result = bomb("spin", 8, 60_000, limits=("--cpus", "0.5", "--memory", "64M", "--pids", "64"), options=("--timeout", "1s"))
    assert result.outcome == "timeout" and result.status == 124
    assert result.report["wall_ms"] >= 1000


def test_a_storm_of_timers_stays_inside():
    result = bomb("timer-storm", limits=(*LIMITS, "--cpus", "0.5"), options=("--timeout", "2s"))
    assert result.outcome in ("ok", "timeout")      # it may be kept so busy by its own signals that it never ends


def test_output_stops_at_its_limit():
    result = bomb("flood", options=("--output-limit", "1M"))
    assert result.outcome == "output_limit", result.report
    assert len(result.stdout) <= MEBI
    assert set(result.stdout) == {ord("y")}


def test_a_flood_of_output_costs_carrel_no_memory():
    box = Box(["/probe/probe", "bomb", "flood"])
    for _ in range(64):
        assert len(box.process.stdout.read(MEBI)) == MEBI
    peak = int(host_status(box.pid, "VmHWM").split()[0])
    box.end()
    assert peak < 16 << 10, f"{peak} kB"


def test_a_reader_that_sleeps_holds_up_only_its_own_box():
    """Back-pressure: the box waits; carrel does not buffer, and a neighbour runs."""
    box = Box(["/probe/probe", "bomb", "flood"])
    done = subprocess.run(command_line(["/bin/echo", "alive"]), cwd=world().empty, capture_output=True, timeout=PROMPT)
    assert done.stdout == b"alive\n"
    peak = int(host_status(box.pid, "VmHWM").split()[0])
    box.end()
    assert peak < 16 << 10


def test_a_reader_that_sleeps_does_not_hold_carrel_beyond_the_timeout():
    box = Box(["/usr/bin/yes"], options=("--timeout", "1s"))
    box.process.wait(PROMPT)
    assert box.process.returncode == 124
    result = box.finish()
    assert result.outcome == "timeout" and set(result.stdout) <= set(b"y\n")


def test_a_slow_reader_gets_all_that_was_written_before_the_timeout():
    box = Box(["/bin/sh", "-c", "head -c 60000 /dev/zero; echo end; sleep 1000"], options=("--timeout", "1s"))
    got = b""
    while piece := os.read(box.process.stdout.fileno(), 4096):
        got += piece
    assert box.finish().status == 124
    assert len(got) == 60004 and got.endswith(b"end\n")


def test_a_grandchild_that_holds_the_output_does_not_hold_carrel():
    result = bomb("hold-output")
    assert result.status == 0
    assert b"main ended" in result.stdout


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_box_that_takes_seconds_to_die_leaves_nothing(how):
    """Dying needs processor time, too, and this box has next to none: neither carrel nor, after it, its janitor gives up."""
    script = "/probe/probe bomb fork-bomb 200; read line"
    box = Box(["/bin/sh", "-c", script], limits=("--cpus", "0.01", "--pids", "400", "--memory", "256M"), stdin=subprocess.PIPE, options=("-i",))
    assert b'"count":200' in box.readline()
    if how == "killed":
        box.process.kill()
        assert box.finish().status == -9
    else:
        result = box.finish(b"\n", check=False)
        assert result.status == 0 and not cgroups_of(box.pid), result       # at once, before another process tidies up
        box.baseline.assert_nothing_left(box.pid)


def test_zombies_count_against_the_pids_limit():
    line = bomb("zombies").line()
    assert line["errno"] == "EAGAIN" and line["count"] <= PIDS


def test_orphans_are_reaped_by_init():
    line = bomb("orphans", 1000).line()
    assert line["count"] == 1000


def test_a_daemon_does_not_outlive_its_box():
    script = "(setsid sh -c 'trap \"\" TERM HUP INT; echo started; while :; do sleep 1000; done' &) | head -1"
    result = run_box(["/bin/sh", "-c", script])
    assert result.stdout == b"started\n"


def test_watches_of_a_neighbour_and_of_the_host_do_not_suffer():
    """inotify instances are counted for the owner of the user namespace too: a box that takes all must leave others theirs."""
    hog = Box(["/usr/bin/python3", "-c", HOG])
    made = int(hog.readline())
    assert made > 0
    done = subprocess.run(command_line(["/usr/bin/python3", "-c", ONE]), cwd=world().empty, capture_output=True, timeout=PROMPT)
    assert done.stdout.strip() == b"ok", f"a neighbour has none left after {made}: {done}"
    mine = ctypes.CDLL(None).inotify_init()
    assert mine >= 0, f"the host has none left after {made}"
    os.close(mine)
    hog.end()


ONE = "import ctypes; print('ok' if ctypes.CDLL(None).inotify_init() >= 0 else 'none')"
HOG = """
import ctypes, sys, time
c = ctypes.CDLL(None)
n = 0
while n < 900 and c.inotify_init() >= 0: n += 1
print(n, flush=True)
time.sleep(1000)
"""


def test_missing_names_do_not_fill_the_hosts_memory():
    result = bomb("missing-names", 100_000, options=("--timeout", "100s"))
    assert result.outcome in ("ok", "oom")
    assert result.report["memory_peak_bytes"] <= MEMORY + MEBI


def test_a_storm_of_syncs_stays_short():
    result = bomb("sync-storm", options=("--timeout", "100s"))
    assert result.outcome == "ok"


def test_pids_of_a_box_may_wrap_without_harm():
    line = bomb("burn-pids", 6000, options=("--timeout", "100s")).line()
    assert line["count"] == 6000


def test_starting_and_ending_boxes_leaves_nothing():
    run_box(["/bin/true"])      # what is made once is made now
    before, descriptors, pids = Snapshot(), len(os.listdir("/proc/self/fd")), set()
    for _ in range(int(os.environ.get("CARREL_CHURN", "60"))):
        box = start(command_line(["/probe/probe", "bomb", "nothing"], mounts=[world().probe_mount()]), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output = box.communicate(timeout=PROMPT)
        assert (box.returncode, output) == (0, (b"", b""))
        pids.add(box.pid)
        end_started()
    wait_for(lambda: not cgroups_of(*pids), lambda: f"cgroups are left: {cgroups_of(*pids)}")
    before.assert_nothing_left()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_no_core_is_dumped_for_a_crash():
    result = bomb("die", 11)
    assert result.status == 139
    script = "mkdir /tmp/own && cd /tmp/own && ulimit -c unlimited; sh -c 'kill -SEGV $$'; echo $? $(ls -A)"
    assert run_box(["/bin/sh", "-c", script], options=("--workdir", "/tmp")).stdout == b"139\n"
