"""Serves the link. The main thread runs synchronous functions, one at a time; async ones run on a loop in a thread of its own.

While the main thread is in a function of the author's, no thread reads the link; then the kernel sends SIGIO for a new message, and
the signal's handler, which Python runs in the main thread, reads it. So a call can be cancelled by its number at the moment when the
message comes, without a thread that the interpreter would have to switch to for every call. The handler raises only while the author's
code runs (`interruptible`); a message that comes at another moment is read afterwards."""

import builtins
import collections
import contextvars
import fcntl
import importlib.util
import io
import json
import os
import signal
import struct
import sys
import tempfile
import threading
import tokenize

from carrel_service import names, output, proto, results, schema, trouble
from carrel_service.link import Closed, Link
from carrel_service.proto import ARGS_KEY, FUNCTION_KEY, ID_KEY, KWARGS_KEY, TYPE_KEY

F_SETOWN_EX, F_OWNER_TID = 15, 0


def form(kind, members):
    """A message of this kind, as bytes to be filled in with %."""
    return ("{%s}" % ",".join('"%s":%s' % pair for pair in [(TYPE_KEY, '"%s"' % kind), *members.items()])).encode()


# The words of src/proto/service.h.
ANSWER = {kind: form(kind, {ID_KEY: "%d", proto.VALUE_KEY: "%s"}) for kind in (proto.RESULT, proto.ERROR, proto.INVALID)}
PRINT = form(proto.PRINT, {ID_KEY: "%d", proto.STREAM_KEY: '"%s"', proto.VALUE_KEY: "%s"})
STARTED = form(proto.STARTED, {})
LOADED = form(proto.LOADED, {proto.FUNCTIONS_KEY: "%s"})
FAILED = form(proto.FAILED, {proto.FAILURE_KEY: "%s"})


UNWANTED = "the caller of this call has gone"


class Cancelled(KeyboardInterrupt):
    """Raised in a cancelled function; no `except Exception` catches it."""


class Call:
    __slots__ = ("id", "cancelled")

    def __init__(self, number):
        self.id, self.cancelled = number, False


class Worker:
    def __init__(self, link):
        self.link = link
        self.pid = os.getpid()
        self.main = threading.get_ident()
        self.functions = {}
        self.description = None         # bytes of "loaded", once it is
        self.current = None             # the call that the main thread is at
        self.waiting = collections.deque()      # synchronous calls that came meanwhile
        self.tasks = {}                 # async calls that have begun, by number
        self.unbegun = {}               # those that the loop has not come to: the thread that takes one out answers it
        self.loop = None
        self.mine = contextvars.ContextVar("carrel_call", default=None)
        self.interruptible = False
        self.missed = False
        self.flags = fcntl.fcntl(link.fd, fcntl.F_GETFL)
        fcntl.fcntl(link.fd, F_SETOWN_EX, struct.pack("ii", F_OWNER_TID, threading.get_native_id()))
        for number in (signal.SIGIO, signal.SIGINT):
            signal.signal(number, self.on_signal)

    # --- out ---

    def send(self, data):
        """From any thread. In the main one no handler raises in the middle of it."""
        if threading.get_ident() != self.main:
            self.link.send(data)
            return
        before, self.interruptible = self.interruptible, False
        try:
            self.link.send(data)
        finally:
            self.interruptible = before
        if before and self.missed:
            self.look()

    def tell(self, kind, number, value):
        """value: JSON, as bytes."""
        self.send(ANSWER[kind] % (number, value))

    def tell_print(self, number, stream, text):
        self.send(PRINT % (number, stream.encode(), json.dumps(text).encode()))

    def whose(self):
        """The number of the printing call: of its task, or of the main thread's call."""
        call = self.mine.get() or self.current
        return call.id if call is not None else proto.NO_CALL

    # --- in ---

    def on_signal(self, number, frame):
        if not self.interruptible:
            self.missed = True
            return
        self.look()

    def look(self):
        """In the author's code: reads new messages, and leaves that code if its call was cancelled."""
        self.interruptible = self.missed = False
        try:
            self.drain()
        finally:
            self.interruptible = True
        if self.current is not None and self.current.cancelled:
            self.interruptible = False
            raise Cancelled(UNWANTED)

    def drain(self):
        while True:
            try:
                message = self.link.receive(wait=False)
            except Closed:
                os._exit(0)     # in the middle of the author's code there is nothing to tidy up
            if message is None:
                return
            self.take(json.loads(message))

    def take(self, message):
        kind = message.get(TYPE_KEY)
        if kind == proto.CALL:
            function = self.functions.get(message[FUNCTION_KEY])
            if function is not None and function.is_async:
                self.start_task(function, message)
            else:
                self.waiting.append(message)
        elif kind == proto.CHECK:
            self.check(message)
        elif kind == proto.CANCEL:
            self.cancel(message[ID_KEY])
        elif kind == proto.DESCRIBE:
            # Another front: the callers of running functions went with the last one.
            self.waiting.clear()
            for number in [*self.unbegun, *self.tasks, self.current.id if self.current is not None else None]:
                if number:
                    self.cancel(number)
            if self.description is not None:
                self.link_send_later(self.description)

    def link_send_later(self, data):
        """From inside a handler: the main thread may be holding the link's lock there, but not when it is interruptible."""
        self.link.send(data)

    def cancel(self, number):
        if self.current is not None and self.current.id == number:
            self.current.cancelled = True
        waits = [m for m in self.waiting if m[ID_KEY] == number]
        for message in waits:
            self.waiting.remove(message)
        # The front counts what it is not answered, and ends the worker at last. A loop that is blocked would not answer.
        if waits or self.unbegun.pop(number, None) is not None:
            self.link_send_later(ANSWER[proto.ERROR] % (number, trouble.describe(Cancelled(UNWANTED))))
        elif number in self.tasks:
            self.loop.call_soon_threadsafe(self.cancel_task, number)

    def run_interruptible(self, call, function, *args, **kwargs):
        """Runs the author's code in the main thread; Cancelled if it is to end."""
        self.current = call
        fcntl.fcntl(self.link.fd, fcntl.F_SETFL, self.flags | os.O_ASYNC)
        try:
            self.look()         # messages that came before the kernel was set to signal
            return function(*args, **kwargs)
        finally:
            self.interruptible = False
            fcntl.fcntl(self.link.fd, fcntl.F_SETFL, self.flags)
            self.current = None
            if os.getpid() != self.pid:
                os._exit(0)     # a fork that came back here is not the worker

    # --- calls ---

    def call(self, message):
        number, name = message[ID_KEY], message[FUNCTION_KEY]
        function = self.functions.get(name)
        try:
            if function is None:
                raise schema.Unfit("function", "there is no function %r" % name)
            args, kwargs = function.bind(message[ARGS_KEY], message[KWARGS_KEY])
        except schema.Unfit as e:
            self.tell(proto.INVALID, number, unfit(function, e))
            return
        call = Call(number)
        try:
            result = self.run_interruptible(call, function.function, *args, **kwargs)
            kind, value = proto.RESULT, results.encode(result, name)
        except Closed:
            raise
        except BaseException as e:
            kind, value = proto.ERROR, trouble.describe(e)
        output.flush(number)
        self.tell(kind, number, value)

    def check(self, message):
        """For a queued call: answers now if its arguments do not fit. Not if the author's own classes would have to be instantiated,
        because the main thread may be in the middle of the author's code."""
        function = self.functions.get(message[FUNCTION_KEY])
        if function is None or function.makes_records:
            return
        try:
            function.bind(message[ARGS_KEY], message[KWARGS_KEY])
        except schema.Unfit as e:
            self.link_send_later(ANSWER[proto.INVALID] % (message[ID_KEY], unfit(function, e)))

    def start_task(self, function, message):
        number = message[ID_KEY]
        try:
            args, kwargs = function.bind(message[ARGS_KEY], message[KWARGS_KEY])
        except schema.Unfit as e:
            self.link_send_later(ANSWER[proto.INVALID] % (number, unfit(function, e)))
            return
        self.unbegun[number] = message
        self.loop.call_soon_threadsafe(self.make_task, number, function, args, kwargs)

    def make_task(self, number, function, args, kwargs):
        if number not in self.unbegun:
            return
        context = contextvars.copy_context()
        context.run(self.mine.set, Call(number))
        self.tasks[number] = context.run(self.loop.create_task, self.run_task(number, function, args, kwargs))

    def cancel_task(self, number):
        task = self.tasks.get(number)
        if task is not None:
            task.cancel()

    async def run_task(self, number, function, args, kwargs):
        if self.unbegun.pop(number, None) is None:      # cancelled, and answered
            self.tasks.pop(number, None)
            return
        try:
            result = await function.function(*args, **kwargs)
            kind, value = proto.RESULT, results.encode(result, function.name)
        except BaseException as e:
            kind, value = proto.ERROR, trouble.describe(e)
        self.tasks.pop(number, None)
        output.flush(number)
        try:
            self.tell(kind, number, value)
        except Closed:
            os._exit(0)

    def prepare_loop(self):
        import asyncio

        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)       # objects made at module level belong to it, too

    def run_loop(self):
        import asyncio

        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    # --- loading ---

    def load(self, order):
        """Runs the interface file as a module. False: it cannot be served, and the front knows why."""
        registry = names.Names(order.get("models") or {})
        for name in ("expose", "get_model_path", "list_configured_models"):
            setattr(builtins, name, getattr(registry, name))
        code, filename = order["code"], order["filename"]
        if "async" in code:
            self.prepare_loop()
        path = place(code, filename, order.get("path") or [])
        sys.path[:0] = order.get("path") or [os.path.dirname(path)]
        sys.argv = [path]
        trouble.know(path, order.get("path") or [])
        trouble.hide(registry.models)
        try:
            self.run_interruptible(Call(proto.NO_CALL), run_module, path)
            for name, function in registry.exposed.items():
                self.functions[name] = schema.Function(function, name)
            if not self.functions:
                raise trouble.NothingExposed("it exposes no function: put @expose before at least one")
            value = json.dumps([f.describe() for f in self.functions.values()]).encode()
        except Closed:
            raise
        except BaseException as e:
            output.flush(proto.NO_CALL)
            self.send(FAILED % trouble.describe(e, loading=True))
            return False
        if any(f.is_async for f in self.functions.values()):
            if self.loop is None:
                self.prepare_loop()
            threading.Thread(target=self.run_loop, name="carrel-loop", daemon=True).start()
        output.flush(proto.NO_CALL)
        self.description = LOADED % value
        self.send(self.description)
        return True

    def serve(self):
        while True:
            while self.waiting:
                self.call(self.waiting.popleft())
            self.take(json.loads(self.link.receive(wait=True)))


def unfit(function, e):
    where = e.where
    text = "%s: argument '%s' %s" % (function.name, where, e) if where and function is not None else str(e)
    return json.dumps({"argument": where.split(".")[0].split("[")[0] or None, "where": where, "message": text}).encode()


def encoding_of(code):
    """As its first lines say: Python reads the file by them."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(code.encode()).readline)[0]
        code.encode(encoding)
        return encoding
    except (SyntaxError, UnicodeEncodeError):
        return "utf-8"


def place(code, filename, path):
    """The interface's place as a file: beside its siblings if it is there, else in a directory of its own."""
    encoding = encoding_of(code)
    for directory in path:
        own = os.path.join(directory, filename)
        try:
            with open(own, encoding=encoding) as file:
                if file.read() == code:
                    return own
        except (OSError, UnicodeDecodeError):
            pass
    own = os.path.join(tempfile.mkdtemp(prefix="service-"), filename)
    with open(own, "w", encoding=encoding, newline="") as file:
        file.write(code)
    return own


def run_module(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        from importlib.machinery import SourceFileLoader

        spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main():
    link = Link(proto.LINK)
    worker = Worker(link)
    output.install(worker)
    sys.dont_write_bytecode = True
    try:
        message = json.loads(link.receive(wait=True))
        while message.get(TYPE_KEY) != proto.LOAD:
            message = json.loads(link.receive(wait=True))
        link.send(STARTED)
        if not worker.load(message):
            return 1
        worker.serve()
    except Closed:
        pass
    os._exit(0)         # threads of the author's are not waited for
