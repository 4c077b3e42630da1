import atexit
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

from support import BUILD, SDK

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(SDK), str(HERE)]
os.environ["CARREL_BIN"] = str(BUILD / "carrel")
os.environ.setdefault("CARREL_GUEST", str(BUILD / "guest"))
LAYERS = os.environ["CARREL_LAYERS"] = tempfile.mkdtemp(prefix="carrel-layers-") + "/layers"
atexit.register(shutil.rmtree, os.path.dirname(LAYERS), True)
for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "CARREL_TRANSCRIPT", "HF_TOKEN", "CARREL_GPU", "CARREL_MODELS"):
    os.environ.pop(name, None)

import model_server  # noqa: E402


@pytest.fixture
def model(request, monkeypatch):
    """model(answers, faults): a model server that both providers are pointed at."""
    made = []

    def make(answers=(), faults=(), say=None):
        server = model_server.ModelServer(model_server.Script(answers, faults, say))
        made.append(server)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-harness")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-harness")
        return server.script

    yield make
    for server in made:
        server.end()
