"""Requests for a GPU on this machine."""
from __future__ import annotations

import glob
import os
from typing import Any, List, Mapping, Sequence

from .config import SandboxConfig, warn_user


class GpuUnavailable(RuntimeError):
    """The requested GPU is missing. The message names the available ones, and the remedy."""


def host_gpus() -> List[str]:
    """This machine's GPUs, according to its drivers."""
    found = []
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        try:
            with open(path, encoding="utf-8") as file:
                found += [line.partition(":")[2].strip() for line in file if line.startswith("Model:")]
        except OSError:
            pass
    if not found:
        found = sorted(glob.glob("/dev/nvidia[0-9]*")) + glob.glob("/dev/kfd")
    return found


def is_optional(config: SandboxConfig) -> bool:
    return config.gpu_optional or os.environ.get("CARREL_GPU", "").lower() == "optional"


def matching_devices(wanted: str, count: int, devices: Sequence[Mapping[str, Any]]) -> List[str]:
    """Of the devices that a server lists, those of a kind that ends in /gpu. One named `wanted` comes first; the name of a model
    ("A100") is no device's name, so any will do. A device that stands for all of them (its name is "all") is taken last."""
    names = [d["name"] for d in devices if not d["refused"] and d["name"].partition("=")[0].endswith("/gpu")]
    exact = [n for n in names if wanted in (n, n.partition("=")[2])]
    single = [n for n in names if n not in exact and not n.endswith("=all")]
    return (exact or [*single, *(n for n in names if n.endswith("=all"))])[:count]


def settle_gpu(config: SandboxConfig, devices: Sequence[Mapping[str, Any]] = ()) -> List[str]:
    """The devices for the sandbox; none if none is requested, or it is optional (one warning). Else GpuUnavailable.

    devices: the server's list in GET /v1/info."""
    if config.gpu is None:
        return []
    found = matching_devices(config.gpu, config.gpu_count, devices)
    if len(found) == config.gpu_count:
        return found
    wanted = config.gpu if config.gpu_count == 1 else f"{config.gpu_count} x {config.gpu}"
    refused = [f"{d['name']} ({d['refused']})" for d in devices if d["refused"] and d["name"].partition("=")[0].endswith("/gpu")]
    here = host_gpus()
    if found:
        has = f"this machine has {', '.join(found)} and no more"
    elif refused:
        has = f"this machine has {', '.join(refused)}"
    elif here:
        has = f"this machine has {', '.join(here)}, but no CDI specification of a kind like nvidia.com/gpu in /etc/cdi or /var/run/cdi"
    else:
        has = "this machine has no GPU"
    if is_optional(config):
        warn_user(f"gpu={wanted!r}: {has}; it runs on the CPU")
        return []
    raise GpuUnavailable(f"gpu={wanted!r}: {has}; to run on the CPU, set CARREL_GPU=optional in the environment or gpu_optional=True in the "
                         "SandboxConfig")
