"""sys.stdout and sys.stderr: text becomes stream messages of the present cell.

Writes are merged and sent when 64 KiB have gathered, at the end of a cell, before anything else is shown, and 50 ms after the
first waiting one. For the last case a timer's signal interrupts the main thread: a thread would be a second one in a process
that will be forked, and would need the interpreter's lock at each cell. A write from a thread that finds old text sends it too, so that
a main thread deep in C code does not hold it back."""

import ctypes
import io
import os
import signal
import sys
import threading
import time
from _signal import signal as set_signal

FLUSH_AT = 64 << 10         # characters
CHUNK = 120 << 10           # of one message: mostly one packet
DELAY = 0.05
TIMER_SIGNAL = signal.SIGRTMIN + 7


class _Spec(ctypes.Structure):
    _fields_ = [("interval_s", ctypes.c_long), ("interval_ns", ctypes.c_long), ("s", ctypes.c_long), ("ns", ctypes.c_long)]


class _Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("tid", ctypes.c_int), ("pad", ctypes.c_char * 48)]


class Timer:
    """One shot of TIMER_SIGNAL to the main thread."""

    SIGEV_THREAD_ID = 4

    def __init__(self, handler):
        self.spec = _Spec(0, 0, 0, int(DELAY * 1e9))
        self.armed = False
        self.handler = handler
        self.settime = None
        # Made here, so that a forked child finds it made.
        libc = ctypes.CDLL(None)
        self.timer = ctypes.c_void_p()
        self.event = _Event(None, TIMER_SIGNAL, self.SIGEV_THREAD_ID, 0)
        self.pointers = ctypes.byref(self.event), ctypes.byref(self.timer)
        self.pointer = ctypes.pointer(self.spec)
        self.create = getattr(libc, "timer_create", None)
        self.set = getattr(libc, "timer_settime", None)
        if self.set is not None:
            self.set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Spec), ctypes.c_void_p]

    def begin(self):
        """Where there are no timers, text waits for the next write or the end of the cell."""
        if self.settime is not None or self.create is None or self.set is None:
            return
        self.armed = False
        self.event.tid = threading.get_native_id()
        if self.create(1, *self.pointers) == 0:
            self.settime = self.set
            set_signal(TIMER_SIGNAL, self.fired)
            signal.siginterrupt(TIMER_SIGNAL, False)

    def forget(self):
        """In a forked process: timers are not inherited."""
        self.settime = None

    def arm(self):
        if not self.armed and self.settime is not None:
            self.armed = True
            self.settime(self.timer, 0, self.pointer, None)

    def fired(self, *_):
        self.armed = False
        self.handler()


class Stream(io.TextIOBase):
    """As much of a text file as ipykernel's OutStream is."""

    encoding = "UTF-8"
    errors = "strict"
    topic = None

    def __init__(self, session, channel, name, fd, timer):
        super().__init__()
        self.session = session
        self.pub_thread = None
        self.name = "<%s>" % name
        self._channel = channel
        self._kind = name
        self._fd = fd
        self._timer = timer
        self._parts = []
        self._size = 0
        self._since = 0.0
        self._lock = threading.RLock()
        self._direct = False            # in a fork: to the descriptor
        self.parent_header = {}

    # --- what a file has ---

    def isatty(self):
        return False

    def fileno(self):
        return self._fd

    def writable(self):
        return True

    def readable(self):
        return False

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        length = len(text)
        if not length:
            return 0
        if self._direct:
            self._write_directly(text)
            return length
        self._parts.append(text)
        self._size += length
        if self._size >= FLUSH_AT:
            self.flush()
            return length
        if self._size == length:        # the first that waits
            self._since = time.monotonic()
            self._timer.arm()
        elif threading.get_ident() != self.session.main and time.monotonic() - self._since > DELAY:
            self.flush()
        return length

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        link = self.session.link
        if not self._parts or self._direct:
            return
        if link is None:
            del self._parts[:]
            self._size = 0
        elif threading.get_ident() != link.main:
            self._send(0)
        else:
            link.busy += 1              # no interrupt here, and no timer's flush in the midst of this one
            try:
                self._send(1)
            finally:
                link.leave()

    def _send(self, depth):
        with self._lock:
            parts = self._parts
            count = len(parts)
            text = "".join(parts[:count])
            del parts[:count]
            self._size = 0
            for start in range(0, len(text), CHUNK):
                self.session.send_stream(self._channel, self._kind, text[start:start + CHUNK], self.parent_header, depth)

    # --- what a kernel's has ---

    def set_parent(self, parent):
        self.flush()
        self.parent_header = parent.get("header", {}) if "header" in parent else parent

    # --- forks ---

    def go_direct(self):
        self._direct = True
        self._lock = threading.RLock()
        del self._parts[:]
        self._size = 0

    def _write_directly(self, text):
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._fd, data):]


class Streams:
    """The pair, and the timer that both use."""

    def __init__(self, session, channel):
        self.session = session
        self.timer = Timer(self.flush_late)
        self.out = Stream(session, channel, "stdout", 1, self.timer)
        self.err = Stream(session, channel, "stderr", 2, self.timer)

    def install(self):
        sys.stdout, sys.stderr = self.out, self.err

    def flush(self):
        self.out.flush()
        self.err.flush()

    def flush_late(self):
        """By the timer's signal, in the main thread, which may be anywhere."""
        link = self.session.link
        if link is not None and link.busy:
            link.after = self.flush
        else:
            self.flush()
