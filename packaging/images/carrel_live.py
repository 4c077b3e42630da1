"""Commands that go on and Python kernels that remember, for carrel-runtime: the part of Carrel's API that runs things,
below /v1/box.

    POST exec {argv or shell, cwd, env, timeout, stdin, background}
    GET exec, exec/ID?wait=, exec/ID/output?offset=&follow=    POST exec/ID/stdin?close=, exec/ID/signal {signal}
    DELETE exec/ID
    POST run {code, context, timeout, cwd, env, output_limit, on_dead, allow_stdin}
    GET kernels, kernels/NAME    POST kernels, kernels/NAME/interrupt, /restart, /input    DELETE kernels/NAME

An answer as events is NDJSON; an empty line now and then shows that the connection lives. A client that goes away ends
its command, or interrupts its cell. Kernels need ipykernel and jupyter_client in the image."""

import base64
import collections
import os
import queue
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

KEPT_BYTES = 16 << 20  # of a command's output; the oldest goes first
ENDED_KEPT = 200  # commands that have ended
CHUNK = 1 << 16
ALIVE_S = 15
GRACE_S = 5  # for the output of what a command has left behind
INTERRUPT_S = 20  # for a kernel to react to an interrupt
CELL_BYTES = 64 << 20


class Problem(Exception):
    """An answer that is no success."""

    def __init__(self, status, message, code):
        super().__init__(message)
        self.status, self.code = status, code


def wrong(message):
    return Problem(400, message, "INVALID_ARGUMENT")


def seconds(value):
    """A number, or like 500ms, 10s, 5m, 1h; None: no limit."""
    if value is None:
        return None
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    text = str(value)
    unit = next((u for u in units if text.endswith(u)), "")
    try:
        number = float(text[: len(text) - len(unit)] if unit else text) * units.get(unit, 1)
    except ValueError:
        number = -1
    if not 0 < number < 1e9:
        raise wrong(f"timeout is {value!r}; it must be a number of seconds, or like 500ms, 10s, 5m, 1h")
    return number


def most_output(body):
    """How many bytes a cell may say."""
    most = body.get("output_limit")
    if most is not None and (not isinstance(most, int) or most <= 0):
        raise wrong(f"output_limit is {most!r}; it must be a number of bytes")
    return most or CELL_BYTES


def text_event(kind, data):
    event = {"type": kind, "data": data.decode(errors="replace")}
    if event["data"].encode(errors="replace") != data:
        event["data_base64"] = base64.b64encode(data).decode()
    return event


# ---- commands ----


class Command:
    """One command in a session of its own, and what it has written."""

    def __init__(self, body, folder):
        argv = body.get("argv") or (["/bin/sh", "-c", body["shell"]] if isinstance(body.get("shell"), str) else None)
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            raise wrong('give "argv", a list of texts, or "shell", a line for the shell')
        self.id, self.argv, self.background = secrets.token_hex(8), argv, bool(body.get("background"))
        self.timeout, self.began = seconds(body.get("timeout")), time.time()
        self.changed = threading.Condition()
        self.events, self.first, self.size = collections.deque(), 0, 0
        self.dropped = {"stdout": 0, "stderr": 0}
        self.state, self.end, self.killed = "running", {}, None
        given = body.get("stdin")
        environment = {**os.environ, **{str(k): str(v) for k, v in (body.get("env") or {}).items()}}
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if given else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.join(folder, body.get("cwd") or ""),
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.process, self.state = None, "ended"
            message = f"{argv[0]}: {getattr(error, 'strerror', None) or error}"
            self.end = {"error": {"step": "exec", "errno": getattr(error, "errno", None) or 22, "message": message}}
            return
        self.readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in (("stdout", self.process.stdout), ("stderr", self.process.stderr))
        ]
        for thread in self.readers:
            thread.start()
        threading.Thread(target=self._wait, daemon=True).start()
        if isinstance(given, str):
            threading.Thread(target=self.write, args=(given.encode(), True, True), daemon=True).start()

    def _read(self, name, pipe):
        while data := pipe.read1(CHUNK):
            with self.changed:
                self.events.append((name, data))
                self.size += len(data)
                while self.size > KEPT_BYTES and len(self.events) > 1:
                    old, lost = self.events.popleft()
                    self.first, self.size = self.first + 1, self.size - len(lost)
                    self.dropped[old] += len(lost)
                self.changed.notify_all()

    def _wait(self):
        try:
            self.process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            self.killed = "timeout"
            self.signal(signal.SIGKILL)
        code = self.process.wait()
        for reader in self.readers:
            reader.join(GRACE_S)  # somebody that it has left behind may hold its output open
        with self.changed:
            self.state = "ended"
            number = -code if code < 0 else None
            how = "ok" if code == 0 else "killed" if number == signal.SIGKILL else "error"
            self.end = {
                "outcome": self.killed or how,
                "exit_code": None if number else code,
                "signal": number,
                "wall_ms": (time.time() - self.began) * 1000,
            }
            self.changed.notify_all()

    def signal(self, number):
        if self.process and self.process.poll() is None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def write(self, data, close, quiet=False):
        pipe = self.process.stdin if self.process else None
        try:
            if pipe is None or pipe.closed:
                raise BrokenPipeError
            pipe.write(data)
            pipe.flush()
            if close:
                pipe.close()
        except (OSError, ValueError) as error:
            if not quiet:
                raise Problem(409, "the command has no open input", "FAILED_PRECONDITION") from error

    def shown(self):
        return {
            "id": self.id,
            "argv": self.argv,
            "background": self.background,
            "state": self.state,
            "outcome": self.end.get("outcome"),
            "started_at": self.began,
            "stdout_dropped_bytes": self.dropped["stdout"],
            "stderr_dropped_bytes": self.dropped["stderr"],
            **self.end,
        }

    def output(self, offset, follow, is_left):
        """Events from an offset; None when a while has passed without one. is_left() ends it."""
        while True:
            with self.changed:
                if offset >= self.first + len(self.events) and self.state != "ended" and follow:
                    self.changed.wait(1)
                lost, offset = offset < self.first, max(offset, self.first)
                events = [self.events[i] for i in range(offset - self.first, len(self.events))]
                over = self.state == "ended" or not follow
            if lost:
                yield {"type": "dropped", **{f"{name}_bytes": count for name, count in self.dropped.items()}}
            for name, data in events:
                offset += 1
                yield {**text_event(name, data), "next": offset}
            if not events:
                if over:
                    return
                if is_left():
                    return
                yield None

    def result(self):
        """All of it, at its end."""
        with self.changed:
            while self.state != "ended":
                self.changed.wait()
            parts = {"stdout": b"", "stderr": b""}
            for name in parts:
                parts[name] = b"".join(data for kind, data in self.events if kind == name)
        answer = {**self.shown(), "truncated": sum(self.dropped.values()) > 0}
        for name, data in parts.items():
            answer[name] = data.decode(errors="replace")
            answer[name + "_base64"] = base64.b64encode(data).decode()
        return answer


# ---- kernels ----


class Kernel:
    """One interpreter by the name of its context. Cells wait for each other."""

    def __init__(self, name, folder, cwd=None, env=None):
        try:
            from jupyter_client.manager import KernelManager
        except ImportError as error:
            raise Problem(501, "this image has no kernels: pip install ipykernel in it", "UNIMPLEMENTED") from error
        self.name, self.lock, self.count, self.sent = name, threading.Lock(), 0, 0.0
        self.place = tempfile.mkdtemp(prefix="carrel-kernel-")
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=os.path.join(self.place, "connection.json")
        )
        self.manager.ip = os.path.join(self.place, "k")
        try:
            self.manager.start_kernel(
                cwd=os.path.join(folder, cwd or ""), env={**os.environ, **(env or {})}, start_new_session=True
            )
            self.client = self.manager.blocking_client()
            self.client.start_channels()
            self.client.wait_for_ready(60)
        except Exception as error:
            self.end()
            raise Problem(500, f"the kernel did not start: {error}", "INTERNAL") from error

    def is_alive(self):
        return self.manager.is_alive()

    def end(self):
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        if hasattr(self, "client"):
            self.client.stop_channels()
        shutil.rmtree(self.place, ignore_errors=True)

    def shown(self):
        return {"context": self.name, "state": "alive" if self.is_alive() else "dead", "cells": self.count}

    def _died(self):
        status = self.manager.provisioner.process.poll() if self.manager.provisioner.process else None
        why = f"it was killed by signal {-status}" if status is not None and status < 0 else f"it ended with {status}"
        if status == -signal.SIGKILL:
            why += "; a Pod that uses more memory than its limit ends so"
        return {"outcome": "killed", "reason": why}

    def cell(self, body, is_left):
        """Runs one; yields its events, None when a while has passed without one, and its outcome at last."""
        with self.lock:
            began, limit, most = time.monotonic(), seconds(body.get("timeout")), most_output(body)
            stdin = bool(body.get("allow_stdin"))
            self.count += 1
            asked = self.client.execute(body["code"], allow_stdin=stdin, stop_on_error=False)
            why, interrupted, heard, said = None, None, began, 0
            while True:
                event, over = self._next(asked, stdin)
                if over:
                    break
                if not self.is_alive():
                    wall_ms = (time.monotonic() - began) * 1000
                    yield {"type": "outcome", **self._died(), "kernel": self.shown(), "wall_ms": wall_ms}
                    return
                if event and said <= most:
                    said += len(str(event.get("text") or event.get("data") or ""))
                    yield event
                now = time.monotonic()
                heard = now if event else heard
                if not why:
                    why = (
                        "timeout" if limit and now - began > limit
                        else "output_limit" if said > most
                        else "interrupted" if not event and is_left()
                        else None
                    )
                    if why:
                        self.manager.interrupt_kernel()
                        interrupted = heard = now
                elif now - heard > INTERRUPT_S or event and self.sent - interrupted > INTERRUPT_S:
                    self.manager.shutdown_kernel(now=True)
                    shown = {**self.shown(), "state": "dead"}
                    yield {"type": "outcome", "outcome": why, "kernel": shown, "wall_ms": (now - began) * 1000}
                    return
                if not event:
                    yield None
            yield self._outcome(asked, why, began)

    def _next(self, asked, stdin):
        """One message of this cell as an event, and whether it was the last."""
        if stdin:
            try:
                question = self.client.get_stdin_msg(timeout=0)["content"]
                return {"type": "input_request", "prompt": question["prompt"], "password": question["password"]}, False
            except queue.Empty:
                pass
        try:
            message = self.client.get_iopub_msg(timeout=0.2)
        except queue.Empty:
            return None, False
        if message["parent_header"].get("msg_id") != asked:
            return None, False
        # What a cell printed before it was interrupted may take long to read.
        self.sent = time.monotonic() - (time.time() - message["header"]["date"].timestamp())
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            return {"type": content["name"], "text": content["text"]}, False
        if kind in ("display_data", "execute_result", "update_display_data"):
            names = {"display_data": "display", "execute_result": "result", "update_display_data": "update_display"}
            return {"type": names[kind], **{k: content.get(k) for k in ("data", "metadata", "transient")}}, False
        if kind == "error":
            names = {"name": "ename", "value": "evalue", "traceback": "traceback"}
            return {"type": "error", **{ours: content[theirs] for ours, theirs in names.items()}}, False
        if kind == "clear_output":
            return {"type": "clear_output", "wait": content["wait"]}, False
        return None, kind == "status" and content["execution_state"] == "idle"

    def _outcome(self, asked, why, began):
        status, count = "ok", None
        end = time.monotonic() + INTERRUPT_S
        while time.monotonic() < end:
            try:
                reply = self.client.get_shell_msg(timeout=1)
            except queue.Empty:
                continue
            if reply["parent_header"].get("msg_id") == asked:
                status, count = reply["content"]["status"], reply["content"].get("execution_count")
                interrupted = status == "error" and reply["content"].get("ename") == "KeyboardInterrupt"
                status = "interrupted" if interrupted and not why else status
                break
        return {
            "type": "outcome",
            "outcome": why or status,
            "execution_count": count,
            "wall_ms": (time.monotonic() - began) * 1000,
            "kernel": self.shown(),
        }


# ---- the routes ----


class Live:
    """All commands and kernels of the container. folder: where they begin."""

    def __init__(self, folder):
        self.folder, self.lock = folder, threading.Lock()
        self.commands, self.kernels = collections.OrderedDict(), {}

    def handle(self, http, method, path, query, body):
        """Answers a request; http is the handler, body reads what was sent."""
        parts = [part for part in path.split("/") if part]
        act = getattr(self, f"{method.lower()}_{parts[0] if parts else ''}", None)
        if not act:
            raise Problem(404, "Not Found", "NOT_FOUND")
        act(http, parts[1:], query, body)

    @staticmethod
    def is_left(http):
        """Whether the client has gone."""
        try:
            readable, _, _ = select.select([http.connection], [], [], 0)
            return bool(readable) and not http.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def stream(self, http, events):
        """NDJSON. True: the client took all of it."""
        http.send_response(200)
        http.send_header("Content-Type", "application/x-ndjson")
        http.send_header("Connection", "close")
        http.send_header("Transfer-Encoding", "chunked")  # else many a client waits for the end, or for a full buffer
        http.end_headers()
        http.close_connection = True
        last = time.monotonic()
        try:
            for event in events:
                if event is None and time.monotonic() - last < ALIVE_S:
                    continue
                line = http.json_line(event) if event is not None else b"\n"
                http.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                last = time.monotonic()
            http.wfile.write(b"0\r\n\r\n")
        except OSError:
            return False
        return not self.is_left(http)

    def command(self, name):
        found = self.commands.get(name)
        if not found:
            raise Problem(404, f'there is no command "{name}"', "NOT_FOUND")
        return found

    def post_exec(self, http, parts, query, body):
        if len(parts) == 2 and parts[1] == "stdin":
            self.command(parts[0]).write(body.all(CELL_BYTES), query.get("close") == "true")
        elif len(parts) == 2 and parts[1] == "signal":
            self.command(parts[0]).signal(self.signal_number(http.json_body().get("signal")))
        elif parts:
            raise Problem(404, "Not Found", "NOT_FOUND")
        else:
            self.start(http)
            return
        http.answer(200, {})

    @staticmethod
    def signal_number(value):
        try:
            if isinstance(value, str) and not value.isdigit():
                return signal.Signals["SIG" + value.upper().removeprefix("SIG")]
            return signal.Signals(int(value))
        except (KeyError, ValueError, TypeError) as error:
            raise wrong(f"there is no signal {value!r}") from error

    def start(self, http):
        command = Command(http.json_body(), self.folder)
        with self.lock:
            self.commands[command.id] = command
            ended = [key for key, one in self.commands.items() if one.state == "ended"]
            for key in ended[: max(0, len(ended) - ENDED_KEPT)]:
                del self.commands[key]
        if command.background:
            http.answer(201, command.shown())
        elif "ndjson" not in http.headers.get("Accept", ""):
            http.answer(200, command.result())
        else:
            events = command.output(0, True, lambda: self.is_left(http))
            if not self.stream(http, self.around(command, events)) and command.state != "ended":
                command.signal(signal.SIGKILL)

    @staticmethod
    def around(command, events):
        yield {"type": "started", "exec": command.id}
        yield from events
        if command.state == "ended":
            yield {"type": "exit", **command.shown()}

    def get_exec(self, http, parts, query, _body):
        if not parts:
            http.answer(200, {"execs": [one.shown() for one in reversed(list(self.commands.values()))]})
            return
        command = self.command(parts[0])
        if parts[1:] == ["output"]:
            offset = int(query.get("offset", "0"))
            self.stream(http, command.output(offset, query.get("follow") == "true", lambda: self.is_left(http)))
            return
        with command.changed:
            while query.get("wait") == "true" and command.state != "ended":
                command.changed.wait()
        http.answer(200, command.shown())

    def delete_exec(self, http, parts, _query, _body):
        self.command(parts[0] if parts else "").signal(signal.SIGKILL)
        http.answer(200, {})

    # ---- cells ----

    def kernel(self, name, body, fresh=True):
        """The one of this name. fresh: a new one in the place of one that died."""
        with self.lock:
            found = self.kernels.get(name)
            if found and (found.is_alive() or not fresh):
                return found
            if found:
                found.end()
            self.kernels[name] = Kernel(name, self.folder, body.get("cwd"), body.get("env"))
            return self.kernels[name]

    def post_run(self, http, _parts, _query, _body):
        body = http.json_body()
        if not isinstance(body.get("code"), str):
            raise wrong('"code" must be a text')
        seconds(body.get("timeout"))  # before a kernel is started
        most_output(body)
        kernel = self.kernel(body.get("context") or "default", body, body.get("on_dead") != "error")
        if not kernel.is_alive():
            raise Problem(409, f"the kernel is dead: {kernel._died()['reason']}", "FAILED_PRECONDITION")
        events = kernel.cell(body, lambda: self.is_left(http))
        if not self.stream(http, events):
            for _ in events:  # the cell is interrupted, and its end is waited for
                pass

    def named(self, name):
        found = self.kernels.get(name)
        if not found:
            raise Problem(404, f'there is no kernel "{name}"', "NOT_FOUND")
        return found

    def get_kernels(self, http, parts, _query, _body):
        if parts:
            http.answer(200, self.named(parts[0]).shown())
        else:
            http.answer(200, {"kernels": [one.shown() for one in self.kernels.values()]})

    def post_kernels(self, http, parts, _query, _body):
        if not parts:
            body = http.json_body()
            http.answer(201, self.kernel(body.get("context") or "default", body).shown())
            return
        kernel, act = self.named(parts[0]), "/".join(parts[1:])
        if act == "interrupt":
            kernel.manager.interrupt_kernel()
        elif act == "input":
            kernel.client.input(str(http.json_body().get("value", "")))
        elif act == "restart":
            self.drop(parts[0])
            self.kernel(parts[0], {})
        else:
            raise Problem(404, "Not Found", "NOT_FOUND")
        http.answer(200, self.named(parts[0]).shown())

    def drop(self, name):
        with self.lock:
            self.named(name)
            self.kernels.pop(name).end()

    def delete_kernels(self, http, parts, _query, _body):
        self.drop(parts[0] if parts else "")
        http.answer(200, {})
