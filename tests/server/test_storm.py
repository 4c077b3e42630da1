"""kill -9 of the front, of the keeper and of both, at any moment, while clients work: live boxes continue, half-made ones are undone, nothing is left.

CARREL_KILLS is the number of kills; CARREL_SEED repeats the choices (not the moments) of an earlier run."""
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time

import pytest

from support.client import Client
from support.processes import descriptors, processes, status_of
from support.waiting import wait_for
from traces import GONE, POOL_SIZE, SMALL, Counter, Server, all_boxes, amount, descendants, make_box, run

KILLS = int(os.environ.get("CARREL_KILLS", amount(40, 1000)))
SEED = int(os.environ.get("CARREL_SEED", time.time_ns()))
ON_DISK = {"store": "disk", "limits": {"memory": "64M", "disk": "64M", "pids": 32}}
BROKEN = (OSError, http.client.HTTPException, json.JSONDecodeError)


class Worker(threading.Thread):
    """Makes a box, uses it, deletes it, again and again. The server may be gone at any moment; but its answers must make sense."""
    def __init__(self, client, seed):
        super().__init__(daemon=True)
        self.client, self.random = client, random.Random(seed)
        self.over = threading.Event()
        self.complaints, self.created, self.asked = [], 0, 0

    def ask(self, method, path, body=None, expected=()):
        answer = self.client.ask(method, path, body)
        self.asked += 1
        # 404 and 409: the keeper was killed, and the box with it. 503: it is not back yet. 507: the box was, while a file was written.
        if answer.status not in (*expected, 404, 409, 503, 507):
            self.complaints.append(f"{method} {path}: {answer.status} {answer.body[:500]}")
        return answer

    def turn(self):
        body = {"labels": {"storm": "yes"}}
        on_disk = self.random.random() < 0.1
        if on_disk:
            body.update(ON_DISK)
        elif self.random.random() < 0.7:      # else one like those that are kept ready
            body["limits"] = SMALL
        if self.random.random() < 0.2:
            self.ask("POST", "/v1/boxes?wait=false", body, expected=[202])
            return
        made = self.ask("POST", "/v1/boxes", body, expected=[201])
        if made.status != 201:
            return
        self.created += 1
        box = "/v1/boxes/" + made.json["id"]
        for _ in range(self.random.randrange(4)):
            what = self.random.randrange(6)
            if what == 0:
                self.ask("POST", box + "/exec", {"argv": ["sleep", "1000"], "background": True}, expected=[202])
            elif what == 1:
                done = self.ask("POST", box + "/exec", {"shell": "echo a; echo b >&2"}, expected=[200])
                if done.status == 200 and done.json["outcome"] == "ok" and (done.json["stdout"], done.json["stderr"]) != ("a\n", "b\n"):
                    self.complaints.append(f"wrong output: {done.body}")
            elif what == 2:
                self.ask("PUT", box + "/files/tmp/x", os.urandom(100000), expected=[200, 201, 204])
            elif what == 3:
                self.ask("GET", box + "/files/", expected=[200])
            elif what == 4:
                self.ask("POST", box + "/pause", expected=[200])
            else:
                self.ask("GET", box + "/usage", expected=[200])
        if on_disk and self.random.random() < 0.5:
            self.ask("POST", box + "/stop", expected=[200])
            self.ask("POST", box + "/start", expected=[200])
        if self.random.random() < 0.7:
            self.ask("DELETE", box, expected=[204])

    def run(self):
        while not self.over.is_set():
            try:
                self.turn()
            except BROKEN:
                time.sleep(0.02)


@pytest.fixture
def stormy():
    s = Server("--set", "limits.memory=8G")
    yield s
    s.stop()


def check_state(server):
    """The database agrees with the API and the file system."""
    boxes = server.rows("SELECT number, id, phase, alive FROM boxes")
    for _, box, phase, alive in boxes:
        shown = server.admin.get("/v1/boxes/" + box)
        if shown.status == 404 and not alive:       # the oldest of very many dead are forgotten meanwhile
            wait_for(lambda: not server.rows(f"SELECT 1 FROM boxes WHERE id = '{box}'"), lambda: box)
            continue
        assert shown.status == 200 and (shown.json["phase"] not in ("failed", "deleted")) == bool(alive), (box, phase, alive, shown.body)
    dead = {number for number, _, _, alive in boxes if not alive}
    execs = server.rows("SELECT id, box, ended FROM execs")
    assert not [x for x, box, ended in execs if box in dead and not ended]
    assert server.logs() <= {x for x, _, _ in execs}


def who_runs(pids):
    """For the message of a failure; processes that have ended meanwhile are left out."""
    text = ""
    for p in pids:
        try:
            status = status_of(p)
            text += (f"{p} {status['Name']} {status['State']} parent {status['PPid']} ns {status['NSpid']} pending {status['ShdPnd']} "
                     f"at {pathlib.Path(f'/proc/{p}/wchan').read_text()} in {pathlib.Path(f'/proc/{p}/cgroup').read_text().split()}\n")
        except OSError:
            pass
    return text


def nothing_is_left_of_the_last_keeper(server):
    seen = []

    def has_none():
        seen[:] = server.orphans()
        seen[:] = [(p, who_runs([p])) for p in seen]        # as long as they are there to be described
        return not seen
    wait_for(has_none, lambda: seen)
    pid = server.note_keeper()
    older = lambda: [leaf for leaf in server.leaves() if leaf.split("-")[2] != str(pid)]
    wait_for(lambda: not older(), lambda: older())


def settle(server, baseline):
    """All boxes are deleted; then nothing of them is left."""
    admin = server.admin
    alive = lambda: [b for b in all_boxes(admin) if b["phase"] not in GONE]
    for box in alive():
        answer = admin.delete("/v1/boxes/" + box["id"])
        assert answer.status in (204, 409), answer.body
    wait_for(lambda: not alive(), lambda: alive())
    nothing_is_left_of_the_last_keeper(server)
    wait_for(lambda: not server.surplus(), lambda: server.surplus())
    below = lambda: descendants(server.process.pid)
    wait_for(lambda: len(below()) <= baseline["processes"], lambda: who_runs(below()))
    assert server.mounts() == baseline["mounts"]
    wait_for(lambda: not server.loops(), lambda: server.loops())
    wait_for(lambda: server.files() == baseline["files"], lambda: server.files() ^ baseline["files"])
    for who in (server.front(), server.keeper()):
        count = lambda: len(os.listdir(f"/proc/{who}/fd"))
        wait_for(lambda: count() <= baseline["descriptors"], lambda: descriptors(who), deadline_s=20)
    free = lambda: admin.get("/v1/info").json["free"]["memory"]
    wait_for(lambda: free() == baseline["free"], lambda: (free(), baseline["free"]))


def stalled(client, counter, server):
    """The facts about a counter that has stopped."""
    there = client.post(counter.path.split("/exec/")[0] + "/exec", {"shell": "ps ax"}).body.decode()
    return json.dumps(client.get(counter.path).json) + "\n" + there + "\n" + server.log_text()[-3000:]


def take_baseline(server):
    """With the pool's boxes ready; one of every kind existed before."""
    for body in ({"limits": None}, {}, ON_DISK):
        box = make_box(server.admin, **body)
        run(server.admin, box, "true")
        server.admin.delete(box)
    wait_for(lambda: len(server.inits()) == len(server.leaves()) == POOL_SIZE, lambda: (server.inits(), server.leaves()))
    return {"processes": len(descendants(server.process.pid)), "mounts": server.mounts(), "files": server.files(), "free": server.admin.get("/v1/info").json["free"]["memory"],
            "descriptors": max(len(os.listdir(f"/proc/{p}/fd")) for p in (server.front(), server.keeper())) + 16}


class Keepsake:
    """A box in memory with a counter, and one on disk with a file: the expected effect of a kill on each is known."""
    def __init__(self, client):
        self.client, self.box, self.counter, self.written = client, None, None, 0
        self.disk = make_box(client, name="keepsake", **ON_DISK)

    def prepare(self):
        if self.box is None:
            self.box = make_box(self.client)
            self.counter = Counter(self.client, self.box)
        self.written += 1
        assert self.client.put(self.disk + "/files/home/box/kept", f"number {self.written}".encode()).status == 200

    def check(self):
        assert self.client.get(self.disk + "/files/home/box/kept").body == f"number {self.written}".encode()

    def after_the_front(self, server):
        client, counter = self.client, self.counter
        for box in (self.box, self.disk):
            assert client.get(box).json["phase"] == "running"
            assert run(client, box, "echo still here")["stdout"] == "still here\n"
        self.check()
        seen = counter.check_more()
        wait_for(lambda: counter.check_more() > seen, lambda: stalled(client, counter, server))
        wait_for(lambda: client.get(counter.path).json["state"] == "running")

    def after_the_keeper(self, server):
        client = self.client
        # The front may have answered that it is ready just before it noticed.
        wait_for(lambda: client.get(self.box).json["phase"] == "failed")
        assert client.get(self.box).json["reason"] == "keeper_lost"
        self.counter.check_all()
        ended = client.get(self.counter.path).json
        assert ended["state"] == "ended" and (ended["outcome"] == "killed" or "the keeper" in ended["error"]["message"]), ended
        self.box, self.counter = None, None
        wait_for(lambda: client.get(self.disk).json["phase"] == "stopped", lambda: client.get(self.disk).json)
        started = client.post(self.disk + "/start")
        assert started.status == 200, started.body
        self.check()


def test_nothing_is_lost_and_nothing_left_in_a_storm_of_kills(stormy):
    server, choose = stormy, random.Random(SEED)
    print("CARREL_SEED=%d" % SEED)
    baseline, killed, begin = take_baseline(server), {}, time.monotonic()
    clients = [server.token("storm%d" % i) for i in range(3)] + [server.admin]
    workers = [Worker(client, choose.random()) for client in clients]
    keepsake = Keepsake(server.token("keepsake"))
    for w in workers:
        w.start()
    try:
        for number in range(KILLS):
            keepsake.prepare()
            time.sleep(choose.random() * 0.15)
            who = choose.choices([("front",), ("keeper",), ("front", "keeper")], [7, 2, 2])[0]
            server.kill(*who)
            killed["+".join(who)] = killed.get("+".join(who), 0) + 1
            if "keeper" in who:
                keepsake.after_the_keeper(server)
                nothing_is_left_of_the_last_keeper(server)
            else:
                keepsake.after_the_front(server)
            assert not [w.complaints for w in workers if w.complaints], [w.complaints for w in workers]
    finally:
        for w in workers:
            w.over.set()
        for w in workers:
            w.join(60)
    if keepsake.counter:
        keepsake.counter.check_all()
    assert sum(w.created for w in workers) > 0
    check_state(server)
    settle(server, baseline)
    print(f"killed {killed} in {time.monotonic() - begin:.0f} s; {sum(w.created for w in workers)} boxes made and {sum(w.asked for w in workers)} requests answered meanwhile")


def test_the_output_of_a_command_is_whole_when_the_front_dies_in_the_middle_of_it(stormy):
    """Much output on both streams at once, and kills so fast that they hit frames that are being written."""
    client = stormy.token("alice")
    box = make_box(client)
    line = "i=0; while [ $i -lt 40000 ]; do echo $i; echo $i >&2; i=$((i+1)); done"
    x = client.post(box + "/exec", {"shell": line, "background": True}).json
    path = f"{box}/exec/{x['id']}"
    for _ in range(amount(4, 40)):
        stormy.kill("front")
        if client.get(path).json["state"] == "ended":
            break
    wait_for(lambda: client.get(path).json["state"] == "ended")
    response = client.open("GET", path + "/output")
    got = {"stdout": "", "stderr": ""}
    for line in response:
        line = json.loads(line)
        if line["type"] in got:
            got[line["type"]] += line["data"]
    want = "".join("%d\n" % i for i in range(40000))
    assert got["stdout"] == want and got["stderr"] == want
    assert client.get(path).json["outcome"] == "ok"


def test_a_foreground_command_ends_with_the_front_that_ran_it(stormy):
    """Its client cannot come back to it, so it would never be ended."""
    client = stormy.token("alice")
    box = make_box(client)
    s = client.raw_socket()
    body = json.dumps({"argv": ["sleep", "1000"]})
    s.sendall(f"POST {box}/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.token}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    states = lambda: [x["state"] for x in client.get(box + "/exec").json["execs"]]
    wait_for(lambda: states() == ["running"])
    stormy.kill("front")
    wait_for(lambda: states() == ["ended"])
    wait_for(lambda: client.get(box + "/usage").json["pids"] <= 3)
    s.close()


def test_a_command_that_was_promised_is_not_lost_with_the_front(stormy):
    """The keeper is busy, so that requests wait in the front, and with it they are lost: then no client may have been told that its request was accepted."""
    client = stormy.token("alice")
    box = make_box(client, limits={"memory": "256M", "disk": "32M", "pids": 100})
    body = json.dumps({"argv": ["sleep", "1000"], "background": True})
    asked = [client.raw_socket() for _ in range(40)]
    keeper = stormy.keeper()
    os.kill(keeper, signal.SIGSTOP)
    try:
        for s in asked:
            s.sendall(f"POST {box}/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.token}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        stored = lambda: stormy.rows("SELECT count(*) FROM execs")[0][0]
        wait_for(lambda: stored() == len(asked), lambda: stored())
        os.kill(stormy.front(), signal.SIGKILL)
    finally:
        os.kill(keeper, signal.SIGCONT)
    promised = []
    for s in asked:
        try:
            answer = s.recv(65536)
        except ConnectionResetError:
            answer = b""
        if answer.startswith(b"HTTP/1.1 202"):
            promised.append(json.loads(answer.split(b"\r\n\r\n", 1)[1])["id"])
        s.close()
    wait_for(stormy.is_ready)
    wait_for(lambda: {client.get(f"{box}/exec/{x}").json["state"] for x in promised} <= {"running"})
    # The others run or say why not.
    everything = lambda: client.get(box + "/exec").json["execs"]
    wait_for(lambda: all(x["state"] == "running" or x["state"] == "ended" and x["error"] for x in everything()), lambda: everything())


def test_a_front_that_hangs_is_dropped_and_finds_everything_when_it_goes_on(stormy):
    """So many commands end meanwhile that the keeper cannot send all events; it waits for a while and then drops the front."""
    client = stormy.token("alice")
    box = make_box(client, limits={"memory": "256M", "disk": "32M", "pids": 200})
    started = [client.post(box + "/exec", {"shell": f"read x; echo done {i}", "stdin": True, "background": True}).json["id"] for i in range(40)]
    get = lambda x: client.get(f"{box}/exec/{x}").json
    wait_for(lambda: all(get(x)["state"] == "running" for x in started))
    front, keeper = stormy.front(), stormy.keeper()
    os.kill(front, signal.SIGSTOP)
    try:
        inside = [p for p in descendants(keeper) if status_of(p)["Name"].strip() == "sh"]
        assert len(inside) == len(started)
        for p in inside:
            os.kill(p, signal.SIGTERM)
        # The keeper has dropped it when no end of its socket is connected any more.
        gone = lambda: not (descendants(keeper) & set(inside))
        wait_for(gone, lambda: "they still run")
        time.sleep(7)       # longer than its patience; what it does then cannot be seen from outside
    finally:
        os.kill(front, signal.SIGCONT)
    wait_for(lambda: all(get(x)["state"] == "ended" and get(x)["signal"] == signal.SIGTERM for x in started), lambda: [get(x) for x in started])
    assert stormy.front() == front and stormy.keeper() == keeper
    assert run(client, box, "echo fine")["stdout"] == "fine\n"
    again = [client.post(box + "/exec", {"argv": ["true"], "background": True}).status for _ in range(50)]
    assert again == [202] * 50      # every slot is free again


def test_every_slot_is_free_again_after_the_front_died_with_file_helpers_open(stormy):
    client = stormy.token("alice")
    box = make_box(client, limits={"memory": "256M", "disk": "64M", "pids": 200})
    for _ in range(2):
        for i in range(3):
            assert client.put(f"{box}/files/tmp/{i}", b"x").status < 300
        stormy.kill("front")
    started = [client.post(box + "/exec", {"argv": ["sleep", "100"], "background": True}) for _ in range(64)]
    assert [x.status for x in started] == [202] * 64
    ids = [x.json["id"] for x in started]
    states = lambda: {x["id"]: x["state"] for x in client.get(box + "/exec").json["execs"]}
    wait_for(lambda: all(states()[i] == "running" for i in ids), lambda: states())


def test_a_supervisor_that_is_killed_takes_front_and_keeper_along(stormy):
    client = stormy.token("alice")
    box = make_box(client)
    Counter(client, box)
    baseline_own = {stormy.front(), stormy.keeper()}
    stormy.note_keeper()
    os.kill(stormy.process.pid, signal.SIGKILL)
    stormy.process.wait()
    gone = lambda: not (baseline_own & {p for p, (_, state) in processes().items() if state not in "ZX"})
    wait_for(gone, lambda: "front or keeper still run")
    wait_for(lambda: not stormy.cgroups())
    stormy.start()
    shown = Client(stormy.tcp, client.token).get(box).json
    assert (shown["phase"], shown["reason"]) == ("failed", "keeper_lost")


def test_a_stop_ends_everything(stormy):
    client = stormy.token("alice")
    for _ in range(3):
        Counter(client, make_box(client))
    stormy.note_keeper()
    stormy.process.send_signal(signal.SIGTERM)
    assert stormy.process.wait(30) == 0
    assert not stormy.cgroups() and not stormy.loops()
    assert not pathlib.Path(stormy.socket).exists()
    stormy.start()
    assert {b["phase"] for b in client.get("/v1/boxes?limit=100").json["boxes"]} <= {"failed", "deleted"}
