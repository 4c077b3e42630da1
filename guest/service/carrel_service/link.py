"""The link: a seqpacket socket on which whole messages, JSON objects, travel in packets (src/proto/link.h). Sending blocks: that is the backpressure. Any thread may send."""

import fcntl
import os
import socket
import struct
import threading

from carrel_service import proto
from carrel_service.proto import MESSAGE_MOST, PACKET

HEAD = struct.Struct(proto.HEAD)


class Closed(Exception):
    """The other side is gone."""


class Link:
    def __init__(self, fd):
        """Takes the descriptor away from where child processes would inherit it."""
        own = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, fd, True)
        os.close(null)
        self.socket = socket.socket(fileno=own)
        if self.socket.type != socket.SOCK_SEQPACKET:
            raise OSError("descriptor %d is not a seqpacket socket" % fd)
        self.socket.setblocking(True)
        self.fd = own
        self.lock = threading.Lock()
        self.half = None                # bytearray of the message that is coming in

    def send(self, data):
        """Not to be torn: the caller sees to it that no signal handler raises in here."""
        with self.lock:
            try:
                if len(data) <= PACKET:
                    self.socket.send(HEAD.pack(len(data), 0) + data)
                    return
                view = memoryview(data)
                for offset in range(0, len(data), PACKET):
                    self.socket.sendmsg((HEAD.pack(len(data), offset), view[offset:offset + PACKET]))
            except OSError:
                raise Closed from None

    def receive(self, wait):
        """The next message as bytes, or None if there is none and we do not wait. Raises Closed at the end."""
        while True:
            try:
                packet = self.socket.recv(PACKET + HEAD.size, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                raise Closed from None
            if not packet:
                raise Closed
            message = self._take(packet)
            if message is not None:
                return message

    def _take(self, packet):
        if len(packet) < HEAD.size:
            return None
        total, offset = HEAD.unpack_from(packet)
        length = len(packet) - HEAD.size
        if offset == 0:
            self.half = None
            if length == total:
                return packet[HEAD.size:]
            if length > total or total > MESSAGE_MOST:
                return None
            self.half = bytearray()
        if self.half is None or offset != len(self.half) or offset + length > total:
            self.half = None
            return None
        self.half += packet[HEAD.size:]
        if len(self.half) < total:
            return None
        message, self.half = bytes(self.half), None
        return message
