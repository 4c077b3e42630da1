"""Impossible requests are refused in one line, with status 125, before anything was made."""
import json
import os

import pytest

from runner import DEADLINE, assert_refused, spread

TRUE = ["true"]
HUGE = str(1 << 63)

ROWS = [
    # words, what the line must say
    (("--memroy", "1G", TRUE), "--memory"),
    (("--frobnicate", TRUE), "unknown option"),
    (("-x", TRUE), "-x"),
    (("--json=yes", TRUE), "takes no value"),
    (("--memory",), "needs a value"),
    (("--memory", "--", "true"), "needs a value"),
    (("--env",), "needs a value"),
    ((), "no command"),
    (("--",), "no command"),
    (("--", ""), "empty"),
    *[((f"--{name}", value, TRUE), f"--{name}") for name in ("memory", "pids", "cpus", "disk", "timeout", "output-limit")
      for value in ("0", "-1", HUGE, "abc", "1x", "1e999", " 1", "99999999999999999999999")],
    (("--memory", "1", TRUE), "--memory"),
    (("--disk", "1", TRUE), "--disk"),
    (("--pids", "1.5", TRUE), "--pids"),
    (("--env", "NOVALUE", TRUE), "NAME=VALUE"),
    (("--env", "=x", TRUE), "--env"),
    (("--env", "1A=x", TRUE), "--env"),
    (("--env-file", "/not/there", TRUE), "/not/there"),
    (("--env-file", "/", TRUE), "--env-file"),
    (("--pass-env", "A,,B", TRUE), "--pass-env"),
    (("--mount", "/tmp", TRUE), "SOURCE:TARGET"),
    (("--mount", "/tmp:relative", TRUE), "absolute"),
    (("--mount", "/tmp:/x:rx", TRUE), "ro or rw"),
    (("--mount", "/tmp:/", TRUE), "--root"),
    (("--mount", "/tmp:/proc/x", TRUE), "/proc"),
    (("--mount", "/tmp:/dev", TRUE), "/dev"),
    (("--mount", "/tmp:/a/../b", TRUE), ".."),
    (("--mount", "/not/there:/x", TRUE), "/not/there"),
    (("--mount", "/dev/null:/x", TRUE), "/dev/null"),
    (("--mount", "/tmp:/x", "--mount", "/usr:/x", TRUE), "/x"),
    (("--workdir", "relative", TRUE), "absolute"),
    (("--workdir", "/not/there", TRUE), "/not/there"),
    (("--hostname", "a b", TRUE), "--hostname"),
    (("--hostname", "x" * 65, TRUE), "--hostname"),
    (("--user", "nobody", TRUE), "--user"),
    (("--user", "-1", TRUE), "--user"),
    (("--user", "4294967295", TRUE), "--user"),
    (("--user", "1:2:3", TRUE), "--user"),
    (("--root", "/not/there", TRUE), "/not/there"),
    (("--root", "/etc/passwd", TRUE), "/etc/passwd"),
    (("--profile", "lax", TRUE), "strict, standard or system"),
    (("--net", "host", TRUE), "none"),
]


@pytest.mark.parametrize("words, phrase", ROWS, ids=[" ".join(map(str, spread(words)))[:60].strip() or "nothing" for words, _ in ROWS])
def test_refused(root, words, phrase):
    assert_refused(root.run(*words), phrase)


@pytest.mark.parametrize("words, phrase", ROWS[:1] + ROWS[10:14] + ROWS[-24:], ids=lambda value: str(value)[:40])
def test_refused_for_everybody(caller, words, phrase):
    assert_refused(caller.run(*words), phrase)


def test_a_link_as_source_of_a_mount(caller):
    folder = caller.folder("data")
    (folder / "link").symlink_to("/etc")
    assert_refused(caller.run("--mount", f"{folder}/link:/x", TRUE), "symbolic link")


def test_a_mount_below_a_link_of_the_box_makes_nothing_on_the_host(caller):
    name, source, folder = f"carrel-test-{os.getpid()}", caller.file(caller.home / "f", "x"), caller.folder("d")
    for from_, target in ((source, f"/var/run/{name}"), (folder, f"/var/run/{name}"), (source, f"/var/run/{name}/deep"), (folder, f"/bin/{name}")):
        assert_refused(caller.run("--mount", f"{from_}:{target}", TRUE), target)
        assert not os.path.lexists(f"/run/{name}") and not os.path.lexists(f"/usr/bin/{name}")


def test_a_mount_below_a_link_of_another_root_makes_nothing_on_the_host(caller):
    top, outside = caller.folder("root"), caller.folder("outside")
    caller.folder("root/usr")
    (top / "out").symlink_to(outside)
    (top / "up").symlink_to("../" * 20 + str(outside)[1:])
    (top / "srv").symlink_to("out")
    (top / "var").symlink_to(outside)
    for from_ in (caller.file(caller.home / "f", "x"), caller.folder("d")):
        for target in ("/out/x", "/up/x", "/srv/x", "/srv/x/y", "/var/x", "/var/tmp/x", "/var/run/x"):
            assert_refused(caller.run("--root", top, "--mount", f"{from_}:{target}", TRUE), target)
            assert os.listdir(outside) == []


def test_a_socket_or_fifo_as_source_of_a_mount(caller):
    folder = caller.folder("data")
    os.mkfifo(folder / "fifo")
    assert_refused(caller.run("--mount", f"{folder}/fifo:/x", TRUE), "only directories and plain files")


def test_a_source_that_the_caller_may_not_reach(caller):
    if caller.is_root:
        pytest.skip("root may")
    assert_refused(caller.run("--mount", "/root/x:/x", TRUE), "/root/x")


def test_an_empty_root(caller):
    assert_refused(caller.run("--root", caller.folder("empty"), TRUE), "empty")


@pytest.mark.parametrize("text, line", [("A=1\nB\n", 2), ("A=1\n\n# x\nB=\"open\n", 4), ("=x\n", 1), ("A B=x\n", 1), ("A=1\nB=x\0y\n", 2)])
def test_a_broken_line_of_an_env_file_is_named(caller, text, line):
    path = caller.file(caller.home / "broken", text)
    assert_refused(caller.run("--env-file", path, TRUE), f"broken:{line}")


def test_a_value_that_the_kernel_would_not_take(caller):
    path = caller.file(caller.home / "large", "A=" + "x" * 1000000 + "\n")
    result = caller.run("--env-file", path, TRUE)
    assert result.status == 125 and len(result.complaint.splitlines()) == 1, result.complaint[:300]


def test_more_than_the_kernel_would_take_in_all(caller):
    lines = "".join(f"V{i}={'x' * 100000}\n" for i in range(39))
    result = caller.run("--env-file", caller.file(caller.home / "large", lines), TRUE)
    assert result.status == 125 and len(result.complaint.splitlines()) == 1, result.complaint[:300]


def test_more_mounts_than_there_can_be(caller):
    words = [word for i in range(65) for word in ("--mount", f"/usr:/m{i}")]
    assert_refused(caller.run(*words, TRUE), "mounts")


def test_as_many_mounts_as_there_can_be(caller):
    words = [word for i in range(64) for word in ("--mount", f"/usr/lib:/m{i}")]
    assert caller.run(*words, ["ls", "-d", "/m63"]).text == "/m63\n"


def test_a_report_that_cannot_be_written(caller):
    result = caller.run("--report", "/not/there/report", ["echo", "out"])
    assert result.status == 125 and "/not/there/report" in result.complaint


def test_a_refusal_as_json(caller):
    result = caller.run("--json", "--root", "/not/there", TRUE)
    report = json.loads(result.stdout)
    assert result.status == 125 and report["outcome"] == "not_started" and "/not/there" in report["error"]["message"]


def test_hostile_names_stay_on_one_line(caller):
    result = caller.run("--mount", "/a\nb\x1b[31m:/x", TRUE)
    assert_refused(result)
    assert "\x1b" not in result.complaint


def test_a_refusal_closes_nothing_of_the_callers(caller):
    """A descriptor that was never opened does not touch the place of standard input."""
    process = caller.start("run", "--mount", "/not/there:/x", "--", "true")
    assert process.wait(DEADLINE) == 125


def test_a_standard_input_that_is_a_pidfd_does_not_lose_its_process(root):
    victim = root.start("run", "--", "sleep", "1000")
    pidfd = os.pidfd_open(victim.pid)
    try:
        assert root.start("run", "--mount", "/not/there:/x", "--", "true", stdin=pidfd).wait(DEADLINE) == 125
        assert victim.poll() is None
    finally:
        os.close(pidfd)
        victim.terminate()
        victim.wait(DEADLINE)


@pytest.mark.parametrize("limit, value", [("--memory", "64M"), ("--cpus", "1"), ("--pids", "10")])
def test_a_limit_that_cannot_be_held_is_refused_with_the_reason(caller, limit, value):
    if limit[2:] in caller.limits:
        pytest.skip("it can be held")
    assert_refused(caller.run(limit, value, TRUE), "cannot limit", "cgroup")
