"""What a request for a GPU comes to on this machine."""
from __future__ import annotations

import glob
import os
from typing import List

from .config import SandboxConfig, warn_user


class GpuUnavailable(RuntimeError):
    """The GPU that was asked for is not there. The message says what is, and the way on."""


def host_gpus() -> List[str]:
    """What this machine has, as its drivers say it."""
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


def settle_gpu(config: SandboxConfig) -> None:
    """Returns if the sandbox may run without a GPU: none is asked for, or it is optional (one warning). Else GpuUnavailable."""
    if config.gpu is None:
        return
    wanted = config.gpu if config.gpu_count == 1 else f"{config.gpu_count} x {config.gpu}"
    here = host_gpus()
    has = f"this machine has {', '.join(here)}, which boxes cannot be given yet" if here else "this machine has no GPU"
    if is_optional(config):
        warn_user(f"gpu={wanted!r}: {has}; it runs on the CPU")
        return
    raise GpuUnavailable(f"gpu={wanted!r}: {has}; to run on the CPU, set CARREL_GPU=optional in the environment or gpu_optional=True in the "
                         "SandboxConfig")
