"""Very many boxes at once: made side by side by many clients, used, found again after the front was killed, and gone with the keeper."""
import concurrent.futures
import time

import pytest

from support.processes import resident_bytes
from support.waiting import wait_for
from traces import GONE, SMALL, Server, all_boxes, amount, descendants, run

COUNT = amount(100, 1000)
CLIENTS = 32
MIB = 1 << 20


@pytest.fixture(scope="module")
def large():
    """A server that believes its host to be large enough, and without a pool: every box is made on request."""
    s = Server("--set", "pool.size=0", "--set", "quota.boxes=5000", "--set", "host.memory=512G", "--set", "host.cpus=4000")
    yield s
    s.stop()


def each(what, things):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(what, things))


def alive(client):
    return [b for b in all_boxes(client) if b["phase"] not in GONE]


def make_all(client):
    made = each(lambda i: client.post("/v1/boxes", {"limits": SMALL, "name": f"crowd-{i}"}), range(COUNT))
    assert not [m.body for m in made if m.status != 201]
    return ["/v1/boxes/" + m.json["id"] for m in made]


def test_a_crowd_lives_through_the_front_and_goes_with_the_keeper(large):
    client = large.token("crowd")
    before = resident_bytes(large.front()), resident_bytes(large.keeper())
    boxes = make_all(client)
    begin = time.monotonic()
    assert len(alive(large.admin)) == COUNT
    assert time.monotonic() - begin < 5
    assert len(large.leaves()) == len(large.inits()) == COUNT
    after = resident_bytes(large.front()), resident_bytes(large.keeper())
    assert after[0] - before[0] < 100 * MIB and after[1] - before[1] < 10 * MIB, (before, after)
    outputs = each(lambda i: run(client, boxes[i], f"echo {i}")["stdout"], range(0, COUNT, 5))
    assert outputs == [f"{i}\n" for i in range(0, COUNT, 5)]

    large.kill("front")
    assert len(alive(large.admin)) == COUNT and {b["phase"] for b in alive(large.admin)} == {"running"}
    outputs = each(lambda i: run(client, boxes[i], f"echo {i}")["stdout"], range(0, COUNT, 5))
    assert outputs == [f"{i}\n" for i in range(0, COUNT, 5)]

    large.kill("keeper")
    wait_for(lambda: not alive(large.admin), lambda: len(alive(large.admin)))
    wait_for(lambda: not large.leaves() and not large.inits() and not large.orphans(), lambda: (large.leaves(), large.inits(), large.orphans()))


def test_a_crowd_that_comes_and_goes_leaves_nothing(large):
    client = large.token("crowd")
    processes = len(descendants(large.process.pid))
    for _ in range(amount(2, 5)):
        boxes = make_all(client)
        assert set(each(lambda box: client.delete(box).status, boxes)) == {204}
    wait_for(lambda: not large.leaves() and len(descendants(large.process.pid)) <= processes, lambda: (large.leaves(), large.inits()))


def test_boxes_that_are_made_and_deleted_side_by_side(large):
    """Slots, numbers and descriptors are used again at once, while others still end."""
    client = large.token("crowd")

    def turn(i):
        for k in range(amount(10, 100)):
            made = client.post("/v1/boxes", {"limits": SMALL})
            assert made.status == 201, made.body
            box = "/v1/boxes/" + made.json["id"]
            assert run(client, box, f"echo {i} {k}")["stdout"] == f"{i} {k}\n"
            assert client.delete(box).status == 204
    each(turn, range(8))
    wait_for(lambda: not large.leaves() and not large.inits(), lambda: (large.leaves(), large.inits()))
