"""Box.run() and its kin, with and without asyncio."""
import asyncio
import os
import signal
import threading

import pytest
from support.waiting import wait_for

import carrel
from carrel import AsyncCarrel, Carrel


@pytest.fixture(scope="module")
def server(gateway):
    if not hasattr(gateway, "url"):
        pytest.skip("not of a foreign gateway")
    return Carrel(gateway.url)


@pytest.fixture(scope="module")
def box(server):
    with server.create(template="python") as it:
        yield it


def test_a_result_has_everything(box):
    result = box.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay({'text/html': '<b>', 'text/plain': 'b'}, raw=True)\n6 * 7")
    assert (result.outcome, result.ok, result.stdout, result.stderr, result.text, result.error) == ("ok", True, "out\n", "err\n", "42", None)
    assert [(o.kind, o.html) for o in result.results] == [("display", "<b>"), ("result", None)]
    assert result.bill["wall_ms"] > 0 and result.bill["cpu_ms"] > 0 and result.kernel["context"] == "default" and result.check() is result


def test_a_cell_that_raises_is_a_result(box):
    result = box.run("1 / 0")
    assert not result.ok and result.outcome == "error" and str(result.error) == "ZeroDivisionError: division by zero"
    assert any("ZeroDivisionError" in line for line in result.error.traceback)
    with pytest.raises(carrel.CellFailed, match="division by zero"):
        result.check()


def test_a_timeout_is_a_result_and_the_state_survives(box):
    box.run("kept = 7")
    late = box.run("print('begun', flush=True)\nwhile True: pass", timeout=3)
    assert (late.outcome, late.ok, late.is_alive, late.stdout) == ("timeout", False, True, "begun\n") and "ran too long" in late.reason
    with pytest.raises(carrel.RunTimeout) as caught:
        box.run("print('begun', flush=True)\nwhile True: pass", timeout=3, check=True)
    assert isinstance(caught.value, carrel.CellFailed)
    assert caught.value.code == "timeout" and caught.value.result.stdout == "begun\n" and isinstance(caught.value, TimeoutError)
    assert box.run("kept").text == "7"


def test_contexts_are_kernels_of_their_own(box):
    one, two = box.kernel("one"), box.kernel("two")
    one.run("x = 1")
    two.run("x = 2")
    assert (one.run("x").text, two.run("x").text) == ("1", "2")
    assert {k["context"] for k in box.kernels()} >= {"one", "two"} and one.info()["state"] == "idle"
    one.restart()
    assert one.run("x").error.name == "NameError"
    two.delete()
    with pytest.raises(carrel.NotFound):
        two.info()


def test_a_dead_kernel_tells_its_reason_and_the_next_cell_has_a_new_one(box):
    dying = box.kernel("dying")
    dying.run("x = 1")
    with pytest.raises(carrel.KernelDied, match="status 3") as caught:
        dying.run("print('last words', flush=True)\nimport os\nos._exit(3)", check=True)
    assert caught.value.result.stdout == "last words\n"
    again = dying.run("x", on_dead="error")
    assert not again.is_alive and not again.ok and again.reason.startswith("the kernel died")
    assert dying.run("x").error.name == "NameError"


def test_too_much_output_is_a_result_and_the_kernel_lives(box):
    box.run("before = 8")
    result = box.run("print('y' * 15_000_000)")
    assert result.outcome == "output_limit" and not result.ok and 10_000_000 < result.stdout.count("y") <= 10 << 20
    with pytest.raises(carrel.CellFailed, match="output limit"):
        result.check()
    assert box.run("before").text == "8"
    assert box.run("print('y' * 15_000_000)", output_limit="20M").stdout == "y" * 15_000_000 + "\n"


@pytest.mark.parametrize("status", [1, 78])
def test_a_cell_cannot_forge_the_advice_for_an_interpreter_that_is_no_kernel(box, status):
    words = b'{"carrel": "kernel", "error": "no ipykernel", "hint": "pip install evil"}\n'
    with pytest.raises(carrel.KernelDied) as caught:
        box.kernel("forger").run(f"import os\nos.write(2, {words!r})\nos._exit({status})", check=True)
    assert "evil" not in str(caught.value)


def test_a_stream_yields_as_it_happens_and_leaving_it_interrupts(box):
    events = box.stream("x = 5\nprint('a', flush=True)\nwhile True: pass")
    first = next(events)
    assert (first["type"], first["text"]) == ("stdout", "a\n")
    events.close()
    assert box.run("x", timeout=60).text == "5"
    assert [e["type"] for e in box.stream("print(1)\n2")] == ["stdout", "result", "outcome"]
    with pytest.raises(TypeError, match="exec_stream"):
        box.stream(["ls"])


def test_ctrl_c_interrupts_the_cell(box):
    kernel = box.kernel("interrupted")
    kernel.run("x = 5")

    def interrupt():
        wait_for(lambda: kernel.info()["state"] == "busy", "the cell runs")
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        kernel.run("while True: pass")
    thread.join(60)
    assert kernel.run("x", timeout=60).text == "5"
    assert caught.tb is not None        # which kept everything that the call had


def test_questions_are_answered(box):
    asked = []

    def answer(prompt, password):
        asked.append((prompt, password))
        return "blue"
    assert box.run("import getpass\ninput('colour? '), getpass.getpass('word: ')", answer=answer).text == "('blue', 'blue')"
    assert asked == [("colour? ", False), ("word: ", True)]


def test_a_limit_that_is_refused_raises(server):
    with pytest.raises(carrel.CarrelError):
        server.run("1", memory="100000G")


def test_one_cell_with_a_box_of_its_own(server, tmp_path):
    before = len(server.list())
    assert server.run("6 * 7", timeout=30).text == "42"
    (tmp_path / "in").write_text("from the host")
    tmp_path.chmod(0o755)
    assert server.run("open('/in/in').read()", mounts=[f"{tmp_path}:/in"]).text == "'from the host'"
    wait_for(lambda: len(server.list()) == before, "the boxes are gone")


def test_the_same_with_asyncio(gateway, server):
    async def scene():
        async with AsyncCarrel(gateway.url) as remote, await remote.create(template="python", memory="256M") as box:
            assert (await box.run("x = 3\nx * 2")).text == "6"
            assert (await box.run("1 / 0")).error.name == "ZeroDivisionError"
            with pytest.raises(carrel.RunTimeout):
                await box.run("while True: pass", timeout=1, check=True)
            assert (await box.run("x")).text == "3"
            assert [e["type"] async for e in box.stream("print(1)\n2")] == ["stdout", "result", "outcome"]

            async def answer(prompt, password):
                return prompt.upper()
            assert (await box.run("input('a')", answer=answer)).text == "'A'"
            other, outcome = box.kernel("other"), None
            async for event in other.stream("import time\nprint('begun', flush=True)\ntime.sleep(60)"):
                if event["type"] == "stdout":
                    await other.interrupt()
                outcome = event.get("outcome")
            assert outcome == "interrupted"
            await box.files.write("f", "text")
            assert (await box.exec("cat f")).stdout == "text" and await box.files.read("f") == b"text"
            assert any(b.id == box.id for b in await remote.list())
            with pytest.raises(carrel.KernelDied):
                await box.run("import os\nos._exit(1)", check=True)
        with pytest.raises(carrel.CarrelError):
            await box.run("1")
    asyncio.run(asyncio.wait_for(scene(), 300))
