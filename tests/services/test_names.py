"""A name is of one service of its owner, whoever writes to the database."""
import contextlib
import sqlite3

INTERFACE = "@expose\ndef f(): return 1\n"


def test_a_name_that_only_the_database_knows_is_taken(server, create, alice, box):
    """Nothing but the server writes there; if something does, nobody gets a second service of a name."""
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
