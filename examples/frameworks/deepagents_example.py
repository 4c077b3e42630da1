"""A deep agent whose shell and files are in a box. The model is a script; give create_deep_agent a real one."""
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from carrel.integrations.deepagents import CarrelSandbox


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


call = {"name": "execute", "args": {"command": "echo $((6 * 7)) >answer; cat answer; ls /root"}, "id": "1"}
model = Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("The answer is 42.")]))
with CarrelSandbox() as sandbox:                                                # the changed line
    agent = create_deep_agent(model=model, backend=sandbox)
    for message in agent.invoke({"messages": [("user", "What is six times seven?")]})["messages"]:
        print(f"{message.type}: {message.text}")
