"""A small client with nothing between the test and the wire: HTTP over a unix socket or TCP, NDJSON, server-sent events, WebSockets."""
import base64
import http.client
import json
import os
import socket
import struct

from support.openapi import check_answer

TIMEOUT_S = 120         # the first import of IPython on a slow machine takes its time


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The code of an error; None if it is none."""
        return self.json.get("error", {}).get("code") if self.body[:1] == b"{" else None


class Client:
    def __init__(self, where, token=None, described=True):
        """described: openapi.json is about this place."""
        self.where, self.token, self.described = where, token, described

    def connection(self):
        if isinstance(self.where, tuple):
            return http.client.HTTPConnection(*self.where, timeout=TIMEOUT_S)
        return UnixConnection(self.where)

    def raw_socket(self):
        c = self.connection()
        c.connect()
        return c.sock

    def open(self, method, path, body=None, headers=None):
        """The response itself, for streams; the caller closes its connection (response.connection)."""
        headers = dict(headers or {})
        if self.token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        c = self.connection()
        try:
            c.request(method, path, body=body, headers=headers, encode_chunked=hasattr(body, "__next__"))
        except (BrokenPipeError, ConnectionResetError):
            if not c.sock:
                raise
            # It was refused while it was sent: the answer, if one came, can still be read.
        response = c.getresponse()
        response.connection = c
        return response

    def ask(self, method, path, body=None, headers=None):
        response = self.open(method, path, body, headers)
        try:
            answer = Answer(response)
        finally:
            response.connection.close()
        if self.described:
            check_answer(method, path, answer.status, answer.headers["Content-Type"], answer.body)
        return answer

    def get(self, path, **kw):
        return self.ask("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self.ask("POST", path, body, **kw)

    def put(self, path, body=None, **kw):
        return self.ask("PUT", path, body, **kw)

    def patch(self, path, body=None, **kw):
        return self.ask("PATCH", path, body, **kw)

    def delete(self, path, **kw):
        return self.ask("DELETE", path, **kw)

    def post_with_fds(self, path, body, fds):
        data = json.dumps(body).encode()
        c = self.connection()
        c.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        socket.send_fds(c.sock, [head], fds)
        c.sock.sendall(data)
        response = http.client.HTTPResponse(c.sock)
        response.begin()
        answer = Answer(response)
        c.close()
        return answer

    def create_with_mounts(self, body, mounts, writable=False):
        """Makes a box with mounts {target: source}, handed over as docs/decisions/011 says; the unix socket only."""
        fds = []
        try:
            for source in mounts.values():
                ours, theirs = socket.socketpair()
                fd = os.open(source, os.O_RDONLY)
                socket.send_fds(ours, [b"\0"], [fd])
                os.close(fd)
                ours.close()
                fds.append(theirs.detach())
            listed = [{"source": source, "target": target, "fd": i, "writable": writable} for i, (target, source) in enumerate(mounts.items())]
            made = self.post_with_fds("/v1/boxes", {**body, "mounts": listed}, fds)
            assert made.status == 201, made.body
            return made.json
        finally:
            for fd in fds:
                os.close(fd)

    def websocket(self, path):
        return WebSocket(self, path)


def lines(response):
    """The objects of an NDJSON answer, as they come."""
    for line in response:
        yield json.loads(line)


def events(response):
    """The events of a text/event-stream, as (id, type, data)."""
    event = {}
    for line in response:
        line = line.decode().rstrip("\n")
        if line == "" and "data" in event:
            yield int(event["id"]), event["event"], json.loads(event["data"])
            event = {}
        elif ": " in line:
            key, value = line.split(": ", 1)
            event[key] = value


class WebSocket:
    TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

    def __init__(self, client, path, fields=()):
        self.closed = None      # the code and reason of the server's close
        self.sock = client.raw_socket()
        key = base64.b64encode(os.urandom(16)).decode()
        head = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket",
                "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        if client.token:
            head.append("Authorization: Bearer " + client.token)
        self.sock.sendall("\r\n".join([*head, *fields, "", ""]).encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self._fill()
        answer, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        self.status = int(answer.split()[1])
        check_answer("GET", path, self.status, None, b"")
        self.fields = dict(line.split(": ", 1) for line in answer.decode().split("\r\n")[1:])

    def _fill(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self.buffer += data

    def _take(self, n):
        while len(self.buffer) < n:
            self._fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def send(self, data, opcode=None):
        opcode = opcode or (self.TEXT if isinstance(data, str) else self.BINARY)
        data = data.encode() if isinstance(data, str) else data
        mask = os.urandom(4)
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data)) if len(data) < 65536 \
            else b"\xff" + struct.pack(">Q", len(data))
        self.sock.sendall(bytes([0x80 | opcode]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        """The next message: str, bytes, or None at the close."""
        first, size = self._take(2)
        if size == 126:
            size, = struct.unpack(">H", self._take(2))
        elif size == 127:
            size, = struct.unpack(">Q", self._take(8))
        data = self._take(size)
        opcode = first & 15
        if opcode == self.PING:
            self.send(data, self.PONG)
            return self.receive()
        if opcode == self.CLOSE:
            self.closed = int.from_bytes(data[:2], "big"), data[2:].decode()
        return None if opcode == self.CLOSE else data.decode() if opcode == self.TEXT else data

    def close(self):
        self.sock.close()
