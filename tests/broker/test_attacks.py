"""Attacks from inside of a box: what a program with the placeholder tries. Whatever it sends, the upstream gets whole requests to itself with
the key in one field, or nothing."""

import json
import subprocess

import pytest
from keys import HOST, VALUE, command, variables

RAW = """
import json, os, socket, ssl, sys
key, data = os.environ["API_KEY"].encode(), sys.stdin.buffer.read().decode("unicode_escape").encode("latin-1")
s = ssl.create_default_context().wrap_socket(socket.create_connection(("%s", 443), timeout=20), server_hostname="%s")
s.sendall(data.replace(b"KEY", key))
got = b""
try:
    while more := s.recv(65536): got += more
except (socket.timeout, ssl.SSLError, ConnectionError) as error: got += b"<" + type(error).__name__.encode() + b">"
print(json.dumps(got.decode("latin-1")))
""" % (HOST, HOST)


def box(upstream, *words, options=(), stdin=None, key=f"API_KEY@{HOST}", value=VALUE, user=None, carrel=None):
    return upstream.world.host.run(*command(user, [*options, *(["-i"] if stdin else [])], *words, key=key, carrel=carrel), check=False, capture_output=True, text=True, cwd="/", timeout=90,
                                   env=variables(value), input=stdin)  # fmt: skip


def raw(upstream, carrel, data):
    """Sends bytes in a TLS connection to the host. Returns what came back, and the heads that arrived upstream."""
    upstream.requests()
    done = box(upstream, "python3", "-c", RAW, stdin=data.encode("unicode_escape").decode(), carrel=carrel)
    assert done.returncode == 0 and "ERROR" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    return json.loads(done.stdout), upstream.heads()


AUTH = "Authorization: Bearer KEY\r\n"
GET = f"GET /hello HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}"

REFUSED = {
    "no Host": (f"GET / HTTP/1.1\r\n{AUTH}\r\n", 400),
    "two Hosts": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: evil.test\r\n{AUTH}\r\n", 400),
    "two equal Hosts": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\n{AUTH}\r\n", 400),
    "another Host": (f"GET / HTTP/1.1\r\nHost: other.keys.test\r\n{AUTH}\r\n", 421),
    "a Host below": (f"GET / HTTP/1.1\r\nHost: a.{HOST}\r\n{AUTH}\r\n", 421),
    "a Host with more": (f"GET / HTTP/1.1\r\nHost: {HOST}.evil.test\r\n{AUTH}\r\n", 421),
    "a Host with another port": (f"GET / HTTP/1.1\r\nHost: {HOST}:444\r\n{AUTH}\r\n", 421),
    "a Host with a user": (f"GET / HTTP/1.1\r\nHost: a@{HOST}\r\n{AUTH}\r\n", 400),
    "an absolute URI": (f"GET https://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n", 400),
    "an absolute URI of another host": (f"GET https://evil.test/ HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n", 400),
    "CONNECT": (f"CONNECT evil.test:443 HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n", 501),
    "TRACE": (f"TRACE / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n", 405),
    "a length and chunks": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400),
    "a length with a sign": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Content-Length: +5\r\n\r\nhello", 400),
    "two codings": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
    "an unknown coding": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    "a coding after a blank": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    "a folded field": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: a\r\n b\r\n{AUTH}\r\n", 400),
    "a folded key": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer\r\n KEY\r\n\r\n", 400),
    "a bare CR": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: a\rInjected: b\r\n{AUTH}\r\n", 400),
    "a bare LF": (f"GET / HTTP/1.1\nHost: {HOST}\n{AUTH.strip()}\n\n", 400),
    "a NUL": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: a\0b\r\n{AUTH}\r\n", 400),
    "HTTP/1.0": (f"GET / HTTP/1.0\r\nHost: {HOST}\r\n{AUTH}\r\n", 505),
    "HTTP/0.9": ("GET /\r\n\r\n", 400),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "an upgrade": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{AUTH}\r\n", 501),
    "h2c": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n{AUTH}\r\n", 501),
    "a head of 40 KB": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}" + "X: " + "a" * 40000 + "\r\n\r\n", 431),
    "200 fields": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}" + "X: a\r\n" * 200 + "\r\n", 431),
    "a target of 9 KB": (f"GET /{'a' * 9000} HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n", 414),
    "dot segments": (f"GET /a/../../b HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n", 400),
    "the key twice": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}{AUTH}\r\n", 400),
    "the key in a list": (f"GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer KEY, KEY\r\n\r\n", 400),
    "a broken chunk": (f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_two_programs_could_read_differently_is_refused(upstream, checked, name):
    data, status = REFUSED[name]
    answer, heads = raw(upstream, checked, data)
    assert answer.startswith(f"HTTP/1.1 {status} "), answer[:300]
    told = json.loads(answer.split("\r\n\r\n", 1)[1])["error"]
    assert told["type"] == "carrel_broker" and len(told["message"]) > 10
    assert "sk-real" not in answer
    # Only a broken body is noticed after its head has gone.
    assert heads == [] or name == "a broken chunk"


def test_a_request_in_a_body_stays_there(upstream, checked):
    inner = f"GET /echo HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n"
    size = len(inner) - len("KEY") + len("carrel-placeholder-") + 24
    answer, heads = raw(upstream, checked, f"POST /hello HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n{inner}")
    assert answer.count("HTTP/1.1 200 OK") == 1 and len(heads) == 1, answer
    chunks = f"5;a=b\r\nhello\r\n0\r\nAuthorization: Bearer KEY\r\n\r\n"
    answer, heads = raw(upstream, checked, f"POST /echo HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\nConnection: close\r\n\r\n{chunks}")
    assert json.loads(answer.split("\r\n\r\n", 1)[1])["body"] == "hello" and VALUE not in heads[0]


def test_pipelined_requests_are_answered_in_order(upstream, checked):
    answer, heads = raw(upstream, checked, f"{GET}\r\n" * 3 + f"{GET}Connection: close\r\n\r\n" + f"{GET}\r\n")
    assert answer.count("hello\n") == 4 and len(heads) == 4, answer


def test_fields_of_the_connection_stay_here(upstream, checked):
    answer, heads = raw(upstream, checked, f"{GET}Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: Bearer KEY\r\nTE: trailers\r\n"
                        "Accept-Encoding: gzip\r\nX-Kept: 1\r\n\r\n")
    head = heads[0].lower()
    assert "x-kept: 1\r\n" in head and "accept-encoding: identity\r\n" in head
    assert not any(word in head for word in ("x-mine", "keep-alive", "proxy-", "\r\nte:", "gzip")), head


def test_a_hostile_stream_of_bytes_ends_that_connection_alone(upstream, checked):
    code = """
import os, socket, ssl
context = ssl.create_default_context()
for data in (b"", b"x", b"\\x16\\x03\\x01", os.urandom(5000), b"GET / HTTP/1.1\\r\\n\\r\\n"):
    s = socket.create_connection(("api.keys.test", 443), timeout=20)
    try:
        s.sendall(data); s.shutdown(socket.SHUT_WR); s.recv(100)
    except OSError: pass
for _ in range(20):
    s = context.wrap_socket(socket.create_connection(("api.keys.test", 443), timeout=20), server_hostname="api.keys.test")
    s.sendall(os.urandom(3000)); s.close()
import urllib.request
print(urllib.request.urlopen("https://api.keys.test/hello").read())
"""
    done = box(upstream, "python3", "-c", code, carrel=checked)
    assert done.stdout == "b'hello\\n'\n" and "ERROR" not in done.stderr, done.stderr


def test_another_server_name_in_the_hello_is_cut(upstream):
    code = """
import socket, ssl
context = ssl.create_default_context(); context.check_hostname = False
for name in ("other.keys.test", None):
    try: context.wrap_socket(socket.create_connection(("api.keys.test", 443), timeout=20), server_hostname=name); print("open")
    except OSError as error: print("cut")
"""
    done = box(upstream, "python3", "-c", code)
    assert done.stdout == "cut\ncut\n", done.stderr
    assert "asked for other.keys.test" in done.stderr


def test_the_authority_of_a_box_vouches_for_its_hosts_alone(upstream, tmp_path):
    done = box(upstream, "sh", "-c", "awk '/BEGIN/{n++} n==1' /run/carrel/ca.pem")
    (tmp_path / "ca.pem").write_text(done.stdout)
    text = subprocess.run(["openssl", "x509", "-in", tmp_path / "ca.pem", "-noout", "-text"], check=True, capture_output=True, text=True).stdout
    assert "Name Constraints: critical" in text and f"DNS:{HOST}" in text and "CA:TRUE, pathlen:0" in text and "IP:0.0.0.0/0.0.0.0" in text, text
    other = box(upstream, "sh", "-c", "awk '/BEGIN/{n++} n==1' /run/carrel/ca.pem").stdout
    assert other != done.stdout
    # A program that trusts another box's authority does not believe this box's broker.
    failed = box(upstream, "curl", "-sS", "--cacert", "/other.pem", f"https://{HOST}/hello", options=["--mount", f"{tmp_path}/ca.pem:/other.pem"])
    assert failed.returncode == 60, failed.stderr


def test_without_a_key_the_host_has_its_own_certificate(upstream):
    done = box(upstream, "sh", "-c", f"curl -sS --http1.1 https://{HOST}/hello; ls /run/carrel", key=(), options=["--allow", HOST])
    assert done.stdout.split()[0] == "hello" and "ca." not in done.stdout, done


def test_a_host_with_a_key_is_not_reached_around_the_broker(upstream):
    """Neither by its address nor by another port, unless the user allowed that."""
    script = f"for to in https://203.0.113.20/ http://{HOST}/ https://{HOST}:8443/; do curl -sS -k --max-time 5 $to; echo $?; done"
    done = box(upstream, "sh", "-c", script)
    assert done.stdout.split() == ["7", "7", "7"], done.stdout + done.stderr


def test_files_of_certificates_cannot_be_changed(upstream):
    done = box(upstream, "sh", "-c", "for f in /run/carrel/ca.pem /etc/ssl/certs/ca-certificates.crt; do echo x >>$f || rm -f $f || mv $f /tmp; done; id -u; ls -ln /run/carrel/ca.pem",
               options=["--user", "0:0"])
    assert "Read-only" in done.stderr or "Permission" in done.stderr
    assert done.stdout.startswith("0\n-rw-r--r-- 1 65534 65534"), done.stdout
