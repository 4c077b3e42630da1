"""gpu= takes a CDI device of a kind that ends in /gpu."""
import os
import pathlib
import subprocess
import sys

import pytest

from carrel.environment import GpuUnavailable, SandboxConfig
from carrel.environment.gpu import matching_devices, settle_gpu
from conftest import SDK


def listed(*names, refused=()):
    return [{"name": n, "refused": None} for n in names] + [{"name": n, "refused": "it wants a hook"} for n in refused]


def test_any_device_of_a_kind_that_ends_in_gpu_will_do():
    devices = listed("nvidia.com/gpu=all", "amd.com/gpu=0", "nvidia.com/gpu=0", "vendor.com/net=0")
    assert matching_devices("A100", 1, devices) == ["amd.com/gpu=0"]
    assert matching_devices("A100", 3, devices) == ["amd.com/gpu=0", "nvidia.com/gpu=0", "nvidia.com/gpu=all"]
    assert matching_devices("nvidia.com/gpu=0", 1, devices) == ["nvidia.com/gpu=0"]
    assert matching_devices("all", 1, devices) == ["nvidia.com/gpu=all"]
    assert matching_devices("A100", 1, listed("vendor.com/net=0")) == []


def test_what_the_host_has_is_named():
    with pytest.raises(GpuUnavailable, match="2 x A100.*this machine has a.b/gpu=0 and no more.*CARREL_GPU=optional"):
        settle_gpu(SandboxConfig(gpu="A100", gpu_count=2), listed("a.b/gpu=0"))
    with pytest.raises(GpuUnavailable, match=r"a.b/gpu=0 \(it wants a hook\)"):
        settle_gpu(SandboxConfig(gpu="A100"), listed(refused=["a.b/gpu=0"]))
    assert settle_gpu(SandboxConfig(), listed("a.b/gpu=0")) == []


SCRIPT = """
from carrel.environment import Sandbox, SandboxConfig
with Sandbox(SandboxConfig(gpu="A100")) as sandbox:
    print(sandbox.exec("echo $CARREL_TEST_GPU; head -c 1 /dev/carrel-gpu | od -An -tx1").split())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write a specification")
def test_a_sandbox_has_the_gpu_that_the_host_describes():
    folder = pathlib.Path("/etc/cdi")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    path = folder / f"carrel-sdk-{os.getpid()}.yaml"
    path.write_text("cdiVersion: 0.5.0\nkind: carrel-sdk.test/gpu\ndevices:\n- name: A100\n  containerEdits:\n"
                    "    env: [CARREL_TEST_GPU=here]\n    deviceNodes: [{path: /dev/carrel-gpu, hostPath: /dev/zero}]\n")
    try:
        done = subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONPATH": str(SDK)}, capture_output=True, text=True, timeout=120)
    finally:
        path.unlink()
        if made and not any(folder.iterdir()):
            folder.rmdir()
    assert done.stdout == "['here', '00']\n", done
