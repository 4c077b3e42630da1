"""Requests made of the API's own vocabulary, put together wrongly: never a 500, always an error that is JSON, and the server lives."""
import json
import os
import random

import pytest

from support.client import UnixConnection
from support.server import limits

COUNT = int(os.environ.get("CARREL_FUZZ", "3000"))
WORDS = ["", "a", "x" * 300, "512M", "-1", "1e9", "../..", "/etc", "\u0000", "\ud7ff", "\U0001f600", "true", "null", "TERM", "mkdir", "move", "chmod", "delete", "host"]


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -1, 7, 64, 1 << 31, 1 << 53, -(1 << 63), (1 << 63) - 1, 10**9])
    if kind == 2:
        return rng.choice([0.5, -0.0, 1e308, 1e-308, 3.999])
    if kind < 6:
        return rng.choice(WORDS).replace("\0", "\x01")
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(WORDS + NAMES): value(rng, depth + 1) for _ in range(rng.randrange(4))}


NAMES = ["name", "root", "profile", "requests", "limits", "memory", "cpus", "pids", "disk", "env", "mounts", "labels", "ttl", "idle_timeout", "on_idle", "hostname", "user",
         "writable_root", "argv", "shell", "cwd", "timeout", "output_limit", "tty", "rows", "cols", "stdin", "background", "signal", "action", "to", "mode", "parents",
         "overwrite", "identity", "scopes", "expires_in", "source", "target", "writable", "fd"]
QUERIES = ["limit", "cursor", "label", "phase", "all", "wait", "stream", "offset", "follow", "close", "stat", "append", "recursive", "path", "after", "argv"]


def body(rng, schema, schemas, depth=0):
    """A body that mostly fits, with something wrong in it now and then."""
    schema = schemas[schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
    if rng.random() < 0.12 or depth > 4:
        return value(rng)
    if "oneOf" in schema:
        return body(rng, rng.choice(schema["oneOf"]), schemas, depth)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        got = {k: body(rng, v, schemas, depth + 1) for k, v in schema.get("properties", {}).items() if rng.random() < 0.3}
        if isinstance(schema.get("additionalProperties"), dict):
            got.update({rng.choice(["A", "b.c", "X_1", "1"]): body(rng, schema["additionalProperties"], schemas, depth + 1)})
        return got
    if kind == "array":
        return [body(rng, schema.get("items", {}), schemas, depth + 1) for _ in range(rng.randrange(3))]
    return {"string": rng.choice(WORDS + ["true", "sleep"]), "integer": rng.randrange(-1, 100), "number": rng.random() * 5, "boolean": rng.random() < 0.5}.get(kind)


@pytest.mark.parametrize("seed", [1, 2])
def test_nonsense_is_refused_politely(server, admin, openapi, seed):
    rng = random.Random(seed)
    schemas = openapi["components"]["schemas"]
    made = admin.post("/v1/boxes", {"limits": limits(memory="128M", disk="32M", pids=128)}).json["id"]
    ops = [(p, m, op) for p, item in openapi["paths"].items() for m, op in item.items()
           if m != "parameters" and p not in ("/v1/events", "/v1/boxes/{id}/exec/ws") and not (m == "delete" and p == "/v1/boxes/{id}")
           and "tunnel" not in p and not p.endswith(("/stop", "/start"))]
    c = UnixConnection(server.socket)
    for i in range(COUNT):
        path, method, op = rng.choice(ops)
        if method == "post" and path == "/v1/boxes" and rng.random() < 0.9:
            continue
        x = (admin.get(f"/v1/boxes/{made}/exec").json["execs"] or [{"id": "x"}])[0]["id"] if i % 50 == 0 else x
        path = path.replace("{id}", rng.choice([made] * 9 + ["nope"])).replace("{xid}", x).replace("{port}", str(rng.choice([1, 80, 65535, 65536, 0])))
        path = path.replace("{path}", rng.choice(["tmp/f", "tmp/d/e", "etc/passwd", "tmp", "dev/zero", "proc/1/mem", "%ff"])).replace("{rest}", "a").replace("{token}", "t")
        if rng.random() < 0.3:
            path += "?" + "&".join(f"{rng.choice(QUERIES)}={rng.choice(['1', 'true', 'x', '', '%00', '-1', '99999999999999999999'])}" for _ in range(rng.randrange(3)))
        if "watch" in path or ("/events" in path and "after" not in path):
            continue
        data = None
        content = op.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            shape = body(rng, content["application/json"]["schema"], schemas)
            if isinstance(shape, dict) and path.endswith("/exec"):
                shape.update(timeout=0.2, background=rng.random() < 0.3)
            if isinstance(shape, dict):     # a box that ends of itself would end the test too
                shape.pop("ttl", None), shape.pop("idle_timeout", None), shape.pop("delete_box", None)
            data = json.dumps(shape)
            if rng.random() < 0.05:
                at = rng.randrange(len(data) + 1)
                data = data[:at] + rng.choice(['"', "}", "\x00", "\xff", ",", "[" * 50]) + data[at:]
            data = data.encode("latin-1", "replace")
        elif content:
            data = os.urandom(rng.randrange(600))
        try:
            c.request(method.upper(), path, body=data)
            answer = c.getresponse()
            text = answer.read()
        except (ConnectionError, OSError):
            c.close()
            c = UnixConnection(server.socket)
            continue
        assert answer.status != 500, (method, path, data, text)
        if answer.status >= 400 and method != "head":
            assert set(json.loads(text)["error"]) == {"code", "message", "details"}, (method, path, text)
        if answer.status == 201 and path.startswith("/v1/boxes"):
            admin.delete("/v1/boxes/" + json.loads(text)["id"])
        if path.split("?")[0].endswith("/pause"):
            admin.post(f"/v1/boxes/{made}/resume")
    assert admin.get("/v1/boxes/" + made).json["phase"] == "running"
    assert admin.delete("/v1/boxes/" + made).status == 204
