"""kill -9 of the front, of the keeper, of both and of programs that hold services, at any moment, while calls run: services of owners that live come
back or say why not, calls are answered or broken off, nothing is left.

CARREL_KILLS says how often; CARREL_SEED repeats the choices (not the moments) of an earlier run."""
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time

import pytest
from conftest import PYTHON

from support.client import Client
from support.server import Server
from support.waiting import wait_for

KILLS = int(os.environ.get("CARREL_KILLS", 300 if os.environ.get("CARREL_LONG") else 12))
SEED = int(os.environ.get("CARREL_SEED", time.time_ns()))
BROKEN = (OSError, http.client.HTTPException, json.JSONDecodeError)
CODE = """
import os, time
n = 0
@expose
def count():
    global n
    n += 1
    return n
@expose
def echo(text: str, seconds: float = 0) -> str:
    time.sleep(seconds)
    return text
@expose
async def later(text: str, seconds: float = 0) -> str:
    import asyncio
    await asyncio.sleep(seconds)
    return text
@expose
def leave():
    os._exit(3)
"""
SMALL = {"template": "python", "limits": {"memory": "128M", "pids": 32}}


def ask(client, method, path, body=None):
    """None: the server died in the middle of it."""
    try:
        return client.ask(method, path, body)
    except BROKEN:
        return None


class Caller(threading.Thread):
    """Calls functions, and checks the answers; now and then it makes a service of its own, and deletes it or not."""

    def __init__(self, client, number):
        super().__init__(daemon=True)
        self.client, self.random, self.number = client, random.Random(SEED + number), number
        self.over, self.complaints, self.answered = threading.Event(), [], 0

    def call(self, service):
        function, wait = self.random.choice(["echo", "later", "count", "leave"]), self.random.choice([0, 0, 0.05])
        text = f"{self.number}-{self.random.random()}"
        kwargs = {"text": text, "seconds": wait} if function in ("echo", "later") else {}
        if function == "leave" and self.random.random() < 0.9:
            return
        answer = ask(self.client, "POST", f"/v1/services/{service}/call", {"function": function, "kwargs": kwargs})
        if answer is None:
            time.sleep(0.02)
        elif answer.status == 200 and answer.json["ok"]:
            self.answered += 1
            if kwargs and answer.json["result"] != text:
                self.complaints.append(f"another's answer: {answer.body}")
        elif answer.status == 200 or answer.status not in (404, 409, 410, 422, 429, 502, 503, 504):
            self.complaints.append(f"{function}: {answer.status} {answer.body}")

    def turn(self):
        if self.random.random() < 0.05:
            name = f"made{self.number}x{self.random.randrange(1 << 30)}"
            made = ask(self.client, "POST", "/v1/services", {"name": name, "code": CODE, "settings": {"limits": SMALL["limits"]}})
            if self.random.random() < 0.7 or made is None or made.status != 201:
                ask(self.client, "DELETE", f"/v1/services/{name}")
        else:
            self.call(self.random.choice(["own", "shared"]))

    def run(self):
        while not self.over.is_set():
            self.turn()


@pytest.fixture
def stormy():
    s = Server("--set", "limits.memory=16G", "--set", f"templates.python.python={PYTHON}")
    yield s
    s.stop()


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def workers_below(server):
    """Processes of workers that are the server's, however deep."""
    parents, found = {}, []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if b"carrel_service" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass

    def is_below(pid):
        while pid and pid != server.process.pid:
            pid = parents.get(pid, 0)
        return bool(pid)
    return [pid for pid in found if is_below(pid)]


def settled(client, name):
    """The service once it has loaded; None: there is none."""
    def look():
        answer = ask(client, "GET", f"/v1/services/{name}")
        if answer is None or answer.status == 503 or (answer.status == 200 and answer.json["state"] == "loading"):
            return None
        return answer
    answer = wait_for(look, deadline_s=120)
    assert answer, f"{name} does not settle"
    assert answer.status in (200, 404), answer.body
    return answer.json if answer.status == 200 else None


def test_services_come_back_or_say_why_not(stormy):
    print(f"CARREL_SEED={SEED}")
    client, chance = Client(stormy.socket), random.Random(SEED)
    assert client.post("/v1/services", {"name": "own", "code": CODE, "settings": {"limits": SMALL["limits"]}}).status == 201
    box = client.post("/v1/boxes", SMALL).json["id"]
    assert client.post("/v1/services", {"name": "shared", "code": CODE, "box": box}).status == 201
    callers = [Caller(Client(stormy.socket), i) for i in range(4)]
    for caller in callers:
        caller.start()
    keepers = 0
    for _ in range(KILLS):
        time.sleep(chance.random() * 0.7)
        what = chance.choice(["front", "front", "keeper", "both"])
        if what != "front":
            keepers += 1
            kill(stormy.keeper_pid())
        if what != "keeper":
            kill(stormy.front_pid())
        if what == "front":
            continue
        if chance.random() < 0.5:       # its death may be noticed first, or only the next kill
            assert wait_for(stormy.is_ready, deadline_s=120)
        shared = settled(client, "shared")
        if shared is None or shared["state"] == "dead":
            assert shared is None or "box has ended (keeper_lost)" in shared["reason"], shared
            made = wait_for(lambda: ask(client, "POST", "/v1/boxes", SMALL), deadline_s=60)
            if made and made.status == 201:
                ask(client, "POST", "/v1/services", {"name": "shared", "code": CODE, "box": made.json["id"]})
    for caller in callers:
        caller.over.set()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive() and not caller.complaints, caller.complaints[:5]
    assert wait_for(stormy.is_ready, deadline_s=120)
    own = settled(client, "own")
    if own and own["state"] == "dead":
        assert "too often" in own["reason"] or "replaced" in own["reason"] or "status 3" in own["reason"], own
        restarted = client.post("/v1/services/own/restart")
        assert restarted.status == 200, restarted.body
    assert own, [line for line in stormy.log_text().splitlines() if '"own"' in line][-5:]
    assert client.post("/v1/services/own/call", {"function": "echo", "kwargs": {"text": "x"}}).json["result"] == "x"
    print(f"{sum(c.answered for c in callers)} calls answered, {keepers} keepers killed, own was started {own['restarts']} times anew")
    # Nothing is left: every service and box can be deleted, and no worker outlives that.
    for service in client.get("/v1/services").json["services"]:
        assert client.delete("/v1/services/" + service["id"]).status in (204, 404)
    assert client.get("/v1/services").json["services"] == []
    for one in client.get("/v1/boxes?limit=1000").json["boxes"]:
        if one["phase"] not in ("failed", "deleted"):
            client.delete("/v1/boxes/" + one["id"])
    assert wait_for(lambda: not workers_below(stormy), deadline_s=60), workers_below(stormy)


def test_a_service_with_a_box_of_its_own_gets_another(server, create):
    service = create(CODE, settings={"limits": SMALL["limits"]})
    assert service.call("count") == 1
    before = service.show()["box"]
    os.kill(server.keeper_pid(), signal.SIGKILL)
    assert wait_for(lambda: settled(service.client, service.name)["box"] != before)
    shown = service.show()
    assert shown["state"] == "ready" and shown["restarts"] == 1, shown
    assert service.call("count") == 1 and "keeper_lost" in shown["reason"]


def test_a_service_in_somebodys_box_says_why_it_is_dead_and_its_name_is_free(server, create, make_box):
    service = create(CODE, box=make_box(), name="shared")
    os.kill(server.keeper_pid(), signal.SIGKILL)
    assert wait_for(lambda: settled(service.client, "shared")["state"] == "dead")
    shown = service.show()
    assert "keeper_lost" in shown["reason"] and "another box" in shown["reason"], shown
    refused = service.ask("count")
    assert refused.status == 409 and "keeper_lost" in refused.body.decode(), refused.body
    again = create(CODE, box=make_box(), name="shared")
    assert again.call("count") == 1


def test_secrets_are_kept_for_the_next_box_but_not_for_the_next_front(server, create):
    service = create("import os\n@expose\ndef key():\n    return os.environ['KEY']\n", secrets={"KEY": "v"})
    os.kill(server.keeper_pid(), signal.SIGKILL)
    assert wait_for(lambda: settled(service.client, service.name)["restarts"] == 1)
    assert service.call("key") == "v"
    os.kill(server.keeper_pid(), signal.SIGKILL)
    os.kill(server.front_pid(), signal.SIGKILL)
    assert wait_for(lambda: settled(service.client, service.name)["state"] == "dead")
    assert "secrets" in service.show()["reason"], service.show()
