"""Sandboxes: where code, models and functions are."""
from __future__ import annotations

from .config import ConfigError, ExecutionMode, ModelConfig, ModelHandle, RepoConfig, RepoHandle, SandboxConfig
from .gpu import GpuUnavailable

__all__ = ["ConfigError", "ExecutionMode", "GpuUnavailable", "ModelConfig", "ModelHandle", "RepoConfig", "RepoHandle", "SandboxConfig"]
