"""Sessions whose cells are written into a notebook on this machine while they run."""
from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, List

from ..cells import Collector, Result, made
from ..environment.config import ConfigError, ExecutionMode, ModelHandle
from ..environment.sandbox import Sandbox
from ..environment.scoped import ScopedSandbox
from ..tools import Outcome, Tool, required_text, text_block
from ..workspace import Workspace
from ..workspace.workspace import checked_workspace
from .cells import result_content
from .follow import Follower
from .furnish import data_files, fixed_files
from .local_session import open_local
from .model_loader import loading_code, models_text
from .notebook import CellOutputs, NotebookFile
from .session import Session

Raw = Dict[str, Any]


class NotebookSession(Session):
    """exec() adds a cell to the notebook and runs it; hidden ones are in no notebook."""

    _mcp_name = "notebooks"
    _follower: Follower | None = None

    def _open_notebook(self, notebook_dir: str | os.PathLike[str]) -> None:
        self.notebook_dir = os.path.abspath(os.fspath(notebook_dir))
        self.notebook = NotebookFile.create(self.notebook_dir, self.name)
        self._loaded: List[ModelHandle] = []

    @property
    def notebook_path(self) -> str:
        """Where the notebook is on this machine."""
        return self.notebook.path

    @property
    def jupyter_url(self) -> None:
        """There is no Jupyter server: the kernel is reached through Carrel, and the notebook is a file."""
        return None

    @property
    def model_info_text(self) -> str:
        """What the agent's prompt says of the models that are loaded."""
        return models_text(self._loaded)

    def exec(self, code: str, hidden: bool = False, timeout: float | None = None, check: bool = False) -> Result:
        """Runs a cell and writes it to the notebook, unless it is hidden."""
        if hidden:
            return super().exec(code, hidden, timeout, check)
        result = self._run_into(self.notebook.add_code(code), code, timeout)
        return result.check() if check else result

    def _run_into(self, cell_id: str, code: str, timeout: float | None) -> Result:
        outputs, collector = CellOutputs(self.notebook, cell_id), Collector()
        try:
            for event in self.box.stream(code, timeout=timeout, **self._kernel_options()):
                outputs.take(event)
                collector.take(event)
        except BaseException:
            outputs.end("error")
            raise
        return made(collector.result())

    async def _run_cell(self, box: Any, code: str) -> Outcome:
        return await self._stream_into(box, self.notebook.add_code(code), code)

    async def _stream_into(self, box: Any, cell_id: str, code: str) -> Outcome:
        outputs, collector = CellOutputs(self.notebook, cell_id), Collector()
        events = box.stream(code, **self._kernel_options())
        try:
            async for event in events:
                outputs.take(event)
                collector.take(event)
        except BaseException:
            outputs.end("error")
            raise
        finally:
            await events.aclose()
        result = made(collector.result())
        return Outcome(result_content(result), not result.ok)

    async def agent_tools(self, stack: contextlib.AsyncExitStack) -> List[Tool]:
        """As of any session; Python runs as cells of the notebook."""
        [python, *rest] = await super().agent_tools(stack)
        from ..asyncclient import AsyncCarrel
        box = await (await stack.enter_async_context(AsyncCarrel(self._server.url))).get(self.box.id)

        async def add_markdown(given: Raw) -> Outcome:
            return Outcome([text_block(f"cell {self.notebook.add_markdown(required_text(given, 'content'))}")])

        async def edit_cell(given: Raw) -> Outcome:
            code = required_text(given, "code")
            return await self._stream_into(box, self.notebook.edit_code(int(given.get("cell_index", -1)), code), code)

        one = {"type": "string"}
        python.name, python.description = "execute_code", "Adds a cell to the notebook and runs it. " + python.description
        return [python, *rest,
                Tool("add_markdown", "Adds a markdown cell to the notebook.",
                     {"type": "object", "properties": {"content": one}, "required": ["content"]}, add_markdown),
                Tool("edit_cell", "Replaces the code of a code cell (-1: the last one) and runs it again.",
                     {"type": "object", "properties": {"code": one, "cell_index": {"type": "integer"}}, "required": ["code"]}, edit_cell)]

    @property
    def mcp_config(self) -> Raw:
        """As every session's; the cells of its clients are written into the notebook as long as the session lives."""
        config = super().mcp_config
        if self._follower is None:
            self._follower = Follower(self._server.url, str(self.box.kernel().info()["id"]), self.notebook)
            self._at_end.callback(self._follower.stop)
        return config

    def agent_words(self) -> str:
        """What the agent's prompt says of the session."""
        words = super().agent_words().replace("the tool `python` runs code in it", "the tool `execute_code` runs code in it, as cells of a notebook")
        return "\n\n".join(part for part in (words, self.model_info_text) if part)

    def _load_models(self, handles: List[ModelHandle]) -> None:
        for handle in handles:
            self.exec(loading_code(handle), hidden=handle.hidden or self.workspace.hidden_model_loading, check=True)
            self._loaded.append(handle)


class LocalNotebookSession(NotebookSession):
    """A session in a box of its own, whose cells are written to a notebook."""


def check_sandbox(sandbox: Sandbox, mode: ExecutionMode, factory: str) -> None:
    if isinstance(sandbox, ScopedSandbox):
        raise ConfigError(f"{factory}(): the agent does not run in a ScopedSandbox; give it a Sandbox, and the scoped one's library in its workspace")
    if sandbox.config.execution_mode is not mode:
        raise ConfigError(f"{factory}() needs a sandbox with SandboxConfig(execution_mode=ExecutionMode.{mode.name})")


def furnish_sandbox(sandbox: Sandbox, workspace: Workspace) -> None:
    """The workspace's files in /workspace, which belongs to the sandbox alone."""
    for path, data in {**data_files(workspace), **fixed_files(workspace)}.items():
        sandbox.ensure_dir(os.path.dirname(f"/workspace/{path}"))
        sandbox.box.files.write(f"/workspace/{path}", data)


def create_notebook_session(sandbox: Sandbox, workspace: Workspace | None = None, name: str = "session",
                            notebook_dir: str | os.PathLike[str] = "./outputs") -> NotebookSession:
    """A session in a sandbox. Its notebook is in notebook_dir on this machine. The sandbox's models are loaded first."""
    check_sandbox(sandbox, ExecutionMode.NOTEBOOK, "create_notebook_session")
    workspace = checked_workspace(workspace)
    furnish_sandbox(sandbox, workspace)
    assert sandbox._server is not None
    session = NotebookSession(name, workspace, "/workspace", sandbox._server, sandbox.box, owns_box=False)
    try:
        session.sandbox = sandbox
        session._open_notebook(notebook_dir)
        if workspace.preload_models:
            session._load_models(sandbox.model_handles)
        session._begin()
    except BaseException:
        session.terminate()
        raise
    return session


def create_local_notebook_session(workspace: Workspace | None = None, name: str = "local-session", port: int = 8888,
                                  notebook_dir: str | os.PathLike[str] = "./outputs",
                                  workspace_dir: str | os.PathLike[str] = "./workspace") -> LocalNotebookSession:
    """As create_local_session(), with a notebook in notebook_dir."""
    if port != 8888:
        raise ConfigError(f"create_local_notebook_session(port={port}) cannot be had: no Jupyter server is started, so there is no port; leave it out")
    return open_local(LocalNotebookSession, workspace, name, workspace_dir, lambda session: session._open_notebook(notebook_dir), [os.fspath(notebook_dir)])
