"""Base classes of all managers and boxes."""
from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any


def _also_known_as(kind: type, name: str) -> None:
    """If the pppybox package is loaded, our classes count as its own: libraries that check with isinstance take them."""
    original = getattr(sys.modules.get("pybox.base"), name, None)
    register = getattr(original, "register", None)
    if register is not None and not issubclass(kind, original):  # type: ignore[arg-type]
        register(kind)


class BasePyBox(ABC):
    """A kernel that runs code."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        _also_known_as(cls, "BasePyBox")
        return super().__new__(cls)

    @abstractmethod
    def run(self, code: str, **kwargs: Any) -> Any:
        """Runs code and returns a PyBoxOut. TimeoutError if it takes too long, carrel.KernelDied if its kernel ends."""


class BasePyBoxManager(ABC):
    """Starts and ends kernels."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        _also_known_as(cls, "BasePyBoxManager")
        return super().__new__(cls)

    @abstractmethod
    def start(self, kernel_id: "str | None" = None, **kwargs: Any) -> Any:
        """The kernel of that id; a new one if it is missing."""

    @abstractmethod
    def shutdown(self, kernel_id: str, **kwargs: Any) -> Any:
        """Ends a kernel."""
