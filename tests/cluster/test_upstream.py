"""agent-sandbox's own end-to-end tests, by name, unmodified, against Carrel's controller: on a kubelet, and on kwok those
that need no Pod that runs. Each passes with the original there, too. Its image of a runtime is ours, under its name."""

import re
import subprocess

import pytest
from conftest import BUILD, TREE, Kubectl
from rig.layout import BIN, CACHE
from test_storm import Controller, kwok

SOURCE = CACHE / "src/agent-sandbox"
# Pods that kwok says are running are enough for these.
ANYWHERE = [
    "TestSimpleSandbox",
    "TestSandboxSuspendResumeCycleWithOperatingMode",
    "TestSandboxSuspensionWithTerminatingPod",
    "TestSandboxPodDeletionKeepsSuspendedFalse",
    "TestSandboxSuspensionBlockedByUnownedPodConflict",
    "TestSandboxShutdownTime",
    "TestSandboxVolumeClaimTemplates",
    "TestSandboxVolumeClaimTemplatesImmutable",
    "TestParallelSandboxes",
    "TestParallelSandboxClaimsWithSufficientWarmPool",
    "TestParallelSandboxClaimsWithInsufficientWarmPool",
    "TestWarmPoolParallelClaim",
    "TestSandboxClaimObservabilityAnnotation",
    "TestCreateSandboxClaimVolumeClaimTemplates",
    "TestSandboxClaimDeleteForeground",
    "TestWarmPoolRollout",
    "TestWarmPoolRolloutMultiTemplateIsolation",
    "TestWarmPoolRolloutSwitchTemplate",
    "TestWarmPoolRolloutMetadataUpdate",
]
# These need Pods that run, and end.
KUBELET = [
    "TestSandboxRetainedExpiryPreservesFinishedCondition",
    "TestSandboxClaimTTLDeleteForegroundAfterFinished",
    "TestSandboxClaimTTLAfterFinished",
    "TestSandboxClaimExpiryUsesEarlierOfShutdownTimeAndTTL",
    "TestSandboxClaimFinishedWithoutTTLIsRetained",
    "TestSandboxClaimTTLZeroRetainPreservesFinishedConditionDuringCleanup",
    "TestWarmPoolSandboxWatcher",
    "TestRunPythonRuntimeSandbox",
    "TestRunPythonRuntimeSandboxClaim",
    "TestRunPythonRuntimeSandboxWarmpool",
    "TestRunSandboxdSandbox",
]
# It updates an object that it read before the controller's last write; then the API server says 409 before it says what
# the test waits for.
UNSTEADY = {"TestSandboxVolumeClaimTemplatesImmutable"}
# Some change the arguments of this Deployment; on kwok it stands for the controller, which runs outside.
STAND_IN = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "agent-sandbox-controller", "namespace": "agent-sandbox-system"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "agent-sandbox-controller"}},
        "template": {
            "metadata": {"labels": {"app": "agent-sandbox-controller"}},
            "spec": {"containers": [{"name": "agent-sandbox-controller", "image": "none", "args": []}]},
        },
    },
}


def tag(cluster, image, name):
    subprocess.run(
        [BIN / "ctr", "-a", cluster.path("containerd.sock"), "-n", "k8s.io", "images", "tag", "--force", image, name],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def sandboxd_image(folder):
    """The original's sandboxd with busybox' programs beside it, as its Dockerfile has Debian's."""
    root = folder / "sandboxd"
    (root / "workspace").mkdir(parents=True)
    (root / "workspace").chmod(0o777)
    subprocess.run(["cp", "-a", BUILD / "cluster/busybox/bin", BUILD / "cluster/busybox/etc", root], check=True)
    subprocess.run(["cp", BIN / "sandboxd", root / "bin"], check=True)
    subprocess.run(
        [
            TREE / "tools/make-image",
            folder / "sandboxd.tar",
            "--name",
            "kind.local/sandboxd:latest",
            "--root",
            root,
            "--entrypoint",
            "/bin/sandboxd",
        ],
        check=True,
    )
    return folder / "sandboxd.tar"


@pytest.fixture(scope="module")
def upstream(controller, cluster, tmp_path_factory):
    pause = re.search(r'Image: +"(\S+/pause:[0-9.]+)"', (SOURCE / "test/e2e/basic_test.go").read_text())[1]
    tag(cluster, "docker.io/library/pause:1", pause)
    tag(cluster, "docker.io/library/carrel-runtime:latest", "kind.local/python-runtime-sandbox:latest")
    subprocess.run(
        [
            TREE / "tests/cluster/cluster",
            "load",
            "--name",
            cluster.name,
            sandboxd_image(tmp_path_factory.mktemp("sandboxd")),
        ],
        check=True,
    )
    return controller


@pytest.fixture(scope="module")
def fake_upstream(tmp_path_factory):
    with kwok("upstream") as one:
        kubectl = Kubectl(one)
        kubectl.apply(STAND_IN)
        controller = Controller(one, tmp_path_factory.mktemp("upstream") / "controller.log")
        yield kubectl
        controller.end()


def check(kubectl, name):
    extended = re.search(
        rf"func {name}\(", "".join(path.read_text() for path in (SOURCE / "test/e2e/extensions").glob("*_test.go"))
    )
    program, folder = ("e2ext.test", "extensions") if extended else ("e2e.test", "")
    for _ in range(8 if name in UNSTEADY else 1):
        done = subprocess.run(
            [BIN / program, "-test.run", f"^{name}$", "-test.v", "-test.timeout=10m"],
            cwd=SOURCE / "test/e2e" / folder,
            env=kubectl.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=700,
        )
        if "the object has been modified" not in done.stdout:
            break
    assert done.returncode == 0 and f"--- PASS: {name}" in done.stdout, done.stdout[-6000:]


@pytest.mark.parametrize("name", ANYWHERE + KUBELET)
def test_upstream(upstream, name):
    check(upstream, name)


@pytest.mark.parametrize("name", ANYWHERE)
def test_upstream_on_kwok(fake_upstream, name):
    check(fake_upstream, name)
