"""Code that the agent can import."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional

from .docs import check_module_name, module_docs, without_frontmatter

if TYPE_CHECKING:
    from ..environment.scoped import Service


@dataclass
class Library:
    """A module (one file) or a package (files below NAME/). `docs` describes it in the agent's prompt."""

    name: str
    files: Dict[str, str]
    docs: str = ""
    # The service whose functions the library calls; None for code that runs where it is imported.
    service: "Optional[Service]" = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_module_name(self.name)
        for path in self.files:
            if path.startswith("/") or ".." in path.split("/") or not path or "\0" in path:
                raise ValueError(f"library {self.name}: {path!r} is no path below it")

    @property
    def is_single_file(self) -> bool:
        """Whether it is one module and no package."""
        return len(self.files) == 1 and "/" not in next(iter(self.files))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], name: str | None = None) -> "Library":
        """A file of Python, as it is."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"Library.from_file({str(path)!r}): there is no such file")
        code = path.read_text(encoding="utf-8")
        name = name or path.stem
        return cls(name, {f"{name}.py": code}, module_docs(code))

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str], name: str | None = None) -> "Library":
        """A package: a directory with __init__.py, and every *.py below it."""
        path = Path(path)
        if not (path / "__init__.py").is_file():
            raise FileNotFoundError(f"Library.from_directory({str(path)!r}): there is no __init__.py in it")
        files = {p.relative_to(path).as_posix(): p.read_text(encoding="utf-8") for p in sorted(path.rglob("*.py"))}
        name = name or path.name
        return cls(name, {f"{name}/{at}": code for at, code in files.items()}, module_docs(files["__init__.py"]))

    @classmethod
    def from_code(cls, name: str, code: str, docs: str = "") -> "Library":
        """A module of this code."""
        return cls(name, {f"{name}.py": code}, docs or module_docs(code))

    @classmethod
    def from_skill_dir(cls, path: str | os.PathLike[str]) -> "Library":
        """The code.py of a skill's directory; its docs are the body of SKILL.md."""
        path = Path(path)
        if not (path / "code.py").is_file():
            raise FileNotFoundError(f"Library.from_skill_dir({str(path)!r}): there is no code.py in it")
        code = (path / "code.py").read_text(encoding="utf-8")
        told = path / "SKILL.md"
        docs = without_frontmatter(told.read_text(encoding="utf-8")).strip() if told.is_file() else module_docs(code)
        name = path.resolve().name.replace("-", "_")
        return cls(name, {f"{name}.py": code}, docs)

    def get_prompt_docs(self) -> str:
        """What the agent's prompt says of it."""
        return f"## {self.name}\n\n{self.docs}" if self.docs else f"## {self.name}\n\nAvailable via: `import {self.name}`"

    def install_in(self, session: Any) -> None:
        """A session has its libraries from the beginning: they are read-only in its box."""
        raise RuntimeError("libraries are part of a session's workspace: Workspace(libraries=[...]), before the session is created")
