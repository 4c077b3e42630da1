"""Makes a kernel on a link look like one on ZeroMQ, for foreign test suites: `bridge.py CONNECTION_FILE WAY`. For tests only."""

import json
import signal
import sys

import zmq
from jupyter_client.session import Session

import ways
from client import Kernel, pack


def bind(context, connection, kind, name):
    sock = context.socket(kind)
    sock.linger = 1000
    sock.bind("%s://%s:%d" % (connection["transport"], connection["ip"], connection[name + "_port"]))
    return sock


class Bridge:
    def __init__(self, connection, kernel: Kernel) -> None:
        self.session = Session(key=connection["key"].encode(), signature_scheme=connection["signature_scheme"])
        context = zmq.Context()
        self.kernel = kernel
        self.sockets = {name: bind(context, connection, zmq.ROUTER, name) for name in ("shell", "control", "stdin")}
        self.sockets["iopub"] = bind(context, connection, zmq.PUB, "iopub")
        self.beat = bind(context, connection, zmq.ROUTER, "hb")
        self.idents = {}            # msg_id -> its client; the last one of a session: for input requests

    def to_kernel(self, name):
        ident, parts = self.session.feed_identities(self.sockets[name].recv_multipart())
        header = json.loads(parts[1])
        self.idents[header["msg_id"]] = ident
        self.kernel.send_raw(pack(name, parts[1:]))

    def from_kernel(self):
        m = self.kernel.receive()
        parts = [json.dumps(m[p]).encode() for p in ("header", "parent_header", "metadata", "content")]
        name = m["channel"]
        front = [m["msg_type"].encode()] if name == "iopub" else self.idents.get(m["parent_header"].get("msg_id"), [b""])
        self.sockets[name].send_multipart([*front, b"<IDS|MSG>", self.session.sign(parts), *parts, *m["buffers"]])

    def run(self):
        poller = zmq.Poller()
        for sock in (*self.sockets.values(), self.beat):
            if sock is not self.sockets["iopub"]:
                poller.register(sock, zmq.POLLIN)
        poller.register(self.kernel.socket.fileno(), zmq.POLLIN)
        while True:
            for sock, _ in poller.poll():
                if sock == self.kernel.socket.fileno():
                    self.from_kernel()
                elif sock is self.beat:
                    self.beat.send_multipart(self.beat.recv_multipart())
                else:
                    self.to_kernel(next(n for n, s in self.sockets.items() if s is sock))


def main():
    with open(sys.argv[1]) as file:
        connection = json.load(file)
    with ways.kernel(sys.argv[2]) as kernel:
        signal.signal(signal.SIGINT, lambda *_: kernel.interrupt())
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            Bridge(connection, kernel).run()
        except EOFError:
            pass


if __name__ == "__main__":
    main()
