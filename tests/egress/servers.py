"""Servers of the tests' outside world: HTTP, TLS, echo, one that speaks first, a source and a sink of bytes, a resolver
whose answers change."""

import asyncio
import json
import socket
import ssl
import sys

ADDRESSES = ["203.0.113.10", "203.0.113.11", "10.77.0.5", "169.254.169.254", "2001:db8:77::10"]


async def http(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    names = [
        line.split(b":", 1)[1].strip().decode() for line in head.split(b"\r\n") if line.lower().startswith(b"host:")
    ]
    tls = writer.get_extra_info("ssl_object")
    body = (
        json.dumps(
            {"address": writer.get_extra_info("sockname")[0], "host": names, "sni": getattr(tls, "asked", None)}
        ).encode()
        + b"\n"
    )
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()


async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def greet(reader, writer):
    writer.write(b"220 hello\r\n")
    await echo(reader, writer)


async def source(reader, writer):
    """As many bytes as the first line says."""
    left, chunk = int(await reader.readline()), b"x" * (1 << 20)
    while left > 0:
        writer.write(chunk[:left])
        left -= len(chunk)
        await writer.drain()
    writer.close()


async def sink(reader, writer):
    total = 0
    while data := await reader.read(1 << 20):
        total += len(data)
    writer.write(b"%d\n" % total)
    await writer.drain()
    writer.close()


async def rst(_reader, writer):
    """Breaks the connection."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


class Flipping(asyncio.DatagramProtocol):
    """flip.evil.test: public for the first question, metadata afterwards, with a TTL of 0. many: 25 addresses.
    silent: no answer. broken: garbage. tardy, tardy1 and so on: an answer
    after a second."""

    def __init__(self):
        self.asked = 0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]])
            at += 1 + data[at]
        question, kind, name = data[12 : at + 5], data[at + 2], labels[0].lower()
        if name == b"silent":
            return
        if name == b"broken":
            self.transport.sendto(
                data[:2] + b"\x81\x80\0\1\xff\xff\0\0\0\0" + question + b"\xc0\x0c\0\1\0\1\xff\xff\xff\xff\0\x05\1\2\3",
                address,
            )
            return
        found = []
        if kind == 1 and name == b"flip":
            found = [b"\xcb\0\x71\x0a" if self.asked == 0 else b"\xa9\xfe\xa9\xfe"]
            self.asked += 1
        elif kind == 1 and name == b"many":
            found = [bytes([203, 0, 113, 10])] * 25
        elif kind == 1 and name.startswith(b"tardy"):
            found = [bytes([203, 0, 113, 10])]
        records = b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + one for one in found)
        reply = data[:2] + b"\x81\x80\0\1" + len(found).to_bytes(2, "big") + b"\0\0\0\0" + question + records
        asyncio.get_running_loop().call_later(name.startswith(b"tardy"), self.transport.sendto, reply, address)


async def main(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def note(tls, name, _context):
        tls.asked = name

    context.sni_callback = note
    for address in ADDRESSES:
        for port, serve in (
            (80, http),
            (8080, http),
            (7, echo),
            (25, greet),
            (5001, source),
            (5002, sink),
            (5003, rst),
        ):
            await asyncio.start_server(serve, address, port, backlog=4096)
        await asyncio.start_server(http, address, 443, ssl=context, ssl_handshake_timeout=5)
    await asyncio.get_running_loop().create_datagram_endpoint(Flipping, local_addr=("127.0.0.1", 5353))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main(sys.argv[1]))
