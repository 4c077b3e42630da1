"""The parts of a door: routes, settings, tables, an event stream and a listener of its own."""
import pytest

from support.client import Client, events
from support.ports import free_port


def ring(server, text):
    return server.request("POST", "/bell", {"text": text})


def test_its_routes_are_found_and_the_other_doors_are_there(server):
    assert server.request("GET", "/bell") == (200, {"rings": []})
    assert ring(server, "hello") == (201, {"number": 1})
    assert server.request("DELETE", "/bell")[0] == 405
    assert server.request("GET", "/bells")[0] == 404
    assert server.request("GET", "/v1/boxes")[0] == 200
    assert server.request("GET", "/api")[0] == 200


def test_what_is_not_the_callers_does_not_exist(server):
    assert ring(server, "mine")[0] == 201
    alice = server.token("alice", scopes=["boxes:read"])
    assert alice.get("/bell").json == {"rings": []}
    assert alice.post("/bell", {"text": "?"}).status == 403
    assert Client(server.tcp).get("/bell").status == 401


@pytest.mark.parametrize("body, status, code", [("{", 400, "invalid_json"), ("[]", 400, "invalid"), ({"tune": "?"}, 400, "invalid"),
                                                (" " * 70000, 413, "too_large")])
def test_a_body_that_cannot_be_read_is_told_in_the_usual_shape(server, body, status, code):
    answer = server.admin.post("/bell", body)
    assert (answer.status, answer.code) == (status, code)


def test_its_setting_has_a_default_and_can_be_set(server, make_server):
    assert ring(server, "x" * 16)[0] == 201
    assert ring(server, "x" * 17)[0] == 400
    other = make_server("--set", "bell.most=3")
    assert ring(other, "abc")[0] == 201
    assert ring(other, "abcd")[0] == 400


def refusal_of(server, *options):
    """The message of a server that does not start."""
    answer = server.carrel("serve", "--socket", server.socket + "2", "--state", server.folder / "2", "--run", server.folder / "2", *options)
    assert answer.returncode == 125
    return answer.stderr


def test_a_setting_that_it_does_not_have_is_refused(server):
    assert "did you mean 'bell.most'" in refusal_of(server, "--set", "bell.mots=3")


def test_its_table_outlives_the_front(server):
    assert ring(server, "one")[1] == {"number": 1}
    server.kill("front")
    assert ring(server, "two")[1] == {"number": 2}
    assert server.request("GET", "/bell")[1]["rings"] == [{"number": 1, "text": "one"}, {"number": 2, "text": "two"}]


def test_its_stream_tells_of_each_ring(server):
    response = server.admin.open("GET", "/bell/events")         # its head is there, so later rings are delivered
    assert response.headers.get_content_type() == "text/event-stream"
    stream = events(response)
    for number, text in enumerate(("one", "two"), 1):
        assert ring(server, text)[0] == 201
        assert next(stream) == (number, "ring", text)
    response.connection.close()
    assert ring(server, "nobody listens")[0] == 201


def test_its_listener_has_this_door_only(make_server, tmp_path):
    place = tmp_path / "bell.sock"
    server = make_server("--set", f"bell.socket={place}")
    own = Client(str(place), described=False)
    assert own.get("/bell").status == 200
    assert own.get("/v1/boxes").status == 404
    assert own.get("/readyz").status == 404
    server.kill("front")
    assert own.get("/bell").status == 200
    assert server.request("GET", "/v1/boxes")[0] == 200


def test_its_listener_may_be_tcp_with_the_usual_identities(make_server):
    port = free_port()
    server = make_server("--set", f"bell.listen=127.0.0.1:{port}")
    assert Client(("127.0.0.1", port)).get("/bell").status == 401
    assert Client(("127.0.0.1", port), server.token("alice").token).get("/bell").status == 200


def test_strangers_are_let_in_on_loopback_only(server):
    """allow_anonymous beside a listener that other machines reach would be a server for everybody."""
    assert "allow_anonymous" in refusal_of(server, "--set", "allow_anonymous=true", "--set", f"bell.listen=0.0.0.0:{free_port()}")
