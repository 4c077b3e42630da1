"""What the agent may ask of the model. This file runs in the sandbox, where the model is; the agent never sees it."""
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

path = get_model_path("HuggingFaceTB/SmolLM2-135M-Instruct")        # there without an import, like expose
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path)                  # once; it stays loaded between calls
model.eval()


@expose
def get_model_info() -> dict:
    """The model's size: layers, width, words, parameters."""
    config = model.config
    return {"layers": config.num_hidden_layers, "width": config.hidden_size, "vocabulary": config.vocab_size,
            "parameters": sum(p.numel() for p in model.parameters())}


@expose
def next_words(text: str, count: int = 5) -> list:
    """The most likely next words after a text, with their probabilities."""
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0, -1]
    best = torch.softmax(logits.float(), -1).topk(count)
    return [{"word": tokenizer.decode([i]), "probability": round(p, 4)} for i, p in zip(best.indices.tolist(), best.values.tolist())]


def weights():
    """Without @expose: it cannot be called from outside."""
    return model.state_dict()
