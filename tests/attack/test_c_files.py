"""C. The boundary of the filesystem."""
import os
import re
import socket
import subprocess

import pytest

from harness import PROMPT, WAY, Box, attack_tests, bomb, run_box, world

globals().update(attack_tests("procfs"))
globals().update(attack_tests("files"))
globals().update(attack_tests("mounts"))


def test_a_directory_as_standard_input_is_refused_or_useless():
    directory = os.open(world().directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        box = Box(["/probe/probe", "one", "a_directory_as_standard_input_is_no_way_out"], stdin=directory, options=("-i",))
        result = box.finish()
    finally:
        os.close(directory)
    if result.status == 125:
        assert result.stderr.startswith(b"carrel: ")
    else:
        assert result.line()["verdict"] == "held", result.line()["detail"]


def test_standard_output_cannot_be_read_back():
    """A host file behind standard output is for writing only; its old content stays hidden."""
    path = world().directory / "output"
    path.write_text("what was there before\n")
    path.chmod(0o666)
    script = "for n in /proc/$$/fd/1 /proc/1/fd/1 /proc/$$/fd/0; do dd if=$n iflag=nonblock bs=4096 count=1 status=none >&2; done; exit 0"
    with open(path, "ab") as output:
        result = Box(["/bin/sh", "-c", script], stdout=output).finish()
    assert b"what was there before" not in result.stderr
    assert path.read_text().startswith("what was there before\n")
    path.unlink()


def test_nothing_is_left_for_the_next_box():
    first = bomb("leave-data").line()
    assert first["files"] >= 2
    second = bomb("look-for-data").line()
    assert second == {"files": 0, "ipc": 0}


def test_a_neighbour_does_not_see_what_a_live_box_writes():
    with_data = Box(["/bin/sh", "-c", "echo x >/tmp/left; echo x >/dev/shm/left; echo ready; read line"], stdin=subprocess.PIPE, options=("-i",))
    assert with_data.readline() == b"ready\n"
    inner = subprocess.run(neighbour_line(), capture_output=True, timeout=PROMPT, cwd=world().empty)
    assert b'{"files":0,"ipc":0}' in inner.stdout, inner
    assert with_data.finish(b"\n").status == 0


def neighbour_line():
    from harness import command_line
    return command_line(["/probe/probe", "bomb", "look-for-data"], mounts=[world().probe_mount()])


def test_python_packages_cannot_be_changed_for_others():
    script = ("import os, site\n"
              "for d in site.getsitepackages() + ['/usr/lib/python3/dist-packages', '/usr/lib/python3.11']:\n"
              "    try:\n"
              "        open(os.path.join(d, 'carrel-was-here'), 'w'); print('WRITTEN', d)\n"
              "    except OSError as e: print(e.strerror)\n")
    assert b"WRITTEN" not in run_box(["/usr/bin/python3", "-c", script]).stdout
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('carrel-was-here') is not None)"
    assert run_box(["/usr/bin/python3", "-c", look]).status == 0


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_mounted_directory_is_as_writable_as_it_was_asked_for(mode, tmp_path):
    tmp_path.chmod(0o777)
    (tmp_path / "inside").mkdir(mode=0o777)
    (tmp_path / "inside").chmod(0o777)
    tmp_path.parent.chmod(0o755)
    result = run_box(["/bin/sh", "-c", "echo x >/host/inside/new && echo written"], mounts=[f"{tmp_path}:/host:{mode}"])
    assert (b"written" in result.stdout) == (mode == "rw"), result
    assert (tmp_path / "inside" / "new").exists() == (mode == "rw")


def test_a_writable_mount_ends_at_its_own_root(tmp_path):
    """Links and renames in a writable mount do not lead to its siblings on the host."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "sibling").write_text("untouched")
    (tmp_path / "sibling").chmod(0o666)
    script = ("cd /host; ln -s ../sibling link; echo x >link; echo x >../sibling; mv /host /host2; ln /host/../sibling hard; "
              "cat /host/../sibling; rm -rf /host/..; true")
    result = run_box(["/bin/sh", "-c", script], mounts=[f"{shared}:/host:rw"])
    assert b"untouched" not in result.stdout
    assert (tmp_path / "sibling").read_text() == "untouched"


CALLERS = [pytest.param(None, id="caller"), pytest.param(65534, id="rootless")]


CONNECT = "import socket; s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect('/host/socket')"


def test_a_socket_in_a_read_only_mount_cannot_be_connected_to(tmp_path):
    """Where the kernel can tell: read-only mounts alone do not matter to connect()."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    os.chmod(tmp_path / "socket", 0o777)
    result = run_box(["/usr/bin/python3", "-c", CONNECT], mounts=[f"{tmp_path}:/host:ro"])
    listener.close()
    abi = re.fullmatch(r"landlock abi (\d+)", result.report["enforced"]["files"])
    if not abi or int(abi[1]) < 9:
        pytest.skip("before Landlock's ABI 9 nothing hinders it; docs/SECURITY.md says so")
    assert result.status == 1 and b"PermissionError" in result.stderr


def callers_folder(path, user):
    """A folder of carrel's caller, reachable for that user."""
    if user is not None and os.getuid() != 0:
        pytest.skip("needs root, to become an ordinary user")
    folder = path / "folder"
    folder.mkdir()
    folder.chmod(0o755)
    for above in (path, path.parent, path.parent.parent):
        if above.stat().st_uid == os.getuid():
            above.chmod(above.stat().st_mode | 0o111)
    if user is not None:
        os.chown(folder, user, user)
    return folder


def modes_below(folder):
    return {os.path.join(top, name): os.lstat(os.path.join(top, name)).st_mode for top, dirs, files in os.walk(folder) for name in dirs + files}


@pytest.mark.parametrize("user", CALLERS)
@pytest.mark.parametrize("profile", ["standard", "strict", "system"])
def test_no_set_id_bit_is_left_on_a_writable_mount(profile, user, tmp_path):
    """Files that the box makes there are the caller's outside: with such a bit they would run as the caller for every user."""
    folder = callers_folder(tmp_path, user)
    result = bomb("set-id", "/host", options=("--profile", profile), mounts=[f"{folder}:/host:rw"], user=user, limits=())
    assert result.status == 0, result
    answers = {}
    for line in result.lines():
        answers.setdefault(line["how"], set()).add(line["errno"])
    linked = answers.pop("link")
    assert linked <= {"none", "ENOENT", "EPERM"}
    assert len(answers) >= 16
    for how, errnos in answers.items():
        assert errnos <= {"EPERM", "ENOSYS"}, f"{how}: {errnos}"
    found = modes_below(folder)
    assert str(folder / "plain") in found
    assert [path for path, mode in found.items() if mode & 0o6000] == []


def test_a_set_id_bit_on_a_writable_mount_does_not_survive_a_change(tmp_path):
    """A program of the caller's that already has the bit: what a box writes into it does not run as the caller."""
    folder = callers_folder(tmp_path, None)
    program = folder / "program"
    program.write_bytes(b"old")
    program.chmod(0o6755)
    result = run_box(["/bin/sh", "-c", "echo new >/host/program; cat /host/program"], mounts=[f"{folder}:/host:rw"])
    assert result.stdout == b"new\n", result
    assert not program.stat().st_mode & 0o4000


def test_a_system_box_sets_id_bits_only_where_nothing_of_the_callers_is_writable(tmp_path):
    """A package manager needs the bits on the box's own files, where they have no effect."""
    folder = callers_folder(tmp_path, None)
    script = "cp /bin/true /tmp/own && chmod 4755 /tmp/own && echo set; touch /host/made 2>/dev/null; true"
    for mode, said in (("ro", b"" if WAY == "fork" else b"set\n"), ("rw", b"")):     # in a family never
        result = run_box(["/bin/sh", "-c", script], options=("--profile", "system"), mounts=[f"{folder}:/host:{mode}"])
        assert (result.status, result.stdout) == (0, said), result
        assert os.listdir(folder) == (["made"] if mode == "rw" else [])


@pytest.mark.parametrize("user", CALLERS)
def test_root_of_a_system_box_owns_on_a_writable_mount_what_the_caller_owns(user, tmp_path):
    """Neither becoming another user of the box nor giving a file away makes a file of a third one outside."""
    folder = callers_folder(tmp_path, user)
    folder.chmod(0o777)
    script = ("cd /host && touch own && mkdir -m 777 sub; chown 33:33 own; chgrp 0 own; "
              "setpriv --reuid 33 --regid 33 --clear-groups touch other sub/other; chmod 6777 own sub; stat -c %u own")
    result = run_box(["/bin/sh", "-c", script], options=("--profile", "system"), mounts=[f"{folder}:/host:rw"], user=user, limits=())
    assert result.status == 0, result
    found = {path: os.lstat(path) for path in modes_below(folder)}
    assert str(folder / "own") in found and str(folder / "sub") in found
    caller = os.getuid() if user is None else user
    for path, info in found.items():
        assert info.st_uid == caller or caller != 0, (path, info)
        assert info.st_uid != 0 or caller == 0, (path, info)
        assert not info.st_mode & 0o6000, path


@pytest.mark.parametrize("user", CALLERS)
@pytest.mark.parametrize("inside", [1000, 321], ids=["default-user", "other-user"])
def test_what_a_box_makes_on_a_writable_mount_belongs_to_the_caller(user, inside, tmp_path):
    folder = callers_folder(tmp_path, user)
    (folder / "mine").write_text("mine")
    (folder / "mine").chmod(0o600)
    if user is not None:
        os.chown(folder / "mine", user, user)
    script = "cd /host && cat mine && echo more >>mine && echo x >file && mkdir sub && ln -s file link && mkfifo fifo && mv file sub/moved && stat -c '%u:%g' . mine sub sub/moved"
    options = () if inside == 1000 else ("--user", str(inside))
    result = run_box(["/bin/sh", "-c", script], options=options, mounts=[f"{folder}:/host:rw"], user=user, limits=())
    assert result.stdout == b"mine" + f"{inside}:{inside}\n".encode() * 4, result
    owner = (os.getuid(), os.getgid()) if user is None else (user, user)
    for path in [folder, *map(lambda name: folder / name, ("mine", "sub", "sub/moved", "link", "fifo"))]:
        info = path.lstat()
        assert (info.st_uid, info.st_gid) == owner, path
    assert (folder / "mine").read_text() == "minemore\n"


@pytest.mark.parametrize("user", CALLERS)
def test_files_of_others_on_a_writable_mount_stay_theirs(user, tmp_path):
    """Root's box has no more rights there than an ordinary user's: only the caller's own files are its own."""
    if os.getuid() != 0:
        pytest.skip("needs root, to make files of others")
    folder = callers_folder(tmp_path, user)
    private = folder / "private"
    private.write_text("private")
    private.chmod(0o600)
    os.chown(private, 12345, 12345)
    shared = folder / "shared"
    shared.write_text("shared")
    shared.chmod(0o644)
    os.chown(shared, 12345, 12345)
    script = ("cd /host; stat -c '%u:%g' private shared; cat private; cat shared; echo x >shared; chmod 777 private shared; chown 1000 private shared; "
              "chgrp 1000 shared; chown 0:0 shared; setfattr -n user.x -v y shared; touch -d 2001-01-01 shared; truncate -s 0 private; ln private hard && cat hard; true")
    result = run_box(["/bin/sh", "-c", script], mounts=[f"{folder}:/host:rw"], user=user, limits=())
    assert result.stdout == b"65534:65534\n65534:65534\nshared", result
    for path, text, mode in ((private, "private", 0o600), (shared, "shared", 0o644)):
        info = path.stat()
        assert (info.st_uid, info.st_gid, info.st_mode & 0o7777) == (12345, 12345, mode), path
        assert path.read_text() == text
        assert info.st_mtime > 1_500_000_000


def test_nodes_cannot_be_made_on_a_writable_mount(tmp_path):
    folder = callers_folder(tmp_path, None)
    result = run_box(["/bin/sh", "-c", "mknod /host/d c 1 1; mknod /host/b b 7 0; ls /host"], mounts=[f"{folder}:/host:rw"])
    assert result.stdout == b"" and os.listdir(folder) == []


def test_symbolic_links_in_a_mount_source_are_followed_by_the_caller_only(tmp_path):
    """A link inside a mounted tree is resolved in the box's root, so it shows the box's file and never the host's."""
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "secret").symlink_to(world().host_file)
    result = run_box(["/bin/sh", "-c", "cat /host/secret; echo end"], mounts=[f"{tmp_path}:/host:ro"])
    assert result.stdout == b"end\n"


def test_the_working_directory_of_the_caller_is_not_inside():
    result = run_box(["/bin/pwd", "-P"])
    assert result.stdout == b"/home/box\n"
