"""The network of a server's boxes: policies in requests, changed while it runs, what was refused, kills of each process."""
import ctypes
import os
import pathlib
import signal

import pytest

from support.processes import children
from support.server import Server
from support.waiting import wait_for

LIBC = ctypes.CDLL(None, use_errno=True)
FETCH = ["curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}"]


def entering(namespace):
    """For a child before its exec: the network and the mounts of a namespace of the tests' own."""
    def enter():
        for kind in ("net", "mnt"):
            with open(f"/proc/{namespace.holder.pid}/ns/{kind}") as f:
                if LIBC.setns(f.fileno(), 0) < 0:
                    raise OSError(ctypes.get_errno(), "setns")
    return enter


@pytest.fixture(scope="module")
def server(world):
    made = Server("--set", "networks.tests=good.test four.test:80", "--set", "network.deny=203.0.113.11 denied.test",
                  "--set", f"templates.python.python={os.environ['KERNEL_PYTHON']}", prepare=entering(world.host))
    yield made
    made.stop()


@pytest.fixture
def box(server):
    made = []

    def make(**settings):
        answer = server.admin.post("/v1/boxes", settings)
        assert answer.status == 201, answer.json
        made.append(answer.json["id"])
        return made[-1]
    yield make
    for one in made:
        server.admin.delete(f"/v1/boxes/{one}")


def run(server, box, *argv):
    answer = server.admin.post(f"/v1/boxes/{box}/exec", {"argv": list(argv)})
    assert answer.status == 200, answer.json
    return answer.json


def reaches(server, box, url="http://good.test/"):
    return run(server, box, *FETCH, url)["stdout"] == "200"


def test_a_box_reaches_what_its_policy_names_and_is_told_what_not(server, box):
    one = box(net={"allow": ["good.test"]})
    assert reaches(server, one)
    refused = run(server, one, *FETCH, "http://other.test/")
    assert refused["refused"] == {"message": "the network of this box refused other.test", "rule": "other.test"}
    shown = server.admin.get(f"/v1/boxes/{one}/net").json
    assert shown["net"] == {"allow": ["good.test"], "deny": [], "public": False}
    assert [(r["name"], r["port"]) for r in shown["refused"]] == [("other.test", 0)] and shown["bytes_received"] > 0
    events = [e for e in server.admin.get(f"/v1/boxes/{one}/events").json["events"] if e["type"] == "net"]
    assert [e["body"]["name"] for e in events] == ["other.test"]


def test_a_box_without_network_says_which_name_was_asked_for(server, box):
    one = box()
    ended = run(server, one, *FETCH, "http://good.test/")
    assert ended["refused"] == {"message": "this box has no network: good.test was refused", "rule": "good.test"}
    assert run(server, one, "true").get("refused") is None


def test_a_policy_changes_while_the_box_runs(server, box):
    one = box()
    path = f"/v1/boxes/{one}"
    assert not reaches(server, one)
    assert server.admin.patch(path, {"net": {"allow": ["good.test"]}}).json["net"]["allow"] == ["good.test"]
    assert reaches(server, one)
    assert server.admin.patch(path, {"net": {"allow": ["four.test"]}}).status == 200
    assert not reaches(server, one) and reaches(server, one, "http://four.test/")
    assert server.admin.patch(path, {"net": "none"}).json["net"] == "none"
    ended = run(server, one, *FETCH, "http://four.test/")
    assert ended.get("refused"), ended
    assert ended["refused"]["message"] == "this box has no network: four.test was refused"


def test_a_connection_that_is_no_longer_allowed_is_cut(server, box):
    one = box(net={"allow": ["good.test"]})
    script = ("import socket; s = socket.create_connection(('good.test', 7)); s.sendall(b'x'); print(s.recv(1), flush=True)\n"
              "try: print('ended', s.recv(1))\nexcept OSError as e: print('ended', e.errno)")
    job = server.admin.post(f"/v1/boxes/{one}/exec", {"argv": ["python3", "-c", script], "background": True}).json["id"]
    live = lambda: server.admin.get(f"/v1/boxes/{one}/net").json["connections"]  # noqa: E731
    wait_for(lambda: [c["name"] for c in live()] == ["good.test"], "the connection is shown")
    server.admin.patch(f"/v1/boxes/{one}", {"net": {"allow": ["four.test"]}})
    ended = server.admin.get(f"/v1/boxes/{one}/exec/{job}?wait=true").json
    assert ended["outcome"] == "ok" and not live()


def test_networks_of_the_configuration_are_asked_for_by_name(server, box):
    one = box(net="tests")
    assert reaches(server, one) and reaches(server, one, "http://four.test/")
    assert not reaches(server, one, "http://private.test/")
    answer = server.admin.post("/v1/boxes", {"net": "nonsense"})
    assert answer.status == 400 and "'nonsense' is none" in answer.json["error"]["message"]


def test_what_is_denied_to_all_stays_denied(server, box):
    one = box(net={"public": True, "allow": ["203.0.113.11"]})
    assert reaches(server, one)
    assert not reaches(server, one, "http://203.0.113.11/")


@pytest.mark.parametrize("net, word", [
    ({"allow": ["a b"]}, "net.allow[0] 'a b', character 2"), ({"allow": "x"}, "net.allow must be a list"), (7, "net must be"),
    ({"allow": ["x.test:99999"]}, "ports are numbers"), ({"deny": ["x"], "more": 1}, "unknown field 'net.more'"),
    ({"allow": ["a" * 300]}, "at most 253"), ({"allow": [f"n{i}.test" for i in range(200)]}, "may have 128 rules")])
def test_rules_that_mean_nothing_are_refused(server, net, word):
    answer = server.admin.post("/v1/boxes", {"net": net})
    assert answer.status in (400, 413) and word in answer.json["error"]["message"], answer.json


def test_a_cell_is_told_what_its_box_was_refused(server, box):
    one = box(net={"allow": ["good.test"]})
    code = "import socket\ntry: socket.getaddrinfo('other.test', 80)\nexcept OSError as e: print(e)"
    answer = server.admin.post(f"/v1/boxes/{one}/run", {"code": code})
    assert answer.json["refused"]["rule"] == "other.test", answer.json


def process_of(server, word):
    """The child of this server whose command line has the word."""
    return next(pid for pid in children(server.process.pid)
                if word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())


@pytest.mark.parametrize("who", ["egress", "front", "keeper"])
def test_boxes_reach_their_networks_again_after_a_kill(server, box, who):
    one = box(net={"allow": ["good.test"]})
    assert reaches(server, one)
    os.kill(process_of(server, {"egress": "carrel-egress", "front": " front ", "keeper": " keeper "}[who]), signal.SIGKILL)
    if who == "keeper":         # its boxes are gone, and the front may not have noticed yet
        answers = []
        wait_for(lambda: answers.append(server.admin.post("/v1/boxes", {"net": {"allow": ["good.test"]}})) or answers[-1].status == 201,
                 "boxes can be made again")
        one = answers[-1].json["id"]
    else:
        wait_for(server.is_ready, "the server is ready again")
    wait_for(lambda: reaches(server, one), "the network is back")
