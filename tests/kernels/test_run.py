"""Running code through the API: results, events, state, contexts, queues, bounds."""
import json
import time

import pytest

from conftest import start_server
from support.openapi import unanswered
from support.server import Server, limits
from support.users import ORDINARY
from support.waiting import stays_false, wait_for

RESULT = 'link.send("iopub", "execute_result", {"data": {"text/plain": repr(%s)}, "metadata": {}, "execution_count": count_ if "count_" in dir() else 1}, header)'


def result(expression):
    return RESULT % expression


@pytest.mark.cgroups
def test_one_answer_has_the_result_and_the_bill(box):
    answer = box.run("sys.stderr.write('e'); sys.stderr.flush(); print('out', flush=True); " + result("1 + 1"))
    assert answer["outcome"] == "ok" and answer["stdout"] == "out\n" and answer["stderr"] == "e" and answer["error"] is None
    assert answer["results"] == [{"type": "result", "data": {"text/plain": "2"}, "metadata": {}, "execution_count": 1}]
    assert answer["kernel"]["way"] == "cold" and answer["kernel"]["context"] == "default" and answer["kernel"]["restarts"] == 0
    assert answer["wall_ms"] > 0 and answer["cpu_ms"] > 0 and answer["memory_peak_bytes"] > 1 << 20 and answer["box"] == box.box


def test_events_come_while_the_cell_runs(box):
    response = box.open("print('first', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(.02)\nprint('last', flush=True); 1/0")
    first = json.loads(response.readline())
    assert box.client.post(box.path + "/exec", {"argv": ["touch", "/tmp/go"]}).json["outcome"] == "ok"
    rest = [json.loads(line) for line in response]
    assert first == {"type": "stdout", "text": "first\n"}
    assert [e["type"] for e in rest] == ["stdout", "error", "outcome"]
    assert rest[1]["name"] == "ZeroDivisionError" and rest[2]["outcome"] == "error"
    response.connection.close()


def test_state_stays_and_contexts_are_separate(box):
    box.run("x = 7")
    assert box.run(result("x"))["results"][0]["data"]["text/plain"] == "7"
    other = box.run(result("x"), context="other")
    assert other["outcome"] == "error" and other["error"]["name"] == "NameError" and other["kernel"]["context"] == "other"
    listed = box.client.get(box.path + "/kernels").json["kernels"]
    assert {k["context"] for k in listed} == {"default", "other"} and all(k["state"] == "idle" for k in listed)


def test_env_and_cwd_are_those_of_a_fresh_kernel(box):
    answer = box.run(result("(os.environ['A'], os.getcwd())"), env={"A": "b"}, cwd="/tmp")
    assert answer["results"][0]["data"]["text/plain"] == "('b', '/tmp')"


def test_what_child_processes_print_belongs_to_the_cell(box):
    answer = box.run("os.system('echo out; echo err >&2')")
    assert answer["stdout"] == "out\n" and answer["stderr"] == "err\n"


def test_characters_that_are_cut_in_two_are_put_together(box):
    answer = box.run("os.write(1, b'\\xe2'); time.sleep(.2); os.write(1, b'\\x82'); time.sleep(.2); os.write(1, b'\\xac|\\xff|'); os.write(1, b'\\xe2\\x82')")
    assert answer["stdout"] == "€|�|"       # the rest may still become a character
    assert box.run("os.write(1, b'\\xac!')")["stdout"] == "€!"


def test_runs_of_one_kernel_wait_for_each_other(box, pool):
    box.run("seen = []")
    code = "seen.append('in'); time.sleep(.2); seen.append('out')"
    done = list(pool.map(lambda _: box.run(code), range(4)))
    assert all(a["outcome"] == "ok" for a in done)
    assert box.run(result("seen"))["results"][0]["data"]["text/plain"] == repr(["in", "out"] * 4)


def test_two_contexts_run_at_the_same_time(box, pool):
    box.run("pass"), box.run("pass", context="b")
    meet = "open('/tmp/{0}', 'w').close()\nwhile not os.path.exists('/tmp/{1}'): time.sleep(.01)"
    a, b = pool.submit(box.run, meet.format("a", "b"), timeout=100), pool.submit(box.run, meet.format("b", "a"), timeout=100, context="b")
    assert a.result()["outcome"] == b.result()["outcome"] == "ok"


READS = "link.send('stdin', 'input_request', {'prompt': 'name? ', 'password': False}, header); answer = link.receive()[1][3]['value']; print('hi ' + answer, flush=True)"


def test_input_is_asked_for_and_answered(box):
    assert box.post("input", {"value": "x"}).status == 404
    box.run("pass")
    assert box.post("input", {"value": "x"}).code == "not_asked"
    response = box.open(READS, allow_stdin=True)
    assert json.loads(response.readline()) == {"type": "input_request", "prompt": "name? ", "password": False}
    assert box.post("input", {"value": "Ada \" ü"}).status == 200
    assert json.loads(response.readline()) == {"type": "stdout", "text": "hi Ada \" ü\n"}
    assert json.loads(response.readline())["outcome"] == "ok"
    response.connection.close()


def test_too_much_output_ends_the_cell_and_not_the_kernel(box):
    box.run("x = 7")
    answer = box.run("while True: print('y' * 1000, flush=True)", output_limit="100k")
    assert answer["outcome"] == "output_limit" and answer["stdout"] == (("y" * 1000 + "\n") * 103)[:102_400]
    assert box.run(result("x"))["results"][0]["data"]["text/plain"] == "7"
    events = box.stream("while True: print('y' * 1000, flush=True)", output_limit="100k")
    assert events[-1]["outcome"] == "output_limit"
    assert sum(len(event["text"]) for event in events[:-1]) == 102_400


@pytest.mark.parametrize("text, limit, told", [("ü" * 9, 8, "üüüü"), ("ü" * 9, 7, "üüü"), ("a\n" * 9, 5, "a\na\na"), ("\U0001f600b" * 3, 8, "\U0001f600b"), ("\"\\" * 9, 3, "\"\\\""),
                                               ("1234", 4, "1234"), ("üx", 1, "")])
def test_what_crosses_the_output_limit_is_cut_between_characters(box, text, limit, told):
    for escaped in (True, False):
        send = f"link.send('iopub', 'stream', {{'name': 'stderr', 'text': {text!r}}}, header, ascii={escaped})"
        answer = box.run(send + "\n" + send, output_limit=limit)
        assert answer["outcome"] == "output_limit" and answer["stderr"] == told and answer["stdout"] == ""


def test_other_messages_that_cross_the_output_limit_are_not_told(box):
    say = "link.send('iopub', 'stream', {'name': 'stdout', 'text': '%s'}, header)"
    answer = box.run("\n".join([say % "abc", result("'0' * 200"), say % "d"]), output_limit=100)
    assert answer["outcome"] == "output_limit" and answer["stdout"] == "abc" and answer["results"] == []


def test_a_slow_client_slows_the_kernel_and_costs_no_memory(box, server):
    box.run("pass")
    before = server.front_bytes()
    response = box.open("for i in range(3000): link.send('iopub', 'stream', {'name': 'stdout', 'text': 'y' * 100_000}, header)", output_limit="1G")
    wait_for(lambda: box.kernel()["state"] == "busy")
    assert stays_false(lambda: server.front_bytes() - before > 64 << 20, 2)
    size = sum(len(line) for line in response)
    assert 300_000_000 < size < 310_000_000
    assert server.front_bytes() - before < 64 << 20
    response.connection.close()


def test_a_box_of_its_own_for_one_run(alice, fake_guest):
    answer = alice.post("/v1/run", {"code": "print(os.environ['A'], flush=True)", "env": {"A": "b"}, "limits": limits(memory="128M")})
    assert answer.status == 200 and answer.json["outcome"] == "ok" and answer.json["stdout"] == "b\n", answer.body
    wait_for(lambda: alice.get("/v1/boxes/" + answer.json["box"]).json["phase"] == "deleted")
    assert alice.get("/v1/boxes/" + answer.json["box"]).json["reason"] == "run_over"
    refused = alice.post("/v1/run", {"code": "1", "limits": {"memory": "1Q"}})
    assert refused.status == 400 and "limits.memory" in refused.json["error"]["message"]


def test_the_box_of_a_run_whose_client_vanishes_is_deleted(alice):
    response = alice.open("POST", "/v1/run", {"code": "print(1, flush=True)\nwhile True: pass"}, {"Accept": "application/x-ndjson"})
    response.readline()
    box = response.headers["Carrel-Box"]
    assert alice.get("/v1/boxes/" + box).json["phase"] == "running"
    response.close()
    response.connection.close()
    wait_for(lambda: alice.get("/v1/boxes/" + box).json["phase"] == "deleted")


@pytest.mark.parametrize("body, status", [
    ({}, 400), ({"code": 5}, 400), ({"code": "1", "nope": 1}, 400), ({"code": "1", "on_dead": "maybe"}, 400), ({"code": "1", "timeout": -1}, 400),
    ({"code": "1", "context": "a/b"}, 400), ({"code": "1", "context": ""}, 400), ({"code": "1", "cwd": "x"}, 400), ({"code": "1", "env": {"A=": "b"}}, 400),
    ({"code": "1", "template": "none"}, 400), (b'{"code": "\xff"}', 400), (b'{"code": "1"', 400), ({"code": "x" * (17 << 20)}, 413),
])
def test_bad_requests_are_refused_with_the_member(box, body, status):
    answer = box.client.post(box.path + "/run", body)
    assert answer.status == status and answer.json["error"]["message"], answer.body


def test_a_hundred_megabytes_of_code_are_refused(box, server):
    before = server.front_bytes()
    try:
        answer = box.client.post(box.path + "/run", b'{"code": "' + b"x" * 100_000_000 + b'"}')
        assert answer.status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert server.front_bytes() - before < 64 << 20 and box.run("1")["outcome"] == "ok"


def test_sixteen_megabytes_of_code_run(box):
    answer = box.run("x = '" + "y" * (15 << 20) + "'; " + result("len(x)"))
    assert answer["results"][0]["data"]["text/plain"] == str(15 << 20)


def test_scopes_and_owners(server, admin, box, bob):
    reader = server.token("alice", scopes=["boxes:read", "boxes:write"])
    runner = server.token("alice", scopes=["exec"])
    assert reader.post(box.path + "/run", {"code": "1"}).status == 403 and reader.get(box.path + "/kernels").status == 403
    assert runner.post(box.path + "/run", {"code": "1"}).status == 200
    assert runner.post("/v1/run", {"code": "1"}).status == 403          # it would make a box
    for method, path in (("POST", "/run"), ("GET", "/kernels"), ("DELETE", "/kernels/default"), ("POST", "/kernels/default/interrupt")):
        assert bob.ask(method, box.path + path, {"code": "1"} if path == "/run" else None).status == 404
    assert box.kernel()["state"] == "idle"


def test_every_route_of_kernels_answers_what_is_described(box, alice):
    """Client checks each answer."""
    def ask(method, path, body=None, status=200, **headers):
        answer = alice.ask(method, path, body, headers)
        assert answer.status == status, (method, path, answer.status, answer.body)
        return answer

    display = "link.send('iopub', 'display_data', {'data': {'a/b': [1]}, 'metadata': {}, 'transient': {}}, header); "
    for code in (display + result("5"), "print(5, flush=True); 1/0"):
        for accept in ("application/json", "application/x-ndjson"):
            ask("POST", box.path + "/run", {"code": code}, Accept=accept)
    for accept in ("application/json", "application/x-ndjson"):
        ask("POST", "/v1/run", {"code": "1", "template": "python"}, Accept=accept)
    kernels = box.path + "/kernels"
    ask("POST", kernels, {"context": "other"}, 201), ask("GET", kernels), ask("GET", kernels + "/other"), ask("POST", kernels + "/other/interrupt")
    ask("POST", kernels + "/other/restart"), ask("POST", kernels + "/other/ask", {"type": "kernel_info"}), ask("DELETE", kernels + "/other", status=204)
    response = box.open(READS, allow_stdin=True)
    assert json.loads(response.readline())["type"] == "input_request"
    ask("POST", kernels + "/default/input", {"value": "x"})
    response.read()
    response.connection.close()
    assert "default" in [x.get("kernel") for x in alice.get(box.path + "/exec").json["execs"]]
    assert unanswered("/v1/run", "/v1/boxes/{id}/run", "/v1/boxes/{id}/kernels") == []



def test_metrics_of_kernels(box, admin):
    def read():
        return dict(line.rsplit(" ", 1) for line in admin.get("/metrics").body.decode().splitlines() if line[0] != "#")
    before = read()
    box.run("1")
    box.run("1/0")
    after = read()
    grown = {name for name in after if float(after[name]) > float(before.get(name, 0))}
    assert {'carrel_runs_total{outcome="ok"}', 'carrel_runs_total{outcome="error"}', "carrel_kernels_started_total", "carrel_first_result_seconds_count"} <= grown
    assert float(after['carrel_kernels{state="idle"}']) >= 1 and float(after["carrel_first_result_seconds_count"]) == float(before["carrel_first_result_seconds_count"]) + 1


def test_a_box_waits_for_a_zygote_no_longer_than_a_kernel_takes_without_one(fake_guest, tmp_path):
    """Its interpreter starts kernels, but no zygote ever gets ready."""
    tmp_path.chmod(0o755)
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nif [ "$2" = zygote ]; then exec sleep 1000; fi\nexec /usr/bin/python3 "$@"\n')
    python.chmod(0o755)
    server = start_server(fake_guest, "--set", f"templates.python.python={python}", "--set", "templates.python.pool=1")
    try:
        took = []
        for _ in range(3):
            begin = time.monotonic()
            answer = server.admin.post("/v1/run", {"code": "pass", "template": "python"})
            took.append(time.monotonic() - begin)
            assert answer.status == 200 and answer.json["kernel"]["way"] == "cold", answer.body
        assert max(took[1:]) < 10 + 3 * took[0], took
    finally:
        server.stop()


def test_what_nothing_counts_is_not_billed_as_nothing(programs, fake_guest):
    """An ordinary user's boxes have cgroups only where they are delegated; a cell never takes no time at all."""
    server = Server("--set", "templates.python.python=/usr/bin/python3", "--set", "templates.python.pool=off", user=ORDINARY, place=programs,
                    variables={"CARREL_GUEST": str(fake_guest)})
    try:
        status, answer = server.request("POST", "/v1/run", {"code": "sum(range(100000))", "template": "python"})
        assert status == 200 and answer["outcome"] == "ok", answer
        assert answer["cpu_ms"] is None or answer["cpu_ms"] > 0
        assert answer["memory_peak_bytes"] is None or answer["memory_peak_bytes"] > 0
    finally:
        server.stop()
