"""The module that stands for a service: functions with the signatures and docstrings of the real ones, which call them through the server.

It needs nothing but the standard library. In a box the server is behind the box's inlet, and there is no token; on this machine it is behind the
server's socket, with the token of a grant for these functions alone, in a file that only the program's user can read."""
from __future__ import annotations

import ast
import keyword
from typing import Any, Dict, List, Mapping, Sequence

INLET = ("127.0.0.1", 807)

_RUNTIME = '''\
import sys as _sys


def _carrel_modules():
    """Python's own modules, and not files of the same names in this directory: an agent may write here."""
    import_path = list(_sys.path)
    here = __file__.rpartition("/")[0] or "."
    try:
        import os
        _sys.path[:] = [p for p in import_path if p not in ("", ".") and os.path.realpath(p) != os.path.realpath(here)]
        import json
        import socket
        import threading
        return json, os, socket, threading
    finally:
        _sys.path[:] = import_path


_json, _os, _socket, _threading = _carrel_modules()


class RemoteError(RuntimeError):
    """The function raised. `type` is the exception's name there, `remote_traceback` where it was. `refused`: what the network of
    its box refused meanwhile, in one line; empty if nothing was."""

    def __init__(self, type, message, traceback="", refused=""):
        self.type = type
        self.remote_traceback = traceback
        self.refused = refused
        super().__init__(f"{type}: {message}" + (f" ({refused})" if refused else "") + (f"\\n\\nRemote traceback:\\n{traceback}" if traceback else ""))


def _connect(path):
    if not path:
        sock = _socket.create_connection(("127.0.0.1", _PORT))
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        return sock
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _exchange(sock, body, token):
    """(status, body, whether the connection may be kept). By hand: http.client takes longer than all the rest of a call."""
    sock.sendall(b"POST /v1/grant/call HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n%sContent-Length: %d\\r\\n\\r\\n%s"
                 % (b"Authorization: Bearer %s\\r\\n" % token.encode() if token else b"", len(body), body))
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        piece = sock.recv(65536)
        if not piece or len(data) > 65536:
            raise OSError("the server closed the connection" if not piece else "the server's answer has no end")
        data += piece
    head, _, data = data.partition(b"\\r\\n\\r\\n")
    first, *lines = head.split(b"\\r\\n")
    fields = {name.strip().lower(): value.strip().lower() for name, _, value in (line.partition(b":") for line in lines)}
    try:
        status, size = int(first.split()[1]), int(fields[b"content-length"])
    except (IndexError, KeyError, ValueError):
        raise OSError("the server's answer is not understood") from None
    pieces = [data]
    left = size - len(data)
    while left > 0:
        piece = sock.recv(min(left, 1 << 20))
        if not piece:
            raise OSError("the server closed the connection")
        pieces.append(piece)
        left -= len(piece)
    return status, b"".join(pieces), fields.get(b"connection") != b"close" and left == 0


class _Kept(_threading.local):
    connection = None
    owner = 0


_kept = _Kept()


def _place():
    """(socket, token) on the machine that made this file, (None, None) in a box."""
    try:
        with open(_HOLDER, encoding="utf-8") as file:
            held = _json.load(file)
        return held["socket"], held["token"]
    except FileNotFoundError:
        return None, None


def _take(path):
    """A connection: the last one, if it is this process's and still good."""
    connection, _kept.connection = _kept.connection, None
    if connection is not None and _kept.owner == _os.getpid():
        try:
            connection.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return connection
        except OSError:
            pass
        connection.close()
    return _connect(path)


def _given(unset, first, then, rest, named):
    """(args, kwargs) without what is to have the server's default. first: parameters that are given by place only; then: those before *rest.
    If one of these was not given, what comes after it was given by name or not at all."""
    if any(value is unset for value in (*first, *then.values())):
        ends = [at for at, value in enumerate(first) if value is unset]
        first, named = first[:ends[0]] if ends else first, {**then, **named}
    else:
        first = [*first, *then.values(), *rest]
    return first, {name: value for name, value in named.items() if value is not unset}


def _plain(value):
    """What has a form as text that the server's annotations turn back: dates, UUIDs, decimals, paths, bytes."""
    if isinstance(value, (bytes, bytearray)):
        import base64
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__fspath__") or type(value).__name__ in ("UUID", "Decimal"):
        return str(value)
    raise TypeError(f"an object of type {type(value).__name__} has no form in JSON")


def _print(answer):
    """What the function printed there."""
    for stream in ("stdout", "stderr"):
        if answer.get(stream):
            getattr(_sys, stream).write(answer[stream])


def _ask(function, args, kwargs):
    try:
        body = _json.dumps({"service": _SERVICE, "function": function, "args": args, "kwargs": kwargs, "prints": True, **_OPTIONS},
                           allow_nan=False, default=_plain)
    except (TypeError, ValueError) as e:
        raise TypeError(f"{function}(): an argument cannot be sent as JSON: {e}") from None
    path, token = _place()
    connection = None
    try:
        connection = _take(path)
        status, data, may_stay = _exchange(connection, body.encode(), token)
    except BaseException as e:
        if connection is not None:
            connection.close()      # so the server cancels the call
        if not isinstance(e, OSError):
            raise
        raise RuntimeError(f"{function}() cannot be reached: {e or type(e).__name__}; its sandbox may have ended") from None
    if may_stay:
        _kept.connection, _kept.owner = connection, _os.getpid()
    else:
        connection.close()
    try:
        answer = _json.loads(data)
    except ValueError:
        raise RuntimeError(f"{function}(): the server's answer is no JSON (status {status})") from None
    if status == 200:
        _print(answer)
    if status == 200 and answer.get("ok"):
        return answer.get("result")
    error = answer.get("error") or {}
    if status == 200:
        raise RemoteError(str(error.get("type")), str(error.get("message")), str(error.get("traceback") or ""),
                          str((answer.get("refused") or {}).get("message") or ""))
    words = str(error.get("message") or status)
    if not words.startswith(function):
        words = f"{function}(): {words}"
    raise {"invalid_arguments": TypeError, "timeout": TimeoutError}.get(error.get("code"), RuntimeError)(words)
'''


class _Function:
    """How a function is called, from the text of its signature."""

    def __init__(self, raw: Mapping[str, Any]):
        self.name: str = raw["name"]
        self.doc: str = raw.get("doc") or f"Call {self.name}()."
        node = _parsed(raw.get("signature") or "(*args, **kwargs)") or _parsed("(*args, **kwargs)")
        assert node is not None
        self.node = node
        arguments = node.args
        self.parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self.parameters += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]

    def source(self, ask: str, given: str, unset: str) -> str:
        """The stub. Defaults that are no plain values stay the server's: an argument that is not given is not sent."""
        arguments = self.node.args
        arguments.defaults = [d if _is_plain(d) else ast.Name(unset, ast.Load()) for d in arguments.defaults]
        arguments.kw_defaults = [d if d is None or _is_plain(d) else ast.Name(unset, ast.Load()) for d in arguments.kw_defaults]
        first = "[" + ", ".join(a.arg for a in arguments.posonlyargs) + "]"
        then, rest = (arguments.args, arguments.vararg.arg) if arguments.vararg else ([], "()")
        named = _display(arguments.kwonlyargs if arguments.vararg else [*arguments.args, *arguments.kwonlyargs], arguments.kwarg)
        head = ast.unparse(self.node).partition("\n")[0]
        sent = f"{given}({unset}, {first}, {_display(then)}, {rest}, {named})"
        return f"{head}\n    {self.doc!r}\n    return {ask}({self.name!r}, *{sent})\n"


def _display(arguments: Sequence[ast.arg], more: ast.arg | None = None) -> str:
    """The text of a dictionary of these parameters."""
    return "{" + ", ".join([f"{a.arg!r}: {a.arg}" for a in arguments] + ([f"**{more.arg}"] if more else [])) + "}"


def _parsed(signature: str) -> ast.FunctionDef | None:
    try:
        node = ast.parse(f"def f{signature}: pass").body
    except (SyntaxError, ValueError):
        return None
    return node[0] if len(node) == 1 and isinstance(node[0], ast.FunctionDef) else None


def _is_plain(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def make_stub(name: str, service: str, functions: Sequence[Mapping[str, Any]], holder: str, options: Mapping[str, Any]) -> str:
    """The source of the module. holder: the file with socket and token on this machine. options: sent with each call."""
    made = [_Function(f) for f in functions if _callable(f.get("name"))]
    taken = [p for f in made for p in f.parameters] + [f.name for f in made]
    ask, given, unset = (_free(n, taken) for n in ("_carrel_ask", "_carrel_given", "_carrel_unset"))
    parts = [f"{'Functions of ' + name + ', which run in a sandbox.'!r}\nfrom __future__ import annotations\n\n", _RUNTIME,
             f"\n\n_SERVICE = {service!r}\n_HOLDER = {holder!r}\n_PORT = {INLET[1]}\n_OPTIONS = {dict(options)!r}\n"
             f"{ask} = _ask\n{given} = _given\n{unset} = type(\"_Unset\", (), {{\"__repr__\": lambda self: \"...\"}})()\n"
             f"__all__ = {[f.name for f in made]!r}\n"]
    for function in made:
        function.node.name = function.name
        parts.append("\n\n" + function.source(ask, given, unset))
    text = "".join(parts)
    compile(text, f"{name}.py", "exec", dont_inherit=True)
    return text


def _callable(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def make_prompt(name: str, functions: Sequence[Mapping[str, Any]], how: str) -> str:
    """The description of the functions for a prompt."""
    parts = [f"# {name} Interface\n\n{how}\n\n## Functions\n"]
    for function in functions:
        parts.append(f"\n### `{function['name']}{function.get('signature') or '()'}`\n\n{function.get('doc') or 'Call ' + function['name'] + '()'}\n")
    return "".join(parts)


def stub_functions(raw: Any) -> List[Dict[str, Any]]:
    """The functions in a service's answer."""
    functions = raw.get("functions") if isinstance(raw, dict) else None
    return [f for f in functions or () if isinstance(f, dict) and _callable(f.get("name"))]
