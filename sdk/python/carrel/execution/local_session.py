"""A session on this machine: a box that has the workspace's directory, and no way out but the functions of its libraries."""
from __future__ import annotations

import contextlib
import os
import shutil
from typing import List

from ..environment.server import connect, private_folder, scoped_server
from ..errors import CarrelError
from ..workspace import Workspace
from .furnish import furnish
from .session import Session


class LocalSession(Session):
    pass


def create_local_session(workspace: Workspace | None = None, name: str = "local-session",
                         workspace_dir: str | os.PathLike[str] = "./workspace") -> LocalSession:
    """The agent's code runs in a box. workspace_dir is there at its own path, for reading and writing; the workspace's libraries are in it, for
    reading only. What the agent writes there stays."""
    workspace = workspace or Workspace()
    place = os.path.abspath(os.fspath(workspace_dir))
    os.makedirs(place, exist_ok=True)
    server = scoped_server(kernels=True)
    copies = private_folder(server, "workspace")
    made: List[Session] = []
    box = None
    try:
        mounts = [{"source": place, "target": place, "writable": True}, *furnish(workspace, place, copies)]
        box = connect(server).create(template="python", mounts=mounts)
        session = LocalSession(name, workspace, place, server, box, owns_box=True)
        made.append(session)
        session._folders.append(copies)
        session._begin()
        return session
    except BaseException:
        with contextlib.suppress(CarrelError):
            if made:
                made[0].terminate()
            elif box is not None:
                box.delete()
        shutil.rmtree(copies, ignore_errors=True)
        raise
