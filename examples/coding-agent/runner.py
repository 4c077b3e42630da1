"""Runs generated code, and decides what that code can see.

A Runner takes source text and gives back a Run: what was printed, what went wrong. There are three, and `choose()` picks one:

  SocketRunner      asks the runner container of the same pod (`python runner.py --serve SOCKET` there)
  BoxRunner         runs the code in a Carrel box of this machine
  SubprocessRunner  a plain child process; only when asked for by name, because it isolates nothing but the environment

With any runner, the code gets PATH, LANG, LC_ALL and the variables that SUBPROCESS_ENV_PASSTHROUGH names, and no other. Its output is
bounded, and at the time limit everything that it started ends, also what moved into a session of its own.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Mapping, Optional, Protocol

PASSED = ("PATH", "LANG", "LC_ALL")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
TIMEOUT = 60.0
OUTPUT_LIMIT = 64 * 1024
REQUEST_LIMIT = 4 * 1024 * 1024
REPLY_LIMIT = 2 * 6 * OUTPUT_LIMIT + 4096       # JSON may write a byte as \u00XX
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Run:
    """How a piece of code ended. error is None if it ended well."""

    output: str
    error: Optional[str] = None


class Runner(Protocol):
    def run(self, code: str) -> Run: ...


class RunnerUnavailable(Exception):
    """The code could not be run at all; that is not the code's fault, so it must not be "fixed"."""


def passed_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the code may see of our environment."""
    named = [name.strip() for name in environ.get("SUBPROCESS_ENV_PASSTHROUGH", "").split(",")]
    return {name: environ[name] for name in (*PASSED, *named) if name and name in environ}


# --- running a child process: in the runner container, or as a plain subprocess ---

def _parent_of(pid: int) -> Optional[int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _descendants() -> list[int]:
    parents = {pid: _parent_of(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    found = []
    for pid in parents:
        above = parents[pid]
        while above not in (None, 0, os.getpid()):
            above = parents.get(above)
        if above == os.getpid():
            found.append(pid)
    return found


def _end_descendants() -> None:
    """Kills everything below this process. Orphans come to us (we are their reaper), so a double fork or setsid() hides no process."""
    while True:
        left = _descendants()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, 0 if left else os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if not left:
                return


def _become_reaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the reaper of what the code starts")


class _Output:
    """What a child prints; of each pipe the first OUTPUT_LIMIT bytes are kept and the rest is read and dropped."""

    def __init__(self, child: subprocess.Popen):
        self.kept = {child.stdout: bytearray(), child.stderr: bytearray()}
        self.cut = False
        self._pidfd = os.pidfd_open(child.pid)

    def read(self, deadline: float) -> bool:
        """Until the child ends, even if other processes still hold its pipes. False if the time was over first."""
        try:
            while True:
                ready, _, _ = select.select([*self.kept, self._pidfd], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    return False
                took = [self._take(pipe) for pipe in self.kept if pipe in ready]
                if self._pidfd in ready and not any(took):
                    return True
        finally:
            os.close(self._pidfd)

    def _take(self, pipe) -> bool:
        data = os.read(pipe.fileno(), 65536)
        room = OUTPUT_LIMIT - len(self.kept[pipe])
        self.kept[pipe] += data[:room]
        self.cut = self.cut or len(data) > room
        return bool(data)

    def text(self, pipe) -> str:
        return self.kept[pipe].decode("utf-8", "replace")


def execute(code: str, environment: Mapping[str, str], timeout: float = TIMEOUT, directory: Optional[str] = None) -> Run:
    """Runs the code in a child of this process, which must be the reaper of its descendants, and have no other children."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "generated.py")
        script.write_text(code, encoding="utf-8", errors="surrogatepass")
        child = subprocess.Popen([sys.executable, str(script)], env=dict(environment), cwd=directory or place, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        output = _Output(child)
        try:
            ended = output.read(time.monotonic() + timeout)
        finally:
            status = child.poll()
            _end_descendants()
            child.returncode = child.returncode if child.returncode is not None else -signal.SIGKILL    # reaped above
            child.stdout.close()
            child.stderr.close()
    return _judge(output.text(child.stdout), output.text(child.stderr), output.cut, status if ended else None, timeout)


def _judge(out: str, err: str, cut: bool, status: Optional[int], timeout: float) -> Run:
    """status: as subprocess tells it, None if the time was over."""
    if cut:
        out += f"\n[cut: more than {OUTPUT_LIMIT} bytes]"
    if status is None:
        return Run(out, f"{err}\nExecution timeout ({timeout:g}s)".strip())
    if status < 0:
        return Run(out, f"{err}\nended by {signal.Signals(-status).name}".strip())
    if status > 0:
        return Run(out, err.strip() or f"ended with status {status} and no message")
    return Run(out + (f"\n[standard error]\n{err}" if err.strip() else ""))


# --- the server side: one request at a time, a line of JSON each way ---

def serve(path: str, directory: Optional[str]) -> None:
    """Answers requests on a unix socket until SIGTERM comes."""
    _become_reaper()
    end_at_once_on_sigterm()
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o660)
        listener.listen(4)
        print(f"runner: listening on {path}", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                try:
                    reply = _answer(_receive(connection, REQUEST_LIMIT), directory)
                    connection.sendall(json.dumps(reply).encode() + b"\n")
                except (OSError, ValueError) as e:
                    print(f"runner: a request was given up: {e}", file=sys.stderr, flush=True)


def _answer(line: bytes, directory: Optional[str]) -> dict:
    request = json.loads(line)
    if not isinstance(request, dict) or not isinstance(request.get("code"), str) or not isinstance(request.get("environment"), dict):
        raise ValueError("a request is {code, environment, timeout}")
    environment = {str(k): str(v) for k, v in request["environment"].items()}
    return asdict(execute(request["code"], environment, min(float(request.get("timeout", TIMEOUT)), 3600.0), directory))


def _receive(connection: socket.socket, limit: int) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            raise ValueError("the other side closed the connection in the middle of a message")
        data += part
        if len(data) > limit:
            raise ValueError(f"a message of more than {limit} bytes")
    return bytes(data)


def end_at_once_on_sigterm() -> None:
    """As PID 1 of a container nothing ends us by default, and Python's own handlers wait for a long call of a library to return."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


# --- the three runners ---

class SocketRunner:
    """The runner container of the same pod."""

    PATIENCE = 30.0     # seconds for a container that is starting, or starting again

    def __init__(self, path: str, timeout: float = TIMEOUT):
        self.path = path
        self.timeout = timeout

    def run(self, code: str) -> Run:
        request = {"code": code, "environment": passed_environment(), "timeout": self.timeout}
        with self._connect() as connection:
            try:
                connection.settimeout(self.timeout + 30)
                connection.sendall(json.dumps(request).encode() + b"\n")
                reply = json.loads(_receive(connection, REPLY_LIMIT))
                return Run(str(reply["output"]), None if reply["error"] is None else str(reply["error"]))
            except (OSError, ValueError, KeyError, TypeError) as e:
                # The code may have ended the runner, which then starts again; the model gets this as an error.
                return Run("", f"the code ended the place where it ran ({e})")

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + self.PATIENCE
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self.path)
                return connection
            except OSError as e:
                connection.close()
                if time.monotonic() > deadline:
                    raise RunnerUnavailable(f"the runner container does not answer on {self.path} ({e.strerror}): "
                                            "kubectl logs coding-agent-sandbox -c runner") from e
                time.sleep(0.1)


class SubprocessRunner:
    """A child process of a child process: the one between is the reaper of all that the code starts."""

    def __init__(self, timeout: float = TIMEOUT):
        self.timeout = timeout

    def run(self, code: str) -> Run:
        request = {"code": code, "environment": passed_environment(), "timeout": self.timeout}
        helper = subprocess.run([sys.executable, __file__, "--once"], input=json.dumps(request), capture_output=True, text=True,
                                env=passed_environment())
        if helper.returncode != 0:
            raise RunnerUnavailable(f"the code could not be run: {helper.stderr.strip()}")
        return Run(**json.loads(helper.stdout))


class BoxRunner:
    """A Carrel box for each piece of code: no network, no file of the host but what PYTHONPATH and VIRTUAL_ENV name, if they are passed."""

    def __init__(self, timeout: float = TIMEOUT):
        self.timeout = timeout

    def run(self, code: str) -> Run:
        from carrel import Box, CarrelError

        environment = passed_environment()
        environment.pop("PATH", None)       # the box has its own
        passed_proxies = sorted(set(environment) & set(PROXIES))
        if passed_proxies:
            print(f"[{', '.join(passed_proxies)} is passed on, but a box has no network]")
        try:
            with Box(mounts=self._mounts(environment)) as box:
                box.files.write("generated.py", code)
                result = box.exec(["python3", "generated.py"], env=environment, timeout=self.timeout, output_limit=2 * OUTPUT_LIMIT)
        except (CarrelError, OSError) as e:
            raise RunnerUnavailable(f"no box could be made: {e}") from e
        cut = result.outcome == "output_limit"
        if result.outcome in ("ok", "error", "timeout") and not cut:
            status = None if result.outcome == "timeout" else result.exit_code
            return _judge(result.stdout[:OUTPUT_LIMIT], result.stderr[:OUTPUT_LIMIT], False, status, self.timeout)
        return Run(result.stdout[:OUTPUT_LIMIT], f"{result.stderr[:OUTPUT_LIMIT]}\nended by a limit of the box: {result.outcome}".strip())

    @staticmethod
    def _mounts(environment: Mapping[str, str]) -> list[str]:
        named = [*environment.get("PYTHONPATH", "").split(os.pathsep), environment.get("VIRTUAL_ENV", "")]
        return [f"{os.path.realpath(place)}:{place}" for place in dict.fromkeys(named) if place and os.path.isdir(place)]


def choose(environ: Mapping[str, str] = os.environ) -> Runner:
    """CODING_AGENT_RUNNER is `subprocess`, `box` or the path of the runner container's socket; without it a box."""
    wanted = environ.get("CODING_AGENT_RUNNER", "box")
    timeout = float(environ.get("CODING_AGENT_TIMEOUT", TIMEOUT))
    if wanted == "subprocess":
        return SubprocessRunner(timeout)
    if wanted.startswith("/"):
        return SocketRunner(wanted, timeout)
    if wanted != "box":
        raise SystemExit(f"CODING_AGENT_RUNNER is 'box', 'subprocess' or the path of a socket, not {wanted!r}")
    try:
        import carrel  # noqa: F401
    except ImportError:
        raise SystemExit("generated code runs in a Carrel box, and the package 'carrel' is not installed: pip install carrel\n"
                         "(CODING_AGENT_RUNNER=subprocess runs it without isolation, with your rights)") from None
    return BoxRunner(timeout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--serve", metavar="SOCKET", help="answer requests on this unix socket")
    options.add_argument("--once", action="store_true", help="answer one request on standard input")
    options.add_argument("--directory", help="where the code runs (default: a temporary place)")
    chosen = options.parse_args()
    if chosen.serve:
        serve(chosen.serve, chosen.directory)
    elif chosen.once:
        _become_reaper()
        print(json.dumps(_answer(sys.stdin.buffer.read(), chosen.directory)))
    else:
        options.error("--serve SOCKET or --once")


if __name__ == "__main__":
    main()
