"""Sandboxes: where code, models and functions are."""
from __future__ import annotations

from ..errors import InterpreterUnavailable, PackagesUnavailable
from .config import ConfigError, ExecutionMode, ModelConfig, ModelHandle, RepoConfig, RepoHandle, SandboxConfig
from .gpu import GpuUnavailable
from .hub import ModelUnavailable
from .sandbox import CommandFailed, Sandbox
from .scoped import InterfaceError, ScopedSandbox

__all__ = ["CommandFailed", "ConfigError", "ExecutionMode", "GpuUnavailable", "InterfaceError", "InterpreterUnavailable", "ModelConfig", "ModelHandle",
           "ModelUnavailable", "PackagesUnavailable", "RepoConfig", "RepoHandle", "Sandbox", "SandboxConfig", "ScopedSandbox"]
