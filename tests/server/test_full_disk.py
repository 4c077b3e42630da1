"""The disk of the state is full or cannot be written: clear errors, the server lives, no promised data is lost, and it continues when there is room."""
import json
import os
import pathlib
import subprocess
import tempfile
import time

import pytest

from support.client import lines
from support.waiting import wait_for
from traces import SMALL, Counter, Server, make_box, run

SIZE = 12 << 20


@pytest.fixture
def small_disk():
    """A file system of 12 MiB."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-disk-"))
    folder.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    folder.rmdir()


@pytest.fixture
def cramped(small_disk):
    s = Server("--set", "limits.memory=8G", state=small_disk / "state")
    s.disk = small_disk
    yield s
    s.stop()


def fill(folder):
    with open(folder / "ballast", "ab", buffering=0) as f:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError:
                pass


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_full_disk_is_told_and_survived(cramped):
    client, front = cramped.token("alice"), cramped.front()
    box = make_box(client)
    counter = Counter(client, box)
    wait_for(lambda: counter.check_more() > 5)
    fill(cramped.disk)
    before, begin = cpu_seconds(front), time.monotonic()

    refused = {}
    for what, ask in {"create": lambda: client.post("/v1/boxes", {"limits": SMALL}), "exec": lambda: client.post(box + "/exec", {"argv": ["true"], "background": True}),
                      "token": lambda: cramped.admin.post("/v1/tokens", {"identity": "late"})}.items():
        # The database may have some room left inside.
        refused[what] = wait_for(lambda: (lambda a: a if a.status >= 500 else None)(ask()), every_s=0)
        assert refused[what] and refused[what].status in (503, 507), what
        assert refused[what].code == "disk_full" and "disk" in refused[what].json["error"]["message"], refused[what].body
    # Requests that need no room work.
    for path in ("/healthz", "/v1/me", box, "/v1/boxes", counter.path, box + "/usage", "/openapi.json"):
        assert client.get(path).status == 200, path
    assert client.put(box + "/files/tmp/x", b"in the box there is room").status < 300
    assert client.get(box + "/files/tmp/x").body == b"in the box there is room"
    while time.monotonic() < begin + 2:
        assert client.get("/v1/me").status == 200
        time.sleep(0.05)
    # Nothing spins, and nothing died.
    assert cpu_seconds(front) - before < (time.monotonic() - begin) * 0.6
    assert cramped.front() == front

    (cramped.disk / "ballast").unlink()
    seen = counter.check_more()
    wait_for(lambda: counter.check_more() > seen)
    counter.check_all()
    again = make_box(client)
    assert run(client, again, "echo room")["stdout"] == "room\n"
    assert client.delete(again).status == 204 and client.delete(box).status == 204
    assert cramped.front() == front


def test_output_that_finds_no_room_waits_for_it(cramped):
    client = cramped.token("alice")
    box = make_box(client)
    line = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"
    x = client.post(box + "/exec", {"shell": "sleep 0.5; " + line, "background": True}).json
    path = f"{box}/exec/{x['id']}"
    wait_for(lambda: client.get(path).json["state"] == "running")
    fill(cramped.disk)
    wait_for(lambda: "cannot be stored" in cramped.log_text())
    (cramped.disk / "ballast").unlink()
    wait_for(lambda: client.get(path).json["state"] == "ended")
    text = "".join(l["data"] for l in lines(client.open("GET", path + "/output")) if l["type"] == "stdout")
    assert text == "".join(f"{i}\n" for i in range(20000))
    assert client.get(path).json["outcome"] == "ok" and client.get(path).json["reason"] is None


def test_deleting_works_without_room_and_is_remembered_in_the_end(cramped):
    client = cramped.token("alice")
    boxes = [make_box(client) for _ in range(3)]
    fill(cramped.disk)
    for box in boxes:
        assert client.delete(box).status in (204, 503, 507)
    (cramped.disk / "ballast").unlink()
    for box in boxes:
        client.delete(box)
        wait_for(lambda: client.get(box).json["phase"] == "deleted")
    cramped.kill("front")
    for box in boxes:
        assert client.get(box).json["phase"] in ("deleted", "failed")
    assert make_box(client)


def test_a_front_that_is_killed_while_the_disk_is_full_comes_back(cramped):
    client = cramped.token("alice")
    box = make_box(client)
    counter = Counter(client, box)
    fill(cramped.disk)
    os.kill(cramped.front(), 9)
    time.sleep(0.5)
    assert cramped.process.poll() is None
    (cramped.disk / "ballast").unlink()
    wait_for(cramped.is_ready, cramped.log_text)
    assert client.get(box).json["phase"] == "running"
    seen = counter.check_more()
    wait_for(lambda: counter.check_more() > seen)
    counter.check_all()


def test_a_database_that_cannot_be_opened_is_told_and_tried_again(cramped):
    client = cramped.token("alice")
    box = make_box(client)
    owner = (cramped.state / "state.db").stat()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        os.chown(cramped.state / name, 0, 0)
    os.kill(cramped.front(), 9)
    wait_for(lambda: "state.db" in cramped.log_text() or "database" in cramped.log_text(), cramped.log_text)
    assert cramped.process.poll() is None
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        if (cramped.state / name).exists():
            os.chown(cramped.state / name, owner.st_uid, owner.st_gid)
    wait_for(cramped.is_ready, cramped.log_text)
    assert client.get(box).json["phase"] == "running"


def test_a_state_that_is_read_only_is_refused_at_the_start(small_disk):
    (small_disk / "state").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    s = Server(state=small_disk / "state", ready=False)
    try:
        assert s.process.wait(20) == 125
        assert "Read-only file system" in s.log_text() and str(s.state) in s.log_text()
    finally:
        s.stop()


def test_a_damaged_database_is_told(small_disk):
    (small_disk / "state").mkdir()
    (small_disk / "state" / "state.db").write_bytes(os.urandom(8192))
    s = Server(state=small_disk / "state", ready=False)
    try:
        wait_for(lambda: "state.db" in s.log_text() or "database" in s.log_text(), s.log_text)
        said = [json.loads(l)["message"] for l in s.log_text().splitlines() if l.startswith("{")]
        assert any("database" in m or "state.db" in m for m in said), said
    finally:
        s.stop()
