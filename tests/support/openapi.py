"""Whether an answer is as openapi.json describes it. Every answer that a test's Client gets is checked."""
import functools
import json
import re
import urllib.parse

from support import REPOSITORY

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
ANSWERED = set()        # (method, path) of the routes that this process asked with success
METHODS = ("get", "put", "post", "patch", "delete", "options")


def is_type(value, name):
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))


def check(value, schema, openapi, where="answer"):
    """As much of JSON Schema as the description uses. A field that an object's description does not name is an error, unless it allows others."""
    if "$ref" in schema:
        return check(value, openapi["components"]["schemas"][schema["$ref"].split("/")[-1]], openapi, where)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            complaints = []
            for one in schema[several]:
                try:
                    check(value, one, openapi, where)
                    break
                except AssertionError as e:
                    complaints.append(str(e))
            else:
                raise AssertionError(f"{where} is none of {several}: {complaints}")
    assert "const" not in schema or value == schema["const"], (where, value)
    assert "enum" not in schema or value in schema["enum"], (where, value)
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(is_type(value, n) for n in names), (where, value)
    if "pattern" in schema and isinstance(value, str):
        assert re.search(schema["pattern"], value), (where, value)
    if is_type(value, "number"):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), (where, value)
    if isinstance(value, list):
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), where
        for i, one in enumerate(value):
            check(one, schema.get("items", {}), openapi, f"{where}[{i}]")
    if isinstance(value, dict):
        for name in schema.get("required", []):
            assert name in value, (where, "lacks", name)
        known, others = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
        for key, one in value.items():
            assert key in known or others is not False, (where, "has", key, "which is not described")
            check(one, known.get(key, others if isinstance(others, dict) else {}), openapi, f"{where}.{key}")


@functools.cache
def description():
    """openapi.json, and (method, pattern, path in it) of each route; more specific ones first."""
    openapi = json.loads((REPOSITORY / "src/doors/native/openapi.json").read_text())
    routes = []
    for path, item in openapi["paths"].items():
        pattern = re.sub(r"\\{(path|rest|volume)\\}", ".*", re.escape(path))
        pattern = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", pattern))
        routes += [(m, pattern, path) for m in item if m in METHODS]
    return openapi, sorted(routes, key=lambda r: (r[2].count("{path}") + r[2].count("{rest}"), r[2].count("{")))


def route_of(method, path):
    """The path as openapi.json has it; None: no such route."""
    plain = urllib.parse.urlsplit(path).path
    return next((p for m, pattern, p in description()[1] if m == method.lower() and pattern.fullmatch(plain)), None)


def unanswered(*parts):
    """The routes below these paths that no test of this process has asked with success."""
    return sorted((m, p) for m, _, p in description()[1] if p.startswith(parts) and (m, p) not in ANSWERED)


def check_answer(method, path, status, kind, body):
    """One answer of a server. The pages of a box's own server are not described."""
    openapi, _ = description()
    route = route_of(method, path)
    if route is None:
        return
    if status < 400:
        ANSWERED.add((method.lower(), route))
    if "/ports/" in route:
        return
    where = f"{method} {path} ({status})"
    responses = openapi["paths"][route][method.lower()]["responses"]
    assert str(status) in responses, f"{where} is not described: {body[:300]!r}"
    response = responses[str(status)]
    if "$ref" in response:
        response = openapi["components"]["responses"][response["$ref"].split("/")[-1]]
    content = response.get("content", {})
    kind = (kind or "").split(";")[0]
    assert kind in content or not body, f"{where} has the type {kind}, which is not described"
    if kind == "application/json":
        check(json.loads(body), content[kind]["schema"], openapi, where)
    elif kind == "application/x-ndjson":
        for line in body.splitlines():
            check(json.loads(line), content[kind]["schema"], openapi, where)
