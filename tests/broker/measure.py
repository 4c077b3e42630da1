"""What the broker costs beside plain egress, in one run: part of `make bench-egress` (root). The same TLS server, the same client; with `--allow` its TLS
goes through egress untouched, with `--key` it ends in the broker. Figures are medians of all rounds; CARREL_BENCH_ROUNDS says how many (3)."""

import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "egress")]
from keys import HOST, Upstream, command, variables  # noqa: E402
from outside import World  # noqa: E402

ROUNDS = int(os.environ.get("CARREL_BENCH_ROUNDS", "3"))
CLIENT = """
import http.client, os, ssl, time
context = ssl.create_default_context()
fields = {"Authorization": "Bearer " + os.environ.get("API_KEY", "none")}
def connect(): return http.client.HTTPSConnection("api.keys.test", context=context)
def timed(n, what):
    all = []
    for _ in range(n):
        t = time.perf_counter(); what(); all.append((time.perf_counter() - t) * 1e6)
    return sorted(all)[n // 2]
def one():
    c = connect(); c.request("GET", "/hello", headers=fields); c.getresponse().read(); c.close()
kept = connect()
def turn(): kept.request("GET", "/hello", headers=fields); kept.getresponse().read()
def down(n):
    kept.request("GET", "/bytes?%d" % n, headers=fields); answer, t, b = kept.getresponse(), time.perf_counter(), bytearray(1 << 18)
    while answer.readinto(b): pass
    return n / (time.perf_counter() - t) / 1e6
def up(n):
    t = time.perf_counter(); kept.request("POST", "/echo", bytes(n), fields); kept.getresponse().read()
    return n / (time.perf_counter() - t) / 1e6
timed(20, one)
print(timed(200, one), timed(500, turn), down(1 << 27), up(1 << 26))
"""
WAYS = {"egress alone": ((), ["--allow", HOST]), "with a key": (f"API_KEY@{HOST}", [])}


def compare(world):
    results = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, (key, options) in WAYS.items():
            done = world.host.run(*command(None, [*options, "--memory", "1G"], "/usr/bin/python3", "-c", CLIENT, key=key), env=variables(), check=False,
                                  capture_output=True, text=True, timeout=120)  # fmt: skip
            if done.returncode:
                sys.exit(f"{name} did not work: {done.stderr}")
            results[name].append([float(one) for one in done.stdout.split()])
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in results.items()}


def start_times(world):
    took = {name: [] for name in WAYS}
    for i in range(10 * ROUNDS + 2):
        for name, (key, options) in WAYS.items():
            begun = time.perf_counter()
            world.host.start(*command(None, options, "/bin/true", key=key), env=variables()).wait()
            if i >= 2:
                took[name].append((time.perf_counter() - begun) * 1000)
    return {name: statistics.median(all) for name, all in took.items()}


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-measure-"))
    folder.chmod(0o755)
    world = World(folder)
    upstream = Upstream(world)
    try:
        results, starts = compare(world), start_times(world)
    finally:
        upstream.close()
        world.close()
        shutil.rmtree(folder)
    print(f"{'TLS, HTTP/1.1':14} {'connect + request':>18} {'request':>11} {'down':>11} {'up':>11} {'carrel run true':>16}")
    for name, (one, turn, down, up) in results.items():
        print(f"{name:14} {one:15.0f} us {turn:8.0f} us {down:6.0f} MB/s {up:6.0f} MB/s {starts[name]:13.1f} ms")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


main()
