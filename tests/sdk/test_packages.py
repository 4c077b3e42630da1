"""Packages of boxes through the SDK, from the index that this machine is configured for."""
import asyncio
import shutil
import subprocess
import sys
import tempfile

import pytest

from support import BUILD
from support.server import Server

VERSION = subprocess.run(["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True).stdout.strip()
CODE = "import six, sys; (six.__version__, '%d.%d' % sys.version_info[:2], sys.prefix)"


@pytest.fixture(scope="module")
def layers():
    place = tempfile.mkdtemp(prefix="carrel-layers-")
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def carrel(layers):
    from carrel import Carrel
    server = Server("--set", f"pythons.other={shutil.which('python3', path='/usr/bin')}", "--set", "templates.with-six.packages=six==1.16.0",
                    variables={"CARREL_LAYERS": layers + "/layers"})
    if server.user:
        shutil.chown(layers, server.user, server.user)
    yield Carrel(server.url)
    server.stop()


def test_packages_and_their_interpreter(carrel):
    from carrel import AsyncBox, AsyncCarrel

    assert carrel.info()["pythons"] == ["other", VERSION]
    for python in (VERSION, "other", None):
        with carrel.create(packages=["six==1.17.0"], python=python) as box:
            assert box.raw["python"] == python and box.raw["packages"] == ["six==1.17.0"]
            assert box.run(CODE).text == f"('1.17.0', '{VERSION}', '/opt/venv')"
            assert box.exec("python -c 'import six; print(six.__version__)'").stdout == "1.17.0\n"

    async def both():
        async with AsyncCarrel(carrel.url) as server, AsyncBox(server=server, packages="six==1.17.0\n", python="other") as box:
            return (await box.run(CODE)).text
    assert asyncio.run(both()) == f"('1.17.0', '{VERSION}', '/opt/venv')"
    assert carrel.run(CODE, packages=["six==1.17.0"], python="other").text == f"('1.17.0', '{VERSION}', '/opt/venv')"


def test_a_template_brings_its_packages(carrel):
    with carrel.create(template="with-six") as box:
        assert box.run(CODE).text == f"('1.16.0', '{VERSION}', '/opt/venv')"
    with carrel.create(template="with-six", packages=[]) as box:
        assert box.raw["packages"] == [] and box.raw["layer"] is None


def test_errors_have_a_type_and_the_reason(carrel):
    from carrel import InvalidRequest, PackagesUnavailable

    with pytest.raises(PackagesUnavailable, match="there is no such package, or no such version: .*six") as failed:
        carrel.create(packages=["six==0.0.1"])
    assert (failed.value.status, failed.value.code) == (422, "packages_failed")
    with pytest.raises(InvalidRequest, match=f"python: there is no Python '3.99' on this server; there is: other, {VERSION}"):
        carrel.create(packages=["six"], python="3.99")
    with pytest.raises(InvalidRequest, match="no addresses"):
        carrel.create(packages=["six @ http://example.org/six.whl"])


MANAGERS = """
import asyncio, importlib.util
from carrel.pybox import AsyncLocalPyBoxManager, LocalPyBoxManager
code = "import six; six.__version__"
with LocalPyBoxManager(packages=["six==1.16.0"]) as manager:
    print(manager.start().run(code).data)
async def main():
    async with AsyncLocalPyBoxManager(packages=["six==1.16.0"]) as manager:
        print((await (await manager.start()).run(code)).data)
asyncio.run(main())
"""


def test_a_pybox_manager_with_packages_needs_no_ipykernel_here(environment, layers):
    done = subprocess.run([sys.executable, "-c", MANAGERS], capture_output=True, text=True, timeout=240,
                          env={**environment, "CARREL_BIN": str(BUILD / "carrel"), "CARREL_LAYERS": layers + "/managers"})
    assert done.stdout.count("1.16.0") == 2, done.stdout + done.stderr
