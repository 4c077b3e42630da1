"""A server of tools for MCP clients, on stdin and stdout: the functions of a grant, or Python and a shell in a session's box.

    python -m carrel.toolserver grant FILE      (socket and token of a grant, as ScopedSandbox.serve() writes them)
    python -m carrel.toolserver box FILE        (url and id of a session's box)

It speaks the handshake revisions of the protocol, with the standard library alone, and calls one tool after the other."""
from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from typing import Any, Callable, Dict, List

Raw = Dict[str, Any]
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def own_command() -> List[str]:
    """How it is started. Isolated (-I): a client may start it in a directory that an agent writes to, and Python would look there first."""
    return [os.path.abspath(sys.executable), "-I", os.path.abspath(__file__)]


def server_entry(kind: str, path: str) -> Raw:
    """What an MCP client's configuration says of it."""
    command, *args = own_command()
    return {"type": "stdio", "command": command, "args": [*args, kind, path]}


def grant_entry(path: str) -> Raw:
    """The same for the functions of a grant: `carrel mcp`, if the program has it, else this module."""
    from .local import find_binary
    binary = find_binary()
    known = subprocess.run([binary, "mcp", "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if known.returncode != 0:
        return server_entry("grant", path)
    with open(path, encoding="utf-8") as file:
        held = json.load(file)
    return {"type": "stdio", "command": binary, "args": ["mcp", "--service", held["service"], "--url", "unix:" + held["socket"]],
            "env": {"CARREL_TOKEN": held["token"]}}


class Refused(Exception):
    """A tool that says no; the client's model hears why."""


class GrantTools:
    """Functions of services, by the right that a token gives."""

    def __init__(self, held: Raw):
        self._held = held

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.connect(self._held["socket"])
            connection.request(method, path, None if body is None else json.dumps(body).encode(),
                               {"Authorization": "Bearer " + self._held["token"], "Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise Refused(f"the sandbox cannot be reached: {e}; it may have ended") from None
        finally:
            connection.close()

    def listed(self) -> List[Raw]:
        _, answer = self._ask("GET", "/v1/grant")
        return [{"name": f["name"], "description": f.get("doc") or "", "inputSchema": f.get("input_schema") or {"type": "object"}}
                for s in answer.get("services", ()) for f in s.get("functions", ())]

    def call(self, name: str, given: Raw) -> Raw:
        status, answer = self._ask("POST", "/v1/grant/call", {"service": self._held["service"], "function": name, "args": [], "kwargs": given})
        if status == 200 and answer.get("ok"):
            result = answer.get("result")
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2)
            return {"content": [{"type": "text", "text": text}], **({"structuredContent": result} if isinstance(result, dict) else {})}
        error = answer.get("error") or {}
        trace = f"\n\n{error['traceback']}" if error.get("traceback") else ""
        raise Refused(f"{error.get('type') or error.get('code')}: {error.get('message')}{trace}")


_PYTHON = {"name": "python", "description": "Runs Python in the session. Variables stay.", "inputSchema": {
    "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}
_SHELL = {"name": "shell", "description": "Runs a line of shell in the session's box.", "inputSchema": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}


class BoxTools:
    """Python, and perhaps a shell, in the box of a session."""

    def __init__(self, held: Raw):
        from . import Carrel
        self._held = held
        self._box = Carrel(held["url"]).get(held["box"])

    def listed(self) -> List[Raw]:
        return [_PYTHON, *([_SHELL] if self._held.get("shell") else [])]

    def _cell(self, code: str) -> Raw:
        """Runs a cell; if the session has a notebook, it is in that."""
        from .cells import Collector, checked
        from .execution.cells import result_content
        outputs, collector = None, Collector()
        if self._held.get("notebook"):
            from .execution.notebook import CellOutputs, NotebookFile
            notebook = NotebookFile(self._held["notebook"])
            outputs = CellOutputs(notebook, notebook.add_code(code))
        for event in self._box.stream(code, env=self._held.get("env"), cwd=self._held.get("cwd")):
            collector.take(event)
            if outputs is not None:
                outputs.take(event)
        result = checked(collector.result())
        return {"content": _as_mcp(result_content(result)), "isError": not result.ok}

    def call(self, name: str, given: Raw) -> Raw:
        from .execution.cells import command_content
        from .harness.tools import required_text
        try:
            if name == "python":
                return self._cell(required_text(given, "code"))
            if name == "shell" and self._held.get("shell"):
                done = self._box.exec(["/bin/bash", "-c", required_text(given, "command")], env=self._held.get("env"), cwd=self._held.get("cwd"))
                return {"content": _as_mcp(command_content(done)), "isError": not done.ok}
        except (ValueError, RuntimeError, TimeoutError) as e:
            raise Refused(str(e)) from None
        raise Refused(f"there is no tool {name!r}")


def _as_mcp(blocks: List[Raw]) -> List[Raw]:
    return [{"type": "image", "data": b["source"]["data"], "mimeType": b["source"]["media_type"]} if b["type"] == "image" else b for b in blocks]


class _Wrong(Exception):
    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


def answer_of(tools: Any, method: str, params: Raw) -> Raw:
    from . import __version__
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {"protocolVersion": asked if asked in REVISIONS else REVISIONS[-1], "capabilities": {"tools": {}},
                "serverInfo": {"name": "carrel", "version": __version__}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": tools.listed()}
    if method == "tools/call":
        given = params.get("arguments") or {}
        if not isinstance(params.get("name"), str) or not isinstance(given, dict):
            raise _Wrong(-32602, "tools/call needs a name and an object of arguments")
        if params["name"] not in [t["name"] for t in tools.listed()]:
            raise _Wrong(-32602, f"Unknown tool: {params['name']}")
        try:
            result: Raw = tools.call(params["name"], given)
            return result
        except Refused as e:
            return {"content": [{"type": "text", "text": str(e)}], "isError": True}
    raise _Wrong(-32601, f"Method not found: {method}")


def serve(tools: Any, lines: Any, write: Callable[[str], None]) -> None:
    """One message per line, until the input ends."""
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            write(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}))
            continue
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            continue        # notifications; answers to nothing
        reply: Raw = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            params = message.get("params")
            reply["result"] = answer_of(tools, str(message["method"]), params if isinstance(params, dict) else {})
        except _Wrong as e:
            reply["error"] = {"code": e.code, "message": str(e)}
        except Exception as e:
            reply["error"] = {"code": -32603, "message": f"{type(e).__name__}: {e}"}
        write(json.dumps(reply))


def main(words: List[str]) -> int:
    kinds: Dict[str, Callable[[Raw], Any]] = {"grant": GrantTools, "box": BoxTools}
    if len(words) != 2 or words[0] not in kinds:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with open(words[1], encoding="utf-8") as file:
            tools = kinds[words[0]](json.load(file))
    except FileNotFoundError:
        print(f"carrel.toolserver: {words[1]} is gone: its session or sandbox has ended", file=sys.stderr)
        return 1
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)       # what a library prints must not be taken for a message

    def write(text: str) -> None:
        out.write(text + "\n")
        out.flush()
    serve(tools, sys.stdin, write)
    return 0


if __name__ == "__main__":
    if not __package__:         # started as a file: the package is above it
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        from carrel.toolserver import main
    sys.exit(main(sys.argv[1:]))
