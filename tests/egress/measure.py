"""What egress costs beside the same connections without it: `make egress-measure` (root). One line for each figure."""

import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from outside import Namespace, World  # noqa: E402
from driver import POLICY, BoxNetwork, Egress, policy  # noqa: E402

CLIENT = """
import resource, socket, sys, time
host, port = sys.argv[1], 7
address = socket.gethostbyname(host)
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
    s = socket.create_connection((address, 5001)); s.sendall(b"%d\\n" % n)
    b = bytearray(1 << 20); t = time.perf_counter(); got = 0
    while k := s.recv_into(b): got += k
    return got / (time.perf_counter() - t) / 1e9
def up(n):
    s = socket.create_connection((address, 5002)); b = bytes(1 << 20); t = time.perf_counter()
    for _ in range(n >> 20): s.sendall(b)
    s.shutdown(1); s.recv(64)
    return n / (time.perf_counter() - t) / 1e9
name = timed(500, lambda: socket.gethostbyname(host)) if host[-1].isalpha() else 0
print(timed(1000, open_one), timed(3000, turn), down(1 << 30), up(1 << 30), name)
"""
IDLE = """
import socket, sys
address = socket.gethostbyname("good.test")
kept = [socket.create_connection((address, 7)) for _ in range(5000)]
print("up", flush=True); sys.stdin.read()
"""


def usage(pid):
    fields = dict(line.split(":\t") for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line)
    ticks = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields["VmRSS"].split()[0]) / 1024, (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def line(what, text):
    connect, turn, down, up, name = map(float, text.split())
    print(
        f"{what:22} connect + first byte {connect:6.0f} us   round trip {turn:5.0f} us   "
        f"down {down:.2f} GB/s   up {up:.2f} GB/s   DNS {name:.0f} us"
    )


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-measure-"))
    folder.chmod(0o755)
    world = World(folder)
    try:
        line(
            "veth, without egress",
            world.host.run(
                sys.executable, "-c", CLIENT, "203.0.113.10", capture_output=True, text=True, timeout=300
            ).stdout,
        )
        for way in ("hold", "tproxy"):
            egress = Egress(world, os.environ["CARREL_EGRESS"], folder)
            box = BoxNetwork(Namespace(), way)
            egress.send(POLICY, 1, policy(["good.test"], connections=20000))
            box.attach(egress, 1)
            line(way, box.run(sys.executable, "-c", CLIENT, "good.test", timeout=300).stdout)
            before, cpu = usage(egress.process.pid)
            child = box.start("prlimit", "--nofile=20000", sys.executable, "-c", IDLE)
            child.stdout.readline()
            after, _ = usage(egress.process.pid)
            fds = len(os.listdir(f"/proc/{egress.process.pid}/fd"))
            print(
                f"{'':22} cpu of egress for all that {cpu:.2f} s; memory {before:.1f} MB, "
                f"with 5,000 idle connections {after:.1f} MB and {fds} descriptors"
            )
            child.communicate()
            egress.close()
            box.close()
    finally:
        world.close()
        shutil.rmtree(folder)


main()
