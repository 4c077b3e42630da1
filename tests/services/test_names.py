"""A name belongs to one service of its owner, whichever process writes to the database."""
import concurrent.futures
import contextlib
import http.client
import sqlite3

from conftest import PYTHON
from support.server import Server
from support.waiting import wait_for

INTERFACE = "@expose\ndef f(): return 1\n"


def test_a_name_that_only_the_database_knows_is_taken(server, create, alice, box):
    """Only the server writes there; if another process does, still no owner gets a second service of a name."""
    create(INTERFACE, name="there", box=box)
    with contextlib.closing(sqlite3.connect(f"{server.state}/state.db", timeout=60)) as db, db:
        db.execute("INSERT INTO services (id, owner, name, box, body) SELECT 'vforeign', owner, 'foreign', box, body FROM services WHERE name = 'there'")
    before = alice.get(f"/v1/boxes/{box}/exec").json["execs"]
    refused = create(INTERFACE, name="foreign", box=box, status=409)
    assert refused["error"]["code"] == "exists" and "of this name" in refused["error"]["message"], refused
    assert "foreign" not in [s["name"] for s in alice.get("/v1/services").json["services"]]
    assert alice.get(f"/v1/boxes/{box}/exec").json["execs"] == before       # no worker was started for it
    with contextlib.closing(sqlite3.connect(f"{server.state}/state.db", timeout=60)) as db, db:
        db.execute("DELETE FROM services WHERE id = 'vforeign'")
    assert create(INTERFACE, name="foreign", box=box).call("f") == 1


def test_a_name_stays_one_services_over_kills_of_the_supervisor():
    """Clients ask again and again; each kill comes while some of their requests are at work, and the next server at once."""
    server = Server("--set", "limits.memory=16G", "--set", f"templates.python.python={PYTHON}")
    slow = "import time\ntime.sleep(0.2)\n" + INTERFACE

    def ask(i):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):      # it was cut off
            return server.admin.post("/v1/services", {"code": slow, "name": f"tools-{i % 2}"}).status

    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for turn in range(4):
                asked = [pool.submit(ask, i) for i in range(8)]
                wait_for(lambda: any(s["state"] == "loading" for s in server.admin.get("/v1/services").json["services"]) or all(a.done() for a in asked))
                front = server.front_pid()
                server.process.kill()
                server.process.wait()
                server.start()
                assert server.front_pid() != front
                assert {a.result(60) for a in asked} <= {None, 201, 409, 503}
                names = [s["name"] for s in server.admin.get("/v1/services").json["services"]]
                assert len(names) == len(set(names)), names
        for name in ("tools-0", "tools-1"):
            assert server.admin.post("/v1/services", {"code": INTERFACE, "name": name}).status in (201, 409)
            wait_for(lambda: server.admin.get("/v1/services/" + name).json["state"] == "ready", lambda: server.admin.get("/v1/services/" + name).body)
            assert server.admin.post(f"/v1/services/{name}/call", {"function": "f"}).json["result"] == 1
    finally:
        server.stop()
