"""A scoped sandbox: functions of an interface file, which others may call, and nothing else."""
from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import tokenize
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Union

from ..client import Carrel
from ..errors import CarrelError, Conflict, InvalidRequest, from_response
from ..local import find_binary, own_interpreter
from ..transport import segment
from .config import SandboxConfig
from .sandbox import Sandbox
from .secrets import environment
from .server import PROGRAM, check_program
from .siblings import archive_of, sibling_files
from .stub import make_prompt, make_stub, stub_functions

if TYPE_CHECKING:
    from ..workspace import Library, Skill, Workspace

ExposeMode = Literal["mcp", "library", "prompt", "skill"]
_MODES = ("library", "mcp", "prompt", "skill")
Raw = Dict[str, Any]


class InterfaceError(RuntimeError):
    """The interface file cannot be served: it raised, or exposes nothing. The message names the line."""


@dataclass
class Service:
    """Served functions: their description, and the holders of rights to call them."""

    name: str                   # the server's name for it
    sandbox: "ScopedSandbox" = field(repr=False)
    functions: List[Raw]
    holder: str                 # a file with socket and token, for this machine

    def grant(self, box: str) -> None:
        """Lets the code in a box call the functions."""
        self.sandbox.call("POST", "/v1/grants", {"service": self.name, "functions": [f["name"] for f in self.functions], "box": box})


class ScopedSandbox(Sandbox):
    """Holds models and data; an agent has the functions of the interface files that serve() loads, and nothing else."""

    _template = PROGRAM         # the agent does not run here

    def __init__(self, config: SandboxConfig):
        super().__init__(config)
        self._mode = None
        self.services: List[Service] = []
        self._grants = ""

    def start(self, workspace: "Union[Workspace, str, None]" = None, name: str = "scoped",  # type: ignore[override]
              snapshot_image: Any = None) -> "ScopedSandbox":
        """Makes it. The libraries of a workspace can be imported by interface files, not by the agent."""
        if isinstance(workspace, str):      # start(name), as of a Sandbox
            name, workspace = workspace, None
        if self._volume_of(environment()) is None:
            check_program()
        super().start(name, snapshot_image)
        for library in workspace.libraries if workspace is not None else ():
            for path, text in library.files.items():
                self.write_file(f"/workspace/{path}", text)
        return self

    def _lend(self, carrel: Carrel) -> None:
        """Its interfaces get the values themselves, which their server keeps in memory alone; so do its commands."""

    @property
    def _command_env(self) -> Optional[Dict[str, str]]:
        return self._secrets or None

    def _started(self) -> None:
        self._grants = self._folder("grants")

    def _end(self) -> None:
        self.services = []
        super()._end()

    def call(self, method: str, path: str, body: Raw | None = None) -> Any:
        """A request to the sandbox's server; what it answered."""
        return self.box._transport.call(method, path, json_body=body)

    def serve(self, code_file: str | os.PathLike[str], expose_as: ExposeMode = "mcp", name: str = "interface") -> "Union[Library, Raw, str, Skill]":
        """Loads an interface file and serves its exposed functions.

        library: a Library, for a session's workspace; skill: a Skill for it, with such a library; mcp: a server for mcp_config; prompt: a text that
        describes the functions, and gives no right to call them."""
        from ..workspace.docs import check_module_name, check_plain_name
        box = self.box
        if expose_as not in _MODES:
            raise ValueError(f"serve(expose_as={expose_as!r}): one of {', '.join(_MODES)}")
        if expose_as in ("library", "skill"):
            check_module_name(name.replace("-", "_") if expose_as == "skill" and isinstance(name, str) else name)
        if expose_as != "library":
            check_plain_name(name, "a service")
        if any(s.name == name for s in self.services):
            raise ValueError(f"serve(name={name!r}): this sandbox serves another interface under that name")
        path = os.fspath(code_file)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"serve({path!r}): there is no such file")
        code = _read_source(path)
        service = self._load(box, path, code, name)
        try:
            return self._exposed(service, expose_as, name)
        except BaseException:
            with contextlib.suppress(CarrelError):
                self.call("DELETE", f"/v1/services/{segment(service.name)}")
            self.services.remove(service)
            raise

    def _load(self, box: Any, path: str, code: str, name: str) -> Service:
        place = f"/root/.interfaces/{name}"
        siblings = sibling_files(path)
        if siblings:
            self.ensure_dir(place)
            box.files.put_archive(place, archive_of(siblings))
        body: Raw = {"name": name, "box": box.id, "code": code, "filename": os.path.basename(path),
                     "path": [place, "/root", "/workspace"], "models": self._models.paths,
                     "load_timeout": self.config.wait_timeout}
        if not self._has_layer and self._volume is None:
            body["python"] = own_interpreter()["python"]
        if self.config.env:
            body["env"] = {k: v for k, v in self.config.env.items() if k != "PYTHONPATH"}
            body["path"] += [p for p in self.config.env.get("PYTHONPATH", "").split(":") if p]
        if self._secrets:
            body["secrets"] = self._secrets
        try:
            try:
                raw = self._create(name, body)
            except Conflict:        # another sandbox of this program serves under that name
                body["name"] = f"{name}-{secrets.token_hex(3)}"
                raw = self._create(name, body)
        except InvalidRequest as e:
            raise _interface_error(path, code, e) from None
        functions = stub_functions(raw)
        service = Service(str(raw.get("name") or body["name"]), self, functions, os.path.join(self._grants, f"{name}.json"))
        granted = self.call("POST", "/v1/grants", {"service": service.name, "functions": [f["name"] for f in functions]})
        self._hold(service, str(granted["token"]))
        self.services.append(service)
        return service

    def _create(self, name: str, body: Raw) -> Raw:
        """Shows the interface's prints while it loads."""
        for event in self.box._transport.lines("POST", "/v1/services", json_body=body):
            kind = event.get("type")
            if kind in ("stdout", "stderr"):
                for line in str(event.get("text", "")).splitlines():
                    print(f"[{name}] {line}", file=sys.stderr, flush=True)
            elif kind == "error":
                raise from_response(int(event.get("status") or 500), event)
            else:
                return event
        raise CarrelError("the server broke off while the interface was loaded")

    def _hold(self, service: Service, token: str) -> None:
        assert self._server is not None
        descriptor = os.open(service.holder, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"socket": self._server.socket, "token": token, "service": service.name}, file)

    def _exposed(self, service: Service, expose_as: ExposeMode, name: str) -> "Union[Library, Raw, str, Skill]":
        from ..workspace import Library, Skill
        functions = list(service.functions)
        if expose_as == "mcp":
            return {name: _mcp_entry(service.holder)}
        if expose_as == "prompt":
            return make_prompt(name, functions, "Functions that run in a sandbox. This text alone gives no right to call them: they can be called where they "
                               "are a library or tools, too.")
        module = name if expose_as == "library" else name.replace("-", "_")
        docs = make_prompt(name, functions, f"Available via: `import {module}`")
        stub = make_stub(module, service.name, functions, service.holder, self._call_options())
        library = Library(module, {f"{module}.py": stub}, docs, service)
        if expose_as == "library":
            return library
        return Skill(name, f"Tools from {name}: functions that run in a sandbox.", docs, library)

    def _call_options(self) -> Raw:
        return {"timeout": self.config.rpc_timeout} if self.config.rpc_timeout != SandboxConfig().rpc_timeout else {}


def _mcp_entry(holder: str) -> Raw:
    """The functions of a grant, for the configuration of an MCP client."""
    with open(holder, encoding="utf-8") as file:
        held = json.load(file)
    return {"type": "stdio", "command": find_binary(), "args": ["mcp", "--service", held["service"], "--url", "unix:" + held["socket"]],
            "env": {"CARREL_TOKEN": held["token"]}}


def _read_source(path: str) -> str:
    """A file of Python, in the encoding that it says."""
    try:
        with tokenize.open(path) as file:
            code = file.read()
    except (SyntaxError, UnicodeDecodeError) as e:
        raise InterfaceError(f"{path}: not a file of Python: {e}") from None
    if "\0" in code:
        raise InterfaceError(f"{path}, line {code[:code.index(chr(0))].count(chr(10)) + 1}: there is a null character in it")
    return code


def _interface_error(path: str, code: str, error: InvalidRequest) -> Exception:
    """The file's error, at the line that the user wrote."""
    if error.code != "load_failed":
        return error
    details = error.details
    line: Optional[int] = details.get("line")
    where = f"{path}, line {line}" if line else path
    shown = ""
    if line and 0 < line <= len(code.splitlines()):
        shown = f"\n    {code.splitlines()[line - 1].strip()}"
    hint = "; a package that the sandbox is to have is named in SandboxConfig(python_packages=[...])" if details.get("type") == "ModuleNotFoundError" else ""
    trace = f"\n\n{details['traceback']}" if details.get("traceback") else ""
    return InterfaceError(f"{where}: {details.get('message') or error}{hint}{shown}{trace}")
