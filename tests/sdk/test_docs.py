"""What help() shows."""
import importlib
import inspect

import pytest

from support import SDK

NAMES = ["carrel", "carrel.environment", "carrel.execution", "carrel.harness", "carrel.workspace", "carrel.pybox"]


def undocumented(module):
    for name in module.__all__:
        thing = getattr(module, name)
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            continue
        if not thing.__doc__ or thing.__doc__.startswith(name + "("):       # a dataclass writes its own otherwise
            yield f"{thing.__module__}.{name}"
        for member, value in inspect.getmembers(thing) if inspect.isclass(thing) else ():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            ours = inspect.isfunction(function) and (function.__module__ or "").startswith("carrel")
            if ours and not member.startswith("_") and not function.__doc__:
                yield f"{function.__module__}.{function.__qualname__}"


@pytest.mark.parametrize("name", NAMES)
def test_everything_public_says_what_it_does(name, monkeypatch):
    monkeypatch.syspath_prepend(str(SDK))
    assert sorted(set(undocumented(importlib.import_module(name)))) == []
