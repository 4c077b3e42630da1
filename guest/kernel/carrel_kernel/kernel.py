"""The kernel: ipykernel's own, with its dispatching of messages replaced.

ipykernel has sockets, and a thread for each of control, output and heartbeat. Here is one socket and one thread:

    link --> receive --> control queue \\
                     \\-> shell queue ----> dispatcher: busy, handler of ipykernel, flush, idle --> link

The dispatcher is one task of the event loop in which asynchronous cells and the tasks that they left behind run too. What handlers do
is ipykernel's; they get a Channel in the place of a socket.

SIGINT has one handler for good. It raises KeyboardInterrupt only while a handler runs: between cells an interrupt is none, and a reply
is never lost to one."""

import asyncio
import collections
import contextlib
import ctypes
import inspect
import logging
import os
import signal
import sys
import threading
import time
import types
from _signal import getsignal as get_signal
from _signal import signal as set_signal        # without names for its numbers

from ipykernel.ipkernel import IPythonKernel
from traitlets import Type

from carrel_kernel import loops, proto
from carrel_kernel import session as sessions
from carrel_kernel.link import Closed
from carrel_kernel.shell import Shell

STAYS_AFTER = 1.0           # seconds
COMM_TYPES = ("comm_open", "comm_msg", "comm_close")
SHELL, CONTROL, IOPUB, STDIN = (sessions.Channel(name) for name in (proto.SHELL, proto.CONTROL, proto.IOPUB, proto.STDIN))

# Output of C code. Not all files: a file that another thread waits in would block us.
_libc = ctypes.PyDLL(None)
_libc.fflush.argtypes = [ctypes.c_void_p]
_flush_c, _c_stdout = _libc.fflush, ctypes.c_void_p.in_dll(_libc, "stdout")


class BoxKernel(IPythonKernel):
    shell_class = Type(Shell)
    _execute_sleep = 0
    after_first_cell = None
    when_it_stays = None                    # to be called at the second cell, or when the first is a while ago

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.stdin_socket = STDIN
        self.iopub_socket = IOPUB
        # ipykernel 7 only asks it in which thread the cells run.
        if "shell_channel_thread" in self.trait_names():
            self.shell_channel_thread = types.SimpleNamespace(parent_thread=threading.main_thread())
        parameters = inspect.signature(self.do_execute).parameters
        self._execute_names = [n for n in ("cell_meta", "cell_id") if n in parameters]
        self._queue = collections.deque()
        self._controls = collections.deque()
        self._interruptible = False
        self._is_fork = False
        self._has_run = False               # a cell
        self._running = False               # a shell message is being handled
        self._loop = self._spare_loop = self._io_loop = self._wake = None

    # --- differences that clients see ---

    _supports_kernel_subshells = False

    @property
    def kernel_info(self):
        info = dict(super().kernel_info)
        if "supported_features" in info:
            info["supported_features"] = [f for f in info["supported_features"] if f not in ("debugger", "kernel subshells")]
        info.pop("debugger", None)
        return info

    @property
    def io_loop(self):
        if self._io_loop is None:
            from tornado.ioloop import IOLoop

            self._io_loop = IOLoop.current()
        return self._io_loop

    async def do_debug_request(self, msg):
        return {"type": "response", "request_seq": msg.get("seq", 0), "seq": 0, "success": False, "command": msg.get("command", ""),
                "message": "this kernel has no debugger"}

    async def _refuse_subshell(self, stream, ident, parent):
        kind = parent["header"]["msg_type"].rsplit("_", 1)[0] + "_reply"
        self.session.send(stream, kind, {"status": "error", "ename": "NotImplementedError", "evalue": "this kernel has no subshells",
                                         "traceback": []}, parent, ident)

    create_subshell_request = delete_subshell_request = list_subshell_request = _refuse_subshell

    # --- serving ---

    def begin(self, link):
        """In the process that is to serve: signals, forks, the event loop."""
        self._link = link
        if self._loop is None:
            self.begin_loop()
        set_signal(signal.SIGINT, self._on_sigint)

    def begin_loop(self):
        spare, self._spare_loop = self._spare_loop, None
        if spare is None:
            spare = asyncio.new_event_loop()
        else:
            loops.reopen(spare)
        self._loop = spare
        asyncio.set_event_loop(spare)
        self._io_loop = None
        self._wake = asyncio.Event()

    def end_loop(self):
        """After a rehearsal. A forked process continues with it, but not with its descriptors."""
        if loops.shut(self._loop):
            self._spare_loop = self._loop
        else:
            self._loop.close()
        asyncio.set_event_loop(None)
        self._loop = None

    def run(self):
        """Until the other side is gone, or a shutdown."""
        self._publish_status("starting", "shell", parent={})
        self._loop.add_reader(self._link.fd, self._on_readable)
        dispatcher = self._loop.create_task(self._dispatch_all())
        while True:
            try:
                self._loop.run_forever()
                break
            except KeyboardInterrupt:
                continue            # raised in a task of an asynchronous cell, which has it too
        return dispatcher

    def _on_readable(self):
        self._link.busy += 1
        try:
            self._take_one()
        except Closed:
            self._loop.stop()
            self._loop.remove_reader(self._link.fd)
        finally:
            self._link.leave()

    def _take_one(self):
        data = self._link.receive()
        if data is None:
            return False
        try:
            channel, msg = sessions.parse(data)
        except (ValueError, UnicodeDecodeError, RecursionError) as error:
            self.log.warning("a message was dropped: %s", error)
            return True
        if channel == proto.SHELL:
            if self._running and msg["header"]["msg_type"] in COMM_TYPES and not self._taking_input:
                self._loop.create_task(self._dispatch_comm(msg))
            else:
                self._queue.append(msg)
        elif channel == proto.CONTROL:
            self._controls.append(msg)
        elif channel == proto.STDIN:
            self._last_input = msg
        self._wake.set()
        if self._controls and self._running and not self._taking_input:
            self._loop.create_task(self._dispatch_controls())
        return True

    async def _dispatch_all(self):
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._controls or self._queue:
                await self._dispatch_controls()
                if self._queue:
                    self._running = True
                    try:
                        await self._dispatch(SHELL, self.shell_handlers, self._queue.popleft())
                    finally:
                        self._running = False

    async def _dispatch_controls(self):
        while self._controls:
            await self._dispatch(CONTROL, self.control_handlers, self._controls.popleft())

    async def _dispatch(self, channel, handlers, msg):
        kind = msg["header"]["msg_type"]
        self.set_parent([], msg, channel=channel.name)
        if kind == "execute_request":
            self._begins, self._interrupted_early = True, False
        self._publish_status("busy", channel.name)
        if msg.get("abort"):
            self._send_abort_reply(channel, msg, [])
        elif kind == "execute_request":
            await self.execute_request(channel, [], msg)
        else:
            await self._handle(handlers.get(kind), channel, kind, msg)
        self._after_handler()
        self._publish_status("idle", channel.name, parent=msg)

    async def _handle(self, handler, channel, kind, msg):
        if handler is None:
            self.log.warning("a message of unknown type: %r", kind)
            return
        error = None
        try:
            self._interruptible = channel is SHELL
            result = handler(channel, [], msg)
            if inspect.isawaitable(result):
                await result
            self._interruptible = False
        except KeyboardInterrupt:
            self._interruptible = False
            error = ("KeyboardInterrupt", "")
        except Closed:
            raise
        except Exception as e:
            self._interruptible = False
            self.log.error("in a handler of %s:", kind, exc_info=True)
            error = (type(e).__name__, safe_text(e))
        if error and kind.endswith("_request"):
            content = {"status": "error", "ename": error[0], "evalue": error[1], "traceback": []}
            self.session.send(channel, kind[:-len("request")] + "reply", content, msg)

    async def _dispatch_comm(self, msg):
        """While an asynchronous cell waits, perhaps for this. The cell stays the parent of its output."""
        parent = self.get_parent("shell")
        self.set_parent([], msg)
        try:
            await self._handle(self.shell_handlers.get(msg["header"]["msg_type"]), IOPUB, "comm", msg)
        finally:
            self.set_parent([], parent)

    def _after_handler(self):
        if self._is_fork:
            os._exit(0)             # a fork in a cell that came to the cell's end: one kernel is enough
        self._interruptible = self._begins = False
        if sys.stdout is None or sys.stderr is None:
            self.streams.install()  # without them IPython itself fails
        if self._link is not None and get_signal(signal.SIGINT) != self._on_sigint:
            set_signal(signal.SIGINT, self._on_sigint)
        self.streams.flush()
        if self.after_first_cell is not None and self._link is not None:
            self._loop.call_soon(self.after_first_cell)
            self.after_first_cell = None

    # --- interrupts ---

    def _on_sigint(self, *_):
        if self._cell is not None and self._link is not None:
            # The loop cancels an asynchronous cell; if the cell blocks the loop, the next signal interrupts it.
            told, self._cell_told = self._cell_told, self._cell_told or time.monotonic()
            if not told:
                self._loop.call_soon_threadsafe(self._cancel_cell, self._cell)
                return
            if time.monotonic() - told < 0.05:
                return
        self._interrupted_early = self._begins
        if self._interruptible and self._link is not None and self._link.may_raise():
            raise KeyboardInterrupt

    # A client that knows that a cell has begun may interrupt it, also before its code runs. The code running then may ignore exceptions:
    # IPython's, a finalizer, a callback of a weak reference.
    _begins = False
    _interrupted_early = False
    _cell = None            # the future of an asynchronous cell
    _cell_told = 0.0

    def code_begins(self):
        self._begins = False
        if self._interrupted_early:
            self._interrupted_early = False
            raise KeyboardInterrupt

    def _cancel_cell(self, cell):
        self._cell_told = 0.0
        cell.cancel()

    @contextlib.contextmanager
    def _cancel_on_sigint(self, future):
        try:
            self._cell, self._cell_told = future, 0.0
            yield
        finally:
            self._cell = None

    async def interrupt_request(self, stream, ident, parent):
        os.killpg(0, signal.SIGINT) if os.getpgid(0) == os.getpid() else os.kill(os.getpid(), signal.SIGINT)
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent)

    def pre_handler_hook(self):
        pass

    def post_handler_hook(self):
        pass

    # --- executing ---

    def _stay(self):
        stay, self.when_it_stays = self.when_it_stays, None
        if stay is None:
            return
        try:
            stay()
        except Exception:
            self.log.warning("threads were not given back:", exc_info=True)

    async def execute_request(self, stream, ident, parent):
        if self.when_it_stays is not None:
            self._stay() if self._has_run else self._loop.call_later(STAYS_AFTER, self._stay)
        self._has_run = True
        content = parent["content"]
        code = content.get("code")
        silent = bool(content.get("silent", False))
        metadata = self.init_metadata(parent)
        if not isinstance(code, str):
            self._reply(stream, parent, metadata, failure("TypeError", "an execute_request needs code that is text", self.execution_count))
            return
        reply = await self._execute(code, silent, parent)
        if self._is_fork:
            return
        _flush_c(_c_stdout)
        self.streams.flush()
        # Before the reply: a client that waits for it and then sends another request does not mean this one.
        if not silent and reply["status"] == "error" and content.get("stop_on_error", True):
            self._abort_queued()
        self._reply(stream, parent, metadata, reply)

    def _reply(self, stream, parent, metadata, reply):
        metadata = self.finish_metadata(parent, metadata, reply)
        self.session.send(stream, "execute_reply", reply, parent, metadata=metadata)

    async def _execute(self, code, silent, parent):
        content, more = parent["content"], {}
        if "cell_meta" in self._execute_names:
            more["cell_meta"] = parent["metadata"]
        if "cell_id" in self._execute_names:
            more["cell_id"] = parent["metadata"].get("cellId")
        expressions = content.get("user_expressions")
        before = self.execution_count
        try:
            self._interruptible = True      # before the cell is announced: a client that sees that may interrupt it
            if not silent:
                self._publish_execute_input(code, parent, before)
            if self._interrupted_early:
                raise KeyboardInterrupt
            reply = await self.do_execute(code, silent, content.get("store_history", not silent),
                                          expressions if isinstance(expressions, dict) else {}, bool(content.get("allow_stdin", False)), **more)
            self._interruptible = False
            return reply
        except Closed:
            raise
        except BaseException as e:
            self._interruptible = False
            if not isinstance(e, (KeyboardInterrupt, asyncio.CancelledError)):
                self.log.error("in the execution of a cell:", exc_info=True)
            name = "KeyboardInterrupt" if isinstance(e, asyncio.CancelledError) else type(e).__name__
            reply = failure(name, safe_text(e), before)
            if not silent:
                self.session.send(IOPUB, "error", {k: reply[k] for k in ("ename", "evalue", "traceback")}, parent)
            return reply

    def _abort_queued(self):
        """Requests from before the error became known are aborted."""
        if self._link is None:
            return
        try:
            while self._take_one():
                pass
        except Closed:
            pass
        for msg in self._queue:
            if msg["header"]["msg_type"] == "execute_request":
                msg["abort"] = True

    def _abort_queues(self, *_):
        self._abort_queued()

    # --- input ---

    _taking_input = False
    _last_input = None

    def _input_request(self, prompt, ident, parent, password=False):
        if threading.current_thread() is not threading.main_thread():
            from IPython.core.error import StdinNotImplementedError

            raise StdinNotImplementedError("input() can be called in the main thread only")
        self.streams.flush()
        self._last_input = None
        self.session.send(STDIN, "input_request", {"prompt": prompt, "password": password}, parent)
        self._taking_input = True
        try:
            return self._await_input()
        finally:
            self._taking_input = False

    def _await_input(self):
        while True:
            self._link.busy += 1        # received messages are also recorded
            try:
                while self._last_input is None and self._take_one():
                    pass
            except Closed:
                self.end(0)
            finally:
                self._link.leave()
            reply, self._last_input = self._last_input, None
            if reply is not None:
                break
            self._mind_controls()
            self._link.wait()
        value = reply["content"].get("value", "")
        if value == "\x04":
            raise EOFError
        return value if isinstance(value, str) else str(value)

    def _mind_controls(self):
        """In the midst of input(), the event loop stands; two kinds must not wait for the answer."""
        for msg in list(self._controls):
            kind = msg["header"]["msg_type"]
            if kind == "interrupt_request":
                self._controls.remove(msg)
                self.session.send(CONTROL, "interrupt_reply", {"status": "ok"}, msg)
                raise KeyboardInterrupt
            if kind == "shutdown_request":
                raise KeyboardInterrupt

    # --- the end ---

    async def shutdown_request(self, stream, ident, parent):
        restart = bool(parent["content"].get("restart", False))
        content = {"status": "ok", "restart": restart}
        self.session.send(stream, "shutdown_reply", content, parent)
        self.session.send(IOPUB, "shutdown_reply", content, parent)
        self._loop.stop()

    def end(self, status):
        """Ends the process, whatever threads there are."""
        import atexit

        try:
            atexit._run_exitfuncs()
            self.streams.flush()
        except BaseException:
            pass
        os._exit(status)

    # --- forks of the user's ---

    def on_fork(self):
        """In the child: the link is the parent's, and its output goes where the output of programs goes."""
        self._is_fork = True
        self.session.link = None
        if self._link is not None:
            self._link.close()
        self.streams.out.go_direct()
        self.streams.err.go_direct()


def safe_text(error):
    try:
        return str(error)
    except Exception:
        return "<%s>" % type(error).__name__


def failure(name, value, count):
    return {"status": "error", "ename": name, "evalue": value, "traceback": [name + (": " + value if value else "")],
            "execution_count": count, "user_expressions": {}, "payload": []}


def make_log():
    """To descriptor 2, where the box's own errors go, not into a cell."""
    log = logging.getLogger("carrel_kernel")
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.__stderr__))
        log.propagate = False
        log.setLevel(logging.WARNING)
    return log
