"""The server's API, measured: two private servers (with a pool and without), the load of load.c, and beside it what other tools take.

    run.py BUILD [--rounds N] [--boxes N] [--seconds S] [--json FILE] [--only NAME]

Every figure stands beside its target. What is compared is measured in turns. Figures of a busy machine are figures of a busy machine: the
load average is printed before and after, and the least value stands beside the median. CPU time (of the process alone, as the scheduler counts
it) does not depend on what else runs.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
COMMAND_S = 600
MIB = 1 << 20
# crun and runc do not accept v1 controllers with a v2 tree beside them; here they do not see it.
HIDE_V2 = ["unshare", "-m", "--propagation", "private", "sh", "-c", 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh"]

# Answers any request with the same few bytes, and keeps the connection. Runs in a box.
BOX_SERVER = r"""
import selectors, socket
ready, listener = selectors.DefaultSelector(), socket.create_server(("127.0.0.1", 8000), backlog=128)
ready.register(listener, selectors.EVENT_READ)
reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
print("listening", flush=True)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            peer = listener.accept()[0]
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(peer, selectors.EVENT_READ)
            continue
        data = key.fileobj.recv(65536)
        if data:
            key.fileobj.sendall(reply * data.count(b"\r\n\r\n"))
        else:
            ready.unregister(key.fileobj)
            key.fileobj.close()
"""


def fail(text):
    sys.exit(f"bench: {text}")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def wait_for(what, why, deadline_s=20):
    end = time.monotonic() + deadline_s
    while not (result := what()):
        if time.monotonic() > end:
            fail(why)
        time.sleep(0.02)
    return result


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def arguments(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


class Server:
    def __init__(self, build, *options, port=0):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-bench-"))
        self.folder.chmod(0o755)
        self.socket = str(self.folder / "api.sock")
        self.log = open(self.folder / "log", "wb")
        listen = ["--listen", f"127.0.0.1:{port}", "--allow-anonymous"] if port else []
        self.process = subprocess.Popen(
            [build / "carrel-server", "serve", "--socket", self.socket, "--state", self.folder / "state", "--run", self.folder / "run", *listen, *options],
            stdout=self.log, stderr=self.log, start_new_session=True)
        wait_for(self.is_ready, "the server does not start: " + (self.folder / "log").read_text())
        self.front = next(c for c in children(self.process.pid) if b"front" in arguments(c))
        self.keeper = next(c for c in children(self.process.pid) if b"keeper" in arguments(c))

    def is_ready(self):
        if self.process.poll() is not None:
            fail((self.folder / "log").read_text())
        try:
            return self.ask("GET", "/readyz", expect=None)[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, expect=(200, 201, 204)):
        c = UnixConnection(self.socket)
        c.request(method, path, body=body if body is None or isinstance(body, bytes) else json.dumps(body))
        response = c.getresponse()
        data = response.read()
        c.close()
        if expect and response.status not in expect:
            fail(f"{method} {path}: {response.status} {data[:400]}")
        return response.status, json.loads(data) if data[:1] in b"{[" and data else data

    def box(self, **body):
        return self.ask("POST", "/v1/boxes", body)[1]["id"]

    def memory(self, pid, what="VmRSS"):
        return int(re.search(rf"{what}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024

    def forget_peak(self, pid):
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")

    def cpu_us(self):
        return tuple(int(pathlib.Path(f"/proc/{p}/schedstat").read_text().split()[0]) / 1000 for p in (self.front, self.keeper))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class Bench:
    def __init__(self, options):
        self.options = options
        self.load = options.build / "bench" / "load"
        self.rows = []

    def run_load(self, *args, around=()):
        done = subprocess.run([*around, self.load, *map(str, args)], stdout=subprocess.PIPE, timeout=COMMAND_S)
        if done.returncode != 0:
            fail(f"load {args[0]} failed")
        lines = [line.split() for line in done.stdout.decode().splitlines()]
        return {name: [float(v) for v in values] for name, *values in lines}

    def row(self, what, value, target=None, unit="ms", at_most=True, note=""):
        good = None if target is None else value <= target if at_most else value >= target
        self.rows.append({"what": what, "value": value, "unit": unit, "target": target, "met": good, "note": note})
        shown = "" if target is None else f"{'<=' if at_most else '>='} {target:g}"
        print(f"  {what:48} {value:11.2f} {unit:5} {shown:>10} {'' if good is None else 'yes' if good else 'NO':4} {note}", flush=True)

    def latency(self, what, us, target=None, note=""):
        us = sorted(us)
        p99 = us[min(len(us) - 1, len(us) * 99 // 100)]
        self.row(what, statistics.median(us) / 1000, target, note=f"least {us[0] / 1000:.2f}, p99 {p99 / 1000:.2f} {note}")

    # --- rows ---

    def create(self, pooled, plain):
        n = self.options.rounds
        got = self.run_load("create", n, pooled.socket, plain.socket)
        if got["create0"]:
            self.latency("create, from the pool", got["create0"], 2, f"{len(got['missed0'])} of {n} found it empty")
        self.latency("create, no pool", got["create1"], 6)
        self.latency("delete", got["delete1"])

    def exec(self, pooled, plain):
        box, n = pooled.box(), self.options.rounds
        peers, running = [], []
        try:
            for tool in ("crun", "runc"):
                if shutil.which(tool):
                    peers += self.container(tool, running)
            got = self.run_load("exec", n, pooled.socket, box, *peers, around=HIDE_V2)
        finally:
            for command in running:
                subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=COMMAND_S)
        self.latency("exec true in a live box", got["api"], 2)
        for tool in got:
            if tool != "api":
                ratio = statistics.median(got["api"]) / statistics.median(got[tool])
                self.latency(f"  {tool} exec true in a live container", got[tool], note=f"; ours / this: {ratio:.2f}")
        before = pooled.cpu_us()
        self.run_load("exec", n, pooled.socket, box)
        front, keeper = (b - a for a, b in zip(before, pooled.cpu_us()))
        self.row("  CPU of the front per exec", front / n, unit="us")
        self.row("  CPU of the keeper per exec", keeper / n, unit="us")
        pooled.ask("DELETE", f"/v1/boxes/{box}")

    def container(self, tool, running):
        """Starts a container that sleeps; the words of its exec for load.c."""
        bundle = self.options.build / "bench" / f"bundle-{tool}"
        bundle.mkdir(exist_ok=True)
        config = json.loads((self.options.bundle / "config.json").read_text())
        config["root"]["path"] = str(self.options.bundle / config["root"]["path"])
        config["process"]["args"] = ["/bin/sleep", "1000"]
        (bundle / "config.json").write_text(json.dumps(config))
        name, state = f"carrel-bench-{tool}-{os.getpid()}", self.options.build / "bench" / "state-exec"
        words = [tool, "--root", str(state)]
        with tempfile.TemporaryFile() as errors:    # not a pipe: the container keeps it open
            start = subprocess.run([*HIDE_V2, *words, "run", "-d", "--bundle", str(bundle), name], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=errors, timeout=COMMAND_S)
            errors.seek(0)
            if start.returncode != 0:
                print(f"  {tool}: cannot be started here: {errors.read().decode().strip()[:160]}")
                return []
        running.append([*HIDE_V2, *words, "delete", "-f", name])
        return [tool, *words, "exec", name, "/bin/true", ";"]

    def proxy(self, pooled, plain):
        box = pooled.box()
        pooled.ask("POST", f"/v1/boxes/{box}/exec", {"argv": ["/usr/bin/python3", "-c", BOX_SERVER], "background": True}, expect=(200, 201, 202))

        def there():
            return pooled.ask("GET", f"/v1/boxes/{box}/ports/8000/", expect=None)[0] == 200

        wait_for(there, "the server in the box does not answer")
        pid = next(int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and BOX_SERVER.encode() in arguments(p.name))
        got = self.run_load("proxy", self.options.rounds * 5, pooled.socket, box, 8000, f"/proc/{pid}/ns/net")
        self.latency("request through the proxy", got["proxied"])
        self.latency("  the same direct, a connection each", got["fresh"])
        self.latency("  the same direct, one connection", got["kept"])
        # In turns, so the difference is taken round by round.
        self.row("  what the proxy adds", statistics.median(p - f for p, f in zip(got["proxied"], got["fresh"])) / 1000, 0.3,
                 note="to a connection each; to a kept one %.2f" % (statistics.median(p - k for p, k in zip(got["proxied"], got["kept"])) / 1000))
        pooled.ask("DELETE", f"/v1/boxes/{box}")

    def get(self, pooled, plain):
        if not shutil.which("wrk"):
            print("  wrk is not there: GET of a box is not measured")
            return
        c = http.client.HTTPConnection("127.0.0.1", self.options.port, timeout=20)
        c.request("POST", "/v1/boxes", body="{}")
        response = c.getresponse()
        box = json.loads(response.read())["id"]
        url, rates = f"http://127.0.0.1:{self.options.port}/v1/boxes/{box}", []
        before = pooled.cpu_us()[0]
        total = 0
        for _ in range(3):
            text = subprocess.run(["wrk", "-t1", "-c16", f"-d{self.options.seconds}s", url], stdout=subprocess.PIPE, timeout=COMMAND_S).stdout.decode()
            if "Non-2xx" in text:
                fail(text)
            rates.append(float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)))
            total += int(re.search(r"(\d+) requests in", text).group(1))
        self.row("GET of a box, wrk, 16 connections", statistics.median(rates), 30000, "/s", at_most=False, note=f"best {max(rates):.0f}")
        self.row("  CPU of the front per GET", (pooled.cpu_us()[0] - before) / total, unit="us")
        c.request("DELETE", f"/v1/boxes/{box}")
        c.getresponse().read()

    def files(self, pooled, plain):
        size = 512 * MIB
        box = pooled.box(limits={"memory": "3G", "disk": "2G"})
        path = f"/v1/boxes/{box}/files/tmp/large"
        pooled.ask("PUT", f"/v1/boxes/{box}/files/tmp/small", b"x")
        for what, target in (("write", None), ("read", 1)):
            pooled.forget_peak(pooled.front)
            idle = pooled.memory(pooled.front)
            got = self.run_load(what, 8, pooled.socket, path, size)[what]
            self.row(f"file {what}, {size // MIB} MiB", size / statistics.median(got) / 1000, target, "GB/s", at_most=False,
                     note=f"best {size / min(got) / 1000:.2f}; front's memory {idle / MIB:.1f} MiB, at most {pooled.memory(pooled.front, 'VmHWM') / MIB:.1f}")
        pooled.ask("DELETE", f"/v1/boxes/{box}")

    def cycle(self, pooled, plain):
        for flight in (1, 4):
            rates, cpu = [], []
            for _ in range(3):
                before = pooled.cpu_us()
                got = self.run_load("cycle", self.options.seconds, pooled.socket, flight)
                rates += got["rate"]
                cpu.append([(b - a) / len(got["cycle"]) for a, b in zip(before, pooled.cpu_us())])
            front, keeper = (statistics.median(c[i] for c in cpu) for i in (0, 1))
            self.row(f"create, exec, delete, {flight} in flight", statistics.median(rates), 250 if flight == 4 else None, "/s", at_most=False,
                     note=f"best {max(rates):.0f}; CPU per round: front {front:.0f} us, keeper {keeper:.0f} us")

    def many(self, pooled, plain):
        n = min(self.options.boxes, plain.ask("GET", "/v1/info")[1]["host"]["boxes"] - 1)
        empty = {p: plain.memory(p) for p in (plain.front, plain.keeper)}
        got = self.run_load("many", n, plain.socket)
        self.latency(f"create, up to {n} boxes alive", got["made"])
        got = self.run_load("list", self.options.rounds, plain.socket, f"/v1/boxes?limit={min(n, 1000)}")
        self.latency(f"list of {n} boxes", got["list"], 20)
        self.row(f"front's memory with {n} boxes", plain.memory(plain.front) / MIB, 100, "MiB", note=f"{empty[plain.front] / MIB:.1f} with none")
        self.row(f"keeper's memory with {n} boxes", plain.memory(plain.keeper) / MIB, 10, "MiB", note=f"{empty[plain.keeper] / MIB:.1f} with none")
        box = plain.box()
        self.latency(f"exec true, {n} boxes alive", self.run_load("exec", self.options.rounds, plain.socket, box)["api"])

    def engine(self, pooled, plain):
        engine = self.options.build / "bench" / "engine"
        text = subprocess.run([engine, str(self.options.rounds)], stdout=subprocess.PIPE, timeout=COMMAND_S).stdout.decode()
        first = re.search(r"prepared box: exec it, reap it\s+([\d.]+)\s+([\d.]+)", text)
        rate = re.search(r"boxes per second: (\d+) one by one, (\d+) with", text)
        if not first or not rate:
            fail("the engine's bench failed")
        self.row("engine alone: exec true in a prepared box", float(first.group(1)), 1.5, note=f"p99 {first.group(2)}")
        self.row("engine alone: boxes per second", max(float(rate.group(1)), float(rate.group(2))), 500, "/s", at_most=False,
                 note=f"{rate.group(1)} one by one, {rate.group(2)} with 4 under way")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    names = ["create", "exec", "proxy", "get", "files", "cycle", "engine", "many"]
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--bundle", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--boxes", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default="", help="names, with commas: " + " ".join(names))
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.bundle = options.bundle or options.build / "bench" / "bundle"
    options.port = free_port()
    if os.geteuid() != 0:
        fail("the server is measured as root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: told to stop"))    # and clean up
    bench, load_before = Bench(options), os.getloadavg()
    print(f"\nAPI, {options.rounds} rounds, {os.cpu_count()} processors, load average {load_before[0]:.1f}\n"
          f"  {'':48} {'median':>11} {'':5} {'target':>10}", flush=True)
    pooled = Server(options.build, port=options.port)
    try:
        plain = Server(options.build, "--set", "pool.size=0")
        try:
            for name in names:
                if not options.only or name in options.only.split(","):
                    getattr(bench, name)(pooled, plain)
        finally:
            plain.stop()
    finally:
        pooled.stop()
    missed = [r["what"].strip() for r in bench.rows if r["met"] is False]
    print(f"  load average {os.getloadavg()[0]:.1f}; " + (f"{len(missed)} targets missed: " + "; ".join(missed) if missed else "all targets met"))
    if options.json:
        options.json.write_text(json.dumps({"load_before": load_before[0], "load_after": os.getloadavg()[0], "rows": bench.rows}, indent=1))


if __name__ == "__main__":
    main()
