"""Pooled boxes: taken by creates that fit, replaced behind them, without an owner until then, and never left behind."""
import os
import pathlib
import resource
import signal
import threading

import pytest

from support.client import Client
from support.server import Server
from support.users import ORDINARY
from support.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")
os.umask(0o022)           # boxes read what is made here


def boxes_of_keeper(server):
    """How many boxes there are, of any owner: their inits are the keeper's children and have a pid namespace of their own."""
    keeper = server.keeper_pid()
    own, found = os.readlink(f"/proc/{keeper}/ns/pid"), 0
    for child in pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
        try:
            status = pathlib.Path(f"/proc/{child}/status").read_text()
            other = os.readlink(f"/proc/{child}/ns/pid")
        except OSError:
            continue
        found += other != own and "\nNSpid:" in status and status.split("\nNSpid:")[1].split("\n")[0].split()[-1] == "1"
    return found


def wait_boxes(server, n):
    wait_for(lambda: boxes_of_keeper(server) == n, lambda: f"{boxes_of_keeper(server)} boxes, not {n}")


def start(request, *options):
    server = Server(*options)
    request.addfinalizer(server.stop)
    return server, Client(server.socket)


@pytest.fixture
def pooled(request):
    server, client = start(request)
    wait_boxes(server, 2)
    return server, client


def create(client, **body):
    answer = client.post("/v1/boxes", body)
    assert answer.status == 201, answer.body
    return answer.json


def test_a_create_that_fits_takes_a_ready_box_and_another_is_made(pooled):
    server, client = pooled
    box = create(client, name="mine", labels={"a": "b"}, env={"GREETING": "hello"})
    assert box["from_pool"] is True and box["phase"] == "running" and box["name"] == "mine" and box["ready_at"]
    ran = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": "echo $GREETING; hostname; id -u"}).json
    assert ran["outcome"] == "ok" and ran["stdout"].split() == ["hello", "box", "1000"]
    wait_boxes(server, 3)       # two ready ones and this


def test_the_limits_are_the_default_ones(pooled):
    server, client = pooled
    box = create(client)
    assert box["from_pool"] is True
    usual = create(client, hostname="other")    # of the same limits, made for the purpose
    assert usual["from_pool"] is False and box["limits"] == usual["limits"]
    look = {"shell": "cat /proc/meminfo | head -1; df -k /tmp | tail -1 | awk '{print $2}'; grep -c ^processor /proc/cpuinfo"}
    shown = [client.post(f"/v1/boxes/{b['id']}/exec", look).json["stdout"] for b in (box, usual)]
    assert shown[0] == shown[1] and shown[0]


@pytest.mark.parametrize("body", [{"hostname": "other"}, {"limits": {"memory": "256M"}}, {"limits": {"disk": "16M"}}, {"limits": {"pids": 64}}, {"limits": {"cpus": 0.5}},
                                  {"profile": "strict"}, {"profile": "system"}, {"user": 1001}, {"writable_root": True}])
def test_a_create_that_does_not_fit_gets_what_it_asks_for(pooled, body):
    server, client = pooled
    box = create(client, **body)
    assert box["from_pool"] is False
    for key, value in body.items():
        if key not in ("limits", "user"):
            assert box[key] == value
    wait_boxes(server, 3)


def test_ready_boxes_are_nobodys(request):
    server, client = start(request, "--set", "quota.boxes=2", "--set", "pool.size=3")
    wait_boxes(server, 3)
    assert client.get("/v1/boxes?all=true").json["boxes"] == []
    for _ in range(2):
        create(client)
    assert client.post("/v1/boxes", {}).status in (403, 429)
    assert len(client.get("/v1/boxes?all=true").json["boxes"]) == 2
    wait_boxes(server, 5)


def test_ready_boxes_take_no_callers_place(request, programs):
    """A server with descriptors for seven boxes: three stand ready, and a caller still gets seven others."""
    room = 512 + 24 * 7
    server = Server("--set", "pool.size=3", user=ORDINARY, place=programs, prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (room, room)))
    request.addfinalizer(server.stop)
    wait_boxes(server, 3)
    answers = [server.admin.post("/v1/boxes", {"profile": "strict"}) for _ in range(8)]
    assert [a.status for a in answers] == [201] * 7 + [503], [a.body for a in answers]
    wait_boxes(server, 7)
    for answer in answers[:7]:
        server.admin.delete("/v1/boxes/" + answer.json["id"])
    wait_boxes(server, 3)


def test_a_pool_that_is_off_makes_nothing(request):
    server, client = start(request, "--set", "pool.size=0")
    assert create(client)["from_pool"] is False
    wait_boxes(server, 1)


def test_many_at_once_get_a_box_each(pooled):
    server, client = pooled
    made, lock = [], threading.Lock()

    def one():
        box = create(Client(server.socket))
        with lock:
            made.append(box)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert len({b["id"] for b in made}) == 8
    for b in made:
        assert client.post(f"/v1/boxes/{b['id']}/exec", {"argv": ["touch", "/tmp/seen"]}).json["outcome"] == "ok"
    fresh = create(client)
    assert client.post(f"/v1/boxes/{fresh['id']}/exec", {"argv": ["test", "-e", "/tmp/seen"]}).json["exit_code"] == 1
    for b in [*made, fresh]:
        assert client.delete(f"/v1/boxes/{b['id']}").status == 204
    wait_boxes(server, 2)


def test_a_front_that_is_killed_keeps_what_was_taken_and_leaves_nothing_else(pooled):
    server, client = pooled
    box = create(client)
    assert box["from_pool"] is True
    job = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": "echo alive; sleep 1000", "background": True})
    assert job.status in (200, 201, 202), job.body
    for _ in range(5):
        front = server.front_pid()
        os.kill(front, signal.SIGKILL)
        wait_for(lambda: not pathlib.Path(f"/proc/{front}").exists() and server.is_ready())
        again = client.get(f"/v1/boxes/{box['id']}").json
        assert again["phase"] == "running" and again["from_pool"] is True
        assert client.post(f"/v1/boxes/{box['id']}/exec", {"argv": ["true"]}).json["outcome"] == "ok"
        wait_boxes(server, 3)
        other = create(client)      # right after the restart, while what was left over may still be dying
        assert other["phase"] == "running"
        assert client.delete(f"/v1/boxes/{other['id']}").status == 204
    assert client.delete(f"/v1/boxes/{box['id']}").status == 204
    wait_boxes(server, 2)


def test_a_keeper_that_is_killed_takes_the_pool_with_it_and_gets_a_new_one(pooled):
    server, client = pooled
    box = create(client)
    keeper = server.keeper_pid()
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: client.get(f"/v1/boxes/{box['id']}").json["phase"] == "failed")
    wait_for(server.is_ready)
    wait_for(lambda: server.keeper_pid() != keeper and boxes_of_keeper(server) == 2)
    assert create(client)["from_pool"] is True


def test_boxes_come_and_go_and_are_still_told_of(pooled):
    server, client = pooled
    gone = []
    for _ in range(40):
        gone.append(create(client)["id"])
        assert client.delete(f"/v1/boxes/{gone[-1]}").status == 204
    assert all(client.get(f"/v1/boxes/{box}").json["phase"] == "deleted" for box in gone)
    wait_boxes(server, 2)
