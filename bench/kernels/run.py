"""Kernels, measured through the API: a private server whose template is an environment with pandas, and beside it jupyter_client with ipykernel
and, with --gateway, an Enterprise Gateway.

    run.py BUILD --python PROGRAM [--gateway VENV] [--rounds N] [--json FILE] [--only NAME,…]

PROGRAM is the interpreter of the environment; it must have ipykernel, pandas and jupyter_client. Every figure stands beside its target. What is compared is measured in turns.

Three servers: one with four parked kernels, one as it is by default, and one whose pool is empty. The last rows are ratios to bwrap --unshare-all of the same run, which do not
depend on the machine; bwrap is measured before each part. Of the default server the second and third crowd count: its pool makes as many boxes ahead as the first one took.
"""
import argparse
import base64
import http.client
import json
import os
import pathlib
import selectors
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import gateway

MIB = 1 << 20
DESCRIBE = "import pandas as pd, numpy as np\npd.DataFrame(np.random.rand(1000, 3)).describe()"

# The stock way, in the same environment: prints the seconds of each step.
STOCK = r"""
import sys, time
from jupyter_client.manager import start_new_kernel
def cell(kc, code):
    t = time.perf_counter(); kc.execute_interactive(code, output_hook=lambda m: None); return time.perf_counter() - t
for _ in range(int(sys.argv[1])):
    t = time.perf_counter()
    km, kc = start_new_kernel()
    kc.execute_interactive("1+1", output_hook=lambda m: None)
    first = time.perf_counter() - t
    t = time.perf_counter(); cell(kc, "import numpy, pandas"); imports = time.perf_counter() - t
    warm = sorted(cell(kc, "1+1") for _ in range(30))[15]
    print(first, first + imports, warm, flush=True)
    kc.stop_channels(); km.shutdown_kernel(now=True)
"""


def fail(text):
    sys.exit(f"bench: {text}")


class Server:
    def __init__(self, build, python, pool, *settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-bench-"))
        self.folder.chmod(0o711)
        self.socket = str(self.folder / "api.sock")
        self.log = open(self.folder / "log", "wb")
        command = [build / "carrel-server", "serve", "--socket", self.socket, "--state", self.folder / "state", "--run", self.folder / "run"]
        for s in (f"templates.python.python={python}", f"templates.python.pool={pool}", *settings):
            command += ["--set", s]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.connection = None
        end = time.monotonic() + 20
        while not self.is_ready():
            if time.monotonic() > end or self.process.poll() is not None:
                fail(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def connect(self):
        c = http.client.HTTPConnection("localhost", timeout=60)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(60)
        c.sock.connect(self.socket)
        return c

    def is_ready(self):
        try:
            c = self.connect()
        except OSError:
            return False
        c.request("GET", "/readyz")
        return c.getresponse().status == 200

    def ask(self, method, path, body=None):
        if not self.connection:
            self.connection = self.connect()
        self.connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"} if body is not None else {})
        r = self.connection.getresponse()
        text = r.read()
        if r.status >= 300:
            fail(f"{method} {path}: {r.status}: {text[:400]!r}; log: {(self.folder / 'log').read_text()[-800:]}")
        return json.loads(text) if text else None

    def create(self):
        return self.ask("POST", "/v1/boxes", {"template": "python"})["id"]

    def run(self, box, code):
        return self.ask("POST", f"/v1/boxes/{box}/run", {"code": code})

    def delete(self, box):
        self.ask("DELETE", f"/v1/boxes/{box}")

    def wait_for_way(self, way):
        """Until a fresh kernel comes about in this way: the zygote needs a second, the pool a moment."""
        end = time.monotonic() + 60
        while True:
            box = self.create()
            got = self.run(box, "1+1")
            self.delete(box)
            if got["kernel"]["way"] == way:
                return
            if time.monotonic() > end:
                fail(f"kernels are {got['kernel']['way']} and not {way}")
            time.sleep(0.2)

    def keeper_children(self):
        found = 0
        for child in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            found += len(pathlib.Path(f"/proc/{child}/task/{child}/children").read_text().split())
        return found

    def wait_for_pool(self):
        """Until nothing is made ahead any more: the keeper's children stay the same for a while."""
        last, since, end = -1, time.monotonic(), time.monotonic() + 20
        while time.monotonic() < end and time.monotonic() - since < 0.5:
            now = self.keeper_children()
            last, since = (last, since) if now == last else (now, time.monotonic())
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        shutil.rmtree(self.folder)


class Socket:
    """The Jupyter WebSocket, protocol v1, as a browser has it."""

    def __init__(self, where, kernel):
        """where: the path of a socket, or a socket that is connected."""
        self.s = where if isinstance(where, socket.socket) else socket.socket(socket.AF_UNIX)
        if self.s is not where:
            self.s.connect(where)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall((f"GET /api/kernels/{kernel}/channels?session_id=b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: v1.kernel.websocket.jupyter.org\r\n\r\n").encode())
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.data += self.s.recv(65536)
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        if b" 101 " not in head:
            fail(f"no WebSocket: {head[:200]!r}")

    def send(self, data):
        n = len(data)
        head = bytes([0x82, 0x80 | n]) if n < 126 else struct.pack(">BBH", 0x82, 0xfe, n) if n < 65536 else struct.pack(">BBQ", 0x82, 0xff, n)
        self.s.sendall(head + bytes(4) + data)

    def receive(self):
        while True:
            if len(self.data) >= 2:
                n, at = self.data[1], 2
                if n == 126 and len(self.data) >= 4:
                    n, at = struct.unpack_from(">H", self.data, 2)[0], 4
                elif n == 127 and len(self.data) >= 10:
                    n, at = struct.unpack_from(">Q", self.data, 2)[0], 10
                if (at > 2 or n < 126) and len(self.data) >= at + n:
                    message, self.data = self.data[at:at + n], self.data[at + n:]
                    return message
            got = self.s.recv(1 << 20)
            if not got:
                fail("the WebSocket was closed")
            self.data += got

    def cell(self, code):
        msg_id = uuid.uuid4().hex
        parts = [b"shell"] + [json.dumps(p).encode() for p in (
            {"msg_id": msg_id, "msg_type": "execute_request", "session": "b", "username": "", "date": "2026-01-01T00:00:00.000000Z", "version": "5.3"}, {}, {},
            {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False})]
        offsets = [8 * (len(parts) + 2)]
        for p in parts:
            offsets.append(offsets[-1] + len(p))
        self.send(struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts))
        idle = reply = False
        wanted = msg_id.encode()
        while not (idle and reply):
            m = self.receive()
            if wanted in m:
                idle = idle or b'"idle"' in m
                reply = reply or b'"execute_reply"' in m


def kernel_memory():
    """What cannot be taken back: private pages, page tables, kernel memory."""
    sizes = {}
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        sizes[name] = int(value.split()[0]) * 1024
    return sum(sizes[n] for n in ("AnonPages", "SUnreclaim", "PageTables", "KernelStack", "Shmem"))


def p99(values):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * 0.99))]


class Bench:
    def __init__(self, options):
        self.options = options
        self.rows = []
        self.bwraps, self.compared = [], []

    def bwrap(self):
        command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
        for _ in range(20 if shutil.which(command[0]) else 0):
            t = time.perf_counter()
            subprocess.run(command, check=True)
            self.bwraps.append(time.perf_counter() - t)

    def compare(self, name, seconds, target):
        """A duration whose ratio to bwrap's is shown in the end."""
        self.compared.append((name, lambda bwrap: seconds / bwrap, target, True))

    def ratios(self):
        if not self.bwraps:
            print("  (no ratios: there is no bwrap)")
            return
        bwrap = statistics.median(self.bwraps)
        self.row("bwrap --unshare-all true", bwrap * 1000, "ms")
        for name, ratio, target, at_most in self.compared:
            self.row(f"  ratio: {name}", ratio(bwrap), "x", target, at_most=at_most)

    def row(self, name, value, unit, target=None, note="", at_most=True):
        met = "" if target is None else ("yes" if (value <= target) == at_most else "NO")
        print(f"  {name:58} {value:10.2f} {unit:6} {'' if target is None else ('<= ' if at_most else '>= ') + str(target):>9} {met:3} {note}", flush=True)
        self.rows.append({"name": name, "value": value, "unit": unit, "target": target})
        return value

    def times(self, name, seconds, target=None, note=""):
        ms = sorted(s * 1000 for s in seconds)
        return self.row(name, statistics.median(ms), "ms", target, f"least {ms[0]:.2f}, p99 {p99(ms):.2f} {note}")

    def first(self, server, rounds, pause):
        seconds, ways = [], set()
        for _ in range(rounds):
            time.sleep(pause)
            t = time.perf_counter()
            box = server.create()
            got = server.run(box, "1+1")
            seconds.append(time.perf_counter() - t)
            ways.add(got["kernel"]["way"])
            if not got["results"] or got["results"][-1]["data"]["text/plain"] != "2":
                fail(f"1+1 gave {got}")
            server.delete(box)
        return seconds, "ways: " + ", ".join(sorted(ways))

    def starts(self, pooled, forking):
        n = self.options.rounds
        pooled.wait_for_way("parked")
        seconds, ways = self.first(pooled, n, 0.05)
        ours = self.times("create -> first result, parked", seconds, 2, ways)
        self.compare("create -> first result, parked", ours / 1000, 0.4)
        self.compare("the same, p99", p99(seconds), 1.2)
        forking.wait_for_way("forked")
        seconds, ways = self.first(forking, n, 0.02)
        empty = self.times("create -> first result, pool empty", seconds, 8, ways)
        self.compare("create -> first result, pool empty", empty / 1000, 1.3)
        return ours

    def stock(self, ours):
        python = self.options.python
        out = subprocess.run([python, "-c", STOCK, str(self.options.peers)], stdout=subprocess.PIPE, timeout=600, env={**os.environ, "JUPYTER_PLATFORM_DIRS": "1"})
        values = [[float(v) for v in line.split()] for line in out.stdout.decode().splitlines() if line]
        if not values:
            fail("jupyter_client has failed")
        first, pandas, warm = (sorted(v[i] for v in values) for i in range(3))
        self.times("  jupyter_client + ipykernel: start -> first result", first, None, f"ours / this: {ours / 1000 / statistics.median(first):.4f}" if ours else "")
        self.times("  the same with pandas imported", pandas)
        self.times("  its warm cell", warm)

    def gateway(self, pooled):
        """Both through the same client, in turns."""
        if not self.options.gateway:
            print("  (no Enterprise Gateway: --gateway VENV)")
            return
        peers = {"ours": gateway.Door(pooled), "Enterprise Gateway": gateway.Gateway(self.options.gateway)}
        starts, warm = {name: [] for name in peers}, {name: [] for name in peers}
        try:
            for i in range(self.options.peers):
                for name, peer in peers.items():
                    pooled.wait_for_way("parked")
                    s, w = gateway.measure(peer, Socket, 1, 30 if i == 0 else 0)
                    starts[name] += s
                    warm[name] += w
        finally:
            peers["Enterprise Gateway"].end()
        for what, values in (("kernel -> first result", starts), ("warm cell 1+1", warm)):
            ours, theirs = (statistics.median(values[name]) for name in peers)
            self.times(f"through the Jupyter door: {what}", values["ours"])
            self.times(f"  Enterprise Gateway: {what}", values["Enterprise Gateway"], None, f"ours / this: {ours / theirs:.4f}")

    def warm(self, pooled):
        box = pooled.create()
        pooled.run(box, "1+1")
        n = self.options.rounds * 5

        def timed(call):
            t = time.perf_counter()
            call()
            return time.perf_counter() - t
        cell = self.times("warm cell 1+1 through HTTP", [timed(lambda: pooled.run(box, "1+1")) for _ in range(n)], 0.8)
        self.compare("warm cell 1+1 through HTTP", cell / 1000, 0.17)
        kernel = pooled.ask("GET", f"/v1/boxes/{box}/kernels")
        kernel = (kernel["kernels"] if isinstance(kernel, dict) else kernel)[0]["id"]
        ws = Socket(pooled.socket, kernel)
        ws.cell("1+1")
        self.times("warm cell 1+1 through the Jupyter WebSocket", [timed(lambda: ws.cell("1+1")) for _ in range(n)], 1.5)
        ws.s.close()        # who listens and does not read holds the kernel up
        self.times("first describe() of a data frame", [timed(lambda: pooled.run(box, DESCRIBE))])
        self.times("describe() again", [timed(lambda: pooled.run(box, DESCRIBE)) for _ in range(20)])
        t = time.perf_counter()
        c = pooled.connect()
        c.request("POST", f"/v1/boxes/{box}/run", json.dumps({"code": "for _ in range(1000): print('x' * 99999)", "timeout": 60, "output_limit": 200 * MIB}),
                  {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
        r, size = c.getresponse(), 0
        while piece := r.read(1 << 20):
            size += len(piece)
        if size < 99 * 1000 * 1000:
            fail(f"only {size} bytes of 100 MB were streamed")
        self.row("100 MB of standard output, streamed", 100 / (time.perf_counter() - t), "MB/s", 100, at_most=False)
        pooled.delete(box)

    def crowds(self, usual, forking):
        n = self.options.crowd
        self.compare(f"{n} at once / {n} x bwrap, pool empty", self.crowd(forking, "pool empty") / n, 0.7)
        for which in ("the first time", "the second time", "the third time"):
            self.compare(f"{n} at once / {n} x bwrap, {which}", self.crowd(usual, which) / n, None if "first" in which else 0.7)
            usual.wait_for_pool()

    def crowd(self, server, what):
        """All at once: each connection creates a box, runs a cell, and is done when it has the result."""
        n, ready = self.options.crowd, selectors.DefaultSelector()
        create = json.dumps({"template": "python"}).encode()
        request = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        connections, boxes = [], []
        for _ in range(n):
            s = socket.socket(socket.AF_UNIX)
            s.connect(server.socket)
            connections.append(s)
            ready.register(s, selectors.EVENT_READ, [b""])
        t = time.perf_counter()
        for s in connections:
            s.sendall(request % (b"/v1/boxes", len(create), create))
        done = 0
        code = b'{"code":"1+1"}'
        while done < n:
            for key, _ in ready.select():
                key.data[0] += key.fileobj.recv(65536)
                head, _, body = key.data[0].partition(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) if b"ontent-" in head else None
                if length is None or len(body) < length:
                    continue
                answer = json.loads(body)
                key.data[0] = b""
                if "outcome" in answer:
                    done += 1
                    if answer["outcome"] != "ok":
                        fail(f"a cell failed: {answer}")
                elif "id" in answer:
                    boxes.append(answer["id"])
                    path = f"/v1/boxes/{answer['id']}/run".encode()
                    key.fileobj.sendall(request % (path, len(code), code))
                else:
                    fail(f"create: {answer}")
        took = self.row(f"{n} boxes at once, create -> first result, all done, {what}", time.perf_counter() - t, "s", 0.3)
        for s in connections:
            s.close()
        if what != "pool empty":        # elsewhere the pool grows meanwhile
            for box in boxes:
                server.delete(box)
            return took
        time.sleep(0.5)
        used = kernel_memory()
        for box in boxes:
            server.delete(box)
        time.sleep(3)
        self.row("memory of an idle kernel, all counted", (used - kernel_memory()) / n / MIB, "MiB", 6)
        return took

    def cycles(self, usual, forking):
        for server, what in ((forking, "pool empty"), (usual, "default")):
            rate = self.cycle(server, what)
            self.compared.append((f"cycles per second x bwrap's seconds, {what}", lambda bwrap, rate=rate: rate * bwrap, 1.2, False))

    def cycle(self, server, what):
        end = time.monotonic() + self.options.seconds
        readers = [server.connect() for _ in range(4)]
        counts = [0] * 4

        def work(i):
            c = readers[i]

            def ask(method, path, body=None):
                c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"} if body is not None else {})
                r = c.getresponse()
                text = r.read()
                if r.status >= 300:
                    raise RuntimeError(text)
                return json.loads(text) if text else None
            while time.monotonic() < end:
                box = ask("POST", "/v1/boxes", {"template": "python"})["id"]
                ask("POST", f"/v1/boxes/{box}/run", {"code": "1+1"})
                ask("DELETE", f"/v1/boxes/{box}")
                counts[i] += 1
        threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return self.row(f"create -> run -> destroy, 4 in flight, {what}", sum(counts) / self.options.seconds, "/s", 250, at_most=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--gateway", help="an environment with jupyter_enterprise_gateway")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--crowd", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.build = options.build.resolve()
    bench = Bench(options)
    wanted = options.only.split(",") if options.only else ["starts", "stock", "gateway", "warm", "crowd", "cycle"]
    print(f"\nkernels, {options.rounds} rounds, load average {os.getloadavg()[0]:.1f}")
    pooled, usual, forking = (Server(options.build, options.python, pool) for pool in (4, 2, 0))
    try:
        bench.bwrap()
        ours = bench.starts(pooled, forking) if "starts" in wanted else None
        if "stock" in wanted:
            bench.stock(ours)
        for server, way in ((pooled, "parked"), (usual, "parked"), (forking, "forked")):
            server.wait_for_way(way)
        for name, part, servers in (("gateway", bench.gateway, [pooled]), ("warm", bench.warm, [pooled]), ("crowd", bench.crowds, [usual, forking]),
                                    ("cycle", bench.cycles, [usual, forking])):
            if name in wanted:
                bench.bwrap()
                part(*servers)
        bench.ratios()
    finally:
        for server in (pooled, usual, forking):
            server.end()
    print(f"  load average {os.getloadavg()[0]:.1f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(bench.rows, indent=1))


if __name__ == "__main__":
    main()
