"""Kernels of a gateway: a Carrel server, or a Jupyter Enterprise Gateway or Kernel Gateway.

REST starts and ends kernels; a cell goes over a WebSocket of its own in the older protocol, in which each message is one JSON text, because
every gateway speaks that."""
from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Callable, Dict, List, Literal, Mapping
from urllib.parse import quote
from uuid import uuid4

from ..dotenv import read_dotenv
from ..errors import Conflict, KernelDied, RunTimeout, Unavailable
from ..gateway import Gateway, Reply
from ..ws import AsyncWebSocket, WebSocket, WebSocketError, WebSocketRefused
from .base import BasePyBox, BasePyBoxManager
from .cell import ABORTED, ATTEMPTS, GRACE, Cell, Clock, execute_content
from .schema import Kernel, PyBoxOut, kernel_of, text_env

logger = logging.getLogger(__name__)

_START_SECONDS = 90.0       # a gateway on a cluster has to find a place for a kernel
_EXISTS = "Kernel already exists:"


def _kernel_path(kernel_id: str) -> str:
    return f"/api/kernels/{quote(kernel_id, safe='')}"


def _message(kind: str, content: Mapping[str, Any]) -> tuple[str, str]:
    """A request on the shell channel: its id and its text."""
    msg_id = uuid4().hex
    header = {"msg_id": msg_id, "msg_type": kind, "session": uuid4().hex, "username": "", "version": "5.3",
              "date": datetime.now(timezone.utc).isoformat()}
    return msg_id, json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": dict(content), "channel": "shell", "buffers": []})


class _Cell(Cell):
    """A request that is sent as text, and answers that come as text."""

    def __init__(self, kind: str, content: Mapping[str, Any]):
        msg_id, self.text = _message(kind, content)
        super().__init__(msg_id, kind)

    def take_text(self, message: str | bytes) -> None:
        try:
            raw = json.loads(message)
        except ValueError:
            return
        if isinstance(raw, dict):
            self.take(raw)


def _execute(code: str) -> _Cell:
    return _Cell("execute_request", execute_content(code))


class _GatewayPyBox(BasePyBox):
    """A kernel of a gateway, however it is talked to."""

    def __init__(self, kernel: Kernel, ws_url: str | None = None, gateway: Gateway | None = None):
        self.kernel = kernel
        self.gateway = gateway or Gateway(_host_of(ws_url))
        self.ws_url = ws_url or self.gateway.ws_url(kernel.id)
        self._forget: Callable[[str], None] = lambda kernel_id: None    # the manager's

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        return self.kernel.id


class RemotePyBox(_GatewayPyBox):
    """A kernel of a gateway. As a context manager it is shut down at the end."""

    def __enter__(self) -> "RemotePyBox":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        _shutdown(self.gateway, self.kernel_id)
        self._forget(self.kernel_id)
        return False

    def run(self, code: str, timeout: float | None = None, **kwargs: Any) -> PyBoxOut:
        """Runs code. TimeoutError after `timeout` seconds: the code is interrupted, the kernel keeps its state. carrel.KernelDied
        if the kernel ends, or has ended."""
        for _ in range(ATTEMPTS):
            cell = _execute(code)
            self._exchange(cell, timeout, interrupt=True)
            if not cell.aborted:
                return cell.finish()
        raise Conflict(ABORTED, code="aborted")

    def handle_init_message(self, timeout: float = _START_SECONDS) -> None:
        """Waits until the kernel answers."""
        self._exchange(_Cell("kernel_info_request", {}), timeout, interrupt=False)

    def _exchange(self, cell: _Cell, timeout: float | None, interrupt: bool) -> None:
        clock = Clock(timeout)
        with self._connect() as ws:
            try:
                ws.send(cell.text)
                while not cell.done:
                    try:
                        cell.take_text(ws.recv(clock.wait(cell)))
                    except TimeoutError:
                        if clock.over:
                            self._give_up(ws, cell, interrupt)
                        if clock.stuck():
                            return
                        self._look()
            except WebSocketError as e:
                self._look()
                raise Unavailable(f"the gateway ended the connection: {e}") from e

    def _connect(self) -> WebSocket:
        try:
            return WebSocket(self.ws_url, headers=self.gateway.ws_fields(), unix=self.gateway.address.unix, timeout=60)
        except WebSocketRefused as e:
            if e.status == 404:
                raise KernelDied(f"there is no kernel {self.kernel_id} any more", "gone") from e
            raise

    def _look(self) -> None:
        """KernelDied if the kernel is not there."""
        try:
            raw = self.gateway.call("GET", _kernel_path(self.kernel_id))
        except Reply as e:
            _judge_look(self.kernel_id, e.status, None)
            return
        _judge_look(self.kernel_id, 200, raw)

    def _give_up(self, ws: WebSocket, cell: _Cell, interrupt: bool) -> None:
        if not interrupt:
            raise RunTimeout(f"kernel {self.kernel_id} does not answer")
        self.interrupt()
        end = time.monotonic() + GRACE
        while not cell.idle and time.monotonic() < end:
            try:
                cell.take_text(ws.recv(max(end - time.monotonic(), 0.001)))
            except TimeoutError:
                break
        raise cell.timed_out()

    def interrupt(self) -> None:
        """Interrupts what runs."""
        try:
            self.gateway.call("POST", _kernel_path(self.kernel_id) + "/interrupt", {})
        except Reply as e:
            logger.warning("kernel %s could not be interrupted: %s", self.kernel_id, e)


class AsyncRemotePyBox(_GatewayPyBox):
    """The same for asyncio."""

    async def __aenter__(self) -> "AsyncRemotePyBox":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        await _ashutdown(self.gateway, self.kernel_id)
        self._forget(self.kernel_id)
        return False

    async def run(self, code: str, timeout: float | None = 300, **kwargs: Any) -> PyBoxOut:
        """As RemotePyBox.run(). Cancelling it interrupts the code."""
        for _ in range(ATTEMPTS):
            cell = _execute(code)
            try:
                await self._exchange(cell, timeout, interrupt=True)
            except asyncio.CancelledError:
                await asyncio.shield(self.interrupt())
                raise
            if not cell.aborted:
                return cell.finish()
        raise Conflict(ABORTED, code="aborted")

    async def ahandle_init_message(self, timeout: float = _START_SECONDS) -> None:
        """Waits until the kernel answers."""
        await self._exchange(_Cell("kernel_info_request", {}), timeout, interrupt=False)

    async def _exchange(self, cell: _Cell, timeout: float | None, interrupt: bool) -> None:
        clock = Clock(timeout)
        async with await self._connect() as ws:
            try:
                await ws.send(cell.text)
                while not cell.done:
                    try:
                        cell.take_text(await ws.recv(clock.wait(cell)))
                    except TimeoutError:
                        if clock.over:
                            await self._give_up(ws, cell, interrupt)
                        if clock.stuck():
                            return
                        await self._look()
            except WebSocketError as e:
                await self._look()
                raise Unavailable(f"the gateway ended the connection: {e}") from e

    async def _connect(self) -> AsyncWebSocket:
        try:
            return await AsyncWebSocket.connect(self.ws_url, headers=self.gateway.ws_fields(), unix=self.gateway.address.unix, timeout=60)
        except WebSocketRefused as e:
            if e.status == 404:
                raise KernelDied(f"there is no kernel {self.kernel_id} any more", "gone") from e
            raise

    async def _look(self) -> None:
        try:
            raw = await self.gateway.acall("GET", _kernel_path(self.kernel_id))
        except Reply as e:
            _judge_look(self.kernel_id, e.status, None)
            return
        _judge_look(self.kernel_id, 200, raw)

    async def _give_up(self, ws: AsyncWebSocket, cell: _Cell, interrupt: bool) -> None:
        if not interrupt:
            raise RunTimeout(f"kernel {self.kernel_id} does not answer")
        await self.interrupt()
        end = time.monotonic() + GRACE
        while not cell.idle and time.monotonic() < end:
            try:
                cell.take_text(await ws.recv(max(end - time.monotonic(), 0.001)))
            except TimeoutError:
                break
        raise cell.timed_out()

    async def interrupt(self) -> None:
        """Interrupts what runs."""
        try:
            await self.gateway.acall("POST", _kernel_path(self.kernel_id) + "/interrupt", {})
        except Reply as e:
            logger.warning("kernel %s could not be interrupted: %s", self.kernel_id, e)


def _host_of(ws_url: str | None) -> str:
    if ws_url is None:
        raise ValueError("either ws_url or gateway must say where the kernel is")
    return ws_url.replace("ws", "http", 1).split("/api/kernels/")[0]


def _judge_look(kernel_id: str, status: int, raw: Any) -> None:
    if status == 404:
        raise KernelDied(f"there is no kernel {kernel_id} any more", "gone")
    if isinstance(raw, dict) and raw.get("execution_state") == "dead":
        raise KernelDied(f"kernel {kernel_id} is dead")


def _shutdown(gateway: Gateway, kernel_id: str) -> None:
    try:
        gateway.call("DELETE", _kernel_path(kernel_id))
    except Reply as e:
        _judge_shutdown(kernel_id, e)


async def _ashutdown(gateway: Gateway, kernel_id: str) -> None:
    try:
        await gateway.acall("DELETE", _kernel_path(kernel_id))
    except Reply as e:
        _judge_shutdown(kernel_id, e)
    finally:
        await gateway.aclose()


def _judge_shutdown(kernel_id: str, reply: Reply) -> None:
    if reply.status != 404:
        raise RuntimeError(f"Error deleting kernel {kernel_id}: {reply}")
    logger.warning("kernel %s not found", kernel_id)


class _Manager(BasePyBoxManager):
    """Shared by both managers."""

    def __init__(self, host: str, env_file: str | os.PathLike[str] | None = None, kernel_env: Mapping[str, Any] | None = None, *,
                 token: str | None = None, kernel_name: str | None = None):
        self.host = host
        self.env_file = env_file
        self.kernel_env: Dict[str, str] = {**(read_dotenv(env_file) if env_file else {}), **text_env(kernel_env or {})}
        self.kernel_name = kernel_name
        self._token = token
        self._gateway = Gateway(host, token)
        self._started: List[str] = []

    def get_ws_url(self, kernel_id: str) -> str:
        """The WebSocket address of a kernel's channels."""
        return self._gateway.ws_url(kernel_id)

    def _request(self, kernel_id: str | None, cwd: str | os.PathLike[str] | None, env: Mapping[str, Any] | None) -> Dict[str, Any]:
        variables = {**self.kernel_env, **text_env(env or {})}
        if kernel_id:
            variables["KERNEL_ID"] = kernel_id
        if cwd:
            variables["KERNEL_WORKING_DIR"] = os.fspath(cwd)
        return {"env": variables, **({"name": self.kernel_name} if self.kernel_name else {})}

    def _note(self, kernel_id: str) -> None:
        if kernel_id not in self._started:
            self._started.append(kernel_id)

    def _forget(self, kernel_id: str) -> None:
        if kernel_id in self._started:
            self._started.remove(kernel_id)


def _exists(kernel_id: str | None, reply: Reply) -> bool:
    return kernel_id is not None and (reply.status == 409 or _EXISTS.encode() in reply.body)


def _refused(reply: Reply) -> RuntimeError:
    return RuntimeError(f"Error starting kernel: {reply}")


class RemotePyBoxManager(_Manager):
    """Kernels of a gateway at `host` (http://HOST:PORT). `env_file` names a file of variables for the kernels, `kernel_env` gives them
    directly and is stronger; `token` is for a gateway that asks for one. As a context manager it ends the kernels that it started."""

    def __enter__(self) -> "RemotePyBoxManager":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        self.shutdown_all()
        return False

    def start(self, kernel_id: str | None = None, cwd: str | os.PathLike[str] | None = None, *, env: Mapping[str, Any] | None = None,
              **kwargs: Any) -> RemotePyBox:
        """The kernel of that id; a new one if it is missing or dead."""
        request = self._request(kernel_id, cwd, env)
        kernel = self._create(request, kernel_id)
        if kernel.execution_state == "dead":
            _shutdown(self._gateway, kernel.id)
            kernel = self._create(request, kernel_id)
        box = RemotePyBox(kernel, self.get_ws_url(kernel.id), self._gateway)
        box._forget = self._forget
        if kernel.execution_state not in ("idle", "busy"):
            box.handle_init_message()
        return box

    def _create(self, request: Dict[str, Any], kernel_id: str | None) -> Kernel:
        try:
            kernel = kernel_of(self._gateway.call("POST", "/api/kernels", request, timeout=_START_SECONDS))
            self._note(kernel.id)
            return kernel
        except Reply as e:
            if not _exists(kernel_id, e):
                raise _refused(e) from None
        assert kernel_id is not None
        try:
            return kernel_of(self._gateway.call("GET", _kernel_path(kernel_id)))
        except Reply as e:
            raise _refused(e) from None

    def shutdown(self, kernel_id: str, **kwargs: Any) -> None:
        """Ends a kernel."""
        _shutdown(self._gateway, kernel_id)
        self._forget(kernel_id)

    def shutdown_all(self, now: bool = False) -> None:
        """Those that this manager started."""
        for kernel_id in list(self._started):
            self.shutdown(kernel_id)


class AsyncRemotePyBoxManager(_Manager):
    """The same for asyncio."""

    async def __aenter__(self) -> "AsyncRemotePyBoxManager":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        await self.shutdown_all()
        return False

    async def start(self, kernel_id: str | None = None, cwd: str | os.PathLike[str] | None = None, *,
                    env: Mapping[str, Any] | None = None, **kwargs: Any) -> AsyncRemotePyBox:
        """Starts a kernel, or takes the one that has this id."""
        request = self._request(kernel_id, cwd, env)
        kernel = await self._create(request, kernel_id)
        if kernel.execution_state == "dead":
            await _ashutdown(self._gateway, kernel.id)
            kernel = await self._create(request, kernel_id)
        box = AsyncRemotePyBox(kernel, self.get_ws_url(kernel.id), self._gateway)
        box._forget = self._forget
        if kernel.execution_state not in ("idle", "busy"):
            await box.ahandle_init_message()
        return box

    async def _create(self, request: Dict[str, Any], kernel_id: str | None) -> Kernel:
        try:
            kernel = kernel_of(await self._gateway.acall("POST", "/api/kernels", request, timeout=_START_SECONDS))
            self._note(kernel.id)
            return kernel
        except Reply as e:
            if not _exists(kernel_id, e):
                raise _refused(e) from None
        assert kernel_id is not None
        try:
            return kernel_of(await self._gateway.acall("GET", _kernel_path(kernel_id)))
        except Reply as e:
            raise _refused(e) from None

    async def shutdown(self, kernel_id: str, **kwargs: Any) -> None:
        """Ends a kernel."""
        await _ashutdown(self._gateway, kernel_id)
        self._forget(kernel_id)

    async def shutdown_all(self, now: bool = False) -> None:
        """Ends all that this manager has started."""
        for kernel_id in list(self._started):
            await self.shutdown(kernel_id)
