"""Python packages of a sandbox: what the program's interpreter has is used as it is; the rest is installed once, into a directory of its own.

Only wheels are installed: the making of others runs code of theirs, and that would run outside of a box. So pip may start no program
(guest/setup/carrel_pip.py): a wheel can want such a source, too."""
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from importlib import metadata
from typing import Any, List, Sequence

from ..local import find_guest
from .cache import cache_dir, human, locked
from .config import ConfigError

_LARGE = 100_000_000        # bytes; from there the size is told before
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)", re.S)


class PackagesUnavailable(RuntimeError):
    """A package could not be installed. The message has the installer's own words."""


def _parsers() -> Any:
    """The module packaging: installed, or the one that pip carries."""
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


def _constraints() -> str:
    """The versions of this interpreter's own packages: what is added must fit them, for both are imported together."""
    known = {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"]}
    return "".join(f"{name}=={version}\n" for name, version in sorted(known.items()) if re.fullmatch(r"[0-9A-Za-z.!]+", version))


def _installer() -> List[str]:
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--python", sys.executable]
    try:
        import pip  # noqa: F401
    except ImportError:
        raise PackagesUnavailable(f"{sys.executable} has no pip, nor is uv on PATH; the fix: {sys.executable} -m ensurepip") from None
    guest = find_guest()
    if guest is None:
        raise PackagesUnavailable("the files of Carrel beside its program are not installed; CARREL_GUEST can name them")
    return [sys.executable, os.path.join(guest, "carrel_pip.py"), "install", "--disable-pip-version-check", "--no-input"]


def _needed(requirements: Sequence[str], constraints: str) -> tuple[List[str], List[str]]:
    """What must be installed beside what this interpreter has: NAME==VERSION, and the links where that is known. Nothing is installed twice: what
    needs torch must not bring another one along."""
    command = [*_installer(), "--dry-run", "--only-binary", ":all:", "--constraint", constraints]
    with_uv = os.path.basename(command[0]) == "uv"
    done = subprocess.run([*command, *([] if with_uv else ["--quiet", "--report", "-"]), *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        hint = "; only wheels are installed, and there may be none for it" if "No matching distribution" in done.stderr else ""
        raise PackagesUnavailable(f"cannot install {', '.join(requirements)}: {done.stderr.strip()[-2000:]}{hint}")
    if with_uv:
        return re.findall(r"^ \+ (\S+==\S+)", done.stderr, re.M), []
    entries = json.loads(done.stdout)["install"]
    return [f"{e['metadata']['name']}=={e['metadata']['version']}" for e in entries], [e["download_info"]["url"] for e in entries]


def _size(links: Sequence[str]) -> int | None:
    """How much would be fetched, as far as that can be known beforehand."""
    total = 0
    for link in links:
        try:
            with urllib.request.urlopen(urllib.request.Request(link, method="HEAD"), timeout=10) as answer:
                total += int(answer.headers.get("Content-Length") or 0)
        except (OSError, ValueError):
            return None
    return total


def _install(requirements: Sequence[str], target: str) -> None:
    with tempfile.TemporaryDirectory(prefix="carrel-packages-") as folder:
        constraints = os.path.join(folder, "constraints.txt")
        with open(constraints, "w", encoding="utf-8") as file:
            file.write(_constraints())
        needed, links = _needed(requirements, constraints)
        size = _size(links)
        told = f", {human(size)} to fetch" if size and size >= _LARGE else ""
        print(f"carrel: installing {', '.join(needed)} into {target}{told}", file=sys.stderr, flush=True)
        free = shutil.disk_usage(os.path.dirname(target)).free
        if size and size * 3 > free:
            raise PackagesUnavailable(f"{', '.join(requirements)}: {human(size)} of wheels, and {os.path.dirname(target)} has {human(free)} free")
        made = tempfile.mkdtemp(prefix="new-", dir=os.path.dirname(target))
        done = subprocess.run([*_installer(), "--only-binary", ":all:", "--no-deps", "--target", made, *needed], stdout=sys.stderr,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            shutil.rmtree(made, ignore_errors=True)
            raise PackagesUnavailable(f"cannot install {', '.join(needed)}: {done.stderr.strip()[-2000:]}")
        os.chmod(made, 0o755)
        os.rename(made, target)


def provide_packages(requirements: Sequence[str]) -> str | None:
    """The directory with what this interpreter lacks of them; None if it has them all."""
    lacking = sorted({r.strip() for r in requirements if not is_there(r)})
    if not lacking:
        return None
    base = cache_dir("packages")
    key = json.dumps([lacking, sys.version_info[:2], sys.implementation.cache_tag, os.uname().machine, sys.prefix])
    target = os.path.join(base, hashlib.sha256(key.encode()).hexdigest()[:24])
    with locked(target + ".lock"):
        if not os.path.isdir(target):
            _install(lacking, target)
    return target
