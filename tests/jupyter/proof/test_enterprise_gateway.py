"""Enterprise Gateway's own integration tests, unmodified, with this server in the gateway's place."""
import os
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(os.environ["CARREL_GATEWAY_TREE"])


def test_python_kernels(server):
    env = {**os.environ, "GATEWAY_HOST": f"127.0.0.1:{server.port}", "KERNEL_USERNAME": "bob", "KERNEL_LAUNCH_TIMEOUT": "40", "ITEST_HOSTNAME_PREFIX": "b",
           "PYTHON_KERNEL_LOCAL_NAME": "python3", "PYTHON_KERNEL_DISTRIBUTED_NAME": "small"}
    classes = [f"enterprise_gateway/itests/test_python_kernel.py::TestPythonKernel{kind}" for kind in ("Local", "Distributed")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *classes], cwd=TREE, env=env, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 10 and "failed" not in done.stdout, done.stdout
