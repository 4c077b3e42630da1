"""Code that loads a sandbox's models into a kernel. It has the models' paths, and of a hidden one nothing else."""
from __future__ import annotations

from typing import List

from ..environment.config import ModelConfig, ModelHandle


def tokenizer_var(handle: ModelHandle) -> str:
    return ModelConfig(handle.name, var_name=handle.var_name).tokenizer_var


def loading_code(handle: ModelHandle) -> str:
    var, tokenizer = handle.var_name, tokenizer_var(handle)
    path = handle.base_model_path if handle.is_peft and handle.base_model_path else handle.volume_path
    shown = "model" if handle.hidden else handle.name
    lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer",
             f"{var} = AutoModelForCausalLM.from_pretrained({path!r}, device_map='auto', torch_dtype='auto')"]
    if handle.is_peft:
        lines += ["from peft import PeftModel", f"{var} = PeftModel.from_pretrained({var}, {handle.volume_path!r})"]
    elif handle.load_as_peft:
        lines += ["from peft import LoraConfig, PeftModel", f"{var} = PeftModel({var}, LoraConfig(), adapter_name='default')",
                  f"{var}._hf_peft_config_loaded = True"]
    lines += [f"{tokenizer} = AutoTokenizer.from_pretrained({path!r})", f"{var}.config._name_or_path = {shown!r}",
              f"{tokenizer}.name_or_path = {shown!r}"]
    if handle.is_peft and handle.hidden:
        lines += [f"for _config in {var}.peft_config.values():", "    _config.base_model_name_or_path = 'model'"]
    return "\n".join(lines) + "\n"


def models_text(handles: List[ModelHandle]) -> str:
    """The description of loaded models for a prompt; "" if there are none."""
    if not handles:
        return ""
    lines = ["### Pre-loaded Models", "The following models are already loaded in the kernel:"]
    for handle in handles:
        lines += [f"- `{handle.var_name}`: {'<hidden>' if handle.hidden else handle.name}", f"- `{tokenizer_var(handle)}`: Tokenizer"]
    return "\n".join([*lines, "", "**Do NOT reload these models - they are already available.**", ""])
