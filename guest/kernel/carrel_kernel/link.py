"""The link: a seqpacket socket on which whole Jupyter messages travel in packets (src/proto/link.h, kernel.h).

Sending blocks: that is the backpressure. The main thread may be interrupted at any moment by a signal whose handler raises; a message
of one packet goes whole or not at all by itself, and in one of several packets the interrupt waits until the last is out."""

import _socket              # without names for its numbers, which take a dozen functions each
import fcntl
import mmap
import os
import select
import struct
import threading

from carrel_kernel import proto
from carrel_kernel.proto import MESSAGE_MOST, PACKET

WAIT_MS = 200       # a signal between the interpreter's last look and its wait is seen after that
HEAD = struct.Struct(proto.HEAD)


def pack(channel, parts):
    """The bytes of a message: channel, header, parent, metadata, content, buffers."""
    parts = [channel, *parts]
    count = len(parts) + 1
    offset = 8 * (1 + count)
    offsets = [count, offset]
    for part in parts:
        offset += len(part)
        offsets.append(offset)
    return b"".join((struct.pack("<%dQ" % (count + 1), *offsets), *parts))


def unpack(data):
    """(channel, parts), or ValueError."""
    size = len(data)
    if size < 8:
        raise ValueError("message of %d bytes" % size)
    (count,) = struct.unpack_from("<Q", data)
    if count < proto.OFFSETS_LEAST or 8 * (1 + count) > size:
        raise ValueError("message with %d offsets" % count)
    offsets = struct.unpack_from("<%dQ" % count, data, 8)
    if offsets[0] < 8 * (1 + count) or offsets[-1] != size or any(a > b for a, b in zip(offsets, offsets[1:])):
        raise ValueError("message with wrong offsets")
    view = memoryview(data)
    parts = [view[a:b] for a, b in zip(offsets, offsets[1:])]
    return bytes(parts[0]).decode("ascii", "replace"), parts[1:]


class Closed(Exception):
    """The other side is gone."""


class Link:
    def __init__(self, fd):
        """Takes the descriptor away from where child processes would inherit it."""
        self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, fd, True)
        os.close(null)
        self.socket = _socket.socket(fileno=self.fd)
        if self.socket.type != _socket.SOCK_SEQPACKET:
            raise OSError("descriptor %d is not a seqpacket socket" % fd)
        self.socket.setblocking(True)
        self.lock = threading.Lock()
        self.main = threading.get_ident()
        self.buffer = mmap.mmap(-1, PACKET + HEAD.size)     # of which short messages touch one page
        self.view = memoryview(self.buffer)
        self.half = None                # bytearray of the message that is coming in
        self.missing = 0
        # Of the main thread: the depth of uninterruptible sections, whether it only waits, whether an interrupt came meanwhile.
        self.busy = 0
        self.waiting = False
        self.interrupted = False
        self.after = None               # to be called when the main thread is through

    # --- signals ---

    def may_raise(self):
        """In a signal handler: whether an exception may be raised here. If not, it is raised at the end of the uninterruptible section."""
        if self.busy and not self.waiting:
            self.interrupted = True
            return False
        return True

    def leave(self):
        """The end of the section that began with `busy += 1`."""
        self.busy -= 1
        if self.busy:
            return
        if self.after is not None:
            after, self.after = self.after, None
            after()
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    # --- out ---

    def send(self, data, depth=0):
        """depth: how deep the caller is in `busy` already, and would not mind an interrupt while this waits."""
        if threading.get_ident() != self.main:
            with self.lock:
                self._send(data, False)
            return
        self.busy += 1
        try:
            with self.lock:
                self._send(data, self.busy == 1 + depth)
        finally:
            self.leave()

    def _send(self, data, may_wait):
        try:
            if len(data) <= PACKET:
                packet = HEAD.pack(len(data), 0) + data
                self.waiting = may_wait
                try:
                    self.socket.send(packet)
                finally:
                    self.waiting = False
                return
            self._send_packets(data)
        except OSError:
            raise Closed from None

    def _send_packets(self, data):
        view, size, error = memoryview(data), len(data), None
        while True:
            try:
                for offset in range(0, size, PACKET):
                    self.socket.sendmsg((HEAD.pack(size, offset), view[offset:offset + PACKET]))
                break
            except OSError:
                raise
            except BaseException as e:  # a signal handler of the user's own: say it again from the start, then let it through
                if error is not None:
                    raise
                error = e
        if error is not None:
            raise error

    # --- in ---

    def receive(self):
        """The next message as bytes, or None if there is none now. Raises Closed at the end."""
        while True:
            try:
                size = self.socket.recv_into(self.buffer, 0, _socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                raise Closed from None
            if size == 0:
                raise Closed
            message = self._take(size)
            if message is not None:
                return message

    def _take(self, size):
        if size < HEAD.size:
            return None
        total, offset = HEAD.unpack_from(self.buffer)
        length = size - HEAD.size
        if offset == 0:
            self.half = None
            if length == total:
                return bytes(self.view[HEAD.size:size])
            if length > total or total > MESSAGE_MOST:
                return None
            self.half = bytearray()
        if self.half is None or offset != len(self.half) or offset + length > total:
            self.half = None
            return None
        self.half += self.view[HEAD.size:size]
        if len(self.half) < total:
            return None
        message, self.half = self.half, None
        return message

    def wait(self):
        """Blocks until something can be received; signal handlers run, and may raise."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while not poll.poll(WAIT_MS):
            pass

    def close(self):
        """In a fork of the process: the link is the parent's."""
        self.socket.close()
        self.lock = threading.Lock()
