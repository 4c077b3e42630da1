"""The server of a program's sandboxes and sessions: its own, so that it ends with the program, whatever becomes of that."""
from __future__ import annotations

import os
import secrets
import tempfile
from typing import List

from ..client import Carrel
from ..local import PrivateServer, private_server, require_kernel, usual_socket


def host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _settings() -> tuple[str, ...]:
    """A box may have what the machine has, memory and GPUs: a model does not fit into what is meant for strangers' code."""
    return (f"limits.memory={host_memory()}", "devices.allow=*/gpu")


def scoped_server(kernels: bool = False) -> PrivateServer:
    """The one server of this program. kernels: they will be wanted, so the interpreter must be able to be one."""
    if kernels:
        require_kernel()
    return private_server(settings=_settings(), early=kernels)


def connect(server: PrivateServer) -> Carrel:
    return Carrel(server.url)


def private_folder(server: PrivateServer, what: str) -> str:
    """A new directory that goes with the server. Only the program's user can list it; a box sees of it what is mounted there."""
    path = os.path.join(server.directory, f"{what}-{secrets.token_hex(6)}")
    os.mkdir(path, 0o700)
    return path


def server_places() -> List[str]:
    """Where sockets of servers are: of this program's own, which are all below the directory for temporary files, of this user's and of the machine's."""
    return [tempfile.gettempdir(), os.path.dirname(usual_socket()), "/run/carrel"]


def holds(folder: str, path: str) -> bool:
    """Whether `path` is `folder` or below it."""
    folder, path = os.path.realpath(folder), os.path.realpath(path)
    return os.path.commonpath([folder, path]) == folder
