"""Finding a server, or starting a private one that ends with this process."""
from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Dict, List, Sequence

from .errors import KernelUnavailable, Unavailable

_COMPLAINTS = 3         # in a row, of programs that end as soon as they are started
_MACHINE_PLACE = "/usr/local/lib/carrel/python"         # of root's `carrel setup`

# The server is this shell, after exec. A child of it waits for the end of a pipe whose other end this process has: that comes even if this process
# is killed. A line on the pipe means that the server has ended already. Else the child waits for that, and removes the directory, which is $0: more than
# once if one of the server's processes, which was started again just then, still writes there.
_GUARD = """exec 3<&0 </dev/null
(read line <&3 && exit
 read _ _ _ parent _ </proc/self/stat
 [ "$parent" = $$ ] && kill $$ && while [ "$parent" = $$ ]; do sleep 0.1; read _ _ _ parent _ </proc/self/stat; done
 for _ in 1 2 3 4 5 6 7 8 9; do rm -rf "$0" && exit; sleep 1; done) &
exec 3<&-
exec "$@"
"""


def find_binary() -> str:
    """The carrel program: CARREL_BIN, in this package, or on PATH (there also is a script of this package, which is not it)."""
    named = os.environ.get("CARREL_BIN")
    if named:
        return named
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "carrel")
    if os.access(packaged, os.X_OK):
        return packaged
    for directory in os.get_exec_path():
        found = os.path.join(directory, "carrel")
        if os.path.isfile(found) and os.access(found, os.X_OK) and not _is_script(found):
            return found
    raise Unavailable("the program 'carrel' is neither in this package nor on PATH, nor does CARREL_BIN name it")


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def _served(path: str) -> bool:
    """Whether root or this user serves there; /tmp is everybody's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(1)
            probe.connect(path)
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return False
        return struct.unpack("3i", credentials)[1] in (0, os.geteuid())


def _own_place(path: str) -> bool:
    """Whether only root and this user can place a socket there after its server was checked."""
    folder = os.path.dirname(path)
    try:
        status, inner, outer = os.lstat(path), os.lstat(folder), os.stat(os.path.dirname(folder))
    except OSError:
        return False
    ours = all(s.st_uid in (0, os.geteuid()) for s in (inner, outer))
    kept = not outer.st_mode & 0o022 or bool(outer.st_mode & stat.S_ISVTX)
    return stat.S_ISSOCK(status.st_mode) and stat.S_ISDIR(inner.st_mode) and ours and not inner.st_mode & 0o022 and kept


def usual_socket() -> str:
    """Where a server of this user listens, if one runs."""
    if os.geteuid() == 0:
        return "/run/carrel/carrel.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/carrel/carrel.sock" if runtime else f"/tmp/carrel-{os.getuid()}/carrel.sock"


def running_server() -> str | None:
    """The URL of a running server: CARREL_URL, the user's own, the machine's."""
    if os.environ.get("CARREL_URL"):
        return os.environ["CARREL_URL"]
    if os.geteuid() != 0:
        own = usual_socket()
        if _own_place(own) and _served(own):
            return "unix:" + own
    machine = "/run/carrel/carrel.sock"
    return "unix:" + machine if os.path.exists(machine) and _served(machine) else None


def any_server() -> str:
    """The URL of the server that runs, or of a private one."""
    return running_server() or private_server().url


def find_guest() -> str | None:
    """The guest files that kernels need in a box: CARREL_GUEST, in this package, or relative to the program. None: the server finds them."""
    if os.environ.get("CARREL_GUEST"):
        return os.environ["CARREL_GUEST"]
    program = os.path.dirname(os.path.realpath(find_binary()))
    places = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "_guest"), os.path.join(program, "guest"),
              os.path.join(os.path.dirname(program), "lib", "carrel", "guest")]
    return next((place for place in places if os.path.isdir(place)), None)


def setup_place() -> str:
    """Where `carrel setup` puts the environment for kernels."""
    named, data = os.environ.get("CARREL_ENVIRONMENT", ""), os.environ.get("XDG_DATA_HOME", "")
    if named.startswith("/"):
        return named
    if os.geteuid() == 0:
        return _MACHINE_PLACE
    return os.path.join(data if data.startswith("/") else os.path.expanduser("~/.local/share"), "carrel", "python")


def is_set_up() -> bool:
    """Whether there is an environment of `carrel setup`, of this user or of the machine."""
    places = [setup_place()] if os.environ.get("CARREL_ENVIRONMENT") else [setup_place(), _MACHINE_PLACE]
    return any(os.path.exists(os.path.join(place, "carrel-setup")) for place in places)


def setup(*packages: str, upgrade: bool = False) -> str:
    """`carrel setup`: makes an environment for kernels, once, with further packages if they are named; shows its progress on standard error.
    It is used where the caller's own interpreter has no ipykernel. Returns the path of its interpreter."""
    done = subprocess.run([find_binary(), "setup", *(("--upgrade",) if upgrade else ()), "--", *packages], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Unavailable("'carrel setup' did not succeed; what it said on standard error tells why")
    return done.stdout.strip()


def _is_managed() -> bool:
    """Whether pip may install nothing for this interpreter: it is Debian's, say."""
    return sys.prefix == sys.base_prefix and os.path.exists(os.path.join(os.path.dirname(os.__file__), "EXTERNALLY-MANAGED"))


def _own_kernel() -> bool:
    """Whether this interpreter can be a kernel; if it cannot and CARREL_SETUP is "yes", an environment is made that can."""
    if importlib.util.find_spec("ipykernel") is not None:
        return True
    if os.environ.get("CARREL_SETUP") == "yes" and not is_set_up():
        setup()
    return False


def require_kernel() -> None:
    """KernelUnavailable if there is no interpreter that can be a kernel."""
    if not _own_kernel():
        if is_set_up():
            return
        python = sys.executable or "python3"
        other = "" if _is_managed() else f"; or: {python} -m pip install ipykernel"
        raise KernelUnavailable(f"a kernel is this interpreter in a box, and ipykernel is not installed for it; the fix: carrel setup (in Python: "
                                f"carrel.setup()), which makes an environment for kernels, once{other}", code="no_ipykernel")
    closed = closed_prefix()
    if closed:
        raise KernelUnavailable(f"a kernel is this interpreter in a box, {closed}", code="closed_prefix")


def closed_prefix() -> str | None:
    """Why the user of root's boxes cannot read this interpreter's own directories, and the fix. Those above may be closed: a box has its own."""
    if os.geteuid() != 0:
        return None
    real = os.path.realpath(sys.executable)
    for prefix, paths in ((sys.prefix, [os.path.dirname(sys.executable)]), (sys.base_prefix, [os.path.dirname(real), real, os.path.dirname(os.__file__)])):
        for path in (prefix, *paths):
            if not _open_to_all(path):
                return f"whose user is not root, and {path} is closed to others; the fix: chmod -R go+rX {prefix}"
    return None


def _links(python: str) -> List[str]:
    """An interpreter, and the target of each link on the way to it."""
    found = [python]
    while os.path.islink(found[-1]) and len(found) < 9:
        found.append(os.path.join(os.path.dirname(found[-1]), os.readlink(found[-1])))
    return [path for path in (*found, os.path.realpath(python)) if "/.." not in path]


def interpreter_folders(python: str) -> List[str]:
    """The files of an interpreter that a box sees: the prefix of every link on the way to it, as the server finds them (front/config/layers.c)."""
    prefixes = [os.path.dirname(os.path.dirname(path)) for path in _links(python)]
    return [p for p in prefixes if os.path.exists(os.path.join(p, "pyvenv.cfg")) or os.path.isdir(os.path.join(p, "lib"))]


def own_interpreter() -> Dict[str, str]:
    """The settings of a template whose interpreter is this one.

    A link in a directory of programs (~/.local/bin/python3.12) belongs to no interpreter, and a box does not have it: its target is used. An
    environment that was made with copies has no link that leads the server to its base."""
    marks = "pyvenv.cfg", os.path.join("lib", os.path.basename(os.path.dirname(os.__file__)), "os.py")
    paths = _links(os.path.abspath(sys.executable))
    python = next((path for path in paths if any(os.path.exists(os.path.join(os.path.dirname(os.path.dirname(path)), mark)) for mark in marks)), paths[0])
    base = sys.base_prefix
    return {"python": python, **({} if base in ("/", "/usr", *interpreter_folders(python)) else {"layers": base})}


def kernel_settings(startup: str | None = None, early: bool = False) -> tuple[str, ...]:
    """Settings of a private server whose kernels use the caller's own interpreter and packages. early: there will be kernels."""
    settings = {} if early else {"zygote": "late"}
    # Otherwise the server finds the interpreter of `carrel setup`, or reports that there is none.
    if sys.executable and _own_kernel():
        settings.update(own_interpreter())
    if startup:
        settings["startup"] = startup
    return tuple(word for name, value in settings.items() for word in ("--set", f"templates.python.{name}={value}"))


def _open_to_all(path: str) -> bool:
    """Whether the user of a box, whose id is not known yet, can read it."""
    mode = os.stat(path).st_mode
    return mode & 0o005 == 0o005 if os.path.isdir(path) else bool(mode & 0o004)


def readable_startup(profile: str, copy: str) -> str:
    """The profile directory, if boxes can read its startup files; else a copy of those."""
    inner = os.path.join(profile, "startup")
    inner = inner if os.path.isdir(inner) else profile
    files = [os.path.join(inner, name) for name in sorted(os.listdir(inner)) if name.endswith((".py", ".ipy"))]
    if all(_open_to_all(path) for path in (profile, inner, *files)):
        return profile
    os.mkdir(copy, 0o755)
    os.chmod(copy, 0o755)
    for path in files:
        made = shutil.copyfile(path, os.path.join(copy, os.path.basename(path)))
        os.chmod(made, 0o644)
    return copy


class PrivateServer:
    """A server of this process's own: started on demand, ended with the process, state thrown away."""

    def __init__(self, startup: str | None = None, early: bool = False, settings: Sequence[str] = ()) -> None:
        found = find_binary(), find_guest(), kernel_settings(None, early)
        # Closed to others, and kept so by --private. If this process is killed before the shell below runs, the directory stays.
        self.directory = tempfile.mkdtemp(prefix="carrel-")
        self.socket = os.path.join(self.directory, "carrel.sock")
        self._owner = os.getpid()
        self._log: IO[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        try:
            self._start(startup, found, settings)
            self._wait()
        except BaseException:       # also Ctrl-C
            self.close()
            raise

    def _start(self, startup: str | None, found: tuple[str, str | None, tuple[str, ...]], settings: Sequence[str]) -> None:
        binary, guest, kernels = found
        if startup:
            kernels += "--set", f"templates.python.startup={readable_startup(startup, os.path.join(self.directory, 'startup'))}"
        self._log = open(os.path.join(self.directory, "log"), "wb", opener=lambda path, flags: os.open(path, flags, 0o600))
        # The file of settings belongs to the shared server: its addresses are taken.
        command = [binary, "serve", "--no-config", "--private", self.directory, *kernels,
                   *(word for setting in settings for word in ("--set", setting))]
        environment = {**os.environ, **({"CARREL_GUEST": guest} if guest else {})}
        self.process = subprocess.Popen(["/bin/sh", "-c", _GUARD, self.directory, *command], stdin=subprocess.PIPE, stdout=self._log,
                                        stderr=self._log, start_new_session=True, env=environment)

    @property
    def url(self) -> str:
        return "unix:" + self.socket

    @property
    def alive(self) -> bool:
        """In a forked child the server is no child process; there a server that answers is alive."""
        if os.getpid() != self._owner:
            return _ready(self.socket)
        return self.process is not None and self.process.poll() is None

    def _wait(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while True:
            is_over = time.monotonic() > deadline or not self.alive
            with open(os.path.join(self.directory, "log"), "rb") as log:
                said = log.read().decode("utf-8", "replace")
            complaints = re.findall("^carrel: (.*)", said, re.MULTILINE)
            # The server restarts children that end again and again, but a keeper that cannot start here is not waited for.
            if is_over or len(complaints) >= _COMPLAINTS:
                why = complaints[-1] if complaints else said[-2000:].strip()
                raise Unavailable(f"the private server did not start: {why or 'it said nothing'}")
            if _ready(self.socket):
                return
            time.sleep(0.005)

    def close(self) -> None:
        """Ends the server and all its boxes. A forked child leaves its parent's server alone."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        if self.process is not None:
            self._end(self.process)
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin and not process.stdin.closed:
            try:
                process.stdin.write(b"ended\n")
                process.stdin.close()
            except OSError:
                pass


_private: dict[tuple[str | None, tuple[str, ...]], PrivateServer] = {}     # by the directory of startup files, and the settings
_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it when the process forked


os.register_at_fork(after_in_child=_new_lock)


def private_server(startup: str | None = None, early: bool = False, settings: Sequence[str] = ()) -> PrivateServer:
    """The one of this process; a forked child shares that of its parent. With a directory of startup files, or settings (KEY=VALUE): the one for
    those. If it is started now, early says that kernels will be wanted: they are made ready at once, and not with the first of them."""
    key = startup, tuple(settings)
    with _lock:
        server = _private.get(key)
        if server is None or not server.alive:
            server = _private[key] = PrivateServer(startup, early, settings)
        return server


def is_private(url: str) -> bool:
    """Whether that server ends with this process."""
    with _lock:
        return any(server.url == url for server in _private.values())


def _ready(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(2)
            probe.connect(path)
            probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in probe.recv(64)
        except OSError:
            return False
