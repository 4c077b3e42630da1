import hashlib
import io
import os
import tarfile

import pytest

from support.waiting import wait_for

MIB = 1 << 20


def test_a_file_is_written_and_read(alice, box, run):
    data = os.urandom(300000)
    assert alice.put(box + "/files/tmp/a", data).json == {"bytes": 300000}
    got = alice.get(box + "/files/tmp/a")
    assert got.body == data and got.headers["Content-Length"] == "300000"
    assert got.headers["X-Content-Type-Options"] == "nosniff" and got.headers["Content-Disposition"] == "attachment"
    assert run("sha256sum /tmp/a")["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    assert run("stat -c '%a %u' /tmp/a")["stdout"] == "644 1000\n"


def test_an_empty_file(alice, box):
    assert alice.put(box + "/files/tmp/empty", b"").json == {"bytes": 0}
    got = alice.get(box + "/files/tmp/empty")
    assert (got.status, got.body, got.headers["Content-Length"]) == (200, b"", "0")


@pytest.mark.parametrize("asked, first, last", [("0-0", 0, 0), ("10-19", 10, 19), ("990-", 990, 999), ("-5", 995, 999), ("-5000", 0, 999), ("990-5000", 990, 999)])
def test_ranges(alice, box, asked, first, last):
    data = bytes(i % 251 for i in range(1000))
    alice.put(box + "/files/tmp/r", data)
    got = alice.get(box + "/files/tmp/r", headers={"Range": "bytes=" + asked})
    assert got.status == 206 and got.body == data[first:last + 1]
    assert got.headers["Content-Range"] == f"bytes {first}-{last}/1000"


def test_a_range_that_is_not_there(alice, box):
    alice.put(box + "/files/tmp/r", b"12345")
    got = alice.get(box + "/files/tmp/r", headers={"Range": "bytes=5-"})
    assert (got.status, got.headers["Content-Range"]) == (416, "bytes */5")
    assert alice.get(box + "/files/tmp/r", headers={"Range": "bytes=0-1,3-4"}).body == b"12345"
    assert alice.get(box + "/files/tmp/r", headers={"Range": "lines=1-2"}).status == 200


def test_head_tells_without_sending(alice, box):
    alice.put(box + "/files/tmp/h", b"abc")
    got = alice.ask("HEAD", box + "/files/tmp/h")
    assert (got.status, got.headers["Content-Length"], got.body) == (200, "3", b"")


def test_parts_are_written_in_place(alice, box):
    alice.put(box + "/files/tmp/p", b"aaaaaaaaaa")
    alice.put(box + "/files/tmp/p?offset=4", b"BB")
    alice.put(box + "/files/tmp/p?append=true", b"!")
    assert alice.get(box + "/files/tmp/p").body == b"aaaaBBaaaa!"
    assert alice.put(box + "/files/tmp/p?append=true&offset=1", b"x").status == 400


def test_a_write_that_breaks_off_changes_nothing(alice, box):
    alice.put(box + "/files/tmp/own/keep?parents=true", b"old")
    s = alice.raw_socket()
    s.sendall(f"PUT {box}/files/tmp/own/keep HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\nContent-Length: 1000000\r\n\r\n".encode())
    s.sendall(b"n" * 5000)
    s.close()
    names = lambda: [e["name"] for e in alice.get(box + "/files/tmp/own").json["entries"]]
    wait_for(lambda: names() == ["keep"])
    assert alice.get(box + "/files/tmp/own/keep").body == b"old"


def test_folders_are_listed_in_pages(alice, box):
    names = {f"f{i}" for i in range(25)}
    for name in names:
        alice.put(f"{box}/files/tmp/many/{name}?parents=true", name.encode())
    got, cursor = [], ""
    while True:
        page = alice.get(f"{box}/files/tmp/many?limit=10{cursor}").json
        got += [e["name"] for e in page["entries"]]
        if not page["next"]:
            break
        cursor = "&cursor=" + page["next"]
    assert sorted(got) == sorted(names)


def test_change_and_remove(alice, box):
    f = box + "/files/tmp"
    assert alice.post(f + "/d/e", {"action": "mkdir"}).status == 404
    assert alice.post(f + "/d/e", {"action": "mkdir", "parents": True, "mode": "0700"}).status == 204
    assert alice.get(f + "/d/e?stat=true").json["mode"] == "0700"
    alice.put(f + "/d/x", b"1")
    alice.put(f + "/d/y", b"2")
    assert alice.post(f + "/d/x", {"action": "move", "to": "/tmp/d/y"}).code == "file_exists"
    assert alice.post(f + "/d/x", {"action": "move", "to": "/tmp/d/y", "overwrite": True}).status == 204
    assert alice.get(f + "/d/y").body == b"1"
    assert alice.post(f + "/d/y", {"action": "chmod", "mode": "0400"}).status == 204
    assert alice.get(f + "/d/y?stat=true").json["mode"] == "0400"
    assert alice.delete(f + "/d").code == "directory_not_empty"
    assert alice.delete(f + "/d?recursive=true").status == 204
    assert alice.get(f + "/d").code == "file_not_found"


def test_links_are_described_and_followed_inside_the_box(alice, box, run):
    run("ln -s /etc/hostname /tmp/l; ln -s /tmp/nowhere /tmp/broken")
    link = alice.get(box + "/files/tmp/l?stat=true&follow=false").json
    assert (link["type"], link["target"]) == ("symlink", "/etc/hostname")
    assert alice.get(box + "/files/tmp/l").body == b"box\n"
    assert alice.get(box + "/files/tmp/broken").status == 404


def test_names_may_be_any_bytes(alice, box):
    assert alice.put(box + "/files/tmp/own/%FF%0A%20%3F?parents=true", b"odd").status == 200
    entry, = alice.get(box + "/files/tmp/own").json["entries"]
    assert entry["name_base64"] == "/wogPw=="
    assert alice.get(box + "/files/tmp/own/%FF%0A%20%3F").body == b"odd"


@pytest.mark.parametrize("path, code, status", [
    ("/files/nope", "file_not_found", 404), ("/files/etc/passwd/x", "not_a_directory", 409), ("/files/dev/null", "invalid", 400)])
def test_what_cannot_be_read(alice, box, path, code, status):
    got = alice.get(box + path)
    assert (got.status, got.code) == (status, code)


def test_what_cannot_be_written(alice, box):
    assert alice.put(box + "/files/etc/x", b"1").status == 403
    assert alice.put(box + "/files/tmp", b"1").code == "is_a_directory"
    assert alice.put(box + "/files/tmp/x?mode=999", b"1").status == 400
    assert alice.put(box + "/files/tmp/a/b", b"1").status == 404


def test_a_file_that_its_user_may_not_write_is_not_replaced(alice, box, run):
    run("echo kept >/tmp/locked; chmod 0444 /tmp/locked")
    got = alice.put(box + "/files/tmp/locked", b"lost")
    assert (got.status, got.code) == (403, "permission_denied")
    assert alice.get(box + "/files/tmp/locked").body == b"kept\n"
    run("chmod 0644 /tmp/locked")
    assert alice.put(box + "/files/tmp/locked", b"new").status == 200


def test_the_box_pays_for_its_files(server, alice, make_box):
    small = "/v1/boxes/" + make_box(limits={"memory": "64M", "disk": "32M"})["id"]
    before = server.front_bytes()
    piece = b"x" * MIB
    try:
        got = alice.put(small + "/files/tmp/own/big?parents=true", iter([piece] * 100))
        assert got.status == 507
    except (BrokenPipeError, ConnectionResetError):
        pass        # refused while it was sent
    assert server.front_bytes() - before < 8 * MIB
    wait_for(lambda: alice.get(small + "/usage").json["disk_bytes"] < 33 * MIB)
    assert alice.post(small + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    wait_for(lambda: alice.get(small + "/files/tmp/own").json["entries"] == [])


def test_a_large_file_both_ways_in_constant_memory(server, alice, make_box):
    path = "/v1/boxes/" + make_box(limits={"memory": "1G", "disk": "600M"})["id"] + "/files/tmp/large"
    before = server.front_bytes()
    piece = os.urandom(MIB)
    assert alice.put(path, iter([piece] * 400)).json == {"bytes": 400 * MIB}
    response = alice.open("GET", path)
    n, digest = 0, hashlib.sha256()
    while data := response.read(MIB):
        n += len(data)
        assert data == piece
    assert n == 400 * MIB
    assert server.front_bytes() - before < 8 * MIB


def test_a_slow_reader_does_not_fill_the_server(server, alice, make_box):
    path = "/v1/boxes/" + make_box(limits={"memory": "512M", "disk": "300M"})["id"]
    assert alice.post(path + "/exec", {"shell": "head -c 200000000 /dev/zero >/tmp/z"}).json["outcome"] == "ok"
    before = server.front_bytes()
    responses = [alice.open("GET", path + "/files/tmp/z") for _ in range(6)]
    for r in responses:
        r.read(1000)
    assert alice.get(path).status == 200
    assert server.front_bytes() - before < 16 * MIB
    for r in responses:
        r.connection.close()
    # Their helpers are given back.
    for _ in range(10):
        wait_for(lambda: alice.get(path + "/files/tmp?limit=1").status == 200)


def test_tar_both_ways(alice, box, run):
    run("mkdir -p /tmp/src/sub && echo 1 >/tmp/src/a && echo 2 >/tmp/src/sub/b && ln -s a /tmp/src/l && chmod 700 /tmp/src/sub")
    packed = alice.get(box + "/archive?path=/tmp/src")
    assert packed.status == 200 and packed.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(packed.body)) as tar:
        members = {m.name.strip("./"): m for m in tar.getmembers()}
        assert tar.extractfile(members["sub/b"]).read() == b"2\n" and members["l"].linkname == "a"
    done = alice.put(box + "/archive?path=/tmp/copy", packed.body)
    assert done.status == 200 and done.json["entries"] >= 4
    assert run("diff -r /tmp/src /tmp/copy && stat -c %a /tmp/copy/sub")["stdout"] == "700\n"
    assert alice.get(box + "/archive?path=/nope").code == "file_not_found"


def test_a_tar_cannot_leave_its_folder(alice, box, run):
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as tar:
        entry = tarfile.TarInfo("../../escaped")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    alice.put(box + "/archive?path=/tmp/in/side", evil.getvalue())
    assert run("ls /tmp/escaped /escaped /tmp/in/escaped 2>/dev/null; true")["stdout"] == ""


def test_what_is_no_tar_is_refused(alice, box):
    assert alice.put(box + "/archive?path=/tmp/no", os.urandom(4096)).status == 400


def test_many_small_requests_share_few_processes(alice, box):
    for i in range(200):
        assert alice.put(f"{box}/files/tmp/n{i % 10}", b"x").status == 200
    assert alice.get(box + "/exec").json["execs"] == []
