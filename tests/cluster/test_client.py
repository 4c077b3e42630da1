"""What users of agent-sandbox have, with Carrel's controller and runtime: its Python client's own end-to-end tests, its
runtime's tester, its router, its examples; our own client; and why a Pod died. On a real kubelet."""

import json
import os
import subprocess
import sys

import pytest
from conftest import TREE
from rig.api import wait_for
from rig.layout import BIN
from test_claims import claim, extension, full, pool
from test_upstream import SOURCE, tag

PYTHON = os.environ.get("CARREL_SANDBOX_PYTHON", sys.executable)  # has k8s-agent-sandbox and kubernetes
# A gateway needs the Gateway API and a controller for it.
CLIENT_TESTS = [
    "test_python_sdk_router_mode",
    "test_python_sdk_annotation",
    "test_python_sdk_router_mode_warmpool",
    "test_python_sdk_volume_claim_templates",
]
CLIENT = "test/e2e/clients/python/test_e2e_python_sdk.py"


@pytest.fixture(scope="module")
def images(controller, cluster, tmp_path_factory):
    """The original's router, and our runtime under the names that its tests and examples use. A tag that is not `latest`
    is not pulled."""
    archive = tmp_path_factory.mktemp("router") / "router.tar"
    subprocess.run(
        [
            TREE / "tools/make-image",
            archive,
            "--name",
            "kind.local/sandbox-router:test",
            "--program",
            BIN / "sandbox-router",
            "--entrypoint",
            "/sandbox-router",
            "--user",
            "1000:1000",
        ],
        check=True,
    )
    subprocess.run([TREE / "tests/cluster/cluster", "load", "--name", cluster.name, archive], check=True)
    for name in ("kind.local/python-runtime-sandbox:test", "docker.io/library/sandbox-runtime:latest"):
        tag(cluster, "docker.io/library/carrel-runtime:latest", name)
    return controller


def runtime_template(namespace, **spec):
    pod = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "carrel-runtime:0.1.0", "ports": [{"containerPort": 8888}]}],
    }
    return extension("SandboxTemplate", "template", namespace, podTemplate={"spec": pod}, **spec)


@pytest.mark.parametrize("name", CLIENT_TESTS)
def test_the_original_s_client_works_unmodified(images, cluster, name):
    done = subprocess.run(
        [
            TREE / "tests/cluster/cluster",
            "run",
            "--name",
            cluster.name,
            "env",
            f"PYTHONPATH={SOURCE}",
            "IMAGE_TAG=test",
            f"KUBECONFIG={cluster.kubeconfig}",
            f"PATH={images.environment['PATH']}",
            PYTHON,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"{CLIENT}::{name}",
        ],
        cwd=SOURCE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-6000:]


def run_in(cluster, kubectl, script, **environment):
    """A Python program where Pods are reached, with our package."""
    settings = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PYTHONPATH": str(TREE / "sdk/python"),
        "PATH": kubectl.environment["PATH"],
        **environment,
    }
    done = subprocess.run(
        [
            TREE / "tests/cluster/cluster",
            "run",
            "--name",
            cluster.name,
            "env",
            *[f"{k}={v}" for k, v in settings.items()],
            PYTHON,
            "-B",
            "-c",
            script,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_direct_connection_of_the_original_s_client(images, cluster, namespace):
    images.apply(runtime_template(namespace), pool(namespace=namespace, replicas=1))
    full(images, namespace=namespace, count=1)
    told = run_in(
        cluster,
        images,
        """
import os
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from kubernetes import client, config
config.load_kube_config()
objects, space = client.CustomObjectsApi(), os.environ["NS"]
boxes = objects.list_namespaced_custom_object("agents.x-k8s.io", "v1beta1", space, "sandboxes")["items"]
address = boxes[0]["status"]["podIPs"][0]
direct = SandboxDirectConnectionConfig(api_url=f"http://{address}:8888")
sandbox = SandboxClient(connection_config=direct).create_sandbox("pool", namespace=space)
sandbox.files.write("a/b.txt", "text")
files = sandbox.files
print(files.read("a/b.txt"), files.exists("a"), files.exists("none"), [f.name for f in files.list("a")])
print(sandbox.commands.run("cat a/b.txt"))
sandbox.terminate()
""",
        NS=namespace,
    )
    assert "b'text' True False ['b.txt']" in told and "stdout='text'" in told


OURS = """
import os
from carrel.cluster import Sandbox
from carrel import ExecFailed, NotFound, Unsupported
program = "import os, sys; print(os.environ.get('A'), sys.stdin.read(), os.getcwd())"
with Sandbox(warmpool="pool", namespace=os.environ["NS"], direct=os.environ["HOW"] == "direct") as box:
    box.files.write("d/ä b.py", program, mode=0o640)
    done = box.exec(["python3", "../d/ä b.py"], cwd="d", env={"A": "1 2"}, stdin="in", check=True)
    print(repr(done.stdout), done.ok, box.shell("echo $((6*7)); exit 3").exit_code)
    info = box.files.stat("d/ä b.py")
    print(info.type, oct(info.mode), [f.name for f in box.files.list("d")], box.files.exists("nothing"))
    print(box.exec("sleep 30", timeout="300ms").outcome)
    for bad, error in ((lambda: box.exec(["false"], check=True), ExecFailed),
                       (lambda: box.files.read("nothing"), NotFound), (lambda: box.pause(), Unsupported)):
        try:
            bad()
            print("no error")
        except error as e:
            print(type(e).__name__)
    box.files.move("d/ä b.py", "e.py")
    box.files.remove("d", recursive=True)
    print([f.name for f in box.files.list() if not f.name.startswith(".")])
    data = os.urandom(3 << 20); box.files.write("big", data); print(box.files.read("big") == data)
    print(box.phase, box.name != box.claim_name, box.trouble)
    box.run("import pandas; x = pandas.Series([40, 2])")
    print(box.run("int(x.sum())").text, box.run("1/0").error.name)
    print([e["type"] for e in box.stream("print(1); 2")])
    command = box.spawn("echo first; read line; echo $line", stdin=True)
    lines = command.output()
    print(next(lines)["data"].strip())
    command.write(b"second\\n", close=True)
    print(next(lines)["data"].strip(), command.wait().exit_code)
    events = box.exec_stream(["sleep", "1000"])
    sleeper = box.get_exec(next(events)["exec"]); events.close(); print(sleeper.wait().outcome)
"""


@pytest.mark.parametrize("how", ["proxy", "direct"])
def test_our_own_client_has_a_box_s_methods(images, cluster, namespace, how):
    images.apply(runtime_template(namespace), pool(namespace=namespace, replicas=1))
    full(images, namespace=namespace, count=1)
    told = run_in(cluster, images, OURS, NS=namespace, HOW=how, PYTHONUTF8="1")
    assert told.splitlines() == [
        "'1 2 in /app/d\\n' True 3",
        "file 0o640 ['ä b.py'] False",
        "timeout",
        "ExecFailed",
        "NotFound",
        "Unsupported",
        "['e.py']",
        "True",
        "running True None",
        "42 ZeroDivisionError",
        "['stdout', 'result', 'outcome']",
        "first",
        "second 0",
        "killed",
    ]
    wait_for("the claim is gone", 30, lambda: images.get("sandboxclaims", "-n", namespace)["items"] == [])


# ---- examples, as they are ----


def test_hello_world(images, namespace):
    text = (SOURCE / "examples/hello-world-sandbox/hello-world.yaml").read_text().replace("${IMAGE}", "busybox:1.36")
    images("apply", "-n", namespace, "-f", "-", text=text)
    wait_for(
        "it has run",
        60,
        lambda: (
            images.get("sandbox", "hello-world", "-n", namespace).get("status", {}).get("conditions")
            and any(
                c["type"] == "Finished" and c["reason"] == "PodSucceeded"
                for c in images.get("sandbox", "hello-world", "-n", namespace)["status"]["conditions"]
            )
        ),
    )


def test_python_runtime_sandbox_and_its_tester(images, cluster, namespace):
    images("apply", "-n", namespace, "-f", str(SOURCE / "examples/python-runtime-sandbox/sandbox-python-kind.yaml"))
    images("wait", "-n", namespace, "--for=condition=Ready", "sandbox/sandbox-python-example", "--timeout=60s")
    address = images.get("sandbox", "sandbox-python-example", "-n", namespace)["status"]["podIPs"][0]
    run_in(
        cluster,
        images,
        f"""
import importlib.util
spec = importlib.util.spec_from_file_location("tester", {str(SOURCE / "examples/python-runtime-sandbox/tester.py")!r})
tester = importlib.util.module_from_spec(spec); spec.loader.exec_module(tester)
names = [n for n in dir(tester) if n.startswith("test_")]
assert len(names) >= 8, names
wait = __import__("time").sleep
for n in range(600):
    try:
        __import__("requests").get("http://{address}:8888/"); break
    except OSError:
        wait(0.1)
for name in names:
    getattr(tester, name)("http://{address}:8888")
""",
    )


def test_warmpool_quickstart_by_its_files(images):
    """As its README says, in the namespace default, where its files put them. The storage class and the runtime class that
    they name are the cluster's only ones under these names. Its image has no tag, so it is pulled."""
    files = SOURCE / "examples/warmpool-quickstart"
    storage = {**images.get("storageclass", "standard"), "metadata": {"name": "dynamic-rwo"}}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runc"}
    images.apply(storage, runtime)

    def member():
        """The Sandbox of the full pool."""
        pool = images.get("sandboxwarmpool", "sandboxwarmpool-example")
        boxes = images.get("sandboxes")["items"]
        ready = pool.get("status", {}).get("readyReplicas") == pool["spec"]["replicas"] == len(boxes)
        return boxes[0]["metadata"]["name"] if ready else None

    try:
        for file in ("sandboxtemplate.yaml", "sandboxwarmpool.yaml", "llm.yaml"):
            images("apply", "-f", str(files / file))
        first = wait_for("the pool is full", 90, member)
        assert "/32" in json.dumps(images.get("networkpolicy", "internal-llm-template-network-policy")["spec"]["egress"])
        images("apply", "-f", str(files / "sandbox-claim.yaml"))
        images("wait", "--for=condition=Ready", "sandboxclaim/my-secure-sandbox", "--timeout=90s")
        box = images.get("sandboxclaim", "my-secure-sandbox")["status"]["sandbox"]["name"]
        assert "workspace" in images("exec", box, "--", "ls", "/")
        size = images.get("pvc", f"workspace-{box}")["spec"]["resources"]["requests"]["storage"]
        assert size == "6Gi"  # the claim's own, not the template's
        images("delete", "sandboxclaim", "my-secure-sandbox")
        images("apply", "-f", str(files / "secure-sandboxtemplate.yaml"))
        second = wait_for("the pool is of the secure template", 120, lambda: (new := member()) and new != first and new)
        assert images.get("pod", second)["spec"]["runtimeClassName"] == "gvisor"
    finally:
        for kind in ("sandboxclaim", "sandboxwarmpool", "sandboxtemplate"):
            images("delete", kind, "--all", "-n", "default")
        images("delete", "storageclass/dynamic-rwo", "runtimeclass/gvisor")


# ---- why it died ----


def trouble(kubectl, kind, name, namespace):
    return (
        kubectl.get(kind, name, "-n", namespace)["metadata"].get("annotations", {}).get("carrel.dev/last-trouble", "")
    )


DEATHS = {
    "oom": (
        {"command": ["sh", "-c", "x=a; while :; do x=$x$x; done"], "resources": {"limits": {"memory": "16Mi"}}},
        ["container main: OOMKilled (limit 16Mi)", "exit code 137"],
    ),
    "exit": ({"command": ["sh", "-c", "exit 3"]}, ["container main: Error, exit code 3"]),
    "pull": ({"image": "192.0.2.1/nothing:1", "command": ["true"]}, ["container main: ", "192.0.2.1/nothing:1"]),
    "unschedulable": (
        {"command": ["sleep", "1000"], "resources": {"requests": {"cpu": "900"}}},
        ["Pod: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu"],
    ),
}


@pytest.mark.parametrize("how", DEATHS)
def test_why_it_died_is_told_on_sandbox_and_claim(controller, namespace, how):
    container, words = DEATHS[how]
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "busybox:1.36", **container}],
    }
    controller.apply(
        extension("SandboxTemplate", "template", namespace, podTemplate={"spec": pod}),
        pool(namespace=namespace, replicas=0),
        claim("c", namespace),
    )
    for kind in ("sandbox", "sandboxclaim"):
        wait_for(
            f"the {kind} says it",
            60,
            lambda kind=kind: all(word in trouble(controller, kind, "c", namespace) for word in words),
        )
    events = controller.get("events", "-n", namespace)["items"]
    told = {(e["involvedObject"]["kind"], e["reason"]) for e in events if words[0] in e["message"]}
    assert {("Sandbox", "PodTrouble"), ("SandboxClaim", "SandboxTrouble")} <= told
