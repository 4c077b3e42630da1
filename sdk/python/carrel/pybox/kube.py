"""Kernels in a Kubernetes cluster: not yet."""
from __future__ import annotations

from typing import Any, Mapping

from ..errors import Unsupported
from .base import BasePyBoxManager

_MESSAGE = ("kernels in a Kubernetes cluster are not supported yet; use RemotePyBoxManager(host=...) with a Carrel server or a Jupyter Enterprise "
            "Gateway that runs in the cluster, or LocalPyBoxManager() on this machine")


class KubePyBoxManager(BasePyBoxManager):
    """Raises carrel.Unsupported, which says what to use instead."""

    def __init__(self, *, env_file: str | None = None, kernel_env: Mapping[str, Any] | None = None):
        raise Unsupported(_MESSAGE, code="unsupported")

    def start(self, kernel_id: str | None = None, cwd: str | None = None, **kwargs: Any) -> Any:
        raise Unsupported(_MESSAGE, code="unsupported")

    def shutdown(self, kernel_id: str, **kwargs: Any) -> Any:
        raise Unsupported(_MESSAGE, code="unsupported")


class AsyncKubePyBoxManager(KubePyBoxManager):
    """Likewise."""
