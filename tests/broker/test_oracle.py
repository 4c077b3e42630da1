"""What a box can learn of a value from answers with text that it chose: from the sizes of chunks and of TLS records, and from what comes when. The
upstream is an honest one: it repeats a request's body, and no header."""

import json
import re

import pytest
from keys import HOST, VALUE, command, variables

from support.users import ORDINARY

# One TLS record at a time, so that their sizes are seen. `go` lets the upstream send the second piece of its answer.
WIRE = """
import http.client, json, os, socket, ssl, sys, time
HOST, KEY = "%s", os.environ["API_KEY"]
class Wire:
    def __init__(self):
        self.socket, self.came, self.sent = socket.create_connection((HOST, 443), timeout=20), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ssl.create_default_context().wrap_bio(self.came, self.sent, server_hostname=HOST)
        while True:
            try: self.tls.do_handshake(); break
            except ssl.SSLWantReadError: self.flush(); self.fetch()
        self.flush()
    def flush(self):
        self.socket.sendall(self.sent.read())
    def exactly(self, n):
        got = b""
        while len(got) < n:
            more = self.socket.recv(n - len(got))
            if not more: raise EOFError
            got += more
        return got
    def fetch(self):
        head = self.exactly(5); self.came.write(head + self.exactly(int.from_bytes(head[3:])))
    def record(self):
        while True:
            self.fetch()
            try: return self.tls.read(1 << 15)
            except ssl.SSLWantReadError: pass
    def ask(self, path, body=b""):
        self.tls.write(b"POST %%s HTTP/1.1\\r\\nHost: %%s\\r\\nAuthorization: Bearer %%s\\r\\nContent-Length: %%d\\r\\n\\r\\n" %% (path.encode(), HOST.encode(), KEY.encode(), len(body)) + body)
        self.flush()
def parts(data):
    chunks = []
    while b"\\r\\n" in data:
        size, data = data.split(b"\\r\\n", 1); n = int(size, 16); chunks.append(data[:n]); data = data[n + 2:]
    return chunks
side = http.client.HTTPSConnection(HOST, context=ssl.create_default_context(), timeout=20)
def go(name):
    side.request("GET", "/go?" + name); side.getresponse().read()
""" % HOST

PROBE = WIRE + """
def shape(wire, how, name, text):
    wire.ask("/reflect?%s,%s" % (how, name), text)
    records, data, chunked = [], b"", how != "length"
    def more(enough):
        nonlocal data
        while b"\\r\\n\\r\\n" not in data or not enough(data.split(b"\\r\\n\\r\\n", 1)[1]):
            one = wire.record(); records.append(len(one)); data += one
        return data.split(b"\\r\\n\\r\\n", 1)[1]
    body = more(lambda body: len(b"".join(parts(body)) if chunked else body) >= len(text) - (0 if chunked else HELD))
    before, n_records = [len(one) for one in parts(body)] if chunked else len(body), len(records)
    go(name)
    body = more(lambda body: body.endswith(b"0\\r\\n\\r\\n") if chunked else len(body) == len(text) + 5)
    whole = b"".join(parts(body)) if chunked else body
    assert whole.endswith(b" rest"), whole
    if how == "close": return records[:n_records], before, whole.decode()
    return records, [len(one) for one in parts(body)] if chunked else before, whole.decode()
how, HELD, texts = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
wire, found = Wire(), []
for i, text in enumerate(texts):
    if how == "close": wire = Wire()
    try: found.append(shape(wire, how, str(os.getpid() * 1000 + i), text.encode()))
    except TimeoutError: sys.exit("held back while the upstream pauses: " + text)
print(json.dumps(found))
"""


@pytest.fixture(params=["root", ORDINARY])
def box(request, upstream, shared_programs):
    user = None if request.param == "root" else request.param

    def run(code, *words, value=VALUE):
        done = upstream.world.host.run(*command(user, [], "python3", "-c", code, *words, carrel=shared_programs / "carrel" if user else None), check=False,
                                       capture_output=True, text=True, cwd="/", timeout=120, env=variables(value))  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def differs(text):
    return text[:-1] + ("!" if text[-1] != "!" else "?")


@pytest.mark.parametrize("how, before", [("chunks", "~~"), ("chunks", "~" * 50), ("length", "~" * 50), ("close", "~" * 50)])
def test_a_guess_does_not_show_in_the_shape_of_an_answer(box, how, before):
    """A text that begins the value, one that differs in its last byte, one that has nothing of it: each with the same records, the same chunks,
    and whole before the upstream goes on."""
    sizes = [1, 2, 3, 8, 20, len(VALUE) - 1, len(VALUE)]
    texts = [before + one for n in sizes for one in (VALUE[:n], differs(VALUE[:n]), "!" * n)]
    found = json.loads(box(PROBE, how, str(len(VALUE) - 1), json.dumps(texts)))
    for i, n in enumerate(sizes):
        right, nearly, wrong = found[3 * i : 3 * i + 3]
        assert right[:2] == nearly[:2] == wrong[:2], (n, right, nearly, wrong)
        # Only the whole value is another text.
        assert right[2] == before + (VALUE[:n] if n < len(VALUE) else "*" * n) + " rest"
        assert (nearly[2], wrong[2]) == (f"{before}{differs(VALUE[:n])} rest", f"{before}{'!' * n} rest")


def test_a_box_that_does_not_read_does_not_choose_where_a_value_is_cut(box):
    """What it makes the upstream wait for is no pause."""
    found = box(WIRE + """
import array, fcntl, select, termios
wire, data, waiting = Wire(), bytearray(), []
wire.ask("/leak-late?" + str(os.getpid()))
# Nothing more comes in: egress, broker and all sockets on the way are full.
while len(waiting) < 10 or len(set(waiting[-10:])) > 1:
    n = array.array("i", [0]); fcntl.ioctl(wire.socket, termios.FIONREAD, n); waiting.append(n[0] or -len(waiting))
    side.request("GET", "/hello"); side.getresponse().read()
while len(data) < 16 << 20: data += wire.record()
while select.select([wire.socket], [], [], 0.3)[0]: data += wire.record()
go(str(os.getpid()))
while not data.endswith(b"0\\r\\n\\r\\n"): data += wire.record()
print(data[-300:].decode())
""")
    assert "*" * len(VALUE) in re.sub("\n[0-9a-f]+\n", "", found) and VALUE[:3] not in found, found


def test_an_event_does_not_wait_for_the_next_one(box):
    took = json.loads(box(WIRE + """
took = []
for i in range(5):
    c, name, event = http.client.HTTPSConnection(HOST, context=ssl.create_default_context(), timeout=20), "%d-%d" % (os.getpid(), i), b"data: a token of a model, and more\\n\\n"
    c.request("POST", "/reflect?chunks," + name, event, {"Authorization": "Bearer " + KEY})
    answer = c.getresponse(); t = time.monotonic()
    assert answer.readline() + answer.readline() == event
    took.append(time.monotonic() - t); go(name); assert answer.read() == b" rest"
print(json.dumps(sorted(took)))
"""))
    assert took[2] < 1, took


@pytest.mark.parametrize("coding", ["gzip", "identity, br", "something"])
def test_an_answer_in_a_coding_is_refused(box, coding):
    """Its length would tell a box whether its text occurs in the value, and the value in it would not be masked."""
    found = box(WIRE + f"""
c = http.client.HTTPSConnection(HOST, context=ssl.create_default_context(), timeout=20)
c.request("GET", "/compressed?" + {coding.replace(" ", "")!r}, headers={{"Authorization": "Bearer " + KEY, "Accept-Encoding": "gzip"}})
answer = c.getresponse(); print(answer.status, answer.getheader("Content-Encoding"), answer.read().decode())
""")
    assert found.startswith("502 None ") and "it sent an answer with a Content-Encoding" in found, found


def test_other_forms_of_a_value_are_not_masked(box):
    """As docs/broker.md says."""
    found = box(WIRE + """
c = http.client.HTTPSConnection(HOST, context=ssl.create_default_context(), timeout=20)
c.request("GET", "/leak-encoded", headers={"Authorization": "Bearer " + KEY}); print(c.getresponse().read().decode())
""")
    assert "*" not in found and VALUE.upper() in found and VALUE[::-1] in found and VALUE not in found
