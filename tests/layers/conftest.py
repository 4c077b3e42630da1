"""An index of packages on loopback with the wheelhouse, and users with layers of their own."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from support import BUILD
from support.index import IN_MEMORY, Index, wheel
from support.users import ORDINARY, make_user

CARREL = str(BUILD / "carrel")
WAIT = 240


@pytest.fixture(scope="session")
def index():
    index = Index(pathlib.Path(os.environ["CARREL_WHEELHOUSE"]))
    for version in ("1.0", "2.0"):
        index.add(wheel("alpha", version))
    index.add(wheel("wants_one", "1.0", requires=["alpha==1.0"]))
    yield index
    index.server.shutdown()


class User:
    def __init__(self, name, home, index):
        self.name, self.home, self.index = name, home, index
        self.layers = home / "layers"

    def command(self, *words, **variables):
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.home), "UV_DEFAULT_INDEX": self.index.url,
                       "CARREL_LAYERS": str(self.layers), "XDG_RUNTIME_DIR": str(self.home / "run"), **variables}
        become = ["runuser", "-u", self.name, "--"] if self.name else []
        return [*become, "env", "-i", *(f"{k}={v}" for k, v in environment.items()), CARREL, *map(str, words)]

    def run(self, *words, **variables):
        return subprocess.run(self.command(*words, **variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT, cwd="/")

    def do(self, *words):
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def make(self, folder):
        folder.mkdir()
        if self.name:
            shutil.chown(folder, self.name, self.name)

    def parts(self):
        """Names in the folder of layers that are not whole layers."""
        return [p.name for own in self.layers.glob("*") for p in own.iterdir() if p.name.startswith(("new-", "old-", "part-"))]


@pytest.fixture(scope="module")
def admin(index):
    """Root with a folder of its own, for tests with a server of root's."""
    if os.geteuid() != 0:
        pytest.skip("a server of root's")
    home = pathlib.Path(tempfile.mkdtemp(prefix="carrel-layers-", dir=IN_MEMORY))
    (home / "run").mkdir(mode=0o700)
    yield User(None, home, index)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session", params=[None, ORDINARY], ids=["root", "user"])
def user(request, index):
    if os.geteuid() != 0 and not request.param:
        pytest.skip("root's part needs root")
    if request.param and os.geteuid() == 0:
        make_user()
    home = pathlib.Path(tempfile.mkdtemp(prefix="carrel-layers-", dir=IN_MEMORY))
    home.chmod(0o755)
    (home / "run").mkdir(mode=0o700)
    if request.param and os.geteuid() == 0:
        for path in (home, home / "run"):
            shutil.chown(path, ORDINARY, ORDINARY)
    yield User(request.param if os.geteuid() == 0 else None, home, index)
    shutil.rmtree(home, ignore_errors=True)
