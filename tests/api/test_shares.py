"""What boxes are guaranteed: processors as a weight of their cgroup, memory by admission; and how far limits may exceed the host."""
import os
import pathlib

import pytest

from support import USER
from support.server import Server
from support.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")
as_root = pytest.mark.skipif(bool(USER), reason="without root a box has no cgroup here")
MIB = 1 << 20
SMALL = {"memory": "64M", "disk": "16M"}


@pytest.fixture(scope="module")
def host():
    """A server whose host has 1G and 8 processors to promise, and whose limits may add up to twice that."""
    s = Server("--set", "defaults.memory=64M", "--set", "defaults.disk=16M", "--set", "host.memory=1G", "--set", "host.cpus=8", "--set", "host.overcommit=2",
               "--set", "quota.request_memory=768M", "--set", "quota.request_cpus=6", "--set", "limits.memory=2G", "--set", "pool.size=0")
    yield s
    s.stop()


@pytest.fixture
def new(host):
    """Makes boxes that are gone after the test."""
    made = []

    def new(client, **body):
        answer = client.post("/v1/boxes", body)
        assert answer.status == 201, answer.body
        made.append((client, "/v1/boxes/" + answer.json["id"]))
        return answer.json

    yield new
    for client, path in made:
        client.delete(path)


def refusal(client, status, **body):
    answer = client.post("/v1/boxes", body)
    assert answer.status == status, answer.body
    return answer.json["error"]["message"]


def weights(server):
    """Of all leaves of the server's boxes: their directory and their weight, in cgroup v2's unit."""
    found = {}
    for name, part in (("cpu.weight", 1), ("cpu.shares", 1024 / 100)):
        for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
            for file in pathlib.Path(place).glob(f"**/carrel-*-{server.keeper_pid()}-*/{name}"):
                found[file.parent] = round(int(file.read_text()) / part)
    return found


def new_weights(server, make):
    before = weights(server)
    made = make()
    return made, {path: weight for path, weight in weights(server).items() if path not in before}


@as_root
def test_a_request_is_the_weight_of_the_boxs_cgroup(host, new):
    alice = host.token("alice")
    _, large = new_weights(host, lambda: new(alice, requests={"cpus": 1.5}, limits={**SMALL, "cpus": 2}))
    _, small = new_weights(host, lambda: new(alice, requests={"cpus": 0.5}, limits={**SMALL, "cpus": 2}))
    box, usual = new_weights(host, lambda: new(alice, limits={**SMALL, "cpus": 2}))
    assert (sorted(large.values()), sorted(small.values()), sorted(usual.values())) == ([1500], [500], [100])
    assert len({path.parent for path in [*large, *small, *usual]}) == 1, "weights are compared among siblings"
    # A limit that changes leaves the weight as it is.
    assert alice.patch("/v1/boxes/" + box["id"], {"limits": {"cpus": 1}}).status == 200
    assert {path: weights(host)[path] for path in usual} == usual


@as_root
def test_what_holds_a_request_is_told(host, new):
    alice = host.token("alice")
    told = lambda box: alice.get(f"/v1/boxes/{box['id']}/enforced").json["enforced"]
    assert told(new(alice, requests={"cpus": 1}, limits=SMALL))["cpu_share"] in ("cgroup v1 cpu", "cgroup v2 cpu")
    assert "cpu_share" not in told(new(alice, limits=SMALL))


def test_a_server_without_cgroups_refuses_a_request_in_words():
    server = Server(user=USER or "carreltest")
    try:
        assert "cpus" not in server.admin.get("/v1/boxes/" + server.admin.post("/v1/boxes", {}).json["id"] + "/enforced").json["enforced"]
        assert "cannot guarantee processor time: " in refusal(server.admin, 501, requests={"cpus": 0.5})
        assert "requests.memory cannot be held" in refusal(server.admin, 501, requests={"memory": "64M"})
        assert server.admin.get("/v1/boxes").json["boxes"][1:] == []
    finally:
        server.stop()


@as_root
def test_an_open_limit_follows_the_request_and_a_given_one_bounds_it(host, new):
    alice = host.token("alice")
    box = new(alice, requests={"cpus": 2.5, "memory": "128M"})
    assert (box["limits"]["cpus"], box["limits"]["memory"]) == (2.5, 128 * MIB) and box["requests"] == {"memory": 128 * MIB, "cpus": 2.5}
    assert "requests.cpus is 2, more than limits.cpus, which is 1" in refusal(alice, 400, requests={"cpus": 2}, limits={"cpus": 1})
    assert "requests.memory may be at most 2G on this server" in refusal(alice, 400, requests={"memory": "3G"})
    path = "/v1/boxes/" + box["id"]
    for limits, word in (({"memory": "100M"}, "requests.memory, which is 128M"), ({"cpus": 1}, "requests.cpus, which is 2.5")):
        lower = alice.patch(path, {"limits": limits})
        assert lower.status == 400 and word in lower.json["error"]["message"], lower.body
    assert alice.get(path).json["limits"]["memory"] == 128 * MIB


@as_root
def test_a_refusal_says_who_has_requested_how_much(host, new):
    alice, bob = host.token("alice"), host.token("bob")
    new(alice, name="trainer", requests={"memory": "450M", "cpus": 1}, limits={"disk": "16M"})
    new(bob, name="secret", requests={"memory": "400M", "cpus": 5}, limits={"disk": "16M"})
    said = refusal(alice, 503, requests={"memory": "175M"}, limits={"disk": "16M"})
    assert said == "this host cannot guarantee 175M of memory: 174M of 1G are free. Requested by you: trainer 450M; by others: 400M"
    said = refusal(host.token("carol"), 503, requests={"cpus": 2.5})
    assert said == "this host cannot guarantee 2.5 processors: 2 of 8 are free. Requested by others: 6"


@as_root
def test_a_quota_covers_requests(host, new):
    alice = host.token("alice")
    for name in ("one", "two", "three", "four"):
        new(alice, name=name, requests={"memory": "150M", "cpus": 1.25}, limits={"disk": "16M"})
    said = refusal(alice, 429, requests={"memory": "200M"}, limits={"disk": "16M"})
    assert said.startswith("alice may request 768M of memory in all (quota.request_memory); with this box it would be 800M. Requested by: ")
    assert "four 150M" in said and "and 1 more 150M" in said, said
    assert "6 processors in all (quota.request_cpus); with this box it would be 7" in refusal(alice, 429, requests={"cpus": 2}, limits={"cpus": 2})
    me = alice.get("/v1/me").json
    assert me["used"]["requests"] == {"memory": 600 * MIB, "cpus": 5} and me["quota"]["requests"] == {"memory": 768 * MIB, "cpus": 6}
    new(host.token("bob"), requests={"memory": "200M"}, limits={"disk": "16M"})      # each has a quota of its own


@as_root
def test_limits_may_exceed_the_host_by_a_factor_and_no_more(host, new):
    alice, bob = host.token("alice"), host.token("bob")
    box = new(alice, name="half", limits={"memory": "1G", "disk": "16M"})
    new(bob, limits={"memory": "900M", "disk": "16M"})
    said = refusal(alice, 503, limits={"memory": "200M", "disk": "16M"})
    assert said == "limits.memory 200M is too much now: limits may add up to 2G on this host (host.overcommit 2), and 1.8G are taken, by you: half 1G"
    grown = alice.patch("/v1/boxes/" + box["id"], {"limits": {"memory": "1300M"}})
    assert grown.status == 503 and grown.code == "host_full", grown.body
    assert alice.patch("/v1/boxes/" + box["id"], {"limits": {"memory": "1100M"}}).status == 200
    assert refusal(alice, 503, limits={"memory": "64M", "disk": "16M"})
    alice.delete("/v1/boxes/" + box["id"])
    new(alice, limits={"memory": "1G", "disk": "16M"})


@as_root
def test_a_box_that_waits_in_the_pool_counts_at_what_it_uses():
    """Two boxes of 200M wait; at their limits they would leave no room for a second one."""
    server = Server("--set", "defaults.memory=200M", "--set", "defaults.disk=16M", "--set", "host.memory=500M", "--set", "host.overcommit=1")
    try:
        made = []
        for _ in range(2):
            box = wait_for(lambda: (lambda b: b if b["from_pool"] else server.admin.delete("/v1/boxes/" + b["id"]) and None)(server.admin.post("/v1/boxes", {}).json))
            made.append(box)
        assert "host.overcommit 1" in refusal(server.admin, 503)
        server.admin.delete("/v1/boxes/" + made[0]["id"])
        assert server.admin.post("/v1/boxes", {}).status == 201
    finally:
        server.stop()


@as_root
def test_templates_and_defaults_have_requests():
    server = Server("--set", "defaults.memory=64M", "--set", "defaults.disk=16M", "--set", "defaults.request_cpus=0.25", "--set", "defaults.request_memory=32M",
                    "--set", "templates.python.request_cpus=0.75", "--set", "host.cpus=8", "--set", "host.memory=1G")
    try:
        make = lambda **body: server.admin.post("/v1/boxes", body).json
        wait_for(lambda: make()["from_pool"])
        plain, weight = new_weights(server, lambda: make(limits={"memory": "65M"}))
        assert plain["requests"] == {"memory": 32 * MIB, "cpus": 0.25} and 250 in weight.values()
        assert make(template="python")["requests"] == {"memory": 32 * MIB, "cpus": 0.75}
        assert make(requests={"cpus": 0.5})["requests"] == {"memory": 32 * MIB, "cpus": 0.5}
        assert make(limits={"cpus": 0.1, "memory": "16M"})["requests"] == {"memory": 16 * MIB, "cpus": 0.1}       # a limit below the default
    finally:
        server.stop()


def test_a_default_that_no_box_could_have_is_refused():
    for settings, word in ((("defaults.request_memory=9G", "limits.memory=8G"), "defaults.request_memory is more than limits.memory"),
                           (("templates.python.request_cpus=3", "host.cpus=2"), "templates.python.request_cpus is more than host.cpus"),
                           (("host.overcommit=0.5",), "host.overcommit")):
        with pytest.raises(AssertionError) as failed:
            Server(*[word for one in settings for word in ("--set", one)]).stop()
        assert word in str(failed.value)
