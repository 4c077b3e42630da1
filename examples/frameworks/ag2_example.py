"""An AG2 agent whose shell tool works in a box. The model is a script; give Agent a real config."""
import asyncio
import json

from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.testing import TestConfig
from ag2.tools import SandboxShellTool

from carrel.integrations.ag2 import CarrelEnvironment


async def main():
    async with CarrelEnvironment() as environment:                              # the changed line
        shell = SandboxShellTool(environment)
        script = TestConfig(
            ToolCallEvent(name=shell.name, arguments=json.dumps({"command": "echo $((6 * 7)) >answer"})),
            "The answer is 42.")
        print((await Agent("calculator", config=script, tools=[shell]).ask("What is six times seven?")).body)
        print("in the box:", environment.sandbox.box().files.read_text("answer"))

asyncio.run(main())
