"""A code agent whose code runs in a box. The model is a script; give CodeAgent a real one."""
from smolagents import CodeAgent
from smolagents.models import ChatMessage, Model

from carrel.integrations.smolagents import CarrelExecutor


class Scripted(Model):
    blocks = ["x = 6", "import os\nprint(os.listdir('/home'))", "final_answer(x * 7)"]

    def generate(self, messages, **options):
        return ChatMessage(role="assistant", content=f"<code>\n{self.blocks.pop(0)}\n</code>")


with CodeAgent(tools=[], model=Scripted(), executor=CarrelExecutor()) as agent:     # the changed line
    print("answer:", agent.run("What is six times seven?"))
