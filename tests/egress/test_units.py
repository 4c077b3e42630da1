"""The command lines of packaging/: keeper, egress and front as units of their own, with a socket that systemd would hold."""
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from support.server import Server
from support.waiting import wait_for
from support.web import hello_server

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", "build")).absolute()
FETCH = "import urllib.request as u; print(u.urlopen('http://web.localhost:%d/', timeout=20).read().decode())"


def command(unit, folder):
    """ExecStart of a unit, with the programs of this build and the sockets of the test."""
    line = next(line for line in (PACKAGING / unit).read_text().splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    return [str(BUILD / pathlib.Path(words[0]).name),
            *(w.replace("/run/carrel", str(folder)).replace("/var/lib/carrel-stores", str(folder / "stores")) for w in words[1:])]


def passing(fd):
    def before():
        os.dup2(fd, 3)
    return before


@pytest.fixture
def units():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    tmp_path = pathlib.Path(tempfile.mkdtemp(prefix="carrel-units-"))
    tmp_path.chmod(0o755)       # the front is no root
    (tmp_path / "stores").mkdir(mode=0o700)
    held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    begun = {}

    def start(name, **options):
        begun[name] = subprocess.Popen(command(f"carrel-{name}.service", tmp_path), **options)
        return begun[name]

    def egress():
        if not (tmp_path / "egress.sock").exists():
            held.bind(str(tmp_path / "egress.sock"))
            held.listen()
        return start("egress", preexec_fn=passing(held.fileno()), close_fds=False)
    start.egress = egress
    start("keeper")
    start.folder = tmp_path
    yield start
    for process in begun.values():
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    held.close()
    shutil.rmtree(tmp_path)


def test_boxes_have_network_with_a_keeper_of_its_own_and_egress_comes_and_goes(units):
    wait_for(lambda: (units.folder / "keeper.sock").exists(), "the keeper listens")
    with hello_server() as port:
        server = Server("--keeper", units.folder / "keeper.sock")
        try:
            box = server.admin.post("/v1/boxes", {"net": {"allow": [f"web.localhost:{port}"]}}).json["id"]

            def fetch():
                return server.admin.post(f"/v1/boxes/{box}/exec", {"argv": ["/usr/bin/python3", "-c", FETCH % port]}).json

            # It is not there yet: the box is, and reaches nothing.
            assert fetch()["exit_code"] == 1
            assert server.admin.get(f"/v1/boxes/{box}/enforced").json["enforced"]["network"].startswith("none: carrel-egress does not answer")
            egress = units.egress()
            wait_for(lambda: fetch()["stdout"] == "hello from the host\n", "the box reaches what it may")
            egress.kill()
            egress.wait()
            units.egress()
            wait_for(lambda: fetch()["stdout"] == "hello from the host\n", "and again, with the next egress")
        finally:
            server.stop()
