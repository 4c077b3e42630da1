import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from support import BUILD

MARK = f"CARREL_TEST_MARK=launcher-{os.getpid()}"       # in the environment of all that the tests start


@pytest.fixture(scope="session")
def jupyter_path():
    """A folder with our kernelspec under the name that every Jupyter program asks for first."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carrel-launcher-", dir="/var/tmp"))
    folder.chmod(0o755)
    subprocess.run([BUILD / "carrel", "kernelspec", "install", "--name", "python3", "--prefix", folder, "--python", sys.executable], check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def environment(jupyter_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(jupyter_path / "share/jupyter"))
    monkeypatch.setenv("CARREL_URL", "")
    monkeypatch.setenv(*MARK.split("="))
