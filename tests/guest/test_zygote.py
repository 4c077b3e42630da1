"""Kernels that are forked from a zygote: as new as executed ones, and with nothing in common that could be told."""

import json

import pytest

import ways
from client import BoxKernel


@pytest.fixture(params=["waited", "asked"])
def pair(family, request):
    """Two that went a cell's way before their command came, or two whose command came first."""
    kernels = [BoxKernel(family, family.park_warm() if request.param == "waited" else None) for _ in range(2)]
    yield kernels
    for k in kernels:
        k.close()


def both(pair, code):
    return [k.run(code).text for k in pair]


@pytest.mark.parametrize("waits", [True, False])
def test_a_fork_is_as_new_as_an_executed_kernel(family, waits):
    look = ("import json, sys, os, threading\njson.dumps([In[:1], list(Out), get_ipython().execution_count, sorted(n for n in dir() if not n.startswith('_') and n not in "
            "('json', 'sys', 'os', 'threading')), [_, __, ___], sys.argv, sys.path, sorted(os.environ.items()), os.getcwd(), threading.active_count(), "
            "__name__, sys.modules['__main__'].__dict__ is globals(), list(get_ipython().history_manager.get_tail()), hasattr(sys, 'last_value'), "
            "os.getppid(), len(os.listdir('/proc/self/fd')), os.listdir(), oct(os.umask(18)), [str(p) for p in _dh], sorted(os.listdir('/tmp'))])")
    with ways.kernel("box", family, family.park_warm() if waits else None) as forked, ways.kernel("cold", family) as executed:
        a, b = (json.loads(eval(k.run(look).text)) for k in (forked, executed))
    assert a == b


def test_random_numbers_are_not_a_siblings(pair):
    codes = ["import random; random.random()", "import numpy as np; np.random.rand()", "np.random.default_rng().random()", "import uuid; str(uuid.uuid4())",
             "import tempfile; next(tempfile._get_candidate_names())", "import secrets; secrets.token_hex()", "import os; os.urandom(8).hex()",
             "import multiprocessing as mp; bytes(mp.current_process().authkey).hex()", "import ssl; ssl.RAND_bytes(8).hex()",
             "get_ipython().kernel.session.session", "import random as r; r.Random().random()", "np.random.randn(); np.random.get_state()[1][:4].tolist()"]
    for code in codes:
        a, b = both(pair, code)
        assert a != b, code


def test_ids_of_messages_are_not_a_siblings(pair):
    a, b = ({m["header"]["session"] for m in k.run("1").messages} for k in pair)
    assert len(a) == len(b) == 1 and a != b


def test_files_and_names_are_apart(pair):
    pair[0].run("open('/tmp/mine', 'w').write('x'); mine = 1")
    assert pair[1].run("import os; os.path.exists('/tmp/mine'), 'mine' in globals()").text == "(False, False)"


def test_its_environment_is_the_commands_and_nothing_else(family):
    k = BoxKernel(family, env={"GREETING": "hé", "TZ": "Asia/Tokyo"})
    try:
        assert k.run("import os; os.environ['GREETING']").text == "'hé'"
        assert k.run("import time; time.tzname[0]").text == "'JST'"
        assert k.run("[n for n in os.environ if 'THREADS' in n or 'MPLCONFIG' in n]").text == "[]"
        assert k.run("!echo $GREETING").stdout == "hé\n"
    finally:
        k.close()


def test_modules_are_imported_already(family):
    with ways.kernel("box", family) as k:
        assert k.run("import sys; [m in sys.modules for m in ('numpy', 'pandas', 'matplotlib.pyplot')]").text == "[True, True, True]"
        ran = k.run("import pandas as pd; pd.DataFrame({'a': [1]})")
        assert "text/html" in ran.data[-1]


def test_libraries_get_their_threads_back(family):
    with ways.kernel("box", family) as k:
        k.run("1")
        got = k.run("import os, numpy as np\na = np.ones((300, 300)); float((a @ a)[0, 0]), len(os.listdir('/proc/self/task')), len(os.sched_getaffinity(0))").text
        value, threads, processors = eval(got)
        assert value == 300.0 and (threads > 1 or processors == 1)


def test_figures_can_be_drawn_and_saved(family):
    with ways.kernel("box", family) as k:
        ran = k.run("import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.set_title('x'); fig.savefig('/tmp/f.png')\nimport os; os.path.getsize('/tmp/f.png') > 1000")
        assert [d["text/plain"] for d in ran.data if "image/png" not in d][:1] == ["True"] and ran.stderr == ""


def test_an_interrupt_of_the_group_reaches_the_cell(family):
    with ways.kernel("box", family) as k:
        k.run("x = 7")
        msg_id = k.submit("print('go')\nwhile True: pass")
        while k.receive()["msg_type"] != "stream":
            pass
        k.interrupt()
        assert [m["content"]["ename"] for m in k.collect(msg_id) if m["msg_type"] == "error"] == ["KeyboardInterrupt"]
        assert k.run("x").text == "7"


def test_the_zygotes_own_memory_is_not_collected(family):
    with ways.kernel("box", family) as k:
        assert k.run("import gc; gc.get_freeze_count() > 50000 and gc.isenabled()").text == "True"


def test_startup_files_run_in_the_zygote_and_their_names_are_there(tmp_path):
    (tmp_path / "00-helpers.py").write_text("import os\nborn = os.getpid()\ndef helper(): return 'helped'\nimport numpy as np\nrng = np.random.default_rng(1)\n")
    tmp_path.chmod(0o755)
    boxes = ways.boxes("numpy", ["--startup", str(tmp_path)], [str(tmp_path)])
    try:
        kernels = [BoxKernel(boxes), BoxKernel(boxes)]
        assert kernels[0].run("helper()").text == "'helped'"
        assert kernels[0].run("rng.random()").text != kernels[1].run("rng.random()").text
        assert kernels[0].run("1").reply["execution_count"] == 3
        for k in kernels:
            k.close()
    finally:
        boxes.close()


@pytest.mark.parametrize("module, told", [("import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "thread"),
                                          ("import socket\ns = socket.socketpair()", "descriptors")])
def test_a_template_that_cannot_be_forked_is_refused_with_the_reason(tmp_path, module, told):
    (tmp_path / "00-bad.py").write_text(module)
    tmp_path.chmod(0o755)
    with pytest.raises((RuntimeError, OSError)) as caught:
        ways.boxes("", ["--startup", str(tmp_path)], [str(tmp_path)])
    assert told in str(caught.value)


def test_a_module_that_is_not_there_is_left_out():
    boxes = ways.boxes("no_such_module,json")
    try:
        with ways.kernel("box", boxes) as k:
            assert k.run("1+1").text == "2"
    finally:
        boxes.close()


def test_a_strict_box_has_kernels_too():
    boxes = ways.boxes("numpy", profile="strict")
    try:
        for way in ("box", "cold"):
            with ways.kernel(way, boxes) as k:
                assert k.run("import numpy as np; int(np.arange(4).sum())").text == "6"
                ran = k.run("print('a')\n!echo b\nimport asyncio; await asyncio.sleep(0.01); 3")
                assert ran.stdout == "a\nb\n" and ran.text == "3"
                msg_id = k.submit("print('go', flush=True)\nwhile True: pass")
                while k.receive()["msg_type"] != "stream":
                    pass
                k.interrupt()
                k.collect(msg_id)
                assert k.printed(2, 0.1) == b""
    finally:
        boxes.close()
