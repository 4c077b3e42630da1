import io
import os
import socket
import threading
import urllib.request

import pytest

from support.server import limits

import carrel as sdk


def test_write_and_read(box):
    box.files.write("a/b.txt", "text", mode=0o640)
    assert box.files.read("a/b.txt") == b"text" and box.files.read_text("/home/box/a/b.txt") == "text"
    info = box.files.stat("a/b.txt")
    assert (info.name, info.type, info.size, info.mode) == ("b.txt", "file", 4, 0o640) and info.mtime > 1e9
    box.files.write("a/b.txt", b"+", append=True)
    assert box.files.read("a/b.txt") == b"text+"
    assert box.files.read("a/b.txt", offset=1, length=3) == b"ext" and box.files.read("a/b.txt", offset=3) == b"t+"
    box.files.write("stream", (bytes([n]) * 1000 for n in range(100)))
    assert len(box.files.read("stream")) == 100000
    box.files.write("file", io.BytesIO(b"from a file"))
    assert box.files.read("file") == b"from a file"


def test_list_and_change(box):
    box.files.mkdir("d/e")
    box.files.write("d/f", b"")
    assert {(e.name, e.is_dir) for e in box.files.list("d")} == {("e", True), ("f", False)}
    box.files.move("d/f", "d/g")
    assert not box.files.exists("d/f") and box.files.exists("d/g")
    box.files.chmod("d/g", 0o700)
    assert box.files.stat("d/g").mode == 0o700
    with pytest.raises(sdk.CarrelError):
        box.files.remove("d")
    box.files.remove("d", recursive=True)
    assert "d" not in [e.name for e in box.files.list()]


def test_files_and_directories_are_told_apart(box):
    with pytest.raises(sdk.Conflict):
        box.files.read("/etc")
    with pytest.raises(sdk.Conflict):
        box.files.list("/etc/passwd")


@pytest.mark.parametrize("name", ["ü b%20?#&", "..x", "a:b", "\udcff"])
def test_odd_names(box, name):
    box.files.write(name, b"x")
    assert box.files.read(name) == b"x"


def test_links_are_followed_or_not(box):
    box.exec("ln -s /etc/passwd l")
    assert box.files.stat("l").type == "file"
    assert (box.files.stat("l", follow=False).type, box.files.stat("l", follow=False).target) == ("symlink", "/etc/passwd")


def test_upload_download_and_trees(box, tmp_path):
    data = os.urandom(5 << 20)
    (tmp_path / "t/s").mkdir(parents=True)
    (tmp_path / "t/s/f").write_bytes(data)
    box.files.upload(tmp_path / "t/s/f", "up")
    assert box.files.download("up", tmp_path / "down") == len(data) and (tmp_path / "down").read_bytes() == data
    box.files.put_tree(tmp_path / "t", "tree")
    box.files.get_tree("tree", tmp_path / "back")
    assert (tmp_path / "back/s/f").read_bytes() == data


@pytest.mark.parametrize("link", ["/etc", "../..", "a/../../.."])
def test_a_tree_with_links_that_lead_out_is_refused(box, tmp_path, link):
    box.exec(f"mkdir -p t/a; ln -s a t/good; ln -s {link} t/z", check=True)
    with pytest.raises(sdk.InvalidRequest) as caught:
        box.files.get_tree("t", tmp_path / "back")
    assert caught.value.code == "unsafe_archive" and not (tmp_path / "back/z").is_symlink()


def test_a_link_that_climbs_out_of_another_is_refused(box, tmp_path):
    """By its letters it stays below; but what it goes through is a link that leads to the top."""
    box.exec("mkdir -p t/a/b/c; ln -s ../../.. t/a/b/c/up; ln -s a/b/c/up/../../victim t/x", check=True)
    with pytest.raises(sdk.InvalidRequest) as caught:
        box.files.get_tree("t", tmp_path / "back")
    assert caught.value.code == "unsafe_archive" and not (tmp_path / "back/x").is_symlink()


@pytest.mark.parametrize("end", ["", "/", "/."])
def test_a_target_that_is_a_link_is_refused(box, tmp_path, end):
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to("victim")
    box.exec("mkdir t; echo evil >t/f", check=True)
    with pytest.raises(sdk.InvalidRequest, match="is a link"):
        box.files.get_tree("t", f"{tmp_path}/link{end}")
    assert os.listdir(tmp_path / "victim") == []
    box.files.get_tree("t", os.path.realpath(tmp_path / "link"))
    assert os.listdir(tmp_path / "victim") == ["f"]


@pytest.mark.parametrize("head", [b"Content-Length: 100\r\n\r\n0123456789", b"Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n"])
def test_a_download_that_breaks_off_is_an_error(tmp_path, head):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def answer():
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        asked += connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n" + head)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        box = sdk.Box(server=sdk.Carrel(f"unix:{tmp_path}/socket"), _raw={"id": "b"})
        with pytest.raises(sdk.Unavailable, match="broke off"):
            box.files.download("f", tmp_path / "down")
        with pytest.raises(sdk.Unavailable, match="broke off"):
            box.files.read("f")
        thread.join(60)


def test_a_tree_does_not_go_through_a_link_that_is_there(box, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "back").mkdir()
    (tmp_path / "back/d").symlink_to(tmp_path / "victim")
    box.exec("mkdir -p t/d; echo evil >t/d/f", check=True)
    with pytest.raises(sdk.InvalidRequest):
        box.files.get_tree("t", tmp_path / "back")
    assert os.listdir(tmp_path / "victim") == []


def test_what_does_not_fit_is_refused_by_the_box(carrel):
    with carrel.create(**limits(memory="64M", disk="16M")) as box:
        box.exec(["mkdir", "/tmp/own"], check=True)
        with pytest.raises(sdk.NoSpace):
            box.files.write("/tmp/own/big", (b"\0" * (1 << 20) for _ in range(100)))
        assert box.files.list("/tmp/own") == []


def test_ports(box):
    box.files.write("page", b"hello")
    box.spawn(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"])
    waits = "import socket,time\nwhile socket.socket().connect_ex(('127.0.0.1', 8000)): time.sleep(0.02)"
    box.exec(["python3", "-c", waits], timeout=60, check=True)
    assert box.ports.request(8000, "/page") == b"hello"
    with pytest.raises(sdk.NotFound):
        box.ports.request(8000, "/nosuch")
    with box.ports.forward(8000) as forward:
        assert urllib.request.urlopen(f"http://127.0.0.1:{forward.port}/page", timeout=60).read() == b"hello"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", forward.port), timeout=60)


def test_a_folder_is_uploaded_and_downloaded_with_all_that_is_in_it(box, tmp_path):
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/one").write_text("1")
    (tmp_path / "data/run").write_text("#!/bin/sh\n")
    (tmp_path / "data/run").chmod(0o755)
    box.files.upload(tmp_path / "data", "in/data")
    assert box.files.read("in/data/deep/one") == b"1" and box.files.stat("in/data/run").mode & 0o777 == 0o755
    box.files.upload(tmp_path / "data", "in/data")         # again
    assert box.files.download("in/data", tmp_path / "out") == 0
    assert (tmp_path / "out/deep/one").read_text() == "1"
    with pytest.raises(sdk.Conflict), open(tmp_path / "file", "wb") as file:
        box.files.download("in/data", file)
