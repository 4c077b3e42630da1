"""Python packages of a sandbox: an interpreter that has them all is used as it is; otherwise the box has an environment with the named ones."""
from __future__ import annotations

import re
from importlib import metadata
from typing import Any, List, Sequence

from .config import ConfigError

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)", re.S)


def _parsers() -> Any:
    """The module packaging: the installed one, or pip's copy."""
    for name in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            return __import__(name, fromlist=["Requirement"]).Requirement
        except ImportError:
            continue
    return None


def is_there(requirement: str) -> bool:
    """Whether this interpreter has it, in a version that will do."""
    match = _NAME.fullmatch(requirement)
    if not match or requirement.strip().startswith("-") or "@" in requirement or "/" in requirement:
        raise ConfigError(f"SandboxConfig(python_packages=[{requirement!r}]): a name with or without versions, like 'torch' or 'numpy<2'")
    try:
        version = metadata.version(match[1])
    except metadata.PackageNotFoundError:
        return False
    parse = _parsers()
    if parse is None:
        return not match[3]
    try:
        return bool(parse(requirement).specifier.contains(version, prereleases=True))
    except Exception:
        raise ConfigError(f"SandboxConfig(python_packages=[{requirement!r}]): not a requirement") from None


def packages_to_install(requirements: Sequence[str]) -> List[str]:
    """The list for the box: all of them, or none if this interpreter has them all."""
    return [] if all([is_there(r) for r in requirements]) else [r.strip() for r in requirements]
