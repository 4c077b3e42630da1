"""An evaluation whose tools run in a box for each sample. The model is a script; give eval() a real one."""
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash

outputs = [
    ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "wc -l <data.txt"}),
    ModelOutput.from_content("mockllm/model", "It has 3 lines.")
]
task = Task(dataset=[Sample(input="How many lines has data.txt?", target="3", files={"data.txt": "a\nb\nc\n"})],
            solver=[use_tools(bash()), generate()], scorer=includes(),
            sandbox="carrel")                                                   # the changed line
model = get_model("mockllm/model", custom_outputs=outputs)
(log,) = eval(task, model=model, display="none", log_dir="inspect-logs")
for message in log.samples[0].messages:
    print(f"{message.role}: {message.text}")
print("accuracy", log.results.scores[0].metrics["accuracy"].value)
