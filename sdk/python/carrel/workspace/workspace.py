"""The contents of the agent's session: libraries, skills, files."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Tuple

from .library import Library
from .skill import Skill


@dataclass
class Workspace:
    """What a session has: libraries, skills, files, and how its models are loaded."""

    local_dirs: List[Tuple[str, str]] = field(default_factory=list)
    local_files: List[Tuple[str, str]] = field(default_factory=list)
    libraries: List[Library] = field(default_factory=list)
    skills: List[Skill] = field(default_factory=list)
    skill_dirs: List[str] = field(default_factory=list)
    custom_init_code: Optional[str] = None
    preload_models: bool = True
    hidden_model_loading: bool = True

    def get_library_docs(self) -> str:
        """For a prompt; "" without libraries."""
        if not self.libraries:
            return ""
        return "# Available Libraries\n\n" + "\n\n".join(library.get_prompt_docs() for library in self.libraries)

    def all_libraries(self) -> List[Library]:
        """Its libraries, also those of its skills."""
        return [*self.libraries, *(skill.library for skill in self.skills if skill.library is not None and skill.library not in self.libraries)]

    def all_skills(self) -> List[Skill]:
        """Its skills, also those that are directories."""
        return [*self.skills, *(Skill.from_dir(path) for path in self.skill_dirs)]


def default_workspace() -> Workspace:
    """An empty one."""
    return Workspace()


def checked_workspace(workspace: Workspace | None) -> Workspace:
    """An empty one for None; TypeError for anything else."""
    if workspace is not None and not isinstance(workspace, Workspace):
        raise TypeError(f"workspace: a Workspace(libraries=[...]), not {type(workspace).__name__}")
    return workspace or Workspace()
