"""Page 002 with a model in the pod, as the page itself has it: a small real one (SmolLM2), under CodeGen's name, from a hub on the cluster's own network. It
is downloaded once, whole, followed by `logs -f`, and asked at the terminal."""
import os
import pathlib
import re
import shutil
import subprocess
import time

import pages
import pytest
from conftest import HERE, TREE
from rig.api import wait_for
from rig.layout import NODE_ADDRESS
from test_page_002 import Terminal, deploy, docker  # noqa: F401 (a fixture)

NAME = "Salesforce/codegen-350M-mono"
MODEL = pathlib.Path(os.environ.get("CARREL_PAGES_MODEL") or "/nonexistent")


@pytest.fixture(scope="module")
def hub(controller, cluster, tmp_path_factory):
    """The hub; it records which files were requested."""
    if not (MODEL / "config.json").exists():
        pytest.skip("CARREL_PAGES_MODEL names no model; `make pages-model` makes one")
    log = tmp_path_factory.mktemp("hub") / "served"
    child = subprocess.Popen([HERE / "cluster", "run", "--name", cluster.name, "python3", TREE / "tests/scoped/hub_server.py", "--bind", f"{NODE_ADDRESS}:8002",
                              "--log", log, f"{NAME}={MODEL}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == f"http://{NODE_ADDRESS}:8002"
    controller.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coding-agent-settings", "namespace": "default"}, "data": {
        "HF_ENDPOINT": f"http://{NODE_ADDRESS}:8002", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}})
    yield log
    child.kill()
    child.wait()
    controller("delete", "configmap", "coding-agent-settings")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("examples") / "coding-agent"
    shutil.copytree(TREE / "examples/coding-agent", made)
    return made


def test_1_the_download_is_followed_to_its_end(controller, docker, hub, folder):  # noqa: F811
    said = deploy(controller, folder)
    assert re.search(rf"^{NAME}: \d+ MB, \d+ MB are free in /models$", said, re.M), said
    assert re.search(rf"^{NAME} is complete: \d+ MB$", said, re.M), said
    assert "model.safetensors" in hub.read_text().split()


def test_2_the_model_in_the_pod_writes_code_that_is_run(controller, hub):
    line, = pages.commands(pages.between("002", "6. Use the Agent", "Workflow"))
    terminal = Terminal(["bash", "-c", line], controller.environment)
    try:
        terminal.until("press(ing)? enter|You:|attach")
        terminal.type("")
        terminal.until("You: ", 180)
        terminal.type("print the numbers from 1 to 5")
        # What so small a model writes is its own affair; that it was asked, run, and shown at the end is the agent's.
        said = terminal.until(r"\[running it\][\s\S]*You: ", 900)
    finally:
        terminal.close()
    assert f"[writing code with {NAME}]" in said, said
    assert 1 <= said.count("[running it]") <= 4, said


def test_3_a_new_pod_finds_the_model_in_the_cache(controller, hub):
    asked = hub.read_text()
    before = controller.get("pod", "coding-agent-sandbox")["metadata"]["uid"]
    controller("delete", "pod", "coding-agent-sandbox")
    path = "/api/v1/namespaces/default/pods/coding-agent-sandbox"
    wait_for("another Pod", 60, lambda: controller.api.get(path)["metadata"]["uid"] != before)
    controller("wait", "--for=condition=Ready", "sandbox/coding-agent-sandbox", "--timeout=180s", timeout=190)
    assert controller("logs", "coding-agent-sandbox", "-c", "model-downloader") == f"{NAME} is in the cache (/models)\n"
    assert hub.read_text() == asked


def test_4_clean_up(controller, hub):
    for command in pages.commands(pages.between("002", "Remove Agent Only", "Remove Agent-Sandbox Controller")):
        controller.shell(command)
    wait_for("the Pod to go", 60, lambda: controller.api.find("/api/v1/namespaces/default/pods/coding-agent-sandbox") is None)
    wait_for("the claims to go", 60, lambda: not controller.get("pvc")["items"])


def test_5_a_download_that_fails_says_why(controller, hub, folder):
    """The same with a hub that has no such model: the init container fails, and its last line is the reason."""
    text = (folder / "deployment.yaml").read_text()
    assert text.count("value: /models\n") == 2
    (folder / "deployment.yaml").write_text(text.replace("value: /models\n", "value: /models\n            - {name: HF_ENDPOINT, value: 'http://"
                                                        f"{NODE_ADDRESS}:8002/nothing'}}\n", 1))
    try:
        controller("apply", "-f", str(folder / "deployment.yaml"))
        path = "/api/v1/namespaces/default/pods/coding-agent-sandbox"

        def failed():
            status = controller.api.get(path)["status"]["initContainerStatuses"][0]
            ended = status["state"].get("terminated") or status["lastState"].get("terminated")
            return ended and ended["exitCode"]
        assert wait_for("the init container fails", 120, failed) == 1
        deadline = time.monotonic() + 30
        while not (said := controller("logs", "coding-agent-sandbox", "-c", "model-downloader")) and time.monotonic() < deadline:
            time.sleep(0.2)     # the next try has begun and has not printed yet
        assert said.splitlines()[-1].startswith(f"cannot download {NAME}: "), said
    finally:
        controller("delete", "-f", str(folder / "deployment.yaml"), timeout=180)
