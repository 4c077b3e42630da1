import importlib.util
import os
import pathlib

from support import IS_LONG

# The wheel is installed where this runs, and brings its own programs; nothing of a server or a key of the machine is
# used.
for name in [
        n for n in os.environ if n.startswith(("CARREL_BIN", "CARREL_URL", "CARREL_GUEST", "CARREL_TOKEN", "OPENAI",
                                               "ANTHROPIC", "LANGSMITH", "XDG_RUNTIME"))
]:
    os.environ.pop(name)
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["INSPECT_DISPLAY"] = "none"
os.environ["MSWEA_SILENT_STARTUP"] = "1"
# Inspect counts the tokens of its scripted model with a table that tiktoken would fetch; litellm, which is here anyway,
# carries it.
if litellm := importlib.util.find_spec("litellm"):
    os.environ["TIKTOKEN_CACHE_DIR"] = str(pathlib.Path(litellm.origin).parent / "litellm_core_utils/tokenizers")

collect_ignore = []
for module, package in (("deepagents", "deepagents"), ("inspect_ai", "inspect_ai"), ("openai_agents", "agents"),
                        ("smolagents", "smolagents"), ("autogen", "autogen_core"), ("ag2", "ag2"),
                        ("minisweagent", "minisweagent"), ("anthropic", "anthropic")):
    try:
        __import__(package)
    except ImportError:         # the environment with an older deepagents has nothing else
        collect_ignore.append(f"test_{module}.py")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left to make proof-frameworks")


def pytest_collection_modifyitems(config, items):
    slow = [item for item in items if item.get_closest_marker("slow")] if not IS_LONG else []
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]
