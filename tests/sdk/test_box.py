import os
import signal
import threading

import pytest
from support.waiting import wait_for

import carrel as sdk
from carrel import Box, event_bytes


def test_exec_tells_everything(box):
    result = box.exec(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.stdout, result.stderr, result.exit_code, result.outcome, result.ok) == ("out\n", "err\n", 3, "error", False)
    assert result.wall_ms > 0
    with pytest.raises(sdk.ExecFailed) as caught:
        result.check()
    assert caught.value.result is result and caught.value.code == "error"
    assert str(caught.value) == "sh -c 'echo out; echo err >&2; exit 3': exit code 3\nerr"


def test_a_string_is_a_line_for_the_shell(box):
    assert box.exec("echo $((6*7))").stdout == "42\n"
    assert box.shell("echo $X", env={"X": "y"}, cwd="/tmp").stdout == "y\n"
    assert box.exec("echo $0", check=True).ok


def test_output_need_not_be_text(box):
    result = box.exec(["printf", "a\\377b"])
    assert result.stdout_bytes == b"a\xffb" and result.stdout == "a\ufffdb"


def test_a_command_that_never_ran_says_why(box):
    result = box.exec(["nosuch"])
    assert result.outcome == "not_started" and "nosuch" in result.error and result.exit_code == 127
    assert box.exec(["/etc/passwd"]).exit_code == 126 and box.exec(["true"], cwd="/none").exit_code == 125
    with pytest.raises(sdk.ExecFailed, match="nosuch"):
        result.check()


def test_what_did_not_end_well_has_an_exit_code_as_on_the_command_line(box):
    late = box.exec(["sleep", "30"], timeout=0.2)
    assert (late.outcome, late.exit_code) == ("timeout", 124)
    with pytest.raises(TimeoutError, match=r"^sleep 30: the command was ended after 0.2 s \(timeout\)$") as caught:
        late.check()
    assert isinstance(caught.value, sdk.ExecTimeout) and isinstance(caught.value, sdk.ExecFailed) and caught.value.result is late
    much = box.exec("yes", output_limit="64k")
    assert (much.outcome, much.exit_code) == ("output_limit", 137) and much.reason == "the command was ended after 64k of output (output_limit); ended by signal 9"
    killed = box.exec("kill -TERM $$")
    assert (killed.outcome, killed.exit_code, killed.signal, killed.reason) == ("killed", 143, 15, "ended by signal 15")
    with pytest.raises(sdk.ExecFailed) as caught:
        box.exec("seq 100 >&2; exit 1", check=True)
    assert str(caught.value).splitlines() == ["seq 100 >&2; exit 1: exit code 1", "...", *map(str, range(91, 101))]


@pytest.mark.cgroups
def test_out_of_memory_has_the_exit_code_of_the_command_line(box):
    bomb = box.exec(["python3", "-c", "x = b'x' * 10**9"])
    assert (bomb.outcome, bomb.exit_code) == ("oom", 137) and "ran out of memory" in bomb.reason


@pytest.mark.cgroups
def test_shares_are_guaranteed_or_refused_with_their_holders(carrel):
    with Box(server=carrel, name="trainer", requests={"cpus": 0.5, "memory": "64M"}) as trainer:
        assert trainer.raw["requests"] == {"cpus": 0.5, "memory": 64 << 20}
        most = carrel.info()["host"]["cpus"]
        with pytest.raises(sdk.HostFull, match="trainer 0.5"):
            Box(server=carrel, requests={"cpus": most}, cpus=most)
        with pytest.raises(sdk.InvalidRequest, match="requests.memory is 128M, more than limits.memory, which is 64M"):
            Box(server=carrel, requests={"memory": "128M"}, memory="64M")


@pytest.mark.parametrize("data", ["text ü\n", b"\xff\0bytes" * 100000])
def test_input(box, data):
    result = box.exec(["sha256sum"], stdin=data, timeout=60)
    expected = data.encode() if isinstance(data, str) else data
    import hashlib
    assert result.stdout.split()[0] == hashlib.sha256(expected).hexdigest()


def test_stream_yields_as_it_happens(box):
    events = box.exec_stream("echo one; read x; echo $x", stdin=True)
    started = next(events)
    assert started["type"] == "started"
    assert event_bytes(next(events)) == b"one\n"
    box.get_exec(started["exec"]).write(b"two\n")
    assert event_bytes(next(events)) == b"two\n"
    assert next(events)["type"] == "exit"


def test_closing_a_stream_ends_the_command(box):
    events = box.exec_stream(["sleep", "1000"])
    command = box.get_exec(next(events)["exec"])
    events.close()
    assert command.wait().outcome == "killed"


def interrupts_when(condition, what):
    """Ctrl-C as soon as it is true."""
    def interrupt():
        wait_for(condition, what)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def has_begun(box):
    """Its input has reached it, so the call that started it is over."""
    try:
        return box.files.stat("/tmp/begun").size == 1
    except sdk.NotFound:
        return False


@pytest.mark.parametrize("data, line, condition", [
    (None, "exec sleep 1000", lambda box: any(e.running for e in box.execs())),
    (b"\xff", "head -c 1 >/tmp/begun; exec sleep 1000", has_begun),
])
def test_ctrl_c_ends_the_command(box, data, line, condition):
    thread = interrupts_when(lambda: condition(box), "the command runs")
    with pytest.raises(KeyboardInterrupt) as caught:
        box.exec(["sh", "-c", line], stdin=data)
    thread.join(60)
    command, = box.execs()
    wait_for(lambda: not command.refresh().running, "the command is over")
    assert caught.tb is not None        # which kept everything that the call had


@pytest.mark.parametrize("moment", ["before the answer", "with the answer"])
def test_ctrl_c_while_a_command_with_bytes_is_started_ends_it(box, monkeypatch, moment):
    opens = sdk.transport.Transport.open
    interrupted = threading.Event()

    def open_(self, method, path, **options):
        starts = method == "POST" and path.endswith("/exec")
        if starts and moment == "before the answer":
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.wait(60)
        answer = opens(self, method, path, **options)
        if starts and moment == "with the answer":
            os.kill(os.getpid(), signal.SIGINT)
        return answer

    monkeypatch.setattr(sdk.transport.Transport, "open", open_)
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        box.exec(["sleep", "1000"], stdin=b"\xff")
    interrupted.set()
    wait_for(lambda: threading.active_count() <= threads, "nothing of the call is left")
    wait_for(lambda: not any(e.running for e in box.execs()), "no command is left")


def test_background_commands(box):
    command = box.spawn("echo a; read x; echo b", stdin=True)
    assert command.running and [e.id for e in box.execs()] == [command.id]
    command.write(b"go on\n")
    result = command.wait()
    assert result.stdout == "a\nb\n" and not command.running
    first = next(e for e in command.output(follow=False) if e["type"] == "stdout")
    rest = b"".join(event_bytes(e) for e in command.output(offset=first["next"]) if e["type"] == "stdout")
    assert event_bytes(first) + rest == b"a\nb\n"
    slow = box.spawn(["sleep", "1000"])
    slow.signal("TERM")
    assert slow.wait().signal == 15
    slow = box.spawn(["sleep", "1000"])
    slow.kill()
    assert slow.wait().signal == 9


@pytest.mark.cgroups
def test_the_life_of_a_box(carrel):
    with Box(server=carrel, memory="64M", labels={"a": "b"}, env={"E": "1"}, ttl="1h") as box:
        assert box.phase == "running" and box.raw["limits"]["memory"] == 64 << 20
        assert [b.id for b in carrel.list(labels={"a": "b"})] == [box.id] and carrel.list(labels={"a": "c"}) == []
        assert carrel.get(box.id).raw["labels"] == {"a": "b"}
        box.pause()
        assert box.phase == "paused"
        with pytest.raises(sdk.Conflict):
            box.exec(["true"])
        box.resume()
        box.update(labels={"x": "y"}, limits={"memory": "96M"})
        assert box.refresh().raw["limits"]["memory"] == 96 << 20
        assert box.usage()["pids"] >= 0
        assert [e["body"]["to"] for e in box.events() if e["type"] == "phase"][:2] == ["running", "paused"]
        events = box.watch()
        assert next(events)["body"]["to"] == "running"
        events.close()
    assert carrel.list() == []


def test_a_box_ends_also_after_an_exception(carrel):
    with pytest.raises(KeyError):
        with Box(server=carrel):
            raise KeyError
    assert carrel.list() == []


def test_errors_are_typed(carrel, box):
    for call, kind, code in [
        (lambda: carrel.get("nosuch"), sdk.NotFound, "not_found"),
        (lambda: carrel.create(memory="lots"), sdk.InvalidRequest, "invalid"),
        (lambda: carrel.create(name="one"), sdk.Conflict, "exists"),
        (lambda: carrel.create(name="../x"), sdk.InvalidRequest, "invalid"),
        (lambda: box.files.read("nosuch"), sdk.NotFound, "file_not_found"),
        (lambda: box.exec([]), sdk.InvalidRequest, "invalid"),
    ]:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.code == code and str(caught.value)
    with pytest.raises(sdk.Unavailable):
        sdk.Carrel("unix:/nosuch").info()


def test_a_key_makes_creation_repeatable(carrel):
    assert carrel.create(idempotency_key="k").id == carrel.create(idempotency_key="k").id


@pytest.mark.cgroups
def test_start_opens_the_mounts_again(carrel, tmp_path):
    (tmp_path / "f").write_text("x")
    with carrel.create(mounts=[f"{tmp_path}:/data:rw"], store="disk") as box:
        box.exec("echo y >kept", check=True)
        box.stop()
        assert box.phase == "stopped"
        box.start()
        assert box.exec("cat /data/f kept; touch /data/g", check=True).stdout == "xy\n"
        assert (tmp_path / "g").exists()


@pytest.mark.cgroups
def test_start_follows_no_link_that_the_box_has_made(carrel, tmp_path):
    (tmp_path / "project/data").mkdir(parents=True)
    with carrel.create(mounts=[f"{tmp_path}/project:/p:rw", f"{tmp_path}/project/data:/data"], store="disk") as box:
        box.exec(f"mv /p/data /p/was && ln -s {tmp_path} /p/data", check=True)
        box.stop()
        with pytest.raises(OSError, match="link"):
            box.start()
        (tmp_path / "project/data").unlink()
        (tmp_path / "project/was").rename(tmp_path / "project/data")
        box.start()


def test_exec_as_another_user(carrel):
    with carrel.create() as box:
        assert box.exec(["id", "-u"], user="12:34").stdout == "12\n"
        assert box.spawn(["id", "-g"], user="12:34").wait().stdout == "34\n"


@pytest.mark.cgroups
def test_mounts_are_opened_by_the_caller(carrel, tmp_path):
    (tmp_path / "f").write_text("hello")
    with carrel.create(mounts=[f"{tmp_path}:/data"]) as box:
        assert box.exec(["cat", "/data/f"]).stdout == "hello"
    with pytest.raises(ValueError):
        carrel.create(mounts=["x"])


def test_threads_have_connections_of_their_own(box):
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append((n, box.exec(["echo", str(n)]).stdout))) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert sorted(results) == [(n, f"{n}\n") for n in range(8)]


def test_a_forked_child_has_connections_of_its_own(box):
    box.exec(["true"])
    children = []
    for n in range(4):
        pid = os.fork()
        if pid == 0:
            good = all(box.exec(["echo", str(n * 100 + i)]).stdout == f"{n * 100 + i}\n" for i in range(10))
            os._exit(0 if good else 1)
        children.append(pid)
    assert all(box.exec(["echo", str(i)]).stdout == f"{i}\n" for i in range(10))
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
