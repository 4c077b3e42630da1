"""Runs in the network namespace of a box that the tests made by hand: makes its sockets and sends them over the unix
socket that is its standard input. Argument: the way."""

import array
import socket
import struct
import sys

way = sys.argv[1]
IP_TRANSPARENT, IPV6_TRANSPARENT, SO_MARK, IPV6_HDRINCL = 19, 75, 36, 36


def listener(family, address, port, transparent=False):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if transparent:
        s.setsockopt(
            *(
                (socket.SOL_IP, IP_TRANSPARENT, 1)
                if family == socket.AF_INET
                else (socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
            )
        )
    s.bind((address, port))
    s.listen(4096)
    return s


def log_socket():
    """Bound to group 1 of nfnetlink_log, with whole packets."""
    s = socket.socket(16, socket.SOCK_RAW, 12)
    s.bind((0, 0))

    def config(attribute, data):
        body = (
            struct.pack("=BBH", 0, 0, socket.htons(1))
            + struct.pack("=HH", 4 + len(data), attribute)
            + data
            + bytes(-len(data) % 4)
        )
        s.send(struct.pack("=IHHII", 16 + len(body), 4 << 8 | 1, 5, 1, 0) + body)
        assert struct.unpack("=i", s.recv(4096)[16:20])[0] == 0

    config(1, b"\1")  # bind
    config(2, struct.pack(">IBB", 256, 2, 0))  # copy packets
    config(5, struct.pack(">I", 1))  # one in each datagram
    return s


def raw(family):
    s = socket.socket(family, socket.SOCK_RAW, 255)
    s.setsockopt(socket.SOL_SOCKET, SO_MARK, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, IPV6_HDRINCL, 1)
    return s


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.53", 53))
sockets = [udp, listener(socket.AF_INET, "127.0.0.53", 53)]
sockets += [listener(socket.AF_INET, "127.0.0.1", 61000, True), listener(socket.AF_INET6, "::1", 61000, True)]
if way == "hold":
    sockets += [log_socket(), raw(socket.AF_INET), raw(socket.AF_INET6)]
link = socket.socket(fileno=0)
link.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno() for s in sockets]))])
