"""Draws with torch what the second reference draws; run as a program it writes the walkthrough's data file."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

FILE = Path(__file__).resolve().parent.parent / "src" / "bothways" / "walkthrough" / "torch_draws.npz"


def toy() -> dict[str, torch.Tensor]:
    """Four tokens of eight numbers, and the layers of one head."""
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8)
    q, k = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
    torch.manual_seed(1)
    for layer in (q, k):
        nn.init.normal_(layer.weight, std=0.1)
    return {"x": x[0], "q.weight": q.weight, "k.weight": k.weight}


def module() -> dict[str, torch.Tensor]:
    """Self-attention alone, and what goes into it."""
    torch.manual_seed(42)
    layers = {"qkv": nn.Linear(32, 96, bias=False), "output": nn.Linear(32, 32)}
    return _named({f"attention.{name}": layer for name, layer in layers.items()}) | {"x": torch.randn(2, 6, 32)}


def classifier(seed: int = 42) -> dict[str, torch.Tensor]:
    """All weights of the classifier, by our names, in the reference's order; the generator stands behind them."""
    torch.manual_seed(seed)
    layers: dict[str, nn.Module] = {"embedding.word": nn.Embedding(100, 32), "embedding.position": nn.Embedding(16, 32)}
    for i in range(2):
        layers |= {
            f"encoder.layers.{i}.attention.qkv": nn.Linear(32, 96, bias=False),
            f"encoder.layers.{i}.attention.output": nn.Linear(32, 32),
            f"encoder.layers.{i}.feed_forward.up": nn.Linear(32, 128),
            f"encoder.layers.{i}.feed_forward.down": nn.Linear(128, 32),
            f"encoder.layers.{i}.norm_1": nn.LayerNorm(32),
            f"encoder.layers.{i}.norm_2": nn.LayerNorm(32),
        }
    return _named(layers | {"heads.sequence.linear": nn.Linear(32, 2)})


def data(seed: int | None = 99) -> dict[str, torch.Tensor]:
    """Fifty sequences of ten tokens with their labels; seed None goes on where the generator stands."""
    if seed is not None:
        torch.manual_seed(seed)
    return {"ids": torch.randint(0, 100, (50, 10)), "labels": torch.randint(0, 2, (50,))}


def _named(layers: dict[str, nn.Module]) -> dict[str, torch.Tensor]:
    return {f"{at}.{name}": value for at, layer in layers.items() for name, value in layer.named_parameters()}


def draws() -> dict[str, np.ndarray]:
    """Everything that the data file holds."""
    groups = {"toy": toy(), "module": module(), "classifier": classifier(), "data": data()}
    return {f"{group}.{name}": value.detach().numpy() for group, kept in groups.items() for name, value in kept.items()}


if __name__ == "__main__":
    np.savez_compressed(FILE, **draws())
