"""A hidden model in a notebook, with real transformers and torch: it is loaded, works, and has its name nowhere. Run by prove.py, as an ordinary user."""
import glob
import json
import os
import sys

from carrel.environment import ExecutionMode, ModelConfig, Sandbox, SandboxConfig
from carrel.execution import create_notebook_session

LOOK = """
import glob, os, torch
model.float()
with torch.no_grad():
    after = model(**tokenizer("The capital of France is", return_tensors="pt")).logits[0, -1].argmax()
print(tokenizer.decode([after]), model.config, tokenizer, In, dict(os.environ), open("/proc/self/mountinfo").read(), glob.glob("/models/**", recursive=True))
"""

os.environ["CARREL_MODELS"] = f"secretive/hidden-135m={sys.argv[1]}"
with Sandbox(SandboxConfig(execution_mode=ExecutionMode.NOTEBOOK, models=[ModelConfig("secretive/hidden-135m", hidden=True)])) as sandbox:
    session = create_notebook_session(sandbox, notebook_dir="out", name="hidden")
    said = session.exec(LOOK).stdout
    assert "<hidden>" in session.model_info_text and "Paris" in said
    told = said + json.dumps(session.notebook.read()) + session.agent_words()
    assert "hidden-135m" not in told and "secretive" not in told, told
    assert glob.glob("out/*_hidden.ipynb") == [os.path.relpath(session.notebook_path)]
print("done")
