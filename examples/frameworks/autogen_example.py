"""AutoGen's agent that executes the code of others, in a box."""
import asyncio

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken

from carrel.integrations.autogen import CarrelCodeExecutor


async def main():
    async with CarrelCodeExecutor(timeout=30) as executor:                      # the changed line
        agent = CodeExecutorAgent("runner", code_executor=executor)
        code = TextMessage(content="```python\nprint(6 * 7)\n```", source="user")
        print((await agent.on_messages([code], CancellationToken())).chat_message.content)

asyncio.run(main())
