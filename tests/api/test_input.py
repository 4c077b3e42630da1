"""Wrong input gets the right status, names the member, and leaves nothing behind."""
import json

import pytest

BAD_BOXES = [
    ({"nome": "x"}, "nome"), ({"limits": {"mem": 1}}, "limits.mem"), ({"limits": 5}, "limits"), ({"limits": {"memory": "lots"}}, "limits.memory"),
    ({"limits": {"memory": -1}}, "limits.memory"), ({"limits": {"memory": 1.5}}, "limits.memory"), ({"limits": {"memory": "900P"}}, "limits.memory"),
    ({"limits": {"cpus": 0}}, "limits.cpus"), ({"limits": {"cpus": 9999}}, "limits.cpus"), ({"limits": {"pids": 0}}, "limits.pids"), ({"limits": {"pids": "x"}}, "limits.pids"),
    ({"limits": {"memory": "32M"}, "requests": {"memory": "64M"}}, "requests.memory"), ({"requests": {"disk": 1}}, "requests.disk"),
    ({"name": "Upper"}, "name"), ({"name": "-a"}, "name"), ({"name": "a-"}, "name"), ({"name": "a" * 64}, "name"), ({"name": ""}, "name"), ({"name": "../x"}, "name"), ({"name": 5}, "name"),
    ({"root": "nope"}, "root"), ({"root": "/etc"}, "root"), ({"profile": "lax"}, "profile"), ({"env": {"1A": "x"}}, "env"), ({"env": {"A": 1}}, "env.A"), ({"env": ["A=1"]}, "env"),
    ({"env": {"A=B": "x"}}, "env"), ({"labels": {"a b": "x"}}, "labels"), ({"labels": {"a": "x" * 256}}, "labels.a"), ({"labels": {str(i): "" for i in range(65)}}, "labels"),
    ({"ttl": -1}, "ttl"), ({"ttl": "soon"}, "ttl"), ({"idle_timeout": "1y"}, "idle_timeout"), ({"on_idle": "explode"}, "on_idle"), ({"hostname": "a b"}, "hostname"),
    ({"hostname": ""}, "hostname"), ({"user": "root"}, "user"), ({"user": 70000}, "user"), ({"user": {"uid": 1}}, "user"), ({"writable_root": "yes"}, "writable_root"),
    ({"mounts": {}}, "mounts"), ({"mounts": [{"source": "/tmp"}]}, "mounts[0]"), ({"mounts": [{"source": "/tmp", "target": "/a/../b"}]}, "mounts[0]"),
    ({"mounts": [{"source": "/tmp", "target": "/b", "mode": 1}]}, "mounts[0].mode"),
]


@pytest.mark.parametrize("body, name", BAD_BOXES, ids=[json.dumps(b)[:60] for b, _ in BAD_BOXES])
def test_a_bad_box_is_refused(alice, body, name):
    answer = alice.post("/v1/boxes", body)
    assert (answer.status, answer.code) == (400, "invalid")
    assert name in answer.json["error"]["message"]
    assert set(answer.json["error"]) == {"code", "message", "details"}


def test_bad_requests_leave_no_boxes(alice):
    before = alice.get("/v1/boxes?limit=1000").json
    for body, _ in BAD_BOXES:
        alice.post("/v1/boxes", body)
    assert alice.get("/v1/boxes?limit=1000").json == before


@pytest.mark.parametrize("text", ["{", "[]", "1", "nul", '{"name":"a","name":"b"}', "{}x", '{"name":"\\ud800"}', "\xff", '{"name":"\\u0000"}', "[" * 5000])
def test_what_is_no_json_object_is_refused(alice, text):
    answer = alice.post("/v1/boxes", text.encode("latin-1"))
    assert answer.status == 400 and answer.code in ("invalid", "invalid_json")


def test_a_body_beyond_its_bound_is_refused(alice, box):
    assert alice.post("/v1/boxes", b'{"name":"' + b"x" * (5 << 20) + b'"}').status == 413
    assert alice.patch(box, iter([b" " * 65536] * 64)).status == 413


BAD_EXECS = [
    {}, {"argv": []}, {"argv": "ls"}, {"argv": [1]}, {"argv": [""]}, {"argv": ["ls"], "shell": "ls"}, {"shell": 5}, {"argv": ["ls"], "cwd": "tmp"},
    {"argv": ["ls"], "timeout": -1}, {"argv": ["ls"], "output_limit": 0}, {"argv": ["ls"], "rows": 5}, {"argv": ["ls"], "tty": 1}, {"argv": ["ls"], "stdin": 5},
    {"argv": ["ls"], "tty": True, "rows": 99999}, {"argv": ["ls"], "env": {"": "x"}}, {"argv": ["ls"], "user": "root"},
]


@pytest.mark.parametrize("body", BAD_EXECS, ids=[json.dumps(b) for b in BAD_EXECS])
def test_a_bad_command_is_refused(alice, box, body):
    answer = alice.post(box + "/exec", body)
    assert (answer.status, answer.code) == (400, "invalid")
    assert alice.get(box + "/exec").json["execs"] == []


@pytest.mark.parametrize("path, status", [
    ("/v1/boxes/..%2f..%2fetc", 400), ("/v1/boxes/%00", 400), ("/v1/boxes/b;drop", 404), ("/v1/boxes/" + "b" * 5000, 404), ("/v1/boxes/", 404), ("/v1/nothing", 404), ("/", 404),
    ("/v1/boxes?limit=x", 400), ("/v1/boxes?limit=1001", 400), ("/v1/boxes?cursor=-1", 400), ("/v1/boxes?colour=red", 400), ("/v1/boxes?phase=happy", 400), ("/v1/boxes?label==x", 400),
    ("/v1/events?after=abc", 400), ("/v1/boxes?label=%ff", 200)])
def test_paths_and_queries(alice, path, status):
    answer = alice.get(path)
    assert answer.status == status
    if status == 404:
        assert answer.code == "not_found"


@pytest.mark.parametrize("method, path", [("PUT", "/v1/boxes"), ("POST", "/v1/me"), ("DELETE", "/healthz"), ("BREW", "/v1/boxes")])
def test_a_wrong_method_says_which_are_right(alice, method, path):
    answer = alice.ask(method, path)
    assert (answer.status, answer.code) == (405, "method_not_allowed") and "GET" in answer.headers["Allow"]


@pytest.mark.parametrize("key", ["", "x" * 129, "a b"])
def test_a_bad_idempotency_key(alice, key):
    assert alice.post("/v1/boxes", {}, headers={"Idempotency-Key": key}).status == 400


def test_signals_and_sizes_are_checked(alice, box):
    x = alice.post(box + "/exec", {"argv": ["sleep", "100"], "background": True}).json["id"]
    path = f"{box}/exec/{x}"
    for signal in (0, 65, "NOPE", None, "KILL9"):
        assert alice.post(path + "/signal", {"signal": signal}).status == 400
    assert alice.post(path + "/signal", {}).status == 400
    assert alice.post(path + "/resize", {"rows": 1, "cols": 1}).code == "no_terminal"
    assert alice.post(path + "/resize", {"rows": 1}).status == 400


def test_patch_is_checked(alice, box):
    for body, name in [({"name": "x"}, "name"), ({"limits": {"disk": "1M"}}, "limits.disk"), ({"labels": None}, "labels"), ({"ttl": {}}, "ttl")]:
        answer = alice.patch(box, body)
        assert answer.status == 400 and name in answer.json["error"]["message"]


def test_file_actions_are_checked(alice, box):
    for body in ({}, {"action": "burn"}, {"action": "move"}, {"action": "move", "to": "rel"}, {"action": "chmod"}, {"action": "chmod", "mode": 420}, {"action": "mkdir", "mode": "9"}, {"x": 1}):
        assert alice.post(box + "/files/tmp/x", body).status == 400
    assert alice.get(box + "/files/tmp?limit=99999").status == 400


def test_token_bodies_are_checked(admin):
    for body in ({}, {"identity": ""}, {"identity": "x" * 80}, {"identity": "a", "scopes": "everything"}, {"identity": "a", "scopes": [1]}, {"identity": "a", "expires_in": "x"}, {"identity": "a", "admin": True}):
        assert admin.post("/v1/tokens", body).status == 400


@pytest.mark.parametrize("raw, status", [
    (b"GET /v1/boxes HTTP/1.1\r\n\r\n", 400), (b"GET /v1/../x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400), (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505), (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    (b"GET /v1/boxes HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 1000 + b"\r\n", 431), (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 501),
    (b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
    (b"POST /v1/boxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
])
def test_every_refusal_has_the_same_shape(admin, raw, status):
    s = admin.raw_socket()
    s.sendall(raw)
    answer = b""
    while data := s.recv(65536):
        answer += data
    s.close()
    head, body = answer.split(b"\r\n\r\n", 1)
    assert int(head.split()[1]) == status and b"\r\nContent-Type: application/json" in head, head
    error = json.loads(body)["error"]
    assert error["code"] and error["message"] and error["details"] == {}
