"""What each option of `carrel run` promises, besides the limits."""
import json
import os
import shutil
import stat
import subprocess

import pytest

from runner import DEADLINE, assert_refused, world

DEFAULT_ENVIRONMENT = {"PATH": "/run/carrel/first:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/carrel/bin:/home/box/.local/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "HOME": "/home/box"}


def environment_in_box(caller, *options, **more):
    result = caller.run(*options, ["env", "-0"], **more)
    assert result.status == 0, result
    return dict(entry.split("=", 1) for entry in result.text.split("\0") if entry)


def test_a_mount_inside_a_closed_directory_of_the_callers(caller):
    """Ten times: whether init knows the directory's owner when it looks for the mount point was a matter of luck."""
    place, inner = caller.folder("closed"), caller.folder("inner")
    caller.folder("closed/at")
    caller.file(inner / "f", "data")
    place.chmod(0o700)
    said = [caller.run("--mount", f"{place}:/x", "--mount", f"{inner}:/x/at", ["cat", "/x/at/f"]) for _ in range(10)]
    assert [result.text for result in said] == 10 * ["data"], said


def test_the_environment_is_only_the_default(caller):
    assert environment_in_box(caller) == DEFAULT_ENVIRONMENT


def test_env_adds_and_the_last_one_counts(caller):
    got = environment_in_box(caller, "--env", "A=1", "--env", "A=2", "--env", "B=x=y z\nüñ", "--env", "EMPTY=", "--env=HOME=/tmp")
    assert got == {**DEFAULT_ENVIRONMENT, "A": "2", "B": "x=y z\nüñ", "EMPTY": "", "HOME": "/tmp"}


def test_env_file_is_read_as_its_lines_say(caller):
    path = caller.file(caller.home / "env", "# a comment\n\nA=1\nexport B=two words\nC=\"quoted # not a comment\"\nD='single'\nE=\n")
    got = environment_in_box(caller, "--env-file", path)
    assert {name: got[name] for name in "ABCDE"} == {"A": "1", "B": "two words", "C": "quoted # not a comment", "D": "single", "E": ""}


def test_pass_env_hands_on_only_what_is_named(caller):
    got = environment_in_box(caller, "--pass-env", "WANTED,ABSENT", environment={"WANTED": "yes", "OTHER": "no"})
    assert got == {**DEFAULT_ENVIRONMENT, "WANTED": "yes"}


def test_ten_thousand_variables_arrive(caller):
    lines = "".join(f"V{i}=value-{i}\n" for i in range(10000))
    got = environment_in_box(caller, "--env-file", caller.file(caller.home / "many", lines))
    assert len(got) == 10000 + len(DEFAULT_ENVIRONMENT) and got["V9999"] == "value-9999"


def test_a_megabyte_of_arguments_arrives(caller):
    words = ["x" * 100000] * 10
    result = caller.run(["sh", "-c", 'for w; do printf %s "$w"; done | wc -c', "sh", *words])
    assert result.text.strip() == "1000000"


def test_mount_is_read_only_unless_asked_otherwise(caller):
    folder = caller.folder("data")
    caller.file(folder / "seen", "from the host")
    for option in (f"{folder}:/data", f"{folder}:/data:ro"):
        result = caller.sh("cat /data/seen; echo x 2>/dev/null >/data/new || echo no; echo x 2>/dev/null >/data/seen || echo no; rm -f /data/seen 2>/dev/null",
                           "--mount", option)
        assert result.text == "from the hostno\nno\n", result
    assert os.listdir(folder) == ["seen"] and (folder / "seen").read_text() == "from the host"


def test_what_the_box_writes_into_a_mount_belongs_to_the_caller(caller):
    folder = caller.folder("data")
    caller.file(folder / "mine", "old")
    result = caller.sh("echo new >/data/mine && mkdir -m 755 /data/folder && echo x >/data/folder/file && ln -s file /data/folder/link && id -u && "
                       "stat -c %u /data/mine", "--mount", f"{folder}:/data:rw")
    assert result.status == 0, result
    assert result.text == "1000\n1000\n"
    assert (folder / "mine").read_text() == "new\n"
    for path in (folder / "mine", folder / "folder", folder / "folder/file", folder / "folder/link"):
        info = os.lstat(path)
        assert (info.st_uid, info.st_gid) == (caller.uid, caller.gid), path
    assert stat.S_IMODE((folder / "folder/file").stat().st_mode) == 0o644


def test_a_single_file_can_be_mounted(caller):
    folder = caller.folder("data")
    kept, changed = caller.file(folder / "kept", "1"), caller.file(folder / "changed", "2")
    result = caller.sh("cat /etc-kept /srv/deep/changed; echo 3 >/srv/deep/changed; echo 3 2>/dev/null >/etc-kept || echo no",
                       "--mount", f"{kept}:/etc-kept", "--mount", f"{changed}:/srv/deep/changed:rw")
    assert result.text == "12no\n", result
    assert kept.read_text() == "1" and changed.read_text() == "3\n"


def test_mounts_appear_in_folders_that_the_box_can_write(caller):
    folder = caller.folder("data")
    caller.file(folder / "f", "here")
    result = caller.sh("cat /home/box/a/b/f /tmp/c/f /var/tmp/d/f; touch /home/box/free /tmp/free /var/tmp/free && echo and free", "--mount", f"{folder}:/home/box/a/b",
                       "--mount", f"{folder}:/tmp/c", "--mount", f"{folder}:/var/tmp/d")
    assert result.text == "hereherehereand free\n", result


def test_a_link_in_a_mount_leads_into_the_box_and_not_to_the_host(caller):
    folder = caller.folder("data")
    secret = caller.file(caller.home / "secret", "of the host")
    (folder / "link").symlink_to(secret)
    (folder / "relative").symlink_to("../secret")
    result = caller.sh("cat /data/link /data/relative 2>/dev/null; echo $?", "--mount", f"{folder}:/data")
    assert result.text == "1\n"


def test_a_relative_source_is_relative_to_where_the_caller_is(caller):
    caller.file(caller.folder("data") / "f", "x")
    assert caller.run("--mount", "data:/data", ["cat", "/data/f"]).text == "x"


def test_files_of_others_stay_closed(caller):
    """Root maps only himself into the box, a user has no rights to lose."""
    folder = caller.folder("data")
    foreign = folder / "foreign"
    caller.file(foreign, "x", 0o600)
    if caller.is_root:
        os.chown(foreign, 12345, 12345)
    elif os.getuid() == 0:
        os.chown(foreign, 0, 0)
    else:
        pytest.skip("cannot make a file of somebody else's")
    result = caller.sh("cat /data/foreign 2>/dev/null || echo closed", "--mount", f"{folder}:/data:rw")
    assert result.text == "closed\n"


def test_workdir(caller):
    assert caller.run(["pwd"]).text == "/home/box\n"
    assert caller.run("--workdir", "/usr/lib", ["pwd"]).text == "/usr/lib\n"
    assert_refused(caller.run("--workdir", "/not/there", ["pwd"]), "workdir", "/not/there", "no such")


def test_hostname(caller):
    assert caller.run(["uname", "-n"]).text == "box\n"
    result = caller.sh("uname -n; cat /etc/hostname", "--hostname", "desk-7.example")
    assert result.text == "desk-7.example\ndesk-7.example\n"
    assert os.uname().nodename != "desk-7.example"


@pytest.mark.parametrize("user, wanted", [("1234", "1234:1234"), ("0", "0:0"), ("77:88", "77:88")])
def test_user_inside(caller, user, wanted):
    if caller.ids == 1024 and user == "1234":
        assert_refused(caller.run("--user", user, ["true"]), "--user")      # a box of an ordinary user has the ids below 1023
        return
    result = caller.sh("echo $(id -u):$(id -g); grep CapEff /proc/self/status; touch /tmp/f /home/box/f && stat -c %u /tmp/f", "--user", user)
    assert result.text.splitlines() == [wanted, "CapEff:\t0000000000000000", wanted.split(":")[0]], result


@pytest.fixture(scope="module")
def tiny_root():
    busybox = shutil.which("busybox")
    if not busybox or b"not a dynamic" not in subprocess.run(["ldd", busybox], capture_output=True).stderr:
        pytest.skip("there is no static busybox")
    root = world().place / "tiny-root"      # not below pytest's own folder: another pytest that starts closes that for others
    root.mkdir(mode=0o755)
    (root / "bin").mkdir()
    (root / "etc").mkdir()
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "ls", "cat", "echo", "touch", "id", "rm", "stat"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/motd").write_text("a tiny root\n")
    (root / "note").write_text("at the top\n")
    return root


def test_an_own_root_is_all_that_there_is(caller, tiny_root):
    result = caller.sh("cat /etc/motd /note; ls /; ls /usr 2>/dev/null; echo x 2>/dev/null >/etc/motd || echo no; echo x >/tmp/f && cat /tmp/f; "
                       "echo lost >/dev/null; test -c /dev/null && echo device; id -u", "--root", tiny_root)
    assert result.status == 0, result
    lines = result.text.splitlines()
    assert lines[:2] == ["a tiny root", "at the top"]
    assert lines[-4:] == ["no", "x", "device", "1000"]
    assert set(lines[2:-4]) - {"sys"} == {"bin", "dev", "etc", "home", "note", "proc", "run", "tmp", "var"}     # sys: where it has a cgroup
    assert (tiny_root / "etc/motd").read_text() == "a tiny root\n"

@pytest.mark.parametrize("options", [(), ("--writable-root",)], ids=["read-only", "writable"])
def test_the_user_has_a_name_and_a_home_in_an_own_root(caller, tiny_root, options):
    """Programs that ask for their user's home fail otherwise; the root's own accounts stay, and its files are not changed."""
    if options and caller.run(*options, "--root", tiny_root, ["echo"]).status == 125:
        pytest.skip("a writable root needs a range of ids")
    passwd = tiny_root / "etc/passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nbox:x:77:77::/srv:/bin/sh")        # without a newline at its end
    (tiny_root / "etc/group").write_text("root:x:0:\nstaff:x:1000:\n")
    try:
        result = caller.sh("cat /etc/passwd /etc/group; id -un; id -gn; echo ~boxuser", *options, "--root", tiny_root)
        assert result.status == 0, result
        assert result.text == ("root:x:0:0::/root:/bin/sh\nbox:x:77:77::/srv:/bin/sh\nboxuser:x:1000:1000:box:/home/box:/bin/sh\n"
                               "root:x:0:\nstaff:x:1000:\nboxuser\nstaff\n/home/box\n")
        assert caller.run(*options, "--user", "77:1000", "--root", tiny_root, ["id", "-un"]).text == "box\n"       # it has a name already
        assert passwd.read_text().endswith("/bin/sh")
        if options and caller.is_root:      # another's files cannot be replaced
            changed = caller.sh("echo mine >/etc/passwd && cat /etc/passwd && rm /etc/passwd && ls /etc", *options, "--profile", "system", "--root", tiny_root)
            assert changed.text.startswith("mine\n") and "passwd" not in changed.text, changed
        # What is no plain file is left alone, and no link leads to the host's.
        for make in (lambda: os.mkfifo(passwd), lambda: passwd.symlink_to("/etc/passwd")):
            passwd.unlink()
            make()
            assert caller.run(*options, "--root", tiny_root, ["echo", "fine"]).text == "fine\n"
    finally:
        passwd.unlink()
        (tiny_root / "etc/group").unlink()


def test_root_host_is_the_default(caller):
    assert caller.run("--root", "host", ["ls", "/"]).text == caller.run(["ls", "/"]).text


def test_a_root_without_the_command_is_127(caller, tiny_root):
    result = caller.run("--root", tiny_root, ["/usr/bin/env"])
    assert_refused(result, "/usr/bin/env", "no such file", status=127)


def test_the_root_is_read_only(caller):
    result = caller.sh("for d in / /usr /etc /bin /run /dev /var; do (echo x >$d/new) 2>/dev/null && echo $d; done; true")
    assert result.text == ""


def test_a_writable_root_is_private_to_the_box(caller):
    script = "echo mine >/usr/bin/carrel-was-here && cat /usr/bin/carrel-was-here && rm /usr/bin/env && mkdir /new && ! test -e /usr/bin/env && echo done"
    result = caller.sh(script, "--writable-root", "--user", "0")
    if not caller.is_root and result.status == 125:
        assert_refused(result, "--writable-root")       # the host's files have no owner there
        return
    assert result.text == "mine\ndone\n", result
    assert not os.path.exists("/usr/bin/carrel-was-here") and os.path.exists("/usr/bin/env") and not os.path.exists("/new")
    assert caller.sh("test -e /usr/bin/carrel-was-here || echo away", "--writable-root").text == "away\n"


PROFILES = {"strict": ("1000", 0), "standard": ("1000", 0), "system": ("0", 0b11001011)}


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles(caller, profile):
    uid, capabilities = PROFILES[profile]
    result = caller.report("--profile", profile, ["sh", "-c", "id -u; grep CapEff /proc/self/status; grep -c NoNewPrivs:.1 /proc/self/status"])
    lines = result.text.splitlines()
    assert lines[0] == uid and lines[2] == "1", result
    assert int(lines[1].split()[1], 16) == capabilities
    assert result.report["enforced"]["syscalls"] == f"seccomp {profile}"


def test_strict_shows_only_the_boxs_processes(caller):
    script = "for f in cpuinfo meminfo sys kallsyms interrupts; do test -e /proc/$f && echo $f; done; test -d /proc/self/fd && echo own"
    assert caller.sh(script, "--profile", "strict").text == "own\n"


def test_system_can_change_owners(caller):
    result = caller.sh("touch /tmp/f && chown 33:33 /tmp/f && stat -c %u:%g /tmp/f", "--profile", "system")
    if caller.ids == 1:
        assert result.status != 0       # there is no other id in this box
    else:
        assert result.text == "33:33\n", result


def test_net_none_is_loopback_only(caller):
    for options in ((), ("--net", "none")):
        result = caller.sh("ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3", *options)
        assert result.text.split() == ["lo"], result
    program = ("import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('loop')\n"
               "try: socket.create_connection(('192.0.2.1', 9), 1)\nexcept OSError as e: print(e.errno)")
    assert caller.run(["/usr/bin/python3", "-c", program]).text == "loop\n101\n"


def test_only_the_boxs_own_processes_are_seen(caller):
    assert caller.sh("ls /proc | grep -c '^[0-9]'").text in ("3\n", "4\n", "5\n")
    assert caller.sh("kill -0 %d 2>/dev/null || echo none" % os.getpid()).text == "none\n"


def test_json_is_one_object_with_the_output(caller):
    result = caller.run("--json", ["sh", "-c", "printf 'o\\n\\303\\274\\001\"'; echo e >&2; exit 3"])
    assert result.status == 3 and result.stderr == b""
    report = json.loads(result.text)
    assert report["outcome"] == "error" and report["exit_code"] == 3 and report["signal"] is None
    assert report["stdout"] == 'o\nü\x01"' and report["stderr"] == "e\n"


def test_json_stays_legal_whatever_the_box_prints(caller):
    result = caller.run("--json", ["/usr/bin/python3", "-c", "import os; os.write(1, bytes(range(256)) * 3)"])
    report = json.loads(result.stdout)
    assert "outcome" in report and report["stdout"]


def test_json_of_a_refusal_says_why(caller):
    result = caller.run("--json", ["/not/there"])
    report = json.loads(result.stdout)
    assert result.status == 127 and report["outcome"] == "not_started"
    assert report["error"]["step"] == "exec" and "/not/there" in report["error"]["message"] and report["error"]["errno"] == 2


def test_report_is_the_same_object_without_output(caller):
    result = caller.report(["sh", "-c", "echo out; exit 4"])
    assert result.stdout == b"out\n" and result.status == 4
    assert result.report["exit_code"] == 4 and "stdout" not in result.report
    assert os.stat(caller.home / "report.json").st_uid == caller.uid


def test_report_says_by_what_means_things_are_enforced(caller):
    asked = [word for name, value in (("memory", "64M"), ("pids", "50"), ("cpus", "1")) if name in caller.limits for word in (f"--{name}", value)]
    report = caller.report(*asked, ["true"]).report
    enforced = report["enforced"]
    for name in caller.limits:
        assert enforced[name].startswith("cgroup v"), enforced
    for name in {"memory", "pids", "cpus"} - caller.limits:
        assert name not in enforced and len(report["not_enforced"][name]) > 10
    assert enforced["processes"] == "pid namespace" and enforced["network"] == "none: network namespace with loopback only"
    assert enforced["syscalls"] == "seccomp standard" and enforced["disk"] == "tmpfs size" and enforced["nesting"]
    assert enforced["files"].startswith("landlock") or report["not_enforced"]["landlock"]
    assert caller.ids == {"root": 65536, "user": 1024, "one": 1}.get(caller.name, caller.ids)


def test_an_id_range_is_the_boxs_own(caller):
    """Two boxes at a time never share one."""
    first = caller.start("run", "-i", "--", "sh", "-c", "cat /proc/self/uid_map; echo; cat", stdin=subprocess.PIPE)
    one = first.stdout.readline() + first.stdout.readline()
    two = caller.run(["cat", "/proc/self/uid_map"]).stdout
    first.stdin.close()
    assert first.wait(DEADLINE) == 0
    if caller.ids == 1:
        return      # there is only one
    assert one.split()[1] != two.split()[1]


def test_trace_tells_the_time_of_each_step(caller):
    result = caller.run("--trace", ["true"])
    assert [line.split()[-1] for line in result.complaint.splitlines()] == ["host", "plan", "create", "command", "destroy", "end"]
    assert all(" ms " in line for line in result.complaint.splitlines())
    report = caller.report("--trace", ["true"]).report
    assert {step["step"] for step in report["trace"]} >= {"host", "create", "command"} and all(step["us"] >= 0 for step in report["trace"])


def test_the_box_holds_no_descriptor_of_the_caller(caller):
    secret = os.open(caller.file(caller.home / "secret", "x"), os.O_RDONLY)
    try:
        result = caller.run(["sh", "-c", "ls /proc/self/fd; readlink /proc/self/fd/*"], pass_fds=[secret])
    finally:
        os.close(secret)
    assert result.text.split()[:4] == ["0", "1", "2", "3"] and "secret" not in result.text and len(result.text.split()) <= 8, result


def test_signals_are_as_a_program_expects_them(caller):
    result = caller.sh("grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert result.text.split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


def test_help_lists_every_option(root):
    result = root.call("run", "--help")
    assert result.status == 0 and result.stderr == b""
    for option in ("--memory --pids --cpus --disk --nofile --timeout --output-limit --root --writable-root --mount --env --env-file --pass-env --workdir "
                   "--hostname --user --profile --net -i -t --json --report --trace").split():
        assert option in result.text, option


def test_a_box_is_not_spared_when_memory_runs_out(root):
    """Though its keeper may be."""
    def spare():
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("-500")

    try:
        subprocess.run(["true"], preexec_fn=spare, check=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("this host does not let us")
    script = "cat /proc/self/oom_score_adj /proc/1/oom_score_adj; echo -1 2>/dev/null >/proc/self/oom_score_adj || echo no"
    for profile in ("strict", "standard", "system"):
        result = root.sh(script, "--profile", profile, preexec_fn=spare)
        assert result.text == "0\n0\nno\n", (profile, result)


OPEN_ALL = """
import os, resource
n = 0
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
        n += 1
except OSError as e:
    print(n, e.errno, *resource.getrlimit(resource.RLIMIT_NOFILE))
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (10000, 10000))
except ValueError:
    print("and no more")
"""


def test_open_files_end_at_nofile(caller):
    """Descriptors 0 to 2 are the command's before it begins."""
    assert caller.run("--nofile", "100", ["python3", "-c", OPEN_ALL]).text == "97 24 100 100\nand no more\n"


def test_open_files_are_few_without_nofile(caller):
    usual = caller.sh("ulimit -Sn; ulimit -Hn").text.split()
    assert usual == (["512", "512"] if caller.ids == 1 else ["1024", "4096"])


def test_nofile_that_cannot_be_held_is_refused(caller):
    assert_refused(caller.run("--nofile", "1048576", ["true"]), "nofile may be", "512" if caller.ids == 1 else "")
    assert_refused(caller.run("--nofile", "15", ["true"]), "--nofile", "from 16")


def test_a_request_of_processors_is_a_weight_or_refused(caller):
    result = caller.report("--request-cpus", "1.5", "--cpus", "2", ["sh", "-c", "cat /sys/fs/cgroup/cpu/cpu.shares /sys/fs/cgroup/cpu.weight 2>/dev/null"])
    if result.status == 125:
        assert not caller.is_root and "cannot" in result.report["error"]["message"], result.report
    else:
        assert result.text in ("15360\n", "1500\n") or os.cpu_count() > 10, result
        assert result.report["enforced"]["cpu_share"] == result.report["enforced"]["cpus"]


def test_what_cannot_be_guaranteed_is_refused_with_the_reason(caller):
    assert_refused(caller.run("--request-cpus", "2", "--cpus", "1", ["true"]), "--request-cpus is more than --cpus")
    assert_refused(caller.run("--request-memory", "64M", ["true"]), "--request-memory: only a server can give it")
    assert_refused(caller.run("--request-cpus", "none", ["true"]), "--request-cpus none is not understood")
