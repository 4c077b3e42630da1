"""Instructions for the agent, as a SKILL.md."""
from __future__ import annotations

import inspect
import os
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from .docs import check_plain_name, frontmatter

if TYPE_CHECKING:
    from .library import Library


@dataclass
class Skill:
    """Instructions that the agent can read: a SKILL.md."""

    name: str
    description: str
    content: str
    # What it says can be imported; a session that has the skill has that, too.
    library: "Optional[Library]" = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_plain_name(self.name, "a skill")

    @classmethod
    def from_source(cls, name: str, description: str, source_code: str, instructions: str | None = None) -> "Skill":
        """Code that the agent sees, with instructions."""
        fence = "```"
        while fence in source_code:
            fence += "`"
        return cls(name, description, f"{instructions or description}\n\n{fence}python\n{source_code.rstrip()}\n{fence}\n")

    @classmethod
    def from_dir(cls, path: str | os.PathLike[str]) -> "Skill":
        """A directory with SKILL.md."""
        path = Path(path)
        if not (path / "SKILL.md").is_file():
            raise FileNotFoundError(f"Skill.from_dir({str(path)!r}): there is no SKILL.md in it")
        head, body = frontmatter((path / "SKILL.md").read_text(encoding="utf-8"))
        return cls(head.get("name") or path.resolve().name, head.get("description", ""), body)

    @classmethod
    def from_function(cls, function: Callable[..., Any]) -> "Skill":
        """A function with its docstring; the agent sees its source."""
        description = inspect.getdoc(function) or f"The function {function.__name__}."
        source = textwrap.dedent(inspect.getsource(function))
        return cls.from_source(function.__name__.replace("_", "-"), description.splitlines()[0], source, description)

    def to_skill_md(self) -> str:
        """The text of SKILL.md."""
        description = " ".join(self.description.split())
        return f"---\nname: {self.name}\ndescription: {description}\n---\n\n{self.content}"

    def install_in(self, session: Any) -> None:
        """A session has its skills from the beginning: they are read-only in its box."""
        raise RuntimeError("skills are part of a session's workspace: Workspace(skills=[...]), before the session is created")
