"""What a door is made of: routes, settings, tables, an event stream and a listener of its own."""
import json

import server as servers


def ring(server, text, **fields):
    return server.request("POST", "/bell", {"text": text, **fields})


def events(connection):
    """The events of a stream, as (type, data), one after the other."""
    kind = None
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers.get_content_type() == "text/event-stream"
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_its_routes_are_found_and_the_other_doors_are_there(server):
    assert server.request("GET", "/bell") == (200, {"rings": []})
    assert ring(server, "hello") == (201, {"number": 1})
    assert server.request("DELETE", "/bell")[0] == 405
    assert server.request("GET", "/bells")[0] == 404
    assert server.request("GET", "/v1/boxes")[0] == 200
    assert server.request("GET", "/api")[0] == 200


def test_a_body_that_cannot_be_read_is_told_in_the_usual_shape(server):
    for body, status, code in ((b"{", 400, "invalid_json"), (b"[]", 400, "invalid"), ({"tune": "?"}, 400, "invalid"),
                               (b" " * 70000, 413, "too_large")):
        answer = server.request("POST", "/bell", body)
        assert (answer[0], answer[1]["error"]["code"]) == (status, code)


def test_its_setting_has_a_default_and_can_be_set(server, make_server):
    assert ring(server, "x" * 16)[0] == 201
    assert ring(server, "x" * 17)[0] == 400
    other = make_server("--set", "bell.most=3")
    assert ring(other, "abc")[0] == 201
    assert ring(other, "abcd")[0] == 400


def test_a_setting_that_it_does_not_have_is_refused(server):
    answer = server.carrel("serve", "--socket", server.socket + "2", "--set", "bell.mots=3")
    assert answer.returncode == 125
    assert "did you mean 'bell.most'" in answer.stderr


def test_its_table_outlives_the_front(server):
    assert ring(server, "one")[1] == {"number": 1}
    server.kill_front()
    assert ring(server, "two")[1] == {"number": 2}
    assert server.request("GET", "/bell")[1]["rings"] == [{"number": 1, "text": "one"}, {"number": 2, "text": "two"}]


def test_its_stream_tells_of_each_ring(server):
    connection = servers.Connection(server.socket)
    connection.request("GET", "/bell/events")
    stream = events(connection)
    # The answer has begun before anybody rings: the first comment is there.
    connection.sock.recv(1, servers.socket.MSG_PEEK)
    for text in ("one", "two"):
        assert ring(server, text)[0] == 201
        assert next(stream) == ("ring", text)
    connection.close()
    assert ring(server, "nobody listens")[0] == 201


def test_its_listener_has_this_door_only(make_server, tmp_path):
    tmp_path.chmod(0o755)
    place = str(tmp_path / "bell.sock")
    server = make_server("--set", f"bell.listen={place}")

    def ask(path):
        connection = servers.Connection(place)
        connection.request("GET", path)
        response = connection.getresponse()
        status = response.status
        response.read()
        connection.close()
        return status

    assert ask("/bell") == 200
    assert ask("/v1/boxes") == 404
    assert ask("/readyz") == 404
    server.kill_front()
    assert ask("/bell") == 200
    assert server.request("GET", "/v1/boxes")[0] == 200
    server.end()
    assert not (tmp_path / "bell.sock").exists()
