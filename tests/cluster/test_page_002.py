"""Page 002, its commands in order as they are typed: docker is podman, kind a stand-in (bin/), the repository is this tree. The model is a hosted one
(a choice that the page names) with scripted answers, so that what must come out is known: an error first, then its fix."""
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pages
import pytest
from conftest import HERE, TREE
from rig.api import wait_for
from rig.layout import CACHE, NODE_ADDRESS

BASE = "docker.io/library/python:3.13-slim"


@pytest.fixture(scope="module")
def docker(kubectl):
    """The image that the Dockerfiles begin with, where docker finds it."""
    with open(CACHE / "python-slim.tar", "rb") as archive:
        made = str(os.fstat(archive.fileno()).st_mtime_ns)
        known = subprocess.run(["podman", "image", "inspect", "--format", "{{.Labels.made}}", BASE], capture_output=True, text=True).stdout.strip()
        if known != made:
            subprocess.run(["podman", "import", "--quiet", "--change", "CMD [\"python3\"]", "--change", f"LABEL made={made}", "-", BASE],
                           stdin=archive, check=True)
    return kubectl


@pytest.fixture(scope="module")
def agent(controller, docker, cluster, tmp_path_factory):
    """The example's folder, a hosted model in the cluster's network, and its address in the ConfigMap that the manifest names."""
    folder = tmp_path_factory.mktemp("examples") / "coding-agent"
    shutil.copytree(TREE / "examples/coding-agent", folder)
    model = subprocess.Popen([HERE / "cluster", "run", "--name", cluster.name, "python3", HERE / "hosted.py", NODE_ADDRESS, "8000"])
    controller.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coding-agent-settings", "namespace": "default"}, "data": {
        "OPENAI_MODEL": "scripted", "OPENAI_BASE_URL": f"http://{NODE_ADDRESS}:8000/v1"}})
    yield folder
    model.kill()
    controller("delete", "configmap", "coding-agent-settings")


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command, environment):
        self.main, other = pty.openpty()
        self.child = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True)
        os.close(other)
        self.text = ""

    def until(self, pattern, seconds=60):
        """What was printed up to a pattern."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert select.select([self.main], [], [], max(0, deadline - time.monotonic()))[0], f"no {pattern!r} in {self.text!r}"
            try:
                self.text += os.read(self.main, 65536).decode(errors="replace")
            except OSError:
                assert re.search(pattern, self.text), self.text
        said, self.text = self.text, ""
        return said

    def type(self, line):
        os.write(self.main, line.encode() + b"\r")

    def close(self):
        self.child.kill()
        self.child.wait()
        os.close(self.main)


def deploy(kubectl, folder):
    """The page's lines from the build to the wait, in order. Before `logs -f` the Pod has a node: the API server gives the log of a Pod without one as an
    empty stream, and kubectl ends well with nothing said. How long that lasts is the scheduler's and the volumes' affair."""
    lines = pages.commands(pages.between("002", "5. Build and Deploy", "6. Use the Agent"))
    assert [line.split()[:2] for line in lines] == [["docker", "build"]] * 2 + [["kind", "load"]] * 2 + [
        ["kubectl", "apply"], ["kubectl", "logs"], ["kubectl", "wait"]]
    said = kubectl.shell("\n".join(lines[:5]), cwd=folder, timeout=1500)
    path = "/api/v1/namespaces/default/pods/coding-agent-sandbox"
    wait_for("the Pod has a node", 60, lambda: kubectl.api.get(path)["spec"].get("nodeName"))
    followed = kubectl.shell(lines[5], cwd=folder)
    said += followed + kubectl.shell(lines[6], cwd=folder, timeout=620)
    assert "condition met" in said, said
    return followed


def test_1_the_required_software_answers(kubectl):
    for command in pages.commands(pages.between("002", "# Verify installations", "Installation Links")):
        kubectl.shell(command)


def test_2_build_load_deploy_watch_and_wait(controller, agent):
    assert "a hosted model is used (scripted); nothing is downloaded" in deploy(controller, agent)


def test_3_attach_ask_and_see_the_error_fixed(controller, agent):
    line, = pages.commands(pages.between("002", "6. Use the Agent", "Workflow"))
    task = re.search(r"^# You: (.*)$", pages.text("002"), re.M)[1]
    terminal = Terminal(["bash", "-c", line], controller.environment)
    try:
        terminal.until("press(ing)? enter|You:|attach")
        terminal.type("")
        terminal.until("You: ")
        terminal.type(task)
        said = terminal.until(r"factorial: 120[\s\S]*You: ", 120)
        assert "NameError" in said
    finally:
        terminal.close()        # which leaves it: the agent goes on
    agents = controller.get("pod", "coding-agent-sandbox")["status"]["containerStatuses"]
    assert [one["restartCount"] for one in agents if one["name"] == "agent"] == [0]


def test_4_switching_the_model_deletes_the_claim_first(controller, agent):
    """With the original this hangs for ever at its first line; here the Pod lets the claim go, and comes back when it is there again."""
    before = controller.get("pod", "coding-agent-sandbox")["metadata"]["uid"]
    for file, there in (("download_model.py", 'MODEL_ID = "'), ("coding_agent.py", 'def __init__(self, model_id: str = "')):
        text = (agent / file).read_text()
        assert text.count(there + "Salesforce/codegen-350M-mono") == 1
        (agent / file).write_text(text.replace(there + "Salesforce/codegen-350M-mono", there + "bigcode/starcoder2-3b"))
    lines = pages.commands(pages.between("002", "After changing models:", "Cleanup"))
    assert lines[0] == "kubectl delete pvc models-cache-pvc"
    controller.shell("\n".join(lines), cwd=agent, timeout=900)
    controller("wait", "--for=condition=Ready", "sandbox/coding-agent-sandbox", "--timeout=120s", timeout=130)
    assert controller.get("pod", "coding-agent-sandbox")["metadata"]["uid"] != before
    assert "starcoder2-3b" in controller("exec", "coding-agent-sandbox", "--", "cat", "coding_agent.py")


def test_5_more_memory_replaces_the_pod(controller, agent):
    before = controller.get("pod", "coding-agent-sandbox")["metadata"]["uid"]
    manifest = agent / "deployment.yaml"
    text = manifest.read_text()
    assert text.count('memory: "16Gi"') == 1
    manifest.write_text(text.replace('memory: "16Gi"', 'memory: "24Gi"'))
    controller("apply", "-f", str(manifest))
    path = "/api/v1/namespaces/default/pods/coding-agent-sandbox"
    wait_for("another Pod", 120, lambda: controller.api.get(path)["metadata"]["uid"] != before)
    controller("wait", "--for=condition=Ready", "sandbox/coding-agent-sandbox", "--timeout=120s", timeout=130)
    limits = [c["resources"]["limits"]["memory"] for c in controller.get("pod", "coding-agent-sandbox")["spec"]["containers"]]
    assert limits[0] == "24Gi"


def test_6_the_commands_for_support_say_something(controller, agent):
    support = pages.text("002").split("For issues:")[1]
    for command in re.findall(r"kubectl [^\n]*?(?= - |$)", support, re.M):
        # The Pod is Ready as soon as its containers run; what they say comes a little later.
        assert wait_for(command, 60, lambda: controller.shell(command).strip())


def test_7_clean_up_leaves_nothing_of_the_agent(controller, agent):
    for command in pages.commands(pages.between("002", "Remove Agent Only", "Remove Agent-Sandbox Controller")):
        controller.shell(command)
    wait_for("the Pod to go", 60, lambda: controller.api.find("/api/v1/namespaces/default/pods/coding-agent-sandbox") is None)
    wait_for("the claims to go", 60, lambda: not controller.get("pvc")["items"])
