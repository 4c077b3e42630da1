"""A workspace as files: code and instructions, which are read-only in the session's box, and data, which are the agent's."""
from __future__ import annotations

import os
from typing import Any, Dict, List

from ..workspace import Workspace
from .place import make_folder, put_file

_MOST_MOUNTS = 14       # a box has 16; two are for the directory itself and what Python compiles


def fixed_files(workspace: Workspace) -> Dict[str, bytes]:
    """What the agent reads and cannot change, by paths below the workspace."""
    files: Dict[str, bytes] = {}
    for library in workspace.libraries:
        for path, text in library.files.items():
            if path in files:
                raise ValueError(f"two libraries of the workspace have a file {path}")
            files[path] = text.encode()
    for skill in workspace.all_skills():
        files[f".claude/skills/{skill.name}/SKILL.md"] = skill.to_skill_md().encode()
    return files


def data_files(workspace: Workspace) -> Dict[str, bytes]:
    """What the agent gets and may change."""
    files: Dict[str, bytes] = {}
    for source, target in workspace.local_files:
        if not os.path.isfile(source):
            raise FileNotFoundError(f"Workspace(local_files=[({str(source)!r}, ...)]): there is no such file")
        files[str(target).lstrip("/")] = _read(source)
    for source, target in workspace.local_dirs:
        if not os.path.isdir(source):
            raise FileNotFoundError(f"Workspace(local_dirs=[({str(source)!r}, ...)]): there is no such directory")
        for base, _, names in os.walk(source):
            for name in names:
                path = os.path.join(base, name)
                if os.path.isfile(path):
                    files[os.path.join(str(target).lstrip("/"), os.path.relpath(path, source))] = _read(path)
    return files


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def furnish(workspace: Workspace, place: str, copies: str, target: str | None = None) -> List[Dict[str, Any]]:
    """Writes the files below `place`, and gives the mounts that make the fixed ones read-only below `target` in a box.

    Mounted are copies of ours, each at the top of the workspace: a directory below it could be moved away with the mount in it. Also fixed is
    what Python would take for the compiled code of a library."""
    fixed = fixed_files(workspace)
    for path, data in {**data_files(workspace), **fixed}.items():
        put_file(place, path, data)
    os.chmod(copies, 0o755)
    for path, data in {**fixed, "__pycache__/.keep": b""}.items():
        put_file(copies, path, data)
    make_folder(place, "__pycache__")
    tops = sorted({path.split("/")[0] for path in fixed} | {"__pycache__"})
    if len(tops) > _MOST_MOUNTS:
        raise ValueError(f"a workspace has at most {_MOST_MOUNTS} libraries and skills; put some of them into one package")
    return [{"source": os.path.join(copies, top), "target": os.path.join(target or place, top), "writable": False} for top in tops]
