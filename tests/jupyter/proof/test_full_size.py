"""Bad input at its full size, through both doors, with IPython: what is too much is bounded and told, and a second person's kernel goes on answering.

All the while a witness runs a cell of its own again and again, and the memory of front and keeper is looked at. The small cuts of these are in tests/kernels,
tests/guest and tests/jupyter."""
import json
import os
import pathlib
import random
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import support.client as client  # noqa: E402
from conftest import serve  # noqa: E402
from support.waiting import wait_for
from support.client import WebSocket
from wire import V1, Wire  # noqa: E402

MB = 1 << 20
FRONT_MOST, KEEPER_MOST, SLOWEST_S, LONG_S = 256 * MB, 32 * MB, 10, 900


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def children(server):
    """Front and keeper, by the word that says what they are."""
    found = {}
    for child in pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split():
        words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        for word in (b"front", b"keeper"):
            if word in words:
                found[word.decode()] = int(child)
    return found


class Witness(threading.Thread):
    """Another identity's kernel, and the sizes of front and keeper."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.pids, self.wire = children(server), None
        assert set(self.pids) == {"front", "keeper"}, self.pids
        bob = server.token("bob")
        self.wire = Wire(bob, bob.post("/api/kernels", {}).json["id"])
        self.wire.run("1")
        self.begin()
        self.failure, self.over = None, False
        self.start()

    def begin(self):
        self.base = {name: resident(pid) for name, pid in self.pids.items()}
        self.most, self.slowest, self.answers = dict.fromkeys(self.pids, 0), 0, 0

    def run(self):
        try:
            while not self.over:
                start = time.monotonic()
                assert self.wire.run("1 + 1").result == ["2"]
                self.slowest = max(self.slowest, time.monotonic() - start)
                self.answers += 1
                for name, pid in self.pids.items():
                    self.most[name] = max(self.most[name], resident(pid) - self.base[name])
                time.sleep(0.02)
        except Exception as e:      # raised by check()
            self.failure = e

    def check(self):
        seen = self.answers
        assert wait_for(lambda: self.failure or self.answers > seen + 1, deadline_s=SLOWEST_S) and not self.failure, self.failure
        print(f"front +{self.most['front'] / MB:.0f} MB, keeper +{self.most['keeper'] / MB:.1f} MB, witness {self.answers} answers, slowest {self.slowest:.2f} s")
        assert self.most["front"] < FRONT_MOST and self.most["keeper"] < KEEPER_MOST and self.slowest < SLOWEST_S


@pytest.fixture(scope="module")
def place():
    server = serve("--set", "limits.memory=20G")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def someone(place):
    return Witness(place)


@pytest.fixture
def witness(someone):
    someone.begin()
    yield someone
    someone.check()


@pytest.fixture
def patient(monkeypatch):
    """Of the test's own client: what is asked here takes long."""
    monkeypatch.setattr(client, "TIMEOUT_S", LONG_S)


class Cells:
    def __init__(self, client, memory):
        self.client = client
        made = client.post("/v1/boxes", {"template": "python", "limits": {"memory": memory, "pids": 256}})
        assert made.status == 201, made.body
        self.path = "/v1/boxes/" + made.json["id"]
        assert self.run("x = 7")["outcome"] == "ok"

    def run(self, code, **more):
        answer = self.client.post(self.path + "/run", {"code": code, **more})
        assert answer.status == 200, answer.body[:500]
        return answer.json

    def events(self, code, **more):
        """Each line as it comes, parsed."""
        response = self.client.open("POST", self.path + "/run", {"code": code, **more}, {"Accept": "application/x-ndjson"})
        assert response.status == 200
        try:
            for line in response:
                yield json.loads(line)
        finally:
            response.connection.close()

    def lives(self):
        return self.run("x")["results"][0]["data"]["text/plain"] == "7"


@pytest.fixture
def cells(place, patient):
    made = []

    def make(memory="1G"):
        made.append(Cells(place.token("alice"), memory))
        return made[-1]

    yield make
    for c in made:
        assert c.client.delete(c.path).status == 204


def test_a_result_of_a_gigabyte_is_said_to_be_too_large(cells, witness):
    c = cells("10G")
    for code in ["'y' * (1 << 30)", "from IPython.display import display; display({'text/plain': 'y' * (1 << 30)}, raw=True)"]:
        answer = c.run(code, timeout=600)
        assert answer["outcome"] == "ok" and "too large" in json.dumps(answer["results"]), str(answer)[:500]
    assert c.lives()


def test_a_result_of_a_gigabyte_in_a_small_box_is_out_of_memory(cells, witness):
    c = cells("512M")
    answer = c.run("'y' * (1 << 30)", timeout=600)
    assert answer["outcome"] == "oom" or answer["error"]["name"] == "MemoryError", answer
    assert c.run("1 + 1")["results"][0]["data"]["text/plain"] == "2"


def test_a_gigabyte_of_text_is_streamed(cells, witness):
    c, size, last = cells(), 0, None
    for event in c.events("line = 'y' * 99_999\nfor i in range(10_000): print(line)", output_limit="2G", timeout=600):
        size += len(event.get("text", ""))
        last = event
    assert last["outcome"] == "ok" and size == 1_000_000_000 and c.lives()


def test_a_million_displays(cells, witness):
    c, n, last = cells(), 0, None
    code = "publish = get_ipython().display_pub.publish\nfor i in range(1_000_000): publish({'text/plain': '%d' % i})"
    for event in c.events(code, output_limit="2G", timeout=800):
        if event["type"] == "display":
            assert event["data"]["text/plain"] == str(n)
            n += 1
        last = event
    assert last["outcome"] == "ok" and n == 1_000_000 and c.lives()


def test_a_million_displays_in_one_answer_have_a_bound(cells, witness):
    c = cells()
    code = "publish = get_ipython().display_pub.publish\nfor i in range(1_000_000): publish({'text/plain': 'z'})"
    answer = c.run(code, output_limit="4M", timeout=600)
    assert answer["outcome"] == "output_limit" and 1000 < len(answer["results"]) < 1_000_000 and c.lives()


def test_a_hundred_megabytes_of_code(place, cells, witness):
    c = cells("2G")
    try:
        answer = c.client.post(c.path + "/run", b'{"code": "' + b"x" * 100_000_000 + b'"}')
        assert answer.status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert c.lives()
    alice = place.token("alice")
    kernel = alice.post("/api/kernels", {}).json["id"]
    for protocol in (None, V1):
        wire = Wire(alice, kernel, protocol=protocol)
        head = b"\x81" if protocol is None else b"\x82"
        try:
            wire.sock.sendall(head + b"\xff" + (100_000_000).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 100_000_000)
            with pytest.raises(EOFError):
                wire.until(lambda m: False)
            assert wire.closed[0] == 1009
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert Wire(alice, kernel).run("1 + 1").result == ["2"]
    assert alice.delete(f"/api/kernels/{kernel}").status == 204


def test_threads_that_print_for_ever_after_their_cell(cells, witness):
    c = cells()
    code = "import threading\ndef flood():\n  while True: print('y' * 1000)\nfor i in range(3): threading.Thread(target=flood, daemon=True).start()"
    assert c.run(code)["outcome"] == "ok"
    seen = witness.answers
    wait_for(lambda: witness.answers > seen + 200)
    assert c.run("x", timeout=60)["outcome"] in ("ok", "output_limit")
    assert c.client.post(c.path + "/kernels/default/restart").status == 200 and c.run("1")["outcome"] == "ok"


ODD = {
    "nan": "float('nan')",
    "nan in json": "from IPython.display import display; display({'application/json': {'a': [float('nan'), float('inf')]}}, raw=True)",
    "surrogates": "print('\\udcff\\ud800' * 100_000); '\\ud800'",
    "surrogates in json": "from IPython.display import display; display({'application/json': {'\\udcff': '\\ud800'}}, raw=True)",
    "circular": "l = []; l.append(l); d = {}; d['d'] = d; (l, d)",
    "circular json": "from IPython.display import display; d = {}; d['d'] = d; display({'application/json': d}, raw=True)",
    "deep": "l = []\nfor i in range(100_000): l = [l]\nl",
    "raising repr": "class R:\n  def __repr__(self): raise ValueError('no')\n[R()] * 10",
    "repr that is no text": "class R:\n  def __repr__(self): return 5\nR()",
    "repr that exits": "class R:\n  def __repr__(self): raise SystemExit(3)\nR()",
    "exception without text": "class E(Exception):\n  def __str__(self): raise ValueError\nraise E()",
    "forks": "import os\nfor i in range(50):\n  if os.fork() == 0: os._exit(0)\nfor i in range(50): os.wait()",
    "fork that goes on": "import os\npid = os.fork()\nprint('both')",
    "not utf-8": "import os; os.write(1, bytes(range(256)) * 1000)",
    "not utf-8 source": "exec(b'\\xff\\xfe = 1')",
    "closed output": "import sys; sys.stdout.close(); print(1)",
    "closed descriptors": "import os; os.close(1); os.close(2); print(1)",
}


@pytest.mark.parametrize("code", ODD.values(), ids=ODD)
def test_odd_cells_are_told_and_the_next_one_runs(cells, witness, code):
    c = cells()
    answer = c.run(code, timeout=60)
    assert answer["outcome"] in ("ok", "error", "died"), answer
    assert c.run("1 + 1")["results"][0]["data"]["text/plain"] == "2"


@pytest.mark.parametrize("code, outcome, word", [
    ("import os; os._exit(3)", "died", "3"), ("import os; os.kill(os.getpid(), 11)", "killed", "SEGV"), ("import os; os.kill(0, 9)", "killed", "KILL"),
    ("import time\nclass S:\n  def __repr__(self): time.sleep(600)\nS()", "timeout", "")])
def test_deaths_and_sleepers_have_a_reason(cells, witness, code, outcome, word):
    c = cells()
    answer = c.run(code, timeout=3)
    assert answer["outcome"] == outcome and word in json.dumps(answer), answer
    assert c.run("1 + 1")["results"][0]["data"]["text/plain"] == "2"


def test_code_that_is_not_text(place, cells, witness):
    c = cells()
    for body in [b'{"code": "\xff\xfe"}', b'{"code": "\\ud800"}', b"\xff" * 1000, '{"code": "1"}'.encode("utf-16"), b'{"code": "a\\u0000b"}']:
        answer = c.client.post(c.path + "/run", body)
        assert answer.status in (200, 400), answer.body
    assert c.lives()
    alice = place.token("alice")
    kernel = alice.post("/api/kernels", {}).json["id"]
    wire = Wire(alice, kernel)
    for code in ["\ud800", "a\0b", "print('\udcff')"]:      # escapes in JSON: valid there, and no text
        assert wire.run(code).reply["status"] in ("ok", "error")
    assert wire.run("1 + 1").result == ["2"]
    assert alice.delete(f"/api/kernels/{kernel}").status == 204


def test_thousands_of_malformed_frames(place, witness):
    alice, chance = place.token("alice"), random.Random(7)
    kernel = alice.post("/api/kernels", {}).json["id"]
    path = f"/api/kernels/{kernel}/channels"
    fds = len(os.listdir(f"/proc/{witness.pids['front']}/fd"))
    good = json.dumps({"header": {"msg_id": "a", "msg_type": "kernel_info_request"}, "content": {}}).encode()
    for i in range(2000):
        ws = WebSocket(alice, path, [f"Sec-WebSocket-Protocol: {V1}"] if i % 2 else [])
        assert ws.status == 101
        if i % 3 == 0:
            ws.sock.sendall(chance.randbytes(chance.randrange(1, 300)))                 # frames
        else:
            data = bytearray(good)
            for _ in range(chance.randrange(1, 6)):                                      # messages
                data[chance.randrange(len(data))] = chance.randrange(256)
            try:
                ws.send(bytes(data), chance.choice([WebSocket.TEXT, WebSocket.BINARY]))
            except OSError:
                pass
        ws.sock.close()
    wait_for(lambda: alice.get(f"/api/kernels/{kernel}").json["connections"] == 0)
    wait_for(lambda: len(os.listdir(f"/proc/{witness.pids['front']}/fd")) <= fds + 2)
    assert Wire(alice, kernel).run("1 + 1").result == ["2"]
    assert alice.delete(f"/api/kernels/{kernel}").status == 204
