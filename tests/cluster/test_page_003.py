"""The third part of page 003: kernels in a cluster, from a laptop (through the API server) and where Pods are reached directly. The code is the
page's, with the import line changed and its two placeholders filled in."""
import os
import re
import subprocess

import pages
import pytest
from conftest import HERE, TREE

PYTHON = os.environ.get("CARREL_KUBE_PYTHON") or "python3"


def example(tmp_path):
    """The page's code, and what it says that it prints."""
    page = pages.text("003")
    code = next(block for block in pages.blocks("003", "python") if "KubePyBoxManager" in block)
    expected = re.search(r"^```(?:text|plaintext)\n(.*?)^```", page[page.index(code) + len(code):], re.M | re.S)[1]
    variables = tmp_path / "kernel.env"
    variables.write_text("KERNEL_NAMESPACE=default\n")
    for there, here in (("from pybox import", "from carrel.pybox import"), ('"YOUR_ENV_FILE_PATH"', repr(str(variables))),
                        ('"YOUR_KERNEL_ENV_DICT"', repr({"KERNEL_USERNAME": "ann"}))):
        assert there in code
        code = code.replace(there, here)
    return code, expected


def run(command, code, environment):
    return subprocess.run([*command, PYTHON, "-c", code], capture_output=True, text=True, timeout=180,
                          env={**environment, "PYTHONPATH": str(TREE / "sdk/python")})


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
