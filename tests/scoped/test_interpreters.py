"""Interpreters of the program's user, at any place and with any packages: a service needs none."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from support import SDK

DEBIAN = os.path.realpath("/usr/bin/python3")
SERVES = """
import sys
from carrel.environment import SandboxConfig, ScopedSandbox

with ScopedSandbox(SandboxConfig()) as scoped:
    scoped.serve(sys.argv[1], expose_as="library", name="tools")
    print(scoped.call("POST", "/v1/services/tools/call", {"function": "where"})["result"])
    print(scoped.exec_python("import sys; print(sys.prefix)"), end="")
"""
INTERFACE = """
import importlib.util
import sys

@expose
def where() -> str:
    assert not importlib.util.find_spec("ipykernel")
    return sys.prefix
"""


@pytest.fixture
def home():
    """A directory below the user's home that others cannot enter; a sandbox has its own /root."""
    place = pathlib.Path(tempfile.mkdtemp(prefix=".carrel-test-", dir=pathlib.Path.home()))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def interpreter(home):
    """An interpreter of its own, as pyenv, uv or conda have them: outside /usr, without packages."""
    prefix = home / "versions/3"
    version = os.path.basename(DEBIAN)
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    shutil.copy(DEBIAN, prefix / "bin")
    (prefix / "bin/python3").symlink_to(version)
    (prefix / "lib" / version).symlink_to(f"/usr/lib/{version}")
    return prefix / "bin/python3"


def run(python, code, *words):
    return subprocess.run([python, "-B", "-c", code, *words], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(SDK)})


def serve(python, tmp_path, interface=INTERFACE):
    path = tmp_path / "interface.py"
    path.write_text(interface)
    return run(python, SERVES, path)


def assert_serves(python, tmp_path):
    done = serve(python, tmp_path)
    prefix = str(pathlib.Path(python).parents[1])
    assert done.stdout.split() == [prefix, prefix], done.stderr


def test_an_interpreter_below_a_closed_directory_serves(interpreter, tmp_path):
    assert_serves(interpreter, tmp_path)


@pytest.mark.parametrize("how", [(), ("--copies",)], ids=["links", "copies"])
def test_an_environment_below_a_closed_directory_serves(interpreter, home, tmp_path, how):
    subprocess.run([interpreter, "-m", "venv", "--without-pip", *how, home / "env"], check=True, timeout=120)
    assert_serves(home / "env/bin/python", tmp_path)


def test_a_link_in_a_directory_of_programs_leads_to_the_interpreter(interpreter, home, tmp_path):
    """As uv's in ~/.local/bin; ~/.local itself, which pip fills, too, is not shown for it."""
    (home / "local/bin").mkdir(parents=True)
    (home / "local/lib/python3.11/site-packages").mkdir(parents=True)
    (home / "local/bin/python3").symlink_to(interpreter)
    done = serve(home / "local/bin/python3", tmp_path)
    assert done.stdout.split() == 2 * [str(interpreter.parents[1])], done.stderr


def test_an_environment_in_another_closed_directory_serves(tmp_path):
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([DEBIAN, "-m", "venv", "--without-pip", f"{place}/env"], check=True, timeout=120)
        assert_serves(f"{place}/env/bin/python", tmp_path)


def test_debians_interpreter_serves(tmp_path):
    assert serve("/usr/bin/python3", tmp_path).stdout.split() == ["/usr", "/usr"]


def test_an_interpreter_that_lacks_something_in_a_box_is_blamed_and_not_the_interface(interpreter, home, tmp_path):
    """It runs here; a part of its library is behind a link that leads to where a box has nothing."""
    library = next((interpreter.parents[1] / "lib").iterdir())
    usual = pathlib.Path(os.readlink(library))
    library.unlink()
    library.mkdir()
    for path in usual.iterdir():
        (library / path.name).symlink_to(path)
    (home / "elsewhere").symlink_to(usual / "encodings")
    (library / "encodings").unlink()
    (library / "encodings").symlink_to(home / "elsewhere")
    done = serve(interpreter, tmp_path)
    said = done.stderr[done.stderr.index("InterpreterUnavailable"):]
    assert f"the interpreter {interpreter} ended with status 1" in said and "below its prefix" in said and "interface.py" not in said, done.stderr


@pytest.mark.parametrize("closed", [".", "bin", "bin/" + os.path.basename(DEBIAN)])
def test_an_interpreter_that_is_closed_itself_is_told_with_the_fix(interpreter, tmp_path, closed):
    """To root, whose boxes have another user; an ordinary user's boxes have that user."""
    prefix = interpreter.parents[1]
    (prefix / closed).chmod(0o700)
    if os.geteuid() == 0:
        done = serve(interpreter, tmp_path)
        assert "InterpreterUnavailable" in done.stderr and f"chmod -R go+rX {prefix}" in done.stderr, done.stderr
        subprocess.run(["chmod", "-R", "go+rX", prefix], check=True)
    assert_serves(interpreter, tmp_path)
