"""Messages over WebSockets: both protocols, several clients, sessions that come back, kernels that die."""
import concurrent.futures
import json
import os
import signal
import time
import uuid

import pytest

from conftest import serve
from support.waiting import wait_for
from wire import V1, Wire, pack_v1

LEGACY_MEMBERS = {"header", "msg_id", "msg_type", "parent_header", "metadata", "content", "buffers", "channel"}


@pytest.mark.parametrize("protocol", [None, V1])
def test_a_cell(shared_kernel, connect, protocol):
    wire = connect(shared_kernel, protocol=protocol)
    assert wire.fields.get("Sec-WebSocket-Protocol") == protocol
    done = wire.run("print('out'); 6 * 7")
    assert done.text == "out\n" and done.result == ["42"] and done.reply["status"] == "ok"
    states = [m["content"]["execution_state"] for m in done.of("status")]
    assert states == ["busy", "idle"] and done[0]["msg_type"] == "status"
    assert done.of("execute_input")[0]["content"]["code"] == "print('out'); 6 * 7"
    assert all(set(m) == LEGACY_MEMBERS and m["msg_id"] == m["header"]["msg_id"] for m in done)
    failed = wire.run("1 / 0")
    assert failed.reply["ename"] == "ZeroDivisionError" and failed.of("error")[0]["content"]["traceback"]


@pytest.mark.parametrize("protocol", [None, V1])
def test_completion_inspection_and_information(shared_kernel, connect, protocol):
    wire = connect(shared_kernel, protocol=protocol)
    wire.run("import os")
    for type, content, key in [("complete_request", {"code": "os.getcw", "cursor_pos": 8}, "matches"), ("kernel_info_request", {}, "language_info"),
                               ("inspect_request", {"code": "os.getcwd", "cursor_pos": 9, "detail_level": 0}, "data"), ("comm_info_request", {}, "comms")]:
        id = wire.ask(type, content)
        reply = wire.until(lambda m: m["channel"] == "shell" and m["parent_header"].get("msg_id") == id)[-1]
        assert reply["msg_type"] == type.replace("request", "reply") and reply["content"][key] is not None


def test_each_connection_begins_with_the_pair_that_old_clients_wait_for(make_kernel, connect):
    kernel = make_kernel()
    for _ in range(2):
        wire = connect(kernel)
        first, second = wire.greeting
        assert [m["content"]["execution_state"] for m in wire.greeting] == ["busy", "idle"]
        assert {m["msg_type"] for m in wire.greeting} == {"status"} and {m["channel"] for m in wire.greeting} == {"iopub"}
        assert first["parent_header"] == second["parent_header"] and first["parent_header"]["msg_type"] == "kernel_info_request"
        assert first["parent_header"]["msg_id"] and set(first) == LEGACY_MEMBERS
    wire.start("import time\nfor i in range(600): time.sleep(0.1)")
    wire.until(lambda m: m["msg_type"] == "execute_input")
    # Also while a cell runs; the true state follows.
    other = connect(kernel)
    assert [m["content"]["execution_state"] for m in other.greeting] == ["busy", "idle"]
    assert other.next()["content"]["execution_state"] == "busy"


def test_a_client_that_says_next_to_nothing(shared_kernel, connect):
    """As pybox does: no session, no date, no version, no buffers; and as others do."""
    wire = connect(shared_kernel)
    for more in [{}, {"session": ""}, {"date": time.time()}, {"version": "5.0", "username": ""}]:
        id = wire.ask("execute_request", {"code": "2 + 3", "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False},
                      header=more)
        done = wire.outcome(id)
        assert done.result == ["5"]
        parent = done.of("execute_reply")[0]["parent_header"]
        assert parent["session"] and parent["version"] and isinstance(parent["date"], str)
    id = uuid.uuid4().hex
    # No channel, no buffers, no metadata, no parent; and a slash that needs no escape.
    wire.send('{"header":{"msg_id":"%s","msg_type":"execute_request"},"content":{"code":"print(\'<\\/p>\')"}}' % id)
    assert wire.outcome(id).text == "</p>\n"
    for buffers in ({}, None, []):
        id = uuid.uuid4().hex
        wire.send(json.dumps({"header": {"msg_id": id, "msg_type": "execute_request"}, "parent_header": None, "content": {"code": "8"},
                              "channel": "shell", "buffers": buffers}))
        assert wire.outcome(id).result == ["8"]


def test_new_bytes_as_text_on_an_old_connection(shared_kernel, connect):
    wire = connect(shared_kernel)
    for code in ["1", "'x' * 300  # " + "y" * 300]:
        id = uuid.uuid4().hex
        message = pack_v1({"channel": "shell", "header": {"msg_id": id, "msg_type": "execute_request", "session": wire.session}, "content": {"code": code}})
        wire.send(message, wire.TEXT)
        assert wire.outcome(id).reply["status"] == "ok"


@pytest.mark.parametrize("protocol", [None, V1])
def test_buffers_both_ways(shared_kernel, connect, protocol):
    wire = connect(shared_kernel, protocol=protocol)
    wire.run("""
from comm import create_comm
import comm as comm_module
def on_open(c, open_message):
    @c.on_msg
    def echo(m):
        c.send({'n': len(m['buffers'])}, buffers=[bytes(b)[::-1] for b in m['buffers']])
comm_module.get_comm_manager().register_target('echo', on_open)
""")
    comm = uuid.uuid4().hex
    wire.ask("comm_open", {"comm_id": comm, "target_name": "echo", "data": {}})
    wire.ask("comm_msg", {"comm_id": comm, "data": {}}, buffers=[b"abc", b"", b"\x00\xff" * 1000])
    answer = wire.until(lambda m: m["msg_type"] == "comm_msg")[-1]
    assert answer["content"]["data"]["n"] == 3 and answer["buffers"] == [b"cba", b"", b"\xff\x00" * 1000]


def test_several_clients_on_one_kernel(shared_kernel, connect):
    one, two, three = connect(shared_kernel), connect(shared_kernel), connect(shared_kernel, protocol=V1)
    id = one.start("print('for all')")
    done = one.outcome(id)
    for other in (two, three):
        seen = other.until(lambda m: m["parent_header"].get("msg_id") == id and m["content"].get("execution_state") == "idle")
        mine = [m for m in seen if m["parent_header"].get("msg_id") == id]
        assert "for all\n" in [m["content"].get("text") for m in mine]
        assert {m["channel"] for m in mine} == {"iopub"}, "a reply goes only to who asked"
    assert done.reply["status"] == "ok"


def test_input_is_asked_of_the_one_who_runs_the_cell(shared_kernel, connect):
    asks, watches = connect(shared_kernel), connect(shared_kernel)
    id = asks.start("answer = input('who? '); print('hello', answer)", allow_stdin=True)
    request = asks.until(lambda m: m["msg_type"] == "input_request")[-1]
    assert request["channel"] == "stdin" and request["content"]["prompt"] == "who? "
    asks.ask("input_reply", {"value": "Ada"}, channel="stdin")
    assert asks.outcome(id).text == "hello Ada\n"
    seen = watches.until(lambda m: m["parent_header"].get("msg_id") == id and m["content"].get("execution_state") == "idle")
    assert "input_request" not in [m["msg_type"] for m in seen]


def test_connections_are_counted(make_kernel, connect, alice):
    kernel = make_kernel()
    count = lambda: alice.get(f"/api/kernels/{kernel}").json["connections"]  # noqa: E731
    assert count() == 0
    one, two = connect(kernel), connect(kernel)
    assert count() == 2
    one.close()
    wait_for(lambda: count() == 1)
    two.close()
    wait_for(lambda: count() == 0)


def box_of(client, kernel):
    box, = client.get(f"/v1/boxes?label=jupyter-kernel={kernel}").json["boxes"]
    return "/v1/boxes/" + box["id"]


def test_a_session_that_comes_back_gets_what_it_missed(make_kernel, connect, alice):
    kernel, session = make_kernel(), uuid.uuid4().hex
    wire, stranger = connect(kernel, session=session), connect(kernel)
    wire.run("import time, os")
    id = wire.start("print('first', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('second')\n'third'")
    wire.until(lambda m: "first" in m["content"].get("text", ""))
    wire.close()
    # The cell ends while no client of that session listens.
    wait_for(lambda: alice.get(f"/api/kernels/{kernel}").json["connections"] == 1)
    assert alice.put(box_of(alice, kernel) + "/files/tmp/go", "x").status in (200, 201, 204)
    stranger.until(lambda m: m["parent_header"].get("msg_id") == id and m["content"].get("execution_state") == "idle")
    done = connect(kernel, session=session).outcome(id)
    assert done.text == "second\n" and done.result == ["'third'"] and done.reply["status"] == "ok"
    # No other client gets the past messages.
    new = connect(kernel, session=uuid.uuid4().hex)
    id = new.start("'fresh'")
    assert {m["parent_header"].get("msg_id") for m in new.outcome(id)} == {id}


def test_a_kernel_of_another_door_keeps_its_past_to_itself(alice, connect):
    box = "/v1/boxes/" + alice.post("/v1/boxes", {"template": "python"}).json["id"]
    try:
        kernel = alice.post(box + "/run", {"code": "print('past')"}).json["kernel"]["id"]
        session = uuid.uuid4().hex
        connect(kernel, session=session).close()
        wait_for(lambda: alice.get(box + "/kernels").json["kernels"][0]["connections"] == 0)
        wire = connect(kernel, session=session)
        id = wire.start("1")
        seen = wire.until(lambda m: m["msg_type"] == "execute_reply")
        assert {m["parent_header"].get("msg_id") for m in seen} == {id}
    finally:
        assert alice.delete(box).status == 204


def test_a_dead_kernel_of_another_door_stays_dead_until_that_door_restarts_it(alice, connect):
    box = "/v1/boxes/" + alice.post("/v1/boxes", {"template": "python"}).json["id"]
    try:
        kernel = alice.post(box + "/run", {"code": "x = 7"}).json["kernel"]["id"]
        wire = connect(kernel)
        assert wire.run("import os; os._exit(3)").reply["ename"] == "DeadKernelError"
        wire.until(lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "dead")
        assert alice.get(box + "/kernels/default").json["state"] == "dead"
        assert alice.post(box + "/run", {"code": "1", "on_dead": "error"}).json["outcome"] == "dead"
        assert alice.post(box + "/run", {"code": "1"}).json["outcome"] == "ok" and wire.run("2").result == ["2"]
    finally:
        assert alice.delete(box).status == 204


def test_a_second_connection_takes_the_place_of_the_first(shared_kernel, connect):
    session = uuid.uuid4().hex
    first = connect(shared_kernel, session=session)
    second = connect(shared_kernel, session=session)
    with pytest.raises(EOFError):
        first.until(lambda m: False)
    assert first.closed[0] == 1000 and second.run("1").result == ["1"]


def test_interrupt_keeps_the_state(make_kernel, connect, alice):
    kernel = make_kernel()
    wire = connect(kernel)
    wire.run("x = 7")
    for by_message in (False, True):
        id = wire.start("print('on', flush=True)\nwhile True: pass")
        wire.until(lambda m: "on" in m["content"].get("text", ""))
        if by_message:
            wire.ask("interrupt_request", {}, channel="control")
        else:
            assert alice.post(f"/api/kernels/{kernel}/interrupt", {}).status == 204
        done = wire.outcome(id)
        assert done.reply["ename"] == "KeyboardInterrupt"
    assert wire.run("x").result == ["7"]


def test_an_interrupt_right_after_the_cell_was_announced_is_not_lost(make_kernel, connect):
    wire = connect(make_kernel())
    wire.run("import os, signal\nkernel = get_ipython().kernel\ntell = kernel._publish_execute_input\n"
             "def tell_and_interrupt(*args):\n    del kernel._publish_execute_input\n    tell(*args)\n    os.kill(os.getpid(), signal.SIGINT)\nkernel._publish_execute_input = tell_and_interrupt")
    assert wire.run("while True: pass").reply["ename"] == "KeyboardInterrupt"
    assert wire.run("6 * 7").result == ["42"]


def test_restart_is_in_place(make_kernel, connect, alice):
    kernel = make_kernel()
    wire = connect(kernel)
    wire.run("x = 7; open('/tmp/kept', 'w').write('here')")
    id = wire.start("print('on', flush=True)\nwhile True: pass")
    wire.until(lambda m: "on" in m["content"].get("text", ""))
    answer = alice.post(f"/api/kernels/{kernel}/restart", {})
    assert answer.status == 200 and answer.json["id"] == kernel and answer.json["execution_state"] in ("idle", "busy")
    assert wire.outcome(id).reply["ename"] == "KernelRestarted"
    again = wire.start("x")
    seen = wire.until(lambda m: m["msg_type"] == "execute_reply" and m["parent_header"]["msg_id"] == again)
    assert seen[-1]["content"]["ename"] == "NameError"
    # To JupyterLab that word means that the kernel has died.
    assert "restarting" not in [m["content"].get("execution_state") for m in seen]
    assert wire.run("open('/tmp/kept').read()").result == ["'here'"]
    assert alice.get(f"/api/kernels/{kernel}").json["connections"] == 1


@pytest.mark.cgroups
def test_a_kernel_that_dies_says_why_and_comes_back(make_kernel, connect):
    kernel = make_kernel(env={"KERNEL_MEMORY": "400M"})
    wire = connect(kernel)
    for code, word in [("import os; os._exit(3)", "status 3"), ("import os; os.kill(os.getpid(), 9)", "SIGKILL"), ("x = bytearray(1 << 30)", "memory")]:
        done = wire.run(code)
        assert done.reply["ename"] == "DeadKernelError" and word in done.reply["evalue"], done.reply
        assert done.of("error")[0]["content"]["ename"] == "DeadKernelError"
        wire.until(lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "restarting")
        assert wire.run("'back'").result == ["'back'"]


def test_a_kernel_whose_box_ends_is_dead(make_kernel, connect, alice):
    kernel = make_kernel()
    wire = connect(kernel)
    wire.run("1")
    id = wire.start("while True: pass")
    wire.until(lambda m: m["msg_type"] == "execute_input")
    assert alice.delete(box_of(alice, kernel)).status == 204
    with pytest.raises(EOFError):
        seen = []
        while True:
            seen.append(wire.next())
    assert "dead" in [m["content"].get("execution_state") for m in seen]
    assert "DeadKernelError" in [m["content"].get("ename") for m in seen if m["parent_header"].get("msg_id") == id]
    assert alice.get(f"/api/kernels/{kernel}").status == 404


@pytest.fixture
def mortal():
    """A server of its own, whose front may be killed."""
    server = serve()
    yield server
    server.stop()


def kill_front(server):
    front = server.front_pid()
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{front}"))


def test_kernels_and_sessions_outlive_the_front(mortal):
    alice, session = mortal.token("alice"), uuid.uuid4().hex
    kernel = alice.post("/api/kernels", {"env": {"KERNEL_ID": "survivor"}}).json["id"]
    ours = alice.post("/api/sessions", {"path": "a'b.ipynb", "name": "a", "type": "notebook", "kernel": {"id": kernel}}).json
    other = alice.post("/api/sessions", {"path": "gone.ipynb", "type": "notebook", "kernel": {"name": "small"}}).json
    renamed = alice.patch(f"/api/sessions/{ours['id']}", {"path": "b.ipynb"}).json
    assert alice.delete(f"/api/sessions/{other['id']}").status == 204
    wire, stranger = Wire(alice, kernel, session=session), Wire(alice, kernel, session="stranger")
    wire.run("import os, time\nx = 7")
    stranger.run("y = 8")
    id = wire.start("print('first', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('second')\n'third'")
    wire.until(lambda m: "first" in m["content"].get("text", ""))
    place = box_of(alice, kernel)
    kill_front(mortal)
    # No client gets a 404 while the new front does not know the kernel yet.
    seen = set()

    def is_back():
        try:
            seen.add(alice.get(f"/api/kernels/{kernel}").status)
            seen.add(alice.get(f"/api/sessions/{ours['id']}").status)
        except OSError:
            pass
        return 200 in seen and mortal.is_ready()
    assert wait_for(is_back) and seen <= {200, 503}
    assert [k["id"] for k in alice.get("/api/kernels").json] == ["survivor"]
    found, = alice.get("/api/sessions").json
    assert {k: found[k] for k in ("id", "path", "name", "type")} == {k: renamed[k] for k in ("id", "path", "name", "type")}
    assert found["kernel"]["id"] == kernel
    assert alice.post("/api/sessions", {"path": "b.ipynb", "kernel": {"name": "python3"}}).json["id"] == ours["id"]
    # The kernel's later messages are kept for the session of the request only.
    assert alice.put(place + "/files/tmp/go", "x").status in (200, 201, 204)
    wait_for(lambda: alice.get(f"/api/kernels/{kernel}").json["execution_state"] == "idle")
    done = Wire(alice, kernel, session=session).outcome(id)
    assert done.text == "second\n" and done.result == ["'third'"] and done.reply["status"] == "ok"
    stranger = Wire(alice, kernel, session="stranger")
    mine = stranger.start("x + y")
    assert {m["parent_header"].get("msg_id") for m in stranger.until(lambda m: m["msg_type"] == "execute_reply")} == {mine}
    assert Wire(alice, kernel).run("x").result == ["7"]
    assert alice.delete(f"/api/kernels/{kernel}").status == 204 and alice.get("/api/sessions").json == []
    kill_front(mortal)
    assert wait_for(mortal.is_ready) and alice.get("/api/sessions").json == []


def test_a_restart_that_waits_is_answered_when_the_box_is_lost():
    # The next interpreter never gets ready, no client is connected, and the box ends with the keeper.
    server = serve("--set", "jupyter.client_envs=PYTHONPATH")
    try:
        alice = server.token("alice")
        kernel = alice.post("/api/kernels", {"name": "small", "env": {"PYTHONPATH": "/tmp/early"}}).json["id"]
        place = f"/api/kernels/{kernel}"
        wire = Wire(alice, kernel)
        assert wire.run("import os; os.mkdir('/tmp/early')\nopen('/tmp/early/sitecustomize.py', 'w').write('import time; time.sleep(3600)')").reply["status"] == "ok"
        wire.close()
        wait_for(lambda: alice.get(place).json["connections"] == 0)
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            answer = threads.submit(alice.post, place + "/restart", {})
            wait_for(lambda: alice.get(place).json["execution_state"] == "starting")
            os.kill(server.keeper_pid(), signal.SIGKILL)
            assert answer.result().status == 500 and "does not start" in answer.result().json["message"]
        assert wait_for(server.is_ready) and alice.get(place).status == 404
    finally:
        server.stop()


def test_shutdown_by_message(make_kernel, connect, alice):
    kernel = make_kernel()
    wire = connect(kernel)
    id = wire.ask("shutdown_request", {"restart": True}, channel="control")
    reply = wire.until(lambda m: m["msg_type"] == "shutdown_reply")[-1]
    assert reply["parent_header"]["msg_id"] == id and reply["content"] == {"status": "ok", "restart": True}
    assert wire.run("5").result == ["5"]
    wire.ask("shutdown_request", {"restart": False}, channel="control")
    with pytest.raises(EOFError):
        wire.until(lambda m: False)
    assert wire.closed[0] == 1000
    wait_for(lambda: alice.get(f"/api/kernels/{kernel}").status == 404)


@pytest.mark.cgroups
def test_a_shutdown_by_message_leaves_the_box_of_another_door(server, alice):
    box = "/v1/boxes/" + alice.post("/v1/boxes", {"template": "python", "store": "disk"}).json["id"]
    try:
        kernel = alice.post(box + "/run", {"code": "open('/home/box/kept', 'w').write('here')"}).json["kernel"]["id"]
        wire = Wire(server.token("alice", scopes=["exec"]), kernel)
        wire.ask("shutdown_request", {"restart": False}, channel="control")
        assert wire.until(lambda m: m["msg_type"] == "shutdown_reply")[-1]["content"] == {"status": "ok", "restart": False}
        with pytest.raises(EOFError):
            wire.until(lambda m: False)
        wait_for(lambda: alice.get(box + "/kernels").json["kernels"] == [])
        assert alice.get(box).json["phase"] == "running" and alice.get(box + "/files/home/box/kept").body == b"here"
    finally:
        alice.delete(box)


def test_a_shutdown_by_message_needs_the_right_to_delete_boxes(server, make_kernel, alice):
    kernel = make_kernel()
    wire = Wire(server.token("alice", scopes=["exec"]), kernel)
    wire.ask("shutdown_request", {"restart": False}, channel="control")
    reply = wire.until(lambda m: m["msg_type"] == "shutdown_reply")[-1]["content"]
    assert reply["status"] == "error" and "boxes:write" in reply["evalue"]
    assert wire.run("6 * 7").result == ["42"]
    wire.close()


def test_a_dead_kernel_that_another_door_deletes_is_let_go(alice, connect):
    boxes = ["/v1/boxes/" + alice.post("/v1/boxes", {"template": "python"}).json["id"] for _ in range(2)]
    try:
        dead, other = (alice.post(box + "/run", {"code": "1"}).json["kernel"]["id"] for box in boxes)
        wire = connect(dead)
        assert wire.run("import os; os._exit(3)").reply["ename"] == "DeadKernelError"
        wire.until(lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "dead")
        assert alice.delete(f"{boxes[0]}/kernels/default").status == 204
        connect(other)      # the next one that is listened to
        with pytest.raises(EOFError):
            wire.until(lambda m: False)
    finally:
        assert [alice.delete(box).status for box in boxes] == [204, 204]


def test_a_missing_kernel_and_a_plain_get(alice, shared_kernel, connect):
    missing = connect("no-such-kernel")
    assert missing.status == 404
    assert alice.get(f"/api/kernels/{shared_kernel}/channels").status == 426
