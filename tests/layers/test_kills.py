"""kill -9 of each process while packages are installed: nothing half-made is used or left, and the next installation works."""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from support.index import IN_MEMORY, wheel
from support.server import Server
from support.waiting import wait_for

ROUNDS = int(os.environ.get("CARREL_KILLS", "6"))
VICTIMS = ("cli", "builder", "clerk", "keeper", "front", "egress")


@pytest.fixture(scope="module")
def root(index):
    if os.geteuid() != 0:
        pytest.skip("a server of root")
    place = tempfile.mkdtemp(prefix="carrel-layers-", dir=IN_MEMORY)
    server = Server(variables={"CARREL_LAYERS": place, "UV_DEFAULT_INDEX": index.url})
    server.layers, server.index = pathlib.Path(place), index
    yield server
    server.stop()
    shutil.rmtree(place, ignore_errors=True)


def with_words(*words):
    """Processes whose command line has all of these."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if all(word in line for word in words):
                found.append(int(path.name))
    return found


def victims_of(server, who, process):
    if who == "cli":
        return [process.pid] if process and process.poll() is None else []
    if who == "builder":
        return [pid for pid in with_words("layer build --wire --owner") if str(server.layers) in pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")]
    if who == "clerk":
        keeper = server.keeper_pid()
        return [int(p) for p in pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split() if "clerk" in pathlib.Path(f"/proc/{p}/cmdline").read_text()]
    return [pid for pid in [server.child(str(server.place / "carrel-egress")) if who == "egress" else server.child(who)] if pid]


def install(server, name, who, process):
    """Starts an installation by a server's box, or by the command line if that is the victim; a function that ends when it has ended."""
    server.index.add(wheel(name, "1.0", requires=["alpha==1.0"]))
    if who == "cli":
        environment = {**os.environ, "CARREL_LAYERS": str(server.layers), "UV_DEFAULT_INDEX": server.index.url}
        process.append(subprocess.Popen([server.place / "carrel", "layer", "build", name], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return lambda: process[0].wait(120)

    def ask():
        with contextlib.suppress(Exception):        # the front may be the victim
            server.admin.post("/v1/boxes", {"packages": [name]})
    thread = threading.Thread(target=ask)
    thread.start()
    return lambda: (thread.join(120), not thread.is_alive())[1]


def test_kill_9_of_each_process_leaves_nothing_half_made_root(root):
    random.seed(7)
    hit = set()
    for number in range(ROUNDS):
        who, name, process = VICTIMS[number % len(VICTIMS)], f"kill{number}", []
        moment, reached = len(root.index.asked) + random.randrange(2, 60), []
        ended = install(root, name, who, process)
        with contextlib.suppress(AssertionError):      # it may have ended before
            wait_for(lambda: len(root.index.asked) >= moment, every_s=0.002, deadline_s=20)
        for pid in victims_of(root, who, process[0] if process else None):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                reached.append(pid)
                hit.add(who)
        ended()
        wait_for(root.is_ready, root.log_text)
        wait_for(lambda: not with_words(str(root.layers) + "/", "new-"), "the worker box to end", deadline_s=60)
        if who == "clerk":      # the keeper does not replace it; a server's units restart it
            root.kill("keeper")
        root.index.add(wheel(f"next{number}", "1.0"))

        def works():
            made = root.admin.post("/v1/boxes", {"packages": [name, f"next{number}"]})
            assert made.status in (201, 503) or (made.status == 409 and b"try again" in made.body), (who, made.body)
            return made.status == 201 and made.json["id"]
        box = wait_for(works, lambda: who + root.log_text()[-2000:])
        done = root.carrel("exec", box, "--", "/opt/venv/bin/python", "-c", f"import alpha, ipykernel, {name}, next{number}; print({name}.version)")
        assert done.stdout == "1.0\n", (who, done.stderr)
        left = [path.name for own in root.layers.glob("*") for path in own.iterdir() if path.name.startswith(("new-", "old-", "part-"))]
        assert left == [], (who, reached, left)
        root.clear()
    assert hit >= {"clerk", "keeper", "front", "egress"}        # the others may have ended before their moment
