"""Page 000: a JupyterLab for each person, as the page and examples/ml-workspace say it. Two persons want two versions of one package, from an index
on the cluster's own network (Pods have no way out); what takes gigabytes (torch) is left out of their lists."""
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pages
import pytest
from conftest import HERE, TREE
from rig.layout import NODE_ADDRESS

MANIFEST = TREE / "examples/ml-workspace/jupyterlab.yaml"
REQUIREMENTS = "  requirements.txt: |\n"
PACKAGE = {"jupyterlab-sandbox": "1.16.0", "jupyterlab-bob": "1.17.0"}


@pytest.fixture(scope="module")
def index(controller, cluster, tmp_path_factory):
    """A package index that Pods reach, and the ConfigMap that names it."""
    folder = tmp_path_factory.mktemp("index")
    for version in PACKAGE.values():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest",
                        folder / "simple/six", f"six=={version}"], check=True)
    server = subprocess.Popen([HERE / "cluster", "run", "--name", cluster.name, "python3", "-m", "http.server", "--bind", NODE_ADDRESS, "--directory", folder,
                               "8001"], stderr=subprocess.DEVNULL)
    controller.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workspace-settings", "namespace": "default"}, "data": {
        "PIP_INDEX_URL": f"http://{NODE_ADDRESS}:8001/simple/", "PIP_TRUSTED_HOST": NODE_ADDRESS}})
    yield
    server.kill()
    controller("delete", "configmap", "workspace-settings")


def manifest(version):
    """jupyterlab.yaml with another list of packages."""
    text = MANIFEST.read_text()
    begin = text.index(REQUIREMENTS) + len(REQUIREMENTS)
    return text[:begin] + f"    six=={version}\n" + text[begin + re.match(r"(    .*\n)+", text[begin:]).end():]


@pytest.fixture(scope="module")
def alice(controller, index):
    controller("apply", "-f", "-", text=manifest(PACKAGE["jupyterlab-sandbox"]))
    wait_ready(controller, "jupyterlab-sandbox")
    yield "jupyterlab-sandbox"
    controller("delete", "sandbox", "jupyterlab-sandbox", "--ignore-not-found")
    controller("delete", "pvc", "home-jupyterlab-sandbox", "--ignore-not-found", timeout=180)


@pytest.fixture(scope="module")
def bob(controller, index):
    """Bob's, as the page types it: a secret, then its heredoc with the spec copied in the place of its two comments."""
    files, sandbox = re.split(r"^---\n", manifest(PACKAGE["jupyterlab-bob"]), flags=re.M)[:2]
    controller("apply", "-f", "-", text=files.replace("name: workspace-files", "name: workspace-files-bob"))
    spec = sandbox[sandbox.index("\nspec:\n") + 1:].replace("workspace-files", "workspace-files-bob").replace("jupyter-hf-token", "jupyter-hf-token-bob", 1)
    assert not set("$`\\") & set(spec)
    typed = next(block for block in pages.blocks("000", "bash") if "jupyterlab-bob" in block).replace("<HF-TOKEN>", "hf_bob")
    copied = re.sub(r"^spec:\n(  #.*\n)+", lambda _: spec.rstrip("\n") + "\n", typed, flags=re.M)
    assert copied != typed
    controller.shell(copied)
    wait_ready(controller, "jupyterlab-bob")
    yield "jupyterlab-bob"
    controller("delete", "sandbox", "jupyterlab-bob", "--ignore-not-found")
    controller("delete", "pvc", "home-jupyterlab-bob", "--ignore-not-found", timeout=180)
    controller("delete", "secret", "jupyter-hf-token-bob")


def wait_ready(kubectl, name):
    kubectl("wait", "--for=condition=Ready", f"sandbox/{name}", "--timeout=300s", timeout=310)


def python(kubectl, name, code):
    return kubectl("exec", name, "--", "/home/jovyan/env/bin/python", "-c", code).strip()


@pytest.fixture
def forwarded(controller, alice):
    """The page's port-forward."""
    line = next(line for block in pages.blocks("000", "bash") for line in pages.commands(block) if "port-forward" in line)
    child = subprocess.Popen(["bash", "-c", f"exec {line}"], env=controller.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "Forwarding from" in child.stdout.readline()
    yield
    child.kill()


def test_the_pages_address_opens_the_notebook(forwarded):
    address = re.search(r"^# (http://localhost:\S+)$", pages.text("000"), re.M)[1]
    with urllib.request.urlopen(address, timeout=30) as page:
        assert page.status == 200 and "jupyter-config-data" in page.read().decode()
    with urllib.request.urlopen("http://localhost:8888/api/contents/work/experiment.ipynb", timeout=30) as answer:
        assert json.load(answer)["type"] == "notebook"


def test_another_site_is_refused(forwarded):
    request = urllib.request.Request("http://localhost:8888/api/contents", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 403


def test_two_persons_have_two_versions_and_two_secrets(controller, alice, bob):
    for name, version in PACKAGE.items():
        assert python(controller, name, "import six; print(six.__version__)") == version
    assert python(controller, bob, "import os; print(os.environ['HF_TOKEN'])") == "hf_bob"
    assert python(controller, alice, "import os; print(os.environ.get('HF_TOKEN'))") == "None"


def test_the_neighbour_does_not_reach_it(controller, alice, bob):
    address = controller.get("pod", alice)["status"]["podIP"]
    code = f"import socket; s = socket.socket(); s.settimeout(5); print(s.connect_ex(('{address}', 8888)))"
    assert python(controller, bob, code) == "111"  # refused


def test_files_and_packages_outlive_the_pod(controller, alice):
    python(controller, alice, "open('/home/jovyan/work/mine.txt', 'w').write('kept')")
    for mode in ("Suspended", "Running"):
        controller("patch", "sandbox", alice, "--type=merge", "-p", json.dumps({"spec": {"operatingMode": mode}}))
        condition = "Suspended" if mode == "Suspended" else "Ready"
        controller("wait", f"--for=condition={condition}", f"sandbox/{alice}", "--timeout=120s", timeout=130)
    controller("delete", "pod", alice)
    wait_ready(controller, alice)
    assert python(controller, alice, "import six; print(six.__version__, open('/home/jovyan/work/mine.txt').read())") == "1.16.0 kept"
    assert "the packages are there" in controller("logs", alice, "-c", "setup")
