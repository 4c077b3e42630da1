"""Scope as an attack: the abilities of a caller with a grant, or without one."""
import pytest

from support.client import Client
from support.waiting import wait_for

FUNCTIONS = """
calls = 0
@expose
def allowed(v=None): return v
@expose
def forbidden(): return "secret"
"""


@pytest.fixture
def service(create):
    return create(FUNCTIONS, name="scoped")


def holder(server, token):
    return Client(server.tcp, token)


def test_a_box_without_a_grant_has_no_inlet(service, box, run):
    assert run(box, """
try: ask("GET", "/v1/grant"); print('"reached"')
except OSError as e: print(json.dumps(type(e).__name__))
""") == "ConnectionRefusedError"


def test_a_box_calls_what_is_granted_and_nothing_else(service, grant, box, run):
    grant(service, box=box, functions=["allowed"])
    assert run(box, "print(json.dumps(call('allowed', 1)))")[1]["result"] == 1
    status, told = run(box, "print(json.dumps(call('forbidden')))")
    assert status == 404 and "secret" not in str(told)
    unknown = run(box, "print(json.dumps(call('no_such')))")
    assert unknown[0] == 404 and unknown[1]["error"]["message"].replace("no_such", "forbidden") == told["error"]["message"]
    for method, path in [("GET", "/v1/boxes"), ("GET", "/v1/services"), ("POST", "/v1/boxes"), ("GET", "/v1/info"), ("GET", "/healthz"), ("GET", "/openapi.json"),
                         ("GET", "/api/kernels"), ("POST", "/v1/services/scoped/call"), ("POST", "/v1/grants"), ("GET", "/v1/grants"), ("GET", "/metrics"),
                         ("GET", "/v1/grant/"), ("GET", "/"), ("GET", "/v1/grant/../boxes"), ("GET", "/v1/grant/%2e%2e/boxes"), ("GET", "//v1/boxes")]:
        assert run(box, f"print(json.dumps(ask({method!r}, {path!r}, None, {{'Authorization': 'Bearer x'}})[0]))") in (400, 404), path


def test_one_box_does_not_have_the_grants_of_another(service, create, grant, make_box, run):
    one, two = make_box(), make_box()
    other = create("@expose\ndef mine(): return 2\n", name="other")
    grant(service, box=one, functions=["allowed"])
    grant(other, box=two)
    assert run(one, "print(json.dumps(call('mine')))")[0] == 404
    assert run(two, "print(json.dumps(call('allowed')))")[0] == 404
    assert run(two, "print(json.dumps(ask('POST', '/v1/grant/call', {'service': 'scoped', 'function': 'allowed'})))")[0] == 404
    assert run(two, "print(json.dumps(call('mine')))")[1]["result"] == 2


def test_the_inlet_of_a_box_is_reached_from_inside_alone(service, grant, box, run, server, alice):
    """A connection to it is identified as the box."""
    grant(service, box=box, functions=["allowed"])
    assert run(box, "print(json.dumps(call('allowed', 1)))")[1]["result"] == 1
    before = service.show()["calls"]
    body = {"service": "scoped", "function": "allowed", "args": [1]}
    for who in alice, server.token("alice", scopes=["ports"]), server.admin:
        for at in f"/v1/boxes/{box}/ports/807", f"/v1/boxes/{box}/ports/%38%30%37":
            for answer in who.post(at + "/v1/grant/call", body), who.get(at + "/v1/grant"), who.get(at + "/"):
                assert (answer.status, answer.code) == (403, "forbidden") and "port 807" in answer.json["error"]["message"]
        tunnel = who.ask("POST", f"/v1/boxes/{box}/tunnel/807", None, {"Connection": "Upgrade", "Upgrade": "carrel-tunnel"})
        assert (tunnel.status, tunnel.code) == (403, "forbidden") and "port 807" in tunnel.json["error"]["message"]
    assert service.show()["calls"] == before
    assert run(box, "print(json.dumps(call('allowed', 2)))")[1]["result"] == 2


def test_code_in_the_box_cannot_take_the_inlets_place(service, grant, make_box, run):
    box = make_box()
    assert run(box, """
import socket
r = []
for where in [("127.0.0.1", 807), ("0.0.0.0", 807), ("127.0.0.2", 807)]:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try: s.bind(where); r.append("bound")
    except OSError as e: r.append(type(e).__name__)
print(json.dumps(r))
""") == ["PermissionError"] * 3
    grant(service, box=box)
    assert run(box, "print(json.dumps(call('allowed', 1)))")[0] == 200


def test_a_token_calls_what_is_granted_and_nothing_else(service, grant, server, alice):
    token = grant(service, functions=["allowed"])["token"]
    h = holder(server, token)
    assert h.post("/v1/grant/call", {"service": "scoped", "function": "allowed", "args": [5]}).json == {"ok": True, "result": 5}
    assert [f["name"] for f in h.get("/v1/grant").json["services"][0]["functions"]] == ["allowed"]
    assert h.post("/v1/grant/call", {"service": "scoped", "function": "forbidden"}).status == 404
    for method, path in [("GET", "/v1/boxes"), ("GET", "/v1/services"), ("GET", "/v1/services/scoped"), ("GET", "/v1/me"), ("GET", "/v1/info"), ("POST", "/v1/boxes"),
                         ("GET", "/v1/grants"), ("POST", "/v1/grants"), ("POST", "/v1/services/scoped/call"), ("GET", "/v1/events"), ("GET", "/api/kernels"),
                         ("GET", "/api/kernelspecs"), ("POST", "/v1/tokens"), ("GET", "/metrics")]:
        assert h.ask(method, path).status == 403, path
    assert alice.get("/v1/grant").status == 403


def test_a_grants_token_over_the_unix_socket_is_no_more_than_that(service, grant, server):
    token = grant(service, functions=["allowed"])["token"]
    h = Client(server.socket, token)
    assert h.post("/v1/grant/call", {"function": "allowed", "args": [5]}).json["result"] == 5
    assert h.post("/v1/grant/call", {"function": "forbidden"}).status == 404


def test_a_grant_that_has_expired_or_is_used_up_or_was_deleted_is_worth_nothing(service, grant, server, alice, box, run):
    made = grant(service, functions=["allowed"], max_calls=2)
    h = holder(server, made["token"])
    assert [h.post("/v1/grant/call", {"function": "allowed"}).status for _ in range(3)] == [200, 200, 403]
    short = holder(server, grant(service, expires_in=0.5)["token"])
    wait_for(lambda: short.post("/v1/grant/call", {"function": "allowed"}).status == 403)
    grant(service, box=box, expires_in=0.5)
    wait_for(lambda: run(box, "print(json.dumps(call('allowed')[0]))") == 403)
    made = grant(service)
    h = holder(server, made["token"])
    assert h.post("/v1/grant/call", {"function": "allowed"}).status == 200
    assert alice.delete("/v1/grants/" + made["id"]).status == 204
    assert h.post("/v1/grant/call", {"function": "allowed"}).status == 403
    made = grant(service, box=box)
    assert run(box, "print(json.dumps(call('allowed')[0]))") == 200
    alice.delete("/v1/grants/" + made["id"])
    assert run(box, "print(json.dumps(call('allowed')[0]))") in (403, 404)


def test_calls_that_were_used_stay_used_over_a_restart(service, grant, server):
    import os
    import signal
    h = holder(server, grant(service, max_calls=2)["token"])
    assert h.post("/v1/grant/call", {"function": "allowed"}).status == 200
    os.kill(server.front_pid(), signal.SIGKILL)
    assert wait_for(server.is_ready) and wait_for(lambda: service.state() == "ready")
    assert [h.post("/v1/grant/call", {"function": "allowed"}).status for _ in range(2)] == [200, 403]


def test_services_and_grants_of_others_do_not_exist(service, grant, bob, box):
    made = grant(service)
    assert bob.get(service.path).status == 404 and bob.post(service.path + "/call", {"function": "allowed"}).status == 404
    assert bob.delete(service.path).status == 404 and bob.post(service.path + "/restart").status == 404
    assert bob.get(service.path + "/calls").status == 404
    assert bob.post("/v1/grants", {"service": "scoped"}).status == 404
    assert bob.delete("/v1/grants/" + made["id"]).status == 404
    assert not bob.get("/v1/services").json["services"] and not bob.get("/v1/grants").json["grants"]
    assert bob.post("/v1/services", {"code": "x", "box": box}).status == 404
    own = bob.post("/v1/services", {"code": "@expose\ndef f(): pass\n", "name": "scoped"})
    assert own.status == 201        # the name is free for him
    assert bob.post("/v1/grants", {"service": "scoped", "box": box}).status == 404
    bob.delete("/v1/services/scoped")


def test_a_grant_names_functions_that_are_there(service, grant):
    assert "misspelt" in grant(service, functions=["misspelt"], status=400)["error"]["message"]
    grant(service, functions=[], status=400)
    grant(service, box="nope", status=404)


def test_a_deleted_service_takes_its_grants_along(service, grant, server, alice):
    token = grant(service)["token"]
    alice.delete(service.path)
    assert holder(server, token).post("/v1/grant/call", {"function": "allowed"}).status == 403
    assert not alice.get("/v1/grants").json["grants"]


def test_an_inlet_does_not_take_all_connections(service, grant, box, run, alice):
    grant(service, box=box)
    n = run(box, """
import socket
held = []
try:
    import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
except Exception: pass
refused = 0
for _ in range(1500):
    try:
        s = socket.create_connection(("127.0.0.1", 807), timeout=2); held.append(s)
    except OSError: refused += 1
import time
alive = 0
for s in held:
    s.settimeout(0.01)
    try:
        s.send(b"GET /v1/grant HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        alive += b" 200 " in s.recv(100)
    except OSError: pass
print(json.dumps([len(held), alive]))
""")
    assert n[1] <= 1024
    assert alice.get("/v1/me").status == 200


def revive(s):
    """After something that may have cost the worker."""
    def is_fine():
        answer = s.ask("fine")
        if answer.status == 409:        # it died too often
            s.client.post(s.path + "/restart")
        return answer.status == 200
    wait_for(is_fine, lambda: s.show())


def test_a_hostile_interface_gets_nothing_but_its_own_end(create, alice):
    """It has the link: its messages there are untrusted."""
    code = """
import os, socket, struct, sys, gc, json
import carrel_service.link as l
links = [o for o in gc.get_objects() if isinstance(o, l.Link)]
link = links[0]
@expose
def send(text: str):
    link.send(text.encode()); return "sent"
@expose
def packet(total: int, offset: int, size: int):
    link.socket.send(struct.pack("<II", total, offset) + b"x" * size); return "sent"
@expose
def close():
    link.socket.shutdown(socket.SHUT_RDWR); import time; time.sleep(5)
@expose
def fine(): return 1
"""
    s = create(code)
    for text in ['{"type":"nonsense"}', "[]", "not json", '{"type":"result","id":1}', '{"type":"result","id":-3,"value":1}', '{"type":"print","id":0,"value":3}',
                 '{"type":"error","id":5,"value":3}', "\x00", '{"type":"result","id":' + "9" * 30 + ',"value":1}', "{" * 1000]:
        answer = s.ask("send", text)
        assert answer.status in (200, 502), (text, answer.body)
        revive(s)
    for total, offset, size in [(1 << 31, 0, 10), (10, 5, 20), (5, 0, 10), (0, 0, 0), (100, 50, 10)]:
        s.ask("packet", total, offset, size)
        revive(s)
    assert s.ask("close").status == 502


def test_a_worker_cannot_answer_for_a_call_that_is_not_its(create, pool):
    """Nor give two answers: the second is dropped."""
    s = create("""
import gc
import carrel_service.link as l
link = [o for o in gc.get_objects() if isinstance(o, l.Link)][0]
@expose
def twice():
    import inspect
    frame = inspect.currentframe()
    while "number" not in frame.f_locals: frame = frame.f_back
    n = frame.f_locals["number"]
    link.send(b'{"type":"result","id":%d,"value":"first"}' % n)
    for guess in range(n + 1, n + 2000):
        link.send(b'{"type":"result","id":%d,"value":"other"}' % guess)
    return "second"
@expose
def fine(): return 1
""")
    assert s.call("twice") == "first"
    assert s.call("fine") == 1


@pytest.mark.parametrize("settings", [{"user": 0}, {"profile": "system", "user": 0}, {"profile": "standard"}, {"profile": "system", "writable_root": True}])
def test_root_of_a_box_does_not_answer_in_the_inlets_place(service, grant, make_box, run, settings):
    """A process that binds the port before the grant exists only makes the grant fail; afterwards none can."""
    box = make_box(**settings)
    grab = """
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
try: s.bind(("127.0.0.1", 807)); s.listen(); print('"bound"')
except OSError as e: print(json.dumps(type(e).__name__))
"""
    grant(service, box=box, functions=["allowed"])
    assert run(box, grab) in ("PermissionError", "OSError")
    assert run(box, "print(json.dumps(call('allowed', 1)))")[1]["result"] == 1
