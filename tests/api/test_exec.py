import base64
import json
import os
import signal

import pytest

from support.client import Client, lines
from support.server import Server
from support.waiting import wait_for


def test_argv_is_run_without_a_shell(alice, box):
    answer = alice.post(box + "/exec", {"argv": ["printf", "%s|", "a b", "$HOME", "*"]}).json
    assert (answer["stdout"], answer["outcome"], answer["exit_code"], answer["signal"]) == ("a b|$HOME|*|", "ok", 0, None)


@pytest.mark.cgroups
def test_outcomes_are_told(run):
    assert run("exit 7")["outcome"] == "error" and run("exit 7")["exit_code"] == 7
    killed = run("kill -TERM $$")
    assert killed["signal"] == 15 and killed["exit_code"] is None
    late = run("sleep 30", timeout="200ms")
    assert late["outcome"] == "timeout" and 150 <= late["wall_ms"] < 30000
    assert run("cat /dev/zero", output_limit=100000)["outcome"] == "output_limit"
    hungry = run("head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null")
    assert hungry["outcome"] == "oom"


def test_output_limit_is_exact(run):
    answer = run("head -c 5000 /dev/zero | tr '\\0' x; head -c 5000 /dev/zero | tr '\\0' y", output_limit=7000)
    assert len(answer["stdout"]) == 7000 and answer["output_bytes"] == 7000


def test_environment_has_three_layers(alice, make_box):
    path = "/v1/boxes/" + make_box(env={"A": "box", "B": "box"})["id"]
    answer = alice.post(path + "/exec", {"argv": ["env"], "env": {"B": "exec", "C": ""}}).json
    env = dict(line.split("=", 1) for line in answer["stdout"].splitlines())
    assert (env["A"], env["B"], env["C"], env["HOME"], env["LANG"]) == ("box", "exec", "", "/home/box", "C.UTF-8")
    assert "TERM" not in env


def test_cwd_and_stdin(run):
    assert run("pwd", cwd="/tmp")["stdout"] == "/tmp\n"
    assert run("pwd")["stdout"] == "/home/box\n"
    assert run("cat", stdin="Größe\n")["stdout"] == "Größe\n"
    assert run("cat; echo end")["stdout"] == "end\n"
    big = "x" * 3_000_000
    assert run("wc -c", stdin=big)["stdout"].strip() == "3000000"


def test_a_user_that_cannot_be_is_refused(alice, box):
    for user in ("root", "", "1:2:3", "-1", 65535, 70000, {"uid": 1}, True):
        answer = alice.post(box + "/exec", {"argv": ["true"], "user": user})
        assert answer.status == 400 and "user" in answer.json["error"]["message"], user


def test_a_program_that_is_not_there_is_told(alice, box):
    answer = alice.post(box + "/exec", {"argv": ["/no/such/program"]})
    assert answer.status == 200 and answer.json["outcome"] == "not_started" and answer.json["exit_code"] is None
    assert "/no/such/program" in answer.json["error"]["message"]


def test_bytes_that_are_no_text_arrive_exactly(alice, box):
    answer = alice.post(box + "/exec", {"shell": "printf 'a\\377\\000b'; printf ok >&2"}).json
    assert answer["stdout"] == "a\ufffd\0b" and base64.b64decode(answer["stdout_base64"]) == b"a\xff\0b"
    assert answer["stderr"] == "ok" and "stderr_base64" not in answer


def test_a_stream_comes_while_the_command_runs(alice, box):
    response = alice.open("POST", box + "/exec?stream=true", {"shell": "echo one; read x; echo two >&2; exit 3", "stdin": True})
    assert response.headers["Content-Type"] == "application/x-ndjson"
    stream = lines(response)
    started = next(stream)
    assert started["type"] == "started"
    first = next(stream)
    assert (first["type"], first["data"]) == ("stdout", "one\n")
    # It waits for us now, so these bytes are not the rest at the end.
    assert alice.post(f"{box}/exec/{started['exec']}/stdin?close=true", b"go\n").json == {"bytes": 3, "closed": True}
    second, last = stream
    assert (second["type"], second["data"], second["offset"]) == ("stderr", "two\n", first["next"])
    assert (last["type"], last["exit_code"], last["outcome"], last["exec"]) == ("exit", 3, "error", started["exec"])


def test_accept_asks_for_a_stream_too(alice, box):
    response = alice.open("POST", box + "/exec", {"argv": ["true"]}, headers={"Accept": "application/x-ndjson"})
    assert [line["type"] for line in lines(response)] == ["started", "exit"]


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_client_that_vanishes_takes_its_command_along(alice, box, stream):
    body = json.dumps({"argv": ["sleep", "1000"]})
    s = alice.raw_socket()
    s.sendall(f"POST {box}/exec?stream={stream} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    running = lambda: [x for x in alice.get(box + "/exec").json["execs"] if x["state"] == "running"]
    wait_for(running)
    s.close()
    wait_for(lambda: not running())
    assert alice.get(box + "/exec").json["execs"][0]["outcome"] == "killed"


def test_background_output_is_replayed_from_any_offset(alice, box):
    x = alice.post(box + "/exec", {"shell": "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done; echo e >&2", "background": True})
    assert x.status == 202 and x.json["state"] in ("starting", "running")
    path = f"{box}/exec/{x.json['id']}"
    whole = list(lines(alice.open("GET", path + "/output?follow=true")))
    assert whole[-1]["type"] == "exit"
    assert "".join(l["data"] for l in whole if l["type"] == "stdout") == "1\n2\n3\n4\n5\n"
    for i, line in enumerate(whole[:-1]):
        rest = list(lines(alice.open("GET", f"{path}/output?offset={line['next']}")))
        assert rest == whole[i + 1:]
    assert alice.get(path + "/output?offset=3").status == 400
    assert alice.get(path + "/output?offset=999999").status == 400


def test_output_without_follow_ends_where_it_is(alice, box):
    x = alice.post(box + "/exec", {"shell": "echo here; sleep 100", "background": True}).json
    path = f"{box}/exec/{x['id']}"
    wait_for(lambda: alice.get(path).json["output_bytes"] == 5)
    assert [l["type"] for l in lines(alice.open("GET", path + "/output"))] == ["stdout"]
    assert alice.delete(path).status == 200
    wait_for(lambda: alice.get(path).json["state"] == "ended")
    assert alice.get(path).json["signal"] == 9
    assert alice.delete(path).status == 200


def test_signals_reach_the_command(alice, box):
    x = alice.post(box + "/exec", {"shell": "trap 'echo got; exit 5' USR1; echo up; while :; do sleep 0.02; done", "background": True}).json
    path = f"{box}/exec/{x['id']}"
    wait_for(lambda: alice.get(path).json["output_bytes"] == 3)
    assert alice.post(path + "/signal", {"signal": "USR1"}).status == 200
    wait_for(lambda: alice.get(path).json["state"] == "ended")
    assert alice.get(path).json["exit_code"] == 5
    assert alice.post(path + "/signal", {"signal": 15}).status == 409


def test_stdin_is_fed_piece_by_piece_and_pushes_back(server, alice, box):
    x = alice.post(box + "/exec", {"shell": "sleep 0.3; wc -c", "background": True, "stdin": True}).json
    path = f"{box}/exec/{x['id']}"
    piece = b"z" * 65536
    answer = alice.post(path + "/stdin?close=true", iter([piece] * 320))
    assert answer.json == {"bytes": 320 * 65536, "closed": True}
    out = list(lines(alice.open("GET", path + "/output?follow=true")))
    assert out[0]["data"].strip() == str(320 * 65536)
    assert alice.post(path + "/stdin", b"more").code == "stdin_closed"


def test_a_slow_reader_costs_the_server_no_memory(server, alice, box):
    before = server.front_bytes()
    s = alice.raw_socket()
    body = json.dumps({"shell": "head -c 200000000 /dev/zero", "output_limit": "300M"})
    s.sendall(f"POST {box}/exec?stream=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice.token}\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    done = lambda: [x["state"] for x in alice.get(box + "/exec").json["execs"]] == ["ended"]     # it may not be there yet
    wait_for(done)
    assert server.front_bytes() - before < 16 << 20
    s.close()


def test_sixty_four_commands_and_no_more(alice, box):
    for _ in range(64):
        assert alice.post(box + "/exec", {"argv": ["sleep", "100"], "background": True}).status == 202
    assert alice.post(box + "/exec", {"argv": ["true"]}).status == 429
    for x in alice.get(box + "/exec").json["execs"]:
        alice.delete(f"{box}/exec/{x['id']}")
    wait_for(lambda: alice.post(box + "/exec", {"argv": ["true"]}).status == 200)


def receive_all(ws):
    output, texts = {1: b"", 2: b""}, []
    while True:
        message = ws.receive()
        if message is None:
            return output, texts
        if isinstance(message, bytes):
            output[message[0]] += message[1:]
        else:
            texts.append(json.loads(message))


def test_a_terminal_over_a_websocket(alice, box):
    ws = alice.websocket(box + "/exec/ws?shell=until+stty+size|grep+%2230+100%22;do+:;done;tty;read+x;stty+size;echo+got+$x;exit+4&tty=true&rows=30&cols=100")
    assert ws.status == 101
    assert json.loads(ws.receive())["type"] == "started"
    seen = b""
    while b"/dev/" not in seen:
        seen += ws.receive()[1:]
    assert b"30 100" in seen
    ws.send(json.dumps({"type": "resize", "rows": 50, "cols": 132}))
    ws.send(b"\0hello\n")
    output, texts = receive_all(ws)
    assert b"50 132" in output[1] and b"got hello" in output[1]
    assert (texts[-1]["type"], texts[-1]["exit_code"]) == ("exit", 4)


def test_the_most_output_that_may_be_asked_for_is_the_servers():
    if os.geteuid() != 0:
        pytest.skip("the server of these tests runs as root")
    s = Server("--set", "limits.output=64k", "--set", "defaults.output=16k")
    try:
        root = Client(s.socket)
        box = "/v1/boxes/" + root.post("/v1/boxes", {}).json["id"]
        for ask, size in ((50000, 50000), ("64k", 65536), ("max", 65536)):
            ended = root.post(box + "/exec", {"shell": "cat /dev/zero", "output_limit": ask}).json
            assert (ended["outcome"], ended["output_bytes"], ended["output_limit"]) == ("output_limit", size, size)
        # Without one it is not ended; so much is kept.
        kept = root.post(box + "/exec", {"shell": "head -c 5000000 /dev/zero | tr '\\0' x"}).json
        assert (kept["outcome"], len(kept["stdout"]), kept["stdout_dropped_bytes"]) == ("ok", 16384, 5000000 - 16384)
        refused = root.post(box + "/exec", {"argv": ["true"], "output_limit": 65537})
        assert refused.status == 400 and "limits.output" in refused.json["error"]["message"]
        # Nor is a terminal: a person sits there, without a time limit.
        output, texts = receive_all(root.websocket(box + "/exec/ws?shell=head+-c+3000000+/dev/zero&tty=true"))
        assert len(output[1]) == 3000000 and texts[-1]["outcome"] == "ok" and len(texts) == 2, texts[-1]
        _, texts = receive_all(root.websocket(box + "/exec/ws?shell=cat+/dev/zero&tty=true&output_limit=max"))
        assert texts[-1]["outcome"] == "output_limit" and texts[-1]["output_limit"] == 65536
    finally:
        s.stop()


def test_the_exit_reaches_a_client_whose_queue_is_full_at_the_end(admin, make_box):
    """Output of many sizes, none of it read before the command has ended: the last bytes fill the server's queue for one of them."""
    box = "/v1/boxes/" + make_box(admin)["id"]
    for kilobytes in range(384, 640, 4):
        ws = admin.websocket(box + f"/exec/ws?shell=head+-c+{kilobytes}k+/dev/zero")
        exec_id = json.loads(ws.receive())["exec"]
        wait_for(lambda: admin.get(f"{box}/exec/{exec_id}").json["state"] == "ended")
        output, texts = receive_all(ws)
        assert len(output[1]) == kilobytes * 1024 and texts[-1]["type"] == "exit" and texts[-1]["exit_code"] == 0, (kilobytes, texts)
        assert ws.closed == (1000, "")
        ws.close()


def test_pipes_over_a_websocket(alice, box):
    ws = alice.websocket(box + "/exec/ws?argv=sh&argv=-c&argv=cat;echo+err+%3E%262&env=X=1")
    assert json.loads(ws.receive())["type"] == "started"
    ws.send(b"\0" + b"a" * 100000)
    ws.send(b"\0end")
    ws.send(json.dumps({"type": "close_stdin"}))
    output, texts = receive_all(ws)
    assert output == {1: b"a" * 100000 + b"end", 2: b"err\n"}
    assert texts[-1]["outcome"] == "ok"


def test_a_closed_websocket_ends_its_command(alice, box):
    ws = alice.websocket(box + "/exec/ws?argv=sleep&argv=1000")
    x = json.loads(ws.receive())["exec"]
    wait_for(lambda: alice.get(f"{box}/exec/{x}").json["state"] == "running")
    ws.close()
    wait_for(lambda: alice.get(f"{box}/exec/{x}").json["state"] == "ended")


def test_attaching_replays_and_leaves_the_command_alone(alice, box):
    x = alice.post(box + "/exec", {"shell": "echo first; read x; echo $x; sleep 100", "background": True, "stdin": True}).json["id"]
    path = f"{box}/exec/{x}"
    ws = alice.websocket(path + "/attach")
    assert json.loads(ws.receive())["exec"] == x
    assert ws.receive() == b"\x01first\n"
    ws.send(b"\0typed\n")
    assert ws.receive() == b"\x01typed\n"
    ws.send(json.dumps({"type": "nonsense"}))
    assert json.loads(ws.receive())["type"] == "error"
    ws.close()
    wait_for(lambda: alice.get(path).json["state"] == "running")     # its output may come before the started event
    again = alice.websocket(path + "/attach")
    again.receive()
    assert again.receive() == b"\x01first\n"
    again.send(json.dumps({"type": "signal", "signal": "KILL"}))
    assert receive_all(again)[1][-1]["signal"] == 9


def test_an_interactive_route_without_upgrade_is_426(alice, box):
    assert alice.get(box + "/exec/ws?argv=true").status == 426
    assert alice.get(box + "/exec").json["execs"] == []


def ends(pid):
    return wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def pid_of(mark):
    """Of the process with this in its environment, as it is called out here."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                if b"CARREL_MARK=" + mark.encode() in f.read().split(b"\0"):
                    return int(name)
        except OSError:
            pass
    return None


def test_children_that_write_for_ever_do_not_hold_the_end_of_their_command(alice, bob, box, server):
    """Bytes in the pipe when the command ends are its output; later writes of other processes are not waited for."""
    code = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
print('last words', flush=True)
block = b"y" * 4096
os.set_blocking(1, False); os.set_blocking(2, False)    # nobody sleeps until there is room
heard, told = os.pipe()
for i in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:
            try: os.write(1 + i % 2, block)
            except BlockingIOError: pass
            if told: os.write(told, b"."); told = None
for i in range(4): os.read(heard, 1)                    # each of them has written, or found the pipe full
os._exit(0)
"""
    mark, front = box.rsplit("/", 1)[1], server.front_pid()
    x = alice.post(box + "/exec", {"argv": ["python3", "-c", code], "background": True, "output_limit": "512M", "env": {"CARREL_MARK": mark}})
    assert x.status == 202, x.body
    path = f"{box}/exec/{x.json['id']}"
    wait_for(lambda: alice.get(path).json["output_bytes"] == len("ready\n"))
    command = pid_of(mark)
    os.kill(front, signal.SIGSTOP)
    try:
        os.kill(command, signal.SIGUSR1)
        assert ends(command)
    finally:
        os.kill(front, signal.SIGCONT)
    ended = wait_for(lambda: (now := alice.get(path).json)["state"] == "ended" and now)
    assert ended and ended["outcome"] == "ok" and bob.get("/healthz").status == 200, ended
    response = alice.open("GET", path + "/output")
    told = lines(response)
    said = [line["data"] for line in told if line["type"] == "stdout"]
    assert said[0] == "ready\n" and said[1].startswith("last words\ny")
    response.connection.close()
