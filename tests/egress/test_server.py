"""The network of a server's boxes: policies in requests, changed while it runs, refusals, kills of each process."""
import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from denied import deny
from support import SDK
from support.client import lines
from support.processes import children
from support.server import Server
from support.waiting import wait_for

sys.path.insert(0, str(SDK))
import carrel as sdk  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
FETCH = ["curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}"]


def entering(namespace):
    """For a child before its exec: the network and the mounts of a namespace of the tests' own."""
    def enter():
        for kind in ("net", "mnt"):
            with open(f"/proc/{namespace.holder.pid}/ns/{kind}") as f:
                if LIBC.setns(f.fileno(), 0) < 0:
                    raise OSError(ctypes.get_errno(), "setns")
    return enter


@pytest.fixture(scope="module")
def server(world):
    made = Server("--set", "networks.tests=good.test four.test:80", "--set", "networks.partly=*.test !good.test", "--set", "network.deny=203.0.113.11 denied.test",
                  "--set", f"templates.python.python={os.environ['KERNEL_PYTHON']}",
                  "--set", f"templates.online.python={os.environ['KERNEL_PYTHON']}", "--set", "templates.online.net=tests", prepare=entering(world.host))
    yield made
    made.stop()


@pytest.fixture
def box(server):
    made = []

    def make(**settings):
        answer = server.admin.post("/v1/boxes", settings)
        assert answer.status == 201, answer.json
        made.append(answer.json["id"])
        return made[-1]
    yield make
    for one in made:
        server.admin.delete(f"/v1/boxes/{one}")


def run(server, box, *argv):
    answer = server.admin.post(f"/v1/boxes/{box}/exec", {"argv": list(argv)})
    assert answer.status == 200, answer.json
    return answer.json


def reaches(server, box, url="http://good.test/"):
    return run(server, box, *FETCH, url)["stdout"] == "200"


def test_a_box_reaches_what_its_policy_names_and_is_told_what_not(server, box):
    one = box(net={"allow": ["good.test"]})
    assert reaches(server, one)
    refused = run(server, one, *FETCH, "http://other.test/")
    assert refused["refused"] == {"message": "the network of this box refused other.test", "rule": "other.test", "is_index": False}
    shown = server.admin.get(f"/v1/boxes/{one}/net").json
    assert shown["net"] == {"allow": ["good.test"], "deny": [], "public": False}
    assert [(r["name"], r["port"]) for r in shown["refused"]] == [("other.test", 0)] and shown["bytes_received"] > 0
    events = [e for e in server.admin.get(f"/v1/boxes/{one}/events").json["events"] if e["type"] == "net"]
    assert [e["body"]["name"] for e in events] == ["other.test"]


def test_a_box_without_network_says_which_name_was_asked_for(server, box):
    one = box()
    ended = run(server, one, *FETCH, "http://good.test/")
    assert ended["refused"] == {"message": "this box has no network: good.test was refused", "rule": "good.test", "is_index": False}
    assert run(server, one, "true").get("refused") is None


@pytest.mark.parametrize("address", ["192.0.2.77", "[2001:db8::77]"])
def test_without_network_a_command_that_fails_is_told_of_addresses(server, box, address):
    one = box()
    for _ in range(3):
        assert run(server, one, *FETCH, f"http://{address}/")["refused"] == {
            "message": "this box has no network: connections to addresses were refused; rules can name addresses, too",
            "rule": None, "is_index": False}
        assert run(server, one, "false").get("refused") is None
    shown = server.admin.get(f"/v1/boxes/{one}/net").json["refused"]
    assert shown == [{"name": "addresses", "port": 0, "count": 3, "why": "the box has no network", "rule": None}]


def test_a_command_is_not_told_what_the_one_before_it_was_refused(server, box):
    """A name is looked up twice (A and AAAA); the second report comes a second later, while the next command runs."""
    one = box(net={"allow": ["good.test"]})
    assert run(server, one, *FETCH, "http://other.test/")["refused"]["rule"] == "other.test"
    assert run(server, one, "sleep", "1.5").get("refused") is None


LOOK_UP = "import socket, sys\nfor i in range(int(sys.argv[2])):\n try: socket.gethostbyname(sys.argv[1] % i)\n except OSError: pass"


@pytest.mark.parametrize("net", ["none", {"allow": ["good.test"]}])
def test_each_command_is_told_what_it_was_refused_also_right_after_another(server, box, net):
    one = box(net=net)
    for _ in range(4):
        assert run(server, one, *FETCH, "http://other.test/")["refused"]["rule"] == "other.test"
    flooded = run(server, one, "python3", "-c", LOOK_UP, "n%d.test", "200")["refused"]["message"]
    assert " more" in flooded
    assert run(server, one, *FETCH, "http://n1.test/")["refused"]["rule"] == "n1.test"
    if net != "none":
        assert run(server, one, *FETCH, "http://203.0.113.77/")["refused"]["rule"] == "203.0.113.77"
        assert run(server, one, *FETCH, "http://203.0.113.77/")["refused"]["rule"] == "203.0.113.77"
    assert run(server, one, "true").get("refused") is None


def test_of_many_refusals_the_newest_are_kept_and_the_others_counted(server, box):
    one = box(net={"allow": ["good.test"]})
    for turn in range(2):
        run(server, one, "python3", "-c", LOOK_UP, f"n%d-{turn}.test", "50")
    assert run(server, one, *FETCH, "http://last.test/")["refused"]["rule"] == "last.test"
    shown = server.admin.get(f"/v1/boxes/{one}/net").json
    names = [r["name"] for r in shown["refused"]]
    assert len(names) == 64 and "last.test" in names and "n0-0.test" not in names
    assert shown["refused_more"] == 101 - 64
    assert "and 37 before these\n" in server.carrel("net", one).stdout


def test_a_policy_changes_while_the_box_runs(server, box):
    one = box()
    path = f"/v1/boxes/{one}"
    assert not reaches(server, one)
    assert server.admin.patch(path, {"net": {"allow": ["good.test"]}}).json["net"]["allow"] == ["good.test"]
    assert reaches(server, one)
    assert server.admin.patch(path, {"net": {"allow": ["four.test"]}}).status == 200
    assert not reaches(server, one) and reaches(server, one, "http://four.test/")
    assert server.admin.patch(path, {"net": "none"}).json["net"] == "none"
    ended = run(server, one, *FETCH, "http://four.test/")
    assert ended.get("refused"), ended
    assert ended["refused"]["message"] == "this box has no network: four.test was refused"


def test_a_connection_that_is_no_longer_allowed_is_cut(server, box):
    one = box(net={"allow": ["good.test"]})
    script = ("import socket; s = socket.create_connection(('good.test', 7)); s.sendall(b'x'); print(s.recv(1), flush=True)\n"
              "try: print('ended', s.recv(1))\nexcept OSError as e: print('ended', e.errno)")
    job = server.admin.post(f"/v1/boxes/{one}/exec", {"argv": ["python3", "-c", script], "background": True}).json["id"]
    live = lambda: server.admin.get(f"/v1/boxes/{one}/net").json["connections"]  # noqa: E731
    wait_for(lambda: [(c["name"], c["bytes_received"]) for c in live()] == [("good.test", 1)], "the echo is shown")
    server.admin.patch(f"/v1/boxes/{one}", {"net": {"allow": ["four.test"]}})
    ended = server.admin.get(f"/v1/boxes/{one}/exec/{job}?wait=true").json
    assert ended["outcome"] == "ok" and not live()


def test_networks_of_the_configuration_are_asked_for_by_name(server, box):
    one = box(net="tests")
    assert reaches(server, one) and reaches(server, one, "http://four.test/")
    assert not reaches(server, one, "http://private.test/")
    answer = server.admin.post("/v1/boxes", {"net": "nonsense"})
    assert answer.status == 400 and "'nonsense' is none" in answer.json["error"]["message"]


def test_what_is_denied_to_all_stays_denied_and_is_told_so(server, box):
    one = box(net={"public": True, "allow": ["203.0.113.0/24", "*.test"]})
    assert reaches(server, one)
    for url, what, rule in (("http://203.0.113.11/", "203.0.113.11:80", "203.0.113.11"), ("http://denied.test/", "denied.test", "denied.test")):
        refused = run(server, one, *FETCH, url)["refused"]
        assert f"{what} (denied by the server's network.deny {rule})" in refused["message"] and refused["rule"] is None, refused
    shown = server.admin.get(f"/v1/boxes/{one}/net").json["refused"]
    assert {r["why"] for r in shown} == {"denied by the server's network.deny 203.0.113.11", "denied by the server's network.deny denied.test"}
    assert {r["rule"] for r in shown} == {None}


def test_what_a_box_or_its_named_network_denies_is_told_with_that_rule(server, box):
    one = box(net={"public": True, "deny": ["good.test"]})
    assert "good.test (denied by its rule deny good.test)" in run(server, one, *FETCH, "http://good.test/")["refused"]["message"]
    one = box(net="partly")
    assert reaches(server, one, "http://four.test/")
    told = run(server, one, *FETCH, "http://good.test/")["refused"]
    assert "good.test (denied by !good.test of its network, in the server's configuration)" in told["message"] and told["rule"] is None


def test_rules_that_only_deny_are_kept_and_give_no_network(server, box):
    denying = {"allow": [], "deny": ["good.test"], "public": False}
    one = box(net={"deny": ["good.test"]})
    shown = server.admin.get(f"/v1/boxes/{one}").json
    assert shown["net"] == denying and server.admin.get(f"/v1/boxes/{one}/enforced").json["enforced"]["network"].startswith("none")
    refused = run(server, one, *FETCH, "http://good.test/")["refused"]
    assert refused == {"message": "this box has no network: good.test (denied by its rule deny good.test) was refused", "rule": None, "is_index": False}
    assert "SSL_CERT_FILE" not in run(server, one, "env")["stdout"]
    two = box(net={"allow": ["four.test"], "deny": ["good.test"]})
    assert server.admin.patch(f"/v1/boxes/{two}", {"net": {"deny": ["good.test"]}}).json["net"] == denying
    assert not reaches(server, two) and not reaches(server, two, "http://four.test/")


@pytest.mark.parametrize("rule, denial", [("denied.test", "denied.test"), ("denied.test:443", "denied.test"), ("::ffff:203.0.113.11", "203.0.113.11")])
def test_a_rule_for_what_the_server_denies_to_all_is_refused(server, box, rule, denial):
    one = box(net={"allow": ["good.test"]})
    said = f"is denied by this server (network.deny {denial})"
    for answer in (server.admin.post("/v1/boxes", {"net": {"allow": [rule]}}), server.admin.patch(f"/v1/boxes/{one}", {"net": {"allow": [rule]}})):
        assert answer.status == 403 and "net.allow[0]" in answer.json["error"]["message"] and said in answer.json["error"]["message"], answer.json
    tried = server.carrel("net", one, "--allow", rule)
    assert tried.returncode == 125 and said in tried.stderr and reaches(server, one), tried.stderr


def test_what_a_box_denies_is_never_given_up_for_what_the_server_denies(server, box):
    """network.deny has two rules, so a box may have 126."""
    deny = [f"n{i}.test" for i in range(125)]
    one = box(net={"public": True, "deny": [*deny, "good.test"]})
    assert not reaches(server, one) and reaches(server, one, "http://four.test/")
    answer = server.admin.post("/v1/boxes", {"net": {"public": True, "deny": [*deny, "other.test", "good.test"]}})
    assert answer.status == 413 and "may have 126 rules, because the server adds 2" in answer.json["error"]["message"], answer.json


def test_policies_that_do_not_fit_into_the_link_are_sent_later(server, box):
    """Each is 36 KB, and the link takes five. Egress stands still meanwhile, as a busy one would."""
    long = [f"{'n' * 60}{i}.test" for i in range(120)]
    boxes = [box(net={"allow": ["four.test"]}) for _ in range(12)]
    egress = process_of(server, "carrel-egress")
    os.kill(egress, signal.SIGSTOP)
    try:
        for one in boxes:
            assert server.admin.patch(f"/v1/boxes/{one}", {"net": {"allow": [*long, "good.test"]}}).status == 200
    finally:
        os.kill(egress, signal.SIGCONT)
    for one in (boxes[0], boxes[-1]):
        wait_for(lambda: reaches(server, one), "the new policy holds")
        assert not reaches(server, one, "http://four.test/")
    assert process_of(server, "carrel-egress") == egress


def test_a_policy_for_a_box_that_has_ended_is_not_kept(server, box):
    """Egress stands still, so that it hears the keeper's words about boxes and their end first, the front's policies after them."""
    kept = box(net={"allow": ["good.test"]})
    egress = process_of(server, "carrel-egress")
    assert reaches(server, kept)

    def live_and_die():
        os.kill(egress, signal.SIGSTOP)
        try:
            made = [server.admin.post("/v1/boxes", {"net": {"allow": [f"n{i}.test" for i in range(10)]}}).json["id"] for _ in range(25)]
            for one in made:
                assert server.admin.delete(f"/v1/boxes/{one}").status in (200, 204)
        finally:
            os.kill(egress, signal.SIGCONT)
        assert reaches(server, kept)
    live_and_die()
    before = memory_of(egress)
    for _ in range(4):
        live_and_die()
    assert memory_of(egress) - before < 200_000


@pytest.mark.parametrize("net, word", [
    ({"allow": ["a b"]}, "net.allow[0] 'a b', character 2"), ({"allow": "x"}, "net.allow must be a list"), (7, "net must be"),
    ({"allow": ["x.test:99999"]}, "ports are numbers"), ({"deny": ["x"], "more": 1}, "unknown field 'net.more'"),
    ({"allow": ["a" * 300]}, "at most 253"), ({"allow": [f"n{i}.test" for i in range(200)]}, "may have 128 rules")])
def test_rules_that_mean_nothing_are_refused(server, net, word):
    answer = server.admin.post("/v1/boxes", {"net": net})
    assert answer.status in (400, 413) and word in answer.json["error"]["message"], answer.json


def pid_of(word):
    """The process on this machine that has the word as an argument."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            pass
    return None


def test_where_ipv6_is_switched_off_a_box_has_ipv4_alone(server, box):
    one = box()
    word = f"100{os.getpid()}"
    server.admin.post(f"/v1/boxes/{one}/exec", {"argv": ["sleep", word], "background": True})
    pid = wait_for(lambda: pid_of(word), "a process in the box")
    subprocess.run(["nsenter", "-t", str(pid), "--net", "sysctl", "-q", "net.ipv6.conf.all.disable_ipv6=1"], check=True)
    answer = server.admin.patch(f"/v1/boxes/{one}", {"net": {"allow": ["good.test"]}})
    assert answer.status == 200, answer.json
    assert reaches(server, one) and not reaches(server, one, "http://[2001:db8:77::10]/")


def test_without_nf_tables_a_change_fails_and_says_why(world):
    inside = entering(world.host)
    made = Server(prepare=lambda: (inside(), deny()))
    try:
        one = made.admin.post("/v1/boxes", {}).json["id"]
        for _ in range(2):          # the second try is no success, either
            answer = made.admin.patch(f"/v1/boxes/{one}", {"net": {"allow": ["good.test"]}})
            assert answer.status >= 400 and "it needs nf_tables" in answer.json["error"]["message"], answer.json
        assert made.admin.get(f"/v1/boxes/{one}").json["net"] == "none"
        answer = made.admin.post("/v1/boxes", {"net": "public"})
        assert answer.status >= 400 and "it needs nf_tables" in answer.json["error"]["message"], answer.json
        assert run(made, one, "true")["exit_code"] == 0
    finally:
        made.stop()


def test_programs_of_a_box_with_network_find_the_certificates_of_the_host(server, box):
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if not os.path.exists(bundle):
        pytest.skip("this host has its certificates elsewhere")
    online = box(net={"allow": ["good.test"]}, env={"NODE_EXTRA_CA_CERTS": "/mine"})
    seen = run(server, online, "env")["stdout"].splitlines()
    assert f"SSL_CERT_FILE={bundle}" in seen and f"REQUESTS_CA_BUNDLE={bundle}" in seen and "NODE_EXTRA_CA_CERTS=/mine" in seen
    assert "SSL_CERT_FILE" not in run(server, box(), "env")["stdout"]
    cell = server.admin.post(f"/v1/boxes/{online}/run", {"code": "import os; os.environ['SSL_CERT_FILE']"}).json
    assert bundle in str(cell), cell


def test_enforced_says_how_the_network_is_held(server, box):
    online, offline = box(net={"allow": ["good.test"]}), box()
    held = {one: server.admin.get(f"/v1/boxes/{one}/enforced").json["enforced"]["network"] for one in (online, offline)}
    assert held[online].startswith("hold: ") and held[offline].startswith("none: ")


def metric(server, name):
    return next(int(float(line.split()[1])) for line in server.admin.get("/metrics").body.decode().splitlines()
                if line.startswith(f"carrel_{name} "))


def test_usage_and_metrics_count_bytes_connections_and_refusals(server, box):
    one, names = box(net={"allow": ["good.test"]}), ("net_sent_bytes_total", "net_received_bytes_total", "net_connections_total",
                                                      "net_refusals_total")
    before = [metric(server, name) for name in names]
    assert server.admin.get(f"/v1/boxes/{one}/usage").json["net"] == {
        "bytes_sent": 0, "bytes_received": 0, "connections": 0, "connections_made": 0, "refusals": 0}
    assert reaches(server, one) and reaches(server, one) and not reaches(server, one, "http://other.test/")
    used = wait_for(lambda: (lambda net: net if net["connections"] == 0 and net["refusals"] else None)(
        server.admin.get(f"/v1/boxes/{one}/usage").json["net"]), "the counts")
    assert used["connections_made"] == 2 and used["bytes_sent"] > 100 and used["bytes_received"] > 100, used
    after = [metric(server, name) for name in names]
    assert after[0] - before[0] >= used["bytes_sent"] and after[1] - before[1] >= used["bytes_received"]
    assert after[2] - before[2] >= 2 and after[3] > before[3]
    process = process_of(server, "carrel-egress")
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: reaches(server, one), "the next egress")
    again = wait_for(lambda: (lambda net: net if net["connections"] == 0 and net["connections_made"] > 2 else None)(
        server.admin.get(f"/v1/boxes/{one}/usage").json["net"]), "the counts")
    assert again["bytes_sent"] > used["bytes_sent"], "what the killed egress had counted is lost"
    shown = server.carrel("stats", one).stdout.split("\n")
    assert shown[0].split()[-2:] == ["SENT", "RECEIVED"] and shown[1].split()[-1] != "0"


@contextlib.contextmanager
def standing_still(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_an_egress_that_hangs_is_told_of_within_seconds(server, box):
    one = box(net={"allow": ["good.test"]})
    assert reaches(server, one)
    with standing_still(process_of(server, "carrel-egress")):
        begun = time.monotonic()
        shown = server.admin.get(f"/v1/boxes/{one}/net")
        held = server.admin.get(f"/v1/boxes/{one}/enforced")
        assert time.monotonic() - begun < 20
    assert shown.status == 503 and "carrel-egress has not answered" in shown.json["error"]["message"], shown.json
    assert held.status == 200 and held.json["enforced"]["network"].startswith("none: carrel-egress does not answer"), held.json
    assert reaches(server, one)
    assert server.admin.get(f"/v1/boxes/{one}/net").status == 200


def test_an_egress_that_hangs_fills_no_memory_of_the_front(server, box):
    one = box(net={"allow": ["good.test"]})
    with standing_still(process_of(server, "carrel-egress")), concurrent.futures.ThreadPoolExecutor(400) as pool:
        answers = [one.status for one in pool.map(lambda _: server.admin.get(f"/v1/boxes/{one}/net"), range(400))]
    assert set(answers) == {429, 503} and answers.count(503) <= 256, answers
    assert reaches(server, one)


def test_changes_of_one_box_at_the_same_time_all_succeed_and_the_last_one_holds(server, box):
    """The keeper stands still, so that all have come before the first is done."""
    one = box()
    events = lambda: [e["type"] for e in server.admin.get(f"/v1/boxes/{one}/events").json["events"]].count("updated")  # noqa: E731
    keeper = process_of(server, " keeper ")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        with standing_still(keeper):
            answers = []
            for n, rules in enumerate((["good.test"], ["other.test"], ["four.test"]), 1):
                answers.append(pool.submit(server.admin.patch, f"/v1/boxes/{one}", {"net": {"allow": rules}}))
                wait_for(lambda: events() == n, "the server has taken it")
        told = [answer.result(60) for answer in answers]
    assert [answer.status for answer in told] == [200] * 3, [answer.json for answer in told]
    assert server.admin.get(f"/v1/boxes/{one}").json["net"]["allow"] == ["four.test"]
    assert reaches(server, one, "http://four.test/") and not reaches(server, one)


def test_a_box_can_ask_for_fewer_connections_and_bytes_than_the_server_gives(server, box):
    one = box(net={"allow": ["good.test"], "connections": 2, "bandwidth": "1M"})
    shown = server.admin.get(f"/v1/boxes/{one}").json["net"]
    assert shown == {"allow": ["good.test"], "deny": [], "public": False, "connections": 2, "bandwidth": 1 << 20}
    script = ("import socket, time\nkept = []\nfor port in (5001, 7, 7):\n"
              "  try: kept.append(socket.create_connection(('good.test', port)))\n  except OSError: print('refused')\n"
              "begun = time.monotonic(); kept[0].sendall(b'2000000\\n'); n = 0\nwhile n < 2000000: n += len(kept[0].recv(65536))\n"
              "print(time.monotonic() - begun > 1)")
    ended = run(server, one, "python3", "-c", script)
    assert ended["stdout"].split() == ["refused", "True"], ended
    assert ended["refused"]["message"].endswith("good.test:7 (too many connections at once)") and ended["refused"]["rule"] is None
    # Changed while it runs, and told by the command that shows it.
    path = f"/v1/boxes/{one}"
    assert server.admin.patch(path, {"net": {"allow": ["good.test"], "connections": 3}}).status == 200
    wait_for(lambda: not server.admin.get(f"{path}/net").json["connections"], "the first program's connections to end")
    assert run(server, one, "python3", "-c", script)["stdout"].split() == ["False"]
    assert "at most 3 connections" in server.carrel("net", one).stdout
    assert server.carrel("net", one, "--net-limit", "connections=2,bandwidth=2M").returncode == 0
    assert {**shown, "bandwidth": 2 << 20} == server.admin.get(path).json["net"]


def shown_by(done):
    """The policy that a change printed."""
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines()]


def test_the_command_line_adds_to_the_rules_of_a_box(server, box):
    one = box(net={"allow": ["good.test", "four.test"], "deny": ["b.test"], "connections": 50})
    change = lambda *options: shown_by(server.carrel("net", one, *options))  # noqa: E731
    kept = ["network:", "allow good.test", "allow four.test"]
    assert change("--allow", "other.test") == [*kept, "allow other.test", "deny b.test", "at most 50 connections"]
    assert change("--deny", "x.test") == [*kept, "allow other.test", "deny b.test", "deny x.test", "at most 50 connections"]
    assert reaches(server, one) and reaches(server, one, "http://four.test/")
    assert change("--allow", "GOOD.test.", "--deny", "b.test", "--net-limit", "bandwidth=1M") == [
        *kept, "allow other.test", "deny b.test", "deny x.test", "at most 50 connections", "at most 1M in a second"]
    assert change("--remove", "other.test", "--remove", "Four.test", "--remove", "b.test", "--remove", "x.test") == [
        "network:", "allow good.test", "at most 50 connections", "at most 1M in a second"]
    assert reaches(server, one) and not reaches(server, one, "http://four.test/")
    assert change("--net", "public") == ["network: public, and", "allow good.test", "at most 50 connections", "at most 1M in a second"]
    assert change("--remove", "public") == ["network:", "allow good.test", "at most 50 connections", "at most 1M in a second"]
    assert change("--net", "none") == ["network: none"] and change("--net", "public") == ["network: public"]
    assert change("--net", "none") == ["network: none"]
    assert server.admin.get(f"/v1/boxes/{one}").json["net"] == "none"


def test_a_rule_that_denies_stays_whatever_is_allowed_later(server, box):
    one = box()
    assert shown_by(server.carrel("net", one, "--deny", "good.test")) == ["network: none, and", "deny good.test"]
    assert shown_by(server.carrel("net", one, "--net", "public")) == ["network: public, and", "deny good.test"]
    assert not reaches(server, one) and reaches(server, one, "http://four.test/")
    refused = server.carrel("net", one, "--allow", "good.test:80")
    assert refused.returncode == 125 and refused.stderr == (
        "carrel: --allow good.test:80: the box's rule 'deny good.test' denies it; add --remove good.test to take that rule away\n")
    assert shown_by(server.carrel("net", one, "--remove", "good.test", "--allow", "good.test:80")) == ["network: public, and", "allow good.test:80"]
    assert reaches(server, one)


def test_a_change_of_rules_that_is_none_says_so(server, box):
    one = box(net={"allow": ["good.test"]})
    missing = server.carrel("net", one, "--remove", "other.test")
    assert missing.returncode == 125 and f"no rule other.test; 'carrel net {one}' shows its rules" in missing.stderr, missing.stderr
    for options in (("--net", "none"), ("--net", "tests")):
        both = server.carrel("net", one, *options, "--remove", "good.test")
        assert both.returncode == 125 and "--remove" in both.stderr and "excludes" in both.stderr, both.stderr
    assert shown_by(server.carrel("net", one, "--net", "tests")) == ["network: tests"]
    for option in (("--allow", "other.test"), ("--deny", "other.test"), ("--remove", "good.test"), ("--net-limit", "connections=3")):
        named = server.carrel("net", one, *option)
        assert named.returncode == 125 and "tests" in named.stderr and f"carrel net {one} --net none" in named.stderr, named.stderr
    assert server.admin.get(f"/v1/boxes/{one}").json["net"] == "tests"


def test_a_limit_goes_with_the_last_rule_that_allows(server, box):
    one = box(net={"allow": ["good.test"], "deny": ["b.test"], "connections": 5})
    assert shown_by(server.carrel("net", one, "--remove", "good.test")) == ["network: none, and", "deny b.test"]


def test_rules_are_added_and_update_replaces_them(server):
    with sdk.Box(server=sdk.Carrel(server.url), net={"allow": ["a.test"], "deny": ["b.test"], "connections": 50}) as box:
        box.add_rules(allow=["c.test", "a.test"], deny=["d.test"])
        assert box.raw["net"] == {"allow": ["a.test", "c.test"], "deny": ["b.test", "d.test"], "public": False, "connections": 50}
        box.update(allow=["e.test"])
        assert box.raw["net"] == {"allow": ["e.test"], "deny": [], "public": False}
        box.update(net="public")
        box.add_rules(deny=["b.test"])
        assert box.raw["net"] == {"allow": [], "deny": ["b.test"], "public": True}
        box.update(net="none")
        box.add_rules(allow=["a.test"])
        assert box.raw["net"]["allow"] == ["a.test"]
        with pytest.raises(TypeError):
            box.add_rules(allow="a.test")


@pytest.mark.parametrize("net, word", [
    ({"public": True, "connections": 2000}, "net.connections"), ({"public": True, "connections": 0}, "net.connections"),
    ({"public": True, "bandwidth": 7}, "net.bandwidth must be at least 1024"), ({"connections": 5}, "go with rules")])
def test_bounds_that_cannot_be_are_refused(server, net, word):
    answer = server.admin.post("/v1/boxes", {"net": net})
    assert answer.status == 400 and word in answer.json["error"]["message"], answer.json


@pytest.mark.parametrize("net", ["none", {"allow": ["good.test"]}])
def test_a_cell_is_told_what_its_box_was_refused(server, box, net):
    one = box(net=net)
    code = "import socket; socket.getaddrinfo('other.test', 80)"
    for _ in range(4):
        answer = server.admin.post(f"/v1/boxes/{one}/run", {"code": code})
        assert answer.json["refused"]["rule"] == "other.test", answer.json
    assert server.admin.post(f"/v1/boxes/{one}/run", {"code": "1"}).json.get("refused") is None


def test_a_call_of_a_function_is_told_what_its_box_was_refused(server, box):
    one = box(net={"allow": ["good.test"]}, template="python")
    code = "@expose\ndef fetch(name: str):\n    import socket\n    try: return socket.gethostbyname(name)\n    except OSError: return 'none'\n"
    made = server.admin.post("/v1/services", {"code": code, "box": one})
    assert made.status == 201, made.json
    path = f"/v1/services/{made.json['name']}/call"
    call = lambda name: server.admin.post(path, {"function": "fetch", "args": [name]}).json  # noqa: E731
    for _ in range(4):
        assert call("other.test") == {"ok": True, "result": "none", "refused": {
            "message": "the network of this box refused other.test", "rule": "other.test", "is_index": False}}
        assert "refused" not in call("good.test")


def test_a_cell_that_failed_waits_for_the_name_that_it_was_refused(server, box):
    """The name takes another way than the kernel's reply: over the keeper, which stands still here until the reply is there."""
    one = box()
    server.admin.post(f"/v1/boxes/{one}/run", {"code": "1"})
    code = "import socket\ntry: socket.getaddrinfo('other.test', 80)\nexcept OSError: print('over'); raise"
    with standing_still(server.keeper_pid()):
        answer = server.admin.open("POST", f"/v1/boxes/{one}/run", {"code": code}, {"Accept": "application/x-ndjson"})
        events = lines(answer)
        assert any("over" in str(event) for event in events)
        kernels = lambda: server.admin.get(f"/v1/boxes/{one}/kernels").json["kernels"]  # noqa: E731
        wait_for(lambda: [k["state"] for k in kernels()] == ["idle"], "the kernel has replied")
    end = list(events)[-1]
    assert end["type"] == "outcome" and end["refused"]["rule"] == "other.test", end


def memory_of(pid):
    """Bytes that it has for itself."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("RssAnon")).split()[1]) * 1024


def test_kernels_of_the_gateway_have_the_network_of_their_template(server):
    made = {}
    try:
        for spec in ("python", "online"):
            made[spec] = server.admin.post("/api/kernels", {"name": spec}).json["id"]
        boxes = {b["template"]: b for b in server.admin.get("/v1/boxes").json["boxes"]}
        assert boxes["online"]["net"] == "tests" and boxes["python"]["net"] == "none"
        assert reaches(server, boxes["online"]["id"]) and not reaches(server, boxes["python"]["id"])
    finally:
        for kernel in made.values():
            server.admin.delete(f"/api/kernels/{kernel}")


def test_kernels_of_a_template_with_a_policy_wait_ready_and_have_its_network(server):
    """The box is made again until the family has parked one."""
    made, ways = [], []

    def parked():
        path = "/v1/boxes/" + server.admin.post("/v1/boxes", {"template": "online"}).json["id"]
        made.append(path)
        assert server.admin.post(path + "/run", {"code": "1"}).status == 200
        ways.append(server.admin.get(path + "/kernels/default").json["way"])
        if ways[-1] != "parked":
            server.admin.delete(made.pop())
        return ways[-1] == "parked"
    try:
        wait_for(parked, lambda: f"{ways}\n{server.log_text()}", deadline_s=60)
        assert server.admin.get(made[-1]).json["net"] == "tests"
        one = made[-1].rpartition("/")[2]
        assert reaches(server, one) and not reaches(server, one, "http://other.test/")
        code = "import urllib.request as u\nprint(u.urlopen('http://good.test/', timeout=20).status)"
        assert server.admin.post(made[-1] + "/run", {"code": code}).json["stdout"] == "200\n"
    finally:
        for path in made:
            server.admin.delete(path)


def process_of(server, word):
    """The child of this server whose command line has the word."""
    return next(pid for pid in children(server.process.pid)
                if word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())


@pytest.mark.parametrize("who", ["egress", "front", "keeper"])
def test_boxes_reach_their_networks_again_after_a_kill(server, box, who):
    one = box(net={"allow": ["good.test"]})
    assert reaches(server, one)
    os.kill(process_of(server, {"egress": "carrel-egress", "front": " front ", "keeper": " keeper "}[who]), signal.SIGKILL)
    if who == "keeper":         # its boxes are gone, and the front may not have noticed yet
        answers = []
        wait_for(lambda: answers.append(server.admin.post("/v1/boxes", {"net": {"allow": ["good.test"]}})) or answers[-1].status == 201,
                 "boxes can be made again")
        one = answers[-1].json["id"]
    else:
        wait_for(server.is_ready, "the server is ready again")
    wait_for(lambda: reaches(server, one), "the network is back")
