"""agent-sandbox's own load test (test/stress), unmodified, with both controllers in turn on one kwok cluster: the same
summary, no failure."""

import json
import subprocess

import pytest
from conftest import BUILD, HERE, Kubectl
from rig.layout import BIN
from test_storm import kwok

PHASES = [
    "--phases=probe,throughput-mif:20,claims-warm",
    "--probe-count=20",
    "--throughput-count=100",
    "--throughput-min-seconds=0",
    "--claims-warm-count=100",
    "--create-concurrency=10",
    "--image=busybox:1.36",
    "--collect-metrics=false",
    "--profile-apiserver=false",
    "--profile-controller=false",
]


@pytest.fixture(scope="module")
def fake():
    with kwok("stress") as one:
        # A number that Kubernetes does not write as "5k", which the test does not understand.
        room = {"pods": "4999", "cpu": "1000", "memory": "1000Gi"}
        Kubectl(one)(
            "patch",
            "node",
            "kwok-0",
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps({"status": {"capacity": room, "allocatable": room}}),
        )
        yield one


def stress(fake, command, out):
    """The summary of a run with this controller."""
    log = open(f"{out}.log", "wb")
    controller = subprocess.Popen(
        [
            HERE / "cluster",
            "run",
            "--name",
            fake.name,
            *command,
            "--kubeconfig",
            fake.kubeconfig,
            "--leader-elect=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    try:
        done = subprocess.run(
            [
                HERE / "cluster",
                "run",
                "--name",
                fake.name,
                "env",
                f"KUBECONFIG={fake.kubeconfig}",
                BIN / "sandbox-stress",
                *PHASES,
                f"--output-dir={out}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
    finally:
        controller.kill()
        controller.wait()
    assert done.returncode == 0, done.stdout[-4000:]
    return json.loads((out / "summary.json").read_text())


def shape(value):
    """Its keys, without the figures."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return (
        [shape(item) for item in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else type(value).__name__.replace("int", "float")
    )


def test_the_original_s_stress_gives_the_same_summary_with_both(fake, tmp_path):
    theirs = stress(fake, ["agent-sandbox-controller", "--extensions"], tmp_path / "theirs")
    ours = stress(fake, [BUILD / "carrel-controller"], tmp_path / "ours")
    print(json.dumps(theirs), "\n", json.dumps(ours))
    assert [(phase["name"] if "name" in phase else None) for phase in ours["phases"]] == [
        (phase["name"] if "name" in phase else None) for phase in theirs["phases"]
    ]
    for ours_phase, theirs_phase in zip(ours["phases"], theirs["phases"]):
        assert set(shape(theirs_phase)) <= set(shape(ours_phase)) | {"errors"}, (ours_phase, theirs_phase)
        assert not ours_phase.get("failed") and not ours_phase.get("errors")
