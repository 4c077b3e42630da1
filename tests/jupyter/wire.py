"""Channels of a kernel, spoken by hand in both protocols."""
import json
import struct
import time
import uuid

from support.client import WebSocket

V1 = "v1.kernel.websocket.jupyter.org"
DEADLINE_S = 60


def pack_v1(message):
    parts = [message.get("channel", "shell").encode()]
    parts += [json.dumps(message.get(k, {})).encode() for k in ("header", "parent_header", "metadata", "content")]
    parts += message.get("buffers", [])
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def unpack_v1(data):
    n, = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{n}Q", data, 8)
    assert offsets[0] == 8 * (n + 1) and offsets[-1] == len(data)
    parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    header, parent, metadata, content = (json.loads(p) for p in parts[1:5])
    return {"channel": parts[0].decode(), "header": header, "parent_header": parent, "metadata": metadata, "content": content,
            "buffers": parts[5:], "msg_type": header["msg_type"], "msg_id": header["msg_id"]}


def pack_binary(message):
    """The old protocol's form of a message with buffers."""
    text = {k: v for k, v in message.items() if k != "buffers"}
    parts = [json.dumps(text).encode(), *message["buffers"]]
    offsets = [4 * (len(parts) + 1)]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f">{len(parts) + 1}I", len(parts), *offsets) + b"".join(parts)


def unpack_binary(data):
    n, = struct.unpack_from(">I", data)
    offsets = [*struct.unpack_from(f">{n}I", data, 4), len(data)]
    parts = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    return {**json.loads(parts[0]), "buffers": parts[1:]}


class Wire(WebSocket):
    """session: of the URL. greeted: the pair that every connection begins with has been read."""
    end = None      # by then the message that is waited for has come

    def __init__(self, client, kernel, protocol=None, session=None, greeted=True, query=""):
        self.session = session or uuid.uuid4().hex
        self.v1 = protocol == V1
        path = f"/api/kernels/{kernel}/channels?" + (f"session_id={session}" if session else "") + query
        super().__init__(client, path, [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else [])
        if greeted and self.status == 101:
            self.greeting = [self.next(), self.next()]

    def _fill(self):
        """The deadline is that of a message: the server's pings do not prolong it."""
        self.sock.settimeout(max(self.end - time.monotonic(), 0.001) if self.end else DEADLINE_S)
        super()._fill()

    def next(self):
        """The next message as a dictionary; EOFError when the server closes."""
        self.end = time.monotonic() + DEADLINE_S
        data = self.receive()
        if data is None:
            raise EOFError(self.closed)
        if self.v1:
            return unpack_v1(data)
        return json.loads(data) if isinstance(data, str) else unpack_binary(data)

    def ask(self, type, content, channel="shell", buffers=None, header=None, **more):
        """Sends a message, gives its id."""
        id = uuid.uuid4().hex
        header = {"msg_id": id, "msg_type": type, "session": self.session, "username": "t", "version": "5.3",
                  "date": "2026-01-01T00:00:00.000000Z"} if header is None else {"msg_id": id, "msg_type": type, **header}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": channel, "buffers": buffers or [], **more}
        self.send(pack_v1(message) if self.v1 else pack_binary(message) if buffers else json.dumps(message))
        return id

    def until(self, what, deadline_s=DEADLINE_S):
        """All messages up to the first one for which what() is true."""
        seen, end = [], time.monotonic() + deadline_s
        while time.monotonic() < end:
            seen.append(self.next())
            if what(seen[-1]):
                return seen
        raise TimeoutError([m["msg_type"] for m in seen])

    def start(self, code, **more):
        return self.ask("execute_request", {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
                                            "stop_on_error": True, **more})

    def outcome(self, id, deadline_s=DEADLINE_S):
        """What belongs to a request, up to its idle status and its reply, whichever is last."""
        seen, left, end = [], {"status", "execute_reply"}, time.monotonic() + deadline_s
        while time.monotonic() < end:
            m = self.next()
            if m["parent_header"].get("msg_id") != id:
                continue
            seen.append(m)
            if m["msg_type"] == "execute_reply" or (m["msg_type"] == "status" and m["content"]["execution_state"] == "idle"):
                left.discard(m["msg_type"])
            if not left:
                return Outcome(seen)
        raise TimeoutError([m["msg_type"] for m in seen])

    def run(self, code, **more):
        return self.outcome(self.start(code, **more))


class Outcome(list):
    def of(self, *types):
        return [m for m in self if m["msg_type"] in types]

    @property
    def text(self):
        return "".join(m["content"]["text"] for m in self.of("stream"))

    @property
    def result(self):
        return [m["content"]["data"]["text/plain"] for m in self.of("execute_result")]

    @property
    def reply(self):
        reply, = self.of("execute_reply")
        return reply["content"]
