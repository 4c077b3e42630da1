"""Wherever it is installed, kernels find their files, and the interpreter that a user means."""
import json
import os
import pathlib
import sys

from conftest import DEBIAN
from support.waiting import wait_for

WHERE = "import sys; print(sys.prefix)"
# What Jupyter's programs do with a kernelspec; run by the tests' own interpreter, whose kernels these are not.
NOTEBOOK = f"""
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="carrel", startup_timeout=120)
said = []
client.execute_interactive({WHERE!r}, timeout=60, output_hook=lambda m: said.append(m["content"].get("text", "")))
print("".join(said), end="")
client.stop_channels()
manager.shutdown_kernel()
"""


def prefix_of(python):
    return str(pathlib.Path(python).parents[1])


def test_a_copy_below_another_prefix_has_kernels(someone, prefix):
    assert someone.do(prefix / "bin/carrel", "py", "--python", sys.executable, "-c", WHERE) == sys.prefix + "\n"


def test_a_kernelspec_of_such_a_copy_starts_a_kernel(someone, prefix):
    folder = someone.owns(someone.home / "jupyter")
    someone.do(prefix / "bin/carrel", "kernelspec", "install", "--prefix", folder, "--python", sys.executable)
    spec = json.loads((folder / "share/jupyter/kernels/carrel/kernel.json").read_text())
    assert spec["argv"][0] == str(prefix / "bin/carrel")
    notebooks = someone.owns(someone.home / "notebooks")
    assert someone.do(sys.executable, "-c", NOTEBOOK, cwd=notebooks, JUPYTER_PATH=str(folder / "share/jupyter")) == sys.prefix + "\n"


def test_the_wheels_kernels_are_of_its_environment(someone, environment):
    assert someone.do(environment / "bin/carrel", "py", "-c", WHERE) == f"{environment}\n"
    # Also if the program has no setting: by its location.
    program = next(environment.rglob("carrel/bin/carrel"))
    assert someone.do(program, "py", "-c", WHERE) == f"{environment}\n"


def test_the_wheels_kernelspec_starts_a_kernel_of_its_environment(someone, environment):
    someone.do(environment / "bin/carrel", "kernelspec", "install", "--prefix", environment)
    assert someone.do(sys.executable, "-c", NOTEBOOK, JUPYTER_PATH=str(environment / "share/jupyter")) == f"{environment}\n"


def serve(someone, program, *settings, **variables):
    """A server that its user's commands find on their own."""
    socket = (someone.home / "run/carrel/carrel.sock") if someone.name else pathlib.Path(someone.environment["HOME"], "s/carrel.sock")
    folder = someone.owns(socket.parent)
    folder.chmod(0o700 if someone.name else 0o711)
    process = someone.start(program, "serve", "--no-config", "--socket", socket, "--state", someone.home / "state", "--run", folder, *settings,
                            **variables)
    wait_for(lambda: process.poll() is not None or someone.run(program, "ps", "--url", f"unix:{socket}").returncode == 0, "the server is there")
    assert process.poll() is None, process.stdout.read()
    return process, f"unix:{socket}"


def end(process):
    process.terminate()
    process.communicate(timeout=60)


def test_the_wheels_server_has_kernels_of_its_environment(someone, environment):
    process, url = serve(someone, environment / "bin/carrel", "--set", "templates.python.pool=off", "--set", "pool.size=off")
    try:
        carrel = environment / "bin/carrel"
        assert someone.do(carrel, "py", "--url", url, "-c", WHERE) == f"{environment}\n"
        assert someone.do(carrel, "py", "-c", "import os; print(os.path.exists('/usr'))") == "True\n"
    finally:
        end(process)


def test_a_server_with_other_kernels_is_not_taken_for_them(someone, environment, prefix):
    """It runs where commands look for one, but the wheel was installed into an environment."""
    if not someone.name:
        return      # root's place is the machine's own
    process, url = serve(someone, prefix / "bin/carrel", "--set", f"templates.python.python={sys.executable}", "--set", "templates.python.pool=off",
                         "--set", "pool.size=off")
    try:
        assert someone.do(prefix / "bin/carrel", "py", "-c", WHERE) == sys.prefix + "\n"
        carrel = environment / "bin/carrel"
        assert someone.do(carrel, "py", "-c", WHERE) == f"{environment}\n"
        assert someone.do(carrel, "py", "--url", url, "-c", WHERE) == sys.prefix + "\n"
        assert someone.do(carrel, "py", "--template", "python", "-c", WHERE) == sys.prefix + "\n"
    finally:
        end(process)


def test_an_interpreter_below_a_closed_home(someone, prefix):
    """pyenv's, as it often is: below root's home, which others cannot enter. Root's kernels can use it; other users get an error."""
    found = sorted(pathlib.Path("/root/.pyenv/versions").glob("3.*/bin/python3")) if os.geteuid() == 0 else []
    if not found:
        return
    done = someone.run(prefix / "bin/carrel", "py", "--python", found[-1], "-c", WHERE)
    if someone.name:
        assert done.returncode == 125 and "--python" in done.stderr and "Permission denied" in done.stderr
    else:
        assert done.stdout == f"{prefix_of(found[-1])}\n" or "ipykernel" in done.stderr, done.stderr


def test_debians_interpreter_stays_as_it_is(someone, prefix):
    """Without ipykernel it is no kernel, and the suggested remedy is one that Debian does not refuse."""
    done = someone.run(prefix / "bin/carrel", "py", "--python", DEBIAN, "-c", "1")
    assert done.returncode != 0 and "carrel setup" in done.stderr and "pip install" not in done.stderr
