"""A session: the place where the agent's code runs. It is a box; the code can only reach the box's contents and the granted functions."""
from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, TypeVar

from ..asyncclient import AsyncCarrel
from ..cells import Result
from ..client import Box
from ..errors import CarrelError, Conflict, NotFound, Unavailable
from ..environment.server import AnyServer
from ..local import find_binary
from ..tools import Outcome, Tool, required_text
from ..workspace import Workspace
from .cells import command_content, result_content
from .live import add_session, forget_session

if TYPE_CHECKING:
    from ..environment.sandbox import Sandbox

Raw = Dict[str, Any]
S = TypeVar("S", bound="Session")


class Session:
    """Common to all sessions. As a context manager it is terminated at the end; without, it ends with the program."""

    has_shell = False
    sandbox: "Sandbox | None" = None        # its box; None: it has one of its own

    def __init__(self, name: str, workspace: Workspace | None, workspace_path: str, server: AnyServer, box: Box, owns_box: bool):
        self.name = name
        self.session_id = f"{name}-{secrets.token_hex(4)}"
        self.workspace = workspace or Workspace()
        self.workspace_path = Path(workspace_path)
        self.box = box
        self._server = server
        self._owns_box = owns_box
        self._owner = os.getpid()
        self._folders: List[str] = []
        self._at_end = contextlib.ExitStack()
        self._ended = False
        add_session(self)

    @property
    def workspace_dir(self) -> str:
        """The directory in which its code runs."""
        return str(self.workspace_path)

    @property
    def is_alive(self) -> bool:
        """Whether neither it nor its sandbox was ended."""
        return not self._ended and (self.sandbox is None or self.sandbox.sandbox_id == self.box.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} in {self.workspace_path}>"

    # --- code ---

    def _kernel_options(self) -> Raw:
        return {"env": {"PYTHONDONTWRITEBYTECODE": "1"}, "cwd": str(self.workspace_path)}

    def exec(self, code: str, hidden: bool = False, timeout: float | None = None, check: bool = False) -> Result:
        """Runs Python in the session; variables stay. A result as of Box.run(), also if it raised; check=True raises then. hidden: it is in no
        notebook."""
        return self.box.run(code, timeout=timeout, check=check, **self._kernel_options())

    def exec_file(self, path: str | os.PathLike[str], **options: Any) -> Result:
        """Runs a file of this machine."""
        return self.exec(Path(path).read_text(encoding="utf-8"), **options)

    def _begin(self) -> None:
        """Grants, before any code runs; then the workspace's own code."""
        for library in self.workspace.all_libraries():
            if library.service is not None:
                library.service.grant(self.box.id)
        if self.workspace.custom_init_code:
            self.exec(self.workspace.custom_init_code, hidden=True, check=True)

    # --- tools for agents ---

    async def agent_tools(self, stack: contextlib.AsyncExitStack) -> List[Tool]:
        """What run_agent() gives the agent of this session."""
        carrel = await stack.enter_async_context(AsyncCarrel(self._server.url))
        box = await carrel.get(self.box.id)

        async def python(given: Raw) -> Outcome:
            return await self._run_cell(box, required_text(given, "code"))

        async def shell(given: Raw) -> Outcome:
            options = self._kernel_options()
            done = await box.exec(["/bin/bash", "-c", required_text(given, "command")], **options)
            return Outcome(command_content(done), not done.ok)

        tools = [Tool("python", "Runs Python in the session, in the working directory. Variables stay between calls. Gives back what the code prints, "
                      "the value of the last expression, and pictures.", _schema("code", "Python code"), python)]
        if self.has_shell:
            tools.append(Tool("shell", "Runs a line of shell in the session's box.", _schema("command", "a line for bash"), shell))
        return tools

    async def _run_cell(self, box: Any, code: str) -> Outcome:
        result = await box.run(code, **self._kernel_options())
        return Outcome(result_content(result), not result.ok)

    def agent_words(self) -> str:
        """The description of the session for the agent's prompt."""
        parts = [f"You work in a session: the tool `python` runs code in it{', `shell` runs commands' if self.has_shell else ''}. The working directory "
                 f"is {self.workspace_path}. There is no network."]
        docs = self.workspace.get_library_docs()
        if docs:
            parts.append(docs)
        skills = self.workspace.all_skills()
        if skills:
            parts.append("# Skills\n\n" + "\n".join(f"- {s.name}: {s.description} (read .claude/skills/{s.name}/SKILL.md)" for s in skills))
        return "\n\n".join(parts)

    @property
    def mcp_config(self) -> Raw:
        """The session's tools as a server for any MCP client on this machine, as long as the session lives."""
        self._start_kernel()
        return self._mcp_entry()

    def _mcp_entry(self) -> Raw:
        """Only the words of mcp_config."""
        args = ["mcp", "--box", self.box.id, "--tools", ",".join(self._mcp_tools), "--url", self._server.url]
        return {self._mcp_name: {"type": "stdio", "command": find_binary(), "args": args}}

    _mcp_name = "session"
    _mcp_tools: Sequence[str] = ("run_code",)

    def _start_kernel(self) -> None:
        """With the session's directory and environment, which commands and paths of MCP clients have then, too."""
        with contextlib.suppress(Conflict):         # it exists
            self.box.kernel().start(**self._kernel_options())

    # --- the end ---

    def terminate(self) -> None:
        """Ends the session and its processes. A second call is harmless. Files in workspace_dir stay."""
        if self._ended or os.getpid() != self._owner:
            return
        self._ended = True
        forget_session(self)
        try:
            if self._owns_box:
                with contextlib.suppress(NotFound, Unavailable):
                    self.box.delete()
        finally:
            while self._folders:
                shutil.rmtree(self._folders.pop(), ignore_errors=True)
            self._at_end.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.terminate()
        except CarrelError:
            if exc is None:
                raise


def _schema(name: str, words: str) -> Raw:
    return {"type": "object", "properties": {name: {"type": "string", "description": words}}, "required": [name]}
