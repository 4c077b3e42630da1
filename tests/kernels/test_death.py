"""How cells are stopped and kernels die, and the reports of it."""
import json
import os
import pathlib
import signal
import time

import pytest

from support.processes import with_variable
from support.waiting import wait_for
from test_run import result

DEAF = "signal.signal(signal.SIGINT, signal.SIG_IGN); "


def seven(box):
    return box.run(result("x"), on_dead="error")["results"][0]["data"]["text/plain"] == "7"


def kernel_pid(box):
    """Of the box's kernel, as it is called out here."""
    return with_variable(f"CARREL_MARK={box.box}")


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def has_ended(pid):
    return state_of(pid) in "ZX"


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: state_of(pid) == "T")


def test_a_vanished_client_interrupts_its_cell_and_the_state_survives(box):
    box.run("x = 7")
    box.vanish("print(1, flush=True)\nwhile True: pass")
    assert seven(box) and box.kernel()["restarts"] == 0


def test_a_run_whose_client_vanishes_while_it_waits_is_never_run(box, pool):
    box.run("x = 7; ran = False")
    first = pool.submit(box.run, "while not os.path.exists('/tmp/go'): time.sleep(.02)")
    wait_for(lambda: box.kernel()["state"] == "busy")
    second = box.client.connection()
    second.request("POST", box.path + "/run", '{"code": "ran = True"}', {"Authorization": "Bearer " + box.client.token, "Content-Type": "application/json"})
    time.sleep(0.2)     # it has no sign: it waits for its turn
    second.close()
    assert box.client.post(box.path + "/exec", {"argv": ["touch", "/tmp/go"]}).json["outcome"] == "ok"
    assert first.result()["outcome"] == "ok" and box.run(result("ran"))["results"][0]["data"]["text/plain"] == "False"


def test_a_timeout_interrupts(box):
    box.run("x = 7")
    answer = box.run("while True: pass", timeout=0.5)
    assert answer["outcome"] == "timeout" and answer["kernel"]["state"] == "idle"
    assert answer["error"]["name"] == "KeyboardInterrupt" and "timeout" in answer["reason"] and seven(box)


def test_what_does_not_heed_an_interrupt_is_ended_and_that_is_told(box):
    start = time.monotonic()
    answer = box.run(DEAF + "\nwhile True: pass", timeout=2)
    assert answer["outcome"] == "timeout" and answer["kernel"]["state"] == "dead" and time.monotonic() - start > 3.5
    again = box.run("signal.signal(signal.SIGTERM, signal.SIG_IGN); " + DEAF + "\nwhile True: pass", timeout=2)
    assert again["kernel"]["restarts"] == 1 and "SIGKILL" in again["reason"]
    assert box.run("pass")["kernel"]["restarts"] == 2


def test_an_interrupt_that_was_asked_for(box, pool):
    box.run("x = 7")
    running = pool.submit(box.run, "while True: pass")
    assert wait_for(lambda: box.kernel()["state"] == "busy") and box.post("interrupt").status == 200
    assert running.result()["outcome"] == "interrupted" and seven(box)


@pytest.mark.parametrize("code, outcome, reason", [
    ("os._exit(3)", "died", "status 3"), ("sys.exit(0)" and "os._exit(0)", "died", "status 0"), ("os.kill(os.getpid(), signal.SIGSEGV)", "killed", "SIGSEGV"),
    pytest.param("x = bytearray(1 << 30)", "oom", "memory", marks=pytest.mark.cgroups),
])
def test_a_death_has_a_type_and_a_reason_at_once(make, code, outcome, reason):
    box = make(limits={"memory": "64M", "pids": 32})
    answer = box.run("print('before', flush=True); " + code)
    assert answer["outcome"] == outcome and reason in answer["reason"] and answer["stdout"] == "before\n", answer
    assert answer["kernel"]["state"] == "dead"
    shown = box.kernel()
    assert shown["state"] == "dead" and shown["reason"] == answer["reason"]
    refused = box.run("1", on_dead="error")
    assert refused["outcome"] == "dead" and reason in refused["reason"] and refused["kernel"]["restarts"] == 0
    assert box.run("1")["outcome"] == "ok" and box.kernel()["restarts"] == 1


def test_the_last_words_of_a_kernel_that_did_not_read_all_are_heard(box, server):
    """Its end then reaches us as a reset, before its last messages."""
    ask = ("link.send('stdin', 'input_request', {'prompt': '', 'password': False}, header); import select; select.select([0], [], []); "
           "link.send('iopub', 'stream', {'name': 'stdout', 'text': 'reads'}, header); signal.sigwait([signal.SIGUSR1]); "
           "link.send('iopub', 'stream', {'name': 'stdout', 'text': 'last words'}, header); os._exit(3)")
    box.run("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])", env={"CARREL_MARK": box.box})
    response = box.open(ask)
    assert json.loads(response.readline())["type"] == "input_request"
    assert box.post("input", {"value": "x"}).status == 200 and json.loads(response.readline())["text"] == "reads"
    kernel, front = kernel_pid(box), server.front_pid()
    stop(front)
    try:
        os.kill(kernel, signal.SIGUSR1)
        wait_for(lambda: has_ended(kernel))
    finally:
        os.kill(front, signal.SIGCONT)
    told = [json.loads(line) for line in response]
    response.connection.close()
    assert [e["type"] for e in told] == ["stdout", "outcome"] and told[0]["text"] == "last words" and told[1]["outcome"] == "died", told


@pytest.mark.parametrize("what", ["raise KeyboardInterrupt", "time.sleep(60)"])
def test_a_kernel_that_never_replies_does_not_hold_its_run_for_ever(box, what):
    """It says that it is idle, at once or when it is interrupted."""
    idle = "link.send('iopub', 'status', {'execution_state': 'idle'}, header); link.send = lambda *a, **k: None"
    lie = f"try:\n    {what}\nexcept KeyboardInterrupt:\n    {idle}"
    response = box.open(lie, timeout=2)
    told = [json.loads(line) for line in response]
    response.connection.close()
    assert [(e["type"], e.get("outcome")) for e in told] == [("outcome", "timeout")] and "did not reply" in told[0]["reason"], told
    assert box.post("restart").status == 200 and box.run("1")["outcome"] == "ok"


def test_a_kernel_that_cannot_start_says_why(make):
    box = make()
    answer = box.run("1", cwd="/nowhere")
    assert answer["outcome"] == "died" and "nowhere" in answer["reason"]


def test_restart_and_delete(box, pool):
    box.run("x = 7")
    running = pool.submit(box.run, "while True: pass")
    assert wait_for(lambda: box.kernel()["state"] == "busy") and box.post("restart").status == 200
    assert running.result()["outcome"] == "killed"
    answer = box.run(result("x"))
    assert answer["outcome"] == "error" and answer["kernel"]["restarts"] == 1
    running = pool.submit(box.run, "while True: pass")
    wait_for(lambda: box.kernel()["state"] == "busy")
    assert box.client.delete(box.path + "/kernels/default").status == 204 and running.result()["outcome"] == "killed"
    assert box.client.get(box.path + "/kernels").json["kernels"] == [] and box.run("1")["kernel"]["restarts"] == 0


def test_a_kernel_that_is_older_than_all_other_commands_can_be_restarted(make, server):
    """Old commands are forgotten when another starts, also when that is the kernel's own next process."""
    box, front = make(), server.front_pid()
    box.run("x = 7")
    for i in range(5):
        for k in range(52):
            assert box.client.post(box.path + "/exec", {"argv": ["true"], "background": True}).status == 202
        wait_for(lambda: box.client.get(box.path).json["execs_running"] == 1)
    assert box.post("restart").status == 200 and box.run("1")["kernel"]["restarts"] == 1
    assert server.front_pid() == front and box.client.get(box.path).json["execs_running"] == 1


def test_deleting_the_box_ends_its_runs(make, pool):
    box = make()
    box.run("1")
    running = pool.submit(box.run, "while True: pass")
    assert wait_for(lambda: box.kernel()["state"] == "busy") and box.client.delete(box.path).status == 204
    answer = running.result()
    assert answer["outcome"] == "killed" and answer["kernel"]["state"] == "dead"


def test_a_box_has_a_bounded_number_of_kernels(make):
    box = make(limits={"memory": "512M", "pids": 128})
    answers = [box.client.post(box.path + "/kernels", {"context": f"c{i}"}) for i in range(17)]
    assert [a.status for a in answers] == [201] * 16 + [429] and box.client.post(box.path + "/kernels", {"context": "c1"}).status == 409
    wait_for(lambda: all(k["state"] == "idle" for k in box.client.get(box.path + "/kernels").json["kernels"]))


def test_a_kernel_survives_the_fronts_death_in_the_middle_of_a_cell(make, server):
    box = make()
    box.run("x = 7", env={"A": "b"})
    kernel = box.kernel()
    response = box.open("print('runs', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(.02)\nx = 8")
    response.readline()
    front = server.front_pid()
    os.kill(front, signal.SIGKILL)
    response.connection.close()
    wait_for(lambda: not os.path.exists(f"/proc/{front}") and server.is_ready())
    after = box.kernel()
    assert after["id"] == kernel["id"] and after["state"] == "busy"
    assert box.client.post(box.path + "/exec", {"argv": ["touch", "/tmp/go"]}).json["outcome"] == "ok"
    answer = box.run(result("(x, os.environ['A'])"), on_dead="error")
    assert answer["outcome"] == "ok" and answer["results"][0]["data"]["text/plain"] == "(8, 'b')" and answer["kernel"]["id"] == kernel["id"]
    front = server.front_pid()
    os.kill(front, signal.SIGTERM)
    assert wait_for(lambda: not os.path.exists(f"/proc/{front}")) and wait_for(lambda: server.is_ready()) and wait_for(lambda: box.kernel()["state"] == "idle")
    assert box.post("restart").status == 200 and box.run(result("os.environ['A']"))["results"][0]["data"]["text/plain"] == "'b'"


def test_a_kernel_that_dies_while_no_front_is_there(make, server):
    box = make()
    box.run("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])", env={"CARREL_MARK": box.box})
    kernel, front = kernel_pid(box), server.front_pid()
    response = box.open("print('runs', flush=True); signal.sigwait([signal.SIGUSR1]); os._exit(9)")
    response.readline()
    stop(front)
    os.kill(kernel, signal.SIGUSR1)
    wait_for(lambda: has_ended(kernel))
    os.kill(front, signal.SIGKILL)
    response.connection.close()
    wait_for(lambda: not os.path.exists(f"/proc/{front}") and server.is_ready())
    assert wait_for(lambda: box.kernel()["state"] == "dead") and "status 9" in box.kernel()["reason"] and box.run("1")["outcome"] == "ok"


def test_nothing_is_left_of_kernels(make, server):
    box = make()
    box.run("1")
    fds = len(os.listdir(f"/proc/{server.front_pid()}/fd"))
    for i in range(5):
        box.run("1", context=f"c{i}")
        box.client.delete(f"{box.path}/kernels/c{i}")
    wait_for(lambda: len(os.listdir(f"/proc/{server.front_pid()}/fd")) <= fds + 1)
