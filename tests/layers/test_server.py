"""Packages of a server's boxes: cells, two identities, kernels that were forked ahead, boxes that go while they are installed, kills."""
import contextlib
import os
import pathlib
import shutil
import tempfile
import threading

import pytest

from support.index import IN_MEMORY, sdist
from support.server import Server
from support.waiting import wait_for

SLOW = "import time\nfrom setuptools import setup\ntime.sleep(600)\nsetup(name='slow', version='1.0')\n"
CODE = "import alpha; alpha.version"


@pytest.fixture(scope="module")
def root(index):        # its name puts these tests into the cut of `make test`
    if os.geteuid() != 0:
        pytest.skip("a server of root, and two identities")
    place = tempfile.mkdtemp(prefix="carrel-layers-", dir=IN_MEMORY)
    index.add(sdist("slow", "1.0", SLOW))
    server = Server("--set", "templates.python.pool=1", variables={"CARREL_LAYERS": place, "UV_DEFAULT_INDEX": index.url})
    server.layers = pathlib.Path(place)
    yield server
    server.stop()
    shutil.rmtree(place, ignore_errors=True)


def run(client, box, code):
    answer = client.post(f"/v1/boxes/{box}/run", {"code": code})
    assert answer.status == 200, answer.body
    return answer.json


def test_two_identities_have_layers_of_their_own_root(root):
    alice, bob = root.token("alice"), root.token("bob")
    boxes = {}
    for who, version in ((alice, "1.0"), (bob, "2.0")):
        made = who.post("/v1/boxes", {"packages": [f"alpha=={version}"]})
        assert made.status == 201, made.body
        assert made.json["packages"] == [f"alpha=={version}"] and "/" in made.json["layer"]
        boxes[version] = (who, made.json)
    for version, (who, box) in boxes.items():
        assert repr(version) in str(run(who, box["id"], CODE))
    owners = {box["layer"].split("/")[0] for _, box in boxes.values()}
    assert len(owners) == 2 and {p.name for p in root.layers.iterdir()} == owners
    # A layer is read-only in the API: no caller can name the layer of another.
    asked = bob.post("/v1/boxes", {"layer": boxes["1.0"][1]["layer"]})
    assert asked.status == 400 and "read-only" in asked.json["error"]["message"]


@pytest.mark.skipif(not os.access("/dev/loop-control", os.R_OK), reason="needs loop devices")
def test_packages_a_store_a_volume_and_a_secret_go_together_root(root):
    assert root.admin.put("/v1/secrets/hf", body=b"value").status in (200, 201)
    assert root.admin.post("/v1/volumes", {"name": "data", "size": "64M"}).status == 201
    made = root.admin.post("/v1/boxes", {"packages": ["alpha==1.0"], "store": "disk", "limits": {"disk": "64M"}, "volumes": [{"name": "data", "path": "/data"}],
                                           "secrets": [{"name": "hf", "file": "/run/secrets/hf"}]})
    assert made.status == 201, made.body
    box = made.json["id"]
    assert "'value'" in str(run(root.admin, box, "open('/run/secrets/hf').read()"))
    assert "1.0" in str(run(root.admin, box, "import alpha; open('/data/f', 'w').write(alpha.version); open('/data/f').read()"))
    assert root.admin.post(f"/v1/boxes/{box}/stop").status == 200 and root.admin.post(f"/v1/boxes/{box}/start").status == 200
    assert "1.0" in str(run(root.admin, box, "import alpha; open('/data/f').read()"))
    assert root.admin.delete(f"/v1/boxes/{box}").status in (200, 204)
    assert root.admin.delete("/v1/volumes/data").status == 204


def test_kernels_of_a_layer_are_forked_ahead_root(root):
    def create():
        made = root.admin.post("/v1/boxes", {"packages": ["alpha==1.0"]})
        assert made.status == 201, made.body
        return made.json["id"]

    ways = set()

    def is_forked():
        box = create()
        answer = run(root.admin, box, CODE)
        ways.add(answer["kernel"]["way"])
        root.admin.delete(f"/v1/boxes/{box}")
        return ways & {"parked", "forked"}
    wait_for(is_forked, lambda: str(ways), deadline_s=120)


def test_what_cannot_be_installed_fails_the_box_with_the_reason_root(root):
    made = root.admin.post("/v1/boxes", {"packages": ["nosuchpackage"]})
    assert made.status in (400, 404, 422) and "there is no such package" in made.json["error"]["message"], (made.status, made.body)
    bad = root.admin.post("/v1/boxes", {"packages": ["x @ http://example.org"]})
    assert bad.status == 400 and "no addresses" in bad.json["error"]["message"]
    assert root.admin.post("/v1/boxes", {"packages": 7}).status == 400
    assert root.admin.post("/v1/boxes", {"packages": []}).status == 201
    root.clear()


def start_slow(root):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(root.admin.post("/v1/boxes", {"packages": ["slow"], "name": "slow"})))
    thread.start()
    wait_for(lambda: any("Building" in str(e) or "building" in str(e) for e in events(root)), "the building to begin", deadline_s=120)
    return thread, answers


def events(root):
    boxes = [b for b in root.admin.get("/v1/boxes").json["boxes"] if b["name"] == "slow"]
    return root.admin.get(f"/v1/boxes/{boxes[0]['id']}/events").json["events"] if boxes else []


def test_a_box_can_be_deleted_while_its_packages_are_installed_root(root):
    thread, answers = start_slow(root)
    assert root.admin.delete("/v1/boxes/slow").status in (200, 202, 204)
    thread.join(60)
    assert not thread.is_alive()
    wait_for(lambda: not list(root.layers.glob("*/new-*")) or not builders(), "the builder to end", deadline_s=60)
    assert root.admin.get("/readyz").status == 200


def builders():
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path] if b"--wire" in path.read_bytes().split(b"\0") else []
    return found


def test_a_killed_keeper_ends_builders_and_the_next_one_installs_root(root):
    thread, answers = start_slow(root)
    root.kill("keeper")
    thread.join(60)
    assert answers and answers[0].status >= 500 and root.admin.get("/readyz").status == 200
    made = root.admin.post("/v1/boxes", {"packages": ["alpha==2.0"]})
    assert made.status == 201, made.body
    root.clear()
