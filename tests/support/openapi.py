"""Whether an answer is as openapi.json describes it."""
import re

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def is_type(value, name):
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))


def check(value, schema, openapi, where="answer"):
    """As much of JSON Schema as the description uses."""
    if "$ref" in schema:
        return check(value, openapi["components"]["schemas"][schema["$ref"].split("/")[-1]], openapi, where)
    if "enum" in schema:
        assert value in schema["enum"], where
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(is_type(value, n) for n in names), (where, value)
    if "pattern" in schema and isinstance(value, str):
        assert re.search(schema["pattern"], value), (where, value)
    if "minimum" in schema and is_type(value, "number"):
        assert value >= schema["minimum"], where
    for name in schema.get("required", []):
        assert name in value, (where, name)
    if isinstance(value, dict) and "properties" in schema:
        for key, one in value.items():
            if key in schema["properties"]:
                check(one, schema["properties"][key], openapi, f"{where}.{key}")
            else:
                assert schema.get("additionalProperties") is not False, (where, key)
    if isinstance(value, list) and "items" in schema:
        for i, one in enumerate(value):
            check(one, schema["items"], openapi, f"{where}[{i}]")
