"""Attacks of a hostile box, a hostile resolver and a hostile server, as a list: what the box sees, and that others and the host see nothing of it. Rows D of the
attack list; those against a box without network are in tests/attack. With sanitizers where egress is driven by hand."""

import os
import subprocess
import sys
import time

import pytest
from driver import POLICY, PUBLIC, BoxNetwork, Egress, policy
from outside import Namespace
from test_policy import CURL, connect
from test_program import egress, network  # noqa: F401

from support.waiting import wait_for

SECRET = "reached-the-host"


@pytest.fixture(scope="module")
def host_services(world):
    """What a host has: a server on all its addresses, one on loopback only, an abstract socket."""
    code = f"""
import http.server, os, socket, sys, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write({SECRET.encode()!r})
    def log_message(self, *a): pass
class Six(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6
for make, address in ((http.server.ThreadingHTTPServer, ("127.0.0.1", 9100)), (Six, ("::", 9101))):
    threading.Thread(target=make(address, H).serve_forever, daemon=True).start()
s = socket.socket(socket.AF_UNIX); s.bind("\\0carrel-attack"); s.listen()
print("up", flush=True); sys.stdin.read()
"""
    child = world.host.start("python3", "-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"up\n"
    yield
    child.stdin.close()
    child.wait(20)


NOTATIONS = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
    "::ffff:0:127.0.0.1", "2002:7f00:1::1", "203.0.113.1", "::ffff:203.0.113.1", "::203.0.113.1", "64:ff9b::cb00:7101", "2002:cb00:7101::1", "2001:db8:77::1",
    "10.77.0.1", "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "fd00:ec2::254",
    "fd20:ce::254", "fd00:c1::a9fe:a9fe", "100.100.100.200", "192.0.0.192", "168.63.129.16", "224.0.0.1", "255.255.255.255", "203.0.113.255", "fe80::1", "ff02::1",
]  # fmt: skip


@pytest.mark.parametrize("options", [["--net", "public"], ["--allow", "*.test"], ["--allow", "0.0.0.0/0", "--allow", "::/0"]], ids=["public", "wildcard", "all"])
def test_the_host_and_metadata_are_out_of_reach_in_every_notation(world, host_services, options):
    results, _ = connect(world, options, *(f"{one}|{port}" for one in NOTATIONS for port in (9100, 9101)))
    assert [target for target, result in results.items() if result == "open"] == []


def test_abstract_sockets_raw_packet_and_ping_sockets_reach_nothing(world, host_services):
    code = r"""
import socket
s = socket.socket(socket.AF_UNIX)
try: s.connect("\0carrel-attack"); print("reached")
except OSError: print("no")
for make in (lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP), lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58),
             lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3), lambda: socket.socket(16, socket.SOCK_RAW, 12),
             lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM), lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)):
    try: make(); print("made")
    except OSError: print("no")
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); s.sendto(b"\x08\0\0\0\0\0\0\0", ("203.0.113.10", 0)); print("sent")
except OSError: print("no")
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
for level, name in ((1, 36), (0, 19), (41, 75)):         # SO_MARK, IP_TRANSPARENT
    try: s.setsockopt(level, name, 1); print("set")
    except OSError: print("no")
"""
    for options in (["--net", "public"], ["--net", "public", "--profile", "system"]):
        done = world.python(options, code)
        assert done.out.split() == ["no"] * 11, (options, done.out, done.err)


def test_root_of_a_box_changes_no_rule_route_or_address(world):
    script = """
for c in "nft flush ruleset" "ip route flush table 100" "ip route add default dev lo" "ip addr add 203.0.113.77/32 dev lo" "ip rule del priority 100" \
         "ip link set lo down" "ip link add d0 type dummy" "sysctl -w net.ipv4.ip_unprivileged_port_start=0" "iptables -F"; do
    $c >/dev/null 2>&1 && echo "did: $c"; done
unshare -Urn true 2>/dev/null && echo "did: unshare"
curl -sS -o /dev/null --max-time 20 -w '%{http_code}\\n' http://good.test/; curl -sS --max-time 20 http://203.0.113.11/ 2>/dev/null || echo refused
"""
    done = world.box(["--allow", "good.test", "--profile", "system"], "sh", "-c", script)
    assert done.out.split() == ["200", "refused"], done.out


def test_ports_of_ours_cannot_be_taken_and_talking_to_them_leads_nowhere(world):
    code = """
import socket
for kind, to in ((socket.SOCK_DGRAM, ("127.0.0.53", 53)), (socket.SOCK_STREAM, ("0.0.0.0", 53)), (socket.SOCK_STREAM, ("127.0.0.1", 808))):
    s = socket.socket(socket.AF_INET, kind); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try: s.bind(to); print("bound")
    except OSError: print("no")
try: s = socket.create_connection(("127.0.0.1", 808), timeout=20); s.sendall(b"x"); print("answered" if s.recv(1) else "end")
except OSError: print("no")
"""
    assert world.python(["--net", "public"], code).out.split() == ["no"] * 4


def test_names_that_are_not_allowed_carry_nothing_out(world):
    """A tunnel needs labels that reach a server outside; those of names that are not allowed are answered inside."""
    code = """
import socket
for name in ("a" * 63 + ".evil.test", ".".join(["b" * 60] * 3) + ".evil.test", "c.good.test", "evil.test"):
    try: socket.getaddrinfo(name, 80); print("resolved")
    except OSError: print("no")
"""
    def sent():
        return sum(int(line.split()[4]) for line in world.host.run("cat", "/proc/net/snmp", capture_output=True, text=True).stdout.splitlines()
                   if line.startswith("Udp: ") and line.split()[1].isdigit())

    before = sent()
    done = world.python(["--allow", "good.test"], code)
    assert done.out.split() == ["no"] * 4 and len(done.refused) >= 3
    assert sent() == before


HOSTILE_DNS = """
import random, socket, struct, sys
random.seed(int(sys.argv[1]))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("203.0.113.60", 53)); print("up", flush=True)
def name(labels): return b"".join(bytes([len(l)]) + l for l in labels) + b"\\0"
while True:
    data, who = s.recvfrom(4096)
    at, labels = 12, []
    while data[at]: labels.append(data[at + 1:at + 1 + data[at]]); at += 1 + data[at]
    question, kind = data[12:at + 5], labels[0].decode().lower()
    a = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\0\\0\\4\\xa9\\xfe\\xa9\\xfe"
    head = lambda n, flags=b"\\x81\\x80", id=data[:2]: id + flags + b"\\0\\1" + struct.pack(">H", n) + b"\\0\\0\\0\\0"
    out = {
        "loop": head(1) + question + b"\\xc0\\x0c\\0\\5\\0\\1\\0\\0\\0\\0" + struct.pack(">H", 2) + b"\\xc0\\x0c",
        "chain": head(1) + question + b"\\xc0\\x0c\\0\\5\\0\\1\\0\\0\\0\\0" + (lambda n: struct.pack(">H", len(n)) + n)(name([b"chain", *labels[1:]])),
        "point": head(1) + question + b"\\xc0\\xff" + a[2:],
        "huge": head(200) + question + a * 200,
        "otherid": head(1, id=bytes(2)) + question + a,
        "otherquestion": head(1) + name([b"else", b"test"]) + b"\\0\\1\\0\\1" + a,
        "cut": head(1, b"\\x83\\x80") + question,
        "short": data[:7],
        "many": head(65535) + question + a,
        "answerless": head(0) + question,
        "fuzz": bytes(random.randrange(256) if random.random() < 0.1 else b for b in head(3) + question + a * 3),
    }.get(kind.rstrip("0123456789"), head(1) + question + a)
    s.sendto(out, who)
"""


def test_a_hostile_resolver_leads_to_no_forbidden_address_and_ends_nothing(world, tmp_path):
    """All that it says leads to the metadata service, or is no answer at all."""
    world.world.ip("addr add 203.0.113.60/24 dev inside")
    before = world.settings.read_text()
    resolver = world.world.start("python3", "-c", HOSTILE_DNS, "1", stdout=subprocess.PIPE)
    assert resolver.stdout.readline() == b"up\n"
    world.settings.write_text("nameserver 203.0.113.60\n")
    asan = Egress(world, os.environ["CARREL_EGRESS_ASAN"], tmp_path)
    box = BoxNetwork(Namespace(), "hold")
    try:
        asan.send(POLICY, 1, policy(mode=PUBLIC))
        box.attach(asan, 1)
        code = """
import concurrent.futures, socket, sys
def one(name):
    try: socket.create_connection((name, 80), timeout=60).close(); return "open " + name
    except OSError: return "no"
with concurrent.futures.ThreadPoolExecutor(16) as pool: print(*pool.map(one, sys.argv[1:]), sep="\\n")
"""
        names = ["loop", "chain", "point", "huge", "otherid", "otherquestion", "cut", "short", "many", "answerless", "plain", *(f"fuzz{i}" for i in range(150))]
        out, _ = box.python(code, *(f"{one}.hostile.test" for one in names)).communicate(timeout=400)
        assert out.split("\n")[: len(names)] == ["no"] * len(names)
        world.settings.write_text(before)
        wait_for(lambda: box.run(*CURL[:-2], "http://good.test/").returncode == 0, "names resolve again")
        words = asan.close()
        assert "ERROR" not in words and "runtime error" not in words, words
    finally:
        world.settings.write_text(before)
        resolver.kill()
        resolver.wait()
        box.close()


HOSTILE_SERVER = """
import os, random, socket, struct, sys, threading
def never_reads(c): keep.append(c)
def sends_for_ever(c):
    try:
        while True: c.sendall(bytes(65536))
    except OSError: pass
def resets(c): c.setsockopt(1, 13, struct.pack("ii", 1, 0)); c.close()
def half(c): c.shutdown(1); keep.append(c)
keep = []
def serve(port, what):
    s = socket.create_server(("203.0.113.10", port), backlog=4096)
    while True: threading.Thread(target=what, args=(s.accept()[0],), daemon=True).start()
for i, what in enumerate((never_reads, sends_for_ever, resets, half)): threading.Thread(target=serve, args=(6100 + i, what), daemon=True).start()
print("up", flush=True); sys.stdin.read()
"""


def test_hostile_servers_and_slow_readers_stay_within_bounds(world, egress, network):  # noqa: F811
    bad, good = network("hold"), network("hold")
    for number, one in ((1, bad), (2, good)):
        egress.send(POLICY, number, policy(["good.test"]))
        one.attach(egress, number)
    servers = world.world.start("python3", "-c", HOSTILE_SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert servers.stdout.readline() == b"up\n"
    code = """
import socket, sys, threading
kept = []
def one(port, write):
    s = socket.create_connection(("good.test", port), timeout=60); kept.append(s); s.setblocking(False)
    try:
        while write: s.send(bytes(65536))
    except OSError: pass
for i in range(150):
    for port, write in ((6100, True), (6101, False), (6103, False)): one(port, write)
    for _ in range(5):
        try: socket.create_connection(("good.test", 6102), timeout=60).recv(1)
        except OSError: pass
print("up", flush=True); sys.stdin.read()
"""
    child = bad.start("prlimit", "--nofile=4000", sys.executable, "-c", code)
    assert child.stdout.readline() == "up\n"
    assert good.run(*CURL[:-2], "http://good.test/").returncode == 0
    # Buffers are the kernel's; what egress itself has stays small, also with sanitizers.
    resident = next(int(line.split()[1]) for line in open(f"/proc/{egress.process.pid}/status") if line.startswith("VmRSS"))
    assert resident < 200_000
    child.communicate(timeout=30)
    wait_for(lambda: egress.show(1)[1][4] <= 150, "those whose servers notice have ended")
    servers.stdin.close()
    servers.wait(20)
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections to end")


def test_a_policy_that_changes_under_load_cuts_all_within_a_second(egress, network):  # noqa: F811
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test", "four.test"]))
    box.attach(egress, 1)
    code = """
import socket, threading, time
kept = [socket.create_connection(("good.test", 7), timeout=60) for _ in range(400)]
stop, flood = [], socket.create_connection(("good.test", 5001), timeout=60)
flood.sendall(b"100000000000\\n")
def drain():
    try:
        while flood.recv(1 << 20): pass
    except OSError: pass
    stop.append(time.monotonic())
threading.Thread(target=drain).start()
for s in kept: s.sendall(b"x"); s.recv(1)
print("up", flush=True); input(); start = time.monotonic()
cut = 0
for s in kept:
    try: cut += s.recv(1) == b""
    except OSError: cut += 1
print(cut, time.monotonic() - start)
"""
    child = box.python(code)
    assert child.stdout.readline() == "up\n"
    # The time runs from the moment when the policy is sent; the reader only confirms it.
    egress.send(POLICY, 1, policy(["four.test"]))
    sent = time.monotonic()
    wait_for(lambda: egress.show(1)[1][4] == 0, "all connections are cut")
    assert time.monotonic() - sent < 1
    out, _ = child.communicate("\n", timeout=30)
    assert out.split()[0] == "400"


def test_hellos_of_all_shapes_reach_no_other_name(world, egress, network):  # noqa: F811
    """Cut, repeated and changed at random; what arrives at the server never asks it for a name that was not looked up."""
    box = network("hold")
    egress.send(POLICY, 1, policy(["good.test", "four.test"]))
    box.attach(egress, 1)
    code = """
import random, socket, ssl, sys
random.seed(7)
def hello(name):
    inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    tls = context.wrap_bio(inside, outside, server_hostname=name)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: pass
    return outside.read()
good, bad, answered = hello("good.test"), hello("other.test"), 0
for i in range(300):
    kind = i % 6
    if kind == 0: data = bad
    elif kind == 1: data = good[:5] + good[5:9] + bad[9:]
    elif kind == 2: data = b"".join(bad[:3] + b"\\0\\1" + bytes([b]) for b in bad[5:])
    elif kind == 3: data = b"\\x15\\x03\\x01\\0\\2\\1\\0" + bad
    elif kind == 4: data = bytes(random.randrange(256) if random.random() < 0.02 else b for b in bad)
    else: cut = random.randrange(5, len(bad)); data = bad[:3] + (cut - 5).to_bytes(2, "big") + bad[5:cut] + bad[:3] + (len(bad) - cut).to_bytes(2, "big") + bad[cut:]
    s = socket.create_connection(("good.test", 443), timeout=60)
    try:
        at = 0
        while at < len(data): n = random.choice((1, 3, 100, 5000)); s.sendall(data[at:at + n]); at += n
        s.shutdown(1)
        answered += s.recv(1)[:1] == b"\\x16"
    except OSError: pass
    s.close()
print(answered)
"""
    out, _ = box.python(code).communicate(timeout=200)
    # A change at random may spoil the handshake or make another name of it, but never ask for one that differs and pass.
    assert out.split() == ["0"], out


def test_a_crowd_of_connections_and_questions_in_one_box_leaves_others_alone(egress, network):  # noqa: F811
    crowd, quiet = network("hold"), network("hold")
    egress.send(POLICY, 1, policy(["*.test", "203.0.113.0/24"]))
    egress.send(POLICY, 2, policy(["good.test"]))
    crowd.attach(egress, 1)
    quiet.attach(egress, 2)
    code = r"""
import socket, sys, threading, os
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
kept, n = [], 0
q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.connect(("127.0.0.53", 53)); q.setblocking(False)
print("on", flush=True)
while True:
    n += 1
    s = socket.socket(); s.setblocking(False)
    try: s.connect(("203.0.113.%d" % (n % 250 + 1), 1 + n % 60000))
    except OSError: pass
    kept.append(s)
    if len(kept) > 3000: kept.pop(0).close()
    try: q.send(b"\1\2\1\0\0\1\0\0\0\0\0\0\x3f" + b"%063d" % n + b"\4test\0\0\1\0\1")
    except OSError: pass
    try: q.recv(512)
    except OSError: pass
"""
    child = crowd.start("prlimit", "--nofile=8000", sys.executable, "-u", "-c", code)
    assert child.stdout.readline() == "on\n"
    for _ in range(10):
        begun = time.monotonic()
        assert quiet.run(*CURL[:-2], "http://good.test/").returncode == 0
        assert time.monotonic() - begun < 10
    flows, usage = egress.show(1)
    assert usage[4] <= 1024
    child.communicate(timeout=20)


def test_fronting_by_name_address_and_another_boxs_address(egress, network):  # noqa: F811
    one, two = network("hold"), network("hold")
    egress.send(POLICY, 1, policy(["good.test", "*.wild.test"]))
    egress.send(POLICY, 2, policy(["four.test"]))
    one.attach(egress, 1)
    two.attach(egress, 2)
    address = one.run("dig", "+short", "good.test").stdout.strip()
    assert one.run(*CURL[:-2], "-k", "https://good.test/").returncode == 0
    # The same server, asked for another name; by its address; from a box that has not looked it up.
    assert one.run(*CURL[:-2], "-k", "--connect-to", "other.test:443:good.test:443", "https://other.test/").returncode in (35, 56)
    assert one.run(*CURL[:-2], "-k", "--resolve", "other.test:443:203.0.113.10", "https://other.test/").returncode == 7
    assert two.run(*CURL[:-2], "-k", "--resolve", f"good.test:443:{address}", "https://good.test/").returncode == 7
    assert {(what, why) for why, _, _, what, _ in egress.refused()} >= {("good.test", 2), ("203.0.113.10", 0)}
