"""Servers of tools that speak MCP. A command that is not ours runs in a box, where it sees its own directory and no network."""
from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import re
import shutil
import sysconfig
from typing import Any, AsyncIterator, Callable, Container, Dict, List, Mapping, Tuple

from ..environment.server import holds, server_places
from ..errors import CarrelError
from ..local import find_binary, private_server
from ..within import within
from .messages import AgentError, Raw
from .providers import missing_package
from .tools import Outcome, Tool, image_block, text_block

_START = 60.0           # seconds until a server must have listed its tools
_MOST_TOOLS = 512
_MOST_WORDS = 10_000    # characters of a tool's description
_BOXED = "; it runs in a box without network, where it sees its own directory alone: \"box\": False runs it outside, with all of your rights"
_KEYS = {"stdio": {"type", "command", "args", "env", "cwd", "box"}, "http": {"type", "url", "headers"}}


class _Connection:
    """A client in a task of its own: a resource must be closed by the task that opened it, and another task may leave the run."""

    def __init__(self, name: str, opening: Callable[[], Any], hint: str = ""):
        self._name = name
        self._hint = hint
        self._opening = opening
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Any:
        self._task = asyncio.create_task(self._live())
        try:
            return await within(_START, asyncio.shield(self._ready))
        except asyncio.TimeoutError:
            await self.stop()
            raise AgentError(f"the MCP server {self._name!r} did not answer within {_START:g} s{self._hint}") from None
        except AgentError:
            raise
        except Exception as e:
            raise AgentError(f"the MCP server {self._name!r} does not work: {_words(e)}{self._hint}") from e

    async def _live(self) -> None:
        try:
            async with self._opening() as client:
                self._ready.set_result(client)
                await self._stop.wait()
        except Exception as e:
            if not self._ready.done():
                self._ready.set_exception(e)

    async def stop(self) -> None:
        self._stop.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=10)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=10)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()     # so that asyncio does not report an unread exception


def _words(error: BaseException) -> str:
    """Of the first of a group of errors."""
    while getattr(error, "exceptions", None):
        error = getattr(error, "exceptions")[0]
    return str(error) or type(error).__name__


def _checked(name: str, entry: Mapping[str, Any]) -> str:
    """Its kind. An unknown one is refused by name."""
    kind = str(entry.get("type") or ("http" if "url" in entry else "stdio"))
    if kind == "streamable-http":
        kind = "http"
    if kind not in _KEYS:
        raise AgentError(f"mcp_config[{name!r}]: a server of type {kind!r} is not supported; there are stdio and http")
    unknown = set(entry) - _KEYS[kind]
    if unknown:
        raise AgentError(f"mcp_config[{name!r}] has no key {sorted(unknown)[0]!r}; a server of type {kind} has {', '.join(sorted(_KEYS[kind]))}")
    wanted = "command" if kind == "stdio" else "url"
    if not isinstance(entry.get(wanted), str):
        raise AgentError(f"mcp_config[{name!r}] needs {wanted!r}")
    for key, kinds, words in (("args", (list, tuple), "a list"), ("env", Mapping, "a mapping"), ("headers", Mapping, "a mapping")):
        if entry.get(key) is not None and not isinstance(entry[key], kinds):
            raise AgentError(f"mcp_config[{name!r}]: {key!r} is {words}, not {entry[key]!r}")
    return kind


async def connect(stack: contextlib.AsyncExitStack, name: str, entry: Mapping[str, Any]) -> List[Tool]:
    """The tools of a server, called mcp__SERVER__TOOL. The stack ends it."""
    try:
        mcp: Any = importlib.import_module("mcp")
    except ImportError:
        raise missing_package("mcp") from None
    if not hasattr(mcp, "Client"):
        raise AgentError("the Python package 'mcp' is too old; the fix: pip install 'mcp>=2'")
    hint = ""
    if _checked(name, entry) == "stdio":
        parameters, is_boxed = await _stdio_parameters(stack, name, entry)
        hint = _BOXED if is_boxed else ""
        opening: Callable[[], Any] = lambda: mcp.Client(mcp.StdioServerParameters(**parameters))
    else:
        opening = _http(entry)
    connection = _Connection(name, opening, hint)
    stack.push_async_callback(connection.stop)
    client = await connection.start()
    try:
        listed = await within(_START, _listed(client))
    except asyncio.TimeoutError:
        raise AgentError(f"the MCP server {name!r} does not say what tools it has within {_START:g} s{hint}") from None
    except Exception as e:
        raise AgentError(f"the MCP server {name!r} does not say what tools it has: {_words(e)}{hint}") from e
    tools: Dict[str, Tool] = {}
    for raw in listed:
        called = _free_name(f"mcp__{name}__{raw.name}", tools)
        tools[called] = _tool(called, client, raw)
    return list(tools.values())


async def _listed(client: Any) -> List[Any]:
    tools: List[Any] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) > _MOST_TOOLS:
            return tools[:_MOST_TOOLS]


def _free_name(name: str, taken: Container[str]) -> str:
    """A name as models take it: letters, digits, _ and -, at most 128. The server may call its tools as it likes, and two of them the same."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:120]
    return next(n for n in (plain, *(f"{plain}_{i}" for i in range(2, _MOST_TOOLS + 2))) if n not in taken)


def _tool(name: str, client: Any, raw: Any) -> Tool:
    async def run(given: Raw) -> Outcome:
        result = await client.call_tool(raw.name, given)
        blocks = [_block(part) for part in result.content]
        structured = result.structured_content
        is_ours = getattr(client.server_info, "name", None) == "carrel"     # its text is complete
        if structured is not None and not (blocks and is_ours) and not _says("\n".join(b["text"] for b in blocks if b["type"] == "text"), structured):
            blocks.append(text_block(json.dumps(structured, ensure_ascii=False)))
        return Outcome(blocks, bool(result.is_error))
    return Tool(name, (raw.description or "")[:_MOST_WORDS], raw.input_schema, run)


def _says(text: str, structured: Any) -> bool:
    """Whether the text has all that the structured part says; many servers say something there alone."""
    if isinstance(structured, Mapping):
        return all(_says(text, value) for value in structured.values())
    if isinstance(structured, list):
        return all(_says(text, value) for value in structured)
    if structured is None or isinstance(structured, bool):
        return True
    return str(structured).strip() in text or json.dumps(structured, ensure_ascii=False) in text


def _block(part: Any) -> Raw:
    if part.type == "text":
        return text_block(part.text)
    if part.type == "image":
        return image_block(part.mime_type, part.data)
    if part.type == "resource" and getattr(part.resource, "text", None) is not None:
        return text_block(part.resource.text)
    return text_block(f"[{part.type}: left out]")


def _http(entry: Mapping[str, Any]) -> Callable[[], Any]:
    client_of: Any = importlib.import_module("mcp").Client
    streams: Any = importlib.import_module("mcp.client.streamable_http").streamable_http_client
    http_client: Any = importlib.import_module("mcp.shared._httpx_utils").create_mcp_http_client

    @contextlib.asynccontextmanager
    async def opening() -> AsyncIterator[Any]:
        async with http_client(headers=dict(entry.get("headers") or {})) as http:
            async with client_of(streams(entry["url"], http_client=http)) as client:
                yield client
    return opening


def _is_ours(command: str, args: List[str]) -> bool:
    """Whether it is `carrel mcp`, which makes its own boxes: the program, or the script of that name that comes with this package."""
    script = os.path.join(sysconfig.get_path("scripts"), "carrel")
    for program in (find_binary, lambda: script):
        with contextlib.suppress(OSError, CarrelError):     # there may be no such program here
            if args[:1] == ["mcp"] and os.path.samefile(command, program()):
                return True
    return False


async def _stdio_parameters(stack: contextlib.AsyncExitStack, name: str, entry: Mapping[str, Any]) -> Tuple[Dict[str, Any], bool]:
    """How it is started, and whether that is in a box."""
    args = [str(a) for a in entry.get("args") or ()]
    found = shutil.which(entry["command"])
    if found is None:
        raise AgentError(f"mcp_config[{name!r}]: there is no command {entry['command']!r}")
    env = {str(k): str(v) for k, v in (entry.get("env") or {}).items()}
    if _is_ours(found, args) or entry.get("box") is False:
        return {"command": found, "args": args, "env": env, "cwd": entry.get("cwd")}, False
    loop = asyncio.get_running_loop()
    box = await loop.run_in_executor(None, lambda: _box_for(name, found, args, env, entry.get("cwd")))
    stack.push_async_callback(_end, box)
    where = ["--workdir", os.path.abspath(entry["cwd"])] if entry.get("cwd") else []
    return {"command": find_binary(), "args": ["exec", "-i", *where, "--url", box._server.url, box.id, "--", found, *args]}, True


async def _end(box: Any) -> None:
    def end() -> None:
        with contextlib.suppress(CarrelError):
            box.delete()
    await asyncio.get_running_loop().run_in_executor(None, end)


def _box_for(name: str, command: str, args: List[str], env: Mapping[str, str], cwd: str | None) -> Any:
    """A box without network that shows, read-only, the files of the command: its own directory, its interpreter's, and those of the files in its arguments."""
    from ..client import Carrel
    mounts = [{"source": place, "target": place, "writable": False} for place in _places(command, args, cwd)]
    try:
        return Carrel(private_server().url).create(template=None, mounts=mounts, env=env)
    except (CarrelError, OSError) as e:
        raise AgentError(f"mcp_config[{name!r}]: no box for {command}: {e}; \"box\": False runs it outside of one, with all of your rights") from e


def _places(command: str, args: List[str], cwd: str | None) -> List[str]:
    places = {_prefix(command), _prefix(os.path.realpath(command))}
    places |= {os.path.dirname(os.path.abspath(a)) for a in args if os.path.isfile(a)}
    places |= {os.path.abspath(a) for a in args if os.path.isabs(a) and os.path.isdir(a)}
    if cwd:
        places.add(os.path.abspath(cwd))
    for place in places:
        if place in ("/etc", "/home", "/root") or any(holds(place, kept) for kept in (os.path.expanduser("~"), *server_places())):
            raise AgentError(f"a foreign MCP server would see all of {place}; move it to a directory of its own, or say \"box\": False")
    kept = {p for p in places if not p.startswith(("/usr/", "/bin", "/lib", "/sbin"))}
    return sorted(p for p in kept if not any(p != q and p.startswith(q + "/") for q in kept))


def _prefix(command: str) -> str:
    """Of bin/python that is the environment, else the directory."""
    folder = os.path.dirname(os.path.abspath(command))
    parent = os.path.dirname(folder)
    is_environment = os.path.exists(os.path.join(parent, "pyvenv.cfg")) or os.path.isdir(os.path.join(parent, "lib"))
    return parent if os.path.basename(folder) == "bin" and is_environment and parent != "/" else folder
