"""Families of the server: started for each identity that needs one, with parked boxes of their own, restarted when their zygote dies, recognized after a restart of
the front. The stand-in for an interpreter is tests/zygote, which serves whatever its arguments are."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal

import pytest

from support import BUILD
from support.client import Client
from support.server import Server
from support.waiting import wait_for
from test_pool import boxes_of_keeper, create, wait_boxes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")

ZYGOTE = pathlib.Path(os.environ.get("CARREL_ZYGOTE", BUILD / "tests/zygote"))


@pytest.fixture
def template(tmp_path):
    """An environment whose interpreter is the stand-in, with a file beside it."""
    tmp_path.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "guest").mkdir()
    (tmp_path / "lib/file").write_text("of the template\n")
    shutil.copy(ZYGOTE, tmp_path / "bin/interpreter")
    return tmp_path


def options(template, program="bin/interpreter", pool="2"):
    return ("--set", f"templates.python.python={template / program}", "--set", f"templates.python.pool={pool}")


def log_lines(server):
    for line in server.log_text().splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):       # the last one may not be there wholly
            yield json.loads(line)


def ready(server, owner="uid:0"):
    """How often a family of this owner has become ready."""
    return sum(line["message"] == "a family of kernels is ready" and line["owner"] == owner for line in log_lines(server))


def interpreters(server):
    """pid -> whether it is in a box: the zygotes and what they have forked and still waits."""
    keeper, found = server.keeper_pid(), {}
    for child in pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
        try:
            name = pathlib.Path(f"/proc/{child}/comm").read_text()
            spaces = pathlib.Path(f"/proc/{child}/status").read_text().split("\nNSpid:")[1].split("\n")[0].split()
            dead = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if name == "interpreter\n" and not dead:
            found[int(child)] = len(spaces) > 2
    return found


def zygotes(server):
    return [pid for pid, boxed in interpreters(server).items() if not boxed]


def the_zygote(server):
    """What it forks looks like it for a moment, and the list may lack one while another ends."""
    def find():
        found = zygotes(server)
        return found[0] if len(found) == 1 else None
    return wait_for(find, lambda: interpreters(server))


def parked(server):
    return sum(interpreters(server).values())


def take_parked(client):
    """A box that was parked; others are given back, for there may be many of them before one is parked."""
    box = create(client, template="python")
    if box["from_pool"]:
        return box
    assert client.delete(f"/v1/boxes/{box['id']}").status == 204
    return None


def wait_taken(client):
    wait_for(lambda: take_parked(client), "nothing is parked", every_s=0.2)


def wait_parked(server, n):
    wait_for(lambda: parked(server) == n, lambda: f"{parked(server)} are parked, not {n}: {server.log_text()}")


@pytest.fixture
def family(request, template, monkeypatch):
    monkeypatch.setenv("CARREL_GUEST", str(template / "guest"))
    server = Server(*options(template))
    request.addfinalizer(server.stop)
    wait_for(lambda: ready(server), server.log_text)
    wait_parked(server, 2)
    return server, Client(server.socket)


def test_a_box_of_a_template_is_a_parked_one_and_another_is_made(family, template):
    server, client = family
    box = create(client, template="python")
    assert box["from_pool"] is True and box["template"] == "python"
    wait_parked(server, 3)
    ran = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": f"cat {template}/lib/file; touch {template}/lib/new; hostname"}).json
    assert ran["stdout"] == "of the template\nbox\n" and "Read-only" in ran["stderr"]
    assert client.delete(f"/v1/boxes/{box['id']}").status == 204
    wait_parked(server, 2)


def test_a_box_of_other_limits_is_made_in_the_family(family):
    server, client = family
    box = create(client, template="python", limits={"memory": "256M"})
    assert box["from_pool"] is False
    wait_parked(server, 3)


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("of the caller\n")
    return folder


def sees_data(server):
    """The keeper's children in whose root something is mounted at /data."""
    keeper, found = server.keeper_pid(), []
    for child in pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
        try:
            if " /data " in pathlib.Path(f"/proc/{child}/mountinfo").read_text():
                found.append(int(child))
        except OSError:
            continue
    return found


def test_a_box_with_mounts_is_made_in_the_family_and_writes_as_the_caller(family, shared):
    server, client = family
    box = client.create_with_mounts({"template": "python"}, {"/data": str(shared)}, writable=True)
    assert box["from_pool"] is False
    wait_parked(server, 3)
    [inside] = wait_for(lambda: [pid for pid, boxed in interpreters(server).items() if boxed and pid in sees_data(server)])
    ran = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": "cat /data/file; echo new >/data/new; stat -c %u /data/new"}).json
    assert ran["stdout"] == "of the caller\n1000\n", ran
    assert (shared / "new").read_text() == "new\n" and (shared / "new").stat().st_uid == os.getuid()
    assert the_zygote(server) not in sees_data(server)
    assert client.delete(f"/v1/boxes/{box['id']}").status == 204 and wait_for(lambda: not pathlib.Path(f"/proc/{inside}").exists())


def test_a_mount_that_is_only_to_be_read_stays_so_in_a_family(family, shared):
    server, client = family
    box = client.create_with_mounts({"template": "python"}, {"/data": str(shared)})
    wait_parked(server, 3)
    ran = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": "cat /data/file; echo x >/data/file"}).json
    assert ran["stdout"] == "of the caller\n" and "Read-only" in ran["stderr"]


def test_a_box_with_mounts_is_made_without_a_family_if_the_zygote_dies_meanwhile(family, shared):
    server, client = family
    zygote = the_zygote(server)
    os.kill(zygote, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            creating = thread.submit(client.create_with_mounts, {"template": "python"}, {"/data": str(shared)}, True)
            wait_for(lambda: sees_data(server), server.log_text)
            os.kill(zygote, signal.SIGKILL)
            box = creating.result(120)
    finally:
        os.kill(zygote, signal.SIGKILL) if zygote in zygotes(server) else None
    assert "a family gave no box" in server.log_text()
    ran = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": "cat /data/file && echo new >/data/new"}).json
    assert ran["stdout"] == "of the caller\n" and ran["outcome"] == "ok" and (shared / "new").stat().st_uid == os.getuid()


def test_the_front_keeps_nothing_that_a_caller_has_opened(family, shared):
    server, client = family
    before = len(os.listdir(f"/proc/{server.front_pid()}/fd"))
    for _ in range(3):
        client.create_with_mounts({"template": "python"}, {"/data": str(shared)})
    wait_for(lambda: len(os.listdir(f"/proc/{server.front_pid()}/fd")) <= before, lambda: os.listdir(f"/proc/{server.front_pid()}/fd"))


@pytest.mark.parametrize("body", [{"writable_root": True}, {}, {"template": None}])
def test_a_box_that_no_family_has_is_made_without(family, body):
    server, client = family
    box = create(client, **{"template": "python", **body} if body.get("writable_root") else body)
    assert client.post(f"/v1/boxes/{box['id']}/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    wait_parked(server, 2)


def test_a_template_that_is_not_there_is_refused(family):
    server, client = family
    answer = client.post("/v1/boxes", {"template": "nothing"})
    assert answer.status == 400 and b"there is no template" in answer.body


def test_each_owner_has_a_family_of_his_own(family):
    server, client = family
    alice = server.token("alice")
    the_zygote(server)
    box = create(alice, template="python")      # the first one does not wait for it
    assert box["phase"] == "running"
    wait_for(lambda: ready(server, "alice"), server.log_text)
    wait_for(lambda: len(zygotes(server)) == 2)      # a child that was just forked looks like one
    wait_parked(server, 4)
    assert create(alice, template="python")["from_pool"] is True


def test_a_zygote_that_dies_is_started_again_and_its_boxes_live(family):
    server, client = family
    box = create(client, template="python")
    wait_parked(server, 3)
    zygote = the_zygote(server)
    os.kill(zygote, signal.SIGKILL)
    wait_for(lambda: "a family of kernels has ended" in server.log_text())
    between = create(client, template="python")     # as long as there is none
    for b in (box, between):
        assert client.post(f"/v1/boxes/{b['id']}/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    wait_for(lambda: ready(server) == 2, server.log_text)
    assert zygotes(server) != [zygote]
    wait_taken(client)


def test_a_front_that_is_killed_knows_the_family_again_by_its_box(family):
    server, client = family
    box = create(client, template="python")
    assert box["from_pool"] is True
    wait_parked(server, 3)
    before = [the_zygote(server)]
    front = server.front_pid()
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: not pathlib.Path(f"/proc/{front}").exists() and server.is_ready())
    wait_for(lambda: zygotes(server) == before and ready(server) == 1)
    assert client.get(f"/v1/boxes/{box['id']}").json["template"] == "python"
    # Those that were parked for the last front may be counted before they go.
    wait_taken(client)


def test_a_front_that_is_killed_ends_a_family_that_nobody_used(family):
    server, client = family
    before = [the_zygote(server)]
    front = server.front_pid()
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: ready(server) == 2, server.log_text)
    wait_for(lambda: len(zygotes(server)) == 1 and zygotes(server) != before)
    wait_parked(server, 2)


def test_a_keeper_that_is_killed_takes_its_families_and_new_ones_are_made(family):
    server, client = family
    keeper = server.keeper_pid()
    left = interpreters(server)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: ready(server) == 2, server.log_text)
    wait_parked(server, 2)
    wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in left))


def test_without_a_pool_there_is_no_family(request, template, monkeypatch):
    monkeypatch.setenv("CARREL_GUEST", str(template / "guest"))
    server = Server(*options(template, pool="off"))
    request.addfinalizer(server.stop)
    box = create(Client(server.socket), template="python")
    shown = Client(server.socket).post(f"/v1/boxes/{box['id']}/exec", {"argv": ["cat", f"{template}/lib/file"]}).json
    assert shown["stdout"] == "of the template\n"
    assert interpreters(server) == {}


def test_a_late_zygote_is_started_with_the_first_kernel(request, template, monkeypatch):
    monkeypatch.setenv("CARREL_GUEST", str(template / "guest"))
    server = Server(*options(template), "--set", "templates.python.zygote=late")
    request.addfinalizer(server.stop)
    client = Client(server.socket)
    box = create(client, template="python")
    assert client.post(f"/v1/boxes/{box['id']}/exec", {"argv": ["true"]}).json["outcome"] == "ok"
    create(client, template="python")
    assert interpreters(server) == {}       # what a create starts is there before its answer
    client.post(f"/v1/boxes/{box['id']}/kernels", {})
    wait_for(lambda: ready(server), server.log_text)
    wait_taken(client)


def test_an_interpreter_that_cannot_start_costs_no_box(request, template, monkeypatch):
    monkeypatch.setenv("CARREL_GUEST", str(template / "guest"))
    program = template / "bin/broken"
    program.write_text("#!/bin/sh\necho '{\"error\":\"there is no ipykernel\",\"hint\":\"install it\"}' >&2\nexit 78\n")
    program.chmod(0o755)
    server = Server(*options(template, "bin/broken"))
    request.addfinalizer(server.stop)
    wait_for(lambda: "a family of kernels has ended" in server.log_text(), server.log_text)
    wait_for(lambda: any(line["message"] == "there is no ipykernel" and line["hint"] == "install it" for line in log_lines(server)), server.log_text)
    wait_for(lambda: any(line.get("again_in_s") == "300" and "status 78" in line["why"] for line in log_lines(server)), server.log_text)
    box = create(Client(server.socket), template="python")
    assert box["phase"] == "running"


def at_once(server, n):
    """Boxes that are requested together, each by a client of its own."""
    with concurrent.futures.ThreadPoolExecutor(n) as threads:
        return list(threads.map(lambda _: create(Client(server.socket), template="python"), range(n)))


def delete(client, boxes):
    for box in boxes:
        assert client.delete(f"/v1/boxes/{box['id']}").status == 204


BURST = 6


@pytest.fixture
def blank(family):
    """A server whose pool has boxes for a burst: two parked ones, the others blank."""
    server, client = family

    def has_grown():
        """Else another burst: on a busy machine one may come in pieces."""
        return boxes_of_keeper(server) == BURST + 3 or delete(client, at_once(server, BURST))     # and two empty ones and the family's own init
    wait_for(has_grown, lambda: f"{boxes_of_keeper(server)} boxes", every_s=1)
    wait_parked(server, 2)
    return server, client


def test_a_burst_finds_as_many_boxes_as_the_one_before_it(blank):
    server, client = blank
    boxes = at_once(server, BURST)
    assert [box["from_pool"] for box in boxes] == [True] * BURST
    for box in boxes:
        ran = client.post(f"/v1/boxes/{box['id']}/exec", {"shell": "echo $$; ls -A ~"}).json
        assert ran["outcome"] == "ok" and len(ran["stdout"].split()) == 1, ran
    delete(client, boxes)
    wait_boxes(server, BURST + 3)


def test_a_pool_without_blank_boxes_has_the_parked_ones_only(request, template, monkeypatch):
    monkeypatch.setenv("CARREL_GUEST", str(template / "guest"))
    server = Server(*options(template), "--set", "pool.blank=off")
    request.addfinalizer(server.stop)
    client = Client(server.socket)
    wait_for(lambda: ready(server), server.log_text)
    wait_parked(server, 2)
    delete(client, at_once(server, BURST))
    wait_parked(server, 2)
    assert sum(box["from_pool"] for box in at_once(server, BURST)) <= 2


def test_blank_boxes_end_with_their_family(blank):
    server, client = blank
    os.kill(the_zygote(server), signal.SIGKILL)
    wait_for(lambda: ready(server) == 2, server.log_text)
    wait_parked(server, 2)
    wait_boxes(server, 2 + 2 + 1)       # parked, empty ones, and the new family's init


def test_blank_boxes_go_with_the_front_that_wanted_them(blank):
    server, client = blank
    box = create(client, template="python")
    front = server.front_pid()
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: not pathlib.Path(f"/proc/{front}").exists() and server.is_ready())
    wait_boxes(server, 1 + 2 + 2 + 1)
    assert client.get(f"/v1/boxes/{box['id']}").json["phase"] == "running"


def test_blank_boxes_go_with_the_keeper(blank):
    server, client = blank
    keeper = server.keeper_pid()
    left = pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in left))
    wait_for(lambda: ready(server) == 2, server.log_text)
