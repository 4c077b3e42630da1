"""Malicious or useless code: the kernel stays, or ends cleanly, and its messages are always whole and always JSON."""

import time

import pytest

from client import PATIENCE

pytestmark = pytest.mark.parametrize("kernel", ["new", "box"], indirect=True)


@pytest.mark.parametrize("code, text", [
    ("float('nan')", "nan"),
    ("'\\ud800'", "'\\ud800'"),
    ("class A:\n    def __repr__(self): return '\\udc80x'\nA()", "\\udc80x"),
    ("l = []; l.append(l); l", "[[...]]"),
])
def test_strange_results_are_valid_json(kernel, code, text):
    ran = kernel.run(code)
    assert ran.error is None and ran.text == text


def test_strange_text_is_printed(kernel):
    assert kernel.run("print('a\\ud800b')").stdout == "a\\ud800b\n"
    assert kernel.run("print('nul \\x00 and \\x1b[0m')").stdout == "nul \x00 and \x1b[0m\n"


def test_strange_data_is_shown(kernel):
    ran = kernel.run("display({'application/json': {'nan': float('nan'), 'inf': [float('inf')], 'big': 10**30, 1: b'bytes', 'set': {1}, "
                     "'s': '\\ud800'}}, raw=True)")
    assert ran.data[-1]["application/json"] == {"nan": "nan", "inf": ["inf"], "big": 10**30, "1": "Ynl0ZXM=", "set": [1], "s": "\\ud800"}
    assert kernel.run("d = {}; d['d'] = d\ndisplay({'application/json': d}, raw=True)").reply["status"] in ("ok", "error")
    assert kernel.run("display({'application/json': 10**6000}, raw=True)").reply["status"] in ("ok", "error")
    assert kernel.run("1").text == "1"


def test_a_repr_that_raises(kernel):
    ran = kernel.run("class B:\n    def __repr__(self): raise ValueError('no')\nB()")
    assert "ValueError" in "".join(ran.error["traceback"])
    assert kernel.run("class E(Exception):\n    def __str__(self): raise ValueError('no')\nraise E").reply["status"] == "error"
    assert kernel.run("1").text == "1"


def test_a_repr_that_sleeps_is_interrupted(kernel):
    msg_id = kernel.submit("import time\nclass S:\n    def __repr__(self): print('go'); time.sleep(60)\nS()")
    while kernel.receive()["msg_type"] != "stream":
        pass
    kernel.interrupt()
    assert [m for m in kernel.collect(msg_id) if m["msg_type"] == "execute_reply"]
    assert kernel.run("1").text == "1"


def test_what_is_too_large_is_said_to_be(kernel):
    ran = kernel.run("'x' * (70 << 20)")
    assert "too large" in ran.text and ran.reply["status"] == "ok"
    ran = kernel.run("raise ValueError('x' * (70 << 20))")
    assert ran.error["ename"] == "ValueError" and len(ran.error["evalue"]) < 10000
    ran = kernel.run("1", user_expressions={"a": "'x' * (70 << 20)"})
    assert ran.reply["status"] == "error" and "too large" in ran.reply["evalue"]
    ran = kernel.run("get_ipython().kernel.session.send(None, 'comm_msg', {'comm_id': 'x', 'data': {}}, buffers=[bytes(70 << 20)]); None")
    assert "too large" in ran.stderr


def test_a_large_result_that_may_be_sent_arrives(kernel):
    assert len(kernel.run("'x' * (5 << 20)").text) == (5 << 20) + 2


def test_a_long_cell_runs(kernel):
    assert kernel.run("s = '" + "x" * (8 << 20) + "'; len(s)").text == str(8 << 20)


def test_much_text_at_once_is_cut_into_messages(kernel):
    ran = kernel.run("print('y' * (3 << 20))")
    assert ran.stdout == "y" * (3 << 20) + "\n" and max(len(str(m["content"])) for m in ran.messages) < 1 << 20


def test_many_displays_wait_for_the_reader(kernel):
    msg_id = kernel.submit("for i in range(20000): display(i)")
    seen = 0
    for m in kernel.collect(msg_id):
        seen += m["msg_type"] == "display_data"
    assert seen == 20000


def test_a_kernel_whose_reader_stands_can_be_interrupted(kernel):
    msg_id = kernel.submit("while True: display(1)")
    while kernel.receive()["msg_type"] != "display_data":
        pass
    time.sleep(0.5)                     # long enough for the socket to be full
    kernel.interrupt()
    assert [m["content"]["ename"] for m in kernel.collect(msg_id) if m["msg_type"] == "error"] == ["KeyboardInterrupt"]


def test_interrupts_never_tear_a_message(kernel):
    """Many interrupts into cells that send messages of several packets: the client checks each packet."""
    for i in range(30):
        msg_id = kernel.submit("while True:\n    display({'text/plain': 'z' * 400000}, raw=True)")
        for _ in range(3):
            kernel.receive()
        time.sleep(0.003 * (i % 7))
        kernel.interrupt()
        kernel.collect(msg_id)
    assert kernel.run("1").text == "1"


def test_a_fork_in_a_cell_prints_to_the_pipe_and_is_no_second_kernel(kernel):
    ran = kernel.run("import os\nprint('before')\npid = os.fork()\nif pid == 0:\n    print('from the child')\nelse:\n    os.waitpid(pid, 0)\n    print('from the parent')")
    assert ran.stdout == "before\nfrom the parent\n"
    assert kernel.printed(until=b"child\n") == b"from the child\n"
    assert kernel.run("1").text == "1"


def test_processes_of_multiprocessing(kernel):
    code = "import multiprocessing as mp\ndef double(x): return 2 * x\nwith mp.get_context('fork').Pool(2) as pool:\n    r = pool.map(double, [1, 2, 3])\nr"
    assert kernel.run(code).text == "[2, 4, 6]"


def test_programs_print_to_the_pipe(kernel):
    kernel.run("import os; os.write(1, b'raw out'); os.write(2, b'raw err'); None")
    assert (kernel.printed(1, until=b"out"), kernel.printed(2, until=b"err")) == (b"raw out", b"raw err")
    kernel.run("import subprocess; subprocess.run(['echo', 'hello'])")
    assert kernel.printed(until=b"hello\n") == b"hello\n"


def test_programs_do_not_get_the_link(kernel):
    code = "import subprocess, os\nsubprocess.run(['ls', '-l', '/proc/self/fd'], capture_output=True, text=True, close_fds=False).stdout"
    listed = kernel.run(code).text
    assert "0 -> /dev/null" in listed and "socket" not in listed


def test_a_thread_that_prints_for_ever(kernel):
    kernel.run("import threading, time\nstop = threading.Event()\ndef chatter():\n    while not stop.wait(0.01): print('chat')\n"
               "t = threading.Thread(target=chatter); t.start()")
    assert kernel.run("5").text == "5"
    deadline = time.monotonic() + PATIENCE
    while True:                         # between cells too
        m = kernel.receive()
        if m["msg_type"] == "stream" and "chat" in m["content"]["text"]:
            break
        assert time.monotonic() < deadline
    kernel.run("stop.set(); t.join()")


def test_threads_that_all_print_and_display(kernel):
    ran = kernel.run("import threading\ndef work(n):\n    for i in range(200):\n        print('%d' % n * 1000)\n        if i % 50 == 0: display({'text/plain': 'd' * 300000}, raw=True)\n"
                     "ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n[t.start() for t in ts]; [t.join() for t in ts]; None")
    assert sorted(set(ran.stdout)) == ["\n", "0", "1", "2", "3"] and all(ran.stdout.count(str(n)) == 200000 for n in range(4))
    assert len(ran.data) == 16


def test_a_cell_that_breaks_its_own_interpreter(kernel):
    kernel.run("import sys; sys.stdout = None; sys.stderr = None; print('nowhere')")
    assert kernel.run("print('back')").stdout == "back\n"
    kernel.run("import signal; signal.signal(signal.SIGINT, signal.default_int_handler)")
    kernel.interrupt()
    assert kernel.run("1").text == "1"
    assert kernel.run("import sys; sys.exit(3)").error["ename"] == "SystemExit"
    assert kernel.run("raise KeyboardInterrupt").error["ename"] == "KeyboardInterrupt"


def test_text_that_is_no_code(kernel):
    for code in ("\ud800", "x = '\x00'", "\x00", "(" * 1000, "é" * 10):
        assert kernel.run(code).reply["status"] in ("ok", "error")
    assert kernel.run("1").text == "1"
