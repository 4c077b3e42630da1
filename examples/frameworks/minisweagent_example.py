"""mini-SWE-agent in a box. The model is a script; give DefaultAgent a real one."""
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output

from carrel.integrations.minisweagent import CarrelEnvironment

commands = ["git init -q repo && cd repo && echo hello >README && git add -A && git status --short",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat repo/README"]
model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
with CarrelEnvironment() as environment:                                        # the changed line
    agent = DefaultAgent(model, environment, system_template="You are a programmer.", instance_template="{{task}}")
    print(agent.run("Make a repository."))
