"""Boxes on a Kubernetes cluster: `Sandbox(warmpool="pool")` claims a Sandbox from a warm pool. Its methods are a Box's.

    with Sandbox(warmpool="python") as box:
        box.files.write("main.py", "print(6 * 7)")
        print(box.exec(["python3", "main.py"], check=True).stdout)

The Pod runs carrel-runtime, or the Python runtime of agent-sandbox. It is reached through the API server (which needs
the right to `create` and `get` pods/proxy), through agent-sandbox's router (`router=URL`), or directly from inside the
cluster (`direct=True`).
Needs the package kubernetes (`pip install carrel[kube]`)."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import time
from types import TracebackType
from typing import IO, Any, Iterable, Iterator, List, Mapping, Sequence, Union
from urllib.parse import quote

from .client import ExecResult, exec_result
from .errors import CarrelError, Conflict, Forbidden, InvalidRequest, NotFound, Unavailable, Unsupported
from .files import FileInfo

GROUP, VERSION = "extensions.agents.x-k8s.io", "v1beta1"
PORT = 8888
Path = Union[str, "os.PathLike[str]"]
_KINDS = {"f": "file", "d": "directory", "l": "symlink", "p": "fifo", "s": "socket", "b": "device", "c": "device"}
# The claim will not become Ready by waiting: the claim itself, or what it names, must change.
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
        """One request. What is no success raises an error of this package. base: another server than the API's."""
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
        """What a watch tells until its time is over."""
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
        return bytes(self._box._http("GET", self._url("download", path)).data)

    def read_text(self, path: Path, encoding: str = "utf-8") -> str:
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
        if not self.stat(path).is_dir:
            raise InvalidRequest(f"{os.fspath(path)} is no folder", code="not_a_directory")
        return self._find(path, "-mindepth", "1", "-maxdepth", "1")

    def stat(self, path: Path) -> FileInfo:
        return self._find(path, "-maxdepth", "0")[0]

    def exists(self, path: Path) -> bool:
        return bool(json.loads(self._box._http("GET", self._url("exists", path)).data)["exists"])

    def _do(self, *argv: str) -> None:
        done = self._box.exec(argv)
        if not done.ok:
            kind = NotFound if "No such file" in done.stderr else Conflict
            raise kind(done.stderr.strip() or done.reason, code="failed")

    def mkdir(self, path: Path, parents: bool = True, mode: int = 0o755) -> None:
        self._do("mkdir", *(["-p"] if parents else []), "-m", f"{mode:o}", "--", self._relative(path))

    def move(self, path: Path, to: Path, overwrite: bool = False) -> None:
        if not overwrite and self.exists(to):
            raise Conflict(f"{os.fspath(to)} exists; overwrite=True replaces it", code="exists")
        self._do("mv", "-fT", "--", self._relative(path), self._relative(to))

    def chmod(self, path: Path, mode: int) -> None:
        self._do("chmod", f"{mode:o}", "--", self._relative(path))

    def remove(self, path: Path, recursive: bool = False) -> None:
        if self.stat(path).is_dir and not recursive:
            self._do("rmdir", "--", self._relative(path))
        else:
            self._do("rm", "-r" if recursive else "-f", "--", self._relative(path))


class Sandbox:
    """A Sandbox that was claimed from a warm pool. At the end of `with` the claim is deleted, and the Sandbox with it.

    env and pod_labels as the pool's template allows them (env makes a new Pod; none of the pool is taken).
    shutdown_after: seconds."""

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
        """The claim, once it is Ready. What keeps it from that for good is an error at once."""
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
        return str(self.raw["status"]["sandbox"]["name"])

    def refresh(self) -> "Sandbox":
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

    # ---- what runs in it ----

    def _http(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 180,
    ) -> Any:
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
            return self._cluster.request(method, path, body, fields, base=self._router.rstrip("/"), timeout=timeout)
        if self._direct:
            host = self.raw["status"]["sandbox"]["podIPs"][0]
            host = f"[{host}]" if ":" in host else host
            return self._cluster.request(
                method, path, body, headers, base=f"http://{host}:{self._port}", timeout=timeout
            )
        # The API server decodes a path once, as it forwards it.
        proxy = f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(self.name)}:{self._port}/proxy"
        return self._cluster.request(method, proxy + path.replace("%", "%25"), body, headers, timeout=timeout)

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
        self.raw = self._wait(ready_timeout)

    def events(self) -> List[Mapping[str, Any]]:
        """What the cluster says has happened to the claim and to the Sandbox."""
        found: List[Mapping[str, Any]] = []
        for name in (self.claim_name, self.name):
            path = (
                f"/api/v1/namespaces/{quote(self.namespace)}/events?fieldSelector=involvedObject.name%3D{quote(name)}"
            )
            found += self._cluster.call("GET", path)["items"]
        return found

    @property
    def trouble(self) -> str | None:
        """Why its Pod died or does not start, in words; None: nothing is wrong."""
        text = self.refresh().raw["metadata"].get("annotations", {}).get("carrel.dev/last-trouble")
        return str(text) if text else None

    def delete(self) -> None:
        self._cluster.call("DELETE", f"{self._claims}/{quote(self.claim_name)}")

    def __getattr__(self, name: str) -> Any:
        if name in (
            "run",
            "stream",
            "kernel",
            "kernels",
            "exec_stream",
            "spawn",
            "execs",
            "get_exec",
            "pause",
            "resume",
            "update",
            "usage",
            "watch",
            "ports",
        ):
            raise Unsupported(
                f"a Sandbox of a cluster has no {name}: its runtime runs commands to their end and keeps files",
                code="unsupported",
            )
        raise AttributeError(name)
