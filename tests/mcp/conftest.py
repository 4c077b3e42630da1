"""A server with the MCP door, whose kernels are this interpreter's."""
import json
import os
import pathlib
import sys

import pytest

from support.client import UnixConnection
from support.server import Server

HERE = pathlib.Path(__file__).resolve().parent
STATELESS = "2026-07-28"


class Door:
    """One identity's way in, by hand."""

    def __init__(self, server, path="/mcp", headers=()):
        self.server, self.path, self.headers = server, path, dict(headers)

    def send(self, message, headers=None, method="POST"):
        connection = UnixConnection(self.server.socket)
        try:
            body = message if isinstance(message, bytes) else json.dumps(message).encode()
            connection.request(method, self.path, body=body, headers={
                "Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self.headers, **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.headers.get_content_type() == "text/event-stream":
            return answer.status, [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
        return answer.status, json.loads(data) if data else None

    def ask(self, method, params=None, **options):
        return self.send({"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params is not None else {})}, **options)

    def stateless(self, method, params=None, version=STATELESS, headers=None, capabilities=None):
        meta = {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}
        fields = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        if params and "name" in params:
            fields["Mcp-Name"] = params["name"]
        return self.ask(method, {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **meta}}, headers={**fields, **(headers or {})})

    def call(self, tool, meta=None, **arguments):
        status, answer = self.ask("tools/call", {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})})
        assert status == 200
        return answer[-1]["result"] if isinstance(answer, list) else answer["result"]


@pytest.fixture(scope="session")
def server():
    it = Server("--set", "allow_anonymous=true", "--set", f"templates.python.python={os.path.abspath(sys.executable)}")
    yield it
    it.stop()


@pytest.fixture(scope="session")
def door(server):
    return Door(server)


@pytest.fixture
def box(door):
    it = door.call("create_box")["structuredContent"]["id"]
    yield it
    door.call("delete_box", box=it)
