"""Destinations of boxes with `carrel run --allow`, with real clients against real servers."""

import json
import os
import re
import shutil
import subprocess

import pytest
from outside import CARREL, HERE

from support.users import ORDINARY, user_command
from support.waiting import wait_for

CURL = ["curl", "-sS", "--max-time", "20", "--cacert", "/ca.pem"]
CONNECT = """
import errno, socket, sys
for text in sys.argv[1:]:
    host, port = text.rsplit("|", 1)
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        print(text, "open")
    except OSError as error:
        print(text, errno.errorcode.get(error.errno, type(error).__name__))
"""


def connect(world, options, *targets):
    """What each connect() in a box says."""
    done = world.box(options, "python3", "-c", CONNECT, *targets)
    assert done.code == 0, done.err
    return dict(line.rsplit(" ", 1) for line in done.out.splitlines()), done


def test_an_allowed_name_is_reached_over_http_and_tls(world):
    for scheme, name in (("http", None), ("https", "good.test")):
        done = world.box(["--allow", "good.test"], *CURL, f"{scheme}://good.test/")
        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert told["host"] == ["good.test"] and told["sni"] == name
        assert not done.refused


def test_a_box_without_a_policy_reaches_nothing(world):
    results, _ = connect(world, [], "203.0.113.10|80", "good.test|80", "2001:db8:77::10|80")
    assert "open" not in results.values()


def test_a_denied_name_does_not_exist_and_the_reason_is_told(world):
    done = world.box(["--allow", "good.test"], "dig", "+tries=1", "+timeout=5", "other.test")
    assert "status: NXDOMAIN" in done.out
    assert re.search(r"EDE: 15 \(Blocked\)", done.out)
    assert done.refused == {("other.test", 0)}


def test_the_service_of_an_allowed_name_is_not_there_and_no_refusal(world):
    done = world.box(["--allow", "good.test"], "dig", "+tries=1", "+timeout=5", "SRV", "_http._tcp.good.test")
    assert "status: NXDOMAIN" in done.out and not done.refused
    done = world.box(["--allow", "good.test"], "dig", "+tries=1", "+timeout=5", "SRV", "_http._tcp.other.test")
    assert "status: NXDOMAIN" in done.out and "_http._tcp.other.test" in str(done.refused)


@pytest.mark.parametrize("kind", ["AAAA", "HTTPS", "SVCB", "TXT", "ANY", "MX", "SOA"])
def test_other_records_of_an_allowed_name_are_empty(world, kind):
    for way in ("+notcp", "+tcp"):
        done = world.box(["--allow", "good.test"], "dig", "+tries=1", "+timeout=5", way, "good.test", kind)
        assert "status: NOERROR" in done.out and "ANSWER: 0" in done.out, done.out


def test_an_allowed_name_has_an_address_that_stands_for_it(world):
    answers = [
        world.box(["--allow", "good.test"], "dig", "+short", way, "GOOD.test").out.strip() for way in ("+tcp", "+notcp")
    ]
    assert answers[0] == answers[1]
    assert answers[0].startswith(("198.18.", "198.19."))


def test_a_name_that_does_not_exist_and_one_whose_servers_fail_look_so(world):
    options = ["--allow", "*.test", "--allow", "*.evil.test"]
    assert "status: NXDOMAIN" in world.box(options, "dig", "+tries=1", "nowhere.test").out
    assert "status: SERVFAIL" in world.box(options, "dig", "+tries=1", "+timeout=15", "silent.evil.test").out
    assert "status: SERVFAIL" in world.box(options, "dig", "+tries=1", "+timeout=15", "broken.evil.test").out


@pytest.mark.parametrize("settings", ["", "nameserver 203.0.113.11\n", "\0\xff nameserver nonsense\n" * 2000], ids=["empty", "no server", "garbage"])
def test_without_a_resolver_on_the_host_the_reason_is_told(world, settings):
    before = world.settings.read_text()
    world.settings.write_text(settings)
    try:
        done = world.box(["--allow", "good.test", "--allow", "203.0.113.10"], *CURL, "http://good.test/")
        assert done.code == 6 and "good.test (the host's resolver did not answer; see its /etc/resolv.conf)" in done.err, done.err
        assert world.box(["--allow", "203.0.113.10"], *CURL, "http://203.0.113.10/").code == 0
    finally:
        world.settings.write_text(before)


@pytest.mark.parametrize("option", ["--allow", "--deny"])
@pytest.mark.parametrize(
    "rule, part",
    [("a" * 300, "at most 253"), ("a\x01b.test", "character 2"), ("\u00fcber.test", "character 1"), ("x.test:70000", "ports are numbers"),
     ("198.18.0.1", "stand for names"), ("", "needs a value")],
)  # fmt: skip
def test_rules_that_cannot_be_read_start_nothing(world, tmp_path, option, rule, part):
    done = world.box([option, rule, "--mount", f"{tmp_path}:/out:rw"], "touch", "/out/ran")
    assert done.code == 125 and part in done.err and not done.out, done.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "options, url, said",
    [
        (["--net", "public", "--deny", "good.test"], "http://good.test/", "the network of this box refused good.test (denied by --deny good.test)"),
        (["--net", "public", "--deny", "*.test"], "http://good.test/", "good.test (denied by --deny *.test)"),
        (["--deny", "good.test"], "http://good.test/", "this box has no network: good.test (denied by --deny good.test) was refused"),
        (["--allow", "good.test", "--deny", "good.test:80"], "http://good.test/", "good.test:80 (denied by --deny good.test:80)"),
        (["--net", "public", "--deny", "203.0.113.0/24"], "http://203.0.113.10/", "203.0.113.10:80 (denied by --deny 203.0.113.0/24)"),
        (["--allow", "four.test", "--deny", "203.0.113.10"], "http://four.test/",
         "four.test:80 (it leads to 203.0.113.10, denied by --deny 203.0.113.10)"),
    ],
)  # fmt: skip
def test_what_a_rule_denies_is_told_with_that_rule_and_no_advice_that_cannot_work(world, options, url, said):
    done = world.box(options, *CURL, url)
    assert done.code != 0 and f"{said}\n" in done.err and "allow it with" not in done.err, done.err
    assert [one["rule"] for one in done.report["net"]["refused"]] == [None]


def test_malformed_questions_are_answered(world):
    code = r"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(("127.0.0.53", 53))
head = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
for name in (b"\x03a\x00b\x00", b"\x05a.b.c\x00", b"\x01\xff\x00", b"\xc0\x0c", b"\x40" + b"a" * 64 + b"\0", b"\x00",
             b"\x3f" + b"a" * 10):
    s.send(head + name + b"\0\1\0\1")
    print(s.recv(512)[3] & 15)
s.send(head[:4] + b"\0\2" + head[6:] + b"\1a\0\0\1\0\1\1b\0\0\1\0\1"); print(s.recv(512)[3] & 15)
s.send(b"x"); s.send(head[:2] + b"\x81\0" + head[4:] + b"\1a\0\0\1\0\1")
s.send(head + b"\4good\4test\0\0\1\0\1"); print(s.recv(512)[3] & 15)
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out.split() == ["1"] * 8 + ["0"], done.err


def test_ports_of_a_rule_count(world):
    results, done = connect(
        world, ["--allow", "good.test:80", "--deny", "good.test:7"], "good.test|80", "good.test|443", "good.test|7"
    )
    assert results["good.test|80"] == "open"
    assert results["good.test|443"] in ("EHOSTUNREACH", "ECONNREFUSED")
    assert done.refused == {("good.test", 443), ("good.test", 7)}


def test_connect_succeeds_only_if_the_server_took_the_connection(world):
    results, done = connect(
        world,
        ["--allow", "four.test", "--allow", "203.0.113.0/24"],
        "four.test|81",
        "203.0.113.10|81",
        "203.0.113.10|80",
        "203.0.113.99|80",
    )
    assert results == {
        "four.test|81": "ECONNREFUSED",
        "203.0.113.10|81": "ECONNREFUSED",
        "203.0.113.10|80": "open",
        "203.0.113.99|80": "EHOSTUNREACH",
    }
    assert not done.refused
    zero = world.box(["--allow", "four.test"], "nc", "-z", "-w5", "four.test", "81")
    assert zero.code == 1


METADATA = [
    "169.254.169.254|80",
    "169.254.43518|80",
    "2852039166|80",
    "0xa9fea9fe|80",
    "0251.0376.0251.0376|80",
    "::ffff:169.254.169.254|80",
    "::169.254.169.254|80",
    "64:ff9b::a9fe:a9fe|80",
    "2002:a9fe:a9fe::1|80",
    "fd00:ec2::254|80",
    "100.100.100.200|80",
]
HOSTS_OWN = ["203.0.113.1|8080", "10.77.0.1|8080", "2001:db8:77::1|8080", "0.0.0.0|8080", "127.0.0.1|8080", "::1|8080"]


@pytest.mark.parametrize(
    "options", [["--net", "public"], ["--allow", "good.test"], ["--allow", "0.0.0.0/0", "--allow", "::/0"]]
)
def test_metadata_and_the_host_are_out_of_reach_in_every_notation(world, options):
    listener = world.host.start("python3", "-m", "http.server", "8080", "--bind", "::", stdout=-3, stderr=-3)
    try:
        wait_for(lambda: world.host.run("nc", "-z", "203.0.113.1", "8080", check=False).returncode == 0)
        results, _ = connect(world, options, *METADATA, *HOSTS_OWN)
    finally:
        listener.kill()
        listener.wait()
    reached = [target for target, result in results.items() if result == "open"]
    # 203.0.113.1 is the host; with rules for all addresses it is not named as such.
    assert reached == []


@pytest.mark.parametrize(
    "name",
    ["meta.test", "alias.test", "mapped.test", "loop.test", "own.test", "ownmapped.test", "owncompatible.test", "ownnat64.test"],
)
def test_a_name_that_leads_to_the_host_or_to_metadata_is_refused(world, name):
    for options in (["--allow", name], ["--net", "public"], ["--allow", "*.test"]):
        done = world.box(options, *CURL, f"http://{name}:8080/")
        assert done.code == 7, done.out
        assert done.refused == {(name, 8080)}


@pytest.mark.parametrize("rule", ["::ffff:203.0.113.10", "::203.0.113.10", "64:ff9b::203.0.113.10", "2002:cb00:710a::/48"])
def test_an_address_is_denied_in_every_notation(world, rule):
    results, done = connect(world, ["--allow", "203.0.113.0/24", "--deny", rule], "::ffff:203.0.113.10|80", "203.0.113.10|80")
    assert "open" not in results.values() and done.refused == {("203.0.113.10", 80)}


@pytest.mark.parametrize("rule", ["127.0.0.1:18123", "::1", "127.0.0.0/8", "::ffff:127.0.0.1"])
def test_a_rule_for_the_loopback_says_how_to_reach_the_host(world, rule):
    done = world.box(["--allow", rule], "true")
    assert done.code == 125 and "a server of the host is host.carrel.internal:PORT" in done.err, done.err


def test_wildcards_reach_public_addresses_only(world):
    options = ["--allow", "*.wild.test"]
    assert json.loads(world.box(options, *CURL, "http://good.wild.test/").out)["address"] == "203.0.113.11"
    assert world.box(options, *CURL, "http://priv.wild.test/").refused == {("priv.wild.test", 80)}
    assert world.box(options, *CURL, "http://wild.test/").code == 6
    named = world.box(["--allow", "priv.wild.test"], *CURL, "http://priv.wild.test/")
    assert json.loads(named.out)["address"] == "10.77.0.5"


def test_of_mixed_answers_the_acceptable_ones_are_used(world):
    for _ in range(4):
        done = world.box(["--net", "public"], *CURL, "http://mixed.test/")
        assert json.loads(done.out)["address"] == "203.0.113.10"


def test_an_answer_that_changes_between_question_and_connection_does_not_help(world):
    code = """
import socket, time
address = socket.gethostbyname("flip.evil.test")
with socket.create_connection((address, 80), timeout=10): print("first")
deadline = time.monotonic() + 30
while time.monotonic() < deadline:      # the answer is kept for five seconds, whatever its TTL says
    try:
        socket.create_connection((address, 80), timeout=10).close()
    except OSError:
        print("refused")
        break
    time.sleep(0.2)
"""
    done = world.python(["--allow", "flip.evil.test"], code, timeout=90)
    assert done.out.split() == ["first", "refused"], done.err
    assert done.refused == {("flip.evil.test", 80)}


def test_a_name_with_a_crowd_of_addresses_works(world):
    assert world.box(["--allow", "many.evil.test"], *CURL, "http://many.evil.test/").code == 0


def test_an_address_that_does_not_answer_costs_a_moment_only(world):
    done = world.box(["--allow", "late.test"], *CURL, "-w", "%{time_total}", "-o", "/dev/null", "http://late.test/")
    assert done.code == 0 and float(done.out) < 3


def test_ipv6_only_names_and_literals_work(world):
    assert json.loads(world.box(["--allow", "six.test"], *CURL, "http://six.test/").out)["address"] == "2001:db8:77::10"
    results, done = connect(world, ["--allow", "[2001:db8:77::/64]:80"], "2001:db8:77::10|80", "2001:db8:77::10|443")
    assert results["2001:db8:77::10|80"] == "open"
    assert results["2001:db8:77::10|443"] in ("EACCES", "ECONNREFUSED")
    assert done.refused == {("2001:db8:77::10", 443)}


def test_an_address_that_was_not_given_stands_for_nothing(world):
    results, done = connect(world, ["--net", "public"], "198.18.7.7|80", "198.19.255.1|443")
    assert "open" not in results.values()
    assert done.refused == {("198.18.7.7", 80), ("198.19.255.1", 443)}


TLS = """
import socket, ssl, sys
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
if sys.argv[2:] == ["1.2"]: context.maximum_version = ssl.TLSVersion.TLSv1_2
raw = socket.create_connection(("good.test", 443), timeout=10)
try:
    with context.wrap_socket(raw, server_hostname=sys.argv[1] or None) as s: print(s.version())
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_the_server_name_of_tls_must_be_the_name_that_was_looked_up(world, version):
    options = ["--allow", "good.test", "--allow", "other.test"]
    for name, works in (("good.test", True), ("GOOD.test", True), ("other.test", False), ("", False)):
        done = world.box(options, "python3", "-c", TLS, name, version)
        assert done.out.strip() == (f"TLSv{version}" if works else "ConnectionResetError"), (name, done)
        assert bool(done.refused) == (not works)


def test_a_hello_in_single_bytes_and_records_passes(world):
    code = """
import socket, ssl, time
context = ssl.create_default_context(cafile="/ca.pem")
inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(inside, outside, server_hostname="good.test")
raw = socket.create_connection(("good.test", 443), timeout=10)
raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
first = True
while True:
    try:
        tls.do_handshake(); done = True
    except ssl.SSLWantReadError:
        done = False
    data = outside.read()
    if first:       # each byte of the message in a record of its own
        data, first = b"".join(data[:3] + b"\\0\\1" + bytes([b]) for b in data[5:]), False
        for i in range(0, len(data), 7): raw.send(data[i:i + 7])
    elif data:
        raw.sendall(data)
    if done: break
    inside.write(raw.recv(65536))
print(tls.version())
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out.startswith("TLSv1"), done.err


def test_servers_that_speak_first_and_other_protocols_work(world):
    code = """
import socket
s = socket.create_connection(("good.test", 25), timeout=10)
print(s.recv(100)); s.send(b"HELO\\r\\n"); print(s.recv(100))
s.shutdown(socket.SHUT_WR); print(s.recv(100))
s = socket.create_connection(("good.test", 7), timeout=10)
s.sendall(b"\\x16"); s.sendall(b"\\x00 no TLS"); print(s.recv(100))
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out.splitlines() == ["b'220 hello\\r\\n'", "b'HELO\\r\\n'", "b''", "b'\\x16\\x00 no TLS'"], done.err


def test_bytes_pass_unchanged_and_each_end_is_told_of_the_other(world):
    code = """
import hashlib, os, socket, threading
data = os.urandom(1 << 20) * 24
s = socket.create_connection(("good.test", 7), timeout=60)
def send(): s.sendall(data); s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = hashlib.sha256()
while chunk := s.recv(1 << 16): back.update(chunk)
print(back.digest() == hashlib.sha256(data).digest())
s = socket.create_connection(("good.test", 5002), timeout=60); s.sendall(data); s.shutdown(socket.SHUT_WR)
print(s.recv(100) == b"%d\\n" % len(data))
try: print(socket.create_connection(("good.test", 5003), timeout=10).recv(1))
except ConnectionResetError: print("reset")     # connect() sees it, too, if the reset comes before the program has woken up
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out.split() == ["True", "True", "reset"], done.err


def test_udp_that_is_refused_is_told_and_looks_so_at_once(world):
    code = """
import errno, socket, time
begun = time.monotonic()
for to in (("203.0.113.53", 53), ("good.test", 443), ("198.51.100.7", 5000)):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try: s.sendto(b"x", to); print("sent")
    except OSError as error: print(errno.errorcode[error.errno])
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
try: s.sendto(b"x", ("2001:db8:77::10", 53)); print("sent")
except OSError as error: print(errno.errorcode[error.errno])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.sendto(b"x", ("224.0.0.251", 5353)); print("sent")
except OSError as error: print(errno.errorcode[error.errno])
print(time.monotonic() - begun < 5)
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out.split() == ["EPERM"] * 5 + ["True"], done
    assert done.refused == {("203.0.113.53", 53), ("good.test", 443), ("198.51.100.7", 5000), ("2001:db8:77::10", 53)}
    assert "203.0.113.53:53 (UDP; only TCP and names are carried)" in done.err and "allow it with" not in done.err
    assert {one["rule"] for one in done.report["net"]["refused"]} == {None}


ADDRESSES = "this box has no network: connections to addresses were refused; rules can name addresses, too"


@pytest.mark.parametrize("address", ["192.0.2.77", "[2001:db8::77]"])
def test_without_network_a_failed_command_is_told_of_addresses(world, address):
    done = world.box([], *CURL, f"https://{address}/")
    assert done.code == 7 and f"carrel: {ADDRESSES}\n" in done.err, done.err
    assert done.report["net"]["refused"] == [{"name": "addresses", "port": 0, "count": 1, "rule": None}]
    both = world.box([], "sh", "-c", f"{' '.join(CURL)} https://{address}/; {' '.join(CURL)} https://other.test/")
    assert "carrel: this box has no network: other.test, connections to addresses were refused; rules can name" in both.err


@pytest.mark.parametrize("command", ["exit 1", "curl -sS http://127.0.0.1:9/", "curl -sS http://localhost:9/", "curl -sS 'http://[::1]:9/'",
                                     "ping -c1 -W1 127.0.0.2 >/dev/null; exit 1", "curl -sS https://192.0.2.77/; true"])
def test_without_network_nothing_is_told_of_addresses_that_were_not_tried_or_did_not_matter(world, command):
    assert "addresses" not in world.box([], "sh", "-c", command).err


def test_a_run_can_bound_its_connections_and_bytes(world):
    code = """
import socket, time
kept = []
for _ in range(4):
    try: kept.append(socket.create_connection(("good.test", 5001), timeout=20))
    except OSError: print("refused")
begun = time.monotonic(); kept[0].sendall(b"2000000\\n"); n = 0
while n < 2000000: n += len(kept[0].recv(65536))
print(time.monotonic() - begun > 1)
"""
    done = world.python(["--allow", "good.test", "--net-limit", "connections=3,bandwidth=1M"], code)
    assert done.out.split() == ["refused", "True"], done
    assert "too many connections at once" in done.err
    done = world.box(["--allow", "good.test", "--net-limit", "speed=1"], "true")
    assert done.code == 125 and "use connections=100, bandwidth=4M" in done.err
    done = world.box(["--net-limit", "connections=1"], "true")
    assert done.code == 125 and "--net-limit goes with --allow" in done.err


def test_udp_within_the_box_works(world):
    code = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    a = socket.socket(family, socket.SOCK_DGRAM); a.bind((address, 0)); a.settimeout(10)
    b = socket.socket(family, socket.SOCK_DGRAM); b.connect(a.getsockname()); b.send(b"x"); print(a.recv(9))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("203.0.113.10", 80))     # how programs look for their address
own = s.getsockname()[0]
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind((own, 0)); a.settimeout(10); b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
b.sendto(b"y", a.getsockname()); print(a.recv(9))
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out.split() == ["b'x'", "b'x'", "b'y'"] and not done.refused, done


def test_a_server_of_the_host_is_reached_by_curl_too(world):
    host = ["python3", "-m", "http.server", "8099", "--bind", "127.0.0.1"]
    listener = world.host.start(*host, stdout=-3, stderr=-3, cwd="/usr/share")
    try:
        wait_for(lambda: world.host.run("nc", "-z", "127.0.0.1", "8099", check=False).returncode == 0)
        fetch = [*CURL, "-o", "/dev/null", "-w", "%{http_code}"]
        assert world.box(["--allow", "host.carrel.internal:8099"], *fetch, "http://host.carrel.internal:8099/").out == "200"
        assert world.box(["--allow", "ollama.carrel.internal:8099"], *fetch, "http://ollama.carrel.internal:8099/").out == "200"
        other = world.box(["--allow", "host.carrel.internal:8099"], *fetch, "http://other.carrel.internal:8099/")
        assert other.code == 6 and other.refused == {("other.carrel.internal", 0)}
        for options in (["--net", "public"], ["--allow", "*.internal"], ["--allow", "0.0.0.0/0"]):
            assert world.box(options, *fetch, "http://host.carrel.internal:8099/").code != 0
    finally:
        listener.kill()
        listener.wait()


def test_udp_and_icmp_do_not_leave(world):
    code = """
import socket
for family, to in ((socket.AF_INET, "203.0.113.53"), (socket.AF_INET6, "2001:db8:77::10")):
    s = socket.socket(family, socket.SOCK_DGRAM)
    try: s.sendto(b"x", (to, 53)); print("sent")
    except OSError as error: print(error.errno != 0)
"""
    assert world.python(["--net", "public"], code).out.split() == ["True", "True"]


def test_git_clones_and_many_connections_at_once_work(world):
    code = """
import asyncio
async def one():
    r, w = await asyncio.open_connection("good.test", 7)
    w.write(b"x" * 1000); assert await r.readexactly(1000)
    return w
async def main():
    all = await asyncio.gather(*(one() for _ in range(800)))
    print(len(all))
asyncio.run(main())
"""
    done = world.python(["--allow", "good.test"], code)
    assert done.out == "800\n", done.err
    git = world.box(["--allow", "good.test"], "git", "ls-remote", "http://good.test:81/x.git")
    assert "Failed to connect" in git.err


def test_names_below_home_arpa_are_names(world):
    assert world.box(["--allow", "nas.home.arpa"], *CURL, "http://nas.home.arpa/").code == 0
    reverse = world.box(["--net", "public"], "dig", "+tries=1", "-x", "203.0.113.10")
    assert "status: NXDOMAIN" in reverse.out and not reverse.refused


def test_a_search_list_of_the_host_changes_no_name(world):
    assert world.box(["--allow", "good"], *CURL, "http://good/").code == 6


def test_settings_of_the_resolver_are_read_again(world):
    code = """
import socket, time
deadline = time.monotonic() + 40
print("start", flush=True)
while time.monotonic() < deadline:
    try:
        socket.gethostbyname("friend.test"); print("found"); break
    except OSError: time.sleep(0.2)
"""
    before = world.settings.read_text()
    world.settings.write_text("nameserver 203.0.113.54\noptions timeout:1\n")
    try:

        child = world.host.start(
            os.path.abspath(CARREL),
            "run",
            "--allow",
            "friend.test",
            "--",
            "python3",
            "-u",
            "-c",
            code,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout.readline() == "start\n"
    finally:
        world.settings.write_text(before)
    assert child.stdout.readline() == "found\n"
    assert child.wait(30) == 0


def test_without_nf_tables_a_box_with_rules_is_refused_and_others_run(world):
    def run(*options):
        return world.host.run("python3", "-B", HERE / "denied.py", os.path.abspath(CARREL), "run", *options, "--", "echo", "ran",
                              check=False, capture_output=True, text=True)  # fmt: skip

    refused = run("--allow", "good.test")
    assert refused.returncode == 125 and refused.stdout == ""
    assert "it needs nf_tables with nft_tproxy and nft_reject_inet" in refused.stderr, refused.stderr
    assert run().stdout == "ran\n"


def test_an_ordinary_users_box_reaches_what_it_may_and_nothing_else(world, programs):
    shutil.copy(os.environ.get("CARREL_EGRESS", "build/carrel-egress"), programs / "carrel-egress")

    def run(*command):
        return world.host.run(
            *user_command(ORDINARY),
            programs / "carrel",
            "run",
            "--allow",
            "good.test",
            "--",
            *command,
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
        )

    done = run(*CURL[:-2], "http://good.test/")
    assert done.returncode == 0, done.stderr
    refused = run(*CURL[:-2], "http://other.test/")
    assert refused.returncode == 6 and "other.test" in refused.stderr
    assert run(*CURL[:-2], "http://203.0.113.11/").returncode == 7
