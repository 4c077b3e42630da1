"""pybox's own suite, over the managers whose kernels are in a cluster."""
import os
import subprocess

from conftest import BUILD, TREE

PYTHON = os.environ.get("CARREL_KUBE_PYTHON") or "python3"


def test_the_suite_of_all_managers_holds_in_a_cluster(controller):
    files = [TREE / "tests/pybox" / name for name in ("test_port.py", "test_mended.py")]
    done = subprocess.run([PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::pytest.PytestUnhandledThreadExceptionWarning", "--tb=short", "-k", "Kube", *files], text=True,
                          env={**controller.environment, "CARREL_CLUSTER": "1", "CARREL_BUILD": str(BUILD)}, capture_output=True, timeout=900)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-6000:] + done.stderr
    assert controller.get("kernels", "-A")["items"] == []
