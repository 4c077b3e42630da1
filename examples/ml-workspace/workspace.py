"""What the containers of a workspace do: `setup` (init container), `lab` (main container), `probe` (is it ready?).

The home directory is a volume of its owner's: files, and in ~/env the packages of requirements.txt. They are installed once, and again only when
the list changes. JupyterLab itself is the image's, so no package of the owner's can break it; kernels run in ~/env.
"""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

CONFIG = Path(__file__).resolve().parent
HOME = Path.home()
ENV = HOME / "env"
WORK = HOME / "work"
INSTALLED = ENV / ".installed"
PORT = 8888


def say(text: str) -> None:
    print(f"workspace: {text}", flush=True)


def wanted() -> str:
    """What ~/env is to hold, as one word: the list of packages, and the interpreter that they are for."""
    listed = (CONFIG / "requirements.txt").read_bytes()
    return hashlib.sha256(sys.version.encode() + b"\0" + listed).hexdigest()


def install() -> None:
    if INSTALLED.exists() and INSTALLED.read_text() == wanted():
        say(f"the packages are there ({ENV})")
        return
    if not (ENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(ENV)], check=True)
    say("installing requirements.txt")
    cache = HOME / ".cache" / "pip"
    command = [str(ENV / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off",
               f"--cache-dir={cache}", "-r", str(CONFIG / "requirements.txt")]
    status = subprocess.run(command).returncode
    if status != 0:
        raise SystemExit("workspace: the packages of requirements.txt could not be installed: pip's reason is above. "
                         "Correct the ConfigMap, or name a mirror (PIP_INDEX_URL) in the ConfigMap 'workspace-settings'.")
    INSTALLED.write_text(wanted())


def write_kernel() -> None:
    place = HOME / ".local" / "share" / "jupyter" / "kernels" / "python3"
    place.mkdir(parents=True, exist_ok=True)
    spec = {"argv": [str(ENV / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Python 3", "language": "python", "metadata": {"debugger": True}}
    (place / "kernel.json").write_text(json.dumps(spec, indent=1))


def setup() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    install()
    write_kernel()
    for notebook in CONFIG.glob("*.ipynb"):
        if not (WORK / notebook.name).exists():     # the owner's changes are the owner's
            shutil.copyfile(notebook, WORK / notebook.name)
    say("ready")


def lab() -> None:
    """On the pod's own loopback: `kubectl port-forward` reaches it, other pods do not. So it asks for no token; XSRF and Host are checked."""
    os.environ["PYTHONNOUSERSITE"] = "1"
    os.execvp("jupyter", ["jupyter", "lab", "--no-browser", "--ip=127.0.0.1", f"--port={PORT}", "--ServerApp.port_retries=0",
                          f"--ServerApp.root_dir={HOME}", "--IdentityProvider.token=", "--ServerApp.terminals_enabled=True"])


def probe() -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api", timeout=5) as answer:
        json.load(answer)


if __name__ == "__main__":
    verbs = {"setup": setup, "lab": lab, "probe": probe}
    if len(sys.argv) != 2 or sys.argv[1] not in verbs:
        raise SystemExit(f"usage: workspace.py {'|'.join(verbs)}")
    verbs[sys.argv[1]]()
