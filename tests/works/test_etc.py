"""A box on the host's root has the host's harmless configuration, and nothing that not everybody may read; and terminals."""
import os
import pathlib
import pwd
import shutil
import subprocess

import pytest
from test_works import check, python

CARREL = os.environ.get("CARREL", "build/carrel")


def test_certificates_names_of_ports_and_types_are_there():
    assert int(python("import ssl; print(len(ssl.create_default_context().get_ca_certs()))")) > 0 or not os.listdir("/etc/ssl/certs")
    assert python("import socket; print(socket.getservbyname('https'), socket.getprotobyname('udp'))") == "443 17\n"
    assert python("import mimetypes; print(mimetypes.guess_type('x.flac')[0])") in ("audio/flac\n", "audio/x-flac\n")


def test_an_interactive_shell_has_a_prompt():
    said = check(["bash", "-c", "bash -i -c 'echo \"[$PS1]\"' 2>/dev/null"])
    assert "[" in said and said.strip() != "[]"


def test_what_tells_about_the_machine_is_not_there():
    held = check(["sh", "-c", "cd /etc; ls -d shadow machine-id fstab environment profile.d ssh ssl/private npmrc sudoers cron.d 2>/dev/null; true"])
    assert held == ""
    assert str(os.uname().nodename) not in check(["cat", "/etc/hosts", "/etc/hostname"]) or os.uname().nodename == "box"
    mounted = check(["cat", "/proc/self/mountinfo"])
    assert all("ro," in line.split()[5] and "nodev" in line.split()[5] for line in mounted.splitlines() if line.split()[4].startswith("/etc"))


# ---- an /etc of the test's own, in a mount namespace of its own ----

FILES = {
    "R/Rprofile.site": (0o644, "options(width = 77)\n"), "R/ldpaths": (0o644, "x\n"), "R/large": (0o644, "y" * 20000),
    "matplotlibrc": (0o644, "backend: agg\n"),
    "ImageMagick-7/policy.xml": (0o644, "<policymap/>\n"), "ImageMagick-7/large.xml": (0o644, "z" * 20000),
    "java-99-openjdk/security": (0o644, "a\n"), "java-99-openjdk/password": (0o600, "carrel-secret\n"), "java-99-openjdk/large": (0o644, "b" * 20000),
    "vimrc": (0o600, "carrel-secret\n"), "papersize": (0o640, "carrel-secret\n"),
    "octave-9/octaverc": (0o644, "c\n"), "octave-9/team": (0o640, "carrel-secret\n"), "octave-9/large": (0o644, "d" * 20000),
    "pip.conf": (0o644, "carrel-secret\n"), "profile.d/proxy.sh": (0o644, "carrel-secret\n"),
}
LOOK = "cd /etc; for f in %s; do printf '%%s=' $f; head -c 20 $f 2>/dev/null | tr '\\n' ' '; echo; done; grep -rs carrel-secret . | wc -l" % " ".join(FILES)


def seen(user, tmp_path, group=None):
    """What a box shows of such an /etc."""
    upper, work, program = tmp_path / "upper", tmp_path / "work", tmp_path / "carrel"
    shutil.copy(CARREL, program)
    for folder in (tmp_path, upper, work):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    for name, (mode, text) in FILES.items():
        path = upper / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        path.parent.chmod(0o755)
        if group is not None:
            os.chown(path, 0, group)
    become = f"runuser -u {user} --" if user else ""
    script = (f"mount -t overlay overlay -o lowerdir=/etc,upperdir={upper},workdir={work} /etc && cd / && "
              f"exec {become} {program} run -- sh -c \"$0\"")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, LOOK], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    *lines, secrets = done.stdout.splitlines()
    assert secrets == "0", done.stdout
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts an /etc of its own")
@pytest.mark.parametrize("who", ["root", "user"])
def test_configuration_on_the_list_is_there_and_only_what_everybody_may_read(who, tmp_path):
    user = None
    group = None
    if who == "user":
        user = "carreltest"
        if subprocess.run(["id", user], capture_output=True).returncode:
            subprocess.run(["useradd", "--create-home", user], check=True)
        group = pwd.getpwnam(user).pw_gid       # what is closed to others is open to this user
    shown = seen(user, tmp_path, group)
    assert shown["R/Rprofile.site"] == "options(width = 77) " and shown["R/large"] and shown["matplotlibrc"] == "backend: agg "
    assert shown["ImageMagick-7/policy.xml"] and shown["ImageMagick-7/large.xml"]
    for closed in ("vimrc", "papersize", "profile.d/proxy.sh", "java-99-openjdk/password", "octave-9/team"):
        assert shown[closed] == "", closed
    assert "carrel-secret" not in shown["pip.conf"]     # it has one of its own
    # As root no process in the box could read it anyway, so the rest of the folder stays.
    assert shown["java-99-openjdk/security"]
    assert bool(shown["octave-9/octaverc"]) == (who == "root")


# ---- terminals ----

def test_terminals_are_in_every_box():
    assert python("import os, pty\nm, s = pty.openpty()\nos.write(s, b'hello\\n')\nprint(os.ttyname(s), os.read(m, 9))") == "/dev/pts/0 b'hello\\r\\n'\n"
    assert "works" in python("import pty; pty.spawn(['echo', 'works'])")


def test_there_are_sixty_four_of_them():
    assert python("import os\nn = 0\ntry:\n    while n < 200:\n        os.openpty()\n        n += 1\nexcept OSError:\n    pass\nprint(n)") == "64\n"


def test_programs_that_need_one_work():
    assert "seen" in check(["script", "-qec", "echo seen", "/dev/null"])
    said = check(["sh", "-c", "tmux -f /dev/null new-session -d 'echo in tmux; tmux wait-for -S done; cat' && tmux wait-for done && tmux capture-pane -p "
                              "| head -1; tmux kill-server"])
    assert said == "in tmux\n"
