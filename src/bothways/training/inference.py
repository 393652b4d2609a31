"""Running a trained model over a source, without gradients, a batch at a time."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bothways.heads import Batch, real_moments
from bothways.model import Model
from bothways.training.parallel import join, put_together, share_of
from bothways.training.sampler import Source


@torch.no_grad()
def infer(
    model: Model,
    source: Source,
    read: Callable[[Model, Batch], Tensor],
    *,
    batch_size: int = 32,
    advance: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Returns `read(model, batch)` of all samples in order, joined along the first axis.

    Of several processes each takes a share, and each gets the whole; every sample counts once.

    Args:
        model: moved to the accelerator, where there is one, and put in eval mode.
        source: the samples.
        read: what is wanted of a batch, [B …].
        batch_size: samples at a time; memory is bounded by it.
        advance: told the number of finished samples after each batch.
    """
    team = join()
    model.to(team.device).eval()
    mine = share_of(np.arange(len(source)), team)
    parts = []
    for start in range(0, len(mine), batch_size):
        ids = mine[start : start + batch_size]
        batch = {name: tensor.to(team.device) for name, tensor in source.batch(ids, np.zeros_like(ids)).items()}
        parts.append(read(model, batch).float().cpu().numpy())
        if advance is not None:
            advance(len(ids))
    return put_together(team.gather(np.concatenate(parts)), len(source))


def class_probabilities(model: Model, batch: Batch) -> Tensor:
    """Reads the sequence head: probability of each class, [B k]."""
    return model(batch, with_losses=False).predictions["sequence"].softmax(dim=1)


def moment_probabilities(model: Model, batch: Batch) -> Tensor:
    """Reads the position head: probability of each class at each moment but [CLS], [B N k]; NaN where none is real."""
    output = model(batch, with_losses=False)
    there = real_moments(output.embedded)  # [B M]
    scores = output.predictions["position"]  # [R k]
    probabilities = scores.new_full((*there.shape, scores.shape[1]), torch.nan)
    probabilities[there] = scores.softmax(dim=1)
    return probabilities[:, 1:]


def span_probabilities(model: Model, batch: Batch) -> Tensor:
    """Reads the span head: probability of each moment, [CLS] first, to be the start and the end, [B 2 M]."""
    return model(batch, with_losses=False).predictions["span"].softmax(dim=2)


def cls_features(model: Model, batch: Batch) -> Tensor:
    """Reads the encoder's [CLS], [B D]."""
    return model.features(batch)
