"""A sandbox: a box with models, packages and files, which lives as long as it is not terminated and the program runs."""
from __future__ import annotations

import contextlib
import os
import shutil
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, TypeVar

from ..client import Box, Carrel
from ..errors import CarrelError, NotFound, Unavailable
from ..named import LentSecrets, keys_body
from .config import (ConfigError, ExecutionMode, ModelHandle, RepoHandle, SandboxConfig, check_config, files_as_mounts, is_other_python,
                     key_names)
from .gpu import settle_gpu
from .model_volume import ModelVolume, volume_name
from .models import Models, provide_models
from .packages import packages_to_install
from .secrets import environment, find_secrets
from .server import AnyServer, SharedServer, connect, make_room, private_folder, scoped_server

LAYER_PYTHON = "/opt/venv/bin/python"       # of a box with packages
_PIDS = 4096        # a numeric library has threads for every processor
S = TypeVar("S", bound="Sandbox")


class CommandFailed(RuntimeError):
    """A command in a sandbox ended with something else than success. `result` has everything."""

    def __init__(self, result: Any):
        said = (result.stderr or result.stdout or result.error or "").strip()
        super().__init__(f"Command failed: {said or result.outcome}")
        self.result = result


class Sandbox:
    """As a context manager it is started at the beginning and terminated at the end."""

    _template = "python"        # its interpreter can be a kernel

    def __init__(self, config: SandboxConfig):
        check_config(config)
        self.config = config
        self._mode = config.execution_mode
        self._server: Optional[AnyServer] = None
        self._volume: Optional[str] = None      # that has the models; then the sandbox is on the volume's server
        self._carrel: Optional[Carrel] = None
        self._box: Optional[Box] = None
        self._models = Models()
        self._has_layer = False
        self._folders: List[str] = []
        self._secrets: Dict[str, str] = {}
        self._lent: Optional[LentSecrets] = None
        self._lent_keys: Optional[LentSecrets] = None
        self._owner = os.getpid()
        self.name = "sandbox"

    # --- life ---

    def start(self: S, name: str = "sandbox", snapshot_image: Any = None) -> S:
        """Makes it: models and packages are provided first, which may take a while. Returns itself."""
        if snapshot_image is not None:
            raise ConfigError("start(snapshot_image=...) cannot be had: there are no snapshots of sandboxes")
        if self._box is not None:
            return self
        self.name = name
        self._secrets = find_secrets(self.config.secrets)
        known = {**environment(), **self._secrets}
        self._volume = self._volume_of(known)
        try:
            gpus = self._gpus()
            volume = ModelVolume(self._volume, self._connect()) if self._volume is not None else None
            self._models = provide_models(self.config.models, known, volume)
            carrel = self._connect()
            self._lend(carrel)
            self._lent_keys = LentSecrets(carrel, find_secrets(key_names(self.config)))
            self._box = carrel.create(**self._box_options(), devices=gpus).leash()
            self._started()
        except BaseException:
            self._end()
            raise
        return self

    def _volume_of(self, known: Mapping[str, str]) -> Optional[str]:
        return volume_name(self.config.model_cache or known.get("CARREL_MODELS")) if self.config.models else None

    def _keys(self) -> List[Dict[str, str]]:
        lent = {use["env"]: use["name"] for use in self._lent_keys.uses} if self._lent_keys else {}
        return [{**key, "secret": lent[key["name"]]} for key in keys_body(self.config.keys) or () if key["name"] in lent]

    def _connect(self) -> Carrel:
        if self._carrel is None and self._volume is not None:
            self._server = SharedServer(f"models are to be in the volume {self._volume}")
            self._carrel = connect(self._server)
        elif self._carrel is None:
            self._server = scoped_server(kernels=self._mode is not None and not self._packages())
            self._carrel = connect(self._server)
        return self._carrel

    def _gpus(self) -> List[str]:
        """Called before anything is downloaded for an impossible sandbox."""
        return settle_gpu(self.config, self._connect().info()["devices"]) if self.config.gpu is not None else []

    def _packages(self) -> Dict[str, Any]:
        """The environment of the box, as its options; empty: the program's own interpreter has everything."""
        wanted = list(self.config.python_packages)
        if self._mode is ExecutionMode.NOTEBOOK and self.config.notebook_packages != SandboxConfig().notebook_packages:
            wanted += self.config.notebook_packages
        if is_other_python(self.config):
            return {"packages": wanted or None, "python": self.config.python_version}
        lacking = packages_to_install(wanted) if self._volume is None else wanted       # another server's interpreter is not known here
        return {"packages": lacking} if lacking else {}

    def _box_options(self) -> Dict[str, Any]:
        mounts = files_as_mounts(self.config) + self._models.mounts
        packages = self._packages()
        self._has_layer = bool(packages)
        pythons = [str(t["python"]) for t in self._connect().info()["templates"] if t.get("python")] if self._volume is not None else []
        for target in ("/root", "/workspace"):
            if not any(m["target"] == target for m in mounts):
                folder = self._folder(target.strip("/"))
                make_room(folder, target, pythons)
                mounts.insert(0, {"source": folder, "target": target, "writable": True})
        options: Dict[str, Any] = {"mounts": mounts, "env": {**self.config.env, "PYTHONPATH": self._python_path()}, "template": self._box_template,
                                   "secrets": self._secret_uses, "volumes": self._models.volumes or None, **packages}
        if self.config.keys:
            options["keys"] = self._keys()
        if self.config.timeout != SandboxConfig().timeout:
            options["ttl"] = self.config.timeout
        # Limits need root or delegated cgroups; a requested limit must be enforced, else the box is refused.
        # The running server has defaults of its own.
        is_unbounded = os.geteuid() == 0 and self._volume is None
        if self.config.memory is not None or is_unbounded:
            options["memory"] = self.config.memory or "max"
        if self.config.cpus is not None or is_unbounded:
            options["cpus"] = self.config.cpus or os.cpu_count() or 1
        if is_unbounded:
            options["pids"] = _PIDS
        options.update(net=self.config.net, allow=self.config.allow or None, deny=self.config.deny or None)
        return options

    @property
    def _box_template(self) -> str:
        """The running server has no template of this program."""
        return self._template if self._volume is None else "python"

    def _lend(self, carrel: Carrel) -> None:
        self._lent = LentSecrets(carrel, self._secrets)

    @property
    def _command_env(self) -> Optional[Dict[str, str]]:
        """What a command gets besides the box's own."""
        return None

    @property
    def _secret_uses(self) -> List[Dict[str, str]]:
        """Every process of the sandbox gets them; the server's records have only the names of its variables."""
        return list(self._lent.uses) if self._lent else []

    def _python_path(self) -> str:
        own = self.config.env.get("PYTHONPATH")
        return ":".join(["/workspace", "/root", *([own] if own else [])])

    def _folder(self, what: str) -> str:
        assert self._server is not None
        folder = private_folder(self._server, what)
        self._folders.append(folder)
        return folder

    def _started(self) -> None:
        pass

    def terminate(self, save_snapshot: bool = False, snapshot_description: str = "") -> None:
        """Ends it and everything in it. Twice is harmless."""
        self._end()
        if save_snapshot:
            raise ConfigError("terminate(save_snapshot=True) cannot be had: there are no snapshots of sandboxes; it has ended without one")

    def _end(self) -> None:
        if os.getpid() != self._owner:
            return      # a forked child: the sandbox is its parent's
        box, self._box = self._box, None
        if box is not None:
            with contextlib.suppress(NotFound, Unavailable):
                box.delete()
        for lent in (self._lent, self._lent_keys):
            if lent is not None:
                lent.drop()
        self._lent = self._lent_keys = None
        self._models.close()
        while self._folders:
            shutil.rmtree(self._folders.pop(), ignore_errors=True)
        self._secrets = {}

    def __enter__(self: S) -> S:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._end()
        except CarrelError:
            if exc is None:
                raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {'started' if self._box else 'not started'}>"

    # --- use ---

    @property
    def box(self) -> Box:
        """Its box, with all that a Box can do."""
        if self._box is None:
            raise RuntimeError("Sandbox not started. Call start() first.")
        return self._box

    def exec(self, cmd: str, timeout: int | None = None) -> str:
        """Runs a shell command and returns its standard output. CommandFailed, a RuntimeError, if it does not end well."""
        result = self.box.exec(["/bin/bash", "-c", cmd], timeout=timeout, env=self._command_env)
        if not result.ok:
            raise CommandFailed(result)
        return result.stdout

    def exec_python(self, code: str, timeout: int | None = None) -> str:
        """Runs a program of Python; what it prints. CommandFailed if it does not end well."""
        templates = self._connect().info()["templates"]
        python = LAYER_PYTHON if self._has_layer else next(t["python"] for t in templates if t["name"] == self._box_template)
        result = self.box.exec([python, "-c", code], timeout=timeout, env=self._command_env)
        if not result.ok:
            raise CommandFailed(result)
        return result.stdout

    def write_file(self, path: str, content: str) -> None:
        """Writes a text; missing directories are made."""
        folder = os.path.dirname(path)
        if folder and folder not in ("/root", "/workspace", "/tmp", "/home/box"):
            self.ensure_dir(folder)
        self.box.files.write(path, content)

    def read_file(self, path: str) -> str:
        """A file as text."""
        return self.box.files.read_text(path)

    def ensure_dir(self, path: str) -> None:
        """Makes a directory, and those above it."""
        self.box.files.mkdir(path, parents=True)

    def start_container(self, repo_handle: Any) -> None:
        """Refused: there is no Docker in a box."""
        raise ConfigError("start_container() cannot be had: there is no Docker in a box")

    def snapshot(self, description: str = "") -> None:
        """Refused: there are no snapshots of sandboxes."""
        raise ConfigError("snapshot() cannot be had: there are no snapshots of sandboxes")

    @classmethod
    def from_snapshot(cls, snapshot_image: Any, config: SandboxConfig, name: str = "sandbox") -> "Sandbox":
        """Refused: there are no snapshots of sandboxes."""
        raise ConfigError("from_snapshot() cannot be had: there are no snapshots of sandboxes")

    @classmethod
    def from_id(cls, sandbox_id: str, config: SandboxConfig | None = None) -> "Sandbox":
        """Refused: a sandbox ends with the program that made it."""
        raise ConfigError("from_id() cannot be had: a sandbox belongs to the program that made it, and ends with it")

    @property
    def sandbox_id(self) -> str | None:
        """The id of its box; None if it was not started."""
        return self._box.id if self._box else None

    @property
    def jupyter_url(self) -> None:
        """There is no Jupyter server in a sandbox; sessions talk to its kernel through Carrel."""
        return None

    @property
    def code_server_url(self) -> None:
        """None: there is no editor in a sandbox."""
        return None

    @property
    def model_handles(self) -> List[ModelHandle]:
        """Its models: names and where they are."""
        return list(self._models.handles)

    @property
    def repo_handles(self) -> List[RepoHandle]:
        """Empty: sandboxes have no repositories."""
        return []

    @property
    def secret_values(self) -> Mapping[str, str]:
        """For processes of the sandbox; not for records."""
        return dict(self._secrets)
