"""Other interpreters and other users: every user who can run Python here has kernels of that Python."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from conftest import LONG, programs_environment
from support import BUILD
from support.users import user_command

CODE = """
import sys, os
from carrel.pybox import LocalPyBoxManager
with LocalPyBoxManager() as manager, manager.start() as box:
    out = box.run("import sys, os; print(sys.executable, sys.prefix, sys.base_prefix)")
    print(out.error or out.data[0]["text/plain"].split() == [sys.executable, sys.prefix, sys.base_prefix])
    print(box.run("import os; os.getuid() == 0 and open('/proc/self/status').read()").error)
"""


def run(python, code, place, user=None, cwd="/"):
    environment = programs_environment(place)
    wanted = {k: environment[k] for k in ("CARREL_BIN", "CARREL_GUEST", "PYTHONPATH")}
    command = [*user_command(user), "env", *[f"{k}={v}" for k, v in wanted.items()], str(python), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=cwd, env=environment)


def test_an_ordinary_user_needs_nothing(place, user):
    if not os.access(sys.prefix, os.X_OK) or sys.prefix.startswith("/root"):
        pytest.skip("this interpreter's prefix is closed to others")
    done = run(sys.executable, CODE, place, user)
    assert (done.returncode, done.stdout) == (0, "True\nNone\n"), done.stderr


def test_a_users_own_directory_is_written_as_that_user(place, user):
    code = """
from carrel.pybox import LocalPyBoxManager
with LocalPyBoxManager() as manager, manager.start(cwd=CWD) as box:
    out = box.run("open('made', 'w').write('x'); import os; os.getcwd()")
    print(out.error or out.data[0]["text/plain"])
"""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="carrel-cwd-"))
    try:
        shutil.chown(directory, user)
        done = run(sys.executable, code.replace("CWD", repr(str(directory))), place, user)
        assert (done.returncode, done.stdout) == (0, f"'{directory}'\n"), done.stderr
        assert (directory / "made").owner() == user
    finally:
        shutil.rmtree(directory)


def test_a_users_kernels_with_a_directory_are_forked_too(place, user):
    code = """
import time
from carrel.pybox import LocalPyBoxManager
deadline = time.monotonic() + 120
with LocalPyBoxManager() as manager:
    while True:
        with manager.start(cwd=CWD) as box:
            way = box.client.info()["way"]
            out = box.run("open('made', 'a').write('x'); import os; os.getcwd()")
        if way == "forked" or time.monotonic() > deadline:
            break
    print(way, out.error or out.data[0]["text/plain"])
"""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="carrel-cwd-"))
    try:
        shutil.chown(directory, user)
        done = run(sys.executable, code.replace("CWD", repr(str(directory))), place, user)
        assert (done.returncode, done.stdout) == (0, f"forked '{directory}'\n"), done.stderr
        assert (directory / "made").owner() == user
    finally:
        shutil.rmtree(directory)


def test_a_program_that_only_runs_commands_has_no_zygote(place):
    code = """
import pathlib, time
import carrel, carrel.local
def zygotes():
    found, left = 0, [carrel.local.private_server().process.pid]
    while left:
        pid = left.pop()
        try:
            left += pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            found += b"zygote" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
        except OSError:
            pass
    return found
with carrel.Carrel().create() as box:
    box.exec(["true"])
    print(zygotes())
    print(box.run("6 * 7").text)
    deadline = time.monotonic() + 60
    while (found := zygotes()) != 1 and time.monotonic() < deadline:
        time.sleep(0.01)        # what it forks has its name for a moment
    print(found)
"""
    done = run(sys.executable, code, place)
    assert (done.returncode, done.stdout) == (0, "0\n42\n1\n"), done.stderr


WAYS = """
import time
from carrel.pybox import LocalPyBoxManager
def way(box):
    assert box.run("6 * 7").data[0]["text/plain"] == "42"
    return box.client.info()["way"]
with LocalPyBoxManager() as manager:
    deadline = time.monotonic() + 60
    while way(manager.start(cwd=CWD)) == "cold" and time.monotonic() < deadline:
        pass                    # a box waits for a zygote no longer than an interpreter of its own would take
    print([way(manager.start(cwd=CWD)) for _ in range(3)])
"""


@pytest.mark.parametrize("somebody", ["root", "user"])
def test_once_there_is_a_zygote_all_kernels_are_forked(place, user, somebody):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="carrel-cwd-"))
    try:
        shutil.chown(directory, user if somebody == "user" else "root")
        for cwd in ("None", repr(str(directory))):
            done = run(sys.executable, WAYS.replace("CWD", cwd), place, user if somebody == "user" else None)
            assert done.returncode == 0, done.stderr
            assert "cold" not in done.stdout and done.stdout.count("'") == 6, done.stdout
    finally:
        shutil.rmtree(directory)


def test_without_ipykernel_the_error_has_the_fix(place):
    done = run("/usr/bin/python3", "import os, sys\nos.environ['CARREL_ENVIRONMENT'] = '/nonexistent'\nsys.modules['ipykernel'] = None\nimport carrel.pybox\n"
               "import importlib.util; importlib.util.find_spec = lambda n: None\ncarrel.pybox.LocalPyBoxManager().start()", place)
    assert "carrel.errors.KernelUnavailable" in done.stderr and "the fix: carrel setup" in done.stderr


def interpreters():
    """Interpreters that a user built below a home: pyenv's."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = sorted((p for p in root.glob("3.*/bin/python3") if os.access(p, os.X_OK)), key=lambda p: [int(n) for n in p.parts[-3].split(".")])
    return [p for p in found if int(p.parts[-3].split(".")[1]) >= 9] if root.is_dir() else []


@pytest.mark.parametrize("python", interpreters()[-1:] if not LONG else interpreters(), ids=lambda p: p.parts[-3])
def test_an_environment_of_an_interpreter_below_a_closed_home(place, python):
    environment = BUILD / f"venv-{python.parts[-3]}"        # kept: making one takes half a minute
    if not (environment / ".done").exists():
        subprocess.run([python, "-m", "venv", environment], check=True, timeout=120)
        subprocess.run([environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "ipykernel"], check=True, timeout=300)
        (environment / ".done").touch()
    done = run(environment / "bin/python", CODE, place)
    assert (done.returncode, done.stdout) == (0, "True\nNone\n"), done.stderr


def test_a_wheel_is_all_that_a_user_needs(user):
    """In an environment of its own, with nothing of this repository on any path."""
    wheel = os.environ.get("CARREL_WHEEL")
    if not wheel:
        pytest.skip("make pybox-proof builds one")
    from test_seed import example
    code, expected = example("LocalPyBoxManager")
    home = pathlib.Path(tempfile.mkdtemp(prefix="carrel-wheel-"))
    try:
        shutil.chown(home, user)
        shutil.copy(wheel, home)
        someone = [*user_command(user), f"HOME={home}"]
        clean = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}

        def do(*command, timeout=300):
            done = subprocess.run([*someone, *map(str, command)], capture_output=True, text=True, timeout=timeout, cwd=home, env=clean)
            assert done.returncode == 0, done.stderr
            return done.stdout
        do("/usr/bin/python3", "-m", "venv", home / "env")
        do(home / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check", f"{home / pathlib.Path(wheel).name}[local]")
        assert do(home / "env/bin/python", "-c", code) == expected
        assert "carrel" in do(home / "env/bin/carrel", "--version")
        server = next((home / "env").rglob("carrel-server"))
        libraries = [line.split()[0] for line in do("/usr/bin/ldd", server).splitlines()]
        assert all(name.startswith(("linux-vdso", "libc.so", "libm.so", "/lib64/ld-linux")) for name in libraries), libraries
        assert "not found" not in do("/usr/bin/ldd", server)
    finally:
        shutil.rmtree(home)
