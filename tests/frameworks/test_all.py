"""What holds for every module: importing carrel imports none, a missing extra or an old version is one sentence, no
server is an error in words, and the examples run without a key."""
import importlib
import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

from carrel.integrations import common

# The module, its framework's package, its version, and how its first box is made.
MODULES = {
    "deepagents": ("deepagents", "CarrelSandbox()"),
    "inspect_ai": ("inspect-ai", "asyncio.run(CarrelSandboxEnvironment.sample_init('t', None, {}))"),
    "openai_agents": ("openai-agents", "asyncio.run(CarrelSandboxClient().create())"),
    "smolagents": ("smolagents", "CarrelExecutor()"),
    "autogen": ("autogen-core", "asyncio.run(CarrelCodeExecutor().start())"),
    "ag2": ("ag2", "asyncio.run(CarrelSandbox().exec(['true']))"),
    "minisweagent": ("mini-swe-agent", "CarrelEnvironment()"),
    "anthropic": ("anthropic", "from anthropic.lib.tools.agent_toolset import AgentToolContext; "
                  "asyncio.run(carrel_tools()(AgentToolContext())[0].call({'command': 'true'}))"),
}
EXAMPLES = sorted(pathlib.Path(os.environ.get("CARREL_EXAMPLES", "")).glob("*_example.py"))


def is_here(package):
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


here = pytest.mark.parametrize("name", [name for name, (package, _) in MODULES.items() if is_here(package)])


def python(code, **environment):
    return subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


def test_importing_carrel_imports_no_framework():
    known = ("deepagents", "inspect_ai", "agents", "smolagents", "autogen_core", "ag2", "minisweagent", "anthropic",
             "pydantic")
    done = python(
        f"import carrel, sys; print([n for n in {known!r} if n in sys.modules or 'carrel.integrations' in sys.modules])"
    )
    assert done.stdout == "[]\n", done


@here
def test_a_missing_extra_is_one_sentence_that_says_which(name, monkeypatch):
    def version(package):
        raise importlib.metadata.PackageNotFoundError(package)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delitem(sys.modules, f"carrel.integrations.{name}", raising=False)
    with pytest.raises(
            ImportError,
            match=rf"needs {MODULES[name][0]}, which is not installed: pip install 'carrel\[{name}\]'") as failure:
        importlib.import_module(f"carrel.integrations.{name}")
    assert failure.value.__cause__ is None and failure.value.__suppress_context__


@here
def test_an_old_version_is_one_sentence_that_says_which(name, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "0.0.1")
    monkeypatch.delitem(sys.modules, f"carrel.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"{MODULES[name][0]} [\d.]+ or later, and 0.0.1 is installed"):
        importlib.import_module(f"carrel.integrations.{name}")


def test_a_version_that_has_changed_is_one_sentence():
    with pytest.raises(ImportError, match=r"does not fit pytest .*no_such_thing.*; it was made for 1") as failure:
        with common.needs("deepagents", "pytest", "1"):
            from pytest import no_such_thing  # noqa: F401
    assert failure.value.__suppress_context__


@pytest.mark.slow
@here
def test_no_server_and_none_to_start_is_said_in_words(name):
    done = python(f"""import asyncio
from carrel.integrations.{name} import *
try:
    {MODULES[name][1]}
except Exception as e:
    print(type(e).__module__, type(e).__name__, getattr(e, 'message', e))
""", CARREL_BIN="/nonexistent/carrel")
    assert done.returncode == 0 and "/nonexistent/carrel" in done.stdout, done
    own = {
        "deepagents": "carrel.errors", "inspect_ai": "inspect_ai", "openai_agents": "agents",
        "smolagents": "smolagents", "autogen": "builtins RuntimeError", "ag2": "ag2",
        "minisweagent": "builtins RuntimeError", "anthropic": "anthropic"
    }[name]
    assert any(line.startswith(own) for line in done.stdout.splitlines()), done.stdout


@pytest.mark.skipif(not is_here("inspect-ai"), reason="the environment with an older deepagents has nothing else")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_without_a_key(path, tmp_path):
    done = subprocess.run([sys.executable, "-B", path], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0 and ("42" in done.stdout or "accuracy 1.0" in done.stdout
                                     or "Submitted" in done.stdout), done


@pytest.mark.skipif(not is_here("inspect-ai"), reason="the environment with an older deepagents has nothing else")
def test_there_is_an_example_for_each():
    assert {path.stem.removesuffix("_example") for path in EXAMPLES} == set(MODULES)
