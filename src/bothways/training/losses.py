"""What a model's heads lose on samples of a source."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from bothways.model import Model
from bothways.training.parallel import join
from bothways.training.sampler import Source

BATCH = 32
"""Samples at a time."""


@torch.no_grad()
def mean_losses(
    model: Model,
    source: Source,
    ids: Int[np.ndarray, " n"],
    epochs: Int[np.ndarray, " n"],
) -> dict[str, dict[str, Any]]:
    """Returns each head's mean loss: head -> `loss` (None of nothing), `accuracy` (if it has one), `n` (what counts).

    Args:
        model: in eval mode.
        source: where the samples are.
        ids: which of them.
        epochs: and as they are in which epoch.
    """
    device = join().device
    model.to(device)
    sums: dict[str, list[torch.Tensor]] = {}
    for first in range(0, len(ids), BATCH):
        here = slice(first, first + BATCH)
        batch = {name: tensor.to(device) for name, tensor in source.batch(ids[here], epochs[here]).items()}
        for name, loss in model(batch).losses.items():
            hits = torch.full_like(loss.sum, torch.nan) if loss.correct is None else loss.correct
            sums.setdefault(name, []).append(torch.stack([loss.sum, loss.count, hits]).double())
    found = {}
    for name, parts in sums.items():
        total, n, hits_of_all = torch.stack(parts).sum(0).tolist()
        accuracy = {"accuracy": hits_of_all / n} if n and not np.isnan(hits_of_all) else {}
        found[name] = {"loss": total / n if n else None, **accuracy, "n": round(n)}
    return found
