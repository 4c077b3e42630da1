"""A private server, and services in boxes of it. The interpreter is the system's: a worker needs the standard library only."""
import concurrent.futures
import json
import os
import pathlib
import textwrap

import pytest

from support.server import Server, limits

HERE = pathlib.Path(__file__).parent
PYTHON = os.environ.get("SERVICE_PYTHON", "/usr/bin/python3")
INLET = ("127.0.0.1", 807)

# What code in a box does to ask its inlet.
ASK = """
import http.client, json, sys
def ask(method, path, body=None, headers={}):
    c = http.client.HTTPConnection("127.0.0.1", 807, timeout=60)
    c.request(method, path, json.dumps(body) if body is not None else None, headers)
    r = c.getresponse()
    data = r.read()
    return r.status, json.loads(data) if data[:1] == b"{" else data.decode()
def call(function, *args, **kwargs):
    return ask("POST", "/v1/grant/call", {"function": function, "args": args, "kwargs": kwargs})
"""


class Service:
    def __init__(self, client, shown):
        self.client, self.shown, self.name, self.path = client, shown, shown["name"], "/v1/services/" + shown["name"]

    @property
    def functions(self):
        return {f["name"]: f for f in self.show()["functions"]}

    def show(self):
        answer = self.client.get(self.path)
        assert answer.status == 200, answer.body
        return answer.json

    def ask(self, function, *args, timeout=None, **kwargs):
        body = {"function": function, "args": list(args), "kwargs": kwargs}
        if timeout is not None:
            body["timeout"] = timeout
        return self.client.post(self.path + "/call", body)

    def call(self, function, *args, **kwargs):
        """The result; an error of the function fails the test."""
        answer = self.ask(function, *args, **kwargs)
        assert answer.status == 200 and answer.json["ok"], answer.body
        return answer.json["result"]

    def error(self, function, *args, **kwargs):
        answer = self.ask(function, *args, **kwargs)
        assert answer.status == 200 and not answer.json["ok"], answer.body
        return answer.json["error"]

    def open(self, function, *args, **kwargs):
        return self.client.open("POST", self.path + "/call", {"function": function, "args": list(args), "kwargs": kwargs},
                                {"Accept": "application/x-ndjson"})

    def stream(self, function, *args, **kwargs):
        response = self.open(function, *args, **kwargs)
        try:
            assert response.status == 200, response.read()
            return [json.loads(line) for line in response]
        finally:
            response.connection.close()

    def log(self):
        return self.client.get(self.path + "/calls").json["calls"]

    def state(self):
        return self.show()["state"]


@pytest.fixture(scope="session")
def server():
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    s = Server("--set", "limits.memory=16G", "--set", f"templates.python.python={PYTHON}")
    yield s
    s.stop()


@pytest.fixture(scope="session")
def admin(server):
    return server.admin


@pytest.fixture(scope="session")
def alice(server):
    return server.token("alice")


@pytest.fixture(scope="session")
def bob(server):
    return server.token("bob")


@pytest.fixture
def make_box(alice):
    made = []

    def make(client=alice, **body):
        answer = client.post("/v1/boxes", {"template": "python", "limits": limits(memory="256M", pids=64), **body})
        assert answer.status == 201, answer.body
        made.append((client, answer.json["id"]))
        return answer.json["id"]

    yield make
    for client, box in made:
        client.delete(f"/v1/boxes/{box}")


@pytest.fixture
def box(make_box):
    return make_box()


@pytest.fixture
def create(alice):
    """POST /v1/services; deletes the service after the test."""
    made = []

    def create(code, client=alice, status=201, **body):
        answer = client.post("/v1/services", {"code": textwrap.dedent(code), **body})
        assert answer.status == status, answer.body
        if status != 201:
            return answer.json
        made.append((client, answer.json["id"]))
        return Service(client, answer.json)

    yield create
    for client, service in made:
        client.delete("/v1/services/" + service)


@pytest.fixture
def grant(alice):
    made = []

    def grant(service, client=alice, status=201, **body):
        answer = client.post("/v1/grants", {"service": service.name, **body})
        assert answer.status == status, answer.body
        if status == 201:
            made.append((client, answer.json["id"]))
        return answer.json

    yield grant
    for client, one in made:
        client.delete("/v1/grants/" + one)


@pytest.fixture
def run(alice):
    """Runs Python in a box, with ask() and call() at hand; what it printed, as JSON."""

    def run(box, code, client=alice):
        answer = client.post(f"/v1/boxes/{box}/exec", {"argv": [PYTHON, "-c", ASK + textwrap.dedent(code)]})
        assert answer.status == 200, answer.body
        shown = answer.json
        assert shown["exit_code"] == 0, shown
        return json.loads(shown["stdout"])

    return run


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        yield threads
