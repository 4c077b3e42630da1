"""pybox's tests run in the interpreter whose kernels they start: one that has ipykernel."""
import asyncio
import contextlib
import inspect
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from support import BUILD, SDK
from support.ports import free_port
from support.server import Server
from support.users import ORDINARY, make_user
from support.waiting import wait_for

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(SDK), str(HERE.parent / "sdk")]
os.environ["CARREL_BIN"] = str(BUILD / "carrel")
os.environ.setdefault("CARREL_GUEST", str(BUILD / "guest"))

import carrel.pybox as pybox  # noqa: E402

LONG = bool(os.environ.get("CARREL_LONG"))


@pytest.fixture(scope="session")
def loop():
    it = asyncio.new_event_loop()
    yield it
    it.run_until_complete(asyncio.sleep(0.01))
    it.close()


class Ways:
    """All managers under one set of calls: what is awaitable is awaited."""

    def __init__(self, kind, loop, make):
        self.kind = kind
        self.loop = loop
        self.make = make

    @property
    def is_local(self):
        return self.kind.endswith("Local")

    @property
    def is_kube(self):
        return self.kind.endswith("Kube")

    def call(self, what):
        return self.loop.run_until_complete(what) if inspect.isawaitable(what) else what

    def start(self, manager, *args, **options):
        return self.call(manager.start(*args, **options))

    def run(self, box, code, **options):
        return self.call(box.run(code, **options))

    @contextlib.contextmanager
    def entered(self, thing):
        if hasattr(thing, "__aenter__"):
            entered = self.call(thing.__aenter__())
            leave = thing.__aexit__
        else:
            entered, leave = thing.__enter__(), thing.__exit__
        try:
            yield entered
        except BaseException as e:
            self.call(leave(type(e), e, e.__traceback__))
            raise
        self.call(leave(None, None, None))

    def started(self, manager, *args, **options):
        return self.entered(self.start(manager, *args, **options))


class Gateway:
    """An unmodified Jupyter Enterprise Gateway, as a user without rights."""

    def __init__(self, venv):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="carrel-gateway-"))
        self.directory.chmod(0o755)
        port = free_port()
        self.host = f"http://127.0.0.1:{port}"
        someone = []
        if os.geteuid() == 0:
            someone = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(self.directory, 65534, 65534)
        environment = {"HOME": str(self.directory), "PATH": f"{venv}/bin:/usr/bin:/bin", "JUPYTER_RUNTIME_DIR": str(self.directory / "run")}
        with open(self.directory / "log", "wb") as log:
            self.process = subprocess.Popen([*someone, f"{venv}/bin/jupyter", "enterprisegateway", "--ip=127.0.0.1", f"--port={port}",
                                             "--EnterpriseGatewayApp.unauthorized_users=[]"], env=environment, cwd=self.directory,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_for(lambda: self.answers(port), "the gateway answers")

    def answers(self, port):
        assert self.process.poll() is None, (self.directory / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def gateway():
    """A server with the Jupyter door, its kernels in this interpreter; or a real gateway."""
    if os.environ.get("CARREL_GATEWAY_VENV"):
        it = Gateway(os.environ["CARREL_GATEWAY_VENV"])
    else:
        it = Server("--set", "allow_anonymous=true", "--set", f"templates.python.python={os.path.abspath(sys.executable)}")
        it.host = f"http://127.0.0.1:{it.port}"
    yield it
    it.stop()


def pytest_generate_tests(metafunc):
    """What pppybox's tests say holds for all managers; of the rest the quick cut takes one of each kind."""
    if "ways" in metafunc.fixturenames:
        all_of_them = LONG or "CARREL_GATEWAY_VENV" in os.environ or metafunc.module.__name__ == "test_port"
        kinds = ["Local", "AsyncLocal", "Remote", "AsyncRemote"] if all_of_them else ["Local", "AsyncRemote"]
        if "CARREL_CLUSTER" in os.environ:      # KUBECONFIG names one that runs carrel-controller
            kinds = ["Kube", "AsyncKube"]
        metafunc.parametrize("ways", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def ways(request, loop):
    make = getattr(pybox, f"{request.param}PyBoxManager")
    if request.param.endswith(("Local", "Kube")):
        return Ways(request.param, loop, make)
    host = request.getfixturevalue("gateway").host
    return Ways(request.param, loop, lambda **options: make(host=host, **options))


@pytest.fixture(scope="module")
def manager(ways):
    with ways.entered(ways.make()) as it:
        yield it


@pytest.fixture(scope="session")
def place():
    """The programs and what kernels need, where every user can reach them."""
    where = pathlib.Path(tempfile.mkdtemp(prefix="carrel-pybox-"))
    where.chmod(0o755)
    for name in ("carrel", "carrel-server"):
        shutil.copy(BUILD / name, where / name)
    for name in ("guest", "carrel"):
        shutil.copytree(BUILD / "guest" if name == "guest" else SDK / "carrel", where / ("guest" if name == "guest" else "sdk/carrel"),
                        ignore=shutil.ignore_patterns("__pycache__"))
    for path in where.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    yield where
    shutil.rmtree(where)


def programs_environment(place):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CARREL", "XDG_RUNTIME_DIR", "PYTHON"))}
    return {**clean, "CARREL_BIN": str(place / "carrel"), "CARREL_GUEST": str(place / "guest"), "PYTHONPATH": str(place / "sdk")}


@pytest.fixture(scope="session")
def user():
    if os.geteuid() != 0:
        pytest.skip("needs root: it acts as another user")
    make_user()
    return ORDINARY
