"""Files beside an interface file that it can import."""
from __future__ import annotations

import io
import os
import tarfile
from typing import Dict

_MOST_FILES, _MOST_BYTES = 500, 20_000_000


def sibling_files(code_file: str) -> Dict[str, bytes]:
    """The *.py beside a file, and packages beside it, by their paths from there. Nothing else: a program's directory has also keys and data."""
    base = os.path.dirname(os.path.abspath(code_file))
    found: Dict[str, bytes] = {}
    total = 0
    for folder, folders, files in os.walk(base):
        inner = os.path.relpath(folder, base)
        folders[:] = sorted(f for f in folders if f.isidentifier() and f != "__pycache__" and os.path.isfile(os.path.join(folder, f, "__init__.py")))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not name.endswith(".py") or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                data = file.read()
            total += len(data)
            found[os.path.normpath(os.path.join(inner, name))] = data
            if len(found) > _MOST_FILES or total > _MOST_BYTES:
                raise ValueError(f"{base} has more than {_MOST_FILES} files or {_MOST_BYTES} bytes of Python beside {os.path.basename(code_file)}; "
                                 "put the interface into a directory of its own")
    return found


def archive_of(files: Dict[str, bytes]) -> bytes:
    """As a tar archive, so that all of them go up in one request."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        folders = sorted({os.path.dirname(path) for path in files} - {""})
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()
