"""One port of the machine's loopback that leads to the cluster's API server. The listener is made in the machine's network namespace, and
every connection from it in the cluster's: nothing else connects the two. It ends with the cluster."""
import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000


def enter_network(pid):
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) < 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):
        writer.close()


async def serve(listener, port, pid):
    async def connected(reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
        writer.close()
        inner_writer.close()

    over = asyncio.get_running_loop().create_future()
    watched = os.pidfd_open(pid)
    asyncio.get_running_loop().add_reader(watched, lambda: over.done() or over.set_result(None))
    await asyncio.start_server(connected, sock=listener)
    await over


def main(fd, port, pid):
    listener = socket.socket(fileno=int(fd))
    enter_network(int(pid))
    asyncio.run(serve(listener, int(port), int(pid)))


if __name__ == "__main__":
    main(*sys.argv[1:])
