"""PEFT with real torch: a hidden adapter on its base, and a model that is loaded as one, work in a notebook. Run by prove.py, as an ordinary user."""
import json
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from carrel.environment import ExecutionMode, ModelConfig, Sandbox, SandboxConfig
from carrel.execution import create_notebook_session

LOOK = """
import glob, os, torch
def after(model, tokenizer):
    model.float()
    with torch.no_grad():
        return model(**tokenizer("The capital of France is", return_tensors="pt")).logits[0, -1]
adapted = after(model, tokenizer)
with model.disable_adapter():
    plain = after(model, tokenizer)
print(type(model).__name__, tokenizer.decode([plain.argmax()]), bool((adapted - plain).abs().max() > 1))
print(type(as_peft).__name__, tokenizer.decode([after(as_peft, tokenizer).argmax()]), list(as_peft.peft_config))
files = [p for p in glob.glob("/models/**", recursive=True) if p.endswith("config.json")]
print(model.peft_config, model.config, In, dict(os.environ), open("/proc/self/mountinfo").read(), files, [open(p).read() for p in files])
"""


def make_adapter(base, folder):
    """One whose answers differ: its weights are not the zeros that a fresh one begins with."""
    torch.manual_seed(1)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules=["q_proj", "v_proj"], r=4))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5)
    model.peft_config["default"].base_model_name_or_path = "zzowner/base-135m"
    model.save_pretrained(folder)


base, adapter = sys.argv[1], os.path.abspath("adapter")
make_adapter(base, adapter)
os.environ["CARREL_MODELS"] = f"zzowner/base-135m={base},zzowner/adapter={adapter},open/model={base}"
models = [ModelConfig("zzowner/adapter", hidden=True, is_peft=True, base_model="zzowner/base-135m"),
          ModelConfig("open/model", var_name="as_peft", load_as_peft=True)]
with Sandbox(SandboxConfig(execution_mode=ExecutionMode.NOTEBOOK, models=models)) as sandbox:
    session = create_notebook_session(sandbox, notebook_dir="out", name="adapters")
    said = session.exec(LOOK).stdout
    lines = said.splitlines()
    assert lines[0] == "PeftModelForCausalLM  Paris True" or lines[0] == "PeftModel  Paris True", said[:2000]
    assert lines[1] == "PeftModel  Paris ['default']", said[:2000]
    assert "zzowner" not in said + json.dumps(session.notebook.read()) + session.agent_words(), said[:2000]
print("done")
