"""A session on this machine: a box that has the workspace's directory, and no way out but the functions of its libraries."""
from __future__ import annotations

import contextlib
import os
import shutil
from typing import Callable, Sequence, Type, TypeVar

from ..environment.config import ConfigError
from ..environment.server import AnyServer, SharedServer, connect, private_folder, scoped_server
from ..errors import CarrelError
from ..workspace import Workspace
from ..workspace.workspace import checked_workspace
from .furnish import furnish
from .place import leave_place, take_place
from .session import Session

S = TypeVar("S", bound=Session)


class LocalSession(Session):
    """A session in a box of its own, with the workspace's directory."""


def open_local(kind: Type[S], workspace: Workspace | None, name: str, workspace_dir: str | os.PathLike[str],
               prepare: Callable[[S], None] = lambda session: None, own: Sequence[str] = ()) -> S:
    """A session of that kind in a box of its own. prepare() is called before any code runs. own: directories that stay the user's, also if they are
    in workspace_dir."""
    workspace = checked_workspace(workspace)
    place = os.path.abspath(os.fspath(workspace_dir))
    if os.path.lexists(place) and not os.path.isdir(place):
        raise NotADirectoryError(f"workspace_dir={place!r} is not a directory")
    os.makedirs(place, exist_ok=True)
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(f"workspace_dir={place!r} cannot be written to by this user")
    server = _server_of(workspace)
    taken = take_place(place)
    copies = private_folder(server, "workspace")
    session = box = None
    try:
        mounts = [{"source": place, "target": place, "writable": True}, *furnish(workspace, place, copies, own)]
        box = connect(server).create(template="python", mounts=mounts).leash()
        session = kind(name, workspace, place, server, box, True)
        session._folders.append(copies)
        session._at_end.callback(leave_place, taken)
        prepare(session)
        session._begin()
        return session
    except BaseException:
        with contextlib.suppress(CarrelError):
            if session is not None:
                session.terminate()
            elif box is not None:
                box.delete()
        if session is None:
            leave_place(taken)
        shutil.rmtree(copies, ignore_errors=True)
        raise


def _server_of(workspace: Workspace) -> AnyServer:
    """That of the sandboxes whose functions the workspace has: a right to call them belongs to a box of the same server."""
    services = [library.service for library in workspace.all_libraries() if library.service is not None]
    servers = {s.sandbox._server.url: s.sandbox._server for s in services if s.sandbox._server is not None}
    if len(servers) > 1:
        raise ConfigError("libraries of the workspace come from sandboxes of two servers: one has its models in a volume, one has not; make two sessions, "
                          "or give both the same model_cache")
    shared = next((s for s in servers.values() if isinstance(s, SharedServer)), None)
    return shared or scoped_server(kernels=True)


def create_local_session(workspace: Workspace | None = None, name: str = "local-session",
                         workspace_dir: str | os.PathLike[str] = "./workspace") -> LocalSession:
    """The agent's code runs in a box. workspace_dir is there at its own path, for reading and writing; the workspace's libraries are in it, for
    reading only. What the agent writes there stays. One session at a time has a directory."""
    return open_local(LocalSession, workspace, name, workspace_dir)
