"""Prints go to the caller of the printing function, in whole lines, or in part when the call ends."""

import io
import sys
import threading

from carrel_service import proto

PIECE = 16 << 10
_worker = None
_pending = {}           # (call, stream) -> list of texts
_lock = threading.RLock()


class Stream(io.TextIOBase):
    encoding, errors, newlines = "utf-8", "backslashreplace", None

    def __init__(self, name, real):
        self.name, self.real, self.mode = "<%s>" % name, real, "w"
        self.stream = name

    def writable(self):
        return True

    def fileno(self):
        return self.real.fileno()

    def isatty(self):
        return False

    @property
    def buffer(self):
        return self.real.buffer         # bytes go the way of C code and child processes

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if text:
            _write(_worker.whose(), self.stream, text)
        return len(text)

    def flush(self):
        self.real.flush()
        _send(_worker.whose(), self.stream)


def _write(number, stream, text):
    # A handler may raise in here; then a print is torn, as it is in any program that is interrupted.
    with _lock:
        parts = _pending.setdefault((number, stream), [])
        parts.append(text)
        full = "\n" in text or sum(map(len, parts)) >= PIECE
    if full:
        _send(number, stream)


def _send(number, stream):
    with _lock:
        text = "".join(_pending.pop((number, stream), ()))
    for at in range(0, len(text), PIECE):
        _worker.tell_print(number, stream, text[at:at + PIECE])


def flush(number):
    for stream in (proto.STDOUT, proto.STDERR):
        if (number, stream) in _pending:
            _send(number, stream)
    for real in (sys.__stdout__, sys.__stderr__):
        real.flush()


def install(worker):
    global _worker
    _worker = worker
    sys.stdout, sys.stderr = Stream(proto.STDOUT, sys.__stdout__), Stream(proto.STDERR, sys.__stderr__)
