"""What takes disk, by owner; and what carrel gc gives back."""
import json
import os
import time

from support.server import Server


def df(user, *words, **variables):
    done = user.run("df", "--json", *words, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_layers_are_counted_without_a_server(user):
    user.do("layer", "build", "alpha==1.0")
    told, notes = df(user)
    own = [row for row in told["owners"] if row["layers"]]
    listed = json.loads(user.do("layer", "list", "--json"))
    assert len(own) == 1 and own[0]["layers"] == own[0]["total"] == sum(one["bytes"] for one in listed) > 1 << 20
    assert "no server is running" in notes and told["environment"] is None
    assert "LAYERS" in user.do("df") and user.run("df", "x").returncode == 125


def test_gc_removes_unfinished_layers_and_those_that_no_box_uses(user):
    name = user.do("layer", "build", "alpha==2.0").strip()
    unfinished = next(user.layers.glob("uid-*")) / "new-0123456789abcdef"
    user.make(unfinished)
    user.run("gc")
    assert not unfinished.exists() and list(user.layers.glob(f"*/{name}"))
    time.sleep(1.1)     # ages are whole seconds
    told = json.loads(user.run("gc", "--unused", "1s", "--json").stdout)
    assert name in [one["layer"] for one in told["layers"]] and not list(user.layers.glob(f"*/{name}"))


def test_a_server_tells_what_each_identity_has_root(admin, index):
    server = Server("--set", "templates.python.pool=off", variables={"CARREL_LAYERS": str(admin.layers), "UV_DEFAULT_INDEX": index.url})
    try:
        alice = server.token("alice")
        assert alice.post("/v1/volumes", {"name": "data", "size": "64M"}).status == 201
        made = alice.post("/v1/boxes", {"packages": ["alpha==1.0"]})
        assert made.status == 201, made.body
        rows = {row["owner"]: row for row in df(admin, "--everybody", "--url", server.url)[0]["owners"]}
        assert rows["alice"]["volumes"] == 64 << 20 and rows["alice"]["layers"] > 1 << 20 and f"uid:{os.getuid()}" in rows
        mine, _ = df(admin, "--url", server.url)
        assert {row["owner"] for row in mine["owners"]} == {f"uid:{os.getuid()}"}
        assert alice.get("/v1/disk").json["owners"][0]["volumes"] == 64 << 20 and alice.get("/v1/disk?all=true").status == 403
        assert alice.get("/v1/disk?nothing=1").status == 400
    finally:
        server.stop()
