"""Sessions with a shell."""
from __future__ import annotations

import re

from ..environment.config import ExecutionMode
from ..environment.sandbox import CommandFailed, Sandbox
from ..workspace import Workspace
from ..workspace.workspace import checked_workspace
from .model_loader import loading_code
from .notebook_session import check_sandbox, furnish_sandbox
from .session import Session


class CLISession(Session):
    """A session in a Sandbox, with a shell."""

    has_shell = True
    _mcp_name = "cli"
    _mcp_tools = ("run_code", "run_command", "read_file", "write_file", "list_files")

    def exec_shell(self, cmd: str, timeout: float | None = None) -> str:
        """Runs a shell command and returns its standard output. CommandFailed, a RuntimeError, if it does not end well."""
        done = self.box.exec(["/bin/bash", "-c", cmd], timeout=timeout, **self._kernel_options())
        if not done.ok:
            raise CommandFailed(done)
        return done.stdout


def create_cli_session(sandbox: Sandbox, workspace: Workspace | None = None, name: str = "cli-session") -> CLISession:
    """A session in a sandbox, with Python and a shell. For each model of the sandbox there is a script in /workspace that loads it."""
    check_sandbox(sandbox, ExecutionMode.CLI, "create_cli_session")
    workspace = checked_workspace(workspace)
    furnish_sandbox(sandbox, workspace)
    for handle in sandbox.model_handles:
        stem = handle.var_name if handle.hidden else re.sub(r"[^A-Za-z0-9_]", "_", handle.name)
        sandbox.write_file(f"/workspace/load_{stem}.py", loading_code(handle))
    assert sandbox._server is not None
    session = CLISession(name, workspace, "/workspace", sandbox._server, sandbox.box, owns_box=False)
    try:
        session.sandbox = sandbox
        session._begin()
    except BaseException:
        session.terminate()
        raise
    return session
