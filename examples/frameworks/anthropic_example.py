"""The tools that Anthropic's environment worker gives to a session, in a box. The worker itself needs an environment
and its key:

    await client.beta.environments.work.worker(environment_id=..., environment_key=..., tools=carrel_tools()).run()
"""
import asyncio

from anthropic.lib.tools.agent_toolset import AgentToolContext

from carrel.integrations.anthropic import carrel_tools


async def main():
    tools = {tool.name: tool for tool in carrel_tools()(AgentToolContext())}    # the changed line
    await tools["write"].call({"file_path": "a.py", "content": "print(6 * 7)\n"})
    print(await tools["bash"].call({"command": "python3 a.py; hostname"}))
    print(await tools["grep"].call({"pattern": "print"}))
    await tools["bash"].close()

asyncio.run(main())
