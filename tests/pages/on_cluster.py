"""Proves blocks of the cluster's pages: on_cluster.py TEST... (names of tests in tests/cluster). They are all run at the first call of a report, on
a real Kubernetes (`make cluster-proof`), and looked up afterwards. 77: there is none on this machine."""
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", TREE / "build"))
CACHE = pathlib.Path(os.environ.get("CARREL_CLUSTER_CACHE", pathlib.Path.home() / ".cache/carrel-cluster"))
REPORT = BUILD / f"cluster/pages-{os.getppid()}.xml"      # of the report that calls us
# Without what takes long beside the pages' commands: a local model, a browser.
PROOF = ["make", "--no-print-directory", "cluster-proof", f"BUILD={BUILD}", "CLUSTER_PROOF_NEEDS=",
         f"CLUSTER_PROOF_ARGS=-k '(page_000 or page_002 or page_003 or install) and not local and not notebook' --junitxml={REPORT}"]


def results():
    if not REPORT.exists():
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(PROOF, cwd=TREE, capture_output=True, text=True, check=False)
        if not REPORT.exists():
            sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    return {case.get("name"): case for case in ElementTree.parse(REPORT).iter("testcase")}


def main():
    if os.geteuid() != 0 or not (CACHE / "bin/kubelet").exists():
        print("a cluster: as root, `make cluster-build` builds one (20 minutes, once)")
        return 77
    known = results()
    for wanted in sys.argv[1:]:
        found = [case for name, case in known.items() if name.split("[")[0] == wanted]
        if not found:
            print(f"there is no test {wanted}")
            return 1
        for case in found:
            wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
            if wrong is not None:
                print(wrong.text or wrong.get("message"))
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
