"""C. The boundary of the filesystem."""
import os
import subprocess

import pytest

from harness import Box, attack_tests, bomb, run_box, world

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
    script = "cat /proc/self/fd/1 >&2; cat /dev/stdout >&2; exit 0"
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
    inner = subprocess.run(neighbour_line(), capture_output=True, timeout=30, cwd=world().empty)
    assert b'{"files":0,"ipc":0}' in inner.stdout, inner
    assert with_data.finish(input=b"\n").status == 0


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


def test_a_setuid_file_made_on_a_writable_mount_is_not_roots(tmp_path):
    tmp_path.chmod(0o777)
    result = run_box(["/bin/sh", "-c", "cp /probe/probe /host/p && chmod 6755 /host/p && mknod /host/d c 1 1; ls -ln /host"],
                     mounts=[f"{tmp_path}:/host:rw"])
    made = tmp_path / "p"
    assert made.exists(), result
    info = made.stat()
    assert not (info.st_mode & 0o6000 and info.st_uid == 0 and os.getuid() == 0 and info.st_gid == 0), oct(info.st_mode)
    assert not (tmp_path / "d").exists()


def test_symbolic_links_in_a_mount_source_are_followed_by_the_caller_only(tmp_path):
    """A link inside a mounted tree is resolved in the box's root, so it shows the box's file and never the host's."""
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "secret").symlink_to(world().host_file)
    result = run_box(["/bin/sh", "-c", "cat /host/secret; echo end"], mounts=[f"{tmp_path}:/host:ro"])
    assert result.stdout == b"end\n"


def test_the_working_directory_of_the_caller_is_not_inside():
    result = run_box(["/bin/pwd", "-P"])
    assert result.stdout == b"/home/box\n"
