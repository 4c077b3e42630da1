"""What a client sees of a kernel that behaves: each test with ipykernel 7, with ipykernel 6, and forked from a zygote into a box."""

import re
import time

import pytest

from client import PATIENCE


def test_a_result_comes_between_busy_and_idle(kernel):
    ran = kernel.run("6*7")
    assert ran.types() == ["status", "execute_input", "execute_result", "execute_reply", "status"]
    assert ran.text == "42" and ran.reply["status"] == "ok"
    assert ran.messages[0]["content"]["execution_state"] == "busy"


def test_state_stays_and_cells_are_counted(kernel):
    count = kernel.run("x = 7").reply["execution_count"]
    ran = kernel.run("x")
    assert ran.text == "7" and ran.reply["execution_count"] == count + 1
    assert kernel.run("In[-1], Out[%d], _" % (count + 1)).text == "('In[-1], Out[%d], _', 7, 7)" % (count + 1)


def test_prints_of_a_cell_are_one_message(kernel):
    for _ in range(100):                # but for a cell that stood still between the two for longer than text may wait
        ran = kernel.run("print('a'); print('b')")
        assert ran.stdout == "a\nb\n"
        if ran.types().count("stream") == 1:
            return
    pytest.fail("there were always more")


def test_output_comes_in_the_order_it_was_made(kernel):
    ran = kernel.run("import sys\nprint('a'); display(1); sys.stderr.write('b'); print('c'); 2")
    shown = [m for m in ran.messages if m["channel"] == "iopub" and m["msg_type"] not in ("status", "execute_input")]
    at = [m["msg_type"] for m in shown].index("display_data")
    told = [[(m["content"]["name"], m["content"]["text"]) for m in part] for part in (shown[:at], shown[at + 1:-1])]
    assert "".join(text for _, text in told[0]) == "a\n" and {name for name, _ in told[0]} == {"stdout"}
    assert ["".join(text for name, text in told[1] if name == wanted) for wanted in ("stdout", "stderr")] == ["c\n", "b"]
    assert shown[-1]["msg_type"] == "execute_result"


def test_text_is_told_while_the_cell_goes_on(kernel):
    msg_id = kernel.submit("import time\ntry:\n    print('early')\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('late')")
    seen = ""
    while seen != "early\n":
        m = kernel.receive()
        seen += m["content"]["text"] if m["msg_type"] == "stream" else ""
    kernel.interrupt()
    assert "".join(m["content"]["text"] for m in kernel.collect(msg_id) if m["msg_type"] == "stream") == "late\n"


def test_an_error_has_a_traceback(kernel):
    ran = kernel.run("def f():\n    return 1/0\nf()")
    assert ran.error["ename"] == ran.reply["ename"] == "ZeroDivisionError"
    assert "return" in "".join(ran.error["traceback"]) and ran.reply["status"] == "error"


def test_queued_cells_are_aborted_by_an_error(kernel):
    ids = [kernel.submit("import time\ntry:\n    print('go', flush=True); time.sleep(1000)\nexcept KeyboardInterrupt:\n    1/0")]
    ids += [kernel.submit("y = 1"), kernel.submit("y")]
    while kernel.receive()["msg_type"] != "stream":
        pass
    kernel.interrupt()
    replies = {}
    while len(replies) < 3:
        m = kernel.receive()
        if m["msg_type"] == "execute_reply":
            replies[m["parent_header"]["msg_id"]] = m["content"]["status"]
    assert [replies[i] for i in ids] == ["error", "aborted", "aborted"]
    assert kernel.run("1").text == "1"


def test_an_error_that_may_be_passed_over_aborts_nothing(kernel):
    ids = [kernel.submit("1/0", stop_on_error=False), kernel.submit("2")]
    assert [[m for m in kernel.collect(i) if m["msg_type"] == "execute_reply"][0]["content"]["status"] for i in ids] == ["error", "ok"]


def test_a_silent_cell_shows_nothing(kernel):
    count = kernel.run("1").reply["execution_count"]
    ran = kernel.run("z = 3; z", silent=True, store_history=False)
    assert ran.types() == ["status", "execute_reply", "status"]
    assert kernel.run("z").reply["execution_count"] == count + 1


def test_user_expressions(kernel):
    told = kernel.run("a = 2", user_expressions={"good": "a+1", "bad": "nothing_here"}).reply["user_expressions"]
    assert told["good"]["data"]["text/plain"] == "3" and told["bad"]["ename"] == "NameError"


def test_input_is_asked_for(kernel):
    msg_id = kernel.submit("name = input('who? '); import getpass; word = getpass.getpass('word: '); print(name, word)", allow_stdin=True)
    asked = []
    for answer in ("ann", "secret"):
        while True:
            m = kernel.receive()
            if m["msg_type"] == "input_request":
                break
        asked.append((m["channel"], m["content"]["prompt"], m["content"]["password"]))
        other = kernel.send("kernel_info_request")      # waits its turn
        kernel.send("input_reply", {"value": answer}, channel="stdin")
    assert asked == [("stdin", "who? ", False), ("stdin", "word: ", True)]
    texts = [m["content"]["text"] for m in kernel.collect(msg_id) if m["msg_type"] == "stream"]
    assert texts == ["ann secret\n"]
    assert kernel.collect(other)


def test_input_without_a_client_for_it_is_an_error(kernel):
    assert kernel.run("input()").error["ename"] == "StdinNotImplementedError"


def test_an_interrupt_while_input_is_awaited_loses_no_request(kernel):
    kernel.run("""
import os, signal
link = get_ipython().kernel._link
def receive():
    data = type(link).receive(link)
    if data is not None:
        del link.receive                        # once: a signal just after something has come
        os.kill(os.getpid(), signal.SIGINT)
    return data
""")
    first = kernel.submit("link.receive = receive; input('? ')", allow_stdin=True)
    while kernel.receive()["msg_type"] != "input_request":
        pass
    second = kernel.submit("1")
    replies = [m["content"] for msg_id in (first, second) for m in kernel.collect(msg_id) if m["msg_type"] == "execute_reply"]
    assert replies[0]["ename"] == "KeyboardInterrupt" and replies[1]["status"] == "aborted"
    assert kernel.run("1").text == "1"


def test_input_can_be_interrupted(kernel):
    msg_id = kernel.submit("input('? ')", allow_stdin=True)
    while kernel.receive()["msg_type"] != "input_request":
        pass
    kernel.interrupt()
    assert [m["content"]["ename"] for m in kernel.collect(msg_id) if m["msg_type"] == "error"] == ["KeyboardInterrupt"]


def until_asked(kernel, printed):
    """The prompt of the next question; what is printed before goes to the list."""
    while True:
        m = kernel.receive()
        if m["msg_type"] == "stream":
            printed.append(m["content"]["text"])
        assert m["msg_type"] not in ("execute_reply", "error"), m["content"]
        if m["msg_type"] == "input_request":
            return m["content"]["prompt"]


def test_the_debugger_is_ipythons_and_can_be_interrupted(kernel):
    printed = []
    msg_id = kernel.submit("import pdb\nkept = 3\ndef f():\n    pdb.set_trace()\n    return kept\nf()", allow_stdin=True)
    for answer in ("p 40 + 2", "c"):
        assert until_asked(kernel, printed) == "ipdb> "
        kernel.send("input_reply", {"value": answer}, channel="stdin")
    assert [m["content"]["data"]["text/plain"] for m in kernel.collect(msg_id) if m["msg_type"] == "execute_result"] == ["3"]
    assert "42" in "".join(printed)
    kernel.submit("import pdb; pdb.set_trace()\nkept = 4", allow_stdin=True)
    until_asked(kernel, printed)
    interrupt_until_it_replies(kernel)          # Python's own would ask again and again
    assert kernel.run("kept").text == "4"       # and what follows is done, as with the stock kernel


def test_the_extensions_of_every_stock_kernel_are_there(kernel):
    assert kernel.run("number = 5\n%store number\ndel number\n%store -r number\nnumber").text == "5"


# Tells from a thread that the cell is at a line.
WATCH = """import sys, threading, time
def watch(main, line):
    here = sys._getframe().f_code.co_filename
    while True:
        frame = sys._current_frames()[main]
        if frame.f_code.co_filename == here and frame.f_lineno == line: break
        time.sleep(0.001)
    print('begun', flush=True)
threading.Thread(target=watch, args=(threading.get_ident(), %d)).start()
"""


@pytest.mark.parametrize("code, at, last", [("while True: pass", 1, "while True: pass"), ("import time\ndef nap():\n    time.sleep(60)\nnap()", 3, "time.sleep(60)"),
                                            ("import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    1/0", 3, "1/0")])
def test_the_traceback_of_an_interrupt_ends_in_the_users_code(kernel, code, at, last):
    msg_id = kernel.submit(WATCH % (WATCH.count("\n") + at) + code)
    while kernel.receive()["msg_type"] != "stream":
        pass
    kernel.interrupt()
    [error] = [m["content"] for m in kernel.collect(msg_id) if m["msg_type"] == "error"]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))
    assert "sigint" not in shown and "carrel" not in shown, shown
    arrows = [line for line in shown.splitlines() if "-> " in line]
    assert last in arrows[-1], shown


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(60)", "!sleep 60", "%timeit -n 1000000000 1",
                                  "import subprocess; subprocess.run(['sleep', '60'])", "for i in range(10**9): print(i)"])
def test_an_interrupt_ends_the_cell_and_keeps_the_state(kernel, code):
    kernel.run("kept = 7")
    msg_id = kernel.submit(code)
    while True:
        if kernel.receive()["msg_type"] == "execute_input":
            break
    time.sleep(0.1)                     # for the cell to be at it, mostly
    kernel.interrupt()
    ran = kernel.collect(msg_id)
    assert [m for m in ran if m["msg_type"] == "execute_reply"]
    assert kernel.run("kept").text == "7"


def interrupt_until_it_replies(kernel, patience=0.2):
    """Two signals to a process that stands still meanwhile are one, and one in the instant before a cell waits may be none."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        kernel.interrupt()
        try:
            while True:
                m = kernel.receive(patience)
                if m["msg_type"] == "execute_reply":
                    return m["content"]
        except TimeoutError:
            continue
    raise TimeoutError("it did not reply")


def test_an_asynchronous_cell_can_be_interrupted(kernel):
    kernel.submit("import asyncio; print('go'); await asyncio.sleep(1000)")
    while kernel.receive()["msg_type"] != "stream":
        pass
    assert interrupt_until_it_replies(kernel)["status"] == "error"
    assert kernel.run("1").text == "1"


def test_an_asynchronous_cell_that_does_not_wait_is_interrupted_by_the_second(kernel):
    kernel.submit("async def spin():\n    while True: pass\nprint('go')\nimport sys; sys.stdout.flush()\nawait spin()")
    while kernel.receive()["msg_type"] != "stream":
        pass
    assert interrupt_until_it_replies(kernel)["status"] == "error"
    assert kernel.run("1").text == "1"


def test_an_interrupt_right_after_the_word_that_it_is_busy_ends_the_cell(kernel):
    """Python itself loses one that comes between its last look for signals and the system call that waits: rarely."""
    lost = 0
    for _ in range(40):
        msg_id = kernel.submit("import time; time.sleep(1000)")
        while True:
            m = kernel.receive()
            if m["msg_type"] == "status" and m["content"]["execution_state"] == "busy" and m["parent_header"]["msg_id"] == msg_id:
                break
        began, patience = time.monotonic(), PATIENCE / 4
        assert interrupt_until_it_replies(kernel, patience)["ename"] == "KeyboardInterrupt"
        lost += time.monotonic() - began >= patience
    assert lost < 3


HOOKS = ["os.kill(os.getpid(), signal.SIGINT)",
         "class Deaf:\n        def __del__(self): os.kill(os.getpid(), signal.SIGINT)\n    Deaf()"]


@pytest.mark.parametrize("hook", HOOKS, ids=["callback", "finalizer"])
@pytest.mark.parametrize("event", ["pre_execute", "pre_run_cell"])
def test_an_interrupt_before_the_code_of_a_cell_ends_it_once(kernel, event, hook):
    kernel.run("import os, signal\ndef hook(*_):\n    get_ipython().events.unregister('%s', hook)\n    %s\n"
               "get_ipython().events.register('%s', hook)" % (event, hook, event))
    ran = kernel.run("ran = True; import time; time.sleep(1000)")
    assert [m["content"]["ename"] for m in ran.messages if m["msg_type"] == "error"] == ["KeyboardInterrupt"]
    assert kernel.run("'ran' in globals()").text == "False"


def test_an_interrupt_between_cells_is_none(kernel):
    for _ in range(3):
        kernel.interrupt()
    assert kernel.run("5").text == "5"


def test_an_interrupt_by_message_is_answered(kernel):
    assert kernel.request("interrupt_request", channel="control")["status"] == "ok"
    assert kernel.run("1").text == "1"


def test_tasks_go_on_between_cells(kernel):
    kernel.run("import asyncio\nticks = []\nasync def tick():\n    while True:\n        ticks.append(1); await asyncio.sleep(0.005)\n"
               "task = asyncio.get_running_loop().create_task(tick())\nawait asyncio.sleep(0)")
    before = int(kernel.run("len(ticks)").text)
    deadline = time.monotonic() + PATIENCE
    while int(kernel.run("len(ticks)").text) < before + 5:
        assert time.monotonic() < deadline
    kernel.run("task.cancel()")


def test_an_asynchronous_cell_gives_its_result(kernel):
    assert kernel.run("import asyncio\nawait asyncio.sleep(0.01)\n8").text == "8"


def test_completion_and_inspection(kernel):
    kernel.run("some_long_name = 1")
    told = kernel.request("complete_request", {"code": "some_lo", "cursor_pos": 7})
    assert told["matches"] == ["some_long_name"] and (told["cursor_start"], told["cursor_end"]) == (0, 7)
    assert "os" in kernel.request("complete_request", {"code": "import o", "cursor_pos": 8})["matches"]
    told = kernel.request("inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0})
    assert told["found"] and "Prints" in told["data"]["text/plain"]


def test_completeness(kernel):
    assert kernel.request("is_complete_request", {"code": "for i in x:"})["status"] == "incomplete"
    assert kernel.request("is_complete_request", {"code": "1"})["status"] == "complete"


def test_history(kernel):
    kernel.run("'for the history'")
    told = kernel.request("history_request", {"hist_access_type": "tail", "n": 1, "output": False, "raw": True})
    assert told["history"][-1][2] == "'for the history'"
    told = kernel.request("history_request", {"hist_access_type": "search", "pattern": "*the hist*", "n": 5, "output": False, "raw": True, "unique": True})
    assert len(told["history"]) == 1
    assert kernel.run("%history -l 1").stdout.strip()


def test_what_there_is_not_is_refused(kernel):
    assert kernel.request("debug_request", {"type": "request", "command": "attach", "seq": 1}, "control")["success"] is False
    info = kernel.request("kernel_info_request", channel="control")
    assert info["implementation"] == "ipython" and "debugger" not in info.get("supported_features", [])
    if kernel.way != "old":
        assert kernel.request("create_subshell_request", {}, "control")["status"] == "error"


def test_nonsense_is_passed_over(kernel):
    kernel.send_raw(b"nonsense")
    kernel.send_raw(b"\xff" * 200000)
    kernel.send("no_such_request")
    kernel.send("execute_request", {"code": 5})
    kernel.send("execute_request", {})
    kernel.send("complete_request", {})
    kernel.send("history_request", {"hist_access_type": 3})
    kernel.socket.send(b"\x01")
    kernel.socket.send(b"\x00\x10\x00\x00\x00\x10\x00\x00rest of nothing")
    assert kernel.run("4").text == "4"


def test_comms(kernel):
    kernel.run("got = []\nget_ipython().kernel.comm_manager.register_target('t', lambda comm, m: (comm.on_msg(lambda m: "
               "(got.append((m['content']['data'], [bytes(b) for b in m['buffers']])), comm.send({'back': 1}, buffers=[b'xyz']))), comm.send({'hello': 1})))")
    opened = kernel.collect(kernel.send("comm_open", {"comm_id": "c1", "target_name": "t", "data": {}}), reply=False)
    assert [m["content"]["data"] for m in opened if m["msg_type"] == "comm_msg"] == [{"hello": 1}]
    back = kernel.collect(kernel.send("comm_msg", {"comm_id": "c1", "data": {"n": 1}}, buffers=[b"abc"]), reply=False)
    assert [m["buffers"] for m in back if m["msg_type"] == "comm_msg"] == [[b"xyz"]]
    assert kernel.run("got").text == "[({'n': 1}, [b'abc'])]"
    assert kernel.request("comm_info_request", {})["comms"]["c1"] == {"target_name": "t"}


def test_magics_and_shell_commands(kernel):
    ran = kernel.run("!echo out; echo err >&2; exit 3\nprint(_exit_code)")
    assert ran.stdout == "out\nerr\n3\n"
    assert kernel.run("lines = !printf 'a\\nb\\n'\nlist(lines)").text == "['a', 'b']"
    assert kernel.run("%%bash\necho from bash").stdout == "from bash\n"
    assert kernel.run("%%capture held\nprint('x')").stdout == "" and kernel.run("held.stdout").text == "'x\\n'"
    assert "Wall time" in kernel.run("%time pass").stdout
    assert kernel.run("len?").reply["payload"][0]["source"] == "page"
    assert kernel.run("%pwd").reply["status"] == "ok"


def test_widgets(kernel):
    if kernel.way == "old":
        pytest.skip("no ipywidgets there")
    ran = kernel.run("import ipywidgets\nslider = ipywidgets.IntSlider(3)\nslider")
    assert "comm_open" in ran.types() and "application/vnd.jupyter.widget-view+json" in ran.data[-1]
    comm = [m["content"]["comm_id"] for m in ran.messages if m["msg_type"] == "comm_open"][-1]
    kernel.collect(kernel.send("comm_msg", {"comm_id": comm, "data": {"method": "update", "state": {"value": 9}, "buffer_paths": []}}), reply=False)
    assert kernel.run("slider.value").text == "9"


def test_what_the_interpreter_looks_like(kernel):
    assert kernel.run("import sys; sys.argv, sys.path[0], 'carrel_kernel' in ' '.join(sys.path), __name__").text == "([''], '', False, '__main__')"
    assert kernel.run("sys.stdin.read()").text == "''"
    assert kernel.run("import threading; threading.active_count()").reply["status"] == "ok"


def test_libraries_know_that_they_are_in_a_notebook(kernel):
    """By what they look at: the class of the shell and its module (plotly's renderer, rich), the section of the application (tqdm)."""
    assert kernel.run("str(type(get_ipython()))").text == '"<class \'ipykernel.zmqshell.ZMQInteractiveShell\'>"'
    assert kernel.run("'IPKernelApp' in get_ipython().config").text == "True"


def test_a_figure_is_shown_inline(kernel):
    if kernel.way == "old":
        pytest.skip("no matplotlib there")
    ran = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert ran.error is None and "image/png" in ran.data[-1]
    assert ran.data[-1]["image/png"].startswith("iVBOR")
    assert "image/png" in kernel.run("%matplotlib inline\nplt.plot([2, 1]); plt.show()").data[-1]


def test_rich_results(kernel):
    ran = kernel.run("from IPython.display import HTML, update_display\nh = display(HTML('<b>x</b>'), display_id='d')\nh.update(HTML('<i>y</i>'))")
    assert ran.data[-1]["text/html"] == "<b>x</b>" and "update_display_data" in ran.types()
    assert "clear_output" in kernel.run("from IPython.display import clear_output; clear_output(wait=True)").types()


def test_results_are_formatted_as_ipython_does(kernel):
    kernel.run("from IPython.core.formatters import DisplayFormatter\nsh = get_ipython()\nshown = sh.display_formatter\n"
               "def same(o): return shown.format(o) == DisplayFormatter.format(shown, o)\n"
               "things = [1, -2.5, 1e300, 3j, True, None, 'a\\n', b'b', [1, [2]], (1,), {'a': {1: 2}}, {1, 2}, frozenset(), range(3), list(range(2000)), 10**5000, 'x' * 300, 'a\u2028', int, len, object, "
               "type('R', (list,), {'_repr_html_': lambda s: '<b>'})([1]), type('I', (int,), {})(4)]")
    assert kernel.run("[o for o in things if not same(o)]").text == "[]"
    kernel.run("html = shown.formatters['text/html']; html.for_type(int, lambda o: '<i>%d</i>' % o)")
    assert kernel.run("5").data[-1] == {"text/plain": "5", "text/html": "<i>5</i>"}
    assert "text/html" in kernel.run("True").data[-1]
    kernel.run("html.pop(int); html.for_type_by_name('builtins', 'list', lambda o: '<ul>')")
    assert "text/html" in kernel.run("[1]").data[-1]
    kernel.run("html.pop('builtins.list')")
    assert kernel.run("5").data[-1] == {"text/plain": "5"}
    assert kernel.run("%precision 2\n3.14159").text == "3.14"
    assert kernel.run("%precision\n3.14159").text == "3.14159"


CELLS = ["1+1", "1+1\n", "x = 3\nx", "a = 1; b = 2", "import os\n\nos.getcwd()\n", "", "\n", "\n1", " 1", "if 1:\n    2\n", "x\n  \ny", "%time 1", "!ls", "x?", "?x",
         "a = %pwd", "a = !ls", "/f 1", ",f a b", ";f a b", ">>> 1", "In [1]: 2", "  ...: 3", "1\n... 2", "exit", "quit()", "pwd", "pwd = 3", "ls", "ls -l", "print", "print(1)",
         "who", "timeit 1", "f x", "'%d' % 3", "'a\\\nb'", "1 \\\n + 2", "\x0c1", "a\u2028b", "x # PYTHON-MODE", '"""\n\n"""', "(", "'", "0777", "é = 1\né", "%%time\n1",
         "not_here", "mine", "mine 1", "recall", "1\r\n2", "def f(): pass\n", "async def f(): pass", "await f", "lambda: 0", "*a, b = 1, 2", ".5", "[1]: 2", "x = [1]\nx[0]",
         "@property\ndef f(): pass", "$x", "`x`", "history -n", "alias", "l", "9ls", "x\n\n", "x\n\n\ny", "x \n", "\t1", "1\n,f a", "1\n\tf"]


def test_what_is_plain_is_transformed_as_ipython_would(kernel):
    kernel.run("from IPython.core.interactiveshell import InteractiveShell\nfrom IPython.core.macro import Macro\nmine = Macro('1+1\\n')\nsh = get_ipython()\n"
               "def told(f):\n    try: return f()\n    except BaseException as e: return type(e).__name__\n"
               "def differ(cells):\n    return [c for c in cells if told(lambda: sh.transform_cell(c)) != told(lambda: InteractiveShell.transform_cell(sh, c))]")
    assert kernel.run("differ(%r)" % CELLS).text == "[]"
    assert kernel.run("%automagic off").error is None
    assert kernel.run("differ(%r)" % CELLS).text == "[]"
    assert kernel.run("%automagic on\nsh.autocall = 2").error is None
    assert kernel.run("differ(%r)" % CELLS).text == "[]"
    assert kernel.run("sh.autocall = 0\nsh.input_transformer_manager.cleanup_transforms.append(lambda lines: [l.replace('one', '1') for l in lines])").error is None
    assert kernel.run("one + one").text == "2"
    assert kernel.run("last = sh.input_transformer_manager.cleanup_transforms.pop()").error is None
    assert kernel.run("mine").text == "2"


def test_transformers_of_input_are_asked_once(kernel):
    kernel.run("seen = []\ndef note(lines):\n    seen.append(len(lines)); return lines\nget_ipython().input_transformers_post.append(note)")
    kernel.run("1")
    assert kernel.run("get_ipython().input_transformers_post.remove(note); seen").text == "[1, 1]"
