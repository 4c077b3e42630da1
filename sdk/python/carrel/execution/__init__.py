"""Sessions: where the agent's code runs."""
from __future__ import annotations

from ..errors import CellFailed
from .cli_session import CLISession, create_cli_session
from .local_session import LocalSession, create_local_session
from .notebook_session import LocalNotebookSession, NotebookSession, create_local_notebook_session, create_notebook_session
from .place import UnsafePlace
from .session import Session

__all__ = ["CLISession", "CellFailed", "LocalNotebookSession", "LocalSession", "NotebookSession", "Session", "UnsafePlace", "create_cli_session",
           "create_local_notebook_session", "create_local_session", "create_notebook_session"]
