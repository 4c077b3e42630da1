"""A private server for the whole run, and two who use it."""
import json
import os

import pytest

from support.server import Server, limits


@pytest.fixture(scope="session")
def server():
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    s = Server("--set", "limits.memory=16G")
    yield s
    s.stop()


@pytest.fixture(scope="session")
def admin(server):
    """Root over the unix socket."""
    return server.admin


@pytest.fixture(scope="session")
def alice(server):
    return server.token("alice")


@pytest.fixture(scope="session")
def bob(server):
    return server.token("bob")


@pytest.fixture
def make_box(alice):
    """Makes boxes for alice that are gone after the test."""
    made = []

    def make(client=alice, **body):
        answer = client.post("/v1/boxes", {**body, **({"limits": limits(**body["limits"])} if "limits" in body else {})})
        assert answer.status == 201, answer.body
        made.append((client, answer.json["id"]))
        return answer.json

    yield make
    for client, box in made:
        client.delete(f"/v1/boxes/{box}")


@pytest.fixture
def box(make_box):
    """The path of a small box of alice's."""
    return "/v1/boxes/" + make_box(limits={"memory": "256M", "pids": 64, "disk": "128M"})["id"]


@pytest.fixture
def run(alice, box):
    """Runs a shell line in the box and gives the answer."""
    def run(line, **more):
        answer = alice.post(box + "/exec", {"shell": line, **more})
        assert answer.status == 200, answer.body
        return answer.json
    return run


@pytest.fixture(scope="session")
def openapi(admin):
    return json.loads(admin.get("/openapi.json").body)
