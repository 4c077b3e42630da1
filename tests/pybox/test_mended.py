"""Promises that pppybox does not keep, and additions of a box."""
import os
import pathlib
import subprocess
import sys
import time
from uuid import uuid4

import pytest
from conftest import programs_environment

import carrel
from carrel.ws import AsyncWebSocket
from support.web import hello_server


@pytest.fixture
def local(ways):
    if not ways.is_local:
        pytest.skip("local kernels")
    return ways


def test_a_manager_is_a_context_manager(ways):
    with ways.entered(ways.make()) as manager:
        box = ways.start(manager)
        assert ways.run(box, "6 * 7").data == [{"text/plain": "42"}]
    with pytest.raises(carrel.CarrelError):
        ways.run(box, "1")


def test_an_error_in_the_block_comes_out(ways, manager):
    with pytest.raises(ZeroDivisionError):
        with ways.started(manager):
            1 / 0


def test_shutdown_of_the_unknown_is_no_error(ways, manager):
    ways.call(manager.shutdown(str(uuid4())))


def test_shutdown_all(ways):
    with ways.entered(ways.make()) as manager:
        boxes = [ways.start(manager) for _ in range(2)]
        ways.call(manager.shutdown_all(now=True))
        for box in boxes:
            with pytest.raises(carrel.CarrelError):
                ways.run(box, "1")


def test_a_kernel_that_dies_raises_and_the_next_start_gives_a_new_one(ways, manager):
    kernel_id = str(uuid4())
    box = ways.start(manager, kernel_id)
    ways.run(box, "x = 1")
    with pytest.raises(carrel.KernelDied):
        ways.run(box, "import os\nos._exit(3)")
    if ways.is_local:
        with pytest.raises(carrel.KernelDied):
            ways.run(box, "x")
    again = ways.start(manager, kernel_id)
    assert ways.run(again, "x").error.ename == "NameError"
    ways.call(manager.shutdown(kernel_id))


def test_a_server_that_dies_is_replaced_by_the_next_start(local, tmp_path):
    kernel_id = str(uuid4())
    with local.entered(local.make(profile_dir=str(tmp_path))) as manager:
        box = local.start(manager, kernel_id)
        local.run(box, "x = 1")
        server = carrel.local.private_server(startup=str(tmp_path))
        server.process.terminate()
        server.process.wait(60)
        again = local.start(manager, kernel_id)
        assert local.run(again, "x").error.ename == "NameError"
        server.close()
    carrel.local.private_server(startup=str(tmp_path)).close()


def test_a_forked_child_leaves_the_kernels_of_its_parent_alone(local, request):
    if local.kind != "Local":
        pytest.skip("an event loop does not survive a fork")
    code = """
import os, sys
from carrel.pybox import LocalPyBoxManager
with LocalPyBoxManager() as manager, manager.start() as box:
    box.run("x = 1")
    child = os.fork()
    if child == 0:
        with manager.start() as own:
            assert own.run("2").data == [{"text/plain": "2"}]
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print(box.run("x").data)
"""
    place = request.getfixturevalue("place")
    done = subprocess.run([sys.executable, "-c", code], env=programs_environment(place), capture_output=True, text=True, timeout=200)
    assert done.stdout == "[{'text/plain': '1'}]\n", done.stderr


def test_printing_with_pauses_is_one_item_and_the_order_is_kept(ways, manager):
    code = """
import sys, time
for i in range(3):
    print(i, flush=True)
    time.sleep(0.1)
display({'text/html': '<b>x</b>', 'text/plain': 'x'}, raw=True)
print('err', file=sys.stderr)
'last'
"""
    with ways.started(manager) as box:
        out = ways.run(box, code)
    assert out.data == [{"text/plain": "0\n1\n2\n"}, {"text/html": "<b>x</b>", "text/plain": "x"}, {"text/plain": "err\n"},
                        {"text/plain": "'last'"}]


def test_a_message_of_several_megabytes(ways, manager):
    with ways.started(manager) as box:
        out = ways.run(box, "display({'text/plain': 'x' * 5_000_000}, raw=True)")
    assert len(out.data[0]["text/plain"]) == 5_000_000


def test_a_cell_may_say_more_than_the_default_of_the_server(ways, manager):
    with ways.started(manager) as box:
        out = ways.run(box, "print('x' * 15_000_000)", timeout=200)
    assert out.error is None and out.data == [{"text/plain": "x" * 15_000_000 + "\n"}]


def test_a_cell_that_says_too_much_has_an_error(local, manager, monkeypatch):
    monkeypatch.setattr("carrel.pybox.local._OUTPUT", 1000)
    with local.started(manager) as box:
        out = local.run(box, "x = 1\nprint('x' * 5000)")
        assert out.error.ename == "OutputLimit" and 0 < out.data[0]["text/plain"].count("x") <= 1000
        assert local.run(box, "x").data == [{"text/plain": "1"}]


def test_a_plot_is_a_png(ways, manager):
    if ways.is_kube:
        pytest.skip("the image of kernels has no matplotlib")
    with ways.started(manager) as box:
        out = ways.run(box, "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", timeout=200)
    assert out.error is None, str(out.error)
    import base64
    assert any(base64.b64decode(item.get("image/png", "")).startswith(b"\x89PNG") for item in out.data)


def test_env(local, manager):
    with local.started(manager, env={"SOME_NAME": "a value", "NUMBER": 3}) as box:
        out = local.run(box, "import os; os.environ['SOME_NAME'], os.environ['NUMBER'], 'PYTEST_CURRENT_TEST' in os.environ")
    assert out.data == [{"text/plain": "('a value', '3', False)"}]


def test_a_local_kernel_is_isolated(local, manager, tmp_path):
    (tmp_path / "secret").write_text("host")
    with local.started(manager) as box:
        out = local.run(box, f"""
import os, socket
def tried(what):
    try:
        return what()
    except OSError as e:
        return type(e).__name__
print(tried(lambda: open({str(tmp_path / 'secret')!r}).read()))
print(tried(lambda: os.kill({os.getpid()}, 0)))
print(tried(lambda: socket.create_connection(('192.0.2.1', 80), 2)))
print(tried(lambda: open('/usr/written', 'w')))
""")
    said = out.data[0]["text/plain"].split()
    assert out.error is None and "host" not in said and said[1:] in (["ProcessLookupError", "OSError", "OSError"],
                                                                     ["ProcessLookupError", "OSError", "PermissionError"]), said


def test_cwd_is_read_write_under_the_rights_of_the_caller(local, manager, tmp_path):
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    with local.started(manager, cwd=tmp_path) as box:
        out = local.run(box, "import os\nprint(open('in.csv').read())\nopen('out.txt', 'w').write('made inside')\nos.getcwd()")
        assert out.error is None, str(out.error)
    assert out.data[-1] == {"text/plain": repr(str(tmp_path))}
    made = tmp_path / "out.txt"
    assert made.read_text() == "made inside" and made.stat().st_uid == os.geteuid()


def test_a_kernel_with_a_cwd_is_forked_as_soon_as_there_is_a_zygote(local, manager, tmp_path):
    deadline = time.monotonic() + 120
    way = None
    while way != "forked":
        assert time.monotonic() < deadline, way
        with local.started(manager, cwd=tmp_path) as box:
            way = local.call(box.client.info())["way"]
            out = local.run(box, "import os\nopen('made', 'a').write('x')\nos.getcwd(), os.stat('.').st_uid == os.getuid()")
            assert out.data[-1] == {"text/plain": repr((str(tmp_path), True))}, str(out.error)
    made = tmp_path / "made"
    assert made.read_text().startswith("x") and made.stat().st_uid == os.geteuid()


def test_a_cwd_that_is_not_there(local, manager):
    with pytest.raises(NotADirectoryError, match="/no/such"):
        local.start(manager, cwd="/no/such")


def test_startup_files_of_a_profile_are_run_first(local, tmp_path):
    startup = tmp_path / "startup"
    startup.mkdir()
    (startup / "00-first.py").write_text("from math import sqrt\nnames = ['first']\n")
    (startup / "99-last.py").write_text("names.append('last')\n")
    with local.entered(local.make(profile_dir=str(tmp_path))) as manager:
        with local.started(manager) as box:
            assert local.run(box, "sqrt(16), names").data == [{"text/plain": "(4.0, ['first', 'last'])"}]
        with local.started(manager, cwd="/tmp" if pathlib.Path("/tmp").is_dir() else None) as box:
            assert local.run(box, "names").data == [{"text/plain": "['first', 'last']"}]
    with local.entered(local.make()) as manager, local.started(manager) as box:
        assert local.run(box, "names").error.ename == "NameError"


def test_options_that_cannot_be_kept_are_refused(local, manager):
    with pytest.raises(ValueError, match="kernel_name"):
        local.start(manager, kernel_name="julia")
    with pytest.raises(ValueError, match="extra_arguments"):
        local.start(manager, extra_arguments=["--debug"])
    with pytest.raises(TypeError, match="memroy"):
        local.start(manager, memroy="1G")
    with pytest.raises(TypeError):
        local.make(object())


def test_kernel_names_of_jupyter_are_accepted(local, manager):
    with local.started(manager, kernel_name="python3") as box:
        assert local.run(box, "1").data == [{"text/plain": "1"}]


def test_cancelling_interrupts(ways, manager):
    if not ways.kind.startswith("Async"):
        pytest.skip("asyncio")
    import asyncio

    async def scene(box):
        await box.run("x = 5")
        other = await AsyncWebSocket.connect(box.ws_url) if ways.kind.endswith("Remote") else None
        task = asyncio.ensure_future(box.run("import time\nprint('in', 'the', 'cell', flush=True)\ntime.sleep(600)"))
        if other is None:
            await asyncio.sleep(0.5)        # a cell of ours is stopped whenever it begins
        else:
            async with other:               # which hears what the cell says
                while "in the cell" not in await other.recv(60):
                    pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await box.run("x", timeout=60)
    with ways.started(manager) as box:
        assert ways.loop.run_until_complete(scene(box)).data == [{"text/plain": "5"}]


def test_two_kernels_at_once_do_not_block_the_loop(ways, manager):
    if not ways.kind.startswith("Async"):
        pytest.skip("asyncio")
    import asyncio

    async def scene(one, two):
        long = asyncio.ensure_future(one.run("import time\ntime.sleep(600)"))
        await asyncio.sleep(0.1)
        short = await two.run("6 * 7", timeout=200)
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return short
    with ways.started(manager) as one, ways.started(manager) as two:
        assert ways.loop.run_until_complete(scene(one, two)).data == [{"text/plain": "42"}]


def test_kernel_env_and_env_file_reach_the_kernel(ways, tmp_path):
    if ways.is_local:
        pytest.skip("of a gateway")
    (tmp_path / "env").write_text("# settings\nexport KERNEL_ONE=1\nKERNEL_TWO='two words'\n")
    with ways.entered(ways.make(env_file=str(tmp_path / "env"), kernel_env={"KERNEL_ONE": 11})) as manager, ways.started(manager) as box:
        out = ways.run(box, "import os\nos.environ.get('KERNEL_ONE'), os.environ.get('KERNEL_TWO')")
    assert out.data == [{"text/plain": "('11', 'two words')"}]


def fetch(port, name="api.localhost"):
    return f"import urllib.request as u; u.urlopen('http://{name}:{port}/').read().decode()"


def test_a_kernel_reaches_what_its_manager_allows_and_nothing_else(local):
    with hello_server() as port, local.entered(local.make(allow=[f"api.localhost:{port}"])) as manager:
        box = local.start(manager)
        assert local.run(box, fetch(port)).data == [{"text/plain": "'hello from the host'"}]
        assert local.run(box, fetch(port, "other.localhost")).error.ename == "URLError"


def test_a_kernel_has_the_network_of_its_start(local, manager):
    with hello_server() as port:
        box = local.start(manager, allow=["*.example.org", f"api.localhost:{port}"], deny=["x.example.org"])
        assert local.run(box, fetch(port)).data == [{"text/plain": "'hello from the host'"}]
        assert local.run(local.start(manager), fetch(port)).error.ename == "URLError"
        with pytest.raises(carrel.InvalidRequest, match="a..b"):
            local.start(manager, allow=["a..b"])
