"""`carrel run --key`: real programs in boxes, through egress and broker, to a real TLS server."""

import json

import pytest

from keys import HOST, VALUE, command, variables


def box(upstream, *words, options=(), user=None, value=VALUE, timeout=60, stdin=None, **more):
    return upstream.world.host.run(*command(user, [*options, *(["-i"] if stdin else [])], *words, **more), check=False, capture_output=True, text=True, cwd="/", timeout=timeout,
                                   env=variables(value), input=stdin)


def test_curl(upstream):
    done = box(upstream, "sh", "-c", f'echo $API_KEY; curl -sS -H "Authorization: Bearer $API_KEY" https://{HOST}/echo')
    placeholder, answer = done.stdout.split("\n", 1)
    assert placeholder.startswith("carrel-placeholder-"), done.stderr
    told = json.loads(answer)
    assert told["fields"]["host"] == HOST
    assert VALUE not in done.stdout + done.stderr
    assert any(f"Authorization: Bearer {VALUE}\r\n" in head for head in upstream.heads())


def curl(upstream, path, *words, **more):
    script = 'exec curl -sS --max-time 30 -H "Authorization: Bearer $API_KEY" "$@"'
    return box(upstream, "sh", "-c", script, "curl", *words, f"https://{HOST}{path}", **more)


def python(upstream, code, *words, **more):
    return box(upstream, "python3", "-c", code, *words, **more)


def test_http_2_is_answered_with_1_1(upstream):
    done = curl(upstream, "/hello", "--http2", "-w", "%{http_version} %{num_connects}")
    assert done.stdout == "hello\n1.1 1", done.stderr
    done = python(upstream, """
import socket, ssl
context = ssl.create_default_context(); context.set_alpn_protocols(["h2"])
try: context.wrap_socket(socket.create_connection(("api.keys.test", 443)), server_hostname="api.keys.test"); print("open")
except ssl.SSLError as error: print(error)
""")
    assert "alert no application protocol" in done.stdout, done.stdout


def test_a_connection_is_kept_for_many_requests(upstream):
    upstream.requests()
    done = curl(upstream, "/hello", *[f"https://{HOST}/hello"] * 5, "-w", "%{num_connects} ")
    assert done.stdout == "hello\n1 " + "hello\n0 " * 5, done.stderr
    assert len(upstream.heads()) == 6


def test_bodies_of_all_kinds_arrive_whole(upstream):
    done = python(upstream, """
import hashlib, http.client, json, os, ssl
c = http.client.HTTPSConnection("api.keys.test", context=ssl.create_default_context())
key = {"Authorization": "Bearer " + os.environ["API_KEY"]}
for size in (0, 1, 16383, 16384, 16385, 3000000):
    data = os.urandom(size)
    c.request("POST", "/echo", data, key)
    told = json.loads(c.getresponse().read())
    assert told.get("digest") == hashlib.sha256(data).hexdigest(), (size, told)
    c.request("POST", "/echo", (data[i:i + 999] for i in range(0, min(size, 200000), 999)), key, encode_chunked=True)
    told = json.loads(c.getresponse().read())
    assert told["digest"] == hashlib.sha256(data[:200000] if size < 200000 else data[:199800 + 999]).hexdigest(), size
    c.request("HEAD", "/hello", headers=key)
    answer = c.getresponse()
    assert answer.read() == b"" and answer.headers["Content-Length"] == "6"
c.request("GET", "/bytes?50000000", headers=key)
answer, n = c.getresponse(), 0
while piece := answer.read(1 << 20): n += len(piece)
print(n)
""", options=["--memory", "1G"])
    assert done.stdout == "50000000\n", done.stderr


def test_100_continue_and_an_answer_before_the_upload(upstream):
    done = curl(upstream, "/echo", "-H", "Expect: 100-continue", "--data-binary", "@/etc/services", "-v")
    assert "HTTP/1.1 100 Continue" in done.stderr and json.loads(done.stdout)["size"], done.stderr
    done = python(upstream, """
import http.client, os, ssl
c = http.client.HTTPSConnection("api.keys.test", context=ssl.create_default_context())
try: c.request("POST", "/refuse", b"x" * 20000000, {"Authorization": "Bearer " + os.environ["API_KEY"]})
except (BrokenPipeError, ConnectionResetError, ssl.SSLError): pass
answer = c.getresponse(); print(answer.status, answer.read())
""", options=["--memory", "1G"])
    assert done.stdout == "413 b'too large\\n'\n", done.stderr


def test_answers_stream(upstream):
    done = python(upstream, """
import http.client, os, ssl, time
c = http.client.HTTPSConnection("api.keys.test", context=ssl.create_default_context())
c.request("GET", "/sse", headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
answer, times = c.getresponse(), []
while line := answer.readline():
    if line.strip(): times.append(time.monotonic())
print(len(times), times[-1] - times[0] > 0.6)
""")
    assert done.stdout == "5 True\n", done.stderr


def test_hints_pass_and_other_ways_to_the_server_do_not(upstream):
    done = curl(upstream, "/hints", "-i")
    assert "103 Early Hints" in done.stdout and "hello\n" in done.stdout and "Alt-Svc" not in done.stdout, done.stdout


def test_an_answer_to_nothing_reaches_nobody(upstream):
    done = curl(upstream, "/twice", f"https://{HOST}/hello")
    assert done.stdout == "hello\nhello\n", done.stdout


@pytest.mark.parametrize("path", ["/leak", "/leak-in-pieces", "/leak-until-close"])
def test_an_echoed_value_is_masked(upstream, path):
    done = curl(upstream, path, "-i")
    stars = "*" * len(VALUE)
    assert VALUE not in done.stdout and stars in done.stdout, done.stdout
    if path == "/leak-in-pieces":
        assert done.stdout.endswith(f"start {stars} {VALUE[:10]}{stars} end")
    if path == "/leak-until-close":
        assert done.stdout.endswith(f"{stars} and {VALUE[:-1]}")


def test_a_placeholder_elsewhere_stays_one(upstream):
    upstream.requests()
    script = 'curl -sS -H "X-Other: $API_KEY" -H "Cookie: a=$API_KEY" -d "key=$API_KEY" "https://$1/echo?key=$API_KEY"'
    done = box(upstream, "sh", "-c", script, "sh", HOST)
    assert done.stdout.count("carrel-placeholder-") == 3, done.stdout
    seen = json.dumps(upstream.requests())
    assert VALUE not in seen and seen.count("carrel-placeholder-") == 4


def test_another_form_of_the_header_is_refused_with_words(upstream):
    upstream.requests()
    for value, words in (("Basic $API_KEY", "in another form than 'Authorization: Bearer {}'"), ("Bearer  $API_KEY", "another form"),
                         ("Bearer $API_KEY,$API_KEY", "another form")):  # fmt: skip
        done = box(upstream, "sh", "-c", f'curl -sS -H "Authorization: {value}" https://{HOST}/echo')
        assert words in json.loads(done.stdout)["error"]["message"], done.stdout + done.stderr
    done = box(upstream, "sh", "-c", f'curl -sS -H "Authorization: Bearer $API_KEY" -H "Authorization: Bearer x" https://{HOST}/echo')
    assert "occurs 2 times" in done.stdout
    assert upstream.requests() == []
    done = box(upstream, "sh", "-c", f'curl -sS -H "authorization: bearer $API_KEY" https://{HOST}/hello')
    assert done.stdout == "hello\n" and f"authorization: Bearer {VALUE}\r\n" in upstream.heads()[0]


def test_a_redirect_to_another_host_goes_without_the_key(upstream):
    upstream.requests()
    done = curl(upstream, "/redirect", "-L", "--location-trusted", options=["--allow", "other.keys.test"])
    assert done.stdout, (done.stderr, upstream.requests())
    assert json.loads(done.stdout)["fields"]["host"] == "other.keys.test", done.stderr
    first, second = upstream.heads()
    assert VALUE in first and VALUE not in second and "Bearer carrel-placeholder-" in second


def test_two_keys_in_headers_of_their_own(upstream):
    upstream.requests()
    key = ["ONE@api.keys.test:x-api-key: {}", "TWO@other.keys.test:X-Auth: token={};v=1"]
    script = """curl -sS -H "X-Api-Key: $ONE" -H "X-Auth: token=$TWO;v=1" https://api.keys.test/echo
                curl -sS -H "X-Api-Key: $ONE" -H "X-Auth: token=$TWO;v=1" https://other.keys.test/echo"""
    done = box(upstream, "sh", "-c", script, key=key, value={"ONE": VALUE, "TWO": "other-" + VALUE})
    one, two = upstream.heads()
    assert f"X-Api-Key: {VALUE}\r\n" in one and "token=carrel-placeholder-" in one, done.stderr
    assert f"X-Auth: token=other-{VALUE};v=1\r\n" in two and "X-Api-Key: carrel-placeholder-" in two


FAILURES = {
    "untrusted.keys.test": "certificate is not accepted (unable to get local issuer certificate)",
    "misnamed.keys.test": "certificate is not accepted (hostname mismatch)",
    "plain.keys.test": "it does not answer in TLS",
}


@pytest.mark.parametrize("host", FAILURES)
def test_an_upstream_that_cannot_be_trusted_gets_nothing(upstream, host):
    upstream.requests()
    done = box(upstream, "sh", "-c", f'curl -sS -H "Authorization: Bearer $API_KEY" https://{host}/echo', key=f"API_KEY@{host}")
    told = json.loads(done.stdout)["error"]
    assert told["type"] == "carrel_broker" and FAILURES[host] in told["message"], done.stdout + done.stderr
    assert upstream.requests() == []


@pytest.mark.parametrize("path, words", [("/close", "closed the connection without an answer"), ("/smuggle", "both Content-Length and"),
                                         ("/switch", "changed the protocol")])  # fmt: skip
def test_an_upstream_that_fails_is_an_answer_with_words(upstream, path, words):
    done = curl(upstream, path)
    assert words in json.loads(done.stdout)["error"]["message"], done.stdout


@pytest.mark.parametrize("path", ["/cut", "/cut-until-close"])
def test_an_answer_that_breaks_off_does_not_look_whole(upstream, path):
    done = curl(upstream, path)
    assert done.returncode in (18, 56) and "only this".startswith(done.stdout), done.stderr


def test_an_upstream_that_stalls_holds_nobody_up(upstream):
    done = box(upstream, "sh", "-c", f"""
curl -sS --max-time 4 https://{HOST}/stall & curl -sS https://{HOST}/hello; wait""")
    assert done.stdout == "hello\n" and "timed out" in done.stderr, done.stderr


OPTIONS = [["--writable-root", "--disk", "256M"], ["--profile", "system", "--writable-root"], ["--profile", "strict"], ["--user", "0:0"], ["--root", "/"], ["--no-proc"],
           ["--root", "/", "--writable-root", "--profile", "system", "--disk", "256M"]]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_a_key_works_in_every_kind_of_box(upstream, options):
    done = curl(upstream, "/hello", options=options)
    assert done.stdout == "hello\n", done.stderr
    # Without variables, by the files that programs read by default.
    script = 'unset SSL_CERT_FILE CURL_CA_BUNDLE; exec curl -sS -H "Authorization: Bearer $API_KEY" "https://$1/hello"'
    assert box(upstream, "sh", "-c", script, "sh", HOST, options=options).stdout == "hello\n"


def test_keys_and_other_rules_together(upstream):
    script = """curl -sS --http1.1 https://other.keys.test/hello; curl -sS -H "Authorization: Bearer $API_KEY" https://api.keys.test/hello; curl -sS --max-time 5 http://good.test/ >/dev/null; echo $?"""
    done = box(upstream, "sh", "-c", script, options=["--allow", "other.keys.test:443", "--net-limit", "connections=5,bandwidth=10M"])
    assert done.stdout == "hello\nhello\n6\n", done.stderr


def test_a_host_of_many_certificates_and_a_broken_one(upstream, tmp_path):
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    for file, words in ((broken, "carrel-broker: host: /etc/ssl/certs/ca-certificates.crt"), (empty, "holds no certificate")):
        carrel = command(None, [], "true")
        done = upstream.world.host.run("unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc/ssl/certs/ca-certificates.crt && shift && exec "$@"', "sh", file, *carrel,
                                       env=variables(), check=False, capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 125 and words in done.stderr and "the broker has ended" in done.stderr, done.stderr
