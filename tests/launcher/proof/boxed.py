"""A plugin for a suite of jupyter_client's: kernels of its own, which it starts by a command, are run by 'carrel kernel', too.

The suite has a kernel that tells of signals and processes (tests/signalkernel.py). It writes a kernelspec for it, whose command is the interpreter. Here that
command is replaced, when the kernelspec is read, by our launcher with a template whose stock kernel is that command; environment of the kernelspec included.
Nothing of the suite is changed.

CARREL_BUILD: where our programs are."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from jupyter_client.kernelspec import KernelSpec

BUILD = pathlib.Path(os.environ["CARREL_BUILD"])
MODULE = "tests.signalkernel"


class Server:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-foreign-"))
        self.folder.chmod(0o755)
        self.socket = self.folder / "api.sock"
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [BUILD / "carrel-server", "serve", "--socket", self.socket, "--state", self.folder / "state", "--run", self.folder / "run",
             "--set", "pool.size=off", "--set", "templates.python.pool=off", "--set", f"templates.signal.python={sys.executable}", "--set",
             "templates.signal.kernel={python} -m " + MODULE + " -f {connection_file}"], stdout=self.log, stderr=self.log, start_new_session=True)
        end = time.monotonic() + 20
        while subprocess.run([BUILD / "carrel", "ps", "--url", self.url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            assert self.process.poll() is None and time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.05)

    @property
    def url(self):
        return f"unix:{self.socket}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def pytest_sessionstart(session):
    server = session.config.carrel_server = Server()
    read = KernelSpec.from_resource_dir.__func__

    def from_resource_dir(cls, resource_dir):
        spec = read(cls, resource_dir)
        if spec.argv[1:3] == ["-m", MODULE]:
            env = [word for name, value in spec.env.items() for word in ("--env", f"{name}={value}")]
            spec.argv = [str(BUILD / "carrel"), "kernel", "--url", server.url, "--template", "signal", *env, "-f", "{connection_file}"]
        return spec

    KernelSpec.from_resource_dir = classmethod(from_resource_dir)


def pytest_sessionfinish(session):
    session.config.carrel_server.stop()
