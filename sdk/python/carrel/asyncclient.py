"""The server and its boxes, for asyncio. No thread waits for an answer; only the start of a private server happens in one."""
from __future__ import annotations

import asyncio
import contextlib
import os
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, List, Mapping, Sequence, Union

from . import leases, local
from .aio import AsyncTransport
from .asyncexec import AsyncExec, exec_with_input, spawn
from .asyncfiles import AsyncFiles
from .cells import Collector, Raw, Result, made, result_of, run_body
from .client import MOST_INLINE, Box, Carrel, ExecResult, Mount, command_body, create_body, exec_result, one_shot_body, open_mounts
from .errors import CarrelError, NotFound
from .named import Secrets, layer_path, secret_bytes, secret_path, secrets_body
from .transport import decode, segment
from .volumes import AsyncVolume, Shares, check_stays, create_volume_body, volume_path

AsyncAnswerer = Callable[[str, bool], Union[str, Awaitable[str]]]


async def _create(transport: AsyncTransport, path: str, body: Raw, mounts: Sequence[Mount], key: str | None = None) -> Raw:
    opened: List[int] = []
    try:
        if mounts:
            body["mounts"] = open_mounts(mounts, opened)
        raw: Raw = await transport.call("POST", path, json_body=body, headers={"Idempotency-Key": key} if key else None, fds=opened)
        return raw
    finally:
        for fd in opened:
            os.close(fd)


class AsyncKernel:
    """A live interpreter in a box, by the name of its context. It starts with its first cell, or by start()."""

    def __init__(self, box: "AsyncBox", context: str):
        self._box = box
        self.context = context

    def __repr__(self) -> str:
        return f"<AsyncKernel {self.context} of {self._box.id}>"

    @property
    def _path(self) -> str:
        return f"{self._box._path}/kernels/{segment(self.context)}"

    async def start(self, *, env: Mapping[str, str] | None = None, cwd: str | None = None, template: str | None = None,
                    secrets: Secrets | None = None) -> "AsyncKernel":
        """Starts it, with variables, secrets (as for Box) and a directory of its own. Returns the kernel."""
        options = {"context": self.context, "env": dict(env) if env else None, "cwd": cwd, "template": template, "secrets": secrets_body(secrets)}
        await self._box._transport.call("POST", f"{self._box._path}/kernels", json_body={k: v for k, v in options.items() if v is not None})
        return self

    async def info(self) -> Raw:
        """Its state, its id and how it was started."""
        info: Raw = await self._box._transport.call("GET", self._path)
        return info

    async def run(self, code: str, **options: Any) -> Result:
        """Runs a cell in it, as AsyncBox.run()."""
        return await self._box.run(code, context=self.context, **options)

    def stream(self, code: str, **options: Any) -> AsyncIterator[Raw]:
        """Runs a cell in it and yields its events, as AsyncBox.stream()."""
        return self._box.stream(code, context=self.context, **options)

    async def interrupt(self) -> None:
        """Interrupts the cell that runs: KeyboardInterrupt."""
        await self._box._transport.call("POST", self._path + "/interrupt")

    async def restart(self) -> None:
        """Starts it again; what was defined is lost, files stay."""
        await self._box._transport.call("POST", self._path + "/restart")

    async def input(self, value: str) -> None:
        """Answers an input() of the cell that runs."""
        await self._box._transport.call("POST", self._path + "/input", json_body={"value": value})

    async def delete(self) -> None:
        """Ends it; the next cell starts another."""
        await self._box._transport.call("DELETE", self._path)


class AsyncBox:
    """An isolated place to run code. `async with AsyncBox(memory="512M") as box:` makes it, and deletes it at the end; `await
    AsyncCarrel().create(...)` makes one that stays. Options as for Box."""

    def __init__(self, *, server: "AsyncCarrel | None" = None, _raw: Raw | None = None, **options: Any):
        self._server = server
        self._options = options
        self._made = _raw

    async def _make(self) -> "AsyncBox":
        if self._server is None:
            self._server = AsyncCarrel()
        await self._server._ready()
        if self._made is None:
            options = {"template": "python", **self._options}
            mounts, key = options.pop("mounts", None) or (), options.pop("idempotency_key", None)
            made = asyncio.ensure_future(_create(self._transport, "/v1/boxes", create_body(**options), mounts, key))
            try:
                self._made = await asyncio.shield(made)
            except asyncio.CancelledError:
                with contextlib.suppress(CarrelError):
                    self._made = await made
                    await self.delete()     # no variable would refer to it
                raise
        return self

    @property
    def _transport(self) -> AsyncTransport:
        if self._server is None or self._server._transport is None:
            raise RuntimeError("the box is not there yet: use 'async with AsyncBox(...)' or 'await AsyncCarrel().create(...)'")
        return self._server._transport

    @property
    def raw(self) -> Raw:
        """The box as the API describes it."""
        if self._made is None:
            raise RuntimeError("the box is not there yet: use 'async with AsyncBox(...)' or 'await AsyncCarrel().create(...)'")
        return self._made

    @property
    def id(self) -> str:
        """Its id, which no other box ever has."""
        return str(self.raw["id"])

    @property
    def name(self) -> str | None:
        """The name that it was given; None without one."""
        name: str | None = self.raw.get("name")
        return name

    @property
    def files(self) -> AsyncFiles:
        """Its files."""
        return AsyncFiles(self)

    @property
    def _path(self) -> str:
        return f"/v1/boxes/{segment(self.id)}"

    def __repr__(self) -> str:
        return f"<AsyncBox {self._made.get('id') if self._made else 'not made yet'}>"

    async def __aenter__(self) -> "AsyncBox":
        return await self._make()

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.delete()
        except NotFound:
            pass
        except CarrelError:
            if exc is None:     # otherwise the caller must see that error
                raise

    async def refresh(self) -> "AsyncBox":
        """Asks the server how the box is now. Returns the box."""
        self._made = await self._transport.call("GET", self._path)
        return self

    async def run(self, code: str, *, timeout: str | float | None = None, context: str | None = None,
                  env: Mapping[str, str] | None = None, cwd: str | None = None, template: str | None = None, on_dead: str | None = None,
                  output_limit: str | int | None = None, answer: AsyncAnswerer | None = None, check: bool = False,
                  secrets: Secrets | None = None) -> Result:
        """As Box.run(). Cancelling it interrupts the cell."""
        options = {"timeout": timeout, "context": context, "env": env, "cwd": cwd, "template": template, "on_dead": on_dead, "secrets": secrets,
                   "output_limit": output_limit, "allow_stdin": True if answer else None}
        if answer is None:
            return made(result_of(await self._transport.call("POST", self._path + "/run", json_body=run_body(code, options))), check)
        collector = Collector()
        async for event in self.stream(code, **options):
            collector.take(event)
            if event.get("type") == "input_request":
                said = answer(str(event.get("prompt", "")), bool(event.get("password")))
                await self.kernel(context or "default").input(said if isinstance(said, str) else await said)
        return made(collector.result(), check)

    def stream(self, code: str, **options: Any) -> AsyncIterator[Raw]:
        """As Box.stream(); the request is sent with the first step. Use contextlib.aclosing to end it early."""
        if not isinstance(code, str):
            raise TypeError("stream() runs a cell of code; for a command there is exec_stream()")
        return self._transport.lines("POST", self._path + "/run", json_body=run_body(code, options))

    def kernel(self, context: str = "default") -> AsyncKernel:
        """The interpreter of a context."""
        return AsyncKernel(self, context)

    async def kernels(self) -> List[Raw]:
        """The interpreters that were started in the box."""
        kernels: List[Raw] = (await self._transport.call("GET", self._path + "/kernels"))["kernels"]
        return kernels

    async def exec(self, argv: Sequence[str] | str, *, stdin: str | bytes | None = None, check: bool = False, **options: Any) -> ExecResult:
        """As Box.exec(). Cancelling it ends the command."""
        if isinstance(stdin, str) and len(stdin) > MOST_INLINE:
            stdin = stdin.encode()
        if isinstance(stdin, bytes):
            result = await exec_with_input(self, argv, stdin, options)
        else:
            result = exec_result(await self._transport.call("POST", self._path + "/exec", json_body=command_body(argv, stdin=stdin, **options)))
        return result.check() if check else result

    async def spawn(self, argv: Sequence[str] | str, **options: Any) -> AsyncExec:
        """As Box.spawn(): stdin=True keeps its input open for AsyncExec.write()."""
        return await spawn(self, argv, options)

    def exec_stream(self, argv: Sequence[str] | str, **options: Any) -> AsyncIterator[Raw]:
        """Runs a command and yields its events as they happen; ending the iteration early ends the command."""
        return self._transport.lines("POST", self._path + "/exec", json_body=command_body(argv, **options))

    async def delete(self) -> None:
        """Deletes the box with all that is in it."""
        leases.drop(self.id)
        await self._transport.call("DELETE", self._path)

    async def leash(self, seconds: float = 120) -> "AsyncBox":
        """As Box.leash()."""
        if not local.is_private(self._transport.url):
            box = Box(server=Carrel(self._transport.url, self._transport.token), _raw=self.raw)
            await asyncio.get_running_loop().run_in_executor(None, box.leash, seconds)
        return self


class AsyncCarrel:
    """A server. Without url: the running one, or a private one that ends with this process."""

    def __init__(self, url: str | None = None, token: str | None = None):
        self._token = token or os.environ.get("CARREL_TOKEN")
        self._transport: AsyncTransport | None = AsyncTransport(url, self._token) if url else None

    def __repr__(self) -> str:
        return f"<AsyncCarrel {self._transport.url if self._transport else 'not connected yet'}>"

    async def _ready(self) -> AsyncTransport:
        if self._transport is None:
            url = await asyncio.get_running_loop().run_in_executor(None, local.any_server)
            self._transport = self._transport or AsyncTransport(url, self._token)
        return self._transport

    async def __aenter__(self) -> "AsyncCarrel":
        await self._ready()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections that are kept. Boxes stay."""
        if self._transport is not None:
            await self._transport.aclose()

    async def create(self, **options: Any) -> AsyncBox:
        """Makes a box that lives until it is deleted. Options as for Box."""
        return await AsyncBox(server=self, **options)._make()

    async def get(self, id_or_name: str) -> AsyncBox:
        """A box by its id or name."""
        transport = await self._ready()
        return AsyncBox(server=self, _raw=await transport.call("GET", f"/v1/boxes/{segment(id_or_name)}"))

    async def list(self, labels: Mapping[str, str] | None = None) -> List[AsyncBox]:
        """The caller's boxes, newest first."""
        transport = await self._ready()
        boxes: List[AsyncBox] = []
        cursor = None
        while True:
            query = {"label": [f"{k}={v}" for k, v in (labels or {}).items()] or None, "cursor": cursor, "limit": 500}
            answer = await transport.call("GET", "/v1/boxes", query=query)
            boxes += [AsyncBox(server=self, _raw=raw) for raw in answer["boxes"]]
            cursor = answer.get("next")
            if not cursor:
                return boxes

    async def run(self, code: str, *, timeout: str | float | None = None, mounts: Sequence[Mount] | None = None, check: bool = False,
                  **options: Any) -> Result:
        """Runs a cell of Python in a box that is made for it and ends with it."""
        transport = await self._ready()
        return made(result_of(await _create(transport, "/v1/run", one_shot_body(code, timeout, options), mounts or ())), check)

    async def create_secret(self, name: str, value: str | bytes, *, replace: bool = False) -> Raw:
        """As Carrel.create_secret()."""
        query = {"replace": "true"} if replace else None
        answer = await (await self._ready()).open("PUT", secret_path(name), query=query, body=secret_bytes(value))
        raw: Raw = decode(await answer.all())
        return raw

    async def secrets(self) -> List[Raw]:
        """As Carrel.secrets()."""
        listed: List[Raw] = (await (await self._ready()).call("GET", "/v1/secrets"))["secrets"]
        return listed

    async def delete_secret(self, name: str) -> None:
        """As Carrel.delete_secret()."""
        await (await self._ready()).call("DELETE", secret_path(name))

    async def create_volume(self, name: str, *, size: str | int | None = None, many: bool | None = None,
                            shared_with: Shares | None = None) -> AsyncVolume:
        """As Carrel.create_volume()."""
        transport = await self._ready()
        check_stays(transport.url)
        return AsyncVolume(self, await transport.call("POST", "/v1/volumes", json_body=create_volume_body(name, size, many, shared_with)))

    async def volume(self, name: str) -> AsyncVolume:
        """As Carrel.volume()."""
        return AsyncVolume(self, await (await self._ready()).call("GET", volume_path(name)))

    async def volumes(self) -> List[AsyncVolume]:
        """As Carrel.volumes()."""
        return [AsyncVolume(self, raw) for raw in (await (await self._ready()).call("GET", "/v1/volumes"))["volumes"]]

    async def layers(self) -> List[Raw]:
        """As Carrel.layers()."""
        listed: List[Raw] = (await (await self._ready()).call("GET", "/v1/layers"))["layers"]
        return listed

    async def delete_layer(self, layer: str) -> None:
        """As Carrel.delete_layer()."""
        await (await self._ready()).call("DELETE", layer_path(layer))

    async def info(self) -> Raw:
        """What the server is and has: version, limits, templates, room."""
        info: Raw = await (await self._ready()).call("GET", "/v1/info")
        return info
