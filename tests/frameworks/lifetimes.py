"""A program that is killed leaves nothing: its server, which has no other user, ends with all boxes."""
import pathlib
import signal
import subprocess
import sys

from support.processes import processes
from support.waiting import wait_for


def _family(pid):
    """A process and all below it."""
    table = processes()
    found = {pid}
    while True:
        more = {child for child, (parent, _) in table.items() if parent in found} - found
        if not more:
            return found
        found |= more


def check_killed(program):
    """program: Python that makes its agent's box, starts `sleep 4711` in it, prints "ready" and waits."""
    child = subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                             text=True)
    try:
        assert "ready" in (line.strip() for line in child.stdout), "it ended too early"
        seen = _family(child.pid) - {child.pid}
        assert seen, "no server was started"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    wait_for(lambda: not [pid for pid in seen if pathlib.Path(f"/proc/{pid}").exists()], "the server and its boxes end")
