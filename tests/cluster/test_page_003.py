"""The third part of page 003: kernels in a cluster, from a laptop (through the API server) and where Pods are reached directly. The code is the
page's, with the import line changed and its two placeholders filled in. The same code runs with the client that it was written for."""
import json
import os
import re
import subprocess
import tarfile

import pages
import pytest
from conftest import BUILD, HERE, TREE

PYTHON = os.environ.get("CARREL_KUBE_PYTHON") or "python3"
OLD_PYTHON = os.environ.get("CARREL_PPPYBOX_PYTHON")       # pppybox 0.0.16 with jkclient


def example(tmp_path, imports="from carrel.pybox import KubePyBoxManager, PyBoxOut", kernel_env=None):
    """The page's code, and what it says that it prints."""
    page = pages.text("003")
    code = next(block for block in pages.blocks("003", "python") if "KubePyBoxManager" in block)
    expected = re.search(r"^```(?:text|plaintext)\n(.*?)^```", page[page.index(code) + len(code):], re.M | re.S)[1]
    variables = tmp_path / "kernel.env"
    variables.write_text("KERNEL_NAMESPACE=default\n")
    for there, here in (("from pybox import KubePyBoxManager, PyBoxOut", imports), ('"YOUR_ENV_FILE_PATH"', repr(str(variables))),
                        ('"YOUR_KERNEL_ENV_DICT"', repr({"KERNEL_USERNAME": "ann", **(kernel_env or {})}))):
        assert there in code
        code = code.replace(there, here)
    return code, expected


def image():
    """The kernel's image by its version."""
    with tarfile.open(BUILD / "images/carrel-kernel.tar") as archive:
        names = json.load(archive.extractfile("manifest.json"))[0]["RepoTags"]
    return next(name for name in names if not name.endswith(":latest"))


def run(command, code, environment, python=PYTHON):
    return subprocess.run([*command, python, "-c", code], capture_output=True, text=True, timeout=180,
                          env={**environment, "PYTHONPATH": str(TREE / "sdk/python") if python == PYTHON else ""})


@pytest.mark.parametrize("where", ["laptop", "cluster"])
def test_the_cluster_example_prints_what_the_page_says(controller, cluster, tmp_path, where):
    code, expected = example(tmp_path)
    command = [HERE / "cluster", "run", "--name", cluster.name] if where == "cluster" else []
    done = run(command, code, controller.environment)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    for kernel in controller.get("kernels")["items"]:
        controller("delete", "kernel", kernel["metadata"]["name"])


def test_a_shut_down_kernel_leaves_nothing(controller, tmp_path):
    code, _ = example(tmp_path)
    code += "\npybox_manager.shutdown(kernel_id)\n"
    done = run([], code, controller.environment)
    assert done.returncode == 0, done.stderr
    assert controller.get("kernels")["items"] == []
    controller("wait", "--for=delete", "pod", "-l", "jupyter.org/kernel-name", "--timeout=60s")
    assert not [s for s in controller.get("secrets")["items"] if s["metadata"]["name"].startswith("ann-")]


def test_the_clients_own_package_prints_it_too(controller, cluster, tmp_path):
    """pppybox, unmodified. Its manager is in pybox.kube, not where the page imports it from, and it wants an image; of one that is called `latest`
    a kubelet asks a registry."""
    if not OLD_PYTHON:
        pytest.skip("CARREL_PPPYBOX_PYTHON names an interpreter that has pppybox and jkclient")
    code, expected = example(tmp_path, "from pybox import PyBoxOut\nfrom pybox.kube import KubePyBoxManager", {"KERNEL_IMAGE": image()})
    code += ("again = box.run(code='result + 1')\nprint(again)\nfailed = box.run(code='1 / 0')\nprint(failed.error.ename)\n"
             "pybox_manager.shutdown(kernel_id)\n")
    done = run([HERE / "cluster", "run", "--name", cluster.name], code, controller.environment, OLD_PYTHON)
    assert (done.returncode, done.stdout) == (0, f"{expected}{expected.replace('4.0', '5.0')}ZeroDivisionError\n"), done.stderr
    assert controller.get("kernels")["items"] == []
    controller("wait", "--for=delete", "pod", "-l", "jupyter.org/kernel-name", "--timeout=60s")
