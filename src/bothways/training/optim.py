"""AdamW without decay on biases, norms and single vectors; warm-up, then a cosine that ends with the run."""

import math

import torch
from torch import nn

from bothways.config import TrainingConfig


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Makes AdamW (Loshchilov and Hutter 2019), with bias correction, over the parameters that want a gradient."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in wanted if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.beta2), fused=True)


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Returns the rate of a step, from 0: linear warm-up, then a cosine that reaches 0 when the steps are done."""
    warmup = max(1, round(config.warmup_fraction * config.steps))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, config.steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
