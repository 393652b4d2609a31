"""Small BERTs in transformers' layout, with a vocabulary and texts for them."""

import json
import string
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import BertConfig, PreTrainedModel

WORDS = ["the", "cat", "sat", "on", "mat", "Über", "über", "uber", "##ing", "##er", ".", ",", "!", "猫"]
VOCAB = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *string.ascii_lowercase,
    *(f"##{letter}" for letter in string.ascii_lowercase),
    *WORDS,
]
CONFIG: dict[str, Any] = {
    "vocab_size": len(VOCAB),
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
}


def save_bert(folder: Path, kind: type[PreTrainedModel], seed: int = 0, **settings: Any) -> PreTrainedModel:
    """Saves a random model with tokenizer files as transformers does and returns it in float64, in eval mode."""
    model = kind(BertConfig(**CONFIG | {"attn_implementation": "eager"} | settings)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():  # fresh biases and norms are 0 and 1, and would hide a mix-up
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    model.save_pretrained(folder)
    save_vocab(folder)
    return model.double()


def save_vocab(folder: Path, **settings: Any) -> None:
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True} | settings))


def edit_json(path: Path, **changes: Any) -> None:
    """Sets keys of a JSON object, or removes those set to `...`."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


def edit_weights(folder: Path, **changes: Any) -> None:
    """Renames all weights by `rename`, then sets those in `add` and leaves out those that `drop` names the start of."""
    rename, drop = changes.get("rename", str), changes.get("drop", ())
    weights: dict[str, Tensor] = load_file(folder / "model.safetensors")
    weights = {rename(name): tensor for name, tensor in weights.items() if not name.startswith(tuple(drop))}
    save_file(weights | changes.get("add", {}), folder / "model.safetensors", metadata={"format": "pt"})


def text_inputs() -> dict[str, Tensor]:
    """Three pairs, two of them padded."""
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(11) < torch.tensor([11, 7, 2])[:, None]).long()
    ids = torch.randint(1, len(VOCAB), (3, 11), generator=generator)
    return {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(11) > 4).long().expand(3, -1),
    }
