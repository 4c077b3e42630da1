"""A WebSocket server that does as it is told, for a client's tests: it answers the handshake, then a function of the test has the socket."""
import base64
import hashlib
import socket
import struct
import threading


def frame(opcode, data=b"", first=0x80, mask=None, size=None):
    """A server's frame; wrong ones too."""
    size = len(data) if size is None else size
    masked = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", first | opcode, masked | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first | opcode, masked | 126, size)
    else:
        head = struct.pack("!BBQ", first | opcode, masked | 127, size)
    return head + (mask or b"") + data


def read_frame(sock):
    """A client's frame: opcode and data. Asserts that it is masked."""
    def exactly(n):
        data = b""
        while len(data) < n:
            more = sock.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data
    first, second = exactly(2)
    assert second & 0x80, "a client's frames are masked"
    size = second & 0x7F
    if size == 126:
        size = struct.unpack("!H", exactly(2))[0]
    elif size == 127:
        size = struct.unpack("!Q", exactly(8))[0]
    mask, data = exactly(4), exactly(size)
    pad = (mask * (size // 4 + 1))[:size]
    return first & 0x0F, (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")     # of megabytes too, in no time


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


class Server:
    """`talk(sock)` is called for each connection after the handshake; `head(key)` may give another answer to it."""

    def __init__(self, talk, head=None):
        self.talk = talk
        self.head = head
        self.requests = []
        self.failures = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/some/where?x=1"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(60)
                try:
                    self._one(sock)
                except (EOFError, ConnectionError):
                    pass
                except AssertionError as e:
                    self.failures.append(e)

    def _one(self, sock):
        request = b""
        while b"\r\n\r\n" not in request:
            data = sock.recv(65536)
            if not data:
                return
            request += data
        self.requests.append(request)
        lines = request.decode().split("\r\n")
        key = next(line.split(": ")[1] for line in lines if line.lower().startswith("sec-websocket-key"))
        answer = (f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept_of(key)}"
                  "\r\n\r\n")
        sock.sendall(self.head(key) if self.head else answer.encode())
        self.talk(sock)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(60)
        assert not self.failures, self.failures
