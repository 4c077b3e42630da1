"""Ubuntu gives user namespaces only to programs that have an AppArmor profile. The kernel here may know no such switch: a file stands in its place, and
each of the first steps without root is made to fail by another means. What AppArmor's own parser makes of the profile is tried with Debian 13's."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import WAIT
from support import BUILD, REPOSITORY

SWITCH = """mount -t tmpfs tmpfs /proc/sys/kernel
echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns
chmod 755 /proc/sys/kernel
"""
# A process in a chroot is refused a user namespace.
CHROOT = """mkdir -p "$place/all"; mount --rbind / "$place/all"
set -- chroot "$place/all" "$@"
"""
# Runs a command under a filter of system calls, as in a namespace without capabilities: "deny" cannot be written to setgroups, nothing can be mounted.
FILTER = """
import ctypes, os, struct, sys
LOAD, IF, RETURN, NUMBER, SIZE = 0x20, 0x15, 0x06, 0, 32
code = {"map": [(LOAD, 0, 0, NUMBER), (IF, 0, 3, 1), (LOAD, 0, 0, SIZE), (IF, 0, 1, 4), (RETURN, 0, 0, 0x50000 | 1), (RETURN, 0, 0, 0x7fff0000)],
        "mount": [(LOAD, 0, 0, NUMBER), (IF, 0, 1, 165), (RETURN, 0, 0, 0x50000 | 13), (RETURN, 0, 0, 0x7fff0000)]}[sys.argv[1]]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
filters = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filters, 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def closed(someone, tmp_path):
    """closed(how, *words): runs it as that user where AppArmor wants a profile and a step fails; how: which."""
    if not someone.name:
        pytest.skip("root needs no profile")

    def go(how, *words, switch=SWITCH):
        script = "set -e\n" + switch + (CHROOT if how == "namespace" else "") + 'exec "$@"\n'
        before = [sys.executable, "-c", FILTER, how] if how in ("map", "mount") else []
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *someone.command(*before, *words)], capture_output=True, text=True,
                              timeout=WAIT, cwd="/", env={**someone.environment, "place": str(tmp_path)})
    return go


def told(program):
    return f"AppArmor forbids user namespaces to this program; once: {program} doctor --apparmor | sudo sh\n"


@pytest.mark.parametrize("how", ["namespace", "map", "mount"])
def test_the_first_error_gives_the_command(closed, prefix, how):
    program = prefix / "bin/carrel"
    done = closed(how, program, "run", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (125, "", "carrel: " + told(program))


def test_where_apparmor_wants_no_profile_it_is_not_blamed(closed, prefix):
    done = closed("namespace", prefix / "bin/carrel", "run", "--", "true", switch="")
    assert done.returncode == 125 and "user namespaces are closed to ordinary users here" in done.stderr and "AppArmor" not in done.stderr


def test_the_switch_alone_stops_nobody(closed, prefix):
    assert closed("nothing", prefix / "bin/carrel", "run", "--no-proc", "--", "/bin/echo", "there").stdout == "there\n"


def test_doctor_gives_the_command(closed, prefix):
    done = closed("namespace", prefix / "bin/carrel", "doctor")
    lines = done.stdout.splitlines()
    missing = [i for i, line in enumerate(lines) if line.startswith("  missing  ") and "a box " not in line]
    assert done.returncode == 1 and len(missing) > 5
    for i in missing:
        assert lines[i + 2].strip() == f"fix:   AppArmor wants a profile for this program; once: {prefix / 'bin/carrel'} doctor --apparmor | sudo sh"


def test_a_private_server_gives_the_command_at_once(closed, environment):
    """And not after the minute for which a server may start."""
    program = next(environment.rglob("carrel/bin/carrel"))
    code = "import carrel, time; t = time.monotonic()\ntry: carrel.Box()\nexcept carrel.Unavailable as e: print(time.monotonic() - t < 30, e)"
    done = closed("namespace", environment / "bin/python", "-c", code)
    assert done.stdout == "True the private server did not start: " + told(program), done.stderr
    done = closed("namespace", environment / "bin/carrel", "py", "-c", "1")
    assert (done.returncode, done.stderr) == (125, "carrel: a server of our own did not start: " + told(program))


def parse(path, *flags):
    """What AppArmor's parser makes of a profile, for the kernel that abi/4.0 describes."""
    abi = BUILD / "apparmor/root/etc/apparmor.d"
    base = abi if abi.exists() else pathlib.Path("/etc/apparmor.d")
    done = subprocess.run([BUILD / "apparmor/parser", "--skip-kernel-load", "--skip-cache", "--base", base, "--features-file", base / "abi/4.0", *flags,
                           str(path)], capture_output=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def check(path, program, tmp_path):
    assert parse(path, "--names").decode() == f"{program}\n"
    without = tmp_path / "without"
    without.write_text(path.read_text().replace("  userns,\n", ""))
    assert parse(path, "--stdout") != parse(without, "--stdout")       # the rule is not lost


@pytest.mark.parametrize("where", ["prefix", "wheel", "a space"])
def test_the_command_writes_a_profile_and_loads_it(someone, prefix, environment, tmp_path, where):
    program = prefix / "bin/carrel"
    if where == "wheel":
        program = next(environment.rglob("carrel/bin/carrel"))
    elif where == "a space":
        program = someone.owns(someone.home / "my tools") / "carrel"
        shutil.copy(prefix / "bin/carrel", program)
    for name, text in {"sudo": 'exec "$@"', "apparmor_parser": f'echo "$*" >{tmp_path}/asked; cp "$2" {tmp_path}/profile'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = f"'{program}' doctor --apparmor | sudo sh"
    base = 'mount -t tmpfs tmpfs /etc/apparmor.d\n%sPATH="$place:$PATH" sh -c "$1"; result=$?; ls -A /etc/apparmor.d; exit $result'
    variables = {**os.environ, "place": str(tmp_path)}
    line = ["unshare", "--mount", "sh", "-c"]
    done = subprocess.run([*line, base % "", "sh", command], capture_output=True, text=True, env=variables, timeout=WAIT)
    assert (done.returncode, done.stdout) == (1, "") and "no AppArmor that knows user namespaces" in done.stderr     # as on Debian 12
    name = str(program)[1:].replace("/", ".")
    done = subprocess.run([*line, base % "mkdir /etc/apparmor.d/abi; >/etc/apparmor.d/abi/4.0\n", "sh", command], capture_output=True, text=True,
                          env=variables, timeout=WAIT)
    assert (done.returncode, done.stderr, sorted(done.stdout.splitlines())) == (0, "", sorted(["abi", name]))
    assert (tmp_path / "asked").read_text() == f"--replace /etc/apparmor.d/{name}\n"
    check(tmp_path / "profile", program, tmp_path)


def install(destination, *settings):
    subprocess.run(["make", "-C", REPOSITORY, "--no-print-directory", "install", f"BUILD={BUILD}", f"DESTDIR={destination}", *settings], check=True,
                   capture_output=True, timeout=WAIT, env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "CARREL"))})
    return sorted(p.name for p in (destination / "etc").rglob("*carrel*"))


def test_make_install_puts_the_profile_where_apparmor_knows_it(tmp_path):
    old, new, asked = (tmp_path / name for name in ("old", "new", "asked"))
    (old / "etc/apparmor.d/abi").mkdir(parents=True)
    (old / "etc/apparmor.d/abi/3.0").touch()
    assert install(old) == []
    (new / "etc/apparmor.d/abi").mkdir(parents=True)
    (new / "etc/apparmor.d/abi/4.0").touch()
    assert install(new, "APPARMOR=no") == []
    assert install(new) == ["usr.local.bin.carrel"]
    check(new / "etc/apparmor.d/usr.local.bin.carrel", "/usr/local/bin/carrel", tmp_path)
    assert install(asked, "APPARMOR=yes", "PREFIX=/opt/carrel") == ["opt.carrel.bin.carrel"]
    check(asked / "etc/apparmor.d/opt.carrel.bin.carrel", "/opt/carrel/bin/carrel", tmp_path)
