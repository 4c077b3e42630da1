"""The agent toolset of Anthropic's self-hosted environments, in a box: the loop is hosted elsewhere, the worker runs
here, its tools run behind walls.

    from carrel.integrations.anthropic import carrel_tools

    work = client.beta.environments.work
    await work.worker(environment_id=..., environment_key=..., tools=carrel_tools(memory="1G")).run()

The worker keeps its key to itself: a box has neither the variables nor the files of this program."""
from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import posixpath
import re
import uuid
from typing import Any, AsyncIterator, Callable, Dict, List, Optional

from ..asyncclient import AsyncBox
from ..asyncexec import AsyncExec
from ..client import event_bytes, exec_result
from ..errors import CarrelError, plain
from .common import close_async_box, make_async_box, needs

with needs("anthropic", "anthropic", "2.9"):
    from anthropic.lib.tools import BetaAsyncFunctionTool, ToolError, beta_async_tool
    from anthropic.lib.tools.agent_toolset import (BASH_DEFAULT_TIMEOUT, BASH_OUTPUT_LIMIT, DEFAULT_MAX_FILE_BYTES,
                                                   DEFAULT_MAX_IMAGE_BASE64_BYTES, DEFAULT_MAX_PDF_BYTES,
                                                   GLOB_RESULT_LIMIT, GREP_OUTPUT_LIMIT, AgentToolContext)
    from anthropic.types.beta import (BetaManagedAgentsAgentToolset20260401BashInput,
                                      BetaManagedAgentsAgentToolset20260401EditInput,
                                      BetaManagedAgentsAgentToolset20260401GlobInput,
                                      BetaManagedAgentsAgentToolset20260401GrepInput,
                                      BetaManagedAgentsAgentToolset20260401ReadInput,
                                      BetaManagedAgentsAgentToolset20260401WriteInput)

_HOME = "/home/box"
_MEDIA = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".pdf": "application/pdf"
}
_SAID = "/tmp/.bash-output"
_GLOB = """import itertools, pathlib, sys
found = list(itertools.islice(pathlib.Path(sys.argv[2]).glob(sys.argv[1]), 50000))
found.sort(key=lambda p: p.lstat().st_mtime, reverse=True)
print(*found[:int(sys.argv[3])], sep="\\n")"""
_GREP = """if command -v rg >/dev/null; then exec rg --no-config -n --no-heading -e "$1" -- "$2"; fi
exec grep -rnIP --exclude-dir=.git --exclude-dir=node_modules -e "$1" -- "$2" """


class _Shell:
    """A bash that stays: directory, variables and jobs survive from call to call. A command's output goes to a file in
    the box, so that the shell's own output stays short."""

    def __init__(self, command: AsyncExec):
        self._command = command
        self._events = command.output()

    @classmethod
    async def start(cls, box: AsyncBox) -> "_Shell":
        return cls(await box.spawn(["/bin/bash", "--noprofile", "--norc"], stdin=True,
                                   env={"PS1": "", "PS2": "", "TERM": "dumb"}))

    async def run(self, line: str, timeout: float) -> int:
        """The command's exit status; asyncio.TimeoutError, or ToolError if the shell has ended."""
        mark = f"__CARREL_{uuid.uuid4().hex}__"
        wrapped = f": >{_SAID}; {{ {line}\n}} </dev/null >>{_SAID} 2>&1; printf '%s%d\\n' {mark[:8]}''{mark[8:]} $?\n"
        await self._command.write(wrapped.encode())
        return await asyncio.wait_for(self._status(mark), timeout)

    async def _status(self, mark: str) -> int:
        said = ""
        async for event in self._events:
            if event["type"] == "stdout":
                said += event_bytes(event).decode("utf-8", "replace")
                if found := re.search(re.escape(mark) + r"(\d+)\n", said):
                    return int(found.group(1))
        result = exec_result((await self._command.refresh()).raw)
        raise ToolError(
            f"bash: the shell has ended ({result.reason or 'exit code 0'}); the next command gets another one")

    async def end(self) -> None:
        with contextlib.suppress(CarrelError):
            await self._command.kill()
        await self._events.aclose()     # type: ignore[attr-defined]


class _Tools:
    """The six tools of one session, and its box, which the first call makes."""

    def __init__(self, context: AgentToolContext, options: Dict[str, Any]):
        self._context, self._options = context, options
        self._lock = asyncio.Lock()
        self._box: Optional[AsyncBox] = None
        self._shell: Optional[_Shell] = None

    async def box(self) -> AsyncBox:
        async with self._lock:
            if self._box is None:
                try:
                    self._box = await make_async_box(
                        **{**self._options, "mounts": [*(self._options.get("mounts") or ()), *self._stores()]})
                    await self._put_skills(self._box)
                except (CarrelError, OSError, ValueError, TypeError) as e:
                    raise ToolError(f"no box for this session: {e}") from e
            return self._box

    def _stores(self) -> List[str]:
        """The folders of the session's memory stores, which the worker keeps here, at the same place in the box."""
        fixed = {os.path.realpath(root) for root in self._context.read_only_roots}
        return [
            f"{root}:{root}:{'ro' if root in fixed else 'rw'}"
            for root in map(os.path.realpath, self._context.allowed_roots)
        ]

    async def _put_skills(self, box: AsyncBox) -> None:
        """The files that the worker fetched for the session's agent into its own working directory."""
        skills = os.path.join(self._context.workdir, "skills")
        for folder, _, names in os.walk(skills):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    await box.files.write(posixpath.join(_HOME, "skills", os.path.relpath(file.name, skills)),
                                          file.read(), mode=os.fstat(file.fileno()).st_mode & 0o777)

    async def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await close_async_box(box)

    # ---- bash ----

    async def bash(self, command: Optional[str], restart: Optional[bool], timeout_ms: Optional[int]) -> str:
        box = await self.box()
        if restart or self._shell is None:
            await self._end_shell()
            self._shell = await _Shell.start(box)
        if restart:
            return "bash session restarted"
        if not command:
            raise ToolError("bash: command is required")
        timeout = timeout_ms / 1000 if timeout_ms else BASH_DEFAULT_TIMEOUT
        try:
            code = await self._shell.run(command, timeout)
        except asyncio.TimeoutError:
            await self._end_shell()
            raise ToolError(f"bash: bash command timed out after {timeout:g}s") from None
        except BaseException:       # cancelled, or ended: the next call gets another shell
            await asyncio.shield(self._end_shell())
            raise
        output = await self._said(box)
        if code != 0:
            raise ToolError(output)
        return output

    async def _said(self, box: AsyncBox) -> str:
        size = (await box.files.stat(_SAID)).size
        data = await box.files.read(_SAID, offset=max(0, size - BASH_OUTPUT_LIMIT)) if size else b""
        text = plain(data.decode("utf-8", "replace")).rstrip("\n")
        return ("[output truncated]\n" if size > BASH_OUTPUT_LIMIT else "") + text

    async def _end_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.end()

    # ---- files ----

    @contextlib.asynccontextmanager
    async def _file(self, tool: str, path: str) -> AsyncIterator[AsyncBox]:
        """Errors in the words of the toolset."""
        try:
            yield await self.box()
        except CarrelError as e:
            said = os.strerror(e.errno).lower() if isinstance(e, OSError) and e.errno else str(e)
            raise ToolError(f"{tool}: {path}: {said}") from e
        except UnicodeDecodeError as e:
            raise ToolError(
                f"{tool}: {path}: not valid UTF-8 text (binary files are only supported for image/PDF extensions)"
            ) from e

    async def _checked(self, box: AsyncBox, tool: str, path: str, most: Optional[int]) -> int:
        info = await box.files.stat(path)
        if info.type != "file":
            raise ToolError(f"{tool}: {path}: not a regular file")
        if most is not None and info.size > most:
            raise ToolError(f"{tool}: {path} is {info.size} bytes, exceeds {most}-byte limit.")
        return info.size

    def _most(self) -> Optional[int]:
        wanted = self._context.max_file_bytes
        return wanted if wanted is None or isinstance(wanted, int) else DEFAULT_MAX_FILE_BYTES

    async def read(self, path: str, view_range: Optional[List[int]]) -> Any:
        if view_range and len(view_range) != 2:
            raise ToolError("read: view_range must be [start_line, end_line]")
        kind = _MEDIA.get(posixpath.splitext(path)[1].lower())
        async with self._file("read", path) as box:
            if kind:
                most = DEFAULT_MAX_PDF_BYTES if kind == "application/pdf" else DEFAULT_MAX_IMAGE_BASE64_BYTES // 4 * 3
                await self._checked(box, "read", path, most)
                data = base64.standard_b64encode(await box.files.read(path)).decode("ascii")
                block = "document" if kind == "application/pdf" else "image"
                return [{"type": block, "source": {"type": "base64", "media_type": kind, "data": data}}]
            most = self._most()
            size = await self._checked(box, "read", path, None if view_range else most)
            if view_range and most is not None and size > most:
                return await self._lines(box, path, view_range, most)
            text = (await box.files.read(path)).decode("utf-8")
        if not view_range:
            return text
        lines = text.split("\n")
        return "\n".join(lines[max(0, view_range[0] - 1):view_range[1] if view_range[1] > 0 else len(lines)])

    async def _lines(self, box: AsyncBox, path: str, view_range: List[int], most: int) -> str:
        """Of a file that is too long to be read as a whole."""
        first, last = max(1, view_range[0]), view_range[1] if view_range[1] > 0 else "$"
        script = f"{first},{last}p" + (f";{last}q" if last != "$" else "")
        result = await box.exec(["sed", "-n", script, "--", posixpath.join(_HOME, path)], output_limit=most + 1)
        if not result.ok:
            is_long = result.outcome == "output_limit"
            why = f"the lines exceed the {most}-byte limit" if is_long else result.stderr.strip() or result.reason
            raise ToolError(f"read: {path}: {why}")
        return result.stdout_bytes.decode("utf-8").removesuffix("\n")

    async def write(self, path: str, content: str) -> str:
        async with self._file("write", path) as box:
            await box.files.write(path, content)
        return f"wrote {len(content)} bytes to {path}"

    async def edit(self, path: str, old: str, new: str, replace_all: Optional[bool]) -> str:
        async with self._file("edit", path) as box:
            await self._checked(box, "edit", path, self._most())
            text = (await box.files.read(path)).decode("utf-8")
            count = text.count(old)
            if count == 0:
                raise ToolError(f"edit: old_string not found in {path}")
            if not replace_all and count > 1:
                raise ToolError(f"edit: old_string appears {count} times in {path} (must be unique)")
            await box.files.write(path, text.replace(old, new) if replace_all else text.replace(old, new, 1))
        return f"edited {path} ({count if replace_all else 1} replacement(s))"

    async def _search(self, tool: str, path: Optional[str], words: Callable[[str], List[str]]) -> str:
        async with self._file(tool, path or ".") as box:
            result = await box.exec(words(posixpath.join(_HOME, path or "")), timeout=60)
        if result.exit_code == 1 and tool == "grep" or result.ok and not result.stdout.strip():
            return "no matches"
        if not result.ok:
            raise ToolError(
                f"{tool}: {result.stderr.strip().splitlines()[-1] if result.stderr.strip() else result.reason}")
        cut = f"\n[output truncated at {GREP_OUTPUT_LIMIT} bytes]" if len(result.stdout) > GREP_OUTPUT_LIMIT else ""
        return result.stdout[:GREP_OUTPUT_LIMIT].rstrip("\n") + cut

    async def glob(self, pattern: str, path: Optional[str]) -> str:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise ToolError("glob: the pattern must be relative and without '..'; path says where to begin")
        words = ["python3", "-c", _GLOB, pattern]
        return await self._search("glob", path, lambda place: [*words, place, str(GLOB_RESULT_LIMIT)])

    async def grep(self, pattern: str, path: Optional[str]) -> str:
        return await self._search("grep", path, lambda place: ["/bin/sh", "-c", _GREP, "sh", pattern, place])


def _toolset(tools: _Tools) -> List[BetaAsyncFunctionTool[Any]]:

    async def bash(command: Optional[str] = None, restart: Optional[bool] = None,
                   timeout_ms: Optional[int] = None) -> str:
        """Run a command in a persistent bash shell."""
        return await tools.bash(command, restart, timeout_ms)

    async def read(file_path: str, view_range: Optional[List[int]] = None) -> Any:
        """Read a file rooted at the working directory."""
        return await tools.read(file_path, view_range)

    async def write(file_path: str, content: str) -> str:
        """Write a file, creating parent directories as needed."""
        return await tools.write(file_path, content)

    async def edit(file_path: str, old_string: str, new_string: str, replace_all: Optional[bool] = None) -> str:
        """Replace text in a file by exact string match."""
        return await tools.edit(file_path, old_string, new_string, replace_all)

    async def glob(pattern: str, path: Optional[str] = None) -> str:
        """List files matching a glob pattern, newest first."""
        return await tools.glob(pattern, path)

    async def grep(pattern: str, path: Optional[str] = None) -> str:
        """Search file contents for a regular expression."""
        return await tools.grep(pattern, path)

    made = [beta_async_tool(name=function.__name__, input_schema=schema)(function) for function, schema in (
        (bash, BetaManagedAgentsAgentToolset20260401BashInput),
        (read, BetaManagedAgentsAgentToolset20260401ReadInput),
        (write, BetaManagedAgentsAgentToolset20260401WriteInput),
        (edit, BetaManagedAgentsAgentToolset20260401EditInput),
        (glob, BetaManagedAgentsAgentToolset20260401GlobInput),
        (grep, BetaManagedAgentsAgentToolset20260401GrepInput))]
    made[0].close = tools.close     # called by the runner when the session ends
    return made


def carrel_tools(**options: Any) -> Callable[[AgentToolContext], List[BetaAsyncFunctionTool[Any]]]:
    """For the worker's `tools`: bash, read, write, edit, glob and grep, in a box of each session's own that ends with
    the session. Options of Box."""
    return lambda context: _toolset(_Tools(context, options))
