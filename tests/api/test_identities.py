import os
import socket

import pytest

from support.client import Client, events
from support.waiting import wait_for


def test_nobody_sees_another_ones_box(alice, bob, make_box):
    made = make_box(name="private", labels={"secret": "1"})
    path = "/v1/boxes/" + made["id"]
    x = alice.post(path + "/exec", {"argv": ["sleep", "100"], "background": True}).json["id"]
    missing = bob.get("/v1/boxes/baaaaaaaaaaaa")
    assert missing.status == 404
    tries = [("GET", path, None), ("PATCH", path, {"ttl": 1}), ("DELETE", path, None), ("POST", path + "/pause", None), ("GET", path + "/usage", None),
             ("GET", path + "/events", None), ("GET", path + "/exec", None), ("POST", path + "/exec", {"argv": ["id"]}),
             ("GET", f"{path}/exec/{x}", None), ("DELETE", f"{path}/exec/{x}", None), ("GET", f"{path}/exec/{x}/output", None),
             ("GET", path + "/files/etc/passwd", None), ("PUT", path + "/files/tmp/x", "x"), ("GET", path + "/archive", None),
             ("GET", path + "/ports/80/", None), ("GET", "/v1/boxes/private", None)]
    for method, where, body in tries:
        answer = bob.ask(method, where, body)
        asked = where.split("/")[3].encode()        # the words name what was asked for, and say nothing else
        assert (answer.status, answer.body) == (404, missing.body.replace(b"baaaaaaaaaaaa", asked)), (method, where)
    assert bob.get("/v1/boxes").json["boxes"] == []
    assert bob.get("/v1/boxes?label=secret").json["boxes"] == []
    assert bob.get("/v1/boxes?all=true").status == 403
    # The name is free for another owner, and the key too.
    other = bob.post("/v1/boxes", {"name": "private"})
    assert other.status == 201 and other.json["id"] != made["id"]
    bob.delete("/v1/boxes/private")
    assert alice.get(path).json["phase"] == "running"


def test_a_command_of_another_box_is_not_found(alice, make_box):
    one, two = ("/v1/boxes/" + make_box()["id"] for _ in range(2))
    x = alice.post(one + "/exec", {"argv": ["true"]}).json["id"]
    assert alice.get(f"{one}/exec/{x}").status == 200
    assert alice.get(f"{two}/exec/{x}").status == 404


def test_a_watcher_hears_only_of_its_own_boxes(alice, bob, make_box):
    watch = bob.open("GET", "/v1/events")
    make_box()
    mine = bob.post("/v1/boxes", {}).json["id"]
    stream = events(watch)
    assert next(stream)[2]["box"] == mine
    watch.connection.close()
    bob.delete("/v1/boxes/" + mine)


def test_an_admin_sees_all(admin, alice, make_box):
    box = make_box()["id"]
    assert admin.get("/v1/boxes/" + box).json["owner"] == "alice"
    assert box in [b["id"] for b in admin.get("/v1/boxes?all=true&limit=1000").json["boxes"]]
    assert box not in [b["id"] for b in admin.get("/v1/boxes?limit=1000").json["boxes"]]


def test_tcp_wants_a_token(server):
    nobody = Client(("127.0.0.1", server.port))
    refused = nobody.get("/v1/boxes")
    assert refused.status == 401 and refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert refused.code == "unauthorized"
    assert Client(nobody.where, "carrel_" + "A" * 43).get("/v1/boxes").status == 401
    assert nobody.get("/healthz").status == 200 and nobody.get("/metrics").status == 401


def test_scopes_are_kept(server, admin, make_box, alice):
    path = "/v1/boxes/" + make_box()["id"]
    reader = server.token("alice", scopes=["boxes:read"])
    assert reader.get(path).status == 200
    for method, where in [("POST", "/v1/boxes"), ("DELETE", path), ("POST", path + "/exec"), ("GET", path + "/files/"), ("GET", path + "/ports/1/"),
                          ("GET", "/v1/tokens"), ("GET", "/metrics")]:
        answer = reader.ask(method, where)
        assert (answer.status, answer.code) == (403, "forbidden"), where
    assert reader.get("/v1/me").json["scopes"] == ["boxes:read"]


def test_tokens_are_listed_without_secrets_and_revoked(server, admin):
    made = admin.post("/v1/tokens", {"identity": "carol", "scopes": "boxes:read", "expires_in": "1h"})
    assert made.headers["Cache-Control"] == "no-store"
    carol = Client(("127.0.0.1", server.port), made.json["token"])
    assert carol.get("/v1/me").json["identity"] == "carol"
    listing = admin.get("/v1/tokens")
    assert made.json["token"].encode() not in listing.body
    assert made.json["id"] in [t["id"] for t in listing.json["tokens"]]
    assert admin.delete("/v1/tokens/" + made.json["id"]).status == 204
    assert carol.get("/v1/me").status == 403
    assert admin.delete("/v1/tokens/tnone").status == 404


def test_a_token_ends_by_itself(server, admin):
    for life in ("300ms", "3s", "30s"):         # longer, if it was over before we could ask
        brief = server.token("brief", expires_in=life)
        status = brief.get("/v1/me").status
        if status == 200:
            break
    assert status == 200
    wait_for(lambda: brief.get("/v1/me").status == 403)


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_a_browser_is_not_fooled(alice, headers):
    assert alice.get("/v1/boxes", headers=headers).status == 403


def test_an_ordinary_user_cannot_mount_what_he_cannot_read(alice):
    answer = alice.post("/v1/boxes", {"mounts": [{"source": "/root", "target": "/x"}]})
    assert (answer.status, answer.code) == (403, "forbidden")


def give(admin, end):
    body = {"mounts": [{"source": "/usr/share", "target": "/x", "fd": 0, "writable": True}]}
    return admin.post_with_fds("/v1/boxes", body, [end.fileno()])


def put_in(end):
    fd = os.open("/usr/share", os.O_RDONLY)
    socket.send_fds(end, [b"\0"], [fd])
    os.close(fd)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("given", ["connected", "accepted"])
def test_a_socket_that_was_connected_is_no_envelope_of_a_mount(admin, given, closed):
    """Its peer is the listener: root, for many a service that passes descriptors from one user to another."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as connected:
        listener.bind("")
        listener.listen()
        connected.connect(listener.getsockname())
        accepted = listener.accept()[0]
        mine, other = (connected, accepted) if given == "connected" else (accepted, connected)
        put_in(other)
        if closed:
            other.close()
        answer = give(admin, mine)
        accepted.close()
    assert (answer.status, answer.code) == (400, "invalid"), answer.body
    assert b"socket pair" in answer.body


def test_a_pair_of_another_user_is_no_envelope_of_a_mount(admin):
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            one, other = socket.socketpair()
            put_in(one)
            socket.send_fds(theirs, [b"x"], [other.fileno()])
        finally:
            os._exit(0)
    theirs.close()
    ours.settimeout(60)
    fds = socket.recv_fds(ours, 1, 1)[1]
    os.waitpid(child, 0)
    with socket.socket(fileno=fds[0]) as end:
        answer = give(admin, end)
    ours.close()
    assert (answer.status, answer.code) == (403, "forbidden"), answer.body
