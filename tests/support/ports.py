import contextlib
import pathlib
import random
import socket


def free_port():
    """Below those that the kernel gives to outgoing connections, so that none takes it before it is used."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10000, max(first, 20000))
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
