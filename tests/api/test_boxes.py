import os
import resource
import threading
import time

import pytest

from support.client import events
from support.processes import status_of
from support.server import Server
from support.users import ORDINARY
from support.waiting import wait_for

CAP_SYS_RESOURCE = 24


def test_a_box_is_made_shown_and_deleted(alice):
    made = alice.post("/v1/boxes", {"name": "whole", "labels": {"team": "red"}, "env": {"A": "1"}, "hostname": "desk", "user": "7:8"})
    assert made.status == 201
    box = made.json
    assert made.headers["Location"] == "/v1/boxes/" + box["id"]
    assert (box["phase"], box["name"], box["owner"], box["hostname"], box["user"]) == ("running", "whole", "alice", "desk", {"uid": 7, "gid": 8})
    assert alice.get("/v1/boxes/whole").json == alice.get("/v1/boxes/" + box["id"]).json
    assert alice.delete("/v1/boxes/whole").status == 204
    assert alice.get("/v1/boxes/whole").status == 404
    gone = alice.get("/v1/boxes/" + box["id"]).json
    assert (gone["phase"], gone["reason"]) == ("deleted", "asked")
    assert alice.delete("/v1/boxes/" + box["id"]).status == 204


@pytest.mark.cgroups
def test_a_body_is_not_needed(alice, make_box):
    box = make_box()
    assert box["limits"]["disk"] <= box["limits"]["memory"]


def test_create_without_waiting_answers_at_once(alice):
    made = alice.post("/v1/boxes?wait=false", {})
    assert made.status == 202 and made.json["phase"] in ("creating", "running")
    path = made.headers["Location"]
    wait_for(lambda: alice.get(path).json["phase"] == "running")
    alice.delete(path)


def test_the_same_key_gives_the_same_box(alice, make_box):
    first = alice.post("/v1/boxes", {}, headers={"Idempotency-Key": "k-1"})
    again = alice.post("/v1/boxes", {}, headers={"Idempotency-Key": "k-1"})
    assert (first.status, again.status) == (201, 200)
    assert first.json["id"] == again.json["id"] and again.headers["Idempotency-Replayed"] == "true"
    alice.delete("/v1/boxes/" + first.json["id"])


def test_one_key_at_the_same_time_makes_one_box(alice):
    ids = []
    ask = lambda: ids.append(alice.post("/v1/boxes", {}, headers={"Idempotency-Key": "k-2"}).json["id"])
    threads = [threading.Thread(target=ask) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(ids) == 8 and len(set(ids)) == 1
    alice.delete("/v1/boxes/" + ids[0])


def test_a_name_is_unique_among_living_boxes(alice, make_box):
    make_box(name="taken")
    again = alice.post("/v1/boxes", {"name": "taken"})
    assert (again.status, again.code) == (409, "exists")


@pytest.mark.cgroups
def test_admission_says_what_is_free(alice):
    full = alice.post("/v1/boxes", {"limits": {"cpus": 1}, "requests": {"memory": "15.9G"}, "limits": {"memory": "15.9G"}})
    free = alice.get("/v1/info").json["free"]["memory"]
    if full.status == 201:
        path = "/v1/boxes/" + full.json["id"]
        full = alice.post("/v1/boxes", {"requests": {"memory": "15.9G"}, "limits": {"memory": "15.9G"}})
        free = alice.get("/v1/info").json["free"]["memory"]
        alice.delete(path)
    assert (full.status, full.code) == (503, "host_full")
    assert full.json["error"]["details"]["free"]["memory"] == free


def test_a_box_has_no_more_processes_than_the_server_allows(alice, make_box):
    refused = alice.post("/v1/boxes", {"limits": {"pids": 4194304}})
    assert refused.status == 400 and "limits.pids may be at most 4096" in refused.json["error"]["message"]
    path = "/v1/boxes/" + make_box(limits={"pids": 4096})["id"]
    assert alice.patch(path, {"limits": {"pids": 4097}}).status == 400


@pytest.mark.cgroups
def test_limits_change_while_the_box_runs(alice, make_box):
    path = "/v1/boxes/" + make_box(limits={"memory": "64M", "disk": "32M"})["id"]
    changed = alice.patch(path, {"limits": {"memory": "128M", "pids": 33}, "labels": {"x": "y"}, "ttl": "1h"})
    assert changed.status == 200
    box = alice.get(path).json
    assert box["limits"]["memory"] == 128 << 20 and box["limits"]["pids"] == 33 and box["labels"] == {"x": "y"} and box["ttl"] == 3600
    assert box["expires_at"]


@pytest.mark.cgroups
def test_a_paused_box_does_nothing_until_it_is_resumed(alice, box):
    x = alice.post(box + "/exec", {"shell": "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done", "background": True}).json
    out = lambda: alice.get(f"{box}/exec/{x['id']}").json["output_bytes"]
    wait_for(out)
    assert alice.post(box + "/pause").json["phase"] == "paused"
    assert alice.post(box + "/pause").status == 200
    seen = [out()]

    def is_still():     # its earlier output may be in flight
        time.sleep(0.3)
        seen.append(out())
        return seen[-1] == seen[-2]
    wait_for(is_still)
    still = out()
    assert alice.post(box + "/exec", {"argv": ["true"]}).code == "wrong_phase"
    assert alice.get(box + "/files/").code == "wrong_phase"
    assert out() == still
    assert alice.post(box + "/resume").json["phase"] == "running"
    wait_for(lambda: out() > still)


def test_a_box_in_memory_cannot_be_stopped(alice, box):
    answer = alice.post(box + "/stop")
    assert answer.status in (400, 409) and "disk" in answer.json["error"]["message"]
    assert alice.get(box).json["phase"] == "running"
    assert alice.post(box + "/start").status == 200     # it runs already


def test_a_box_on_disk_keeps_its_files_when_it_is_stopped(alice):
    made = alice.post("/v1/boxes", {"store": "disk", "limits": {"memory": "64M", "disk": "128M"}})
    if made.status == 501:
        pytest.skip(made.json["error"]["message"])
    assert made.status == 201, made.body
    path = "/v1/boxes/" + made.json["id"]
    try:
        assert alice.put(path + "/files/home/box/kept", b"still here").status == 200
        x = alice.post(path + "/exec", {"argv": ["sleep", "1000"], "background": True}).json["id"]
        assert alice.post(path + "/stop").json["phase"] == "stopped"
        assert alice.get(f"{path}/exec/{x}").json["state"] == "ended"
        assert alice.post(path + "/exec", {"argv": ["true"]}).code == "wrong_phase"
        assert alice.get(path + "/files/home/box/kept").code == "wrong_phase"
        assert alice.post(path + "/start").json["phase"] == "running"
        assert alice.get(path + "/files/home/box/kept").body == b"still here"
        assert alice.post(path + "/exec", {"argv": ["cat", "kept"]}).json["stdout"] == "still here"
    finally:
        assert alice.delete(path).status == 204


@pytest.mark.cgroups
def test_usage_counts_what_the_box_does(alice, box, run):
    before = alice.get(box + "/usage").json
    run("head -c 10000000 /dev/zero >/tmp/x; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
    after = alice.get(box + "/usage").json
    assert after["disk_bytes"] >= before["disk_bytes"] + 10000000 and after["cpu_ms"] > before["cpu_ms"]


def test_a_box_ends_when_its_time_is_over(alice, make_box):
    path = "/v1/boxes/" + make_box(ttl=1)["id"]
    wait_for(lambda: alice.get(path).json["phase"] == "deleted")
    assert alice.get(path).json["reason"] == "ttl"


@pytest.mark.cgroups
def test_an_idle_box_is_paused(alice, make_box):
    path = "/v1/boxes/" + make_box(idle_timeout=1, on_idle="pause")["id"]
    wait_for(lambda: alice.get(path).json["phase"] == "paused")
    assert alice.post(path + "/resume").status == 200


@pytest.mark.cgroups
def test_lists_are_filtered_and_paged(alice, make_box):
    mine = [make_box(labels={"batch": "7", "n": str(i)})["id"] for i in range(5)]
    got, cursor = [], ""
    while True:
        page = alice.get("/v1/boxes?label=batch%3D7&limit=2" + cursor).json
        assert len(page["boxes"]) <= 2
        got += [b["id"] for b in page["boxes"]]
        if page["next"] is None:
            break
        cursor = "&cursor=" + page["next"]
    assert got == mine[::-1]
    assert [b["id"] for b in alice.get("/v1/boxes?label=batch=7&label=n=3").json["boxes"]] == [mine[3]]
    assert alice.get("/v1/boxes?label=batch=8").json == {"boxes": [], "next": None}
    alice.post(f"/v1/boxes/{mine[0]}/pause")
    assert [b["id"] for b in alice.get("/v1/boxes?label=batch=7&phase=paused").json["boxes"]] == [mine[0]]


@pytest.mark.cgroups
def test_events_tell_every_change_of_phase(alice, make_box):
    path = "/v1/boxes/" + make_box()["id"]
    alice.post(path + "/pause")
    alice.post(path + "/resume")
    alice.delete(path)
    log = alice.get(path + "/events").json["events"]
    phases = [e["body"]["to"] for e in log if e["type"] == "phase"]
    assert phases == ["running", "paused", "running", "deleting", "deleted"]
    first = alice.get(path + "/events?limit=1").json
    rest = alice.get(f"{path}/events?after={first['next']}").json
    assert first["events"] + rest["events"] == log


@pytest.mark.cgroups
def test_a_watcher_sees_changes_as_they_happen_and_resumes_where_it_was(alice, make_box):
    watch = alice.open("GET", "/v1/events", headers={"Accept": "text/event-stream"})
    assert watch.headers["Content-Type"] == "text/event-stream"
    stream = events(watch)
    box = make_box()["id"]
    last, kind, data = next(stream)
    assert (kind, data["box"], data["body"]["to"]) == ("phase", box, "running")
    watch.connection.close()
    alice.post(f"/v1/boxes/{box}/pause")
    alice.post(f"/v1/boxes/{box}/resume")
    watch = alice.open("GET", "/v1/events", headers={"Last-Event-ID": str(last)})
    stream = events(watch)
    assert [next(stream)[2]["body"]["to"] for _ in range(2)] == ["paused", "running"]
    watch.connection.close()


def test_a_box_that_cannot_be_made_is_told_and_leaves_nothing(alice):
    before = len(alice.get("/v1/boxes").json["boxes"])
    answer = alice.post("/v1/boxes", {"limits": {"memory": "8M", "disk": "64M"}})
    assert answer.status == 400 and "limits.disk" in answer.json["error"]["message"]
    assert len(alice.get("/v1/boxes").json["boxes"]) == before


@pytest.mark.parametrize("user", [None, ORDINARY])
def test_a_server_says_how_many_boxes_its_descriptors_are_enough_for(programs, user):
    """Root raises its own limit; an ordinary user's holds, and the box beyond it is refused in words."""
    most = 600      # 512 of the server's own, and 24 for each box
    server = Server(user=user, place=programs, prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    try:
        told = server.admin.get("/v1/info").json["host"]["boxes"]
        may_raise = user is None and int(status_of(os.getpid())["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
        assert told == (4096 if may_raise else 3)
        if not may_raise:
            answers = [server.admin.post("/v1/boxes", {}) for _ in range(told + 1)]
            assert [a.status for a in answers] == [201] * told + [503], [a.body for a in answers]
            assert "3 boxes" in answers[-1].body.decode() and "ulimit -n" in answers[-1].body.decode()
            assert server.admin.get("/v1/info").json["free"]["boxes"] == 0
    finally:
        server.stop()
