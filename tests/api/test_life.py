"""Boxes, fronts and keepers that end in the middle of something."""
import json
import os
import signal
import threading
import time

import pytest

from support.client import Client, events, lines
from support.server import Server, limits
from support.waiting import wait_for


@pytest.fixture
def private():
    """A server that a test may break."""
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    s = Server()
    yield s
    s.stop()


def test_a_box_that_goes_ends_what_is_done_in_it(alice, make_box):
    path = "/v1/boxes/" + make_box(limits={"memory": "512M", "disk": "300M"})["id"]
    assert alice.post(path + "/exec", {"shell": "head -c 200000000 /dev/zero >/tmp/z"}).json["outcome"] == "ok"
    stream = alice.open("POST", path + "/exec?stream=true", {"argv": ["sleep", "1000"]})
    socket = alice.websocket(path + "/exec/ws?argv=cat&tty=true")
    download = alice.open("GET", path + "/files/tmp/z")
    watch = alice.open("GET", path + "/events?watch=true")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(alice.post(path + "/exec", {"argv": ["sleep", "1000"]})))
    waiting.start()
    wait_for(lambda: sum(x["state"] == "running" for x in alice.get(path + "/exec").json["execs"]) == 3)
    assert alice.delete(path).status == 204
    last = list(lines(stream))[-1]
    assert (last["type"], last["outcome"], last["signal"]) == ("exit", "killed", 9)
    waiting.join(60)
    assert answers[0].status == 200 and answers[0].json["outcome"] == "killed"
    texts = []
    while (message := socket.receive()) is not None:
        texts += [json.loads(message)] if isinstance(message, str) else []
    assert texts[-1]["type"] == "exit"
    with pytest.raises(Exception):
        assert len(download.read()) == 200000000
    seen = events(watch)
    assert any(data["body"].get("to") == "deleted" for _, kind, data in seen if kind == "phase")
    watch.connection.close()
    assert alice.post(path + "/exec", {"argv": ["true"]}).code == "wrong_phase"
    assert alice.get(path + "/files/tmp").code == "wrong_phase"
    assert alice.get(path + "/ports/80/").code == "wrong_phase"
    assert alice.get(path + "/usage").status == 409


def test_uploads_into_a_box_that_goes_are_refused(alice, make_box):
    path = "/v1/boxes/" + make_box(limits={"memory": "512M", "disk": "300M"})["id"]
    begun, gone = threading.Event(), threading.Event()

    def pieces():
        yield b"x" * 65536
        begun.set()
        gone.wait(60)
        for _ in range(500):
            yield b"x" * 65536

    result = []

    def upload():
        try:
            result.append(alice.put(path + "/files/tmp/own/u?parents=true", pieces()).status)
        except OSError as e:
            result.append(e)

    t = threading.Thread(target=upload)
    t.start()
    assert begun.wait(60)
    wait_for(lambda: alice.get(path + "/files/tmp/own").json.get("entries"))
    alice.delete(path)
    gone.set()
    t.join(120)
    assert isinstance(result[0], OSError) or result[0] in (409, 507)


def test_many_boxes_at_once(alice):
    made = []
    lock = threading.Lock()

    def make():
        for _ in range(5):
            answer = alice.post("/v1/boxes", {"limits": limits(memory="32M", disk="16M"), "labels": {"crowd": "1"}})
            out = alice.post(f"/v1/boxes/{answer.json['id']}/exec", {"argv": ["echo", answer.json["id"]]})
            with lock:
                made.append((answer.json["id"], out.json["stdout"].strip()))

    threads = [threading.Thread(target=make) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(made) == 40 and all(a == b for a, b in made)
    [alice.delete("/v1/boxes/" + box) for box, _ in made]
    assert alice.get("/v1/boxes?label=crowd").json["boxes"] == []


def test_a_front_that_is_killed_loses_nothing(private):
    root = Client(private.socket)
    path = "/v1/boxes/" + root.post("/v1/boxes", {"name": "kept", "labels": {"a": "b"}}).json["id"]
    before = root.get(path).json
    assert root.put(path + "/files/tmp/f", b"content").status == 200
    count = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; sleep 0.01; done"
    x = root.post(path + "/exec", {"shell": count, "background": True}).json["id"]
    for _ in range(3):
        old = private.front_pid()
        time.sleep(0.3)     # some of the output is to come before
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: private.is_ready() and private.front_pid() != old)
    after = root.get(path).json
    assert {k: after[k] for k in ("id", "name", "phase", "labels", "limits")} == {k: before[k] for k in ("id", "name", "phase", "labels", "limits")}
    out = list(lines(root.open("GET", f"{path}/exec/{x}/output?follow=true")))
    assert "".join(l["data"] for l in out[:-1]) == "".join(f"{i}\n" for i in range(1, 301))
    assert out[-1]["outcome"] == "ok"
    assert root.get(path + "/files/tmp/f").body == b"content"
    # Every slot of the box can still be used.
    for _ in range(64):
        assert root.post(path + "/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    assert root.delete(path).status == 204


def test_a_keeper_that_is_killed_takes_its_boxes_and_a_new_one_comes(private):
    root = Client(private.socket)
    path = "/v1/boxes/" + root.post("/v1/boxes", {}).json["id"]
    stream = root.open("POST", path + "/exec?stream=true", {"argv": ["sleep", "1000"]})
    x = json.loads(stream.readline())["exec"]
    wait_for(lambda: root.get(f"{path}/exec/{x}").json["state"] == "running")
    os.kill(private.keeper_pid(), signal.SIGKILL)
    assert list(lines(stream))[-1]["outcome"] == "killed"
    wait_for(lambda: root.get(path).json["phase"] == "failed")
    assert root.get(path).json["reason"] == "keeper_lost"
    wait_for(private.is_ready)
    new = root.post("/v1/boxes", {})
    assert new.status == 201
    assert root.post(f"/v1/boxes/{new.json['id']}/exec", {"argv": ["true"]}).json["outcome"] == "ok"


def test_a_command_that_failed_is_told_with_the_same_words_after_a_restart(private):
    root = Client(private.socket)
    path = "/v1/boxes/" + root.post("/v1/boxes", {}).json["id"]
    xs = [root.post(path + "/exec", body).json["id"] for body in ({"argv": ["/no/such/program"]}, {"argv": ["true"], "cwd": "/no/such/folder"})]
    before = [root.get(f"{path}/exec/{x}").json for x in xs]
    assert before[0]["error"]["step"] == "exec" and before[0]["error"]["errno"] == 2
    old = private.front_pid()
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: private.is_ready() and private.front_pid() != old)
    assert [root.get(f"{path}/exec/{x}").json for x in xs] == before
    root.delete(path)


def test_a_box_may_end_with_its_command(alice, make_box):
    for how in ({"argv": ["true"]}, {"argv": ["/no/such/program"]}, {"argv": ["sleep", "1000"], "timeout": "100ms"}):
        path = "/v1/boxes/" + make_box()["id"]
        answer = alice.post(path + "/exec", {**how, "delete_box": True})
        assert answer.status == 200 and answer.json["delete_box"] is True
        wait_for(lambda: alice.get(path).json["phase"] == "deleted")
        assert alice.get(path).json["reason"] == "command_ended"


def test_a_box_ends_with_its_command_when_the_client_vanishes(alice, make_box):
    path = "/v1/boxes/" + make_box()["id"]
    stream = alice.open("POST", path + "/exec?stream=true", {"argv": ["sleep", "1000"], "delete_box": True})
    json.loads(stream.readline())
    stream.connection.close()
    stream.close()
    wait_for(lambda: alice.get(path).json["phase"] == "deleted")


def test_a_box_ends_with_its_command_after_a_restart(private):
    root = Client(private.socket)
    path = "/v1/boxes/" + root.post("/v1/boxes", {}).json["id"]
    stream = root.open("POST", path + "/exec?stream=true", {"argv": ["sleep", "1000"], "delete_box": True})
    json.loads(stream.readline())
    old = private.front_pid()
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: private.is_ready() and private.front_pid() != old)
    wait_for(lambda: root.get(path).json["phase"] == "deleted")


def test_ending_a_box_needs_the_right_to(server, admin, make_box):
    only_exec = server.token("alice", scopes=["exec", "boxes:read"])
    path = "/v1/boxes/" + make_box()["id"]
    refused = only_exec.post(path + "/exec", {"argv": ["true"], "delete_box": True})
    assert refused.status == 403 and "boxes:write" in refused.json["error"]["message"]
    assert only_exec.get(path).json["phase"] == "running"
