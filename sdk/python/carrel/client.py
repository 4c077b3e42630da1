"""The server and its boxes."""
from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Sequence, Union, cast

from . import leases, local
from .cells import Answer, Collector, Kernel, Result, made, result_of, run_body
from .errors import CarrelError, Conflict, ExecFailed, ExecTimeout, NotFound
from .files import Files
from .network import added_body, net_body, refused_line, update_body
from .outputs import ExecLogs, bytes_of, gather, marked
from .ports import Ports
from .named import Keys, Secrets, keys_body, layer_path, secret_bytes, secret_path, secrets_body
from .transport import Transport, absolute, decode, encode, segment
from .volumes import Shares, Volume, Volumes, check_stays, create_volume_body, volume_path, volumes_body

if TYPE_CHECKING:
    from .asyncclient import AsyncBox

Raw = Dict[str, Any]
Mount = Union[str, Mapping[str, Any]]

# Standard error goes where standard output goes: before a line for the shell, and before a command with its arguments.
_MERGE = "exec 2>&1\n"
_MERGED = ['exec "$@" 2>&1', "sh"]
MOST_INLINE = 1 << 20       # input that travels in the request; more is streamed


@dataclass(frozen=True)
class ExecResult:
    """A command that has ended. outcome: ok, error, timeout, oom, pids, disk, output_limit, killed; not_started if it never ran, then error says why.

    exit_code is that of `carrel run`, so never 0 for what did not end well: 128+N if signal N ended it, 124 after a timeout, 137 at a limit of
    memory or output, 127 and 126 if it was not found or cannot be executed, 125 if it could not be started otherwise.

    No output ends a command, unless an output_limit was given. Of long output (10 MiB, the server's defaults.output) stdout and stderr have the
    beginning and the end; truncated says so, stdout_dropped_bytes and stderr_dropped_bytes how much is missing, shown() where."""

    id: str
    outcome: str
    exit_code: int
    signal: int | None
    stdout: str
    stderr: str
    wall_ms: float
    cpu_ms: float
    memory_peak_bytes: int
    error: str | None = None
    raw: Raw = field(repr=False, default_factory=dict)
    stdout_bytes: bytes = field(repr=False, default=b"")
    stderr_bytes: bytes = field(repr=False, default=b"")
    truncated: bool = False
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.outcome == "ok"

    @property
    def command(self) -> str:
        """The command in one line; shortened if it is long."""
        argv = [str(word) for word in self.raw.get("argv") or ()]
        if argv[2:4] == _MERGED:
            argv = argv[4:]
        line = argv[2].removeprefix(_MERGE) if argv[:2] == ["/bin/sh", "-c"] and len(argv) == 3 else shlex.join(argv)
        return line if len(line) <= 200 else line[:200] + "..."

    @property
    def reason(self) -> str:
        """How it ended if not well, in words; empty if it did."""
        if self.ok or self.error:
            return self.error or ""
        how = f"ended by signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        told = str(self.raw.get("remark") or "").replace("limits.", "")     # options of Box() have no such prefix
        return f"{told}; {how}" if told and self.outcome != "timeout" else told or how

    @property
    def refused(self) -> str:
        """The box's refused connections meanwhile, in one line; empty if there were none."""
        return refused_line(self.raw)

    def shown(self, stream: str = "stdout") -> str:
        """stdout or stderr for a reader: with words where output is missing."""
        data: bytes = getattr(self, stream + "_bytes")
        return marked(data, getattr(self, stream + "_dropped_bytes"), self.raw.get(stream + "_dropped_at"))

    def check(self) -> "ExecResult":
        """Itself, or ExecFailed if the command did not end well; after a timeout ExecTimeout, which is a TimeoutError, too."""
        if not self.ok:
            raise (ExecTimeout if self.outcome == "timeout" else ExecFailed)(self)
        return self


def _exit_code(raw: Raw) -> int:
    error = raw.get("error")
    if error or raw["outcome"] == "not_started":
        codes = {errno.ENOENT: 127, errno.EACCES: 126, errno.ENOEXEC: 126}
        return codes.get(int(error["errno"]), 125) if error and error.get("step") == "exec" else 125
    if raw["outcome"] == "timeout":
        return 124
    if raw["outcome"] in ("oom", "output_limit"):
        return 137
    return 128 + raw["signal"] if raw.get("signal") else int(raw["exit_code"])


def exec_result(raw: Raw) -> ExecResult:
    return ExecResult(
        id=raw["id"], outcome=raw["outcome"], exit_code=_exit_code(raw), signal=raw.get("signal"),
        stdout=raw.get("stdout", ""), stderr=raw.get("stderr", ""), wall_ms=raw.get("wall_ms", 0.0), cpu_ms=raw.get("cpu_ms", 0.0),
        memory_peak_bytes=raw.get("memory_peak_bytes", 0), error=(raw.get("error") or {}).get("message"), raw=raw,
        stdout_bytes=bytes_of(raw, "stdout"), stderr_bytes=bytes_of(raw, "stderr"), truncated=bool(raw.get("truncated")),
        stdout_dropped_bytes=raw.get("stdout_dropped_bytes", 0), stderr_dropped_bytes=raw.get("stderr_dropped_bytes", 0))


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """The bytes of a stdout or stderr event."""
    return bytes_of(event, "data")


class Exec:
    """A command in the background."""

    def __init__(self, box: "Box", raw: Raw):
        self._box = box
        self.raw = raw
        self.id: str = raw["id"]

    def __repr__(self) -> str:
        return f"<Exec {self.id} {self.raw.get('state')}>"

    @property
    def _path(self) -> str:
        return f"{self._box._path}/exec/{segment(self.id)}"

    def refresh(self) -> "Exec":
        """Asks the server how the command is now. Returns the command."""
        self.raw = self._box._transport.call("GET", self._path)
        return self

    @property
    def running(self) -> bool:
        """Whether it has not ended, as of the last answer."""
        return bool(self.refresh().raw["state"] != "ended")

    def output(self, offset: int = 0, follow: bool = True) -> Iterator[Raw]:
        """Events of the command from an offset (that of an event's `next`); with follow, until it ends. An event `dropped` stands where output
        is missing; with follow nothing is dropped while it is read."""
        return self._box._transport.lines("GET", self._path + "/output", query={"offset": offset, "follow": follow})

    def logs(self) -> ExecLogs:
        """Its output so far, as much as the server keeps."""
        return gather(self.output(follow=False))

    def wait(self) -> ExecResult:
        """Waits for the end and returns the result, with the output that the server keeps."""
        self.raw = self._box._transport.call("GET", self._path, query={"wait": True})
        return exec_result({**self.raw, **self.logs().raw()})

    def write(self, data: bytes, close: bool = False) -> None:
        """Sends data to the command's standard input; returns when it was taken."""
        self._box._transport.open("POST", self._path + "/stdin", query={"close": close}, body=data).all()

    def close_stdin(self) -> None:
        """Ends its standard input."""
        self.write(b"", close=True)

    def signal(self, signal: int | str) -> None:
        """Sends a signal, a number or a name like "TERM", to the command and its process group."""
        self._box._transport.call("POST", self._path + "/signal", json_body={"signal": signal})

    def kill(self) -> None:
        """Ends it with SIGKILL; no error if it has ended already. wait() returns when it is gone."""
        self._box._transport.call("DELETE", self._path)

    def resize(self, rows: int, cols: int) -> None:
        """Changes the size of its terminal."""
        self._box._transport.call("POST", self._path + "/resize", json_body={"rows": rows, "cols": cols})


class _Start:
    """Starts a command in a thread of its own. Only the main thread gets Ctrl-C, so it cannot come between the server's answer and
    this code: whichever is later, the answer or undo(), ends the command."""

    def __init__(self, box: "Box", body: Raw):
        self._box = box
        self._body = body
        self._lock = threading.Lock()
        self._undone = False
        self._command: Exec | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)       # no daemon: the interpreter does not end before it

    def command(self) -> Exec:
        try:
            self._thread.start()
        except RuntimeError:        # no thread can be started, for example at the interpreter's end
            self._run()
        else:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return cast(Exec, self._command)

    def _run(self) -> None:
        try:
            data, headers = encode(self._body, None)
            # A connection that is not kept: this thread has no use for it afterwards.
            answer = self._box._transport.open("POST", self._box._path + "/exec", body=data, headers=headers, fresh=True)
            command = Exec(self._box, decode(answer.all()))
            with self._lock:
                self._command = command
                undone = self._undone
            if undone:
                self._end(command)
        except BaseException as e:
            self._error = e

    def undo(self) -> None:
        with self._lock:
            self._undone = True
            command = self._command
        if command is not None:
            self._end(command)

    @staticmethod
    def _end(command: Exec) -> None:
        with contextlib.suppress(CarrelError):
            command.kill()


def _envelope(fd: int) -> int:
    """The descriptor as a message in a socket pair of this process, so that the kernel tells the server's keeper who sent it."""
    ours, theirs = socket.socketpair()
    try:
        socket.send_fds(ours, [b"\0"], [fd])
    finally:
        os.close(fd)
        ours.close()
    return theirs.detach()


def open_mounts(mounts: Sequence[Mount], opened: List[int], again: bool = False) -> List[Raw]:
    """Opens the mounts with the rights of this process; the descriptors go to the server. again: a box's earlier mounts, so no link is
    followed: a box that may write above one may have put a link there."""
    result = []
    for mount in mounts:
        if isinstance(mount, str):
            parts = mount.split(":")
            if len(parts) not in (2, 3) or parts[2:] not in ([], ["ro"], ["rw"]):
                raise ValueError(f"a mount is SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:rw, not {mount!r}")
            mount = {"source": parts[0], "target": parts[1], "writable": parts[2:] == ["rw"]}
        source = os.path.realpath(mount["source"])
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        if again and os.readlink(f"/proc/self/fd/{fd}") != mount["source"]:
            os.close(fd)
            raise OSError(errno.ELOOP, "it is or lies below a symbolic link now; restore the directory, or make a new box", mount["source"])
        opened.append(_envelope(fd))
        result.append({**mount, "source": source, "fd": len(opened) - 1})
    return result


def create_body(**options: Any) -> Raw:
    """The options of a box as the server wants them."""
    limits = {k: options.pop(k) for k in ("memory", "cpus", "pids", "disk", "nofile") if options.get(k) is not None}
    net = net_body(options.pop("net", None), options.pop("allow", None), options.pop("deny", None))
    options["volumes"] = volumes_body(options.get("volumes"))
    options["secrets"] = secrets_body(options.get("secrets"))
    options["keys"] = keys_body(options.get("keys"))
    body: Raw = {k: dict(v) if isinstance(v, Mapping) else v for k, v in options.items() if v is not None}
    if limits:
        body["limits"] = limits
    if net is not None:
        body["net"] = net
    return body


class Box:
    """An isolated place to run code. As a context manager it is deleted at the end.

    Without `server` it uses the running server, or starts a private one. Sizes are bytes or texts like "512M", times are
    seconds or texts like "2h". Mounts are "SOURCE:TARGET[:ro|rw]". The template is what its kernels are made from; one
    that is only for commands needs none (None) and is a little smaller.

    requests={"cpus": 1.5, "memory": "2G"} is guaranteed: on a busy machine boxes share the processors in the ratio of their
    requests, and memory that is requested is promised to no other box. HostFull or QuotaExceeded say what is taken by what.

    It has no network unless something is allowed: allow=["index.example.org", "*.example.org:443", "10.1.0.0/16:5432"], deny
    with the same rules, net="public" for every public address, or the name of a network of the server. Rules with bounds:
    net={"allow": ["index.example.org"], "connections": 10, "bandwidth": "4M"}.

    packages=["numpy<2", "scikit-learn"], or the text of a requirements file: the box has a Python environment with these
    packages and ipykernel, instead of the template's. It is installed once, which takes a while, and shared from then on.
    python="3.12": for this interpreter, one of those that the server lists (Carrel.info()["pythons"]).

    volumes={"data": "/data", "uid:0/models": "/models:ro"}, or ["data:/data"]: directories that outlive the box, which
    Carrel.create_volume() makes.

    secrets={"hf": "HF_TOKEN", "cert": "/run/secrets/cert"}, or ["hf=HF_TOKEN"]: every process in the box gets these secrets of
    the server (Carrel.create_secret()), as a variable or as a file; no record has their values. What is in `env` is stored.

    keys=["OPENAI_API_KEY=openai@api.openai.com"]: requests to that one host carry the secret, which the box itself never has;
    in the box the variable is a placeholder. With another header: "KEY=claude@api.anthropic.com:x-api-key: {}"."""

    def __init__(self, *, server: "Carrel | None" = None, name: str | None = None, memory: str | int | None = None,
                 cpus: float | None = None, pids: int | None = None, disk: str | int | None = None, nofile: int | None = None,
                 profile: str | None = None, root: str | None = None, writable_root: bool | None = None, store: str | None = None, template: str | None = "python",
                 env: Mapping[str, str] | None = None, mounts: Sequence[Mount] | None = None, devices: Sequence[str] | None = None,
                 labels: Mapping[str, str] | None = None, ttl: str | float | None = None, idle_timeout: str | float | None = None,
                 on_idle: str | None = None, hostname: str | None = None, user: str | int | None = None,
                 requests: Mapping[str, Any] | None = None, net: str | Mapping[str, Any] | None = None,
                 allow: Sequence[str] | None = None, deny: Sequence[str] | None = None, packages: Sequence[str] | str | None = None,
                 python: str | None = None, volumes: Volumes | None = None,
                 secrets: Secrets | None = None, keys: Keys | None = None, idempotency_key: str | None = None, _raw: Raw | None = None):
        self._server = server or Carrel()
        self._transport = self._server._transport
        if _raw is None:
            body = create_body(name=name, memory=memory, cpus=cpus, pids=pids, disk=disk, nofile=nofile, profile=profile, root=root,
                               writable_root=writable_root, store=store, template=template, env=env, devices=list(devices) if devices else None, labels=labels, ttl=ttl, idle_timeout=idle_timeout,
                               on_idle=on_idle, hostname=hostname, user=user, requests=requests, net=net, allow=allow, deny=deny,
                               volumes=volumes, secrets=secrets, keys=keys, python=python,
                               packages=packages if isinstance(packages, str) or packages is None else list(packages))
            _raw = self._create(body, mounts or (), idempotency_key)
        self.raw: Raw = _raw
        self.id: str = _raw["id"]
        self._owner = os.getpid()
        self.files = Files(self)
        self.ports = Ports(self)

    def _create(self, body: Raw, mounts: Sequence[Mount], key: str | None) -> Raw:
        opened: List[int] = []
        try:
            if mounts:
                body["mounts"] = open_mounts(mounts, opened)
            headers = {"Idempotency-Key": key} if key else None
            raw: Raw = self._transport.call("POST", "/v1/boxes", json_body=body, headers=headers, fds=opened)
            return raw
        finally:
            for fd in opened:
                os.close(fd)

    @property
    def _path(self) -> str:
        return f"/v1/boxes/{segment(self.id)}"

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._owner:
            return  # a forked child that leaves the block: the box is its parent's
        try:
            self.delete()
        except NotFound:
            pass
        except CarrelError:
            if exc is None:  # otherwise the caller must see that error
                raise

    def __repr__(self) -> str:
        return f"<Box {self.id} {self.raw.get('phase')}>"

    def refresh(self) -> "Box":
        """Asks the server how the box is now. Returns the box."""
        self.raw = self._transport.call("GET", self._path)
        return self

    @property
    def name(self) -> str | None:
        """The name that it was given; None without one."""
        name: str | None = self.raw.get("name")
        return name

    @property
    def phase(self) -> str:
        """As it is now: creating, running, paused, stopped, failed, deleting, deleted."""
        return str(self.refresh().raw["phase"])

    def exec(self, argv: Sequence[str] | str, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
             timeout: str | float | None = None, stdin: str | bytes | None = None, output_limit: str | int | None = None,
             user: str | int | None = None, merge_stderr: bool = False, check: bool = False, secrets: Secrets | None = None) -> ExecResult:
        """Runs a command to its end. A string is a line for the shell. user: "UID[:GID]" in the box, if not the box's own.
        A cwd without a leading slash is below the home directory. merge_stderr: what it writes to standard error is in
        stdout, too, in the order in which it was written. output_limit: more output ends the command; without it it runs
        on, and the result has beginning and end (`truncated`). secrets: as for Box, for this command alone."""
        options: Raw = {"cwd": cwd, "env": env, "timeout": timeout, "output_limit": output_limit, "user": user,
                        "merge_stderr": merge_stderr, "secrets": secrets}
        if isinstance(stdin, str) and len(stdin) > MOST_INLINE:
            stdin = stdin.encode()
        if isinstance(stdin, bytes):
            result = self._exec_bytes(argv, stdin, options)
        else:
            result = exec_result(self._transport.call("POST", self._path + "/exec", json_body=command_body(argv, stdin=stdin, **options)))
        return result.check() if check else result

    def _exec_bytes(self, argv: Sequence[str] | str, stdin: bytes, options: Mapping[str, Any]) -> ExecResult:
        """With input that need not be text."""
        start = _Start(self, {**command_body(argv, stdin=True, **options), "background": True})
        try:
            command = start.command()
            try:
                command.write(stdin, close=True)
            except Conflict:
                pass  # it ended, or closed its input, before it had read everything
            return command.wait()
        except BaseException:
            # Ctrl-C, for example: no other code knows of the command.
            start.undo()
            raise

    def run(self, code: str, *, timeout: str | float | None = None, context: str | None = None, env: Mapping[str, str] | None = None,
            cwd: str | None = None, template: str | None = None, on_dead: str | None = None, output_limit: str | int | None = None,
            answer: Answer | None = None, check: bool = False, secrets: Secrets | None = None) -> Result:
        """Runs a cell of Python in a kernel of the box and returns everything. Variables stay for the next cell of the same context.

        A cell that raises is a result with `error`; one that ran longer than `timeout` seconds and was interrupted, or whose kernel died, says so in
        `outcome` and `reason`. With check=True each of these raises: CellFailed, RunTimeout, KernelDied. After a death the next cell gets a fresh
        kernel, or with on_dead="error" the same outcome again. `answer` is
        called with the prompt of an input() and whether it asks for a password. `env`, `cwd`, `template` and `secrets` (as for
        Box) are for a kernel that starts now."""
        options = {"timeout": timeout, "context": context, "env": env, "cwd": cwd, "template": template, "on_dead": on_dead, "secrets": secrets,
                   "output_limit": output_limit, "allow_stdin": True if answer else None}
        if answer is None:
            return made(result_of(self._transport.call("POST", self._path + "/run", json_body=run_body(code, options))), check)
        collector = Collector()
        events = self.stream(code, **options)
        try:
            for event in events:
                collector.take(event)
                if event.get("type") == "input_request":
                    said = answer(str(event.get("prompt", "")), bool(event.get("password")))
                    self.kernel(context or "default").input(said)
        finally:
            cast(Any, events).close()
        return made(collector.result(), check)

    def stream(self, code: str, **options: Any) -> Iterator[Raw]:
        """Runs a cell and yields its events as they happen: stdout, stderr, display, update_display, result, error, clear_output,
        input_request, and at last outcome, which also tells of a timeout or a death. Options as for run(), and allow_stdin.
        Ending the iteration early interrupts the cell."""
        if not isinstance(code, str):
            raise TypeError("stream() runs a cell of code; for a command there is exec_stream()")
        return self._transport.lines("POST", self._path + "/run", json_body=run_body(code, options))

    def kernel(self, context: str = "default") -> Kernel:
        """A kernel of the box by its name; several live side by side, each with its own variables."""
        return Kernel(self, context)

    def kernels(self) -> List[Raw]:
        """The kernels of the box that are there."""
        kernels: List[Raw] = self._transport.call("GET", self._path + "/kernels")["kernels"]
        return kernels

    def exec_stream(self, argv: Sequence[str] | str, **options: Any) -> Iterator[Raw]:
        """Runs a command and yields its events as they happen. Ending the iteration early ends the command."""
        return self._transport.lines("POST", self._path + "/exec", json_body=command_body(argv, **options))

    def spawn(self, argv: Sequence[str] | str, **options: Any) -> Exec:
        """Starts a command in the background: Exec.wait(), logs(), kill(). stdin=True keeps its input open for Exec.write()."""
        return Exec(self, self._transport.call("POST", self._path + "/exec", json_body={**command_body(argv, **options), "background": True}))

    def execs(self) -> List[Exec]:
        """The commands of the box, newest first."""
        return [Exec(self, raw) for raw in self._transport.call("GET", self._path + "/exec")["execs"]]

    def get_exec(self, id: str) -> Exec:
        """A command of the box by its id."""
        return Exec(self, self._transport.call("GET", f"{self._path}/exec/{segment(id)}"))

    def shell(self, line: str, **options: Any) -> ExecResult:
        """Runs a line with the shell."""
        return self.exec(line, **options)

    def _act(self, action: str) -> None:
        self.raw = self._transport.call("POST", f"{self._path}/{action}")

    def pause(self) -> None:
        """Freezes all its processes."""
        self._act("pause")

    def resume(self) -> None:
        """Lets a frozen box go on."""
        self._act("resume")

    def stop(self) -> None:
        """Ends its processes and keeps its files, which must be on disk (store="disk")."""
        self._act("stop")

    def start(self) -> None:
        """Starts it again. Its mounts are opened again, with the rights of this process."""
        self.refresh()
        opened: List[int] = []
        try:
            body: Raw = {}
            if self.raw["mounts"] and self.raw["phase"] != "running":
                body["mounts"] = open_mounts(self.raw["mounts"], opened, again=True)
            self.raw = self._transport.call("POST", f"{self._path}/start", json_body=body, fds=opened)
        finally:
            for fd in opened:
                os.close(fd)

    def update(self, **changes: Any) -> None:
        """Changes limits (a mapping), ttl, idle_timeout or labels; or, in a separate call, the network: net, allow, deny as for Box().
        That is then the whole network: rules that are not given are gone, and connections that are no longer allowed are cut. To
        add rules use add_rules()."""
        self.raw = self._transport.call("PATCH", self._path, json_body=update_body(changes))

    def add_rules(self, *, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        """Adds rules to the box's network, which keeps those that it has. Of two changes at the same time the last one holds."""
        now = self._transport.call("GET", self._path)["net"]
        self.raw = self._transport.call("PATCH", self._path, json_body={"net": added_body(now, allow, deny)})

    def net(self) -> Raw:
        """The box's network rules, its live connections, and its refused ones with the rules that would allow them."""
        shown: Raw = self._transport.call("GET", self._path + "/net")
        return shown

    def usage(self) -> Raw:
        """What it uses of memory, processors, disk and processes."""
        usage: Raw = self._transport.call("GET", self._path + "/usage")
        return usage

    def events(self) -> List[Raw]:
        """The events of the box so far."""
        events: List[Raw] = []
        after: int | None = 0
        while after is not None:
            page = self._transport.call("GET", self._path + "/events", query={"after": after, "limit": 1000})
            events += page["events"]
            after = page["next"]
        return events

    def watch(self, after: int = 0) -> Iterator[Raw]:
        """The events of the box, past and new ones as they happen."""
        return self._transport.sse(self._path + "/events", query={"after": after})

    def delete(self) -> None:
        """Deletes the box with all that is in it."""
        leases.drop(self.id)
        self._transport.call("DELETE", self._path)

    def leash(self, seconds: float = 120) -> "Box":
        """Has the box end with this process, even by kill -9: then the server deletes it within so many seconds. A private server does so at once,
        and anyway. Returns the box."""
        if not local.is_private(self._transport.url):
            leases.hold(self, seconds)
        return self

    @property
    def aio(self) -> "AsyncBox":
        """The same box for asyncio."""
        from .asyncclient import AsyncBox, AsyncCarrel
        return AsyncBox(server=AsyncCarrel(self._transport.url, self._transport.token), _raw=self.raw)


def command_body(argv: Sequence[str] | str, *, merge_stderr: bool = False, **options: Any) -> Raw:
    body: Raw = {"shell": (_MERGE if merge_stderr else "") + argv} if isinstance(argv, str) else {"argv": list(argv)}
    if merge_stderr and "argv" in body:
        body["argv"] = ["/bin/sh", "-c", *_MERGED, *body["argv"]]
    body.update({k: v for k, v in options.items() if v is not None})
    if "env" in body:
        body["env"] = dict(body["env"])
    if "secrets" in body:
        body["secrets"] = secrets_body(body["secrets"]) or []
    if "cwd" in body:
        body["cwd"] = absolute(body["cwd"])
    return body


def one_shot_body(code: str, timeout: str | float | None, options: Raw) -> Raw:
    """Of a cell together with its box."""
    return {**run_body(code, {"timeout": timeout}), **create_body(**options)}


class Carrel:
    """A server. Without url: the running one, or a private one that ends with this process."""

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float | None = None):
        self.url: str = url or local.any_server()
        self._transport = Transport(self.url, token or os.environ.get("CARREL_TOKEN"), timeout)

    def __repr__(self) -> str:
        return f"<Carrel {self.url}>"

    def create(self, **options: Any) -> Box:
        """Makes a box that lives until it is deleted. Options as for Box."""
        return Box(server=self, **options)

    def get(self, id_or_name: str) -> Box:
        """A box by its id or name."""
        return Box(server=self, _raw=self._transport.call("GET", f"/v1/boxes/{segment(id_or_name)}"))

    def run(self, code: str, *, timeout: str | float | None = None, mounts: Sequence[Mount] | None = None, check: bool = False,
            **options: Any) -> Result:
        """Runs a cell of Python in a box that is made for it and ends with it. Options as for Box and Box.run()."""
        body = one_shot_body(code, timeout, options)
        opened: List[int] = []
        try:
            if mounts:
                body["mounts"] = open_mounts(mounts, opened)
            return made(result_of(self._transport.call("POST", "/v1/run", json_body=body, fds=opened)), check)
        finally:
            for fd in opened:
                os.close(fd)

    def list(self, labels: Mapping[str, str] | None = None) -> List[Box]:
        """The caller's boxes, newest first."""
        boxes: List[Box] = []
        cursor = None
        while True:
            query = {"label": [f"{k}={v}" for k, v in (labels or {}).items()] or None, "cursor": cursor, "limit": 500}
            answer = self._transport.call("GET", "/v1/boxes", query=query)
            boxes += [Box(server=self, _raw=raw) for raw in answer["boxes"]]
            cursor = answer.get("next")
            if not cursor:
                return boxes

    def create_secret(self, name: str, value: str | bytes, *, replace: bool = False) -> Raw:
        """Keeps a value that processes in the caller's boxes can get: Box(secrets={name: "VARIABLE"}). Nothing shows it again. replace: one of
        that name gets this value, for processes that start later."""
        query = {"replace": "true"} if replace else None
        raw: Raw = decode(self._transport.open("PUT", secret_path(name), query=query, body=secret_bytes(value)).all())
        return raw

    def secrets(self) -> List[Raw]:
        """The caller's secrets: names, sizes and times."""
        listed: List[Raw] = self._transport.call("GET", "/v1/secrets")["secrets"]
        return listed

    def delete_secret(self, name: str) -> None:
        """Removes it. Processes that have its value keep it; later ones of boxes that use it are refused."""
        self._transport.call("DELETE", secret_path(name))

    def create_volume(self, name: str, *, size: str | int | None = None, many: bool | None = None,
                      shared_with: Shares | None = None) -> Volume:
        """Makes a volume: a directory that outlives boxes. size: "10G" by default. many: any number of boxes may write to
        it at once. shared_with: identities that may read it, or "all"."""
        check_stays(self.url)
        return Volume(self, self._transport.call("POST", "/v1/volumes", json_body=create_volume_body(name, size, many, shared_with)))

    def volume(self, name: str) -> Volume:
        """A volume by its name or id; one that another identity shares is OWNER/NAME."""
        return Volume(self, self._transport.call("GET", volume_path(name)))

    def volumes(self) -> List[Volume]:
        """The caller's volumes, and those that others share with it."""
        return [Volume(self, raw) for raw in self._transport.call("GET", "/v1/volumes")["volumes"]]

    def layers(self) -> List[Raw]:
        """The caller's layers of packages that the server has made: id, packages, versions, bytes, used_at, boxes."""
        listed: List[Raw] = self._transport.call("GET", "/v1/layers")["layers"]
        return listed

    def delete_layer(self, layer: str) -> None:
        """Removes one that no box uses, by its id. The next box with its packages has it made again."""
        self._transport.call("DELETE", layer_path(layer))

    def info(self) -> Raw:
        """What the server is and has: version, limits, templates, room."""
        info: Raw = self._transport.call("GET", "/v1/info")
        return info

    def me(self) -> Raw:
        """The caller's identity, its permissions, and its usage of the quota."""
        me: Raw = self._transport.call("GET", "/v1/me")
        return me
