"""Time to live, idle boxes, quotas, admission, keys, changes while running, and everything at once."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import sqlite3
import threading
import time

import pytest

from support.client import Client, events
from support.waiting import wait_for
from traces import GONE, SMALL, Server, amount, make_box, run


@pytest.fixture(scope="module")
def strict():
    """A server with small quotas, on which boxes can ask for 1G in all."""
    s = Server("--set", "defaults.memory=64M", "--set", "defaults.disk=16M", "--set", "quota.boxes=3", "--set", "quota.memory=300M", "--set", "quota.cpus=4", "--set", "host.memory=1G", "--set", "host.cpus=8")
    yield s
    s.stop()


def test_a_box_ends_at_its_time_also_if_it_is_busy_or_paused(alice, new_box):
    busy, paused = new_box(ttl=1), new_box(ttl=1)
    alice.post(busy + "/exec", {"argv": ["sleep", "1000"], "background": True})
    assert alice.post(paused + "/pause").status == 200
    for box in (busy, paused):
        wait_for(lambda: alice.get(box).json["phase"] == "deleted")
        assert alice.get(box).json["reason"] == "ttl"


def test_a_time_that_was_made_longer_counts(alice, new_box):
    box = new_box(ttl=5)
    assert alice.patch(box, {"ttl": 3600}).status == 200
    other = new_box(ttl=5)
    wait_for(lambda: alice.get(other).json["phase"] == "deleted")
    assert alice.get(box).json["phase"] == "running"
    assert alice.patch(box, {"ttl": 1}).status == 200
    wait_for(lambda: alice.get(box).json["phase"] == "deleted")


def test_an_idle_box_is_deleted_and_a_busy_one_is_not(alice, new_box):
    idle, busy = new_box(idle_timeout=1), new_box(idle_timeout=1)
    x = alice.post(busy + "/exec", {"argv": ["sleep", "1000"], "background": True}).json
    wait_for(lambda: alice.get(idle).json["phase"] == "deleted")
    assert alice.get(idle).json["reason"] == "idle" and alice.get(busy).json["phase"] == "running"
    alice.delete(f"{busy}/exec/{x['id']}")
    wait_for(lambda: alice.get(busy).json["phase"] == "deleted")


def test_an_idle_box_that_is_to_be_paused_is_paused_again_and_again(alice, new_box):
    box = new_box(idle_timeout=1, on_idle="pause")
    for _ in range(2):
        wait_for(lambda: alice.get(box).json["phase"] == "paused")
        assert alice.post(box + "/resume").json["phase"] == "running"
        assert run(alice, box, "echo awake")["stdout"] == "awake\n"


def test_timers_hold_over_a_restart_of_the_front():
    s = Server("--set", "limits.memory=8G")
    try:
        client = s.token("alice")
        late, idle, long = make_box(client, ttl=2), make_box(client, idle_timeout=1), make_box(client, ttl=3600)
        s.kill("front")
        for box in (late, idle):
            wait_for(lambda: client.get(box).json["phase"] == "deleted")
        assert client.get(long).json["phase"] == "running"
    finally:
        s.stop()


def test_what_is_kept_of_commands_is_bounded_and_what_is_forgotten_does_not_come_back():
    """There are as many rows as the API shows, also after a restart, and a row is small, however long the command was."""
    s = Server("--set", "limits.memory=8G")
    try:
        client = s.token("alice")
        box = make_box(client)
        waits = client.post(box + "/exec", {"argv": ["cat"], "stdin": True, "background": True}).json["id"]
        first = client.post(box + "/exec", {"shell": "echo first"}).json["id"]
        (old,) = s.rows(f"SELECT number, box, id, body, ended FROM execs WHERE id = '{first}'")
        long = client.post(box + "/exec", {"argv": ["true", *["\u00e4" * 50000] * 10]}).json
        assert long["outcome"] == "ok" and long["argv_cut"], long
        assert long["argv"][0] == "true" and set(long["argv"][1]) == {"\u00e4"} and len(json.dumps(long["argv"], ensure_ascii=False).encode()) < 8192
        refused = client.post(box + "/exec", {"argv": ["true", "x" * 131072]})
        assert refused.status == 400 and "argv[1]" in refused.json["error"]["message"], refused.body
        for _ in range(260):
            last = client.post(box + "/exec", {"argv": ["true"]})
            assert last.status == 200 and not last.json["argv_cut"], last.body
        for _ in range(2):
            kept = [x for x, in s.rows("SELECT id FROM execs ORDER BY number")]
            assert kept[0] == waits and kept[-1] == last.json["id"] and len(kept) == 257 and not {first, long["id"]} & set(kept)
            assert s.rows("SELECT max(length(body)) FROM execs")[0][0] < 16384
            assert client.get(f"{box}/exec/{first}").status == 404 and s.logs() <= set(kept)
            s.kill("front")
            wait_for(lambda: client.get(f"{box}/exec/{waits}").json["state"] == "running")
        # Rows that an earlier server left are removed when they are read.
        with contextlib.closing(sqlite3.connect(f"{s.state}/state.db", timeout=60)) as db, db:
            db.execute("INSERT INTO execs (number, box, id, body, ended) VALUES (?, ?, ?, ?, ?)", old)
        s.kill("front")
        assert [x for x, in s.rows("SELECT id FROM execs ORDER BY number")] == kept and client.get(f"{box}/exec/{first}").status == 404
    finally:
        s.stop()


def test_quotas_are_each_ones_own_and_say_what_they_are(strict):
    alice, bob = strict.token("alice"), strict.token("bob")
    small = {"memory": "64M", "disk": "16M", "cpus": 1}
    boxes = [make_box(alice, limits=small) for _ in range(3)]
    fourth = alice.post("/v1/boxes", {"limits": small})
    assert fourth.status in (403, 429) and fourth.code == "quota_exceeded" and "3 boxes" in fourth.json["error"]["message"]
    other = make_box(bob, limits=small)
    alice.delete(boxes.pop())
    for limits, word in (({"memory": "250M", "disk": "16M", "cpus": 1}, "memory"), ({"memory": "64M", "disk": "16M", "cpus": 3}, "processors")):
        refused = alice.post("/v1/boxes", {"limits": limits})
        assert refused.status in (403, 429) and word in refused.json["error"]["message"], refused.body
    # Nor by a change.
    grown = alice.patch(boxes[0], {"limits": {"memory": "280M"}})
    assert grown.status in (403, 429), grown.body
    assert alice.get(boxes[0]).json["limits"]["memory"] == 64 << 20
    for client, box in [(alice, b) for b in boxes] + [(bob, other)]:
        assert client.delete(box).status == 204
    # Refused requests are not counted.
    for box in [make_box(alice, limits=small) for _ in range(3)]:
        alice.delete(box)


def test_many_at_once_do_not_pass_a_quota(strict):
    carol = strict.token("carol")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        made = list(pool.map(lambda _: carol.post("/v1/boxes", {"limits": {"memory": "16M", "disk": "8M", "cpus": 0.1}}), range(12)))
    assert sorted(m.status for m in made) == [201] * 3 + [429] * 9
    for m in made:
        if m.status == 201:
            carol.delete("/v1/boxes/" + m.json["id"])


def test_changes_that_are_asked_for_together_do_not_pass_a_quota(strict):
    dave = strict.token("dave")
    boxes = [make_box(dave, limits={"memory": "16M", "disk": "8M", "cpus": 0.1}) for _ in range(3)]
    keeper = wait_for(strict.keeper)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        os.kill(keeper, signal.SIGSTOP)
        try:
            asked = [pool.submit(dave.patch, box, {"limits": {"memory": "150M"}}) for box in boxes]
            # The keeper does not answer now: only refused requests are answered.
            wait_for(lambda: sum(a.done() for a in asked) == 2)
        finally:
            os.kill(keeper, signal.SIGCONT)
    assert sorted(a.result().status for a in asked) == [200, 429, 429]
    assert sorted(dave.get(box).json["limits"]["memory"] for box in boxes) == [16 << 20, 16 << 20, 150 << 20]
    for box in boxes:
        assert dave.delete(box).status == 204


def test_a_host_that_became_smaller_than_its_promises_promises_nothing(tmp_path):
    config = tmp_path / "carrel.yaml"
    config.write_text("host:\n  memory: 1G\n  cpus: 4\n")
    s = Server("--config", config, "--set", "defaults.memory=64M", "--set", "defaults.disk=16M", "--set", "defaults.cpus=0.5")
    try:
        client = s.token("alice")
        box = make_box(client, limits={"memory": "128M", "disk": "16M", "cpus": 1}, requests={"memory": "128M", "cpus": 1})
        config.write_text("host:\n  memory: 96M\n  cpus: 0.5\n")
        s.kill("front")
        wait_for(lambda: client.get(box).json["phase"] == "running")
        free = s.admin.get("/v1/info").json["free"]
        assert free["memory"] == 0 and free["cpus"] == 0
        for requests in ({"memory": "1M"}, {"cpus": 0.1}):
            refused = client.post("/v1/boxes", {"limits": SMALL, "requests": requests})
            assert refused.code == "host_full" and refused.json["error"]["details"]["free"] == {"memory": 0, "cpus": 0}, refused.body
        assert client.delete(box).status == 204
    finally:
        s.stop()


def test_the_host_is_never_promised_twice(strict):
    clients = [strict.token(f"greedy{i}") for i in range(8)]
    ask = {"limits": {"memory": "250M", "disk": "16M", "cpus": 1}, "requests": {"memory": "250M"}}
    made = [c.post("/v1/boxes", ask) for c in clients]
    assert [m.status for m in made] == [201] * 4 + [503] * 4
    refusal = made[-1].json["error"]
    free = strict.admin.get("/v1/info").json["free"]
    assert refusal["code"] == "host_full" and refusal["details"]["free"].items() <= free.items() and free["memory"] < 250 << 20
    for c, m in zip(clients, made):
        if m.status == 201:
            c.delete("/v1/boxes/" + m.json["id"])
    assert strict.admin.get("/v1/info").json["free"]["memory"] == 1 << 30


def test_one_key_makes_one_box_also_over_a_restart():
    s = Server("--set", "limits.memory=8G")
    try:
        client = s.token("alice")
        ask = lambda: client.post("/v1/boxes", {"limits": SMALL}, headers={"Idempotency-Key": "once"})
        first = ask()
        s.kill("front")
        again = ask()
        assert (first.status, again.status) == (201, 200) and first.json["id"] == again.json["id"]
        assert len(client.get("/v1/boxes").json["boxes"]) == 1
    finally:
        s.stop()


def test_a_watcher_misses_nothing_over_a_restart():
    s = Server("--set", "limits.memory=8G")
    try:
        client = s.token("alice")
        watch = client.open("GET", "/v1/events", headers={"Accept": "text/event-stream"})
        box = make_box(client)
        last, _, data = next(events(watch))
        assert data["body"]["to"] == "running"
        client.post(box + "/pause")
        s.kill("front")
        client.post(box + "/resume")
        client.delete(box)
        watch = client.open("GET", "/v1/events", headers={"Last-Event-ID": str(last), "Accept": "text/event-stream"})
        stream = events(watch)
        numbers, phases = [], []
        while not phases or phases[-1] != "deleted":
            number, kind, data = next(stream)
            numbers.append(number)
            if kind == "phase":
                phases.append(data["body"]["to"])
        assert phases == ["paused", "running", "deleting", "deleted"]
        assert numbers == sorted(set(numbers)) and numbers[0] > last
        watch.connection.close()
    finally:
        s.stop()


def test_limits_change_while_the_box_runs(alice, new_box):
    box = new_box(limits={"memory": "64M", "disk": "32M", "pids": 32, "cpus": 1})
    hungry = "head -c 100000000 /dev/zero | tail -c 90000000 | wc -c"
    assert run(alice, box, hungry)["outcome"] == "oom"
    assert alice.patch(box, {"limits": {"memory": "256M"}}).status == 200
    assert run(alice, box, hungry)["stdout"].strip() == "90000000"
    forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.2 & done; wait; echo all"
    assert run(alice, box, forks)["stdout"] == "all\n"
    assert alice.patch(box, {"limits": {"pids": 8}}).status == 200
    assert run(alice, box, forks)["stdout"] != "all\n"
    for bad in (0, -1, "1e309", "9" * 30, 2 ** 63, 2 ** 64, "max", "-5M", 1.5, True, None, {}, "\x00", "64"):
        answer = alice.patch(box, {"limits": {"memory": bad}})
        assert answer.status in (400, 403) or bad == "64" and answer.status < 500, (bad, answer.status, answer.body)
    for name in ("pids", "cpus", "disk"):
        for bad in (-1, "1e309", 2 ** 63, "max", [], True):
            answer = alice.patch(box, {"limits": {name: bad}})
            assert answer.status == 400, (name, bad, answer.status, answer.body)
    assert alice.get(box).json["limits"]["memory"] == 256 << 20
    assert alice.get(box).json["phase"] == "running"


def quietly(ask):
    try:
        return ask()
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return None


def test_pause_resume_delete_and_commands_all_at_once(server, alice):
    for _ in range(amount(5, 100)):
        box = make_box(alice)
        ways = [("POST", "/pause"), ("POST", "/resume"), ("POST", "/exec"), ("GET", ""), ("GET", "/usage"), ("PATCH", ""), ("GET", "/files/"), ("PUT", "/files/tmp/x"),
                ("GET", "/archive?path=/tmp"), ("POST", "/exec")]
        bodies = {"/exec": {"shell": "echo x; sleep 0.01"}, "": {"limits": {"pids": 30}}, "/files/tmp/x": b"x" * 10000}
        statuses = []

        def hammer(i):
            for k in range(6):
                method, way = ways[(i + k) % len(ways)]
                answer = quietly(lambda: alice.ask(method, box + way, bodies.get(way) if method != "GET" else None))
                if answer:      # else a stream that was cut when the box ended
                    statuses.append((method, way, answer.status, answer.body[:300]))
        threads = [threading.Thread(target=hammer, args=[i]) for i in range(10)]
        [t.start() for t in threads]
        time.sleep(0.02)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            deleted = list(pool.map(lambda _: alice.delete(box), range(4)))
        [t.join(60) for t in threads]
        assert [d.status for d in deleted] == [204] * 4, deleted[0].body
        assert not [s for s in statuses if s[2] not in (200, 201, 202, 204, 404, 409, 503, 507)], statuses
        assert alice.get(box).json["phase"] == "deleted"
    wait_for(lambda: not server.surplus(), lambda: server.surplus())


def test_deleting_while_it_is_being_made(server, alice):
    for i in range(amount(20, 500)):
        made = alice.post("/v1/boxes?wait=false", {"limits": SMALL})
        path = made.headers["Location"]
        if i % 3 == 0:
            alice.post(path + "/pause")
        assert alice.delete(path).status == 204
        assert alice.delete(path).status == 204
        assert alice.get(path).json["phase"] == "deleted"
    wait_for(lambda: not server.surplus(), lambda: server.surplus())


def test_a_client_that_vanishes_while_its_box_is_made(server, alice):
    for _ in range(10):
        s = alice.raw_socket()
        body = json.dumps({"limits": SMALL, "labels": {"vanished": "yes"}})
        s.sendall(f"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        s.close()
    # It may be there or not; if it is, its owner finds it and can end it.
    list_them = lambda: [b for b in alice.get("/v1/boxes?label=vanished=yes&limit=100").json["boxes"] if b["phase"] not in GONE]
    wait_for(lambda: all(b["phase"] == "running" for b in list_them()))
    for b in list_them():
        assert alice.delete("/v1/boxes/" + b["id"]).status == 204
    wait_for(lambda: not list_them() and not server.surplus(), lambda: server.surplus())


def test_a_command_that_starts_while_the_box_ends(alice):
    for _ in range(amount(10, 200)):
        box = make_box(alice)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(quietly(lambda: alice.post(box + "/exec", {"argv": ["sleep", "1000"]})))) for _ in range(4)]
        [t.start() for t in threads]
        assert alice.delete(box).status == 204
        [t.join(30) for t in threads]
        assert len(answers) == 4, "a command hangs"
        for a in answers:
            assert a.status in (404, 409, 503) or a.json["outcome"] in ("killed", "not_started", None), a.body
        assert {x["state"] for x in alice.get(box + "/exec").json["execs"]} <= {"ended"}


def test_a_name_is_free_again_when_its_box_is_gone(alice):
    for _ in range(5):
        box = make_box(alice, name="again")
        assert alice.post("/v1/boxes", {"name": "again", "limits": SMALL}).status == 409
        assert alice.delete("/v1/boxes/again").status == 204
        assert alice.get("/v1/boxes/again").status == 404 and alice.get(box).json["phase"] == "deleted"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: alice.post("/v1/boxes", {"name": "raced", "limits": SMALL}).status, range(8)))
    assert sorted(made) == [201] + [409] * 7
    assert alice.delete("/v1/boxes/raced").status == 204


def test_a_server_that_is_there_already_is_not_replaced(server):
    second = None
    try:
        second = Server("--socket", server.socket, ready=False)
        assert second.process.wait(20) != 0
        assert "already" in second.log_text()
        assert Client(server.socket).get("/readyz").status == 200
    finally:
        second.stop()
