"""Libraries, skills and files for the agent."""
from __future__ import annotations

from .library import Library
from .skill import Skill
from .workspace import Workspace, default_workspace

__all__ = ["Library", "Skill", "Workspace", "default_workspace"]
