"""Kernel objects of a Kubernetes cluster: making, finding, ending them, and why one is not ready or has ended.

The message key of a kernel is random and in a Secret that belongs to its Kernel, so that it is deleted with it. Only users who may read
Secrets of the namespace can talk to its kernels, although the kernels' ports are open to other pods."""
from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping

from ..errors import CarrelError, Forbidden, InvalidRequest, KernelDied, QuotaExceeded, Unauthorized, Unavailable, Unsupported

GROUP, VERSION, PLURAL = "jupyter.org", "v1", "kernels"
ID_LABEL = "jupyter.org/kernel-id"
CONNECTION = "jupyter.org/kernel-connection-info"
DEFAULT_IMAGE = "carrel-kernel:latest"
CALL_SECONDS = 30
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
# Variables that become fields of the pod instead of its environment.
_FIELDS = ("KERNEL_IMAGE", "KERNEL_NAMESPACE", "KERNEL_USERNAME", "KERNEL_VOLUMES", "KERNEL_VOLUME_MOUNTS", "KERNEL_WORKING_DIR")
_RESOURCES = {"KERNEL_CPUS": ("requests", "cpu"), "KERNEL_MEMORY": ("requests", "memory"), "KERNEL_CPUS_LIMIT": ("limits", "cpu"),
              "KERNEL_MEMORY_LIMIT": ("limits", "memory"), "KERNEL_GPUS_LIMIT": ("limits", "nvidia.com/gpu")}
# Of a container that will not start, however long one waits.
_HOPELESS = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerError", "RunContainerError")
_SLOW_TO_FAIL = ("ErrImagePull", "ImagePullBackOff")


@dataclass(frozen=True)
class Place:
    """A Kernel object, and how its kernel is reached."""

    kernel_id: str
    name: str
    namespace: str
    connection: Mapping[str, Any]
    key: str
    pod_ip: str


def _json_of(variables: Mapping[str, str], name: str) -> List[Any]:
    try:
        value = json.loads(variables.get(name) or "[]")
    except ValueError:
        value = None
    if not isinstance(value, list):
        raise InvalidRequest(f"{name} must be a JSON list, as in a pod's spec", code="invalid_env")
    return value


def kernel_body(kernel_id: str, name: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """The Kernel object for a kernel with these variables."""
    resources: Dict[str, Dict[str, str]] = {}
    for variable, (kind, what) in _RESOURCES.items():
        if variable in variables:
            resources.setdefault(kind, {})[what] = variables[variable]
    env: List[Dict[str, Any]] = [{"name": k, "value": v} for k, v in sorted(variables.items()) if k not in _FIELDS and k != "KERNEL_ID"]
    env += [{"name": "KERNEL_ID", "value": kernel_id},
            {"name": "KERNEL_KEY", "valueFrom": {"secretKeyRef": {"name": key_name(name), "key": "key"}}}]
    container: Dict[str, Any] = {
        "name": "main", "image": variables.get("KERNEL_IMAGE") or DEFAULT_IMAGE, "imagePullPolicy": "IfNotPresent", "env": env,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, "resources": resources}
    if variables.get("KERNEL_WORKING_DIR"):
        container["workingDir"] = variables["KERNEL_WORKING_DIR"]
    if "KERNEL_VOLUME_MOUNTS" in variables:
        container["volumeMounts"] = _json_of(variables, "KERNEL_VOLUME_MOUNTS")
    pod: Dict[str, Any] = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False, "enableServiceLinks": False}
    if "KERNEL_VOLUMES" in variables:
        pod["volumes"] = _json_of(variables, "KERNEL_VOLUMES")
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Kernel", "metadata": {"name": name, "labels": {ID_LABEL: kernel_id}},
            "spec": {"template": {"spec": pod}}}


def key_name(name: str) -> str:
    return f"{name}-key"


def why_ended(pod: Any) -> KernelDied | None:
    """If the pod's kernel has ended: how."""
    for status in pod.status.container_statuses or []:
        ended = status.state and status.state.terminated
        if ended:
            code = {"OOMKilled": "oom"}.get(ended.reason or "", "exit" if ended.exit_code is not None else "dead")
            how = f"{ended.reason or 'it ended'}, exit code {ended.exit_code}" + (f": {ended.message}" if ended.message else "")
            return KernelDied(f"the kernel's pod {pod.metadata.name} has ended ({how})", code)
    if pod.status.phase in ("Failed", "Succeeded"):
        reason = pod.status.reason or pod.status.phase
        return KernelDied(f"the kernel's pod {pod.metadata.name} has ended ({reason}{': ' + pod.status.message if pod.status.message else ''})",
                          "evicted" if reason == "Evicted" else "dead")
    return None


def why_waiting(pod: Any) -> tuple[str, bool]:
    """Why the pod is not ready yet, and whether waiting is in vain."""
    for status in pod.status.container_statuses or []:
        waiting = status.state and status.state.waiting
        if waiting and waiting.reason:
            return f"{waiting.reason}{': ' + waiting.message if waiting.message else ''}", waiting.reason in _HOPELESS
    for condition in pod.status.conditions or []:
        if condition.status != "True" and condition.reason:
            return f"{condition.reason}{': ' + condition.message if condition.message else ''}", False
    return f"its pod is {pod.status.phase}", False


class Cluster:
    """The API server, with the official client's configuration: in a pod its service account, else KUBECONFIG."""

    def __init__(self, in_cluster: bool | None = None):
        try:
            from kubernetes import client, config
        except ImportError as e:
            raise Unsupported("kernels in a cluster need the packages kubernetes and jupyter_client: pip install 'carrel[kube]'",
                              code="missing_package") from e
        self._client = client
        self.configuration = client.Configuration()
        self.in_cluster = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) if in_cluster is None else in_cluster
        try:
            if self.in_cluster:
                config.load_incluster_config(client_configuration=self.configuration)
            else:
                # Named, because the package looks at the variable only when it is imported.
                config.load_kube_config(os.environ.get("KUBECONFIG") or "~/.kube/config", client_configuration=self.configuration)
        except config.ConfigException as e:
            raise Unavailable(f"there is no cluster to talk to: {e}; set KUBECONFIG, or run in a pod", code="no_cluster") from e
        api = client.ApiClient(self.configuration)
        self._objects = client.CustomObjectsApi(api)
        self._core = client.CoreV1Api(api)

    def _call(self, what: str, method: Any, *args: Any, **options: Any) -> Any:
        """A call whose errors are this package's, with the attempted action. A 404 gives None."""
        import urllib3

        try:
            return method(*args, _request_timeout=CALL_SECONDS, **options)
        except self._client.ApiException as e:
            if e.status == 404:
                return None
            raise self._judge(what, e) from None
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise Unavailable(f"cannot {what}: the API server at {self.configuration.host} does not answer ({e})", code="no_cluster") from e

    @staticmethod
    def _judge(what: str, e: Any) -> CarrelError:
        try:
            said = json.loads(e.body)["message"]
        except (TypeError, ValueError, KeyError):
            said = e.reason or str(e.status)
        kinds: Dict[int, type[CarrelError]] = {400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 422: InvalidRequest}
        kind = QuotaExceeded if "exceeded quota" in said else kinds.get(e.status, Unavailable)
        return kind(f"cannot {what}: {said}", code=f"kubernetes_{e.status}", status=e.status)

    def pod(self, name: str, namespace: str) -> Any:
        return self._call(f"look at pod {name}", self._core.read_namespaced_pod, name, namespace)

    def find(self, name: str, namespace: str) -> Dict[str, Any] | None:
        found: Dict[str, Any] | None = self._call(f"look at kernel {name}", self._objects.get_namespaced_custom_object, GROUP, VERSION, namespace,
                                                  PLURAL, name)
        return found

    def create(self, kernel_id: str, name: str, namespace: str, variables: Mapping[str, str], tries: int = 3) -> bool:
        """Makes a Kernel and its key. False if there is one of that name."""
        body = kernel_body(kernel_id, name, variables)
        try:
            made = self._call(f"make kernel {name} in namespace {namespace}", self._objects.create_namespaced_custom_object, GROUP, VERSION,
                              namespace, PLURAL, body)
        except CarrelError as e:
            if e.status == 409:
                return False
            raise
        if made is None:
            raise Unavailable(f"cannot make kernel {name}: the cluster knows no kernels.{GROUP}, or has no namespace {namespace}; "
                              "apply packaging/kubernetes/carrel.yaml", code="no_controller")
        owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Kernel", "name": name, "uid": made["metadata"]["uid"], "controller": True,
                 "blockOwnerDeletion": False}
        secret = {"metadata": {"name": key_name(name), "labels": {ID_LABEL: kernel_id}, "ownerReferences": [owner]}, "immutable": True,
                  "stringData": {"key": secrets.token_hex(32)}}
        try:
            self._call(f"make secret {key_name(name)}", self._core.create_namespaced_secret, namespace, secret)
        except BaseException as e:
            self.delete(name, namespace)
            # It belongs to a kernel of this name that was just deleted. Its key may be in our pod already, so everything is made again.
            if tries > 1 and getattr(e, "status", None) == 409:
                return self.create(kernel_id, name, namespace, variables, tries - 1)
            raise
        return True

    def key(self, name: str, namespace: str, kernel_id: str) -> str:
        """The kernel's message key. A kernel of another client, which has no Secret, has its id as the key."""
        import base64

        secret = self._call(f"read secret {key_name(name)}", self._core.read_namespaced_secret, key_name(name), namespace)
        return kernel_id if secret is None else base64.b64decode(secret.data["key"]).decode()

    def wait(self, kernel_id: str, name: str, namespace: str, seconds: float) -> Place:
        """Until the kernel is ready, for so many seconds; then, or when it cannot become ready, an error that says why."""
        end, pause, why = time.monotonic() + seconds, 0.05, "no controller has seen it: is carrel-controller running?"
        while True:
            kernel = self.find(name, namespace)
            if kernel is None:
                raise KernelDied(f"kernel {name} was deleted while it started", "gone")
            pod = self.pod(name, namespace)
            ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in kernel.get("status", {}).get("conditions", []))
            connection = kernel["metadata"].get("annotations", {}).get(CONNECTION)
            if ready and connection and pod is not None and pod.status.pod_ip:
                return Place(kernel_id, name, namespace, json.loads(connection), self.key(name, namespace, kernel_id), pod.status.pod_ip)
            if pod is not None:
                ended = why_ended(pod)
                if ended:
                    raise ended
                why, hopeless = why_waiting(pod)
                if hopeless or (why.startswith(_SLOW_TO_FAIL) and time.monotonic() > end - seconds / 2):
                    raise Unavailable(f"kernel {name} cannot start: {why}", code="pod_failed")
            if time.monotonic() > end:
                raise Unavailable(f"kernel {name} is not ready after {seconds:.0f} seconds: {why}", code="not_ready")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def delete(self, name: str, namespace: str) -> bool:
        """False if there was none. Its Secret is deleted with it, sooner or later; here at once, for the next kernel of that name."""
        gone = self._call(f"delete kernel {name}", self._objects.delete_namespaced_custom_object, GROUP, VERSION, namespace, PLURAL, name) is not None
        with contextlib.suppress(CarrelError):
            secret = self._call(f"look at secret {key_name(name)}", self._core.read_namespaced_secret, key_name(name), namespace)
            if secret is not None and any(owner.kind == "Kernel" and owner.name == name for owner in secret.metadata.owner_references or []):
                self._call(f"delete secret {key_name(name)}", self._core.delete_namespaced_secret, key_name(name), namespace,
                           body={"preconditions": {"uid": secret.metadata.uid}})
        return gone

    def named(self, kernel_id: str, namespace: str) -> str | None:
        """The name of the Kernel with that id."""
        found = self._call("look for kernels", self._objects.list_namespaced_custom_object, GROUP, VERSION, namespace, PLURAL,
                           label_selector=f"{ID_LABEL}={kernel_id}")
        items = (found or {}).get("items", [])
        return items[0]["metadata"]["name"] if items else None
