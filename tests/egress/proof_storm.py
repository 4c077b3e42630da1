"""kill -9 of egress, front and keeper in turn, while boxes are busy with their network: connections end with an error and never hang, boxes reach their network
again without a restart, and nothing is left. CARREL_STORM_ROUNDS says how many rounds (4)."""

import os
import pathlib
import signal

import pytest
from test_server import entering, process_of, reaches

from support.processes import descriptors, processes
from support.server import Server
from support.waiting import wait_for

ROUNDS = int(os.environ.get("CARREL_STORM_ROUNDS", "4"))
BOXES = 10
# Each turn is one line: "ok", the name of an error, "ends" if the other side seemed to have sent all, or "hangs" if nothing
# came in a long time.
LOAD = """
import socket, time
class End(OSError): pass
kept = None
while True:
    try:
        if not kept:
            kept = socket.create_connection(("good.test", 7), timeout=60)
        with socket.create_connection(("four.test", 7), timeout=60) as s:
            for one in (kept, s):
                one.sendall(b"x" * 20000); left = 20000
                while left:
                    data = one.recv(left)
                    if not data: raise End
                    left -= len(data)
        word = "ok"
    except TimeoutError: word, kept = "hangs", None
    except End: word, kept = "ends", None
    except OSError as error: word, kept = type(error).__name__, None
    if word != "ok": time.sleep(0.05)
    with open("/tmp/turns", "a") as f: f.write(word + "\\n")
"""


@pytest.fixture
def server(world):
    made = Server(prepare=entering(world.host))
    yield made
    if made.process.poll() is None:
        made.stop()


def make(server, allow):
    answers = []

    def made():
        try:
            answers.append(server.admin.post("/v1/boxes", {"net": {"allow": allow}}))
        except OSError:     # the front is being replaced
            return False
        return answers[-1].status == 201
    wait_for(made, "a box")
    return answers[-1].json["id"]


def start_load(server, box):
    assert server.admin.post(f"/v1/boxes/{box}/exec", {"argv": ["python3", "-c", LOAD], "background": True}).status in (200, 201, 202)


def turns(server, box):
    answer = server.admin.post(f"/v1/boxes/{box}/exec", {"argv": ["sh", "-c", "sort /tmp/turns | uniq -c"]})
    lines = [line.split() for line in answer.json["stdout"].splitlines()]
    return {word: int(count) for count, word in lines}


def change(server, box, allow):
    """Right after a kill; what fails is tried again, as a caller would."""
    def changed():
        try:
            return server.admin.patch(f"/v1/boxes/{box}", {"net": {"allow": allow}}).status == 200
        except OSError:
            return False
    wait_for(changed, "the policy is changed")


def test_boxes_survive_kills_of_egress_front_and_keeper_under_load(world, server):
    allow = ["good.test", "four.test"]
    boxes = [make(server, allow) for _ in range(BOXES)]
    for one in boxes:
        start_load(server, one)
    for round_number in range(ROUNDS):
        for who in ("egress", "front", "keeper"):
            before = {one: turns(server, one) for one in boxes}
            old = process_of(server, {"egress": "carrel-egress", "front": " front ", "keeper": " keeper "}[who])
            os.kill(old, signal.SIGKILL)
            if who == "keeper":     # its boxes are gone with it
                wait_for(lambda: not pathlib.Path(f"/proc/{old}").exists(), "the keeper is gone")
                boxes = [make(server, allow) for _ in range(BOXES)]
                for one in boxes:
                    start_load(server, one)
                before = {one: {} for one in boxes}
            else:
                wait_for(server.is_ready, "the server is ready again")
                for one in boxes[::2]:
                    change(server, one, [*allow, f"more{round_number}.test"])
            for one in boxes:
                wait_for(lambda: turns(server, one).get("ok", 0) > before[one].get("ok", 0) + 3, lambda: f"{who}: {turns(server, one)}")
                assert not {"hangs", "ends"} & turns(server, one).keys(), (who, turns(server, one))
    for one in boxes:
        assert server.admin.delete(f"/v1/boxes/{one}").status in (200, 204)
    egress = process_of(server, "carrel-egress")
    # What it has for itself: loop, signals, listener, links, the resolver; and sixteen spare pipes at most.
    wait_for(lambda: len(descriptors(egress)) < 60, lambda: str(descriptors(egress)))
    last = make(server, allow)
    assert reaches(server, last)
    family = {pid for pid, (parent, _) in processes().items() if parent == server.process.pid}
    folder = server.folder
    server.stop()
    assert not [pid for pid in family if pathlib.Path(f"/proc/{pid}").exists()]
    assert not folder.exists()
