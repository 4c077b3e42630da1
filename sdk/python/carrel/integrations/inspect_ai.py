"""A sandbox for Inspect: `sandbox="carrel"` in a task is enough; `sandbox=("carrel", "carrel.yaml")` or
SandboxEnvironmentSpec("carrel", CarrelSandboxConfig(memory="2G")) set the options of the boxes."""
from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shlex
from typing import Any, Dict, List, Literal, Optional, Union, overload

from ..asyncclient import AsyncBox
from ..client import ExecResult as BoxResult
from ..errors import CarrelError, InvalidRequest, NotFound, Unsupported
from ..local import find_binary
from .common import close_async_box, is_cut, make_async_box, needs, why

with needs("inspect_ai", "inspect-ai", "0.3.200"):
    import sniffio
    import yaml
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.util import (ExecResult, OutputLimitExceededError, SandboxConnection, SandboxEnvironment,
                                 SandboxEnvironmentConfigType, SandboxEnvironmentLimits, SandboxUnavailableError,
                                 SandboxUserUnsupportedError, sandboxenv)
    from pydantic import BaseModel, ConfigDict, ValidationError

_SLACK = 64 << 10       # so that a full stream differs from one that is too long


class CarrelSandboxConfig(BaseModel):
    """The options of Box."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: Union[str, int, None] = None
    cpus: Optional[float] = None
    pids: Optional[int] = None
    disk: Union[str, int, None] = None
    nofile: Optional[int] = None
    profile: Optional[str] = None
    root: Optional[str] = None
    writable_root: Optional[bool] = None
    store: Optional[str] = None
    template: Optional[str] = None
    packages: Union[List[str], str, None] = None
    python: Optional[str] = None
    env: Optional[Dict[str, str]] = None
    mounts: Optional[List[Union[str, Dict[str, Any]]]] = None
    devices: Optional[List[str]] = None
    labels: Optional[Dict[str, str]] = None
    ttl: Union[str, float, None] = None
    user: Union[str, int, None] = None
    net: Union[str, Dict[str, Any], None] = None
    allow: Optional[List[str]] = None
    deny: Optional[List[str]] = None


def _settings(config: Any) -> CarrelSandboxConfig:
    """From a task's value: nothing, the model, a mapping, or the name of a YAML or JSON file."""
    if config is None or isinstance(config, CarrelSandboxConfig):
        return config or CarrelSandboxConfig()
    name = "sandbox config"
    try:
        if isinstance(config, str):
            name = os.path.basename(config)
            if "compose" in name or name.startswith("Dockerfile"):
                raise PrerequisiteError(
                    f"The sandbox 'carrel' has no images and cannot use {name}; give it a carrel.yaml."
                )
            text = pathlib.Path(config).read_text()
            config = yaml.safe_load(text)       # which JSON is, too
        elif isinstance(config, BaseModel):
            config = config.model_dump(exclude_none=True)
        return CarrelSandboxConfig.model_validate(config or {})
    except ValidationError as e:
        first = e.errors()[0]
        what = "not an option of a box" if first["type"] == "extra_forbidden" else first["msg"]
        raise PrerequisiteError(f"{name}: {'.'.join(map(str, first['loc']))}: {what}") from None
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise PrerequisiteError(f"{name} cannot be read: {' '.join(str(e).split())}") from None


def _as_os_error(error: CarrelError, file: str) -> Exception:
    """Inspect expects Python's own."""
    if isinstance(error, OSError) and error.errno:
        return OSError(error.errno, os.strerror(error.errno), file)
    return SandboxUnavailableError(str(error)) if isinstance(error, NotFound) and error.code == "not_found" else error


@sandboxenv(name="carrel")
class CarrelSandboxEnvironment(SandboxEnvironment):
    """One box for each sample. Relative paths are below its home directory."""

    def __init__(self, box: AsyncBox):
        super().__init__()
        self.box = box

    # ---- life ----

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        if sniffio.current_async_library() != "asyncio":
            raise PrerequisiteError(
                "The sandbox 'carrel' works with asyncio, not with trio; unset INSPECT_ASYNC_BACKEND.")
        _settings(config)

    @classmethod
    async def sample_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None,
                          metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        options = _settings(config).model_dump(exclude_none=True)
        try:
            return {"default": cls(await cls._make(options))}
        except (CarrelError, ValueError, OSError) as e:
            raise PrerequisiteError(f"No box for a sample of {task_name}: {e}") from e

    @staticmethod
    async def _make(options: Dict[str, Any]) -> AsyncBox:
        """With a root that can be written, unless the options say otherwise: the tools that Inspect puts into a sandbox
        want one. An ordinary user's server does not have it."""
        if "writable_root" not in options and "root" not in options:
            with contextlib.suppress(Unsupported):
                return await make_async_box(writable_root=True, **options)
        return await make_async_box(**options)

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None,
                             environments: dict[str, SandboxEnvironment], interrupted: bool) -> None:
        for environment in environments.values():
            await close_async_box(environment.as_type(cls).box)

    @classmethod
    def config_files(cls) -> list[str]:
        return ["carrel.yaml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return _settings(config)

    def default_polling_interval(self) -> float:
        return 0.2

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        url = self.box._transport.url
        words = [
            f"CARREL_URL={url}",
            find_binary(), "exec", "--tty", *(["--user", await self._user(user)] if user else []), self.box.id, "--",
            "/bin/bash"
        ]
        return SandboxConnection(type="carrel", command=shlex.join(words), container=self.box.id)

    # ---- commands ----

    async def _user(self, name: str) -> str:
        """The box's ids of a user."""
        if name == "root":
            return "0:0"
        if name.isdecimal():
            return name
        found = await self.box.exec(["/usr/bin/id", "-u", "--", name])
        groups = await self.box.exec(["/usr/bin/id", "-g", "--", name])
        if not found.ok or not groups.ok:
            raise SandboxUserUnsupportedError(f"the box has no user {name!r}")
        return f"{found.stdout.strip()}:{groups.stdout.strip()}"

    async def exec(self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
                   env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
                   timeout_retry: bool = True, concurrency: bool = True) -> ExecResult[str]:
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        options = {"cwd": cwd, "env": env, "timeout": timeout, "output_limit": 2 * limit + _SLACK}
        try:
            if user is not None:
                options["user"] = await self._user(user)
            result = await self.box.exec(cmd, stdin=input, **options)
        except InvalidRequest as e:
            if user is not None and "user" in str(e):
                raise SandboxUserUnsupportedError(str(e)) from None
            raise
        except CarrelError as e:
            raise SandboxUnavailableError(str(e)) from e
        return self._result(result, limit)

    @staticmethod
    def _result(result: BoxResult, limit: int) -> ExecResult[str]:
        if result.outcome == "timeout":
            raise TimeoutError(f"{result.command}: {result.reason}")
        if result.error and result.exit_code == 126:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), (result.raw.get("argv") or ["?"])[0])
        if is_cut(result) or max(len(result.stdout_bytes), len(result.stderr_bytes)) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout[:limit]
                                           or result.stderr[:limit])
        reason = why(result)
        stderr = result.stderr + (f"\n{reason}\n" if reason else "")
        return ExecResult(success=result.exit_code == 0, returncode=result.exit_code, stdout=result.stdout,
                          stderr=stderr)

    # ---- files ----

    async def write_file(self, file: str, contents: str | bytes) -> None:
        try:
            await self.box.files.write(file, contents)
        except CarrelError as e:
            raise _as_os_error(e, file) from None

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        try:
            info = await self.box.files.stat(file)
            if not info.is_dir and info.size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            data = await self.box.files.read(file)
        except CarrelError as e:
            raise _as_os_error(e, file) from None
        return data.decode("utf-8") if text else data
