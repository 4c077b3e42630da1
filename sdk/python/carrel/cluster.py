"""Boxes on a Kubernetes cluster: `Sandbox(warmpool="pool")` claims a Sandbox from a warm pool. Its methods are a Box's.

    with Sandbox(warmpool="python") as box:
        box.files.write("main.py", "print(6 * 7)")
        print(box.exec(["python3", "main.py"], check=True).stdout)
        box.run("x = 6")
        print(box.run("x * 7").text)

The Pod runs carrel-runtime, or the Python runtime of agent-sandbox (which has files and exec() alone). It is reached
through the API server (which needs the right to `create`, `get` and `delete` pods/proxy), through agent-sandbox's
router (`router=URL`), or directly from inside the cluster (`direct=True`).
Needs the package kubernetes (`pip install carrel[kube]`)."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import time
from types import TracebackType
from typing import IO, Any, Iterable, Iterator, List, Mapping, Sequence, Union, cast
from urllib.parse import quote, urlencode

from .cells import Answer, Collector, Kernel, Result, made, run_body
from .client import Exec, ExecResult, exec_result
from .errors import CarrelError, Conflict, Forbidden, InvalidRequest, NotFound, Unavailable, Unsupported
from .files import FileInfo
from .transport import segment, text_of

GROUP, VERSION = "extensions.agents.x-k8s.io", "v1beta1"
PORT = 8888
_LISTENING_S = 30
Path = Union[str, "os.PathLike[str]"]
_KINDS = {"f": "file", "d": "directory", "l": "symlink", "p": "fifo", "s": "socket", "b": "device", "c": "device"}
# The claim will not become Ready by waiting: the claim itself, or an object that it names, must change.
_FINAL = {
    "TemplateNotFound",
    "WarmPoolNotFound",
    "InvalidMetadata",
    "EnvVarsInjectionRejected",
    "VolumeClaimTemplatesError",
    "ClaimExpired",
    "SandboxExpired",
    "PodFailed",
    "PodSucceeded",
}

# Features of a Box that a Pod lacks, and the alternatives.
_INSTEAD = {
    "pause": "a Pod cannot be frozen; stop() ends it, and start() makes a new one on the same volumes",
    "resume": "a Pod cannot be frozen; stop() ends it, and start() makes a new one on the same volumes",
    "update": "limits are the template's; change the SandboxTemplate",
    "net": "what it may reach is the template's networkPolicy",
    "usage": "kubectl top pod NAME shows it",
    "watch": "kubectl get sandbox NAME --watch, or events()",
    "ports": "kubectl port-forward pod/NAME PORT, or a Service (service: true in the template)",
    "leash": "shutdown_after= ends it at a given time",
    "aio": "asyncio.to_thread(box.run, code) runs it beside other tasks",
}


def _client() -> Any:
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise Unsupported(
            "the package kubernetes is not installed; pip install 'carrel[kube]'", code="unsupported"
        ) from error
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    return client.ApiClient()


def _seconds(text: str | float | None) -> float | None:
    if text is None or isinstance(text, (int, float)):
        return text
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    unit = next((u for u in units if text.endswith(u) and text[: -len(u)].replace(".", "", 1).isdigit()), None)
    if unit is None and not text.replace(".", "", 1).isdigit():
        raise InvalidRequest(
            f"timeout is {text!r}; it must be a number of seconds, or like 500ms, 10s, 5m, 1h", code="invalid_argument"
        )
    return float(text[: -len(unit)]) * units[unit] if unit else float(text)


class Cluster:
    """The API server, as the kubeconfig or the Pod's own account reaches it."""

    def __init__(self, api_client: Any = None):
        self._api = api_client or _client()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        base: str | None = None,
        timeout: float = 60,
        stream: bool = False,
    ) -> Any:
        """One request. An error status raises an error of this package. base: another server than the API's."""
        fields = dict(headers or {})
        if base is None:
            fields.update(
                (one["key"], one["value"])
                for one in self._api.configuration.auth_settings().values()
                if one["in"] == "header"
            )
        try:
            answer = self._api.rest_client.pool_manager.request(
                method,
                (base or self._api.configuration.host) + path,
                body=body,
                headers=fields,
                timeout=timeout,
                preload_content=not stream,
                retries=False,
            )
        except Exception as error:  # urllib3's, by whatever name
            raise Unavailable(f"{method} {path}: {error}", code="unavailable") from error
        if answer.status >= 400:
            raise _error(answer.status, answer.read() if stream else answer.data, f"{method} {path}")
        return answer

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.request(method, path, data, {"Content-Type": content}).data)

    def changes(self, path: str, query: str, timeout: float) -> Iterator[Any]:
        """The events of a watch until it times out."""
        answer = self.request(
            "GET", f"{path}?watch=true&{query}&timeoutSeconds={max(1, int(timeout))}", timeout=timeout + 10, stream=True
        )
        rest = b""
        try:
            for chunk in answer.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    yield event
        finally:
            answer.release_conn()


def _error(status: int, data: bytes, what: str) -> CarrelError:
    try:
        told = json.loads(data)
        message = str(told.get("message") or told.get("detail") or told)
    except (ValueError, AttributeError):
        message = data[:500].decode("utf-8", "replace")
    kinds = {
        400: InvalidRequest,
        422: InvalidRequest,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        502: Unavailable,
        503: Unavailable,
    }
    return kinds.get(status, CarrelError)(f"{what}: {message}", code=str(status), status=status)


class _Answer:
    def __init__(self, data: bytes):
        self._data = data

    def all(self) -> bytes:
        return self._data


class _Runtime:
    """The transport that Exec and Kernel need from a server, by way of the Pod's runtime."""

    def __init__(self, box: "Sandbox"):
        self._box = box

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        stream: bool = False,
    ) -> Any:
        pairs = {k: text_of(v) for k, v in (query or {}).items() if v is not None}
        path += "?" + urlencode(pairs) if pairs else ""
        try:
            return self._box._http(method, path, body, headers, stream=stream)
        except NotFound as error:
            if "Not Found" in str(error):
                raise Unsupported(
                    "the runtime in the Pod only runs commands to their end: exec() and files work; for the rest use "
                    "the image carrel-runtime in the template",
                    code="unsupported",
                ) from error
            raise

    def open(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: bytes | None = None, **_: Any
    ) -> _Answer:
        return _Answer(self._send(method, path, query, body, {"Content-Type": "application/octet-stream"}).data)

    def call(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json_body: Any = None, **_: Any
    ) -> Any:
        body = None if json_body is None else json.dumps(json_body).encode()
        return json.loads(self._send(method, path, query, body, {"Content-Type": "application/json"}).data or b"null")

    def lines(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, json_body: Any = None
    ) -> Iterator[Any]:
        """The request is sent at once; closing the iterator ends it."""
        body = None if json_body is None else json.dumps(json_body).encode()
        fields = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        return self._lines(self._send(method, path, query, body, fields, stream=True))

    @staticmethod
    def _lines(answer: Any) -> Iterator[Any]:
        rest = b""
        try:
            for chunk in answer.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line.strip())
        except CarrelError:
            raise
        except Exception as error:  # urllib3's, by whatever name
            raise Unavailable(f"the Sandbox broke off in the middle: {error}", code="unavailable") from error
        finally:
            answer.close()  # not reused: the unread rest would be the next answer


class SandboxFiles:
    """Files below the runtime's root folder; a path counts from there, with or without a slash before it."""

    def __init__(self, box: "Sandbox"):
        self._box = box

    @staticmethod
    def _relative(path: Path) -> str:
        text = os.fspath(path).lstrip("/")
        return "./" + text if text else "."

    def _url(self, door: str, path: Path) -> str:
        return f"/{door}/{quote(os.fspath(path).lstrip('/') or '.', safe='')}"

    def read(self, path: Path) -> bytes:
        """A file."""
        return bytes(self._box._http("GET", self._url("download", path)).data)

    def read_text(self, path: Path, encoding: str = "utf-8") -> str:
        """A file as text."""
        return self.read(path).decode(encoding)

    def download(self, path: Path, to: Path | IO[bytes]) -> int:
        """Into a file, or a stream; gives the number of bytes."""
        data = self.read(path)
        with contextlib.nullcontext(to) if hasattr(to, "write") else open(os.fspath(to), "wb") as out:
            return int(out.write(data))

    def write(self, path: Path, data: bytes | str | IO[bytes] | Iterable[bytes], *, mode: int | None = None) -> None:
        """Parents are made."""
        if isinstance(data, str):
            data = data.encode()
        elif not isinstance(data, (bytes, bytearray)):
            data = data.read() if hasattr(data, "read") else b"".join(data)
        boundary = secrets.token_hex(16)
        name = os.fspath(path).lstrip("/").replace("\\", "\\\\").replace('"', '\\"')
        body = (
            (
                f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
                "Content-Type: application/octet-stream\r\n\r\n"
            ).encode()
            + bytes(data)
            + f"\r\n--{boundary}--\r\n".encode()
        )
        self._box._http("POST", "/upload", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
        if mode is not None:
            self.chmod(path, mode)

    def upload(self, source: Path, path: Path) -> None:
        """Copies a file into the sandbox."""
        with open(os.fspath(source), "rb") as file:
            self.write(path, file)

    def _find(self, path: Path, *depth: str) -> List[FileInfo]:
        done = self._box.exec(["find", self._relative(path), *depth, "-printf", r"%f\0%y\0%s\0%m\0%T@\0%U\0%G\0%l\0"])
        if not done.ok:
            raise NotFound(done.stderr.strip() or f"{path}: {done.reason}", code="not_found", status=404)
        parts = done.stdout.split("\0")[:-1]
        rows = [parts[i : i + 8] for i in range(0, len(parts), 8)]
        return sorted(
            (
                FileInfo(
                    name=n,
                    type=_KINDS.get(y, "file"),
                    size=int(s),
                    mode=int(m, 8),
                    mtime=float(t),
                    uid=int(u),
                    gid=int(g),
                    target=link or None,
                )
                for n, y, s, m, t, u, g, link in rows
            ),
            key=lambda one: one.name,
        )

    def list(self, path: Path = ".") -> List[FileInfo]:
        """What is in a directory, in no particular order."""
        if not self.stat(path).is_dir:
            raise InvalidRequest(f"{os.fspath(path)} is no folder", code="not_a_directory")
        return self._find(path, "-mindepth", "1", "-maxdepth", "1")

    def stat(self, path: Path) -> FileInfo:
        """What a path is."""
        return self._find(path, "-maxdepth", "0")[0]

    def exists(self, path: Path) -> bool:
        """Whether there is something at this path."""
        return bool(json.loads(self._box._http("GET", self._url("exists", path)).data)["exists"])

    def _do(self, *argv: str) -> None:
        done = self._box.exec(argv)
        if not done.ok:
            kind = NotFound if "No such file" in done.stderr else Conflict
            raise kind(done.stderr.strip() or done.reason, code="failed")

    def mkdir(self, path: Path, parents: bool = True, mode: int = 0o755) -> None:
        """Makes a directory, and those above it."""
        self._do("mkdir", *(["-p"] if parents else []), "-m", f"{mode:o}", "--", self._relative(path))

    def move(self, path: Path, to: Path, overwrite: bool = False) -> None:
        """Renames or moves within the sandbox."""
        if not overwrite and self.exists(to):
            raise Conflict(f"{os.fspath(to)} exists; overwrite=True replaces it", code="exists")
        self._do("mv", "-fT", "--", self._relative(path), self._relative(to))

    def chmod(self, path: Path, mode: int) -> None:
        """Changes permissions."""
        self._do("chmod", f"{mode:o}", "--", self._relative(path))

    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, or with recursive=True a directory."""
        if self.stat(path).is_dir and not recursive:
            self._do("rmdir", "--", self._relative(path))
        else:
            self._do("rm", "-r" if recursive else "-f", "--", self._relative(path))


class Sandbox:
    """A Sandbox that was claimed from a warm pool. At the end of `with` the claim is deleted, and the Sandbox with it.

    env and pod_labels as the pool's template allows them (env makes a new Pod; none of the pool is taken).
    shutdown_after: seconds."""

    _is_listening = False

    def __init__(
        self,
        warmpool: str | None = None,
        *,
        namespace: str = "default",
        name: str | None = None,
        claim: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        pod_labels: Mapping[str, str] | None = None,
        shutdown_after: float | None = None,
        ready_timeout: float = 180,
        port: int = PORT,
        router: str | None = None,
        direct: bool = False,
        cluster: Cluster | None = None,
    ):
        if (warmpool is None) == (claim is None):
            raise InvalidRequest(
                "give warmpool=, to claim a Sandbox, or claim=, to use one that was claimed before",
                code="invalid_argument",
            )
        self._cluster, self.namespace, self._port, self._router, self._direct = (
            cluster or Cluster(),
            namespace,
            port,
            router,
            direct,
        )
        self._claims = f"/apis/{GROUP}/{VERSION}/namespaces/{quote(namespace)}/sandboxclaims"
        self.claim_name = claim or name or f"carrel-{secrets.token_hex(5)}"
        self.files = SandboxFiles(self)
        self._transport, self._path = _Runtime(self), "/v1/box"
        if warmpool is not None:
            self._create(warmpool, env, labels, pod_labels, shutdown_after)
        try:
            self.raw = self._wait(ready_timeout)
        except BaseException:
            if warmpool is not None:
                with contextlib.suppress(CarrelError):
                    self.delete()
            raise

    def _create(
        self,
        warmpool: str,
        env: Mapping[str, str] | None,
        labels: Mapping[str, str] | None,
        pod_labels: Mapping[str, str] | None,
        shutdown_after: float | None,
    ) -> None:
        spec: dict[str, Any] = {"warmPoolRef": {"name": warmpool}}
        if env:
            spec["env"] = [{"name": key, "value": value} for key, value in env.items()]
        if pod_labels:
            spec["additionalPodMetadata"] = {"labels": dict(pod_labels)}
        if shutdown_after is not None:
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + shutdown_after))
            spec["lifecycle"] = {"shutdownTime": end, "shutdownPolicy": "Delete"}
        self._cluster.call(
            "POST",
            self._claims,
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "SandboxClaim",
                "spec": spec,
                "metadata": {
                    "name": self.claim_name,
                    "labels": {**(labels or {}), "agents.x-k8s.io/created-by": "python-client"},
                },
            },
        )

    def _wait(self, timeout: float) -> Any:
        """The claim, once it is Ready. A permanent obstacle is an error at once."""
        end, ready = time.monotonic() + timeout, {}
        while time.monotonic() < end:
            for event in self._cluster.changes(
                self._claims, f"fieldSelector=metadata.name%3D{quote(self.claim_name)}", end - time.monotonic()
            ):
                found = event["object"]
                if event["type"] == "DELETED":
                    raise NotFound(f"claim {self.claim_name} was deleted", code="not_found", status=404)
                ready = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}.get("Ready", {})
                if ready.get("status") == "True":
                    return found
                if ready.get("reason") in _FINAL:
                    raise Conflict(f"claim {self.claim_name}: {ready['message']}", code=ready["reason"])
        trouble = (
            self._cluster.call("GET", f"{self._claims}/{quote(self.claim_name)}")["metadata"]
            .get("annotations", {})
            .get("carrel.dev/last-trouble")
        )
        why = trouble or (
            f"{ready.get('reason')}: {ready.get('message')}" if ready else "no controller has looked at it"
        )
        raise Unavailable(f"claim {self.claim_name} is not Ready after {timeout:g} s: {why}", code="timeout")

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(NotFound):
            self.delete()

    def __repr__(self) -> str:
        return f"<Sandbox {self.namespace}/{self.name} of claim {self.claim_name}>"

    @property
    def name(self) -> str:
        """The name of its object in the cluster."""
        return str(self.raw["status"]["sandbox"]["name"])

    def refresh(self) -> "Sandbox":
        """Asks the cluster how it is now."""
        self.raw = self._cluster.call("GET", f"{self._claims}/{quote(self.claim_name)}")
        return self

    @property
    def phase(self) -> str:
        """running, stopped, or the reason why it is neither."""
        conditions = {c["type"]: c for c in self.refresh().raw.get("status", {}).get("conditions", [])}
        ready = conditions.get("Ready", {})
        return (
            "running"
            if ready.get("status") == "True"
            else "stopped"
            if ready.get("reason") == "SandboxSuspended"
            else str(ready.get("reason"))
        )

    # ---- commands and kernels in it ----

    def _http(self, method: str, path: str, *content: Any, **options: Any) -> Any:
        """A request to the runtime. Of a template without a readiness probe a Pod is Ready before its runtime listens,
        so that the first request waits for that."""
        end = time.monotonic() + _LISTENING_S
        while not self._is_listening:
            try:
                self._send("GET", "/")
                self._is_listening = True
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        return self._send(method, path, *content, **options)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 180,
        stream: bool = False,
    ) -> Any:
        options: dict[str, Any] = {"timeout": timeout, "stream": stream}
        if self._router:
            fields = {
                **(headers or {}),
                "X-Sandbox-ID": self.name,
                "X-Sandbox-Namespace": self.namespace,
                "X-Sandbox-Port": str(self._port),
            }
            ips = self.raw["status"]["sandbox"].get("podIPs")
            if ips:
                fields["X-Sandbox-Pod-IP"] = ips[0]
            return self._cluster.request(method, path, body, fields, base=self._router.rstrip("/"), **options)
        if self._direct:
            host = self.raw["status"]["sandbox"]["podIPs"][0]
            host = f"[{host}]" if ":" in host else host
            return self._cluster.request(method, path, body, headers, base=f"http://{host}:{self._port}", **options)
        # The API server decodes a path once, as it forwards it.
        proxy = f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(self.name)}:{self._port}/proxy"
        place, _, query = path.partition("?")
        place = proxy + place.replace("%", "%25") + ("?" + query if query else "")
        return self._cluster.request(method, place, body, headers, **options)

    def exec(
        self,
        argv: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: str | float | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
    ) -> ExecResult:
        """Runs a command to its end. A string is a line for the shell."""
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else [str(word) for word in argv]
        limit, given = _seconds(timeout), None
        line = shlex.join(words)
        if env:
            line = "env " + shlex.join(f"{key}={value}" for key, value in env.items()) + " " + line
        if limit is not None:
            line = f"timeout -k 1 {limit:g} {line}"
        if stdin is not None:
            given = f".carrel-stdin-{secrets.token_hex(6)}"
            self.files.write(given, stdin)
            line = f'{line} <"$OLDPWD/{given}"' if cwd else f"{line} <{given}"
        if cwd is not None or stdin is not None:
            line = shlex.join(["/bin/sh", "-c", (f"OLDPWD=$PWD; cd {shlex.quote(cwd)} && " if cwd else "") + line])
        began = time.monotonic()
        try:
            answer = json.loads(
                self._http(
                    "POST",
                    "/execute",
                    json.dumps({"command": line}).encode(),
                    {"Content-Type": "application/json"},
                    timeout=(limit or 300) + 30,
                ).data
            )
        finally:
            if given:
                with contextlib.suppress(CarrelError):
                    self._http(
                        "POST",
                        "/execute",
                        json.dumps({"command": f"rm -f {given}"}).encode(),
                        {"Content-Type": "application/json"},
                    )
        result = self._result(words, answer, limit, (time.monotonic() - began) * 1000)
        return result.check() if check else result

    @staticmethod
    def _result(words: Sequence[str], answer: Mapping[str, Any], limit: float | None, wall_ms: float) -> ExecResult:
        code = int(answer["exit_code"])
        late = limit is not None and code in (124, 137) and wall_ms >= limit * 1000
        raw = {
            "id": secrets.token_hex(6),
            "argv": list(words),
            "outcome": "timeout" if late else "ok" if code == 0 else "error",
            "exit_code": code if code >= 0 else 128 - code,
            "signal": -code if code < 0 else None,
            "stdout": answer["stdout"],
            "stderr": answer["stderr"],
            "wall_ms": wall_ms,
        }
        return exec_result(raw)

    def shell(self, line: str, **options: Any) -> ExecResult:
        """A line for the shell."""
        return self.exec(line, **options)

    @property
    def id(self) -> str:
        """Its namespace and name."""
        return self.name

    @staticmethod
    def _command(argv: Sequence[str] | str, options: Mapping[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"shell": argv} if isinstance(argv, str) else {"argv": [str(word) for word in argv]}
        unknown = set(options) - {"cwd", "env", "timeout", "stdin"}
        if unknown:
            raise Unsupported(
                f"a Sandbox of a cluster takes no {', '.join(sorted(unknown))} for a command", code="unsupported"
            )
        body.update({k: dict(v) if k == "env" else v for k, v in options.items() if v is not None})
        return body

    def exec_stream(self, argv: Sequence[str] | str, **options: Any) -> Iterator[Any]:
        """Runs a command and yields its events as they happen: started, stdout, stderr, exit. Ending the iteration
        early ends the command. Options: cwd, env, timeout, stdin (a text, or True for Exec.write())."""
        return self._transport.lines("POST", self._path + "/exec", json_body=self._command(argv, options))

    def spawn(self, argv: Sequence[str] | str, **options: Any) -> Exec:
        """Starts a command in the background: Exec.wait(), logs(), output(), write(), signal(), kill(). Options as for
        exec_stream()."""
        body = {**self._command(argv, options), "background": True}
        return self._exec(self._transport.call("POST", self._path + "/exec", json_body=body))

    def _exec(self, raw: Any) -> Exec:
        return Exec(cast(Any, self), raw)

    def execs(self) -> List[Exec]:
        """The commands of exec_stream() and spawn(), newest first."""
        return [self._exec(raw) for raw in self._transport.call("GET", self._path + "/exec")["execs"]]

    def get_exec(self, id: str) -> Exec:
        """A command by its id."""
        return self._exec(self._transport.call("GET", f"{self._path}/exec/{segment(id)}"))

    def run(
        self,
        code: str,
        *,
        timeout: str | float | None = None,
        context: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_dead: str | None = None,
        output_limit: int | None = None,
        answer: Answer | None = None,
        check: bool = False,
    ) -> Result:
        """Runs a cell of Python in a kernel of the Pod and returns everything, as Box.run() does. Variables stay for
        the next cell of the same context, as long as the Pod lives."""
        options = {"timeout": timeout, "context": context, "env": env, "cwd": cwd, "on_dead": on_dead}
        collector = Collector()
        events = self.stream(code, **options, output_limit=output_limit, allow_stdin=True if answer else None)
        with contextlib.closing(cast(Any, events)):
            for event in events:
                collector.take(event)
                if event.get("type") == "input_request" and answer:
                    said = answer(str(event.get("prompt", "")), bool(event.get("password")))
                    self.kernel(context or "default").input(said)
        return made(collector.result(), check)

    def stream(self, code: str, **options: Any) -> Iterator[Any]:
        """Runs a cell and yields its events as they happen; at last `outcome`. Ending the iteration early interrupts
        it."""
        return self._transport.lines("POST", self._path + "/run", json_body=run_body(code, options))

    def kernel(self, context: str = "default") -> Kernel:
        """A kernel of the Pod by its name; several live side by side, each with its own variables."""
        return Kernel(cast(Any, self), context)

    def kernels(self) -> List[Any]:
        """The interpreters that were started."""
        kernels: List[Any] = self._transport.call("GET", self._path + "/kernels")["kernels"]
        return kernels

    # ---- the Sandbox itself ----

    def _mode(self, mode: str) -> None:
        path = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{quote(self.namespace)}/sandboxes/{quote(self.name)}"
        self._cluster.call("PATCH", path, {"spec": {"operatingMode": mode}}, "application/merge-patch+json")

    def stop(self) -> None:
        """Ends the Pod; its volumes stay."""
        self._mode("Suspended")

    def start(self, ready_timeout: float = 180) -> None:
        """A new Pod on the same volumes."""
        self._mode("Running")
        self._is_listening = False
        self.raw = self._wait(ready_timeout)

    def events(self) -> List[Mapping[str, Any]]:
        """The cluster's events of the claim and of the Sandbox."""
        found: List[Mapping[str, Any]] = []
        for name in (self.claim_name, self.name):
            path = (
                f"/api/v1/namespaces/{quote(self.namespace)}/events?fieldSelector=involvedObject.name%3D{quote(name)}"
            )
            found += self._cluster.call("GET", path)["items"]
        return found

    @property
    def trouble(self) -> str | None:
        """Why its Pod died or does not start, as a sentence; None: no problem."""
        text = self.refresh().raw["metadata"].get("annotations", {}).get("carrel.dev/last-trouble")
        return str(text) if text else None

    def delete(self) -> None:
        """Deletes it."""
        self._cluster.call("DELETE", f"{self._claims}/{quote(self.claim_name)}")

    def __getattr__(self, name: str) -> Any:
        if name in _INSTEAD:
            raise Unsupported(f"a Sandbox of a cluster has no {name}: {_INSTEAD[name]}", code="unsupported")
        raise AttributeError(name)
