"""JSON that is always valid: NaN and text that is no UTF-8 are written as text, and objects without a JSON form as their repr."""

import datetime
import json
import math
import numbers
from base64 import b64encode


def default(value):
    """Objects that JSON lacks."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            value = value.astimezone()
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b64encode(value).decode("ascii")
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (set, frozenset)) or hasattr(value, "__iter__"):
        return list(value)
    raise TypeError("%r cannot be said in JSON" % type(value).__name__)


slow_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default).encode


def make_encoder():
    """As the encoder above makes one for each object."""
    try:
        from json.encoder import c_make_encoder, encode_basestring

        encoder = c_make_encoder({}, default, encode_basestring, None, ":", ",", False, False, False)
        if "".join(encoder({"a": [1, None, "\n\u00e9"]}, 0)) == slow_encode({"a": [1, None, "\n\u00e9"]}):
            return encoder
    except (ImportError, TypeError, ValueError):
        pass
    return None


encoder = make_encoder()


def encode(value):
    global encoder
    if encoder is None or type(value) is not dict:
        return slow_encode(value)
    try:
        return "".join(encoder(value, 0))
    except BaseException:
        encoder = make_encoder()        # it remembers the objects that it was in
        raise


def clean_text(text):
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def clean(value, depth=0):
    """A copy that can be encoded."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, (bool, int)):
        return value if type(value) in (bool, int, type(None)) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if depth > 100:
        return "..."
    if isinstance(value, dict):
        return {clean_text(k if isinstance(k, str) else str(k)): clean(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v, depth + 1) for v in value]
    try:
        return clean(default(value), depth + 1)
    except Exception:
        try:
            return clean_text(repr(value))
        except Exception:
            return "<%s>" % type(value).__name__


def dumps(value):
    """Bytes of JSON in UTF-8."""
    try:
        return encode(value).encode("utf-8")
    except (ValueError, TypeError, RecursionError, OverflowError):
        return encode(clean(value)).encode("utf-8")


def loads(data):
    return json.loads(bytes(data))
