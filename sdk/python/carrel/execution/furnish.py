"""A workspace as files: code and instructions, which are read-only in the session's box, and data, which are the agent's."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Sequence

from ..workspace import Workspace
from .place import make_folder, put_file, users_own

_MOST_MOUNTS = 14       # a box has 16; one is for the directory itself, one in reserve


def fixed_files(workspace: Workspace) -> Dict[str, bytes]:
    """The agent's read-only files, by paths below the workspace."""
    files: Dict[str, bytes] = {}
    for library in workspace.all_libraries():
        for path, text in library.files.items():
            if path in files:
                raise ValueError(f"two libraries of the workspace have a file {path}")
            files[path] = text.encode()
    for skill in workspace.all_skills():
        files[f".claude/skills/{skill.name}/SKILL.md"] = skill.to_skill_md().encode()
    return files


def data_files(workspace: Workspace) -> Dict[str, bytes]:
    """The agent's writable files."""
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


def furnish(workspace: Workspace, place: str, copies: str, own: Sequence[str] = ()) -> List[Dict[str, Any]]:
    """Writes the files below `place`, and gives the mounts that make the fixed ones read-only in a box, and what stays the user's (`own`).

    Mounted are copies of ours, each at the top of the workspace: a directory below it could be moved away with the mount in it. Also fixed is
    what Python would take for the compiled code of a library."""
    fixed, data_of = fixed_files(workspace), data_files(workspace)
    kept = users_own(place, own)
    for path in [*fixed, *data_of]:
        if path.split("/")[0] in kept:
            raise ValueError(f"{path} of the workspace would be in {os.path.join(place, path.split('/')[0])}, which is not the agent's; choose another "
                             "workspace_dir")
    for path, data in {**data_of, **fixed}.items():
        put_file(place, path, data)
    for top in ("__pycache__", *kept):
        make_folder(place, top)
    os.chmod(copies, 0o755)
    for path, data in {**fixed, "__pycache__/.keep": b""}.items():
        put_file(copies, path, data)
    tops = sorted({path.split("/")[0] for path in fixed} | {"__pycache__"})
    if len(tops) + len(kept) > _MOST_MOUNTS:
        raise ValueError(f"a workspace has at most {_MOST_MOUNTS - len(kept) - 1} libraries and skills; put some of them into one package")
    sources = [*((copies, top) for top in tops), *((place, top) for top in kept)]
    return [{"source": os.path.join(base, top), "target": os.path.join(place, top), "writable": False} for base, top in sources]
