"""Kernels, kernelspecs and sessions over HTTP."""
import concurrent.futures
import datetime
import json
import re
import uuid

import pytest

from support.client import Client
from conftest import serve
from support.waiting import wait_for
from wire import Wire

MODEL = {"id", "name", "last_activity", "execution_state", "connections"}


def test_what_is_here(anybody, alice):
    assert set(anybody.get("/api").json) == {"version", "gateway_version"}
    assert alice.get("/api/me").json["identity"]["username"] == "alice"
    assert alice.get("/api/status").json["kernels"] >= 0
    missing = alice.get("/api/nothing/here")
    assert missing.status == 404 and missing.json == {"reason": "Not Found", "message": ""}
    wrong = alice.put("/api/kernels", {})
    assert wrong.status == 405 and "POST" in wrong.headers["Allow"] and wrong.json["reason"] == "Method Not Allowed"


def test_kernelspecs_and_their_logos(alice):
    specs = alice.get("/api/kernelspecs").json
    assert specs["default"] == "python3" and set(specs["kernelspecs"]) == {"python3", "small", "broken"}
    one = alice.get("/api/kernelspecs/python3").json
    assert one == specs["kernelspecs"]["python3"] and one["spec"]["language"] == "python" and one["spec"]["argv"]
    assert (specs["kernelspecs"]["broken"]["spec"]["language"], specs["kernelspecs"]["broken"]["spec"]["display_name"]) == ("bash", "broken")
    svg, png = (alice.get(one["resources"][name]) for name in ("logo-svg", "logo-64x64"))
    assert svg.headers["Content-Type"] == "image/svg+xml" and svg.body.startswith(b"<svg")
    assert png.headers["Content-Type"] == "image/png" and png.body.startswith(b"\x89PNG")
    local = alice.get("/api/kernelspecs/carrel")        # as notebooks call it that a kernel of this machine has run
    assert local.status == 200 and local.json["name"] == "python3"
    missing = alice.get("/api/kernelspecs/fortran")
    assert missing.status == 404 and missing.json["message"] == "Kernel spec fortran not found"
    assert alice.get("/kernelspecs/python3/kernel.json").status == 404


def test_one_kernelspec_asked_for_in_the_way_of_a_server_with_a_user(alice):
    # What jupyter_server's gateway client makes of it when KERNEL_USERNAME is set.
    one = alice.get("/api/kernelspecs?user=bob/small")
    assert one.status == 200 and one.json["name"] == "small" and set(one.json) == {"name", "spec", "resources"}
    assert set(alice.get("/api/kernelspecs?user=bob").json) == {"default", "kernelspecs"}
    assert alice.ask("HEAD", "/kernelspecs/python3/logo-64x64.png").status == 200


def test_create_get_list_delete(alice):
    made = alice.post("/api/kernels", {"name": "python3"})
    assert made.status == 201 and set(made.json) == MODEL
    id = made.json["id"]
    assert str(uuid.UUID(id)) == id and made.headers["Location"] == f"/api/kernels/{id}"
    got = alice.get(f"/api/kernels/{id}").json
    assert set(got) == MODEL and got["name"] == "python3" and got["connections"] == 0
    datetime.datetime.strptime(got["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ")
    assert id in [k["id"] for k in alice.get("/api/kernels").json]
    assert alice.delete(f"/api/kernels/{id}").status == 204
    gone = alice.get(f"/api/kernels/{id}")
    assert gone.status == 404 and gone.json == {"reason": "Not Found", "message": f"Kernel does not exist: {id}"}
    assert alice.delete(f"/api/kernels/{id}").status == 404
    assert id not in [k["id"] for k in alice.get("/api/kernels").json]


def test_the_kernels_box_comes_and_goes_with_it(alice):
    before = {b["id"] for b in alice.get("/v1/boxes?label=jupyter").json["boxes"]}
    id = alice.post("/api/kernels", {"env": {"KERNEL_USERNAME": "carol"}}).json["id"]
    box, = [b for b in alice.get("/v1/boxes?label=jupyter=python3").json["boxes"] if b["id"] not in before]
    assert box["labels"]["jupyter-user"] == "carol" and box["owner"] == "alice"
    alice.delete(f"/api/kernels/{id}")
    assert alice.get("/v1/boxes/" + box["id"]).json["phase"] == "deleted"


@pytest.mark.parametrize("id", ["eval-session-1", "A.b_c-9", "x" * 128])
def test_a_client_chooses_the_id(alice, id):
    first = alice.post("/api/kernels", {"env": {"KERNEL_ID": id}})
    assert first.status == 201 and first.json["id"] == id
    again = alice.post("/api/kernels", {"env": {"KERNEL_ID": id}})
    assert again.status == 409 and f"Kernel already exists: {id}" in again.body.decode()
    attached = alice.post("/api/kernels", {"kernel_id": id})
    assert attached.status == 201 and attached.json["id"] == id
    assert alice.delete(f"/api/kernels/{id}").status == 204


def test_wrong_requests_are_refused_with_a_reason(alice):
    for body, word in [({"env": []}, "env"), ({"env": {"KERNEL_X": 1}}, "KERNEL_X"), ({"env": {"KERNEL_X": "$HOME"}}, "KERNEL_X"),
                       ({"env": {"KERNEL_X": "a\nb"}}, "KERNEL_X"), ({"env": {"KERNEL_X": "y" * 4097}}, "KERNEL_X"),
                       ({"env": {"KERNEL_ID": "a/b"}}, "KERNEL_ID"), ({"env": {"KERNEL_ID": "x" * 129}}, "KERNEL_ID"), ({"kernel_id": 7}, "kernel_id"),
                       ({"name": "fortran"}, "fortran"), ({"name": 3}, "name"), ({"env": {"KERNEL_IMAGE": "no/such:image"}}, "no/such:image"),
                       ({"env": {"KERNEL_MEMORY": "lots"}}, "memory"), ({"env": {"KERNEL_MEMORY": "999G"}}, "memory"),
                       ({"env": {"KERNEL_LAUNCH_TIMEOUT": "soon"}}, "KERNEL_LAUNCH_TIMEOUT")]:
        answer = alice.post("/api/kernels", body)
        assert (answer.status, answer.json["reason"]) == (400, "Bad Request"), (body, answer.body)
        assert word in answer.json["message"], (body, answer.body)
    assert alice.post("/api/kernels", "{", headers={"Content-Type": "application/json"}).status == 400
    assert alice.post("/api/kernels", [1]).status == 400


@pytest.mark.cgroups
def test_environment_limits_and_directory(make_kernel, connect, alice):
    kernel = make_kernel(env={"KERNEL_MEMORY": "300M", "KERNEL_CPUS_LIMIT": "500m", "KERNEL_WORKING_DIR": "/tmp", "KERNEL_NOTE": "hello",
                              "FLAVOUR": "sweet", "SECRET": "no", "KERNEL_LAUNCH_TIMEOUT": "40"})
    said = connect(kernel).run("import os, json; e = os.environ; print(json.dumps([os.getcwd(), e.get('KERNEL_NOTE'), e.get('FLAVOUR'), e.get('SECRET'),"
                               "e.get('KERNEL_ID'), e.get('KERNEL_GATEWAY'), e.get('KERNEL_LANGUAGE')]))")
    assert json.loads(said.text) == ["/tmp", "hello", "sweet", None, kernel, "1", "python"]
    newest = alice.get("/v1/boxes?label=jupyter&limit=1").json["boxes"][0]
    assert newest["limits"]["memory"] == 300 << 20 and newest["limits"]["cpus"] == 0.5


@pytest.mark.cgroups
def test_beside_a_limit_the_plain_variable_is_a_request(make_kernel, alice):
    make_kernel(env={"KERNEL_MEMORY": "100M", "KERNEL_MEMORY_LIMIT": "300M", "KERNEL_CPUS": "250m", "KERNEL_CPUS_LIMIT": "500m"})
    newest = alice.get("/v1/boxes?label=jupyter&limit=1").json["boxes"][0]
    assert newest["limits"]["memory"] == 300 << 20 and newest["limits"]["cpus"] == 0.5
    assert newest["requests"] == {"memory": 100 << 20, "cpus": 0.25}


def test_a_directory_that_is_not_in_the_box_is_left_out(make_kernel, connect):
    wire = connect(make_kernel(env={"KERNEL_WORKING_DIR": "/home/somebody/notebooks"}))
    assert wire.run("1 + 1").result == ["2"]


def test_a_kernel_that_cannot_start_is_an_error_with_the_reason(alice):
    before = alice.get("/v1/boxes?label=jupyter").json["boxes"]
    answer = alice.post("/api/kernels", {"name": "broken"})
    assert answer.status == 500 and "status 1" in answer.json["message"], answer.body
    wait_for(lambda: alice.get("/v1/boxes?label=jupyter").json["boxes"] == before)


def test_nobody_sees_another_ones_kernels(make_kernel, alice, bob, anybody):
    kernel = make_kernel()
    assert bob.get("/api/kernels").json == [] and kernel not in str(anybody.get("/api/kernels").json)
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart")]:
        answer = bob.ask(method, f"/api/kernels/{kernel}{path}")
        assert answer.status == 404 and answer.json["message"] == f"Kernel does not exist: {kernel}"
    assert Wire(bob, kernel).status == 404
    # An id belongs to its owner: the same one is free for another.
    other = bob.post("/api/kernels", {"env": {"KERNEL_ID": kernel}})
    assert other.status == 201 and bob.delete(f"/api/kernels/{kernel}").status == 204
    assert alice.get(f"/api/kernels/{kernel}").status == 200


def test_every_way_to_show_a_token(server, alice, make_kernel):
    kernel = make_kernel()
    nobody = Client(("127.0.0.1", server.port))
    path = f"/api/kernels/{kernel}"
    for headers, query in [({"Authorization": "token " + alice.token}, ""), ({"Authorization": "Bearer " + alice.token}, ""), ({}, "?token=" + alice.token),
                           ({"Authorization": "token "}, "?token=" + alice.token)]:
        assert nobody.get(path + query, headers=headers).status == 200
    assert nobody.get(path, headers={"Authorization": "token "}).status == 404
    assert nobody.get(path, headers={"Authorization": "token carrel_" + "A" * 43}).status == 401
    assert Wire(nobody, kernel, query="&token=" + alice.token).status == 101


def test_a_token_in_the_query_does_not_get_into_the_log(server, alice):
    nobody, secret = Client(("127.0.0.1", server.port)), server.token("alice").token
    failed = nobody.post(f"/api/kernels?token={secret}", {"name": "broken"})
    assert failed.status == 500, failed.body
    wait_for(lambda: failed.headers["X-Request-Id"] in server.log_text())
    assert secret not in server.log_text() and '"/api/kernels"' in server.log_text()


def test_scopes(server, alice, make_kernel):
    kernel = make_kernel()
    reader = server.token("alice", scopes=["boxes:read"])
    assert reader.get(f"/api/kernels/{kernel}").status == 200
    for method, path in [("POST", "/api/kernels"), ("DELETE", f"/api/kernels/{kernel}"), ("POST", f"/api/kernels/{kernel}/restart")]:
        answer = reader.ask(method, path)
        assert answer.status == 403 and answer.json["reason"] == "Forbidden"
    assert Wire(reader, kernel).status == 403


def test_pages_of_other_origins(anybody):
    asked = {"Origin": "https://lab.example.org", "Access-Control-Request-Method": "POST"}
    yes = anybody.ask("OPTIONS", "/api/kernels", headers=asked)
    assert yes.status == 204 and yes.headers["Access-Control-Allow-Origin"] == "https://lab.example.org"
    assert "POST" in yes.headers["Access-Control-Allow-Methods"]
    no = anybody.ask("OPTIONS", "/api/kernels", headers={**asked, "Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in no.headers
    assert anybody.get("/api/kernels", headers={"Origin": "https://evil.example"}).status == 403


def test_sessions(alice, bob):
    made = alice.post("/api/sessions", {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}})
    assert made.status == 201, made.body
    session = made.json
    assert set(session["kernel"]) == MODEL and session["notebook"]["path"] == "a.ipynb" and session["type"] == "notebook"
    place = f"/api/sessions/{session['id']}"
    assert made.headers["Location"] == place and alice.get(place).json["path"] == "a.ipynb"
    same = alice.post("/api/sessions", {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}})
    assert same.json["id"] == session["id"] and same.json["kernel"]["id"] == session["kernel"]["id"]
    assert [s["id"] for s in alice.get("/api/sessions").json] == [session["id"]] and bob.get("/api/sessions").json == []
    assert bob.get(place).status == 404 and bob.delete(place).status == 404
    renamed = alice.patch(place, {"path": "b.ipynb"})
    assert renamed.status == 200 and renamed.json["path"] == "b.ipynb" and renamed.json["kernel"]["id"] == session["kernel"]["id"]
    changed = alice.patch(place, {"kernel": {"name": "small"}})
    assert changed.json["kernel"]["name"] == "small" and changed.json["kernel"]["id"] != session["kernel"]["id"]
    assert alice.get("/api/kernels/" + session["kernel"]["id"]).status == 404
    assert alice.delete(place).status == 204 and alice.get(place).status == 404
    assert alice.get("/api/kernels/" + changed.json["kernel"]["id"]).status == 404
    assert alice.post("/api/sessions", {"name": "no path"}).status == 400
    old = alice.post("/api/sessions", {"notebook": {"path": "old.ipynb"}, "kernel": {"name": "python3"}})
    assert old.status == 201 and alice.delete(f"/api/kernels/{old.json['kernel']['id']}").status == 204
    assert alice.get("/api/sessions").json == []


def test_two_who_open_the_same_document_at_once_share_its_kernel(alice):
    # As two tabs of a browser do.
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(alice.post, "/api/sessions", {"path": "same.ipynb", "type": "notebook", "kernel": {"name": "small"}}) for _ in range(4)]
        made = [a.result() for a in asked]
    assert {a.status for a in made} == {201} and len({a.json["id"] for a in made}) == 1
    session, = [s for s in alice.get("/api/sessions").json if s["path"] == "same.ipynb"]
    wait_for(lambda: [k["id"] for k in alice.get("/api/kernels").json if k["name"] == "small"] == [session["kernel"]["id"]])
    assert alice.delete(f"/api/sessions/{session['id']}").status == 204


@pytest.fixture
def serving():
    """Servers with options of their own."""
    made = []

    def start(*options):
        made.append(serve(*options))
        return made[-1]
    yield start
    for s in made:
        s.stop()


def test_limits(serving):
    server = serving("--set", "jupyter.max_kernels=2")
    alice, bob = server.token("alice"), server.token("bob")
    assert [alice.post("/api/kernels").status for _ in range(2)] == [201, 201]
    refused = alice.post("/api/kernels")
    assert refused.status == 403 and re.search("2 kernels", refused.json["message"])
    assert bob.post("/api/kernels").status == 201


def test_a_dead_kernel_counts_until_it_is_deleted(serving):
    server = serving("--set", "jupyter.max_kernels=1", "--set", "jupyter.client_envs=PYTHONPATH")
    alice = server.token("alice")
    kernel = alice.post("/api/kernels", {"name": "small", "env": {"PYTHONPATH": "/tmp/early"}}).json["id"]
    # From now on every interpreter dies at its start, until the restarts end.
    Wire(alice, kernel).run("import os; os.mkdir('/tmp/early')\nopen('/tmp/early/sitecustomize.py', 'w').write('import os; os._exit(3)')\nos._exit(3)")
    wait_for(lambda: alice.get(f"/api/kernels/{kernel}").json["execution_state"] == "dead")
    refused = alice.post("/api/kernels")
    assert refused.status == 403 and "dead ones count" in refused.json["message"]
    assert alice.delete(f"/api/kernels/{kernel}").status == 204 and alice.post("/api/kernels").status == 201


def test_culling(serving):
    server = serving("--set", "jupyter.cull_idle=2s", "--set", "jupyter.cull_interval=500ms")
    alice, bob = server.token("alice"), server.token("bob")

    def connected():
        """A kernel with a connection. Where all is slow, one may be culled before it has one."""
        kernel = alice.post("/api/kernels").json["id"]
        wire = Wire(alice, kernel)
        return wire.status == 101 and (kernel, wire)
    one, watched = wait_for(connected)       # a connected one is not culled
    assert alice.post("/api/kernels").status == 201 and bob.post("/api/kernels").status == 201
    wait_for(lambda: [k["id"] for k in alice.get("/api/kernels").json] == [one])
    wait_for(lambda: bob.get("/api/kernels").json == [])
    watched.close()
    wait_for(lambda: alice.get("/api/kernels").json == [])
