"""Kernels on this machine, each in a box of its own, of a server that belongs to this process."""
from __future__ import annotations

import asyncio
import logging
import os
from types import TracebackType
from typing import Any, Dict, Generic, Iterator, List, Literal, Mapping, TypeVar
from uuid import uuid4

from .. import local as servers
from ..asyncclient import AsyncBox, AsyncCarrel, AsyncKernel
from ..cells import Collector, Kernel, made
from ..client import Box, Carrel
from ..errors import CarrelError, Conflict, KernelDied, NotFound, Unavailable
from ..named import LentSecrets
from .base import BasePyBox, BasePyBoxManager
from .schema import Assembly, PyBoxOut, text_env

logger = logging.getLogger(__name__)

_SPECS = (None, "", "python", "python3")
_OUTPUT = "1G"      # of a cell; pppybox has no such limit, but this process must hold it all
_LIMITS = ("memory", "cpus", "pids", "disk", "idle_timeout", "ttl", "profile", "labels", "mounts", "net", "allow", "deny", "packages", "python",
           "secrets")


class _Cell:
    """The events of one cell as pybox wants them."""

    def __init__(self) -> None:
        self._assembly = Assembly()
        self._collector = Collector()

    def take(self, event: Dict[str, Any]) -> None:
        kind = event.get("type")
        if kind in ("stdout", "stderr"):
            self._assembly.text(str(kind), event.get("text", ""))
        elif kind in ("display", "result"):
            self._assembly.bundle(event.get("data") or {})
        elif kind == "error":
            self._assembly.failed(str(event.get("name")), str(event.get("value", "")), [str(t) for t in event.get("traceback") or []])
        self._collector.take(event)

    def finish(self) -> PyBoxOut:
        result = made(self._collector.result())
        if result.outcome == "timeout" or not result.is_alive:
            result.check()
        if result.outcome == "output_limit":
            reason = str(result.raw.get("reason") or "the cell said too much")
            self._assembly.failed("OutputLimit", reason, [f"OutputLimit: {reason}"])
        return self._assembly.finish()


def _box_options(cwd: str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> tuple[Dict[str, Any], str | None]:
    """The options of the box for a kernel, and its working directory: that is mounted read-write at its own path."""
    options = {**settings, "template": "python"}
    if not isinstance(options.get("secrets") or {}, Mapping):
        raise TypeError(f"secrets is a mapping of variables to values, like {{'HF_TOKEN': '...'}}, not a {type(options['secrets']).__name__}")
    if options.pop("kernel_name", None) not in _SPECS:
        raise ValueError("a local kernel is this very interpreter, so kernel_name can only be 'python3'")
    if options.pop("extra_arguments", None):
        raise ValueError("extra_arguments are not passed on; for a profile directory there is LocalPyBoxManager(profile_dir=...)")
    for name in options:
        if name not in (*_LIMITS, "template"):
            raise TypeError(f"start() has no option {name!r}; it takes cwd, env, kernel_name, {', '.join(_LIMITS)}")
    if cwd is None:
        return options, None
    place = os.path.abspath(os.fspath(cwd))
    if not os.path.isdir(place):
        raise NotADirectoryError(f"cwd={place}: there is no such directory")
    options["mounts"] = [*(options.get("mounts") or ()), {"source": place, "target": place, "writable": True}]
    return options, place


def _is_gone(error: CarrelError) -> bool:
    """Whether the box is not there any more, or not even its server, which was this process's own."""
    return isinstance(error, NotFound) or (isinstance(error, Unavailable) and not error.status)


class _Owned:
    def __init__(self) -> None:
        self._owner = os.getpid()

    @property
    def is_ours(self) -> bool:
        """False in a forked child, which leaves its parent's objects alone."""
        return self._owner == os.getpid()


class LocalKernel(_Owned):
    """A kernel and the box that is only for it."""

    def __init__(self, kernel_id: str, box: Box, lent: LentSecrets):
        super().__init__()
        self.lent = lent
        self.kernel_id = kernel_id
        self.box = box
        self.kernel: Kernel = box.kernel()

    def is_alive(self) -> bool:
        try:
            return bool(self.kernel.info().get("state") != "dead")
        except (NotFound, Unavailable) as e:
            if not _is_gone(e):
                raise
            return False

    def interrupt_kernel(self) -> None:
        self.kernel.interrupt()

    def restart_kernel(self) -> None:
        self.kernel.restart()

    def end(self) -> None:
        try:
            self.box.delete()
        except (NotFound, Unavailable) as e:
            if not _is_gone(e):
                raise
        finally:
            self.lent.drop()


class AsyncLocalKernel(_Owned):
    """The same for asyncio."""

    def __init__(self, kernel_id: str, box: AsyncBox, lent: LentSecrets):
        super().__init__()
        self.lent = lent
        self.kernel_id = kernel_id
        self.box = box
        self.kernel: AsyncKernel = box.kernel()

    async def is_alive(self) -> bool:
        try:
            return bool((await self.kernel.info()).get("state") != "dead")
        except (NotFound, Unavailable) as e:
            if not _is_gone(e):
                raise
            return False

    async def interrupt_kernel(self) -> None:
        await self.kernel.interrupt()

    async def restart_kernel(self) -> None:
        await self.kernel.restart()

    async def end(self) -> None:
        try:
            await self.box.delete()
        except (NotFound, Unavailable) as e:
            if not _is_gone(e):
                raise
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self.lent.drop)


K = TypeVar("K", bound=_Owned)


class _Kernels(Generic[K]):
    """The kernels of a manager by their ids, with the interface of jupyter_client's MultiKernelManager."""

    def __init__(self, profile_dir: str | os.PathLike[str] | None = None, **settings: Any):
        self.profile_dir = None if profile_dir is None else os.path.abspath(os.fspath(profile_dir))
        if self.profile_dir is not None and not os.path.isdir(self.profile_dir):
            raise NotADirectoryError(f"profile_dir={self.profile_dir}: there is no such directory")
        self._settings = settings
        self._kernels: Dict[str, K] = {}

    def __contains__(self, kernel_id: object) -> bool:
        return kernel_id in self._kernels

    def __len__(self) -> int:
        return len(self._kernels)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._kernels))

    def list_kernel_ids(self) -> List[str]:
        return list(self._kernels)

    def get_kernel(self, kernel_id: str) -> K:
        """KeyError if it is missing."""
        return self._kernels[kernel_id]

    def forget_others(self) -> None:
        """Those that another process started: in a forked child, its parent's."""
        self._kernels = {kernel_id: kernel for kernel_id, kernel in self._kernels.items() if kernel.is_ours}

    def _server(self, options: Mapping[str, Any]) -> str:
        is_own = not options.get("packages") and not options.get("python")      # else its environment has ipykernel
        if is_own:
            servers.require_kernel()
        return servers.private_server(startup=self.profile_dir, early=is_own).url

    def _lend(self, options: Dict[str, Any]) -> tuple[Carrel, LentSecrets]:
        """The server, which keeps the secrets of a box while that lives."""
        carrel = Carrel(self._server(options))
        lent = LentSecrets(carrel, text_env(options.pop("secrets", None) or {}))
        if lent.uses:
            options["secrets"] = lent.uses
        return carrel, lent


class LocalKernels(_Kernels[LocalKernel]):
    def start_kernel(self, kernel_id: str | None = None, *, cwd: str | os.PathLike[str] | None = None,
                     env: Mapping[str, Any] | None = None, **settings: Any) -> str:
        """A new kernel, or the one of that id if it lives."""
        kernel_id = kernel_id or str(uuid4())
        known = self._kernels.get(kernel_id)
        if known is not None:
            if known.is_alive():
                return kernel_id
            self.shutdown_kernel(kernel_id)
        options, place = _box_options(cwd, {**self._settings, **settings})
        carrel, lent = self._lend(options)
        try:
            kernel = LocalKernel(kernel_id, carrel.create(**options), lent)
        except BaseException:
            lent.drop()
            raise
        try:
            kernel.kernel.start(env=text_env(env or {}), cwd=place)
        except BaseException:
            kernel.end()
            raise
        if self._kernels.setdefault(kernel_id, kernel) is not kernel:
            kernel.end()      # another thread started one of that id meanwhile
        return kernel_id

    def is_alive(self, kernel_id: str) -> bool:
        return self.get_kernel(kernel_id).is_alive()

    def interrupt_kernel(self, kernel_id: str) -> None:
        self.get_kernel(kernel_id).interrupt_kernel()

    def restart_kernel(self, kernel_id: str, now: bool = False) -> None:
        self.get_kernel(kernel_id).restart_kernel()

    def shutdown_kernel(self, kernel_id: str, now: bool = False, restart: bool = False) -> None:
        if restart:
            self.restart_kernel(kernel_id, now=now)
        else:
            self._kernels.pop(kernel_id).end()

    def shutdown_all(self, now: bool = False) -> None:
        for kernel_id in self:
            self._kernels.pop(kernel_id).end()


class AsyncLocalKernels(_Kernels[AsyncLocalKernel]):
    async def start_kernel(self, kernel_id: str | None = None, *, cwd: str | os.PathLike[str] | None = None,
                           env: Mapping[str, Any] | None = None, **settings: Any) -> str:
        """A new kernel, or the one of that id if it lives."""
        kernel_id = kernel_id or str(uuid4())
        known = self._kernels.get(kernel_id)
        if known is not None:
            if await known.is_alive():
                return kernel_id
            await self.shutdown_kernel(kernel_id)
        options, place = _box_options(cwd, {**self._settings, **settings})
        carrel, lent = await asyncio.get_running_loop().run_in_executor(None, self._lend, options)
        try:
            kernel = AsyncLocalKernel(kernel_id, await AsyncCarrel(carrel.url).create(**options), lent)
        except BaseException:
            await asyncio.get_running_loop().run_in_executor(None, lent.drop)
            raise
        try:
            await kernel.kernel.start(env=text_env(env or {}), cwd=place)
        except BaseException:
            await kernel.end()
            raise
        if self._kernels.setdefault(kernel_id, kernel) is not kernel:
            await kernel.end()      # another thread started one of that id meanwhile
        return kernel_id

    async def is_alive(self, kernel_id: str) -> bool:
        return await self.get_kernel(kernel_id).is_alive()

    async def interrupt_kernel(self, kernel_id: str) -> None:
        await self.get_kernel(kernel_id).interrupt_kernel()

    async def restart_kernel(self, kernel_id: str, now: bool = False) -> None:
        await self.get_kernel(kernel_id).restart_kernel()

    async def shutdown_kernel(self, kernel_id: str, now: bool = False, restart: bool = False) -> None:
        if restart:
            await self.restart_kernel(kernel_id, now=now)
        else:
            await self._kernels.pop(kernel_id).end()

    async def shutdown_all(self, now: bool = False) -> None:
        for kernel_id in self:
            await self._kernels.pop(kernel_id).end()


def _lost(kernel_id: str, error: CarrelError) -> KernelDied:
    """The box is gone, or does not run any more."""
    return KernelDied(f"kernel {kernel_id} has ended: {error}", "gone")


class LocalPyBox(BasePyBox):
    """A kernel in a box. As a context manager it ends both."""

    def __init__(self, km: LocalKernel, mkm: LocalKernels | None = None):
        self.km = km
        self.mkm = mkm
        self.client = km.kernel

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        return self.km.kernel_id

    def __enter__(self) -> "LocalPyBox":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        if not self.km.is_ours:
            return False
        if self.mkm is None or self.kernel_id not in self.mkm:
            self.km.end()
        else:
            self.mkm.shutdown_kernel(self.kernel_id, now=True)
        return False

    def run(self, code: str, timeout: float | None = 60, **kwargs: Any) -> PyBoxOut:
        """Runs code. TimeoutError after `timeout` seconds: the code is interrupted, the kernel keeps its state. carrel.KernelDied
        if the kernel ends, or has ended."""
        cell = _Cell()
        try:
            for event in self.client.stream(code, timeout=timeout, on_dead="error", output_limit=_OUTPUT):
                cell.take(event)
        except (NotFound, Conflict) as e:
            raise _lost(self.kernel_id, e) from e
        return cell.finish()


class AsyncLocalPyBox(BasePyBox):
    """A kernel in a box, for asyncio."""

    def __init__(self, km: AsyncLocalKernel, mkm: AsyncLocalKernels | None = None):
        self.km = km
        self.mkm = mkm
        self.client = km.kernel

    @property
    def kernel_id(self) -> str:
        """The kernel's id."""
        return self.km.kernel_id

    async def __aenter__(self) -> "AsyncLocalPyBox":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        if not self.km.is_ours:
            return False
        if self.mkm is None or self.kernel_id not in self.mkm:
            await self.km.end()
        else:
            await self.mkm.shutdown_kernel(self.kernel_id, now=True)
        return False

    async def run(self, code: str, timeout: float | None = 60, **kwargs: Any) -> PyBoxOut:
        """As LocalPyBox.run(). Cancelling it interrupts the code."""
        cell = _Cell()
        events = self.client.stream(code, timeout=timeout, on_dead="error", output_limit=_OUTPUT)
        try:
            async for event in events:
                cell.take(event)
        except (NotFound, Conflict) as e:
            raise _lost(self.kernel_id, e) from e
        return cell.finish()


class LocalPyBoxManager(BasePyBoxManager):
    """Kernels of this interpreter with its packages, each in a box of its own. Needs no server and no rights.

    `profile_dir` is an IPython profile directory; the files in its `startup` are run by each kernel first. Further options are those of
    the boxes: memory="2G", cpus=2, pids=100, idle_timeout="1h"; allow=["index.example.org"], deny and net="public" for what they may reach;
    packages=["numpy<2"] and python="3.12" for an environment of their own."""

    def __init__(self, kernel_manager: LocalKernels | None = None, profile_dir: str | os.PathLike[str] | None = None, **settings: Any):
        if kernel_manager is not None and not isinstance(kernel_manager, LocalKernels):
            raise TypeError("kernel_manager must be one of carrel.pybox: kernels of another have no box around them")
        self.profile_dir = profile_dir
        self.kernel_manager = LocalKernels(profile_dir, **settings) if kernel_manager is None else kernel_manager

    def __enter__(self) -> "LocalPyBoxManager":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        self.kernel_manager.forget_others()
        self.cleanup(now=True)
        return False

    def cleanup(self, now: bool = True) -> None:
        """Ends the kernels of this manager and forgets them."""
        self.kernel_manager.shutdown_all(now=now)

    def start(self, kernel_id: str | None = None, **kwargs: Any) -> LocalPyBox:
        """The kernel of that id, or a new one. cwd= is mounted read-write, at its own path and with the caller's rights; env= adds
        variables, which are stored with the kernel, and secrets= variables whose values no record has; limits and network as for the manager."""
        started = self.kernel_manager.start_kernel(kernel_id, **kwargs)
        return LocalPyBox(self.kernel_manager.get_kernel(started), self.kernel_manager)

    def shutdown(self, kernel_id: str, *, now: bool = False, restart: bool = False, **kwargs: Any) -> None:
        """Ends a kernel."""
        try:
            self.kernel_manager.shutdown_kernel(kernel_id, now=now, restart=restart)
        except KeyError:
            logger.warning("kernel %s not found", kernel_id)

    def shutdown_all(self, now: bool = False) -> None:
        """Ends all that this manager has started."""
        self.kernel_manager.shutdown_all(now=now)


class AsyncLocalPyBoxManager(BasePyBoxManager):
    """The same for asyncio."""

    def __init__(self, async_kernel_manager: AsyncLocalKernels | None = None, profile_dir: str | os.PathLike[str] | None = None,
                 **settings: Any):
        if async_kernel_manager is not None and not isinstance(async_kernel_manager, AsyncLocalKernels):
            raise TypeError("async_kernel_manager must be one of carrel.pybox: kernels of another have no box around them")
        self.profile_dir = profile_dir
        self.async_kernel_manager = AsyncLocalKernels(profile_dir, **settings) if async_kernel_manager is None else async_kernel_manager

    async def __aenter__(self) -> "AsyncLocalPyBoxManager":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        self.async_kernel_manager.forget_others()
        await self.acleanup(now=True)
        return False

    async def acleanup(self, now: bool = True) -> None:
        """Ends the kernels of this manager and forgets them."""
        await self.async_kernel_manager.shutdown_all(now=now)

    async def start(self, kernel_id: str | None = None, **kwargs: Any) -> AsyncLocalPyBox:
        """Starts a kernel, or takes the one that has this id."""
        started = await self.async_kernel_manager.start_kernel(kernel_id, **kwargs)
        return AsyncLocalPyBox(self.async_kernel_manager.get_kernel(started), self.async_kernel_manager)

    async def shutdown(self, kernel_id: str, *, now: bool = False, restart: bool = False, **kwargs: Any) -> None:
        """Ends a kernel."""
        try:
            await self.async_kernel_manager.shutdown_kernel(kernel_id, now=now, restart=restart)
        except KeyError:
            logger.warning("kernel %s not found", kernel_id)

    async def shutdown_all(self, now: bool = False) -> None:
        """Ends all that this manager has started."""
        await self.async_kernel_manager.shutdown_all(now=now)
