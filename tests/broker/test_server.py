"""Keys of a server's boxes: root's server and an ordinary user's, each with its own broker."""

import json
import os
import shutil
import subprocess
import time

import pytest
from keys import CERTIFICATES, HOST, VALUE
from test_secrecy import family, holds, name_of

from support import BUILD
from support.processes import children
from support.server import Server
from support.users import ORDINARY, user_command
from support.waiting import wait_for

KEY = {"secret": "api", "name": "API_KEY", "host": HOST}
CURL = 'curl -sS --max-time 20 -H "Authorization: Bearer $API_KEY"'


class Keyed(Server):
    def secret(self, name, value, replace=False):
        answer = self.admin.ask("PUT", f"/v1/secrets/{name}" + ("?replace=true" if replace else ""), value.encode())
        assert answer.status in (200, 201), answer.body

    def box(self, *keys, **settings):
        answer = self.admin.post("/v1/boxes", {"keys": list(keys) or [KEY], **settings})
        assert answer.status == 201, answer.json
        return answer.json["id"]

    def sh(self, box, script, **more):
        answer = self.admin.post(f"/v1/boxes/{box}/exec", {"argv": ["sh", "-c", script], **more})
        assert answer.status == 200, answer.json
        return answer.json

    def says_hello(self, box, where=f"https://{HOST}/hello"):
        return self.sh(box, f"{CURL} {where}")["stdout"] == "hello\n"


@pytest.fixture(scope="module", params=["root", ORDINARY])
def server(request, upstream):
    user = None if request.param == "root" else request.param
    made = Keyed("--set", f"templates.python.python={os.environ.get('KERNEL_PYTHON', '/usr/bin/python3')}", "--set", f"templates.keyed.keys=API_KEY=api@{HOST}",
                 "--set", "network.deny=denied.keys.test", user=user, enter=upstream.world.host.enter)
    made.secret("api", VALUE)
    yield made
    made.stop()


@pytest.fixture
def box(server):
    made = server.box()
    yield made
    server.admin.delete(f"/v1/boxes/{made}")


def test_a_request_carries_the_key_and_the_box_a_placeholder(server, box, upstream):
    upstream.requests()
    done = server.sh(box, f"echo $API_KEY; {CURL} https://{HOST}/leak")
    placeholder, answer = done["stdout"].split("\n", 1)
    assert placeholder.startswith("carrel-placeholder-"), done
    assert answer == f"your key is {'*' * len(VALUE)}!\n", done
    assert f"Authorization: Bearer {VALUE}\r\n" in upstream.heads()[0]


def test_the_record_has_names_and_no_value(server, box):
    shown = server.admin.get(f"/v1/boxes/{box}").json
    assert shown["keys"] == [{**KEY, "header": "Authorization: Bearer {}"}] and shown["net"] == "none"
    events = server.admin.get(f"/v1/boxes/{box}/events").json
    assert VALUE not in json.dumps([shown, events])


def test_only_the_hosts_of_keys_are_reached(server, box):
    refused = server.sh(box, "curl -sS --max-time 10 https://other.keys.test/hello")
    assert refused["exit_code"] != 0 and refused["refused"]["rule"].startswith("other.keys.test"), refused
    refused = server.sh(box, f"curl -sS --max-time 10 http://{HOST}/hello")
    assert refused["exit_code"] != 0, refused


def start(server, box, code, stdin=False):
    """Runs in the background; what it prints is in a file of the box."""
    argv = ["python3", "-c", "import sys; sys.stdout = open('/tmp/out', 'w', 1)\n" + code]
    answer = server.admin.post(f"/v1/boxes/{box}/exec", {"background": True, "stdin": stdin, "argv": argv})
    assert answer.status in (200, 201, 202), answer.json
    return f"/v1/boxes/{box}/exec/{answer.json['id']}"


def printed(server, box):
    return server.sh(box, "cat /tmp/out 2>&1")["stdout"]


KEPT = f"""
import http.client, itertools, os, ssl
c = http.client.HTTPSConnection("{HOST}", context=ssl.create_default_context(), timeout=20)
for line in itertools.chain(["first"], sys.stdin):
    c.request("GET", "/hello", headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}}); c.getresponse().read()
    print("port", c.sock.getsockname()[1])
"""


def python(server, box, code):
    return server.sh(box, "python3 - <<'EOF'\n" + code + "\nEOF")


def test_requests_of_python_and_the_file_of_certificates(server, box):
    done = python(server, box, f"""
import os, ssl, urllib.request
request = urllib.request.Request("https://{HOST}/hello", headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}})
print(urllib.request.urlopen(request, timeout=20).read(), os.environ["SSL_CERT_FILE"])
try: open("/run/carrel/ca.pem", "a")
except OSError as error: print("read-only", error.errno)
""")
    assert done["stdout"].startswith("b'hello\\n' /run/carrel/ca.pem\nread-only"), done


def test_a_process_that_is_killed_costs_open_connections_only(server, box):
    for victim in ("carrel-broker", "carrel-egress", "front"):
        before = pid_of(server, victim)
        os.kill(before, 9)
        wait_for(lambda: pid_of(server, victim) not in (None, before), server.log_text, 20)
        wait_for(server.is_ready, server.log_text, 20)
        wait_for(lambda: server.says_hello(box), server.log_text, 20)
    new = server.box()
    assert server.says_hello(new)
    server.admin.delete(f"/v1/boxes/{new}")


def pid_of(server, word):
    """The supervisor's child of that name."""
    if word in ("front", "keeper"):
        return server.child(word)
    return next((pid for pid in children(server.process.pid) if name_of(pid) == word), None)


def test_a_connection_lives_on_while_the_front_is_restarted(server, box):
    """The broker keeps what the new front sends again."""
    job = start(server, box, KEPT, stdin=True)
    wait_for(lambda: printed(server, box).startswith("port"), "the first request", 20)
    server.kill("front")
    wait_for(lambda: server.says_hello(box), server.log_text, 20)
    assert server.admin.post(f"{job}/stdin?close=true", b"again\n").status == 200
    wait_for(lambda: printed(server, box).count("port") == 2, lambda: printed(server, box), 20)
    first, second = printed(server, box).splitlines()
    assert first == second


def test_a_rotated_secret_is_used_by_the_next_request(server, upstream):
    server.secret("rotated", VALUE)
    box = server.box({**KEY, "secret": "rotated"})
    assert server.says_hello(box)
    job = start(server, box, KEPT, stdin=True)
    wait_for(lambda: printed(server, box).startswith("port"), "the first request", 20)
    upstream.requests()
    server.secret("rotated", "another-value-of-it", replace=True)
    server.admin.post(f"{job}/stdin?close=true", b"again\n")
    wait_for(lambda: printed(server, box).count("port") == 2, lambda: printed(server, box), 20)
    first, second = printed(server, box).splitlines()
    assert first == second and "Authorization: Bearer another-value-of-it\r\n" in upstream.heads()[0]
    # A secret that is gone is used by no request any more.
    assert server.admin.delete("/v1/secrets/rotated").status == 204
    upstream.requests()
    assert server.sh(box, f"{CURL} https://{HOST}/hello")["exit_code"] != 0
    assert upstream.requests() == []
    server.admin.delete(f"/v1/boxes/{box}")


BAD = {
    "is no secret": ({**KEY, "secret": "missing"}, 400, "missing"),
    "short": ({**KEY, "secret": "short"}, 400, "the secret short has 5 bytes; a key has at least 8"),
    "line": ({**KEY, "secret": "line"}, 400, "byte 9 of the value in the secret line is a blank, a control character"),
    "long": ({**KEY, "secret": "long"}, 413, "the secret long has more than 4096 bytes"),
    "address": ({**KEY, "host": "10.0.0.1"}, 400, "keys[0].host: 10.0.0.1 is no name of a host"),
    "header": ({**KEY, "header": "x-api-key"}, 400, "keys[0].header: 'x-api-key' is no header with the key's place"),
    "own header": ({**KEY, "header": "Host: {}"}, 400, "Host is no header for a key"),
    "no host": ({"secret": "api", "name": "API_KEY"}, 400, "keys[0].host is missing"),
    "no name": ({"secret": "api", "host": HOST}, 400, "keys[0].name is missing"),
    "name": ({**KEY, "name": "1A"}, 400, "'1A' cannot be the name of a variable"),
    "member": ({**KEY, "value": "x"}, 400, "unknown field 'keys[0].value'"),
    "denied": ({**KEY, "host": "denied.keys.test"}, 400, "keys[0]: denied.keys.test is denied by net, or by this server (network.deny)"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_key_is_refused_and_nothing_is_made(server, case):
    for name, value in (("short", "abcde"), ("line", "sk-real-\nInjected: 1"), ("long", "x" * 5000)):
        server.secret(name, value, replace=True)
    key, status, words = BAD[case]
    answer = server.admin.post("/v1/boxes", {"keys": [key]})
    assert answer.status == status and words in answer.json["error"]["message"], answer.json
    assert "Injected" not in answer.body.decode() and "abcde" not in answer.body.decode()


@pytest.mark.parametrize("settings, words", [
    ({"env": {"API_KEY": "mine"}}, "keys[0]: the box would get API_KEY itself by env"),
    ({"net": {"public": True, "deny": [HOST]}}, f"keys[0]: {HOST} is denied by net"),
    ({"net": {"deny": [HOST]}}, f"keys[0]: {HOST} is denied by net"),
    ({"keys": [{**KEY, "host": f"a{i}.keys.test"} for i in range(17)]}, "keys: a box can have 16 keys"),
    ({"keys": {"a": 1}}, "keys must be a list"),
])  # fmt: skip
def test_what_does_not_go_with_a_key_is_refused(server, settings, words):
    answer = server.admin.post("/v1/boxes", {"keys": [KEY], **settings})
    assert answer.status == 400 and words in answer.json["error"]["message"], answer.json


def test_a_later_network_must_not_deny_the_host(server, box):
    for net in ({"public": True, "deny": [HOST]}, {"deny": [HOST]}):
        answer = server.admin.patch(f"/v1/boxes/{box}", {"net": net})
        assert answer.status == 400 and "is denied by net" in answer.json["error"]["message"], answer.json
    assert server.admin.patch(f"/v1/boxes/{box}", {"net": "none"}).status == 200
    assert server.says_hello(box)


def test_a_template_has_keys(server):
    made = server.admin.post("/v1/boxes", {"template": "keyed"}).json
    assert made["keys"] == [{**KEY, "header": "Authorization: Bearer {}"}], made
    assert server.says_hello(made["id"])
    without = server.admin.post("/v1/boxes", {"template": "keyed", "keys": []}).json
    assert without["keys"] == [] and server.sh(without["id"], "echo [$API_KEY]")["stdout"] == "[]\n"
    for one in (made, without):
        server.admin.delete(f"/v1/boxes/{one['id']}")


def test_a_secret_of_another_identity_is_not_there(server, upstream):
    made = server.admin.post("/v1/tokens", {"identity": "other"}).json
    words = ["curl", "-sS", "-H", f"Authorization: Bearer {made['token']}", "-d", json.dumps({"keys": [KEY]}), f"http://127.0.0.1:{server.port}/v1/boxes"]
    answer = json.loads(upstream.world.host.run(*words, "-H", "Content-Type: application/json", capture_output=True).stdout)
    assert answer["error"]["message"] == "keys[0]: there is no secret 'api' of other; 'carrel secret create' makes it", answer


def test_another_boxes_authority_and_placeholder_are_worth_nothing(server, box, upstream):
    """Each box has an authority of its own; the placeholder of one is an ordinary text in another."""
    other = server.box()
    files = [server.sh(one, "cat /run/carrel/ca.pem")["stdout"] for one in (box, other)]
    assert files[0] != files[1]
    mine = server.sh(box, "echo $API_KEY")["stdout"].strip()
    upstream.requests()
    server.sh(other, f'curl -sS --max-time 20 -H "Authorization: Bearer {mine}" https://{HOST}/hello')
    assert all(VALUE not in head for head in upstream.heads())
    # The certificate that the broker shows in this box is not of the other box's authority.
    (own_of_box,) = set(files[0].split("-----BEGIN")[1:]) - set(files[1].split("-----BEGIN")[1:])
    done = python(server, other, f'''
import ssl, socket
pem = """-----BEGIN{own_of_box}"""
context = ssl.create_default_context(cadata=pem[:pem.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\\n")
try: context.wrap_socket(socket.create_connection(("{HOST}", 443)), server_hostname="{HOST}"); print("open")
except ssl.SSLCertVerificationError as error: print("refused")
''')
    assert done["stdout"] == "refused\n", done
    server.admin.delete(f"/v1/boxes/{other}")


def test_a_box_finds_no_way_to_the_broker_but_its_connections(server, box):
    done = python(server, box, """
import os, socket
found = [os.path.join(d, f) for d, _, fs in os.walk("/run") for f in fs if "broker" in f or "egress" in f or "keeper" in f]
names = []
for line in open("/proc/net/unix").read().splitlines()[1:]:
    if "broker" in line: names.append(line)
print(found, names)
""")
    assert done["stdout"] == "[] []\n", done


def test_the_brokers_socket_is_the_fronts_alone(server):
    (path,) = (server.folder / "run").glob("broker-*.sock")
    assert path.stat().st_mode & 0o777 == 0o600
    code = f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect({str(path)!r}); s.send(bytes(16)); print(s.recv(10))"
    done = upstream_run(["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", "/usr/bin/python3", "-c", code])
    assert "PermissionError" in done.stderr, done
    if server.user is None:
        done = upstream_run(["python3", "-c", code])
        assert done.stdout == "b''\n" or "ConnectionReset" in done.stderr or "BrokenPipe" in done.stderr, done
        assert "user 0 may not connect" in server.log_text()


def upstream_run(words):
    return subprocess.run(words, capture_output=True, text=True, timeout=30)


def test_a_stopped_box_has_its_keys_again_after_its_start(server):
    if server.user:
        pytest.skip("boxes on disk need root")
    box = server.box(store="disk", limits={"disk": "64M"})
    assert server.says_hello(box)
    before = server.sh(box, "echo $API_KEY")["stdout"]
    assert server.admin.post(f"/v1/boxes/{box}/stop").status == 200
    assert server.admin.post(f"/v1/boxes/{box}/start").status == 200
    assert server.says_hello(box) and server.sh(box, "echo $API_KEY")["stdout"] == before
    server.admin.delete(f"/v1/boxes/{box}")


def test_the_value_is_in_the_broker_alone(server, box):
    assert server.sh(box, f"{CURL} https://{HOST}/leak; {CURL} https://{HOST}/echo")["exit_code"] == 0
    start(server, box, KEPT + "time.sleep(600)", stdin=True)
    wait_for(lambda: printed(server, box).startswith("port"), "the request", 20)
    pids = {pid: name_of(pid) for pid in family(server.process.pid)}
    assert {"carrel-broker", "carrel-egress", "python3"} <= set(pids.values())
    assert {name for pid, name in pids.items() if holds(pid)} == {"carrel-broker"}
    # Files: the secret's own, and no other. The database with its log is among them.
    found = subprocess.run(["grep", "-rlsaF", VALUE, server.folder], capture_output=True, text=True).stdout.split()
    assert found and all("/state/secrets/" in one for one in found), found


def test_kills_under_load_leave_the_box_working(server):
    box = server.box(limits={"pids": 64} if server.user is None else {})
    start(server, box, f"""
import os, threading, time, urllib.request
def work():
    while True:
        try: urllib.request.urlopen(urllib.request.Request("https://{HOST}/leak", headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}}), timeout=10).read()
        except OSError: time.sleep(0.02)
for _ in range(4): threading.Thread(target=work, daemon=True).start()
print("up"); time.sleep(600)
""")
    wait_for(lambda: printed(server, box) == "up\n", "the load", 20)
    for victim in ("carrel-broker", "front", "carrel-egress", "carrel-broker", "front"):
        before = pid_of(server, victim)
        os.kill(before, 9)
        wait_for(lambda: pid_of(server, victim) not in (None, before), server.log_text, 20)
    wait_for(server.is_ready, server.log_text, 20)
    wait_for(lambda: server.says_hello(box), server.log_text, 20)
    assert VALUE not in server.log_text()
    server.admin.delete(f"/v1/boxes/{box}")
    server.kill("keeper")
    new = server.box()
    wait_for(lambda: server.says_hello(new), server.log_text, 20)
    server.admin.delete(f"/v1/boxes/{new}")


def test_a_deleted_box_is_forgotten(server, upstream):
    """The broker drops its keys: a value that is used by no other box is in no memory any more."""
    only = "only-this-box-has-this-value"
    server.secret("only", only)
    box = server.box({**KEY, "secret": "only"})
    assert server.says_hello(box)
    broker = pid_of(server, "carrel-broker")
    assert holds(broker, only.encode())
    server.admin.delete(f"/v1/boxes/{box}")
    wait_for(lambda: not holds(broker, only.encode()), "the broker forgets the value", 20)


def test_the_command_line(server, upstream):
    """carrel secret, create, py; as the server's user."""
    script = f'{CURL} https://{HOST}/hello'
    made = server.carrel("create", "--key", f"API_KEY=api@{HOST}", "--name", "cli")
    assert made.returncode == 0, made.stderr
    assert server.carrel("exec", "cli", "--", "sh", "-c", script).stdout == "hello\n"
    assert server.carrel("rm", "cli").returncode == 0
    for words, error in (([f"API_KEY=nothing@{HOST}"], "--key: there is no secret 'nothing'"), (["API_KEY"], "use NAME@HOST"), ([f"API_KEY=@{HOST}"], "name of the secret"),
                         ([f"API_KEY=api@{HOST}", "--env", "API_KEY=x"], "--key: the box would get API_KEY itself")):  # fmt: skip
        done = server.carrel("create", "--key", *words)
        assert done.returncode == 125 and error in done.stderr and done.stderr.count("\n") == 1, done.stderr
    code = f"import os, urllib.request as u; print(u.urlopen(u.Request('https://{HOST}/hello', headers={{'Authorization': 'Bearer ' + os.environ['API_KEY']}})).read())"
    done = server.carrel("py", "--key", f"API_KEY=api@{HOST}", "-c", code)
    assert done.stdout == "b'hello\\n'\n", done.stderr


def test_py_without_a_server_takes_the_value_from_the_environment(server, upstream):
    upstream.requests()
    code = f"import os, urllib.request as u; print(u.urlopen(u.Request('https://{HOST}/leak', headers={{'Authorization': 'Bearer ' + os.environ['API_KEY']}})).read())"
    python = ["--python", os.environ.get("KERNEL_PYTHON", "/usr/bin/python3")]
    words = [*user_command(server.user), "env", f"API_KEY={VALUE}", server.place / "carrel", "py", *python, "--key", f"API_KEY@{HOST}", "-c", code]
    done = upstream.world.host.run(*words, check=False, capture_output=True, text=True, cwd="/")
    assert done.stdout == f"b'your key is {'*' * len(VALUE)}!\\n'\n", done.stderr
    assert f"Bearer {VALUE}" in upstream.heads()[0]
    done = upstream.world.host.run(*[one for one in words if one != f"API_KEY={VALUE}"], check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 125 and "your environment has no API_KEY" in done.stderr, done.stderr


def test_a_server_without_a_broker_refuses_keys_in_words(tmp_path):
    for name in ("carrel", "carrel-server", "carrel-egress"):
        shutil.copy(BUILD / name, tmp_path / name)
    server = Keyed(place=tmp_path, variables={"CARREL_GUEST": str(BUILD / "guest")})
    try:
        server.secret("api", VALUE)
        answer = server.admin.post("/v1/boxes", {"keys": [KEY]})
        assert answer.status == 501 and "keys: carrel-broker is not installed beside carrel-server" in answer.json["error"]["message"], answer.json
        assert server.admin.post("/v1/boxes", {}).status == 201
    finally:
        server.stop()


BUNDLE = f"{CERTIFICATES}/ca-certificates.crt"


@pytest.mark.parametrize("user", [None, ORDINARY])
def test_a_broken_file_of_certificates_is_named_at_once_and_read_again(upstream, user):
    """Of this host; the server goes on, and gives keys when the file is repaired."""
    # The folder as a whole: an ordinary user's box could not have one in which others are mounted.
    folder = upstream.folder / f"broken-{user}"
    shutil.copytree(upstream.folder / "certs", folder, symlinks=True)
    used = folder / "ca-certificates.crt"
    good = used.read_bytes()
    used.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    words = ["unshare", "--mount", "sh", "-c", f'mount --bind "$1" {CERTIFICATES} && shift && exec "$@"', "sh", folder]
    server = Keyed(user=user, enter=[*upstream.world.host.enter, *words])
    try:
        server.secret("api", VALUE)
        begun = time.monotonic()
        answer = server.admin.post("/v1/boxes", {"keys": [KEY]})
        # A request that comes before the broker has spoken waits for it, but not for the 20 seconds of one that hangs.
        assert time.monotonic() - begun < 15
        message = answer.json["error"]["message"]
        assert answer.status == 501 and message.startswith("keys: carrel-broker: ") and BUNDLE in message and "repair it" in message, answer.json
        assert server.admin.get("/v1/boxes").json["boxes"] == []
        done = server.carrel("create", "--key", f"API_KEY=api@{HOST}")
        assert done.returncode == 125 and BUNDLE in done.stderr and "20 seconds" not in done.stderr, done.stderr
        answer = server.admin.post("/v1/boxes", {})
        assert answer.status == 201, answer.json
        used.write_bytes(good)
        wait_for(lambda: server.admin.post("/v1/boxes", {"keys": [KEY], "name": "later"}).status == 201, server.log_text, 30)
        assert server.says_hello("later")
    finally:
        server.stop()


def test_a_server_that_gives_no_network_gives_no_keys():
    server = Keyed("--set", "network.ask=none")
    try:
        server.secret("api", VALUE)
        answer = server.admin.post("/v1/boxes", {"keys": [KEY]})
        assert answer.status in (403, 501) and "this server gives boxes no network" in answer.json["error"]["message"], answer.json
    finally:
        server.stop()


def test_named_networks_must_allow_the_host(upstream):
    server = Keyed("--set", "network.ask=named", "--set", f"networks.api={HOST}", "--set", "networks.other=other.keys.test", enter=upstream.world.host.enter)
    try:
        server.secret("api", VALUE)
        for net in ({}, {"net": "other"}):
            answer = server.admin.post("/v1/boxes", {"keys": [KEY], **net})
            assert answer.status == 403 and f"give net one that allows {HOST}" in answer.json["error"]["message"], answer.json
        assert server.says_hello(server.box(net="api"))
    finally:
        server.stop()
