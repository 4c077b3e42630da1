"""Obstacles of a box for the file API, and hostile uploads of a caller. The host's files are never read, written or removed; nothing blocks."""
import hashlib
import io
import os
import pathlib
import socket
import tarfile
import threading
import time
import urllib.parse

import pytest

from support.processes import resident_bytes
from support.waiting import wait_for
from traces import amount, run

MIB = 1 << 20
ROOMY = {"memory": "512M", "disk": "128M", "pids": 64}
CANARY = pathlib.Path(f"/var/tmp/carrel-canary-{os.getpid()}")


@pytest.fixture
def canary():
    """A file of the host, in a folder that boxes do not have."""
    CANARY.write_text("host secret")
    CANARY.chmod(0o666)
    yield CANARY
    assert CANARY.read_text() == "host secret" and (CANARY.stat().st_mode & 0o7777, CANARY.stat().st_uid) == (0o666, 0)
    CANARY.unlink()


def in_time(ask, seconds=60):
    """The answer; a blocking request fails instead."""
    result = []
    thread = threading.Thread(target=lambda: result.append(ask()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert result, "no answer came"
    return result[0]


def tar(*entries):
    """Of (name, type, link or data)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, kind, what in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(what)
                t.addfile(info, io.BytesIO(what))
            else:
                info.linkname = what or ""
                t.addfile(info)
    return out.getvalue()


def test_links_lead_nowhere_on_the_host(alice, box, canary):
    run(alice, box, f"cd /tmp; ln -s {canary} a; ln -s /etc/shadow b; ln -s /proc/1/root{canary} c; ln -s /../../../..{canary} d; ln -s {canary.parent} e; "
                    "ln -s /proc/self/root/proc/1/environ f; ln -s g g")
    for name in "abcdefg":
        for way in (f"/files/tmp/{name}", f"/files/tmp/{name}/{canary.name}"):
            answer = in_time(lambda: alice.get(box + way))
            assert b"host secret" not in answer.body and b"root:" not in answer.body, way
            assert answer.status < 500, (way, answer.body)
    assert alice.get(box + "/files/tmp/b").status in (403, 404)
    packed = in_time(lambda: alice.get(box + "/archive?path=/tmp"))
    with tarfile.open(fileobj=io.BytesIO(packed.body)) as t:
        assert {m.name.strip("./"): m.issym() for m in t.getmembers() if m.name.strip("./")} == dict.fromkeys("abcdefg", True)
    # Overwritten, changed, removed: the link or a file in the box, never the link's target.
    for name in "abcde":
        assert alice.put(f"{box}/files/tmp/{name}", b"overwritten").status < 500
        alice.post(f"{box}/files/tmp/{name}", {"action": "chmod", "mode": "0777"})
        alice.delete(f"{box}/files/tmp/{name}?recursive=true")
    assert not run(alice, box, "ls -A /tmp | grep -x '[a-e]'; true")["stdout"]


def test_an_exchange_of_a_folder_for_a_link_is_never_followed_out(alice, box, canary):
    """A race: the box swaps a folder and a link to the host's as fast as it can, while the API writes and deletes below it."""
    swapper = ("import ctypes,os\nc=ctypes.CDLL(None)\nos.chdir('/tmp')\nos.makedirs('d',exist_ok=True)\nos.symlink('%s','l')\n"
               "while True: c.renameat2(-100,b'd',-100,b'l',2)\n" % canary.parent)
    x = alice.post(box + "/exec", {"argv": ["python3", "-c", swapper], "background": True}).json
    wait_for(lambda: alice.get(box + "/files/tmp/d").status in (200, 400, 404))
    for i in range(amount(60, 3000)):
        alice.put(box + "/files/tmp/d/" + canary.name, b"overwritten")
        got = alice.get(box + "/files/tmp/d/" + canary.name)
        assert got.body != b"host secret"
        alice.delete(box + "/files/tmp/d/" + canary.name)
        assert canary.exists()
    alice.delete(f"{box}/exec/{x['id']}")


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder"])
def test_what_is_no_file_is_refused_at_once(alice, box, kind):
    make = {"fifo": "mkfifo /tmp/x", "socket": "python3 -c \"import socket;socket.socket(socket.AF_UNIX).bind('/tmp/x')\"",
            "device": "ln -s /dev/zero /tmp/x", "folder": "mkdir /tmp/x"}[kind]
    run(alice, box, make)
    begin = time.monotonic()
    got = in_time(lambda: alice.get(box + "/files/tmp/x"))
    assert got.status < 500 and len(got.body) < 10000, got.status
    put = in_time(lambda: alice.put(box + "/files/tmp/x" + ("" if kind != "device" else "?offset=0"), b"data"))
    assert put.status < 500, put.body
    assert in_time(lambda: alice.get(box + "/archive?path=/tmp")).status == 200
    assert time.monotonic() - begin < 10
    assert run(alice, box, "echo fine")["stdout"] == "fine\n"


def test_a_fifo_in_the_way_of_every_action(alice, box):
    run(alice, box, "mkdir -p /tmp/d; mkfifo /tmp/d/f; ln -s f /tmp/d/l")
    for ask in (lambda: alice.get(box + "/files/tmp/d/l"), lambda: alice.put(box + "/files/tmp/d/l?append=true", b"x"),
                lambda: alice.put(box + "/files/tmp/d/f?offset=10", b"x"), lambda: alice.post(box + "/files/tmp/d/f", {"action": "chmod", "mode": "0600"}),
                lambda: alice.get(box + "/archive?path=/tmp/d/f"), lambda: alice.put(box + "/archive?path=/tmp/d/f", tar(("a", tarfile.REGTYPE, b"x"))),
                lambda: alice.put(box + "/archive?path=/tmp/d", tar(("f", tarfile.REGTYPE, b"x"))), lambda: alice.delete(box + "/files/tmp/d?recursive=true")):
        assert in_time(ask).status < 500


EVIL = [
    [("../escaped", tarfile.REGTYPE, b"x")], [("a/../../escaped", tarfile.REGTYPE, b"x")], [("/tmp/own/escaped", tarfile.REGTYPE, b"x")],
    [("/etc/cron.d/escaped", tarfile.REGTYPE, b"x")], [("l", tarfile.SYMTYPE, ".."), ("l/escaped", tarfile.REGTYPE, b"x")],
    [("l", tarfile.SYMTYPE, "/tmp/own"), ("l/escaped", tarfile.REGTYPE, b"x")], [("l", tarfile.SYMTYPE, "/tmp/own/escaped"), ("l", tarfile.REGTYPE, b"x")],
    [("h", tarfile.LNKTYPE, "../victim"), ("h", tarfile.REGTYPE, b"overwritten")], [("h", tarfile.LNKTYPE, "/tmp/own/victim"), ("h", tarfile.REGTYPE, b"overwritten")],
    [("l", tarfile.SYMTYPE, ".."), ("h", tarfile.LNKTYPE, "l/victim"), ("h", tarfile.REGTYPE, b"overwritten")],
    [("dev", tarfile.CHRTYPE, ""), ("blk", tarfile.BLKTYPE, ""), ("fifo", tarfile.FIFOTYPE, ""), ("ok", tarfile.REGTYPE, b"x")],
    [("d", tarfile.DIRTYPE, ""), ("d", tarfile.SYMTYPE, ".."), ("d/escaped", tarfile.REGTYPE, b"x")],
    [("", tarfile.REGTYPE, b"x")], [(".", tarfile.SYMTYPE, "..")], [("..", tarfile.DIRTYPE, "")], [("a" * 300, tarfile.REGTYPE, b"x")],
]


@pytest.mark.parametrize("entries", EVIL, ids=range(len(EVIL)))
def test_a_tar_stays_in_its_folder(alice, box, entries):
    run(alice, box, "mkdir -p /tmp/own/in; echo safe >/tmp/own/victim")
    answer = in_time(lambda: alice.put(box + "/archive?path=/tmp/own/in", tar(*entries)))
    assert answer.status in (200, 400, 403, 404, 409, 422), answer.body
    seen = run(alice, box, "cat /tmp/own/victim; ls /tmp/own; find /tmp/own/in -type b -o -type c; test -e /etc/cron.d/escaped && echo escaped; true")["stdout"].split()
    assert seen == ["safe", "in", "victim"], seen


def test_a_tar_bomb_ends_at_the_limits_of_the_box(server, alice, new_box):
    box = new_box(limits={"memory": "64M", "disk": "32M", "pids": 32})
    before = resident_bytes(server.front()), resident_bytes(server.keeper())
    header = tarfile.TarInfo("bomb")
    header.size = 1 << 40
    begin = header.tobuf()

    def body():
        yield begin
        for _ in range(200):
            yield b"\0" * MIB
    try:
        assert alice.put(box + "/archive?path=/tmp", body()).status in (400, 507)
    except OSError:
        pass        # refused while it was sent
    many = tar(*[(f"d{i}/f", tarfile.REGTYPE, b"") for i in range(20000)])
    answer = in_time(lambda: alice.put(box + "/archive?path=/tmp/many", many), 60)
    assert answer.status in (200, 400, 507), answer.body
    wait_for(lambda: alice.post(box + "/exec", {"argv": ["true"]}).status == 200)
    after = resident_bytes(server.front()), resident_bytes(server.keeper())
    assert after[0] - before[0] < 16 * MIB and after[1] - before[1] < 4 * MIB


def test_a_hundred_megabytes_into_a_small_box_cost_only_the_box(server, alice, new_box):
    box = new_box(limits={"memory": "64M", "disk": "48M", "pids": 32})
    before = resident_bytes(server.front()), resident_bytes(server.keeper())
    highest = [0, 0]
    over = threading.Event()

    def look():
        while not over.is_set():
            for i, pid in enumerate((server.front(), server.keeper())):
                highest[i] = max(highest[i], resident_bytes(pid))
            time.sleep(0.01)
    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        assert alice.put(box + "/files/tmp/own/big?parents=true", iter([b"x" * MIB] * 100)).status == 507
    except (BrokenPipeError, ConnectionResetError):
        pass        # refused while it was sent
    over.set()
    watcher.join()
    assert highest[0] - before[0] < 8 * MIB and highest[1] - before[1] < 2 * MIB, (before, highest)
    wait_for(lambda: run(alice, box, "ls -A /tmp/own")["stdout"] == "")
    assert alice.get(box).json["phase"] == "running"


def test_a_file_of_an_exbibyte(server, alice, box):
    # As large as the file system of the box allows; it takes no room at all.
    size = run(alice, box, "for s in 1E 8191P 7E 1P 16T 8T 1T 100G; do truncate -s $s /tmp/sparse 2>/dev/null && break; done; stat -c %s /tmp/sparse")["stdout"]
    assert int(size) >= 1 << 30
    assert alice.ask("HEAD", box + "/files/tmp/sparse").headers["Content-Length"] == size.strip()
    response = alice.open("GET", box + "/files/tmp/sparse")
    assert response.read(MIB) == b"\0" * MIB
    response.connection.close()
    response = alice.open("GET", box + "/archive?path=/tmp")
    assert response.status in (200, 413) and len(response.read(MIB)) > 0
    response.connection.close()
    last = alice.get(box + "/files/tmp/sparse", headers={"Range": "bytes=-10"})
    assert last.status == 206 and last.body == b"\0" * 10
    response = alice.open("GET", box + "/files/tmp/sparse", headers={"Range": f"bytes={int(size) - 1}-{int(size) + 1000}"})
    assert response.status == 206 and response.read(10) == b"\0"
    response.connection.close()
    assert alice.get(box + "/files/tmp/").status == 200
    wait_for(lambda: alice.post(box + "/exec", {"argv": ["true"]}).status == 200)


def test_a_hundred_thousand_entries_come_in_pages(server, alice, new_box):
    count = amount(20000, 100000)
    box = new_box(limits={"memory": "2G", "disk": "2G", "pids": 64})        # a tmpfs has so many inodes for its size
    made = run(alice, box, f"mkdir /tmp/d; cd /tmp/d; seq {count} | xargs touch; ls | wc -l")
    assert made["stdout"].strip() == str(count), made
    before = resident_bytes(server.front())
    names, cursor, pages = [], "", 0
    while True:
        page = alice.get(box + "/files/tmp/d?limit=1000" + cursor)
        assert page.status == 200 and len(page.body) < MIB
        names += [e["name"] for e in page.json["entries"]]
        pages += 1
        if not page.json.get("next"):
            break
        cursor = "&cursor=" + urllib.parse.quote(str(page.json["next"]))
    assert pages >= count / 1000 and sorted(map(int, names)) == list(range(1, count + 1))
    assert resident_bytes(server.front()) - before < 16 * MIB
    assert in_time(lambda: alice.delete(box + "/files/tmp/d?recursive=true"), 60).status in (200, 204)


def test_names_are_bytes(alice, box):
    run(alice, box, r"""cd /tmp; mkdir d; printf x >"$(printf 'd/new\nline')"; printf x >"$(printf 'd/\377\376')"; printf x >'d/"quoted\'; printf x >"$(printf 'd/\033[31mred')" """)
    entries = alice.get(box + "/files/tmp/d").json["entries"]
    assert len(entries) == 4
    for name in (b"new\nline", b"\xff\xfe", b'"quoted\\', b"\x1b[31mred"):
        path = box + "/files/tmp/d/" + urllib.parse.quote(name, safe="")
        assert alice.get(path).body == b"x", name
        assert alice.put(path, b"y").status < 300 and alice.get(path).body == b"y"
        assert alice.delete(path).status in (200, 204)
    assert alice.get(box + "/files/tmp/d").json["entries"] == []
    for path in ("/files/tmp/%00", "/files/tmp/a%00b", "/files/" + "a/" * 3000, "/files/tmp/" + "n" * 256, "/files/..%2f..%2fetc", "/files/%2e%2e/%2e%2e/etc/shadow"):
        answer = alice.get(box + path)
        assert answer.status in (400, 403, 404, 414, 431), (path, answer.status)
        assert b"root:" not in answer.body


def test_a_deep_tree_is_packed_and_removed(alice, box):
    deep = "import os\nos.chdir('/tmp')\nos.mkdir('t')\nos.chdir('t')\nfor i in range(%d):\n os.mkdir('d'); os.chdir('d')\n" % amount(3000, 20000)
    alice.post(box + "/exec", {"argv": ["python3", "-c", deep]})
    assert in_time(lambda: alice.get(box + "/archive?path=/tmp/t"), 60).status in (200, 400)
    assert in_time(lambda: alice.delete(box + "/files/tmp/t?recursive=true"), 60).status in (200, 204)
    assert alice.get(box + "/files/tmp/t").status == 404


def test_one_gigabyte_each_way_in_constant_memory(server, alice, new_box):
    size = amount(256, 1024)
    box = new_box(limits={"memory": f"{size * 2}M", "disk": f"{size + 64}M"})
    before = resident_bytes(server.front()), resident_bytes(server.keeper())
    piece = os.urandom(MIB)
    assert alice.put(box + "/files/tmp/large", iter([piece] * size)).json == {"bytes": size * MIB}
    response = alice.open("GET", box + "/files/tmp/large")
    digest, expected, n = hashlib.sha256(), hashlib.sha256(), 0
    while data := response.read(MIB):
        digest.update(data)
        n += len(data)
    for _ in range(size):
        expected.update(piece)
    response.connection.close()
    assert n == size * MIB and digest.digest() == expected.digest()
    after = resident_bytes(server.front()), resident_bytes(server.keeper())
    assert after[0] - before[0] < 16 * MIB and after[1] - before[1] < 2 * MIB, (before, after)


def test_uploads_that_break_off_leave_nothing(alice, box):
    run(alice, box, "mkdir /tmp/own")
    for i in range(20):
        s = alice.raw_socket()
        s.sendall(f"PUT {box}/files/tmp/own/broken HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\nContent-Length: 1000000\r\n\r\n".encode() + b"x" * (i * 1000))
        if i % 2:
            s.shutdown(socket.SHUT_WR)
        s.close()
    wait_for(lambda: run(alice, box, "ls -A /tmp/own")["stdout"] == "")
    assert alice.put(box + "/files/tmp/own/whole", b"whole").status < 300
