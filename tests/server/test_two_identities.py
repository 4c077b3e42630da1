"""Two identities that attack each other, over TCP with tokens and over the unix socket as two users."""
import concurrent.futures
import json
import time

import pytest

from support.client import Client, lines
from support.waiting import wait_for
from traces import Server, make_box, run

WAYS = [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/stop"), ("POST", "/start"), ("GET", "/usage"),
        ("GET", "/events"), ("POST", "/exec"), ("GET", "/exec"), ("GET", "/exec/ws"), ("GET", "/exec/{x}"), ("DELETE", "/exec/{x}"),
        ("GET", "/exec/{x}/output"), ("GET", "/exec/{x}/attach"), ("POST", "/exec/{x}/stdin"), ("POST", "/exec/{x}/resize"),
        ("POST", "/exec/{x}/signal"), ("GET", "/files/etc/hostname"), ("HEAD", "/files/tmp/secret"), ("PUT", "/files/tmp/secret"),
        ("POST", "/files/tmp/secret"), ("DELETE", "/files/tmp/secret"), ("GET", "/archive?path=/tmp"), ("PUT", "/archive?path=/tmp"),
        ("GET", "/ports/8000/"), ("POST", "/ports/8000/x"), ("POST", "/tunnel/8000")]
BODIES = {"/exec": {"argv": ["true"]}, "/exec/{x}/signal": {"signal": 9}, "/exec/{x}/resize": {"rows": 9, "cols": 9}, "/files/tmp/secret": {"action": "mkdir"}}


@pytest.fixture(scope="module", params=["tokens", "users"])
def pair(request, server):
    """(who owns the box, who attacks it)"""
    if request.param == "tokens":
        return server.token("owner"), server.token("attacker")
    return server.as_uid(), server.as_uid(1002)


@pytest.fixture
def theirs(pair):
    owner, _ = pair
    box = make_box(owner, name="their-box")
    x = owner.post(box + "/exec", {"shell": "echo secret; sleep 1000", "background": True}).json
    wait_for(lambda: owner.get(f"{box}/exec/{x['id']}").json["output_bytes"])
    assert owner.put(box + "/files/tmp/secret", b"secret").status < 300
    yield box, x["id"]
    owner.delete(box)


def test_nobody_can_do_anything_with_another_ones_box(pair, theirs):
    owner, attacker = pair
    box, exec_id = theirs
    before = owner.get(box).json
    for where in (box, "/v1/boxes/their-box"):
        for method, way in WAYS:
            answer = attacker.ask(method, where + way.replace("{x}", exec_id), BODIES.get(way))
            assert answer.status == 404, (method, way, answer.status, answer.body)
            assert b"secret" not in answer.body.replace(b"tmp/secret", b"")
            # It looks exactly like a box that was never there.
            never = attacker.ask(method, "/v1/boxes/baaaaaaaaaaaa" + way.replace("{x}", exec_id), BODIES.get(way))
            assert (never.status, never.code) == (answer.status, answer.code)
    assert owner.get(box).json == before
    wait_for(lambda: owner.get(f"{box}/exec/{exec_id}").json["state"] == "running")
    assert owner.get(box + "/files/tmp/secret").body == b"secret"


def test_a_command_cannot_be_reached_through_a_box_of_ones_own(pair, theirs):
    _, attacker = pair
    _, exec_id = theirs
    own = make_box(attacker)
    try:
        for method, way in WAYS:
            if "{x}" in way:
                answer = attacker.ask(method, own + way.replace("{x}", exec_id), BODIES.get(way))
                assert answer.status == 404, (method, way, answer.status)
    finally:
        attacker.delete(own)


def test_lists_events_and_names_are_ones_own(pair, theirs):
    owner, attacker = pair
    box, _ = theirs
    box = box.rsplit("/", 1)[1]
    assert box not in attacker.get("/v1/boxes?limit=1000").body.decode()
    assert attacker.get("/v1/boxes?all=true").status == 403
    assert box not in attacker.get("/v1/events?limit=1000").body.decode()
    assert attacker.get("/metrics").status == 403
    # The same name is free for the other one.
    mine = make_box(attacker, name="their-box")
    assert attacker.get("/v1/boxes/their-box").json["id"] == mine.rsplit("/", 1)[1] != box
    assert owner.get("/v1/boxes/their-box").json["id"] == box
    attacker.delete(mine)
    assert owner.get("/v1/boxes/their-box").json["phase"] == "running"


def test_a_key_of_another_one_is_a_new_key(pair):
    owner, attacker = pair
    made = [c.post("/v1/boxes", {}, headers={"Idempotency-Key": "the-same"}) for c in pair]
    assert [m.status for m in made] == [201, 201] and made[0].json["id"] != made[1].json["id"]
    for c, m in zip(pair, made):
        c.delete("/v1/boxes/" + m.json["id"])


@pytest.mark.parametrize("path", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e", ".", "%00", "b%00aaaaaaaaaaa", "a" * 4000, "%ff%fe", "b/../../v1/me", "*", "'--", "%0d%0aX:y"])
def test_ids_that_are_none(alice, path):
    for rest in ("", "/exec", "/exec/" + path, "/files/x", "/usage"):
        answer = alice.get(f"/v1/boxes/{path}{rest}")
        assert answer.status in (400, 404), (answer.status, answer.body)
    assert alice.get("/v1/me").status == 200


def test_an_id_of_64_kib(alice):
    s = alice.raw_socket()
    s.sendall(b"GET /v1/boxes/" + b"b" * 65536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert s.recv(100).split()[1] in (b"414", b"431", b"400", b"404")
    s.close()


def test_scopes(server, alice, box):
    only = {scope: server.token("alice", scopes=[scope]) for scope in ("boxes:read", "boxes:write", "exec", "files", "ports")}
    allowed = {("GET", ""): "boxes:read", ("GET", "/usage"): "boxes:read", ("GET", "/events"): "boxes:read", ("PATCH", ""): "boxes:write",
               ("POST", "/exec"): "exec", ("GET", "/exec"): "exec", ("GET", "/files/"): "files", ("GET", "/archive?path=/tmp"): "files",
               ("GET", "/ports/1/"): "ports"}
    for (method, way), scope in allowed.items():
        for name, client in only.items():
            answer = client.ask(method, box + way, BODIES.get(way, {} if method == "PATCH" else None))
            assert (answer.status == 403) == (name != scope), (method, way, name, answer.status, answer.body)
    for client in only.values():
        assert client.post("/v1/tokens", {"identity": "alice"}).status == 403
        assert client.get("/v1/tokens").status == 403


def test_a_token_ends_when_it_is_revoked_and_at_its_time(server):
    client = server.token("alice")
    assert client.get("/v1/me").status == 200
    kept = client.connection()      # also on a connection that is open already
    ask = lambda: (kept.request("GET", "/v1/me", headers={"Authorization": "Bearer " + client.token}), kept.getresponse())[1]
    first = ask()
    first.read()
    assert first.status == 200
    assert server.admin.delete("/v1/tokens/" + client.token_id).status in (200, 204)
    second = ask()
    second.read()
    assert second.status in (401, 403) and client.get("/v1/me").status in (401, 403)
    kept.close()
    soon = server.token("alice", expires_in=5)
    assert soon.get("/v1/me").status == 200
    wait_for(lambda: soon.get("/v1/me").status in (401, 403))


def test_guessing_tokens_finds_nothing_and_costs_the_others_nothing(server, alice):
    good = alice.token

    def guess(i):
        tried = [good[:-1] + ("a" if good[-1] != "a" else "b"), good[:-1], good + "a", good.upper(), "x" * i, "", " ", good[:10] + "\0"][i % 8]
        c = Client(server.tcp)
        try:
            return c.get("/v1/me", headers={"Authorization": "Bearer " + tried}).status
        except ValueError:      # the client will not send it
            return 401
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(guess, range(800)))
        slowest = 0
        for _ in range(20):
            begin = time.monotonic()
            assert alice.get("/v1/me").status == 200
            slowest = max(slowest, time.monotonic() - begin)
    assert set(statuses) <= {400, 401}
    assert slowest < 5
    for value in ("Basic abc", "Bearer", "bearer " + good + " x", good):
        assert Client(server.tcp).get("/v1/me", headers={"Authorization": value}).status == 401


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Host": "evil.example:7070"}, {"Host": "127.0.0.1.evil.example"}, {"Origin": "http://evil.example"},
                                     {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "localhost@evil.example"}])
def test_a_browser_on_a_foreign_page_is_refused(server, alice, headers):
    for method, path in (("GET", "/v1/boxes"), ("POST", "/v1/boxes"), ("GET", "/v1/events")):
        for client in (alice, server.admin):
            if client is server.admin and "Host" in headers:
                continue        # over a unix socket a name means nothing
            answer = client.ask(method, path, {} if method == "POST" else None, headers=headers)
            assert answer.status in (400, 403, 421), (client.where, method, headers, answer.status)
            assert "Access-Control-Allow-Origin" not in answer.headers


def test_anonymous_tcp_is_refused_unless_it_was_asked_for(server):
    assert Client(server.tcp).get("/v1/boxes").status == 401
    assert Client(server.tcp).get("/healthz").status == 200
    asked = Server("--allow-anonymous", "--set", "limits.memory=8G")
    try:
        anybody = Client(asked.tcp)
        box = make_box(anybody)
        assert anybody.get("/v1/me").json["identity"] == "anonymous"
        assert run(anybody, box, "echo hi")["stdout"] == "hi\n"
        assert anybody.get("/v1/tokens").status == 403
        other = asked.token("someone")
        assert other.get(box).status == 404
        # A page in a browser is no better without a token.
        assert anybody.post("/v1/boxes", {}, headers={"Origin": "http://evil.example"}).status == 403
        assert anybody.get("/v1/boxes", headers={"Host": "evil.example"}).status in (400, 403, 421)
        # Nor is one that a box serves, which has the server's own origin; it reaches ports.
        page = {"Sec-Fetch-Site": "same-origin", "Origin": "http://%s:%d" % asked.tcp}
        assert anybody.post(box + "/exec", {"argv": ["true"]}, headers=page).status == 403
        assert anybody.get("/api/kernels", headers=page).status == 403
        assert anybody.get(box + "/ports/4444/", headers=page).status == 502
    finally:
        asked.stop()


def test_a_watcher_hears_nothing_of_the_others(pair, theirs):
    owner, attacker = pair
    box, _ = theirs
    watch = attacker.open("GET", "/v1/events", headers={"Accept": "text/event-stream"})
    owner.post(box + "/pause")
    owner.post(box + "/resume")
    mine = make_box(attacker)
    seen = []
    for line in watch:
        if line.startswith(b"data: "):
            seen.append(json.loads(line[6:])["box"])
            if seen[-1] == mine.rsplit("/", 1)[1]:
                break
    watch.connection.close()
    attacker.delete(mine)
    assert set(seen) == {mine.rsplit("/", 1)[1]}


def test_output_of_a_deleted_box_is_still_its_owners_alone(pair):
    owner, attacker = pair
    box = make_box(owner)
    x = owner.post(box + "/exec", {"shell": "echo secret", "background": True}).json
    path = f"{box}/exec/{x['id']}"
    wait_for(lambda: owner.get(path).json["state"] == "ended")
    owner.delete(box)
    assert "".join(line.get("data", "") for line in lines(owner.open("GET", path + "/output"))) == "secret\n"
    assert attacker.get(path + "/output").status == 404
