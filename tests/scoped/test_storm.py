"""kill -9 of programs that hold sandboxes and sessions, and of their servers' parts, at any moment while calls run: nothing is left of them.

CARREL_KILLS says how often; CARREL_SEED repeats the choices (not the moments) of an earlier run."""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from support.waiting import wait_for

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

KILLS = int(os.environ.get("CARREL_KILLS", 60 if os.environ.get("CARREL_LONG") else 3))
SEED = int(os.environ.get("CARREL_SEED", time.time_ns()))
PROGRAM = """
import pathlib, sys, threading
from carrel.environment import SandboxConfig, ScopedSandbox
from carrel.execution import create_local_session
from carrel.workspace import Workspace
place = pathlib.Path(sys.argv[1])
(place / "interface.py").write_text("import time\\n@expose\\ndef echo(text: str, seconds: float = 0) -> str:\\n    time.sleep(seconds)\\n    return text\\n")
print("begun", flush=True)
with ScopedSandbox(SandboxConfig()) as scoped:
    tools = scoped.serve(place / "interface.py", expose_as="library", name="tools")
    with create_local_session(workspace=Workspace(libraries=[tools]), workspace_dir=place / "w") as session:
        for i in range(1000000):
            assert session.exec(f"import tools\\ntools.echo('{i}', 0.01)").text == repr(str(i))
            print(i, flush=True)
"""


def processes_of(place):
    """Processes whose command names the place."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(place) in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ")[:200]))
        except OSError:
            pass
    return found


def victims(place, program):
    """The program, its server, that one's keeper and front, by their names."""
    named = {"program": program.pid}
    for pid, command in processes_of(place):
        for word in (b"keeper", b"front", b"serve"):
            if b" " + word + b" " in command:
                named.setdefault(word.decode(), pid)
    return named


@pytest.fixture
def open_folder():
    """One that the front of root's server, which is another user, can enter."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-storm-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_nothing_is_left_of_programs_that_are_killed(open_folder):
    print(f"CARREL_SEED={SEED}")
    chance = random.Random(SEED)
    for turn in range(KILLS):
        place = open_folder / str(turn)
        (place / "tmp").mkdir(parents=True)
        environment = {**os.environ, "TMPDIR": str(place / "tmp"), "PYTHONPATH": str(REPOSITORY / "sdk/python")}
        with open(place / "said", "wb") as said:
            program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(place)], env=environment, stdout=said, stderr=said)
        try:
            wanted = chance.choice([0, 1, 1, 3])        # lines; between them the moments are where they are
            wait_for(lambda: len((place / "said").read_bytes().splitlines()) > wanted or program.poll() is not None)
            time.sleep(chance.random() * 0.3)
            assert program.poll() is None, (place / "said").read_text()
            what = chance.choice(["program", "program", "keeper", "front", "serve"])
            pid = victims(place, program).get(what)
            if pid:
                os.kill(pid, signal.SIGKILL)
            if what != "program":       # the program hears of it, or goes on; then it goes, too
                time.sleep(chance.random() * 0.3)
                program.kill()
            program.wait(60)
        finally:
            program.kill()
            program.wait()
        wait_for(lambda: not processes_of(place), lambda: f"{what}: {processes_of(place)}")
        wait_for(lambda: not os.listdir(place / "tmp"), lambda: f"{what}: {os.listdir(place / 'tmp')}")
