"""The server of a program's sandboxes and sessions: its own, so that it ends with the program, whatever becomes of that."""
from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import tempfile
from typing import List, Sequence, Union

from ..client import Carrel
from ..errors import InterpreterUnavailable, Unavailable
from ..local import (PrivateServer, closed_prefix, find_guest, interpreter_folders, own_interpreter, private_server, require_kernel, setup_place,
                     running_server, usual_socket)

PROGRAM = "program"         # the template of boxes in which this program's own interpreter runs; it need not be able to be a kernel


def host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _settings() -> tuple[str, ...]:
    """A box may use all of the machine's memory and GPUs: a model does not fit into the bounds for untrusted code."""
    template = {**own_interpreter(), "pool": "off"} if sys.executable else {}
    return (f"limits.memory={host_memory()}", "devices.allow=*/gpu", *(f"templates.{PROGRAM}.{name}={value}" for name, value in template.items()))


def check_program() -> None:
    """InterpreterUnavailable if a box cannot run this program's interpreter."""
    if not sys.executable:
        raise InterpreterUnavailable("this program's interpreter does not say where it is (sys.executable is empty), so no box can run it; start the "
                                     "program with python3", code="interpreter_failed")
    closed = closed_prefix()
    if closed:
        raise InterpreterUnavailable(f"a sandbox runs this program's interpreter in a box, {closed}", code="closed_prefix")


def make_room(folder: str, target: str, pythons: Sequence[str] = ()) -> None:
    """Makes an empty directory in the mount at `target` for each directory of an interpreter below it: the server shows it there. pythons: of a server
    that is not the program's own."""
    places = [*(place for python in pythons for place in interpreter_folders(python)),
              *interpreter_folders(os.path.abspath(sys.executable)), sys.base_prefix, *interpreter_folders(os.path.join(setup_place(), "bin", "python")),
              find_guest() or target]
    for place in places:
        if place.startswith(target + "/") and not any(place.startswith(other + "/") for other in places if other != target):
            os.makedirs(folder + place[len(target):], exist_ok=True)


def scoped_server(kernels: bool = False) -> PrivateServer:
    """The one server of this program. kernels: they will be wanted, so the interpreter must be able to be one."""
    if kernels:
        require_kernel()
    return private_server(settings=_settings(), early=kernels)


class SharedServer:
    """The running server, for sandboxes with a volume of it: it does not end with the program, so their boxes have a leash."""

    def __init__(self, why: str):
        url = running_server()
        if url is None:
            raise Unavailable(f"{why}: volumes are kept by a server that stays, and none is running; start one with 'carrel serve'")
        if not url.startswith("unix:"):
            raise Unavailable(f"{why}: a sandbox has directories of this machine, so the server must be this machine's, and CARREL_URL is {url}")
        self.url = url
        self.socket = url[len("unix:"):].removeprefix("//")
        self.directory = tempfile.mkdtemp(prefix="carrel-")
        self._owner = os.getpid()
        atexit.register(self._close)

    def _close(self) -> None:
        if os.getpid() == self._owner:
            shutil.rmtree(self.directory, ignore_errors=True)


AnyServer = Union[PrivateServer, SharedServer]


def connect(server: AnyServer) -> Carrel:
    return Carrel(server.url)


def private_folder(server: AnyServer, what: str) -> str:
    """A new directory that is removed with the server. Only the program's user can list it; a box only sees the mounted part."""
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
