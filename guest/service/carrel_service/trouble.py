"""Exceptions as the caller sees them: type, message, and a traceback that begins in the author's file and names no path of ours."""

import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
MESSAGE_MOST, TRACEBACK_MOST = 16 << 10, 64 << 10
_own = None             # the interface file
_tops = []              # directories whose files are named relative to them
_secret = []            # hidden from callers: names of hidden models


class NothingExposed(Exception):
    """An interface without a function."""


def know(path, directories):
    global _own
    _own = path
    _tops[:] = sorted({os.path.abspath(d) for d in [os.path.dirname(path), *directories, *sys.path] if d}, key=len, reverse=True)


def hide(models):
    """A model whose directory does not reveal its name is hidden: errors do not reveal it either. The last part of a name is hidden as a
    word of its own if it looks like one: gemma-2-9b, but not bert."""
    for name, path in models.items():
        if name.replace("/", "--") not in path:
            last = name.rpartition("/")[2]
            _secret.extend([name, name.replace("/", "--"), *([last] if "-" in last or any(c.isdigit() for c in last) else [])])


def without_secrets(text):
    for word in _secret:
        text = text.replace(word, "hidden")
    return text


def shorten(filename):
    """A file as its author knows it: interface.py, helpers.py, torch/nn/modules/module.py."""
    if _own and filename == _own:
        return os.path.basename(filename)
    for top in _tops:
        if filename.startswith(top + os.sep):
            return filename[len(top) + 1:]
    library = os.path.dirname(os.__file__) + os.sep
    return filename[len(library):] if filename.startswith(library) else os.path.basename(filename) or filename


def _is_ours(filename):
    return filename.startswith(HERE + os.sep) or filename.startswith("<frozen ")


def _clean(found, seen):
    if found is None or id(found) in seen:
        return
    seen.add(id(found))
    for frame in found.stack:
        frame.line              # read now: by its short name it would not be found
    # Only at the beginning: a frame of ours in the middle is expose() itself, or a print.
    while len(found.stack) and _is_ours(found.stack[0].filename):
        del found.stack[0]
    while len(found.stack) and _is_ours(found.stack[-1].filename):
        del found.stack[-1]
    for frame in found.stack:
        frame.filename = shorten(frame.filename)
    if getattr(found, "filename", None):
        found.filename = shorten(found.filename)
    for other in [found.__cause__, found.__context__, *(getattr(found, "exceptions", None) or ())]:
        _clean(other, seen)


def _place(error):
    """Line and text in the interface file for the error; None if it has none there."""
    if isinstance(error, SyntaxError) and error.filename == _own:
        return error.lineno, (error.text or "").strip()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == _own]
    return (frames[-1].lineno, frames[-1].line) if frames else (None, None)


def _text(error):
    try:
        return str(error)
    except Exception:
        return "<its text cannot be had>"


def _cut(text, most):
    return text if len(text) <= most else text[: most // 2] + "\n[...]\n" + text[-(most // 2):]


def _trace(error, kind, message):
    """For an error of ours about the author's code: it has no line of that code."""
    found = traceback.TracebackException.from_exception(error)
    _clean(found, set())
    if not type(error).__module__.startswith("carrel_service."):
        return "".join(found.format())
    if not found.stack:
        return ""
    return "Traceback (most recent call last):\n%s%s: %s\n" % ("".join(found.stack.format()), kind, message)


def describe(error, loading=False):
    """JSON, as bytes."""
    kind, message = type(error).__name__, _text(error)
    if kind == "Cancelled":
        kind = "TimeoutError" if loading else "Interrupted"
        message = "the interface took too long to load" if loading else message
    if isinstance(error, SystemExit):
        message = "the %s called sys.exit(%s)" % ("interface" if loading else "function", message)
    if isinstance(error, SyntaxError) and error.filename == _own:
        message = "%s (%s, line %s)" % (error.msg, os.path.basename(_own), error.lineno)
    line, text = _place(error)
    try:
        trace = _trace(error, kind, message)
    except Exception:
        trace = "%s: %s\n" % (kind, message)
    if not loading:
        message, trace = without_secrets(message), without_secrets(trace)
    told = {"type": kind, "message": _cut(message, MESSAGE_MOST), "traceback": _cut(trace, TRACEBACK_MOST)}
    if loading:
        told.update(line=line, text=text, file=os.path.basename(_own) if _own else None)
    return json.dumps(told).encode()
