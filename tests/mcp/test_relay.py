"""`carrel mcp` between a client and a server that behave badly. The server is a socket of the test's own."""
import json
import select
import socket
import threading

import pytest
from support.waiting import wait_for


class Fake:
    """Answers every request with these bytes, then closes the connection."""

    def __init__(self, answer):
        self.answer, self.held = answer, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        while len(body) < length:
            body += connection.recv(65536)
        if self.answer is None:
            self.held.append(connection)
            return
        connection.sendall(self.answer)
        connection.close()


@pytest.fixture
def relay(server):
    begun = []

    def begin(answer):
        fake = Fake(answer)
        process = server.start_carrel("mcp", "--url", f"http://127.0.0.1:{fake.port}", stdin=-1, stdout=-1, bufsize=0)
        begun.append((fake, process))
        process.fake = fake
        return process

    yield begin
    for fake, process in begun:
        fake.listener.close()
        process.kill()
        process.wait()


def say(process, message):
    process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")


def hear(process):
    assert select.select([process.stdout], [], [], 30)[0], "it says nothing"
    return json.loads(process.stdout.readline())


def chunked(*pieces):
    return (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces))


def test_a_stream_that_is_cut_is_an_error_and_no_silence(relay):
    process = relay(chunked(b": ping\n\n", b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'))
    say(process, {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {}})
    assert hear(process)["method"] == "notifications/progress"
    told = hear(process)
    assert told["id"] == 5 and told["error"]


def test_a_stream_that_ends_without_an_answer_is_an_error(relay):
    process = relay(chunked(b": ping\n\n", b""))
    say(process, {"jsonrpc": "2.0", "id": 6, "method": "ping"})
    told = hear(process)
    assert told["id"] == 6 and told["error"]


@pytest.mark.parametrize("body", [b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no such box"}}',
                                  b'{"jsonrpc":"2.0","error":{"code":1,"message":"no such box"}}'])
def test_a_refusal_without_an_id_has_the_id_of_its_request(relay, body):
    process = relay(b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    say(process, {"jsonrpc": "2.0", "id": "mine", "method": "initialize"})
    told = hear(process)
    assert told["id"] == "mine" and told["error"] == {"code": 1, "message": "no such box"}


def test_line_ends_in_an_answer_stay_one_line(relay):
    body = b'{"jsonrpc":"2.0",\n"id":1,\r\n"result":\n{"jsonrpc":"2.0","id":2,"result":{}}\n}'
    process = relay(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    say(process, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert hear(process)["id"] == 1


def test_a_line_without_an_end_takes_no_memory(relay):
    process = relay(chunked(b""))
    for _ in range(200):
        process.stdin.write(b"x" * (1 << 20))
    process.stdin.write(b"\n")
    say(process, b"[1, 2")
    assert "large" in hear(process)["error"]["message"]
    assert hear(process)["error"]
    with open(f"/proc/{process.pid}/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    assert peak < 100 << 10


def test_what_is_no_request_is_told(relay):
    process = relay(None)
    say(process, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    assert hear(process)["error"]["code"] == -32600


def test_too_many_calls_are_told_and_can_be_cancelled(relay):
    process = relay(None)
    for i in range(65):
        say(process, {"jsonrpc": "2.0", "id": i, "method": "ping"})
    told = hear(process)
    assert told["id"] == 64 and "64" in told["error"]["message"]
    say(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
    say(process, {"jsonrpc": "2.0", "id": "again", "method": "ping"})
    wait_for(lambda: len(process.fake.held) == 65, "the next call has begun")
    process.stdin.close()
    assert process.wait(30) == 0


def test_what_was_asked_before_the_input_ended_is_answered(server):
    asked = [{"jsonrpc": "2.0", "id": i, "method": "tools/list"} for i in range(3)]
    done = server.carrel("mcp", data="".join(json.dumps(a) + "\n" for a in asked))
    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == [0, 1, 2]


def test_the_name_of_a_service_that_cannot_be_is_refused(server):
    done = server.carrel("mcp", "--service", "x" * 300, data="")
    assert done.returncode != 0 and "service" in done.stderr
