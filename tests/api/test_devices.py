"""Devices by CDI through a server: /dev/null and /dev/zero under other names, of a kind that the administrator allows or does not."""
import os
import pathlib
import signal

import pytest

from support.client import Client
from support.server import Server
from support.waiting import wait_for

SPECIFICATION = """{"cdiVersion": "0.6.0", "kind": "carrel-api.test/gpu", "containerEdits": {"env": ["GPUS=all"]}, "devices": [
 {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu/0", "hostPath": "/dev/zero", "type": "c"}], "env": ["GPU=0"],
                                  "mounts": [{"hostPath": "/etc/cdi", "containerPath": "/opt/gpu", "options": ["ro"]}]}},
 {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu/1", "hostPath": "/dev/null"}]}},
 {"name": "hooked", "containerEdits": {"hooks": [{"hookName": "startContainer", "path": "/bin/true"}]}}]}"""
NAME = "carrel-api.test/gpu"


@pytest.fixture(scope="module")
def devices():
    if os.geteuid() != 0:
        pytest.skip("only root can write a specification")
    folder = pathlib.Path("/etc/cdi")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    path = folder / f"carrel-api-{os.getpid()}.json"
    path.write_text(SPECIFICATION)
    yield path
    path.unlink()
    if made and not any(folder.iterdir()):
        folder.rmdir()


@pytest.fixture(scope="module")
def open_server(devices):
    s = Server("--set", f"devices.allow={NAME}")
    yield s
    s.stop()


@pytest.fixture
def owner(open_server):
    """The user who runs the server, over its unix socket."""
    return Client(open_server.socket)


def shell(client, box, line):
    return client.post(f"/v1/boxes/{box}/exec", {"shell": line}).json


def test_none_is_allowed_unless_the_configuration_says_so(admin, devices):
    assert admin.get("/v1/info").json["devices"] == []
    refused = admin.post("/v1/boxes", {"devices": [NAME + "=0"]})
    assert refused.status == 403 and "devices.allow" in refused.json["error"]["message"], refused.body


def test_the_server_lists_what_boxes_may_have(owner):
    listed = {d["name"]: d["refused"] for d in owner.get("/v1/info").json["devices"]}
    assert listed[NAME + "=0"] is None and listed[NAME + "=1"] is None and "startContainer" in listed[NAME + "=hooked"]
    assert all(name.startswith(NAME) for name in listed)


def test_a_box_has_the_devices_that_it_asked_for_and_no_others(owner, open_server):
    box = owner.post("/v1/boxes", {"devices": [NAME + "=0"], "template": "python", "env": {"MINE": "x"}}).json
    assert box["devices"] == [NAME + "=0"] and sorted(box["env"]) == ["GPU", "GPUS", "MINE"]
    line = "head -c 2 /dev/gpu/0 | od -An -tx1; ls /dev/gpu; echo $GPU $GPUS; touch /opt/gpu/x 2>/dev/null || echo read-only"
    assert shell(owner, box["id"], line)["stdout"].split() == ["00", "00", "0", "0", "all", "read-only"]
    old = open_server.front_pid()
    os.kill(old, signal.SIGKILL)
    assert wait_for(lambda: open_server.is_ready() and open_server.front_pid() != old)
    assert owner.get("/v1/boxes/" + box["id"]).json["devices"] == [NAME + "=0"]
    other = owner.post("/v1/boxes", {}).json["id"]
    assert shell(owner, other, "ls /dev/gpu /opt/gpu 2>&1 | grep -c cannot")["stdout"] == "2\n"
    for one in (box["id"], other):
        owner.delete("/v1/boxes/" + one)


def test_two_devices_share_what_their_kind_has(owner):
    box = owner.post("/v1/boxes", {"devices": [NAME + "=0", NAME + "=1"]}).json["id"]
    assert shell(owner, box, "ls /dev/gpu; echo x >/dev/gpu/1 && echo written")["stdout"].split() == ["0", "1", "written"]
    owner.delete("/v1/boxes/" + box)


@pytest.mark.parametrize("asked, status, words", [
    ([NAME + "=9"], 400, "there is no device"), ([NAME + "=hooked"], 501, "startContainer"), (["other.com/gpu=0"], 403, "devices.allow"),
    (["nonsense"], 400, "vendor.com/class"), ("x", 400, "list"), ([1], 400, "devices[0]"), ([NAME + "=0"] * 9, 400, "at most 8")])
def test_what_cannot_be_had_is_refused_in_words(owner, asked, status, words):
    answer = owner.post("/v1/boxes", {"devices": asked})
    assert answer.status == status and words in answer.json["error"]["message"], answer.body


def test_a_device_that_has_gone_is_told_by_the_keeper(owner, devices):
    """The front has the devices from its start; the present ones count."""
    devices.write_text(SPECIFICATION.replace('"hostPath": "/dev/null"', '"hostPath": "/dev/gone"'))
    answer = owner.post("/v1/boxes", {"devices": [NAME + "=1"]})
    devices.write_text(SPECIFICATION)
    assert answer.status >= 400 and "/dev/gone" in answer.json["error"]["message"], answer.body
    assert owner.get("/v1/boxes?phase=failed").json["boxes"] == []
