"""A scoped sandbox whose one function asks a hosted model, with a key that neither the sandbox nor the agent has."""
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from carrel.environment import SandboxConfig, ScopedSandbox
from carrel.execution import create_local_session
from carrel.workspace import Workspace

HERE = Path(__file__).parent
HOST = urlsplit(os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")).hostname
SETTINGS = {name: os.environ[name] for name in ("OPENAI_BASE_URL", "OPENAI_MODEL") if name in os.environ}


def main(question: str) -> None:
    config = SandboxConfig(keys=[f"OPENAI_API_KEY@{HOST}"], env=SETTINGS)
    with ScopedSandbox(config) as sandbox, tempfile.TemporaryDirectory() as folder:
        model = sandbox.serve(HERE / "interface.py", expose_as="library", name="model")
        with create_local_session(Workspace(libraries=[model]), workspace_dir=folder) as session:
            # What an agent could write: it has the function, no key, no network.
            result = session.exec(f"import os, model\nprint(model.ask({question!r}), os.environ.get('OPENAI_API_KEY'))")
            print(result.stdout or result, end="")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Which city is the capital of France?")
