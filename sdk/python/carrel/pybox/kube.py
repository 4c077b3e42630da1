"""Kernels in a Kubernetes cluster: Kernel objects (cluster.py) that carrel-controller turns into pods, and ZeroMQ straight to them.

In a pod of the cluster a kernel is reached at its pod's address, elsewhere through the API server (forward.py)."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty
from types import TracebackType
from typing import Any, Callable, Dict, List, Literal, Mapping
from uuid import uuid4

from ..dotenv import read_dotenv
from ..errors import CarrelError, Conflict, KernelDied, RunTimeout
from .base import BasePyBox, BasePyBoxManager
from .cell import ABORTED, ATTEMPTS, GRACE, Cell, Clock, execute_content
from .cluster import PORTS, Cluster, Place, why_ended
from .forward import Forward
from .schema import PyBoxOut, text_env

logger = logging.getLogger(__name__)

_START_SECONDS = 120.0
_ASK_AGAIN = 1.0        # a pod is ready before its kernel has bound its sockets


class KubePyBox(BasePyBox):
    """A kernel of a cluster. As a context manager it is shut down at the end."""

    def __init__(self, place: Place, cluster: Cluster, direct: bool):
        from jupyter_client import BlockingKernelClient

        self.place = place
        self._cluster = cluster
        self._forget: Callable[[str], None] = lambda kernel_id: None        # the manager's
        self._forward: Forward | None = None
        self._closed = False
        info = {**place.connection, "key": place.key, "ip": place.pod_ip, "transport": "tcp"}
        if not direct:
            self._forward = Forward(cluster.configuration, place.name, place.namespace, [int(place.connection[p]) for p in PORTS])
            info.update({p: self._forward.ports[int(place.connection[p])] for p in PORTS}, ip="127.0.0.1")
        self._client = BlockingKernelClient()
        self._client.load_connection_info(info)
        self._client.start_channels(shell=True, iopub=True, stdin=False, hb=False, control=True)

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        return self.place.kernel_id

    def __enter__(self) -> "KubePyBox":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        self.shutdown()
        return False

    def shutdown(self) -> None:
        """Ends the kernel."""
        self.close()
        if not self._cluster.delete(self.place.name, self.place.namespace):
            logger.warning("kernel %s not found", self.kernel_id)
        self._forget(self.kernel_id)

    def close(self) -> None:
        """Lets go of the kernel, which lives on."""
        self._closed = True
        self._client.stop_channels()
        if self._forward is not None:
            self._forward.close()

    def run(self, code: str, timeout: float | None = None, **kwargs: Any) -> PyBoxOut:
        """Runs code. TimeoutError after `timeout` seconds: the code is interrupted, the kernel keeps its state. carrel.KernelDied
        if the kernel ends, or has ended."""
        for _ in range(ATTEMPTS):
            cell = self._send("shell", "execute_request", execute_content(code))
            try:
                self._exchange(cell, Clock(timeout))
            except KeyboardInterrupt:
                self.interrupt()
                raise
            if not cell.aborted:
                return cell.finish()
        raise Conflict(ABORTED, code="aborted")

    def interrupt(self) -> None:
        """Interrupts what runs."""
        self._send("control", "interrupt_request", {})

    def wait_ready(self, seconds: float) -> None:
        """Until the kernel answers and its messages reach us. An idle on iopub proves that our subscription works."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            cell = self._send("shell", "kernel_info_request", {})
            again = time.monotonic() + _ASK_AGAIN
            while not cell.done and time.monotonic() < again:
                self._take(cell, max(again - time.monotonic(), 0.001))
            if cell.done:
                return
            self._look()
        raise RunTimeout(f"kernel {self.kernel_id} does not answer")

    def check_open(self) -> None:
        if self._closed:
            raise KernelDied(f"kernel {self.kernel_id} was shut down, or let go of", "gone")

    def _send(self, channel: str, kind: str, content: Mapping[str, Any]) -> Cell:
        self.check_open()
        message = self._client.session.msg(kind, dict(content))
        getattr(self._client, f"{channel}_channel").send(message)
        return Cell(message["header"]["msg_id"], kind)

    def _take(self, cell: Cell, seconds: float) -> bool:
        """Takes the next message on iopub, and the reply if it has come. False if nothing came."""
        with contextlib.suppress(Empty):
            while True:
                cell.take(self._client.get_shell_msg(timeout=0))
        try:
            # The reply has no iopub message after it: a caller that waits for both checks shell again soon.
            cell.take(self._client.get_iopub_msg(timeout=min(seconds, 0.05) if cell.idle else seconds))
            return True
        except Empty:
            return False

    def _exchange(self, cell: Cell, clock: Clock) -> None:
        silent_since = time.monotonic()
        while not cell.done:
            wait = clock.wait(cell)
            if self._take(cell, wait):
                silent_since = time.monotonic()
                continue
            if clock.over:
                self._give_up(cell)
            if clock.stuck():
                return
            if not cell.done and time.monotonic() - silent_since >= wait:
                self._look()
                silent_since = time.monotonic()

    def _give_up(self, cell: Cell) -> None:
        self.interrupt()
        end = time.monotonic() + GRACE
        while not cell.idle and time.monotonic() < end:
            self._take(cell, max(end - time.monotonic(), 0.001))
        raise cell.timed_out()

    def _look(self) -> None:
        """KernelDied if the kernel's pod is not there, or has ended."""
        pod = self._cluster.pod(self.place.name, self.place.namespace)
        if pod is None or pod.metadata.deletion_timestamp:
            raise KernelDied(f"there is no kernel {self.kernel_id} any more", "gone")
        ended = why_ended(pod)
        if ended:
            raise ended


class KubePyBoxManager(BasePyBoxManager):
    """Kernels of a Kubernetes cluster that runs carrel-controller.

    `env_file` names a file of variables for the kernels, `kernel_env` gives them directly and is stronger. KERNEL_IMAGE, KERNEL_NAMESPACE,
    KERNEL_USERNAME, KERNEL_WORKING_DIR, KERNEL_VOLUMES, KERNEL_VOLUME_MOUNTS, KERNEL_CPUS, KERNEL_MEMORY (and ..._LIMIT) describe the pod.
    `direct`: connect to pods' addresses; by default only in a pod. As a context manager it ends the kernels that it started."""

    def __init__(self, env_file: str | os.PathLike[str] | None = None, kernel_env: Mapping[str, Any] | None = None, *,
                 incluster: bool | None = None, direct: bool | None = None):
        if kernel_env is not None and not isinstance(kernel_env, Mapping):
            raise TypeError(f"kernel_env is a mapping of variables, like {{'KERNEL_NAMESPACE': 'default'}}, not {kernel_env!r}")
        self.env_file = env_file
        self.kernel_env: Dict[str, str] = {**(read_dotenv(env_file) if env_file else {}), **text_env(kernel_env or {})}
        self.namespace = self.kernel_env.get("KERNEL_NAMESPACE") or "default"
        self._cluster = Cluster(incluster)
        self._direct = self._cluster.in_cluster if direct is None else direct
        self._started: Dict[str, KubePyBox] = {}

    def __enter__(self) -> "KubePyBoxManager":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        self.shutdown_all()
        return False

    def start(self, kernel_id: str | None = None, cwd: str | os.PathLike[str] | None = None, *, env: Mapping[str, Any] | None = None,
              timeout: float = _START_SECONDS, **kwargs: Any) -> KubePyBox:
        """The kernel of that id; a new one if it is missing or has ended."""
        variables = {**self.kernel_env, **text_env(env or {})}
        if cwd is not None:
            variables["KERNEL_WORKING_DIR"] = os.fspath(cwd)
        kernel_id = kernel_id or variables.get("KERNEL_ID") or str(uuid4())
        if kernel_id in self._started and self._alive(self._started[kernel_id]):
            return self._started[kernel_id]
        name = self._cluster.named(kernel_id, self.namespace) or f"{variables.get('KERNEL_USERNAME') or 'jovyan'}-{kernel_id}"
        ours = self._cluster.create(kernel_id, name, self.namespace, variables)
        try:
            box = self._open(kernel_id, name, timeout)
        except KernelDied:
            if ours:
                self._cluster.delete(name, self.namespace)
                raise
            # It ended before we connected.
            self._replace(kernel_id, name, variables, timeout)
            ours, box = True, self._open(kernel_id, name, timeout)
        except BaseException:
            if ours:
                with contextlib.suppress(CarrelError):
                    self._cluster.delete(name, self.namespace)
            raise
        box._forget = self._drop
        self._started[kernel_id] = box
        return box

    def _drop(self, kernel_id: str) -> None:
        self._started.pop(kernel_id, None)

    def _alive(self, box: KubePyBox) -> bool:
        try:
            box._look()
            return True
        except KernelDied:
            box.close()
            return False

    def _replace(self, kernel_id: str, name: str, variables: Mapping[str, str], timeout: float) -> None:
        self._cluster.delete(name, self.namespace)
        end = time.monotonic() + timeout
        while not self._cluster.create(kernel_id, name, self.namespace, variables):
            if time.monotonic() > end:
                raise Conflict(f"kernel {name} has ended, and is not gone after {timeout:.0f} seconds", code="terminating")
            time.sleep(0.2)

    def _open(self, kernel_id: str, name: str, timeout: float) -> KubePyBox:
        end = time.monotonic() + timeout
        box = KubePyBox(self._cluster.wait(kernel_id, name, self.namespace, timeout), self._cluster, self._direct)
        try:
            box.wait_ready(max(end - time.monotonic(), 5.0))
        except BaseException:
            box.close()
            raise
        return box

    def shutdown(self, kernel_id: str, **kwargs: Any) -> None:
        """Ends a kernel and its Pod."""
        box = self._started.pop(kernel_id, None)
        if box is not None:
            box.close()
        name = box.place.name if box else self._cluster.named(kernel_id, self.namespace)
        if name is None or not self._cluster.delete(name, self.namespace):
            logger.warning("kernel %s not found", kernel_id)

    def shutdown_all(self, now: bool = False) -> None:
        """Those that this manager started."""
        for kernel_id in list(self._started):
            self.shutdown(kernel_id)


class AsyncKubePyBox(BasePyBox):
    """The same for asyncio: everything happens in one thread of its own, because ZeroMQ's sockets belong to a thread."""

    def __init__(self, box: KubePyBox, thread: ThreadPoolExecutor):
        self._box = box
        self._thread = thread

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        return self._box.kernel_id

    async def __aenter__(self) -> "AsyncKubePyBox":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        await self._do(self._box.shutdown)
        return False

    async def _do(self, what: Callable[..., Any], *args: Any) -> Any:
        if what == self._box.run:
            self._box.check_open()          # its thread has ended, too
        return await asyncio.get_running_loop().run_in_executor(self._thread, what, *args)

    async def run(self, code: str, timeout: float | None = 300, **kwargs: Any) -> PyBoxOut:
        """As KubePyBox.run(). Cancelling it interrupts the code."""
        running = asyncio.ensure_future(self._do(self._box.run, code, timeout))
        try:
            out: PyBoxOut = await asyncio.shield(running)
            return out
        except asyncio.CancelledError:
            # The control channel is used by no one else while the thread waits for the cell.
            await asyncio.to_thread(self._box.interrupt)
            await asyncio.wait([running], timeout=GRACE)
            raise

    async def interrupt(self) -> None:
        """Interrupts what runs."""
        await asyncio.to_thread(self._box.interrupt)


class AsyncKubePyBoxManager(BasePyBoxManager):
    """The same for asyncio."""

    def __init__(self, env_file: str | os.PathLike[str] | None = None, kernel_env: Mapping[str, Any] | None = None, *,
                 incluster: bool | None = None, direct: bool | None = None):
        self._manager = KubePyBoxManager(env_file, kernel_env, incluster=incluster, direct=direct)
        self._threads: Dict[str, ThreadPoolExecutor] = {}

    async def __aenter__(self) -> "AsyncKubePyBoxManager":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        await self.shutdown_all()
        return False

    async def start(self, kernel_id: str | None = None, cwd: str | os.PathLike[str] | None = None, *, env: Mapping[str, Any] | None = None,
                    **kwargs: Any) -> AsyncKubePyBox:
        """Starts a kernel, or takes the one that has this id."""
        kernel_id = kernel_id or str(uuid4())
        thread = self._threads.setdefault(kernel_id, ThreadPoolExecutor(1, thread_name_prefix="kernel"))
        start = asyncio.get_running_loop().run_in_executor(thread, lambda: self._manager.start(kernel_id, cwd, env=env, **kwargs))
        return AsyncKubePyBox(await start, thread)

    async def shutdown(self, kernel_id: str, **kwargs: Any) -> None:
        """Ends a kernel and its Pod."""
        thread = self._threads.pop(kernel_id, None)
        await asyncio.get_running_loop().run_in_executor(thread, self._manager.shutdown, kernel_id)
        if thread is not None:
            thread.shutdown(wait=False)

    async def shutdown_all(self, now: bool = False) -> None:
        """Ends all that this manager has started."""
        ids: List[str] = list(self._manager._started)
        for kernel_id in ids:
            await self.shutdown(kernel_id)
