"""Results as JSON, or an error that names the value and what to return instead."""

import dataclasses
import enum
import inspect
import json

RESULT_MOST = 32 << 20
DEPTH_MOST = 200
SCALARS = {str, int, float, bool, type(None)}


class NotJSON(TypeError):
    """A function returned something that JSON has no form for."""


def advice(value):
    kind = type(value)
    name = "%s.%s" % (kind.__module__, kind.__qualname__) if kind.__module__ != "builtins" else kind.__qualname__
    if inspect.iscoroutine(value):
        return "a coroutine", "declare the function with 'async def', or await it inside"
    if inspect.isgenerator(value):
        return "a generator", "return list(...) of it"
    if isinstance(value, (set, frozenset)):
        return "a " + name, "return sorted(...) or list(...) of it"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, "return a text: base64.b64encode(...).decode(), or .decode()"
    if hasattr(value, "tolist"):
        return name, "return .tolist() of it"
    if hasattr(value, "to_dict"):
        return name, "return .to_dict() of it"
    if hasattr(value, "isoformat"):
        return name, "return .isoformat() of it"
    return name, "return a dict, list, text, number, boolean or None made of it"


def refuse(where, value):
    what, fix = advice(value)
    raise NotJSON("%s is %s, which is not JSON; %s" % (where, what, fix))


def plain(value, where, depth):
    """The value with dataclasses and enums converted; raises an error that names the fault. Lists of scalars cost one pass in C."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if depth > DEPTH_MOST:
        raise NotJSON("%s... is nested more than %d levels deep, or contains itself" % (where[:80], DEPTH_MOST))
    if isinstance(value, enum.Enum):
        return plain(value.value, where, depth + 1)
    if isinstance(value, (str, int, float)):
        return value            # of a class of its own; as its base
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str and not isinstance(key, str):
                raise NotJSON("%s has the key %r, and in JSON keys are texts; return {str(k): v ...}" % (where, key))
        if set(map(type, value.values())) <= SCALARS:
            return value
        return {k: plain(v, "%s[%r]" % (where, k), depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= SCALARS:
            return value
        return [plain(v, "%s[%d]" % (where, i), depth + 1) for i, v in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), "%s.%s" % (where, f.name), depth + 1) for f in dataclasses.fields(value)}
    refuse(where, value)


def find_number(value, where):
    """Where a number is that JSON has no form for."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "%s is %r" % (where, value)
    if isinstance(value, dict):
        parts = (("%s[%r]" % (where, k), v) for k, v in value.items())
    elif isinstance(value, (list, tuple)):
        parts = (("%s[%d]" % (where, i), v) for i, v in enumerate(value))
    else:
        return None
    return next(filter(None, (find_number(v, w) for w, v in parts)), None)


def encode(value, name):
    where = "the result of %s()" % name
    value = plain(value, where, 0)
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        found = find_number(value, where)
        raise NotJSON("%s, which JSON has no number for; return None or a text instead" % (found or where)) from None
    if len(text) > RESULT_MOST:
        raise NotJSON("%s has %d bytes as JSON, and the most is %d; return less of it, or write it to a file and return its name"
                      % (where, len(text), RESULT_MOST))
    return text.encode()
