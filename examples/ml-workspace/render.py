"""Writes jupyterlab.yaml: the files of a workspace as a ConfigMap, then sandbox.yaml. `--check` only compares."""
from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ["requirements.txt", "workspace.py", "experiment.ipynb"]


def rendered() -> str:
    lines = ["# Made by render.py from the files of this folder: change those.",
             "apiVersion: v1", "kind: ConfigMap", "metadata:", "  name: workspace-files", "data:"]
    for name in FILES:
        lines.append(f"  {name}: |")
        lines += [f"    {line}".rstrip() for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
    return "\n".join(lines) + "\n---\n" + (HERE / "sandbox.yaml").read_text(encoding="utf-8")


if __name__ == "__main__":
    target = HERE / "jupyterlab.yaml"
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if target.read_text(encoding="utf-8") == rendered() else f"{target.name} is older than its files: run render.py")
    target.write_text(rendered(), encoding="utf-8")
