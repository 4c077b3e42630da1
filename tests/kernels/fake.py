"""A kernel without IPython: speaks the link as the real one does, and lies when asked to. Runs in a box; the cell's code says what it does."""
import json
import os
import signal
import socket
import struct
import sys
import time

PACKET = 128 << 10


class Link:
    def __init__(self):
        self.socket = socket.socket(fileno=os.dup(0))
        self.count = 0

    def send_bytes(self, data, total=None):
        total = len(data) if total is None else total
        for at in range(0, len(data), PACKET):
            self.socket.send(struct.pack("<II", total, at) + data[at:at + PACKET])

    @staticmethod
    def pack(channel, *parts):
        parts = [channel.encode(), *parts]
        n = len(parts) + 1
        offsets, at = [], 8 * (n + 1)
        for part in parts:
            offsets.append(at)
            at += len(part)
        return struct.pack(f"<{n + 1}Q", n, *offsets, at) + b"".join(parts)

    def send(self, channel, kind, content, parent=None, buffers=(), ascii=True):
        self.count += 1
        header = {"msg_id": f"fake_{self.count}", "msg_type": kind, "session": "fake", "username": "x", "date": "2026-01-01T00:00:00Z", "version": "5.3"}
        parts = [json.dumps(p, ensure_ascii=ascii).encode() for p in (header, parent or {}, {}, content)]
        self.send_bytes(self.pack(channel, *parts, *buffers))

    def receive(self):
        data = b""
        while True:
            packet = self.socket.recv(8 + PACKET)
            if not packet:
                sys.exit(0)
            total, offset = struct.unpack("<II", packet[:8])
            if offset == 0:
                data = b""
            data += packet[8:]
            if len(data) == total:
                break
        n, = struct.unpack_from("<Q", data)
        offsets = struct.unpack_from(f"<{n}Q", data, 8)
        parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
        return parts[0].decode(), [json.loads(p) for p in parts[1:5]]


def main():
    if "FAKE_LAST_WORDS" in os.environ:
        os.write(2, bytes.fromhex(os.environ["FAKE_LAST_WORDS"]))
        os._exit(1)
    link = Link()
    space = {"link": link, "os": os, "sys": sys, "time": time, "struct": struct, "json": json, "signal": signal}
    count = 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        channel, (header, _, _, content) = link.receive()
        space["header"] = header
        kind = header["msg_type"]
        if kind == "execute_request":   # from its busy on a cell can be interrupted
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            signal.signal(signal.SIGINT, signal.default_int_handler)
        link.send("iopub", "status", {"execution_state": "busy"}, header)
        if kind == "execute_request":
            count += 1
            reply = {"status": "ok", "execution_count": count}
            try:
                try:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
                    exec(content["code"], space)
                finally:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
            except (Exception, KeyboardInterrupt) as error:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                told = {"ename": type(error).__name__, "evalue": str(error), "traceback": []}
                reply = {"status": "error", "execution_count": count, **told}
                link.send("iopub", "error", told, header)
            link.send("shell", "execute_reply", reply, header)
        elif kind == "kernel_info_request":
            link.send(channel, "kernel_info_reply", {"status": "ok", "protocol_version": "5.3"}, header)
        link.send("iopub", "status", {"execution_state": "idle"}, header)


if __name__ == "__main__":
    main()
