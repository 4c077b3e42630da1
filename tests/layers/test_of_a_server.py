"""Layers that a server of root's has made for others: each sees and removes its own, and nobody else's."""
import json
import subprocess

import pytest

from support.index import wheel
from support.openapi import unanswered
from support.server import Server
from support.users import ORDINARY, make_user


@pytest.fixture(scope="module")
def root(admin, index):
    server = Server("--set", "templates.python.pool=off", variables={"CARREL_LAYERS": str(admin.layers), "UV_DEFAULT_INDEX": index.url})
    server.layers_place = admin.layers
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ordinary(root):
    """Commands of an ordinary user of that server, whose own folder of layers is empty."""
    make_user()

    def run(*words):
        command = ["runuser", "-u", ORDINARY, "--", "env", "-i", "PATH=/usr/bin:/bin", f"HOME={root.folder}/home", f"CARREL_URL={root.url}", root.place / "carrel", *words]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    home = root.folder / "home"
    home.mkdir()
    subprocess.run(["chown", ORDINARY, home], check=True)
    return run


def listed(ordinary):
    done = ordinary("layer", "list", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_user_sees_and_removes_the_layers_that_a_server_made_for_it_root(root, ordinary):
    done = ordinary("create", "--name", "user", "--packages", "alpha==1.0")
    assert done.returncode == 0, done.stderr
    layers = listed(ordinary)
    assert [(one["where"], one["packages"]) for one in layers] == [("server", ["alpha==1.0"])]
    name, size = layers[0]["layer"], layers[0]["bytes"]
    text = ordinary("layer", "list").stdout
    assert name[:12] in text and "server" in text
    assert json.loads(ordinary("df", "--json").stdout)["owners"][0]["layers"] == size
    refused = ordinary("layer", "rm", name[:12])
    assert refused.returncode == 125 and "(user) uses the layer" in refused.stderr, refused.stderr
    assert "removed" not in ordinary("layer", "prune", "--unused", "0").stdout and listed(ordinary)
    assert ordinary("rm", "user").returncode == 0
    assert ordinary("layer", "rm", name[:12]).returncode == 0
    assert listed(ordinary) == [] and not list(root.layers_place.glob(f"*/{name}"))
    assert ordinary("create", "--name", "user", "--packages", "alpha==1.0").returncode == 0       # and makes it again


def test_nobody_sees_or_removes_those_of_others_root(root):
    alice, bob = root.token("alice"), root.token("bob")
    made = alice.post("/v1/boxes", {"packages": ["alpha==2.0"]})
    assert made.status == 201, made.body
    (layer,) = alice.get("/v1/layers").json["layers"]
    assert layer["boxes"] == [made.json["id"]] and "alpha==2.0" in layer["versions"]
    for other in (bob, root.admin):
        assert layer["id"] not in str(other.get("/v1/layers").json)
        assert other.delete("/v1/layers/" + layer["id"]).status == 404
    for name in ("..", "x" * 64, "%2e%2e%2fuid-0", layer["id"][:12], "0" * 64):
        assert alice.delete("/v1/layers/" + name).status in (400, 404), name
    busy = alice.delete("/v1/layers/" + layer["id"])
    assert busy.status == 409 and busy.json["error"]["code"] == "in_use" and made.json["id"] in busy.json["error"]["message"]
    # A cell starts an interpreter that kernels are forked from; it outlives the box, and must not keep the layer.
    assert alice.post(f"/v1/boxes/{made.json['id']}/run", {"code": "1"}).status == 200
    assert alice.delete(f"/v1/boxes/{made.json['id']}").status in (200, 204)
    assert alice.delete("/v1/layers/" + layer["id"]).status == 204
    assert alice.get("/v1/layers").json["layers"] == [] and unanswered("/v1/layers") == []
    again = alice.post("/v1/boxes", {"packages": ["alpha==2.0"]})
    assert again.status == 201, again.body


def test_own_layers_of_ones_own_server_are_listed_once_root(root, admin):
    assert root.admin.post("/v1/boxes", {"packages": ["alpha==1.0"], "name": "mine"}).status == 201
    done = admin.run("layer", "list", "--json", "--url", root.url)
    layers = json.loads(done.stdout)
    assert len({one["path"] for one in layers}) == len(layers) > 0 and {one["where"] for one in layers} == {"here"}


def test_a_package_for_another_python_names_those_of_the_server_root(root, index):
    index.add(wheel("oldabi", "1.0", tag="cp36-cp36m-manylinux1_x86_64"))
    made = root.admin.post("/v1/boxes", {"packages": ["oldabi"]})
    assert made.status == 422 and "oldabi has no version for Python 3." in made.json["error"]["message"], made.body
    assert "python here: 3." in made.json["error"]["message"]
