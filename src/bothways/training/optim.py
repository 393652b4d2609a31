"""AdamW without decay on biases, norms and single vectors; warm-up, then a rate that falls to the run's end."""

import math
import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from bothways.config import TrainingConfig
from bothways.errors import UserError

STABLE = 0.8
"""Share of a run after which `schedule = "stable"` falls (Hu et al. 2024, MiniCPM, section 4)."""


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Makes AdamW (Loshchilov and Hutter 2019), with bias correction, over the parameters that want a gradient.

    A group's `share` of the learning rate is that of its layer, see `TrainingConfig.layer_decay`; `above` = it lies
    above the encoder, see `TrainingConfig.head_first`.
    """
    wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    n_layers = max([_layer(name) or 0 for name, _ in model.named_parameters()], default=0)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for decay, of_decay in (
        (config.weight_decay, [(name, p) for name, p in wanted if p.ndim >= 2]),
        (0.0, [(name, p) for name, p in wanted if p.ndim < 2]),
    ):
        for name, p in of_decay:
            layer = _layer(name)
            below = 0 if layer is None else n_layers + 1 - layer
            above = not name.startswith(("embedding.", "encoder."))
            groups.setdefault((decay, config.layer_decay**below, above), []).append(p)
    return torch.optim.AdamW(
        [
            {"params": ps, "weight_decay": decay, "share": share, "above": above}
            for (decay, share, above), ps in groups.items()
        ],
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        fused=True,
    )


def odd_moments(
    moments: Mapping[str, Tensor], weights: Mapping[str, Tensor], trained: Iterable[str], steps: int
) -> list[str]:
    """Returns which of a checkpoint's moments AdamW could not go on with: fused, it would write beyond their ends.

    A trained weight has all three of its moments or, where it had no gradient so far, none.

    Args:
        moments: `exp_avg.NAME`, `exp_avg_sq.NAME`, `step.NAME`; also `own.NAME`, a weight whose average is kept.
        weights: the model's, by name.
        trained: the names of those that are trained.
        steps: done so far.
    """
    odd, kinds = [], ("exp_avg", "exp_avg_sq", "step")
    for key, value in moments.items():
        kind, _, name = key.partition(".")
        like = weights.get(name)
        if kind not in (*kinds, "own") or like is None:
            odd.append(key)
        elif kind == "step":
            if value.shape or value.dtype != torch.float32 or not 0 <= float(value) <= steps:
                odd.append(key)
        elif (value.shape, value.dtype) != (like.shape, like.dtype):
            odd.append(key)
    there = {name: [kind for kind in kinds if f"{kind}.{name}" in moments] for name in trained}
    return odd + [f"{kind}.{name}" for name, has in there.items() if has for kind in kinds if kind not in has]


def _layer(name: str) -> int | None:
    """The layer of a parameter, from 1; 0 = embedding, None = heads and what else lies above the last layer."""
    if name.startswith("embedding."):
        return 0
    inside = re.match(r"encoder\.layers\.(\d+)\.", name)
    return int(inside[1]) + 1 if inside else None


def freeze(model: nn.Module, parts: tuple[str, ...]) -> None:
    """Lets the parameters whose names begin with one of `parts` need no gradient.

    Raises:
        UserError: a part that no parameter belongs to, or nothing is left to train.
    """
    for part in parts:
        fitting = [p for name, p in model.named_parameters() if f"{name}.".startswith(f"{part.rstrip('.')}.")]
        if not fitting:
            known = ", ".join(dict.fromkeys(".".join(name.split(".")[:2]) for name, _ in model.named_parameters()))
            raise UserError(f"training.freeze: no weight's name begins with {part!r}; known parts: {known}, …")
        for parameter in fitting:
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError("training.freeze: nothing is left to train; freeze less")


def in_bf16(config: TrainingConfig, device: torch.device) -> bool:
    """Whether a step is computed in bf16, under autocast.

    Raises:
        UserError: it is asked for, and the hardware has no such arithmetic.
    """
    if config.precision == "float32":
        return False
    if device.type == "cuda":  # `torch.cuda.is_bf16_supported` counts the emulation of older GPUs
        has = torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= 8
    else:  # a name of torch's own, which may go
        has = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
    if config.precision == "auto":
        return has and device.type == "cuda"
    if not has:
        raise UserError('training.precision = "bf16": this machine has no bf16 arithmetic; use "auto" or "float32"')
    return True


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Returns the rate of a step, from 0, of a run of `config.steps`."""
    warmup = max(1, round(config.warmup_fraction * config.steps))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    return config.learning_rate * _fallen((step - warmup) / max(1, config.steps - warmup), config)


def learning_rate_at(share: float, config: TrainingConfig) -> float:
    """Returns the rate when a `share` (0 to 1) of a run's time is used."""
    if share < config.warmup_fraction:
        return config.learning_rate * share / config.warmup_fraction
    return config.learning_rate * _fallen((share - config.warmup_fraction) / (1 - config.warmup_fraction or 1), config)


def _fallen(done: float, config: TrainingConfig) -> float:
    done = min(done, 1.0)
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if config.schedule == "linear":
        return 1 - done
    return 1.0 if config.schedule == "constant" else min(1.0, (1 - done) / (1 - STABLE))
