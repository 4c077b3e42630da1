"""Names that are others' ids, ends in the middle, data that a worker makes the front keep."""
import os
import signal
import socket

import pytest

from conftest import PYTHON
from support.client import Client
from support.server import Server
from support.waiting import wait_for

MIB = 1 << 20


def test_a_service_with_the_id_of_another_as_its_name_gets_nothing_of_it(create, grant, alice, bob, admin, server):
    """Not even after a restart of the front, when workers and grants are put together again."""
    victim = create("@expose\ndef who(): return 'alice'\n", name="victim")
    token = grant(victim)["token"]
    create("@expose\ndef who(): return 'bob'\n", client=bob, name=victim.shown["id"])
    create("@expose\ndef who(): return 'alice again'\n", name="b" + victim.shown["id"])
    assert admin.get("/v1/services/" + victim.shown["id"]).json["owner"] == "alice"
    os.kill(server.front_pid(), signal.SIGKILL)
    assert wait_for(server.is_ready) and wait_for(lambda: victim.state() == "ready")
    assert victim.show()["restarts"] == 0
    holder = Client(server.tcp, token)
    assert holder.post("/v1/grant/call", {"function": "who"}).json == {"ok": True, "result": "alice"}
    assert admin.get("/v1/services/" + victim.shown["id"]).json["owner"] == "alice"


LOADING = """
import time
print("loading")
time.sleep(1000)
@expose
def f(): pass
"""


@pytest.mark.parametrize("streaming", [False, True])
def test_who_waits_for_a_service_that_is_deleted_is_told(alice, pool, streaming):
    waiting = pool.submit(alice.ask, "POST", "/v1/services", {"name": "slow", "code": LOADING}, {"Accept": "application/x-ndjson"} if streaming else {})
    wait_for(lambda: alice.get("/v1/services/slow").status == 200)
    assert alice.delete("/v1/services/slow").status == 204
    answer = waiting.result(30)
    assert "deleted" in str(answer.body) and (answer.status == 422 or streaming)


def test_who_waits_for_a_restart_of_a_service_that_is_deleted_is_told(create, alice, pool):
    s = create("import os, time\nif os.path.exists('again'): time.sleep(1000)\nopen('again', 'w')\n@expose\ndef f(): pass\n")
    waiting = pool.submit(alice.post, s.path + "/restart")
    wait_for(lambda: s.state() == "loading")
    assert alice.delete(s.path).status == 204
    assert waiting.result(30).status == 422


def test_several_grants_of_one_service_are_all_there_for_mcp(create, grant, box, run):
    s = create("@expose\ndef one(): return 1\n@expose\ndef two(): return 2\n", name="two_grants")
    grant(s, box=box, functions=["one"])
    grant(s, box=box, functions=["two"])
    told = run(box, """
print(json.dumps(ask("POST", "/mcp/services/two_grants", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"Content-Type": "application/json"})))
""")
    assert sorted(t["name"] for t in told[1]["result"]["tools"]) == ["one", "two"]


def test_lists_that_a_box_asks_for_again_and_again_leave_nothing(create, grant, box, run, server):
    code = "\n".join(f"@expose\ndef f{i}(a: int, b: str = 'x'): 'd'" for i in range(1000))
    s = create(code, name="many")
    grant(s, box=box)
    grant(s, box=box)
    ask = """
c = http.client.HTTPConnection("127.0.0.1", 807, timeout=60)
for _ in range(%d):
    c.request("POST", "/mcp/services/many", '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', {"Content-Type": "application/json"})
    c.getresponse().read()
print(1)
"""
    run(box, ask % 20)
    before = server.front_bytes()
    run(box, ask % 300)
    assert server.front_bytes() - before < 3 * MIB


DESCRIBES = """
import gc, json
import carrel_service.link as l
link = [o for o in gc.get_objects() if isinstance(o, l.Link)][0]
bomb = b",".join([b"{}"] * 1_300_000)
link.send(b'{"type":"loaded","functions":[{"name":"f","doc":"","signature":"","input_schema":{"x":[' + bomb + b']}}]}')
@expose
def f(): pass
"""


def test_a_description_that_becomes_much_more_than_it_is_is_refused(create, server):
    before = server.front_bytes()
    told = create(DESCRIBES, status=422)
    assert "describe" in told["error"]["message"] or "quota.buffers" in told["error"]["message"]
    assert server.front_bytes() - before < 100 * MIB


def test_a_body_that_becomes_much_more_than_it_is_is_refused(alice, server):
    before = server.front_bytes()
    bomb = '{"code":"x","models":[' + ",".join(["{}"] * 2_500_000) + "]}"
    answer = alice.post("/v1/services", bomb.encode(), headers={"Content-Type": "application/json"})
    assert answer.status == 429 and "quota.buffers" in answer.json["error"]["message"]
    assert server.front_bytes() - before < 100 * MIB


def test_what_services_keep_is_charged():
    """Their files are in the front's memory, and that has a bound for each identity."""
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    server = Server("--set", "quota.buffers=16M", "--set", f"templates.python.python={PYTHON}")
    try:
        root = server.admin
        box = root.post("/v1/boxes", {"template": "python"}).json["id"]
        code = "@expose\ndef f(): pass\n" + "#" * (4 * MIB - 100)
        told = [root.post("/v1/services", {"name": f"heavy{i}", "code": code, "box": box}) for i in range(4)]
        assert told[0].status == 201, told[0].body
        assert told[-1].status in (422, 429) and "quota.buffers" in told[-1].json["error"]["message"]
        for answer in told:
            if answer.status == 201:
                assert root.delete("/v1/services/" + answer.json["name"]).status == 204
        assert root.post("/v1/services", {"name": "after", "code": code, "box": box}).status == 201
    finally:
        server.stop()


def test_what_is_kept_for_the_holders_of_grants_is_their_owners():
    """Each of a thousand grants would have a bound of its own else."""
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    server = Server("--set", "quota.buffers=16M", "--set", f"templates.python.python={PYTHON}")
    held = []
    try:
        root = server.admin
        assert root.post("/v1/services", {"name": "s", "code": "@expose\ndef f(x): pass\n"}).status == 201
        for _ in range(2):
            token = root.post("/v1/grants", {"service": "s"}).json["token"]
            s = socket.create_connection(("127.0.0.1", server.port), 30)
            held.append(s)
            s.sendall(b"POST /v1/grant/call HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (token.encode(), 12 * MIB))
            s.sendall(b"x" * 100)
            # A request after it on another connection: the first body has been begun then.
            assert root.get("/v1/me").status == 200
        assert held[1].recv(100).startswith(b"HTTP/1.1 429")
    finally:
        for s in held:
            s.close()
        server.stop()


def test_tokens_of_grants_that_are_gone_do_not_pile_up(create, grant, admin, alice):
    s = create("@expose\ndef f(): pass\n")
    for _ in range(5):
        made = grant(s)
        assert alice.delete("/v1/grants/" + made["id"]).status == 204
    grant(s)
    dead = [t for t in admin.get("/v1/tokens").json["tokens"] if t["identity"].startswith("grant:") and t["revoked"]]
    assert len(dead) <= 1
