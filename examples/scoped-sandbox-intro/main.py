"""An agent that asks a language model questions, through two functions and nothing else.

    python main.py                  Claude is the agent: ANTHROPIC_API_KEY
    python main.py replay           a recorded agent: no key, no network but for the model's first download
"""
import asyncio
import sys
from pathlib import Path

from carrel.environment import ModelConfig, SandboxConfig, ScopedSandbox
from carrel.execution import create_local_session
from carrel.harness import run_agent
from carrel.workspace import Library, Workspace

HERE = Path(__file__).parent
TASK = """
You have `model_tools`, functions of a small language model, and `helpers.as_table`.
Find out how large the model is and what it expects after "The capital of France is". Show the words as a table.
"""


async def main() -> None:
    how = {"provider": "replay", "kwargs": {"transcript": HERE / "transcript.ndjson"}} if sys.argv[1:] == ["replay"] else {"provider": "claude"}
    config = SandboxConfig(models=[ModelConfig(name="HuggingFaceTB/SmolLM2-135M-Instruct")], python_packages=["torch", "transformers"])
    with ScopedSandbox(config) as scoped:
        model_tools = scoped.serve(HERE / "interface.py", expose_as="library", name="model_tools")
        workspace = Workspace(libraries=[Library.from_file(HERE / "helpers.py"), model_tools])
        with create_local_session(workspace=workspace, workspace_dir=HERE / "workspace", name="scoped-sandbox-intro"):
            async for message in run_agent(prompt=TASK, mcp_config={}, **how):
                pass        # it is shown as it happens


if __name__ == "__main__":
    asyncio.run(main())
