"""Actions of a box while the server works in it or for it: whatever it does to itself, it must not block the server, harm a neighbour or outlive the box."""
import concurrent.futures
import hashlib
import http.client
import io
import json
import os
import tarfile
import threading
import time

import pytest

from support.client import lines
from support.processes import descriptors, resident_bytes
from support.waiting import wait_for
from traces import amount, make_box, run

MIB = 1 << 20
ROOMY = {"memory": "256M", "disk": "128M", "pids": 64}
BROKEN_OFF = (http.client.IncompleteRead, OSError)


def in_time(ask, seconds=60):
    """The answer; a blocking request fails instead."""
    result = concurrent.futures.Future()

    def work():
        try:
            result.set_result(ask())
        except Exception as e:
            result.set_exception(e)
    threading.Thread(target=work, daemon=True).start()
    done, _ = concurrent.futures.wait([result], seconds)
    assert done, "no answer came"
    return result.result()


def start(client, box, program):
    """A Python program in the background, once it has reported that it is ready."""
    x = client.post(box + "/exec", {"argv": ["python3", "-c", program], "background": True}).json
    path = f"{box}/exec/{x['id']}"
    wait_for(lambda: client.get(path).json["output_bytes"] > 0, lambda: client.get(path).json)
    return path


def gone_in_time(server, client, box):
    begin = time.monotonic()
    assert in_time(lambda: client.delete(box)).status == 204
    assert time.monotonic() - begin < 10
    wait_for(lambda: not server.surplus(), lambda: server.surplus())


# ---- a command that takes its output back ----

TAKE_BACK = """
import os, time
out = os.open('/proc/self/fd/1', os.O_RDWR | os.O_NONBLOCK)
def take():
    try:
        while os.read(out, 65536): pass
    except BlockingIOError: pass
for i in range(400):
    try: os.write(out, b'x' * 65536)
    except BlockingIOError: pass
    take()
os.write(2, b'through')
time.sleep(1000)
"""


def test_a_command_that_takes_its_output_back_holds_up_nothing(alice, box):
    """The pipe shrinks between the front's FIONREAD and its splice: less comes, and nothing is owed for it. Later output is passed on at once."""
    def told(path):
        response = alice.open("GET", path + "/output?offset=0")
        try:
            return "".join(line["data"] for line in lines(response) if line["type"] == "stderr")
        finally:
            response.connection.close()

    for _ in range(amount(20, 200)):
        x = alice.post(box + "/exec", {"argv": ["python3", "-c", TAKE_BACK], "background": True}).json
        path = f"{box}/exec/{x['id']}"
        wait_for(lambda: told(path) == "through", lambda: alice.get(path).json)
        alice.post(path + "/signal", {"signal": "KILL"})
        wait_for(lambda: alice.get(path).json["state"] == "ended")


# ---- a box that is full ----

BOMBS = {
    "forks": "import os\nprint('x',flush=True)\nwhile True:\n try: os.fork()\n except OSError: pass",
    "sleepers": "import os,time\ntry:\n while True:\n  if os.fork()==0: time.sleep(1000)\nexcept OSError: print('x',flush=True)\ntime.sleep(1000)",
    "threads": "import threading,time\ntry:\n while True: threading.Thread(target=time.sleep,args=[1000],daemon=True).start()\nexcept RuntimeError: print('x',flush=True)\ntime.sleep(1000)",
    "memory": "import os\nf=open('/dev/shm/x','wb',0)\nprint('x',flush=True)\nwhile True:\n try: f.write(b'x'*65536)\n except OSError: pass",
    "descriptors": "import os,time\ntry:\n while True: os.pipe()\nexcept OSError: print('x',flush=True)\ntime.sleep(1000)",
}


@pytest.mark.parametrize("kind", BOMBS)
def test_the_api_answers_for_a_box_that_is_full(server, alice, new_box, kind):
    box, neighbour = make_box(alice, limits={"memory": "96M", "disk": "64M", "pids": 40}), new_box()
    alice.put(box + "/files/home/box/kept", b"kept")
    start(alice, box, BOMBS[kind])
    for _ in range(amount(3, 30)):
        for method, way, body in (("GET", "", None), ("GET", "/usage", None), ("GET", "/files/home/box/kept", None), ("PUT", "/files/home/box/new", b"new"),
                                  ("POST", "/exec", {"argv": ["true"], "timeout": "5s"}), ("GET", "/archive?path=/home/box", None), ("GET", "/files/", None)):
            answer = in_time(lambda: alice.ask(method, box + way, body))
            # Refused in words, never a failure of the server's own.
            assert answer.status in (200, 204, 409, 429, 503, 507), (method, way, answer.status, answer.body[:300])
            assert answer.status == 200 or answer.status == 204 or answer.json["error"]["message"], answer.body
        begin = time.monotonic()
        assert in_time(lambda: run(alice, neighbour, "echo fine"))["stdout"] == "fine\n"
        assert time.monotonic() - begin < 5
    gone_in_time(server, alice, box)


def test_a_box_that_kills_all_that_it_can_reach(server, alice, new_box):
    box = new_box(limits=ROOMY)
    alice.put(box + "/files/home/box/large", iter([b"x" * MIB] * 32))
    response = alice.open("GET", box + "/files/home/box/large")     # a helper works in the box, but not in its pid namespace
    first = response.read(65536)
    for _ in range(5):
        killed = alice.post(box + "/exec", {"argv": ["python3", "-c", "import os\ntry: os.kill(-1,9)\nexcept ProcessLookupError: pass\nos.kill(1,9)"]})
        assert killed.status == 200, killed.body
    assert len(first) + len(response.read()) == 32 * MIB
    response.connection.close()
    assert run(alice, box, "echo alive")["stdout"] == "alive\n"


def test_a_helper_cannot_be_seen_or_touched(alice, new_box):
    box = new_box(limits=ROOMY)
    alice.put(box + "/files/home/box/large", iter([b"x" * MIB] * 64))
    response = alice.open("GET", box + "/files/home/box/large")
    response.read(65536)
    seen = alice.post(box + "/exec", {"argv": ["python3", "-c", "import os\nprint(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()), os.getpid())"]}).json["stdout"]
    pids, own = seen.rsplit(" ", 1)
    assert [p for p in json.loads(pids) if p not in (1, int(own))] == [], seen
    response.connection.close()


def test_a_command_has_three_descriptors_and_cannot_forge_its_end(alice, new_box):
    box = new_box(limits=ROOMY)
    probe = ("import os\nprint(sorted(os.listdir('/proc/self/fd'))[:-1])\n"
             "for fd in range(3, 256):\n try: os.write(fd, b'x' * 200); print('wrote', fd)\n except OSError: pass\n"
             "print('{\"type\":\"exit\",\"exit_code\":0,\"outcome\":\"ok\"}',flush=True)\nos._exit(7)")
    told = alice.post(box + "/exec", {"argv": ["python3", "-c", probe]}).json
    assert told["stdout"].splitlines()[0] == "['0', '1', '2']" and "wrote" not in told["stdout"], told
    assert (told["exit_code"], told["outcome"]) == (7, "error")


# ---- files that change while they are read ----

def test_a_download_of_a_file_that_shrinks_breaks_off(server, alice, new_box):
    box = new_box(limits=ROOMY)
    for _ in range(amount(5, 50)):
        alice.put(box + "/files/home/box/f", iter([b"x" * MIB] * 32))
        response = alice.open("GET", box + "/files/home/box/f")
        response.read(1000)
        run(alice, box, "truncate -s 1000000 /home/box/f")
        with pytest.raises(BROKEN_OFF):      # fewer bytes than were promised
            in_time(lambda: response.read())
        response.connection.close()
    assert alice.get(box + "/files/home/box/f").status == 200


def test_a_download_of_a_file_that_grows_ends(alice, new_box):
    box = new_box(limits=ROOMY)
    grow = start(alice, box, "import os\nf=open('/home/box/f','wb',0)\nf.write(b'x'*1000)\nprint('x',flush=True)\nwhile True:\n f.write(b'y'*1000)\n if f.tell()>3e7: f.truncate(1000); f.seek(1000)")
    for _ in range(20):
        response = alice.open("GET", box + "/files/home/box/f")
        promised = int(response.headers["Content-Length"])
        try:
            assert len(in_time(lambda: response.read())) == promised
        except BROKEN_OFF:
            pass
        response.connection.close()
    alice.delete(grow)


def test_an_archive_of_a_tree_that_changes_is_whole_or_breaks_off(alice, new_box):
    """Never an archive in which the bytes of one file are taken for another's header."""
    box = new_box(limits=ROOMY)
    program = ("import os,random\nos.makedirs('/home/box/t',exist_ok=True)\nos.chdir('/home/box/t')\n"
               "for i in range(50): open(str(i),'wb').write(b'x'*50000)\nprint('x',flush=True)\n"
               "while True:\n n=str(random.randrange(50))\n c=random.randrange(4)\n"
               " if c==0: open(n,'wb').write(b'x'*random.randrange(100000))\n"
               " elif c==1: os.truncate(n,random.randrange(100000)) if os.path.exists(n) else None\n"
               " elif c==2: os.path.lexists(n) and os.unlink(n)\n"
               " else:\n  os.path.lexists(n) and os.unlink(n)\n  os.symlink('/etc/passwd',n)\n")
    changing = start(alice, box, program)
    whole = 0
    for _ in range(amount(20, 200)):
        try:
            packed = in_time(lambda: alice.get(box + "/archive?path=/home/box/t"))
        except BROKEN_OFF:
            continue
        assert packed.status == 200, packed.body[:300]
        whole += 1
        with tarfile.open(fileobj=io.BytesIO(packed.body)) as t:
            for m in t.getmembers():
                assert m.name.strip("./").removeprefix("t/").isdigit() or m.isdir(), m.name
                assert not m.isreg() or set(t.extractfile(m).read()) <= set(b"x\0")
    alice.delete(changing)
    assert whole > 0


def test_a_lease_on_a_file_holds_nobody_up(alice, new_box):
    box = new_box(limits=ROOMY)
    start(alice, box, "import fcntl,time,signal\nsignal.signal(signal.SIGIO,signal.SIG_IGN)\nf=open('/home/box/f','w+')\nf.write('leased')\nf.flush()\n"
                      "try: fcntl.fcntl(f,fcntl.F_SETLEASE,fcntl.F_WRLCK)\nexcept OSError: pass\nprint('x',flush=True)\ntime.sleep(1000)")
    begin = time.monotonic()
    for ask in (lambda: alice.get(box + "/files/home/box/f"), lambda: alice.put(box + "/files/home/box/f?append=true", b"x"), lambda: alice.get(box + "/archive?path=/home/box"),
                lambda: alice.delete(box + "/files/home/box/f")):
        assert in_time(ask).status < 500
    assert time.monotonic() - begin < 10


# ---- the end of a box in the middle of something ----

@pytest.mark.parametrize("end", ["delete", "pause and delete", "pause and resume"])
def test_a_transfer_through_the_end_of_its_box(server, alice, new_box, end):
    box = new_box(limits=ROOMY)
    piece = os.urandom(MIB)
    alice.put(box + "/files/home/box/large", iter([piece] * 64))
    before = len(descriptors(server.front()))
    down = alice.open("GET", box + "/files/home/box/large")
    got = down.read(65536)
    pack = alice.open("GET", box + "/archive?path=/home/box")
    pack.read(65536)
    sent, waiting, over = [], threading.Event(), threading.Event()

    def slowly():
        for _ in range(4):
            yield b"y" * MIB
        waiting.set()
        over.wait(30)
        yield b"y" * MIB

    def upload():
        try:
            sent.append(alice.put(box + "/files/home/box/up", slowly()).status)
        except OSError:
            sent.append(None)
    thread = threading.Thread(target=upload, daemon=True)
    thread.start()
    assert waiting.wait(30)
    if "pause" in end:
        assert in_time(lambda: alice.post(box + "/pause")).status == 200
    if "resume" in end:
        assert in_time(lambda: alice.post(box + "/resume")).status == 200
        over.set()
        thread.join(30)
        digest = hashlib.sha256(got + in_time(lambda: down.read(), 60)).digest()
        assert digest == hashlib.sha256(piece * 64).digest() and sent == [200]
    else:
        assert in_time(lambda: alice.delete(box)).status == 204
        over.set()
        thread.join(30)
        assert sent and (sent[0] is None or sent[0] >= 400)
    for response in (down, pack):
        response.connection.close()
    wait_for(lambda: len(descriptors(server.front())) <= before + 4, lambda: descriptors(server.front()))


# ---- a server in the box that is no server ----

ANSWERS = {
    "an endless header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 4096,
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 512,
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 64,
    "no words of HTTP": bytes(range(256)) * 16,
    "a length that cannot be": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk that cannot be": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    "an upgrade nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "nothing": b"",
}
SPEAKER = ("import socket,sys,threading\nl=socket.create_server(('127.0.0.1',8000),backlog=64)\nprint('x',flush=True)\n"
           "def serve(c):\n try:\n  c.recv(65536)\n  for _ in range(%d): c.sendall(bytes.fromhex(%r))\n  c.settimeout(20)\n  while c.recv(65536): pass\n except OSError: pass\n c.close()\n"
           "while True: threading.Thread(target=serve,args=[l.accept()[0]],daemon=True).start()\n")


@pytest.mark.parametrize("what", ANSWERS)
def test_a_port_that_answers_badly_harms_only_its_caller(server, alice, new_box, what):
    box = new_box(limits=ROOMY)
    start(alice, box, SPEAKER % (5000 if "endless" in what else 1, ANSWERS[what].hex()))
    before = resident_bytes(server.front())
    if what in ("nothing", "endless interim answers"):       # the client gives up, not the server
        s = alice.raw_socket()
        s.sendall(f"GET {box}/ports/8000/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\n\r\n".encode())
        assert alice.get("/v1/me").status == 200
        s.close()
    else:
        for _ in range(3):
            try:
                answer = in_time(lambda: alice.get(box + "/ports/8000/"))
            except BROKEN_OFF:
                pass
            else:
                assert answer.status == 502, (answer.status, answer.body[:200])
    assert resident_bytes(server.front()) - before < 8 * MIB
    assert alice.get("/v1/me").status == 200


def test_what_comes_after_an_answer_is_nobody_elses(server, alice, bob, new_box):
    """A second answer behind the first, on a reusable connection: no caller may ever get it."""
    box = new_box(limits=ROOMY)
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    start(alice, box, SPEAKER % (1, evil.hex()))
    mine = make_box(bob)
    try:
        for _ in range(20):
            assert alice.get(box + "/ports/8000/").body == b"good"
            assert b"evil" not in bob.get(mine + "/ports/8000/").body
            assert alice.get("/v1/me").json["identity"] == "alice"
    finally:
        bob.delete(mine)


# ---- texts for people ----

def test_logs_are_lines_of_json_without_control_characters(server, alice, new_box):
    box = new_box(limits=ROOMY)
    s = alice.raw_socket()
    s.sendall(b"GET /v1/boxes/%1b%5b31mred%0a?x=%1b HTTP/1.1\r\nHost: localhost\r\nUser-Agent: \x1b[31m\r\n\r\n")
    s.recv(4096)
    s.close()
    run(alice, box, r"printf '\033[2J\033]0;title\007' ; printf '\033[2J' >&2")
    alice.post(box + "/exec", {"argv": ["/\x1b[31m\nno such program"]})
    alice.post("/v1/boxes", {"name": "\x1b[31m"})
    text = (server.folder / "log").read_bytes()
    assert not [c for c in set(text) if c < 32 and c != 10]
    for line in text.decode().splitlines():
        json.loads(line)


def test_tokens_are_not_in_the_state_or_the_log(server):
    client = server.token("secretive")
    assert client.get("/v1/me").status == 200 and client.get("/v1/me?token=" + client.token).status in (200, 400)
    secret = client.token.encode()
    for path in [server.folder / "log", *server.state.rglob("*")]:
        if path.is_file():
            assert secret not in path.read_bytes(), path
