import hashlib
import os
import pathlib
import signal
import subprocess

import pytest

from support.waiting import wait_for


def tree(path):
    return {str(p.relative_to(path)): (os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None, p.lstat().st_mode)
            for p in pathlib.Path(path).rglob("*")}


def test_a_file_goes_in_and_out_as_it_is(server, box, tmp_path):
    data = os.urandom(20 << 20)
    source = tmp_path / "a b"
    source.write_bytes(data)
    source.chmod(0o750)
    assert server.carrel("cp", source, f"{box}:/tmp/ü").returncode == 0
    assert server.carrel("exec", box, "sha256sum", "/tmp/ü").stdout.split()[0] == hashlib.sha256(data).hexdigest()
    back = server.carrel("cp", f"{box}:/tmp/ü", tmp_path / "back")
    assert back.returncode == 0 and (tmp_path / "back").read_bytes() == data
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o750


def test_a_folder_as_target_takes_the_name(server, box, tmp_path):
    (tmp_path / "x").write_text("x")
    (tmp_path / "y").write_text("y")
    assert server.carrel("cp", tmp_path / "x", tmp_path / "y", f"{box}:").returncode == 0
    assert server.carrel("exec", box, "ls").stdout.split() == ["x", "y"]
    assert server.carrel("cp", tmp_path / "x", f"{box}:new/sub/").returncode == 0
    assert server.carrel("exec", box, "cat", "new/sub/x").stdout == "x"
    (tmp_path / "out").mkdir()
    assert server.carrel("cp", f"{box}:x", f"{box}:y", tmp_path / "out").returncode == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["x", "y"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_copy_that_is_interrupted_leaves_nothing(server, box, tmp_path, number):
    assert server.carrel("exec", box, "truncate", "-s", "16G", "large").returncode == 0
    process = server.start_carrel("cp", f"{box}:large", tmp_path / "large")
    try:
        wait_for(lambda: os.listdir(tmp_path), "the copy has begun")
        process.send_signal(number)
        assert process.wait(60) == -number
    finally:
        process.kill()
        process.wait()
    assert os.listdir(tmp_path) == []


def test_standard_input_and_output(server, box):
    assert server.carrel("cp", "-", f"{box}:f", data="typed").returncode == 0
    assert server.carrel("cp", f"{box}:f", "-").stdout == "typed"


def test_folders_go_in_and_out_with_r(server, box, tmp_path):
    source = tmp_path / "tree"
    (source / "a/b").mkdir(parents=True)
    (source / "a/file").write_bytes(os.urandom(100000))
    (source / "a/b/run").write_text("#!/bin/sh\n")
    (source / "a/b/run").chmod(0o755)
    (source / ("long" * 40)).write_text("long")
    (source / "link").symlink_to("a/file")
    assert server.carrel("cp", source, f"{box}:").returncode == 125
    copied = server.carrel("cp", "-r", source, f"{box}:")
    assert copied.returncode == 0, copied.stderr
    assert server.carrel("cp", "-r", f"{box}:tree", tmp_path / "back").returncode == 0
    assert tree(tmp_path / "back") == tree(source)
    (tmp_path / "into").mkdir()
    assert server.carrel("cp", "-r", f"{box}:tree", tmp_path / "into").returncode == 0
    assert tree(tmp_path / "into/tree") == tree(source)


def test_a_link_in_a_box_leads_nowhere_outside(server, box, tmp_path):
    """A folder of the box with a link to our own directory, and then the same name as a folder with a file."""
    target = tmp_path / "victim"
    target.mkdir()
    server.carrel("exec", box, "--", "sh", "-c", f"mkdir t; ln -s {target} t/d; ln -s /etc/passwd t/p")
    assert server.carrel("cp", "-r", f"{box}:t", tmp_path / "t").returncode == 0
    server.carrel("exec", box, "--", "sh", "-c", "rm t/d; mkdir t/d; echo evil >t/d/f")
    result = server.carrel("cp", "-r", f"{box}:t", tmp_path / "t2")
    assert result.returncode == 0 and os.listdir(target) == []
    # Once more over the first copy, in which d is a link that leads out.
    server.carrel("exec", box, "--", "mv", "t", "u")
    again = server.carrel("cp", "-r", f"{box}:u/.", tmp_path / "t")
    assert os.listdir(target) == [], again.stderr


def test_a_link_of_an_earlier_copy_is_not_followed(server, box, tmp_path):
    """The box makes a folder, or a file, in place of the link of the first copy."""
    target = tmp_path / "victim"
    target.mkdir()
    os.mkfifo(tmp_path / "pipe")
    server.carrel("exec", box, "--", "sh", "-c", f"mkdir out; ln -s {target} out/sub; ln -s {tmp_path}/pipe out/f")
    assert server.carrel("cp", "-r", f"{box}:out", tmp_path).returncode == 0
    server.carrel("exec", box, "--", "sh", "-c", "cd out; rm sub f; mkdir sub; echo evil >sub/authorized_keys; echo evil >f")
    again = server.carrel("cp", "-r", f"{box}:out/sub", tmp_path / "out")
    assert os.listdir(target) == [] and again.returncode == 125 and "is a link here" in again.stderr
    # A reader, so that writing to the FIFO would work.
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    again = server.carrel("cp", f"{box}:out/f", tmp_path / "out")
    assert os.read(pipe, 100) == b"" and again.returncode == 0, again.stderr
    os.close(pipe)
    assert not (tmp_path / "out/f").is_symlink() and (tmp_path / "out/f").read_text() == "evil\n"


def test_a_folder_that_the_user_names_may_be_a_link(server, box, tmp_path):
    server.carrel("exec", box, "--", "sh", "-c", "mkdir d; echo x >d/f")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert server.carrel("cp", "-r", f"{box}:d/.", tmp_path / "link").returncode == 0
    assert server.carrel("cp", "-r", f"{box}:d", tmp_path / "link").returncode == 0
    assert (tmp_path / "real/f").read_text() == "x\n" and (tmp_path / "real/d/f").read_text() == "x\n"


def test_special_files(server, box, tmp_path):
    server.carrel("exec", box, "--", "sh", "-c", "echo x >f")
    assert server.carrel("cp", f"{box}:f", "/dev/stdout").stdout == "x\n"
    device = server.carrel("cp", f"{box}:/dev/null", tmp_path / "n")
    assert device.returncode == 125 and "is a folder" not in device.stderr and not (tmp_path / "n").exists()


def test_a_link_of_dev_is_not_replaced(server, box, tmp_path):
    """Standard output may be a plain file; in a /dev of its own, because a client that gets it wrong breaks the machine's."""
    server.carrel("exec", box, "--", "sh", "-c", "echo x >f")
    out = tmp_path / "out"
    out.write_text("before\n")
    script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && ln -s /proc/self/fd/1 /dev/stdout && \"$@\" && test -L /dev/stdout"
    with open(out, "ab") as f:
        done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", server.place / "carrel", "cp", f"{box}:f", "/dev/stdout"],
                              stdout=f, stderr=subprocess.PIPE, env={**os.environ, "CARREL_URL": server.url}, timeout=60)
    assert done.returncode == 0 and out.read_text() == "before\nx\n", done


def test_what_does_not_fit_is_refused_by_the_box(server, tmp_path):
    server.carrel("create", "--name", "small", *([] if server.user else ["--memory", "64M"]), "--disk", "16M")
    big = tmp_path / "big"
    with open(big, "wb") as f:
        f.truncate(100 << 20)
    server.carrel("exec", "small", "mkdir", "/tmp/own")
    result = server.carrel("cp", big, "small:/tmp/own/big")
    assert result.returncode == 125 and "space" in result.stderr
    assert server.carrel("exec", "small", "ls", "-A", "/tmp/own").stdout == ""


def test_half_a_download_is_never_left(server, box, tmp_path):
    (tmp_path / "keep").write_text("old")
    assert server.carrel("cp", f"{box}:nosuch", tmp_path / "keep").returncode == 125
    assert (tmp_path / "keep").read_text() == "old" and os.listdir(tmp_path) == ["keep"]


@pytest.mark.parametrize("words, said", [
    (("a", "b"), "BOX:PATH"), (("x:a", "y:b"), "local"), (("a",), "from where"), (("/nosuch", "one:"), "No such file"),
    (("one:/nosuch", "/tmp/x"), "no such file"), (("one:/etc", "/tmp/x"), "cp -r"), (("nosuch:/etc", "/tmp/x"), "no box 'nosuch'"),
])
def test_what_cannot_be_copied_is_told(server, box, words, said):
    result = server.carrel("cp", *words)
    assert result.returncode == 125 and said in result.stderr
