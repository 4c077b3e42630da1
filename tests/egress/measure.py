"""What egress costs beside the same connections without it, pasta and slirp4netns, in one run: `make bench-egress` (root). Figures are medians of all rounds;
CARREL_BENCH_ROUNDS says how many (3). They are only worth something beside their neighbours, on a machine that does nothing else."""

import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from driver import POLICY, BoxNetwork, Egress, policy  # noqa: E402
from outside import Namespace, World  # noqa: E402

ROUNDS = int(os.environ.get("CARREL_BENCH_ROUNDS", "3"))
CARREL = os.path.abspath(os.environ.get("CARREL", "build/carrel"))
SERVER = """
import socket, threading
def serve(port, what):
    s = socket.create_server(("203.0.113.10", port), backlog=1024)
    print(port, flush=True)
    while True: threading.Thread(target=what, args=(s.accept()[0],), daemon=True).start()
def source(c):
    left, b = int(c.makefile().readline()), bytes(1 << 20)
    while left > 0: c.sendall(b); left -= len(b)
    c.close()
def sink(c):
    b, left = bytearray(1 << 20), int.from_bytes(c.recv(8, socket.MSG_WAITALL), "big")
    while left > 0: left -= c.recv_into(b) or left
    c.sendall(b"x"); c.close()
for port, what in ((6001, source), (6002, sink)): threading.Thread(target=serve, args=(port, what)).start()
"""
CLIENT = """
import socket, sys, time
address, port = socket.gethostbyname(sys.argv[1]), 7
def timed(n, what):
    all = []
    for _ in range(n):
        t = time.perf_counter(); what(); all.append((time.perf_counter() - t) * 1e6)
    return sorted(all)[n // 2]
def open_one():
    s = socket.create_connection((address, port)); s.sendall(b"x"); s.recv(1); s.close()
kept = socket.create_connection((address, port)); kept.setsockopt(6, 1, 1)
def turn(): kept.sendall(b"x"); kept.recv(1)
def down(n):
    s = socket.create_connection((address, 6001)); s.sendall(b"%d\\n" % n)
    b = bytearray(1 << 20); t = time.perf_counter(); got = 0
    while k := s.recv_into(b): got += k
    return got / (time.perf_counter() - t) / 1e9
def up(n):
    s = socket.create_connection((address, 6002)); b = bytes(1 << 20); t = time.perf_counter()
    s.sendall(n.to_bytes(8, "big"))
    for _ in range(n >> 20): s.sendall(b)
    s.recv(1)
    return n / (time.perf_counter() - t) / 1e9
def perhaps(what, n):
    try: return what(n)
    except OSError: return float("nan")
timed(50, open_one)
print(timed(500, open_one), timed(2000, turn), perhaps(down, 1 << 29), perhaps(up, 1 << 29))
"""
IDLE = """
import socket, sys
address = socket.gethostbyname("good.test")
kept = [socket.create_connection((address, 7)) for _ in range(5000)]
print("up", flush=True); sys.stdin.read()
"""
PYTHON = "/usr/bin/python3"
# slirp4netns wants an existing network; its address of the host is one that leads to no loopback.
SLIRP = """
mkfifo {0}/ready; unshare --net -- sh -c 'echo $$ >{0}/pid; cat {0}/ready >/dev/null; exec {1} -c "$0" 203.0.113.10' "$1" &
while ! [ -s {0}/pid ]; do sleep 0.02; done
slirp4netns --configure --mtu=65520 --disable-host-loopback --ready-fd=3 $(cat {0}/pid) tap0 3>{0}/up >/dev/null 2>&1 &
slirp=$!
while ! [ -s {0}/up ]; do sleep 0.02; done
echo >{0}/ready; wait %1; kill $slirp; wait
"""


def resident_mb(pid):
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS")) / 1024


def spent():
    """Seconds of processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ways(folder):
    slirp = folder / "slirp"
    return {
        "plain": [PYTHON, "-c", CLIENT, "203.0.113.10"],
        "carrel": [CARREL, "run", "--allow", "good.test", "--", PYTHON, "-c", CLIENT, "good.test"],
        "pasta": ["pasta", "--config-net", "--quiet", "--no-map-gw", "--runas", "0", "--", PYTHON, "-c", CLIENT, "203.0.113.10"],
        "slirp4netns": ["sh", "-c", f"rm -rf {slirp}; mkdir {slirp};" + SLIRP.format(slirp, PYTHON), "sh", CLIENT],
    }


def compare(world, folder):
    results = {}
    for _ in range(ROUNDS):
        for name, command in ways(folder).items():
            before = spent()
            done = world.host.run(*command, check=False, capture_output=True, text=True, timeout=90)
            try:
                results.setdefault(name, []).append([*(float(x) for x in done.stdout.split()[-4:]), spent() - before])
                assert len(results[name][-1]) == 5
            except (ValueError, AssertionError):
                sys.exit(f"{name} did not work: {done.stderr}")
    # pasta of 2023 breaks some connections that send much.
    return {name: [statistics.median([x for x in column if x == x] or [0]) for column in zip(*rows)] for name, rows in results.items()}


def start_times(world):
    """`carrel run` without network and with a rule, in turn: the median, the least, and processor time, in milliseconds."""
    options = {"none": [], "allow": ["--allow", "good.test"]}
    took, used = {name: [] for name in options}, dict.fromkeys(options, 0)
    for i in range(15 * ROUNDS + 3):
        for name, more in options.items():
            begun, before = time.perf_counter(), spent()
            world.host.start(CARREL, "run", *more, "--", "/bin/true").wait()     # with a deadline Python would look only now and then
            if i >= 3:
                took[name].append((time.perf_counter() - begun) * 1000)
                used[name] += (spent() - before) * 1000
    return {name: (statistics.median(all), min(all), used[name] / len(all)) for name, all in took.items()}


def idle(world, folder):
    egress = Egress(world, os.environ["CARREL_EGRESS"], folder)
    box = BoxNetwork(Namespace(), "hold")
    egress.send(POLICY, 1, policy(["good.test"], connections=20000))
    box.attach(egress, 1)
    child = box.start("prlimit", "--nofile=20000", PYTHON, "-c", IDLE)
    child.stdout.readline()
    used = resident_mb(egress.process.pid)
    child.communicate()
    egress.close()
    box.close()
    return used


def report(results, starts, idle_mb):
    print(f"{'':12} {'connect + first byte':>21} {'round trip':>12} {'down':>10} {'up':>10} {'processor time of all':>22}")
    for name, (connect, turn, down, up, cpu) in results.items():
        print(f"{name:12} {connect:18.0f} us {turn:9.0f} us {down:6.2f} GB/s {up:5.2f} GB/s {cpu:20.2f} s")
    plain, carrel = results["plain"], results["carrel"]
    peers = [results[name] for name in ("pasta", "slirp4netns")]
    targets = [
        ("added per connection, ms", (carrel[0] - plain[0]) / 1000, "<=", 0.3),
        ("down, of plain", carrel[2] / plain[2], ">=", 0.5),
        ("up, of plain", carrel[3] / plain[3], ">=", 0.5),
        ("down, of the better peer", carrel[2] / max(p[2] for p in peers), ">=", 1.0),
        ("up, of the better peer", carrel[3] / max(p[3] for p in peers), ">=", 1.0),
        ("5,000 idle connections, MB", idle_mb, "<=", 50),
        ("carrel run --allow, added ms", starts["allow"][0] - starts["none"][0], "<=", 5),
    ]
    for what, value, sign, target in targets:
        met = value <= target if sign == "<=" else value >= target
        print(f"{what:30} {value:8.2f}   {sign} {target:<5} {'met' if met else 'MISSED'}")
    for name, (median, least, cpu) in starts.items():
        print(f"carrel run, {'with a rule' if name == 'allow' else 'without network'}: {median:.1f} ms, at best {least:.1f}; processor time {cpu:.1f} ms")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-measure-"))
    folder.chmod(0o755)
    world = World(folder)
    server = world.world.start(PYTHON, "-c", SERVER, stdout=subprocess.PIPE)
    try:
        for _ in range(2):
            server.stdout.readline()
        report(compare(world, folder), start_times(world), idle(world, folder))
    finally:
        server.kill()
        server.wait()
        world.close()
        shutil.rmtree(folder)


main()
