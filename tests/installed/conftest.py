"""What users install, in places of the tests' own. Nothing here is on a path that the repository's own programs use."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from support import BUILD, IS_LONG, REPOSITORY
from support.index import Index, wheel
from support.users import ORDINARY, make_user

DEBIAN = "/usr/bin/python3"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
WAIT = 200
WHEELHOUSE = pathlib.Path(os.environ.get("CARREL_WHEELHOUSE", BUILD / "wheelhouse"))


class Someone:
    """Root or an ordinary user, with a home of the test's own and an environment that has nothing else in it."""

    def __init__(self, name, home, wheelhouse, index):
        self.name = name
        self.home = home
        # pip's packages come from a folder, those of carrel from an index on loopback, and root's environment is not where the machine's would be.
        self.environment = {"PATH": PATH, "HOME": str(home), "LANG": "C.UTF-8", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheelhouse),
                            "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "XDG_RUNTIME_DIR": str(home / "run"), "UV_DEFAULT_INDEX": index.url,
                            "CARREL_ENVIRONMENT": str(home / "data/python")}

    def command(self, *words):
        return [*(["runuser", "-u", self.name, "--"] if self.name else []), *map(str, words)]

    def run(self, *words, stdin="", cwd=None, **variables):
        return subprocess.run(self.command(*words), input=stdin, capture_output=True, text=True, timeout=WAIT, cwd=cwd or self.home,
                              env={**self.environment, **variables})

    def start(self, *words, **variables):
        return subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                cwd=self.home, env={**self.environment, **variables})

    def do(self, *words, **options):
        done = self.run(*words, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def owns(self, path):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
        if self.name:
            shutil.chown(path, self.name, self.name)
        return path


@pytest.fixture(scope="session")
def wheelhouse():
    """The packages as files, where every user can read them."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-wheels-"))
    place.chmod(0o755)
    for path in WHEELHOUSE.glob("*.whl"):
        shutil.copy(path, place)
    for path in place.iterdir():
        path.chmod(0o644)
    yield place
    shutil.rmtree(place)


def stand_ins(index, names):
    for name in names:
        index.add(wheel(name, "99.0", {f"{name}/__init__.py": "", f"{name}/pyplot.py": ""}))
    return index


@pytest.fixture(scope="session")
def index():
    """ipykernel and what it needs are real, the large ones are names only: what takes long is not what is tried here."""
    made = stand_ins(Index(WHEELHOUSE), ["numpy", "pandas", "matplotlib"])
    yield made
    made.server.shutdown()


@pytest.fixture(scope="session")
def names_only():
    """An index whose packages have the right names and nothing in them, but for those that install: for what is not about kernels."""
    made = Index(WHEELHOUSE)
    made.files = {name: data for name, data in made.files.items() if name.split("-")[0] in ("uv", "pip")}
    stand_ins(made, ["IPython", "numpy", "pandas", "matplotlib"])
    made.add(wheel("ipykernel", "99.0", {"ipykernel/__init__.py": ""}, requires=["IPython"]))
    yield made
    made.server.shutdown()


def pytest_generate_tests(metafunc):
    """Root and an ordinary user; in the quick cut only the user has environments."""
    if "someone" in metafunc.fixturenames:
        both = IS_LONG or (metafunc.module.__name__ == "test_places" and "environment" not in metafunc.fixturenames)
        metafunc.parametrize("someone", ["user", "root"] if both else ["user"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def someone(request, wheelhouse, index):
    if request.param == "user":
        if os.geteuid() != 0:
            pytest.skip("needs root: it acts as another user")
        make_user()
    home = pathlib.Path(tempfile.mkdtemp(prefix="carrel-home-"))
    it = Someone(ORDINARY if request.param == "user" else None, home, wheelhouse, index)
    it.owns(home)
    it.owns(home / "run").chmod(0o700)
    yield it
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def prefix():
    """An installed copy, as `make install PREFIX=` makes it."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-prefix-"))
    place.chmod(0o755)
    done = subprocess.run(["make", "-C", REPOSITORY, "--no-print-directory", "install", f"BUILD={BUILD}", f"PREFIX={place}", "APPARMOR=no"], capture_output=True,
                          text=True, timeout=WAIT, env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "CARREL"))})
    assert done.returncode == 0, done.stderr
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def environment(someone):
    """The wheel, in an environment of that user's own."""
    place = someone.home / "env"
    file = pathlib.Path(os.environ.get("CARREL_WHEEL") or next((BUILD / "wheel").glob("*.whl")))
    shutil.copy(file, someone.home)
    (someone.home / file.name).chmod(0o644)
    someone.do(DEBIAN, "-m", "venv", place)
    someone.do(place / "bin/pip", "install", "--quiet", f"{someone.home / file.name}[local]")
    return place


@pytest.fixture(scope="module")
def made(someone, prefix):
    """What `carrel py` makes for that user on a machine that has none yet."""
    done = someone.run(prefix / "bin/carrel", "py", "-c", "print(6 * 7)")
    assert done.stdout == "42\n" and "carrel: setting up a Python for kernels in" in done.stderr, done.stderr
    return pathlib.Path(someone.environment["CARREL_ENVIRONMENT"])
