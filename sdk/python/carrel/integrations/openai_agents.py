"""A sandbox client for the OpenAI Agents SDK, on this machine:

    from carrel.integrations.openai_agents import CarrelSandboxClient

    config = RunConfig(sandbox=SandboxRunConfig(client=CarrelSandboxClient(memory="1G")))
    result = await Runner.run(agent, "...", run_config=config)
"""
from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Literal, Optional, Set, Tuple

from ..asyncclient import AsyncBox, AsyncCarrel
from ..asyncexec import AsyncExec
from ..client import Box, Carrel, event_bytes, exec_result
from ..client import ExecResult as BoxResult
from ..errors import CarrelError, FileMissing, NotFound
from ..ports import Forward
from .common import close_async_box, make_async_box, needs, why

with needs("openai_agents", "openai-agents", "0.24"):
    from agents.sandbox.errors import (ConfigurationError, ErrorCode, ExecTimeoutError, ExecTransportError,
                                       ExposedPortUnavailableError, WorkspaceArchiveReadError,
                                       WorkspaceArchiveWriteError, WorkspaceReadNotFoundError)
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import SandboxSession, SandboxSessionState
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.dependencies import Dependencies
    from agents.sandbox.session.manager import Instrumentation
    from agents.sandbox.session.pty_output import collect_pty_output
    from agents.sandbox.session.pty_types import (PTY_PROCESSES_MAX, PtyExecUpdate, allocate_pty_process_id,
                                                  clamp_pty_yield_time_ms, process_id_to_prune_from_meta,
                                                  resolve_pty_write_yield_time_ms)
    from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
    from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
    from agents.sandbox.session.workspace_payloads import coerce_write_payload
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
    from agents.sandbox.util.tar_utils import UnsafeTarMemberError, should_skip_tar_member, validate_tarfile
    from agents.sandbox.workspace_paths import sandbox_path_str

_USUAL_ROOT = "/workspace"              # of a manifest without one; the root of a box is read-only
_ROOT = "/home/box/workspace"


def _invalid(message: str, op: Any, cause: BaseException | None = None) -> ConfigurationError:
    return ConfigurationError(message=message, error_code=ErrorCode.SANDBOX_CONFIG_INVALID, op=op,
                              context={"backend": "carrel"}, cause=cause)


def _ids(user: str | User | None) -> str | None:
    """The box's ids of a user. There are two: its own, and root, which has no capabilities."""
    name = user.name if isinstance(user, User) else user
    if name is None or name == "box":
        return None
    if name == "root" or name.isdecimal():
        return "0:0" if name == "root" else name
    raise _invalid(f"a box has no user {name!r}: use 'box', 'root' or the number of one", "exec")


class CarrelSandboxSessionState(SandboxSessionState):
    type: Literal["carrel"] = "carrel"
    box_id: str
    box_options: Dict[str, Any] = {}


class CarrelSandboxClientOptions(BaseSandboxClientOptions):
    """Ports that may be resolved, and options of Box beside those of the client."""

    type: Literal["carrel"] = "carrel"
    exposed_ports: Tuple[int, ...] = ()
    box: Dict[str, Any] = {}


class _Terminal:
    """A command that outlives its call."""

    def __init__(self, command: AsyncExec, tty: bool):
        self.command = command
        self.tty = tty
        self.last_used = time.monotonic()
        self.chunks: Deque[bytes] = deque()
        self.lock = asyncio.Lock()
        self.notify = asyncio.Event()
        self.closed = asyncio.Event()
        self.exit_code: Optional[int] = None
        self.pump = asyncio.ensure_future(self._pump())

    async def _pump(self) -> None:
        try:
            async for event in self.command.output():
                if event["type"] in ("stdout", "stderr"):
                    async with self.lock:
                        self.chunks.append(event_bytes(event))
                    self.notify.set()
            result = exec_result((await self.command.refresh()).raw)
            if why(result):
                self.chunks.append(f"\n{why(result)}\n".encode())
            self.exit_code = result.exit_code
        except CarrelError as e:
            self.chunks.append(f"\n{e}\n".encode())
            self.exit_code = 125
        finally:
            self.closed.set()
            self.notify.set()

    async def end(self) -> None:
        self.pump.cancel()
        with contextlib.suppress(CarrelError):
            await self.command.kill()
        await asyncio.gather(self.pump, return_exceptions=True)


class CarrelSandboxSession(BaseSandboxSession):
    """One box."""

    state: CarrelSandboxSessionState

    def __init__(self, box: AsyncBox, state: CarrelSandboxSessionState):
        self.box = box
        self.state = state
        self._ready = False
        self._terminals: Dict[int, _Terminal] = {}
        self._forwards: Dict[int, Forward] = {}

    # ---- life ----

    async def _prepare_backend_workspace(self) -> None:
        try:
            await self.box.files.mkdir(self.state.manifest.root)
        except CarrelError as e:
            raise _invalid(
                f"the box cannot have its workspace there: {e}; leave the manifest's root out, or use one in /home/box",
                "start", e) from e
        self._ready = True

    async def provision_manifest_accounts(self) -> None:
        if self.state.manifest.users or self.state.manifest.groups:
            raise _invalid("a box cannot have further users or groups; leave them out of the manifest", "start")

    def _runtime_helpers(self) -> Tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    async def running(self) -> bool:
        try:
            return (await self.box.refresh()).raw["phase"] == "running"
        except CarrelError:
            return False

    async def _shutdown_backend(self) -> None:
        for forward in self._forwards.values():
            forward.close()
        self._forwards.clear()
        await close_async_box(self.box)

    # ---- commands ----

    def _prepare_exec_command(self, *command: str | Path, shell: Any, user: str | User | None) -> list[str]:
        # Not a login shell: that would forget the box's PATH.
        return list(super()._prepare_exec_command(*command, shell=["sh", "-c"] if shell is True else shell, user=None))

    async def _options(self, user: str | User | None = None) -> Dict[str, Any]:
        root = self.state.manifest.root
        return {
            "cwd": root if self._ready else None, "env": await self.state.manifest.environment.resolve(),
            "user": _ids(user)
        }

    async def exec(self, *command: str | Path, timeout: float | None = None, shell: bool | list[str] = True,
                   user: str | User | None = None) -> ExecResult:
        return await self._run(self._prepare_exec_command(*command, shell=shell, user=None), timeout, user)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._run([str(word) for word in command], timeout, None)

    async def _run(self, argv: list[str], timeout: float | None, user: str | User | None,
                   stdin: bytes | None = None) -> ExecResult:
        try:
            result: BoxResult = await self.box.exec(argv, timeout=timeout, stdin=stdin, **await self._options(user))
        except CarrelError as e:
            raise ExecTransportError(command=argv, context={"detail": str(e)}, cause=e) from e
        if result.outcome == "timeout":
            raise ExecTimeoutError(command=argv, timeout_s=timeout)
        reason = why(result)
        out, err = [result.shown(name).encode() if result.truncated else getattr(result, name + "_bytes")
                    for name in ("stdout", "stderr")]
        return ExecResult(stdout=out, stderr=err + (f"\n{reason}\n".encode() if reason else b""), exit_code=result.exit_code)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(self, *command: str | Path, timeout: float | None = None, shell: bool | list[str] = True,
                             user: str | User | None = None, tty: bool = False, yield_time_s: float | None = None,
                             max_output_tokens: int | None = None) -> PtyExecUpdate:
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        try:
            options = {"tty": True, "stdin": True} if tty else {}
            terminal = _Terminal(await self.box.spawn(argv, timeout=timeout, **options, **await self._options(user)),
                                 tty)
        except CarrelError as e:
            raise ExecTransportError(command=argv, context={"detail": str(e)}, cause=e) from e
        if len(self._terminals) >= PTY_PROCESSES_MAX:
            oldest = process_id_to_prune_from_meta([(n, t.last_used, t.closed.is_set())
                                                    for n, t in self._terminals.items()])
            if oldest is not None:
                await self._terminals.pop(oldest).end()
        number = allocate_pty_process_id(set(self._terminals))
        self._terminals[number] = terminal
        wait_ms = clamp_pty_yield_time_ms(10_000 if yield_time_s is None else int(yield_time_s * 1000))
        return await self._update(number, terminal, wait_ms, max_output_tokens)

    async def pty_write_stdin(self, *, session_id: int, chars: str, yield_time_s: float | None = None,
                              max_output_tokens: int | None = None) -> PtyExecUpdate:
        terminal = self._resolve_pty_session_entry(pty_processes=self._terminals, session_id=session_id)
        if chars:
            if not terminal.tty:
                raise RuntimeError("stdin is not available for this process")
            with contextlib.suppress(CarrelError):      # it has ended; its output comes below
                await terminal.command.write(chars.encode())
        wait_ms = resolve_pty_write_yield_time_ms(
            yield_time_ms=250 if yield_time_s is None else int(yield_time_s * 1000), input_empty=chars == "")
        terminal.last_used = time.monotonic()
        return await self._update(session_id, terminal, wait_ms, max_output_tokens)

    async def _update(self, number: int, terminal: _Terminal, wait_ms: int, tokens: int | None) -> PtyExecUpdate:
        output, count, closed = await collect_pty_output(output_chunks=terminal.chunks, output_lock=terminal.lock,
                                                         output_notify=terminal.notify, is_done=terminal.closed.is_set,
                                                         yield_time_ms=wait_ms, max_output_tokens=tokens)
        exit_code = terminal.exit_code if closed else None
        if exit_code is not None and self._terminals.pop(number, None) is not None:
            await terminal.end()
        return PtyExecUpdate(process_id=None if exit_code is not None else number, output=output, exit_code=exit_code,
                             original_token_count=count)

    async def pty_terminate_all(self) -> None:
        terminals, self._terminals = list(self._terminals.values()), {}
        for terminal in terminals:
            await terminal.end()

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            if port not in self._forwards:
                box = Box(server=Carrel(self.box._transport.url, self.box._transport.token), _raw=self.box.raw)
                self._forwards[port] = box.ports.forward(port)
        except (CarrelError, OSError) as e:
            raise ExposedPortUnavailableError(port=port, exposed_ports=self.state.exposed_ports,
                                              reason="backend_unavailable", cause=e) from e
        return ExposedPortEndpoint(host="127.0.0.1", port=self._forwards[port].port, tls=False)

    # ---- files ----

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        place = await self._validate_path_access(path)
        try:
            if _ids(user) is None:
                return io.BytesIO(await self.box.files.read(sandbox_path_str(place)))
        except FileMissing as e:
            raise WorkspaceReadNotFoundError(path=path, cause=e) from e
        except CarrelError as e:
            raise WorkspaceArchiveReadError(path=path, context={"detail": str(e)}, cause=e) from e
        place = await self._check_read_with_exec(path, user=user)
        return io.BytesIO((await self._run(["cat", "--", sandbox_path_str(place)], None, user)).stdout)

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        place = sandbox_path_str(await self._validate_path_access(path, for_write=True))
        content = coerce_write_payload(path=path, data=data).stream.read()
        try:
            if _ids(user) is None:
                await self.box.files.write(place, content)
                return
        except CarrelError as e:
            raise WorkspaceArchiveWriteError(path=path, context={"detail": str(e)}, cause=e) from e
        result = await self._run(["/bin/sh", "-c", 'cat >"$1"', "sh", place], None, user, content)
        if not result.ok():
            raise WorkspaceArchiveWriteError(path=path, context={"stderr": result.stderr.decode("utf-8", "replace")})

    async def persist_workspace(self) -> io.IOBase:
        skip: Set[Path] = self._persist_workspace_skip_relpaths()
        root = Path(self.state.manifest.root)
        try:
            found = await self.box.files.get_archive(sandbox_path_str(root))
        except CarrelError as e:
            raise WorkspaceArchiveReadError(path=root, context={"detail": str(e)}, cause=e) from e
        return await asyncio.to_thread(_without, found, skip)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = Path(self.state.manifest.root)
        content: bytes = data.read()
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
                validate_tarfile(archive, allow_external_symlink_targets=False)
            await self.box.files.mkdir(sandbox_path_str(root))
            await self.box.files.put_archive(sandbox_path_str(root), content)
        except UnsafeTarMemberError as e:
            raise WorkspaceArchiveWriteError(path=root, context={"reason": e.reason, "member": e.member},
                                             cause=e) from e
        except (tarfile.TarError, CarrelError) as e:
            raise WorkspaceArchiveWriteError(path=root, context={"detail": str(e)}, cause=e) from e


def _without(content: bytes, skip: Set[Path]) -> io.BytesIO:
    """An archive without some of its members, and only with files, directories and links."""
    result = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content)) as source, tarfile.open(fileobj=result, mode="w") as target:
        for member in source:
            if should_skip_tar_member(member.name, skip_rel_paths=skip,
                                      root_name=None) or not (member.isreg() or member.isdir() or member.issym()):
                continue
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
    result.seek(0)
    return result


class CarrelSandboxClient(BaseSandboxClient[Optional[CarrelSandboxClientOptions]]):
    """Makes a box for each session. Further options are those of Box."""

    backend_id = "carrel"
    supports_default_options = True

    def __init__(self, *, instrumentation: Instrumentation | None = None, dependencies: Dependencies | None = None,
                 **options: Any):
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies
        self._options = options

    async def _make(self, options: Dict[str, Any]) -> AsyncBox:
        try:
            return await make_async_box(**options)
        except (CarrelError, TypeError, ValueError, OSError) as e:
            raise _invalid(f"no box could be made: {e}", "start", e) from e

    def _session(self, box: AsyncBox, state: CarrelSandboxSessionState) -> SandboxSession:
        return self._wrap_session(CarrelSandboxSession(box, state), instrumentation=self._instrumentation)

    async def create(self, *, snapshot: SnapshotSpec | SnapshotBase | None = None, manifest: Manifest | None = None,
                     options: CarrelSandboxClientOptions | None = None) -> SandboxSession:
        manifest = manifest or Manifest()
        self._validate_manifest_for_create(manifest)
        if any(grant.host_path is not None for grant in manifest.extra_path_grants):
            raise ValueError(
                "a path grant with a host_path is a mount of the box: CarrelSandboxClient(mounts=['/here:/there:ro'])"
            )
        if manifest.root == _USUAL_ROOT:
            manifest = manifest.model_copy(update={"root": _ROOT}, deep=True)
        wanted = options or CarrelSandboxClientOptions()
        chosen = {**self._options, **wanted.box}
        box = await self._make(chosen)
        try:
            number = uuid.uuid4()
            state = CarrelSandboxSessionState(session_id=number, manifest=manifest,
                                              snapshot=resolve_snapshot(snapshot, str(number)), box_id=box.id,
                                              box_options=wanted.box, exposed_ports=wanted.exposed_ports)
            return self._session(box, state)
        except BaseException:
            await close_async_box(box)
            raise

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, CarrelSandboxSession):
            raise TypeError("CarrelSandboxClient.delete expects a CarrelSandboxSession")
        await inner._shutdown_backend()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The box, if it still runs; else another one, whose workspace comes from the snapshot."""
        if not isinstance(state, CarrelSandboxSessionState):
            raise TypeError("CarrelSandboxClient.resume expects a CarrelSandboxSessionState")
        state.assert_path_grants_rebound()
        try:
            box = await AsyncCarrel().get(state.box_id)
            is_there = box.raw["phase"] == "running"
        except NotFound:
            is_there = False
        if not is_there:
            box = await self._make({**self._options, **state.box_options})
            state = state.model_copy(update={"box_id": box.id, "workspace_root_ready": False})
        session = CarrelSandboxSession(box, state)
        session._set_start_state_preserved(is_there)
        return self._wrap_session(session, instrumentation=self._instrumentation)

    def deserialize_session_state(self, payload: Dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, CarrelSandboxSessionState)
