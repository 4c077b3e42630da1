"""The configuration of a sandbox. An explicit field takes effect or is refused by name; a default requests nothing."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..named import keys_body
from .server import holds, server_places

NOTEBOOK_PACKAGES = ("jupyter_server", "ipykernel", "jupyter", "jupyter_client", "nbformat", "tornado", "fastmcp", "Pillow", "requests", "torch",
                     "transformers", "accelerate", "pandas", "matplotlib", "numpy", "seaborn", "datasets")


class ExecutionMode(Enum):
    """What a Sandbox is for: a shell, or cells of a notebook."""

    CLI = "cli"
    NOTEBOOK = "notebook"


class ConfigError(ValueError):
    """A field requests something that is missing; the message names it and the remedy."""


@dataclass
class ModelConfig:
    """A model by its name on the hub. hidden: nothing that the agent can see has its name."""

    name: str
    var_name: str = "model"
    hidden: bool = False
    is_peft: bool = False
    base_model: Optional[str] = None
    load_as_peft: bool = False

    def __post_init__(self) -> None:
        check_model_name(self.name)
        if self.is_peft and not self.base_model:
            raise ConfigError("PEFT models require base_model: the model that the adapter is for")
        if self.base_model is not None:
            check_model_name(self.base_model)
        if not self.var_name.isidentifier():
            raise ConfigError(f"ModelConfig(var_name={self.var_name!r}): a variable's name")

    @property
    def tokenizer_var(self) -> str:
        """The variable that a notebook session gives the model's tokenizer."""
        return "tokenizer" if self.var_name == "model" else f"{self.var_name}_tokenizer"


def check_model_name(name: str) -> None:
    parts = name.split("/") if isinstance(name, str) else []
    legal = all(p and p[0] not in ".-" and all(c.isalnum() or c in "._-" for c in p) and ".." not in p for p in parts)
    if not legal or len(parts) not in (1, 2) or len(name) > 200:
        raise ConfigError(f"{name!r} is not the name of a model; one looks like google/gemma-2-9b")


@dataclass
class RepoConfig:
    """A repository; refused by name, since sandboxes have none."""

    url: str
    dockerfile: Optional[str] = None
    install: Any = False


@dataclass
class ModelHandle:
    """An available model: its place in the sandbox."""

    name: str
    volume_path: str
    var_name: str = "model"
    hidden: bool = False
    is_peft: bool = False
    base_model: Optional[str] = None
    base_model_path: Optional[str] = None
    load_as_peft: bool = False


@dataclass
class RepoHandle:
    """A repository in a sandbox; there are none."""

    url: str
    local_path: str
    dockerfile: Optional[str] = None
    container_name: Optional[str] = None
    container_running: bool = False
    install: Any = False


@dataclass
class SandboxConfig:
    """What a sandbox has: models, packages, secrets, files, limits. A field holds or is refused (ConfigError)."""

    python_packages: List[str] = field(default_factory=list)
    system_packages: List[str] = field(default_factory=list)
    python_version: str = "3.11"
    gpu: Optional[str] = None
    gpu_count: int = 1
    docker_in_docker: bool = False
    execution_mode: Optional[ExecutionMode] = ExecutionMode.CLI
    debug: bool = False
    timeout: int = 3600
    secrets: List[str] = field(default_factory=list)
    env: Dict[str, str] = field(default_factory=dict)
    encrypted_ports: List[int] = field(default_factory=list)
    jupyter_port: int = 8888
    rpc_port: int = 8080
    debug_port: int = 8080
    rpc_timeout: int = 600
    wait_timeout: int = 300
    notebook_packages: List[str] = field(default_factory=lambda: list(NOTEBOOK_PACKAGES))
    models: List[ModelConfig] = field(default_factory=list)
    repos: List[RepoConfig] = field(default_factory=list)
    local_files: List[Tuple[str, str]] = field(default_factory=list)
    local_dirs: List[Tuple[str, str]] = field(default_factory=list)
    # Options that the fields above lack.
    gpu_optional: bool = False
    memory: Any = None              # bytes or "8G"; None: as much as the host can give
    cpus: Optional[float] = None    # None: all
    # The network: rules like "api.example.com" and "*.example.com:443"; net="public": every public address. None: no network.
    net: Any = None
    allow: List[str] = field(default_factory=list)
    deny: List[str] = field(default_factory=list)
    # Keys that the sandbox uses and never sees: "OPENAI_API_KEY@api.openai.com", "KEY@host:x-api-key: {}". The value comes from where those of
    # secrets do; in the sandbox the variable is a placeholder.
    keys: List[str] = field(default_factory=list)
    # The place of models, before CARREL_MODELS: "volume:models", a volume of the running server. The sandbox is on that server, then.
    model_cache: Optional[str] = None


# Fields that ask for something which is not here, unless they have their default; and the way on.
_ABSENT: Mapping[str, str] = {
    "docker_in_docker": "there is no Docker in a box; run what it would run in a box of its own",
    "debug": "there is no code-server in a box; look into it with 'carrel exec -it'",
    "encrypted_ports": "nothing is published; carrel.Box.ports forwards a port of a box to this machine",
    "repos": "clone the repository yourself and name its directory in local_dirs",
    "jupyter_port": "a sandbox listens on no port of this machine; leave it out",
    "rpc_port": "functions are called through the server, not through a port; leave it out",
    "debug_port": "a sandbox listens on no port of this machine; leave it out",
}


def check_config(config: SandboxConfig) -> None:
    """ConfigError for the first field that requests something missing."""
    if not isinstance(config, SandboxConfig):
        raise TypeError(f"a sandbox is made from a SandboxConfig, not from {type(config).__name__}")
    plain = SandboxConfig()
    for name, way in _ABSENT.items():
        if getattr(config, name) != getattr(plain, name):
            raise ConfigError(f"SandboxConfig({name}={getattr(config, name)!r}) cannot be had: {way}")
    if not isinstance(config.python_version, str) or not re.fullmatch(r"3\.\d+(\.\d+)?", config.python_version):
        raise ConfigError(f"SandboxConfig(python_version={config.python_version!r}): a version of Python 3, like \"3.12\"")
    _check_kinds(config)
    for name in ("timeout", "rpc_timeout", "wait_timeout", "gpu_count"):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise ConfigError(f"SandboxConfig({name}={value!r}): a number above 0")
    _check_system_packages(config.system_packages)
    _check_variables(config)
    _check_keys(config)
    _check_models(config.models)
    _check_cache(config)


def is_other_python(config: SandboxConfig) -> bool:
    """Whether it asks for another interpreter than the program's. The default asks for none."""
    return config.python_version not in (SandboxConfig().python_version, f"{sys.version_info.major}.{sys.version_info.minor}")


def _check_kinds(config: SandboxConfig) -> None:
    """A text would do for a list: of its letters."""
    for name in ("python_packages", "system_packages", "secrets", "notebook_packages", "models", "local_files", "local_dirs", "allow", "deny", "keys"):
        value = getattr(config, name)
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"SandboxConfig({name}={value!r}): a list")
        if name.endswith("packages") and not all(isinstance(item, str) for item in value):
            raise ConfigError(f"SandboxConfig({name}={value!r}): a list of names")
    if not isinstance(config.env, Mapping):
        raise ConfigError(f"SandboxConfig(env={config.env!r}): a mapping of names to texts")
    if config.execution_mode is not None and not isinstance(config.execution_mode, ExecutionMode):
        raise ConfigError(f"SandboxConfig(execution_mode={config.execution_mode!r}): ExecutionMode.CLI or ExecutionMode.NOTEBOOK")


def warn_user(words: str) -> None:
    """A warning at the line of the program that called, however deep in here it is found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("carrel."):
        level, frame = level + 1, frame.f_back
    warnings.warn(words, RuntimeWarning, stacklevel=level)


def _check_system_packages(names: List[str]) -> None:
    """A box shows the programs of this machine: everything installed here is available."""
    for name in names:
        try:
            asked = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status}", name], capture_output=True, text=True, check=False)
            installed = asked.stdout.startswith("installed")
        except OSError:
            installed = False
        if not installed:
            raise ConfigError(f"SandboxConfig(system_packages=[{name!r}]) cannot be had: a sandbox has the programs of this machine, and {name} "
                              f"is not installed here; the fix: sudo apt-get install {name}")


def _check_variables(config: SandboxConfig) -> None:
    for name in [*config.secrets, *config.env]:
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError(f"{name!r} is not the name of an environment variable")
    for name, value in config.env.items():
        if not isinstance(value, str):
            raise ConfigError(f"SandboxConfig(env={{{name!r}: ...}}): a value is a text, not {type(value).__name__}")


def key_names(config: SandboxConfig) -> List[str]:
    return list(dict.fromkeys(str(key["name"]) for key in keys_body(config.keys) or ()))


def _check_keys(config: SandboxConfig) -> None:
    for key in config.keys:
        if not isinstance(key, str) or "=" in key.partition("@")[0]:
            raise ConfigError(f"SandboxConfig(keys=[{key!r}]): a key is NAME@HOST or NAME@HOST:HEADER, as in 'OPENAI_API_KEY@api.openai.com'")
    try:
        names = key_names(config)
    except ValueError as e:
        raise ConfigError(f"SandboxConfig(keys=...): {e}") from None
    for name in names:
        if name in config.env or name in config.secrets:
            raise ConfigError(f"SandboxConfig(keys=...): the sandbox would have the value of {name} itself by {'env' if name in config.env else 'secrets'}; "
                              "leave that out")


def _check_models(models: List[ModelConfig]) -> None:
    taken: Dict[str, str] = {}
    for model in models:
        if not isinstance(model, ModelConfig):
            raise ConfigError(f"SandboxConfig(models=[...]) has {model!r}; write ModelConfig(name=...)")
        if taken.setdefault(model.var_name, model.name) != model.name:
            raise ConfigError(f"two models are called {model.var_name!r}: {taken[model.var_name]} and {model.name}; give one of them another var_name")


def _check_cache(config: SandboxConfig) -> None:
    cache = config.model_cache
    if cache is not None and (not isinstance(cache, str) or not re.fullmatch(r"volume:([^/\s.][^/\s]*/)?[a-z0-9-]+", cache)):
        raise ConfigError(f"SandboxConfig(model_cache={cache!r}): 'volume:NAME', or 'volume:OWNER/NAME' for one that is shared with you")


def files_as_mounts(config: SandboxConfig) -> List[Dict[str, Any]]:
    """local_files and local_dirs: read-only in the sandbox."""
    mounts = []
    for name, is_kind in (("local_files", os.path.isfile), ("local_dirs", os.path.isdir)):
        for pair in getattr(config, name):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ConfigError(f"SandboxConfig({name}=[{pair!r}]): a pair, of a path on this machine and a path in the sandbox")
            source, target = pair
            if not is_kind(source):
                raise ConfigError(f"SandboxConfig({name}=[({str(source)!r}, ...)]): there is no such {'file' if name == 'local_files' else 'directory'}")
            if any(holds(str(source), place) for place in server_places()):
                raise ConfigError(f"SandboxConfig({name}=[({str(source)!r}, ...)]): sockets of Carrel's own server are in there, which would let the "
                                  "sandbox command it; name the directories that are needed")
            target = str(target) if str(target).startswith("/") else f"/workspace/{target}"
            mounts.append({"source": os.path.abspath(source), "target": target, "writable": False})
    return mounts
