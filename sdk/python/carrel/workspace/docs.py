"""Small texts: module docstrings, names that may be files and modules."""
from __future__ import annotations

import ast
import keyword
import re
import sys


def module_docs(code: str) -> str:
    """The docstring of a module, as Python reads it; empty if the text is not Python."""
    try:
        return ast.get_docstring(ast.parse(code)) or ""
    except (SyntaxError, ValueError):
        return ""


def check_module_name(name: str) -> str:
    """The name; ValueError if nothing can be imported under it, or it would hide a module of Python's own."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise ValueError(f"{name!r} cannot be imported: a library's name has letters, digits and underscores")
    if name in getattr(sys, "stdlib_module_names", ()):
        raise ValueError(f"a library called {name!r} would hide Python's own module of that name; choose another name")
    return name


def check_plain_name(name: str, what: str) -> str:
    """The name of a skill or a server: a file's name, too."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise ValueError(f"{name!r} is no name for {what}: letters, digits, '-' and '_', at most 64")
    return name


def without_frontmatter(text: str) -> str:
    """The body of a SKILL.md."""
    return frontmatter(text)[1]


def frontmatter(text: str) -> tuple[dict[str, str], str]:
    match = re.match(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)(.*)", text, re.S)
    if not match:
        return {}, text
    pairs = (line.partition(":") for line in match[1].splitlines() if ":" in line and not line.startswith((" ", "#")))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}, match[2].lstrip("\n")
