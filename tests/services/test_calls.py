"""Calls in time: prints, interrupts, timeouts, queues, deaths, restarts."""
import concurrent.futures
import json
import os
import signal
import threading
import time

import pytest

from support.client import Client
from support.openapi import unanswered
from support.processes import with_variable
from support.waiting import wait_for

WORK = """
import asyncio, os, signal, subprocess, sys, time
seen = []
@expose
def echo(v): return v
@expose
def say(n: int = 3):
    for i in range(n):
        print("line", i)
    print("no end", end="")
    sys.stderr.write("trouble\\n")
    return n
@expose
def shell(): 
    subprocess.run(["echo", "from a child"]); return None
@expose
def nap(seconds: float):
    seen.append("begin")
    try:
        print("begin")
        time.sleep(seconds)
    finally:
        seen.append("end")
    return "slept"
@expose
def spin():
    seen.append("spin")
    while True: pass
@expose
def deaf():
    while True:
        try: time.sleep(100)
        except BaseException: pass
@expose
def look(): return list(seen)
@expose
async def wait(seconds: float, v=None):
    await asyncio.sleep(seconds); return v
@expose
async def forever():
    seen.append("async begin")
    try: await asyncio.sleep(1000)
    finally: seen.append("async end")
@expose
async def speak(v):
    print("async", v); await asyncio.sleep(0.01); print("more", v); return v
@expose
def die(): os._exit(7)
@expose
def crash(): os.kill(os.getpid(), signal.SIGSEGV)
@expose
def eat():
    data = []
    while True: data.append(bytearray(1 << 20))
@expose
def pid(): return os.getpid()
"""


@pytest.fixture
def work(create):
    return create(WORK)


def test_prints_are_events_and_not_in_the_result(work):
    lines = work.stream("say")
    assert lines[-1] == {"type": "result", "ok": True, "result": 3}
    assert "".join(e["text"] for e in lines if e["type"] == "stdout") == "line 0\nline 1\nline 2\nno end"
    assert "".join(e["text"] for e in lines if e["type"] == "stderr") == "trouble\n"
    assert work.call("say") == 3
    assert "from a child" in "".join(e["text"] for e in work.stream("shell") if e["type"] == "stdout")


def test_prints_are_in_the_answer_if_they_are_asked_for(work):
    ask = lambda function, **more: work.client.post(work.path + "/call", {"function": function, "prints": True, **more})      # noqa: E731
    assert ask("say").json == {"stdout": "line 0\nline 1\nline 2\nno end", "stderr": "trouble\n", "truncated": False, "ok": True, "result": 3}
    much = ask("say", args=[20000]).json
    assert much["truncated"] is True and much["stdout"].startswith("line 0\n") and len(much["stdout"]) <= 64 << 10 and much["result"] == 20000
    assert work.client.post(work.path + "/call", {"function": "say", "prints": 1}).status == 400
    assert set(work.client.post(work.path + "/call", {"function": "say"}).json) == {"ok", "result"}


def test_async_calls_run_together_and_print_to_their_own_callers(work, pool):
    begin = time.monotonic()
    results = [f.result() for f in [pool.submit(work.call, "wait", 0.5, i) for i in range(20)]]
    assert results == list(range(20)) and time.monotonic() - begin < 8      # one after the other it is 10 s
    streams = [f.result() for f in [pool.submit(work.stream, "speak", i) for i in range(8)]]
    for i, lines in enumerate(streams):
        assert "".join(e["text"] for e in lines if e["type"] == "stdout") == f"async {i}\nmore {i}\n", lines


def test_a_timeout_interrupts_the_function_and_the_worker_lives(work):
    before = work.call("pid")
    answer = work.ask("nap", 1000, timeout=0.3)
    assert (answer.status, answer.code) == (504, "timeout")
    answer = work.ask("spin", timeout=0.3)
    assert answer.status == 504
    assert work.ask("forever", timeout=0.3).status == 504
    # The loop of async functions has a thread of its own, so the end may come after the answer.
    wait_for(lambda: work.call("look") == ["begin", "end", "spin", "async begin", "async end"])
    assert work.call("pid") == before


def test_a_caller_that_goes_interrupts_the_function(work):
    response = work.open("nap", 1000)
    assert b"begin" in response.readline()
    response.close()
    response.connection.close()
    assert work.call("look") == ["begin", "end"]
    assert [e["outcome"] for e in work.log()] == ["abandoned", "ok"]


def test_one_that_waits_and_whose_caller_goes_never_runs(work, pool):
    first = pool.submit(work.ask, "nap", 1)
    wait_for(lambda: work.show()["calls_running"] == 1)
    assert work.ask("nap", 1, timeout=0.1).status == 504
    assert first.result().json["result"] == "slept"
    assert work.call("look") == ["begin", "end"]


def test_a_function_that_cannot_be_interrupted_costs_the_worker(work):
    before = work.call("pid")
    assert work.ask("deaf", timeout=0.2).status == 504
    assert work.call("pid") != before       # it waited for the next one
    shown = work.show()
    assert shown["restarts"] == 1 and "interrupted" in shown["reason"]


@pytest.mark.parametrize("function, outcome, words", [("die", "error", "status 7"), ("crash", "killed", "SIGSEGV")])
def test_a_worker_that_dies_is_told_with_its_reason_and_replaced(work, function, outcome, words):
    answer = work.ask(function)
    assert (answer.status, answer.code) == (502, "worker_died")
    assert words in answer.json["error"]["details"]["reason"] and answer.json["error"]["details"]["outcome"] == outcome
    assert work.call("echo", 1) == 1
    assert work.show()["restarts"] == 1


def test_a_worker_that_runs_out_of_memory_is_told_so(create):
    s = create(WORK, settings={"limits": {"memory": "96M"}})
    answer = s.ask("eat")
    assert answer.status == 502 and answer.json["error"]["details"]["outcome"] == "oom", answer.body
    assert s.call("echo", 1) == 1


def test_a_worker_that_dies_again_and_again_is_given_up_until_a_restart(work):
    for _ in range(6):
        assert work.ask("die").status == 502
    wait_for(lambda: work.state() == "dead")
    answer = work.ask("echo", 1)
    assert answer.status == 409 and "status 7" in answer.json["error"]["message"]
    assert work.client.post(work.path + "/restart").status == 200
    assert work.call("echo", 1) == 1


def test_what_waits_outlives_the_worker(work, pool):
    first = pool.submit(work.ask, "nap", 1000)
    wait_for(lambda: work.show()["calls_running"] == 1)
    second = pool.submit(work.ask, "echo", 5)
    wait_for(lambda: work.show()["calls_running"] == 2)
    answer = work.client.post(work.path + "/restart")
    assert answer.status == 200 and answer.json["state"] == "ready"
    assert first.result().status == 502
    assert second.result().json == {"ok": True, "result": 5}


def test_a_wrong_call_does_not_wait_for_its_turn(work, pool):
    first = pool.submit(work.ask, "nap", 1000)
    assert wait_for(lambda: work.show()["calls_running"] == 1)
    refused = work.ask("nap", "long")
    assert refused.status == 422 and "'seconds'" in refused.body.decode(), refused.body
    assert work.ask("nap").status == 422 and work.ask("echo", 1, 2).status == 422
    assert not first.done() and work.show()["calls_running"] == 1
    assert [entry["outcome"] for entry in work.log()][-3:] == ["invalid_arguments"] * 3
    work.client.post(work.path + "/restart")
    first.result()


def test_a_thousand_calls_in_flight(work):
    with concurrent.futures.ThreadPoolExecutor(1000) as threads:
        gate = threading.Barrier(1000)

        def one(i):
            gate.wait(60)
            return work.call("wait" if i % 2 else "echo", *([0.2, i] if i % 2 else [i]))

        assert [f.result() for f in [threads.submit(one, i) for i in range(1000)]] == list(range(1000))
    assert work.show()["calls_running"] == 0


def test_the_queue_is_bounded(work, admin):
    """Over one connection each. A caller has as many places as it leaves free; the next call is refused at once. Another caller still
    finds a place."""
    import json
    import socket
    sockets = []
    body = json.dumps({"function": "nap", "args": [1000]}).encode()
    head = b"POST %s/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (work.path.encode(), len(body))
    try:
        for _ in range(2048):
            s = socket.socket(socket.AF_UNIX)
            s.connect(admin.where)
            s.sendall(head + body)
            sockets.append(s)
        wait_for(lambda: work.show()["calls_running"] == 2048)
        answer = admin.post(work.path + "/call", {"function": "echo", "args": [1]})
        assert (answer.status, answer.code) == (429, "too_many") and "2048 calls of yours" in answer.body.decode()
        assert work.ask("echo", 1, timeout=0.2).status == 504
    finally:
        for s in reversed(sockets):
            s.close()
    wait_for(lambda: work.show()["calls_running"] == 0)
    seen = work.call("look")
    assert seen.count("begin") == seen.count("end") < 100       # queued calls were dropped, not run


def test_a_holder_who_asks_for_much_does_not_make_others_wait_for_it(work, grant, pool, server, alice):
    """Each has its turn after the call that runs. 100 calls of one holder take 30 s; the others wait for two or three of them."""
    greedy, modest = (Client(server.tcp, grant(work, functions=["nap", "echo"])["token"]) for _ in range(2))

    def ask(client, function, *args):
        return client.post("/v1/grant/call", {"function": function, "args": list(args)})

    slow = [threading.Thread(target=ask, args=(greedy, "nap", 0.3), daemon=True) for _ in range(100)]
    for one in slow:
        one.start()
    wait_for(lambda: work.show()["calls_running"] >= 50)
    for who in (lambda: ask(modest, "echo", 1).json["result"], lambda: work.call("echo", 1)):
        before = len(work.log())
        assert who() == 1
        assert len(work.log()) - before <= 4, work.log()[before:]
    assert work.client.post(work.path + "/restart").status == 200
    work.client.delete(work.path)
    for one in slow:
        one.join(30)


def test_the_log_says_who_called_what_and_no_values(work):
    work.call("echo", "secret-argument")
    work.ask("echo", 1, 2)
    log = work.log()
    assert [(e["who"], e["function"], e["outcome"]) for e in log] == [("alice", "echo", "ok"), ("alice", "echo", "invalid_arguments")]
    assert log[0]["args_bytes"] > 10 and log[0]["result_bytes"] == len('"secret-argument"')
    assert "secret" not in str(log)


def test_a_slow_reader_does_not_hold_the_service_up(create, alice):
    s = create("@expose\ndef flood():\n    for i in range(40000): print('x' * 1000)\n    return 'done'\n@expose\ndef echo(v): return v\n")
    response = s.open("flood")
    wait_for(lambda: s.show()["calls_running"] == 0)
    assert s.call("echo", 1) == 1
    lines = response.read().splitlines()
    response.connection.close()
    assert b'"result":"done"' in lines[-1] and any(b"dropped" in line for line in lines)


# --- restarts of the server's parts ---

def test_a_service_survives_the_front(work, server, grant, box, run):
    token = grant(work, functions=["echo", "pid"])["token"]
    grant(work, box=box, functions=["pid"])
    before = work.call("pid")
    os.kill(server.front_pid(), signal.SIGKILL)
    wait_for(server.is_ready)
    wait_for(lambda: work.state() == "ready")
    assert work.call("pid") == before
    assert run(box, "print(json.dumps(call('pid')))") == [200, {"ok": True, "result": before}]
    holder = Client(server.tcp, token)
    assert holder.post("/v1/grant/call", {"function": "pid"}).json == {"ok": True, "result": before}


def test_a_call_that_the_front_left_behind_is_interrupted(work, server, pool):
    before = work.call("pid")
    call = pool.submit(work.ask, "nap", 1000)
    wait_for(lambda: work.show()["calls_running"] == 1)
    os.kill(server.front_pid(), signal.SIGKILL)
    with pytest.raises(Exception):
        call.result()
    wait_for(server.is_ready)
    assert work.call("look")[-1] == "end" and work.call("pid") == before


def test_calls_of_the_next_front_wait_for_the_worker_to_describe_itself(create, server, pool):
    work = create(WORK, env={"CARREL_MARK": "silent-worker"})
    worker = with_variable("CARREL_MARK=silent-worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        server.kill("front")
        assert work.state() == "loading" and "echo" in work.functions
        call = pool.submit(work.call, "echo", 1)
        assert work.ask("missing").status == 404
        wait_for(lambda: work.show()["calls_running"] == 1)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert call.result() == 1


def test_a_call_while_the_interface_is_first_loaded_says_so(create, alice, pool):
    creation = pool.submit(create, "import time; time.sleep(1000)", status=422, name="slow", load_timeout=3)
    wait_for(lambda: alice.get("/v1/services/slow").json.get("state") == "loading")
    answer = alice.post("/v1/services/slow/call", {"function": "echo"})
    assert answer.status == 409 and "still loading" in answer.json["error"]["message"], answer.body
    assert creation.result()


def test_a_service_with_secrets_that_dies_after_a_restart_says_why_it_is_not_replaced(create, server):
    s = create(WORK, secrets={"KEY": "value"})
    assert s.ask("die").status == 502 and s.call("echo", 1) == 1      # this front has them
    os.kill(server.front_pid(), signal.SIGKILL)
    wait_for(server.is_ready)
    assert wait_for(lambda: s.state() == "ready") and s.call("echo", 1) == 1
    assert s.ask("die").status == 502
    assert wait_for(lambda: s.state() == "dead") and "secrets" in s.show()["reason"]


def test_a_service_dies_with_its_box(create, box, alice):
    s = create(WORK, box=box)
    alice.delete("/v1/boxes/" + box)
    wait_for(lambda: alice.get(s.path).status == 404)


def test_every_route_of_services_answers_what_is_described(create, alice, server):
    """Client checks each answer."""
    def ask(method, path, body=None, status=200, client=alice, **headers):
        answer = client.ask(method, path, body, headers)
        assert answer.status == status, (method, path, answer.status, answer.body)
        return answer

    work = create(WORK, name="described")
    streamed = ask("POST", "/v1/services", {"code": "@expose\ndef f(): return 1\n"}, Accept="application/x-ndjson").body.splitlines()
    ask("DELETE", "/v1/services/" + json.loads(streamed[-1])["id"], status=204)
    for path in ("/v1/services", work.path, work.path + "/calls"):
        ask("GET", path)
    given = ask("POST", "/v1/grants", {"service": work.name}, 201).json
    holder = Client(server.tcp, given["token"])
    for client, path in ((alice, work.path + "/call"), (holder, "/v1/grant/call")):
        for accept in ("application/json", "application/x-ndjson"):
            ask("POST", path, {"function": "say"}, client=client, Accept=accept)
        ask("POST", path, {"function": "say", "args": ["x"]}, 422, client)
    ask("GET", "/v1/grant", client=holder), ask("GET", "/v1/grants")
    ask("DELETE", "/v1/grants/" + given["id"], status=204)
    ask("POST", work.path + "/restart")
    assert unanswered("/v1/services", "/v1/grant") == []
