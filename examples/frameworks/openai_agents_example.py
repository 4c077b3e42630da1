"""A sandbox agent of the OpenAI Agents SDK in a box. The model is a script; leave `model` out for a real one."""
import asyncio

from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call

from carrel.integrations.openai_agents import CarrelSandboxClient

call = function_call("exec_command", {"cmd": "echo $((6 * 7)) | tee answer; pwd"}, call_id="1")
agent = SandboxAgent(name="calculator", instructions="Use the shell.",
                     model=ScriptedModel([[call], [assistant_message("The answer is 42.")]]))
config = RunConfig(sandbox=SandboxRunConfig(client=CarrelSandboxClient()), tracing_disabled=True)  # the changed line
result = asyncio.run(Runner.run(agent, "What is six times seven?", run_config=config))
for item in result.new_items:
    print(f"{item.type}: {getattr(item, 'output', '')}")
print(result.final_output)
