"""What the proofs on a real cluster share. CARREL_BUILD names the build folder; the cluster is started for the run, and ended after it unless
CARREL_CLUSTER_KEEP is set (then the next run finds it)."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
sys.path.insert(0, str(HERE))

from rig.api import Api  # noqa: E402
from rig.layout import BIN, Cluster  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TREE / "build")
NAME = os.environ.get("CARREL_CLUSTER") or "proof"
MANIFEST = TREE / "packaging/kubernetes/carrel.yaml"


class Kubectl:
    """kubectl, kind and docker as a person has them: in PATH, with KUBECONFIG set."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.api = Api(cluster.kubeconfig)
        self.environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{HERE / 'bin'}:{BIN}:{os.environ['PATH']}",
                            "CARREL_CLUSTER": cluster.name}

    def shell(self, script, cwd=None, timeout=600):
        """Runs lines of a page as they are typed; fails with what they printed."""
        done = subprocess.run(["bash", "-ec", script], env=self.environment, cwd=cwd, timeout=timeout, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def __call__(self, *arguments, text=None, fails=False, timeout=120):
        done = subprocess.run(["kubectl", *arguments], env=self.environment, input=text, timeout=timeout, capture_output=True, text=True)
        assert bool(done.returncode) == fails, f"kubectl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def apply(self, *objects):
        return self("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, *arguments):
        return json.loads(self("get", *arguments, "-o", "json"))


@pytest.fixture(scope="session")
def cluster():
    """A real cluster with the images of the build."""
    one = Cluster(NAME)
    started = not one.init_pid
    if started:
        images = [f"--image={path}" for path in sorted((BUILD / "cluster").glob("*.tar")) + sorted((BUILD / "images").glob("*.tar"))]
        subprocess.run([HERE / "cluster", "up", "--name", NAME, *images], check=True)
    yield one
    if started and not os.environ.get("CARREL_CLUSTER_KEEP"):
        subprocess.run([HERE / "cluster", "down", "--name", NAME], check=True)


@pytest.fixture(scope="session")
def kubectl(cluster):
    return Kubectl(cluster)


def wait_for_definitions(kubectl):
    """Until the API server serves all kinds: before, a request for one of them is 404."""
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def install_controller(kubectl):
    """Carrel's controller, as docs/cluster.md says."""
    kubectl("apply", "-f", str(MANIFEST))
    kubectl("-n", "agent-sandbox-system", "rollout", "status", "deployment/agent-sandbox-controller", "--timeout=60s")
    wait_for_definitions(kubectl)


@pytest.fixture(scope="session")
def controller(kubectl):
    install_controller(kubectl)
    return kubectl


@pytest.fixture
def namespace(kubectl, request):
    """A namespace for one test, deleted with all that is in it."""
    name = f"t-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--timeout=120s", timeout=150)
