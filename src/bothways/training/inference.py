"""Running a trained model over a source, without gradients, a batch at a time."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from bothways.heads import Batch, Number, real_moments
from bothways.model import Model
from bothways.training.parallel import join, put_together, share_of
from bothways.training.sampler import Source


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
    parts = []
    for part in stream(model, source, read, share_of(np.arange(len(source)), team), batch_size=batch_size):
        parts.append(part)
        if advance is not None:
            advance(len(part))
    return put_together(team.gather(np.concatenate(parts)), len(source))


def stream(
    model: Model,
    source: Source,
    read: Callable[[Model, Batch], Tensor],
    ids: Int[np.ndarray, " n"],
    *,
    batch_size: int = 32,
) -> Iterator[np.ndarray]:
    """Yields `read(model, batch)` of some samples in order, a batch at a time; for the arguments see `infer`."""
    device = join().device
    model.to(device).eval()
    for start in range(0, len(ids), batch_size):
        chosen = ids[start : start + batch_size]
        batch = {name: tensor.to(device) for name, tensor in source.batch(chosen, np.zeros_like(chosen)).items()}
        with torch.no_grad():
            found = read(model, batch).float().cpu().numpy()
        yield found


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


def number_values(model: Model, batch: Batch) -> Tensor:
    """Reads the number head: a number for each sequence in the unit of its labels, [B]."""
    head = model.heads["number"]
    assert isinstance(head, Number)
    return head.in_unit(model(batch, with_losses=False).predictions["number"])


def several_probabilities(model: Model, batch: Batch) -> Tensor:
    """Reads the head of several classes at once: the probability of each, [B k]; they do not add up to 1."""
    return model(batch, with_losses=False).predictions["several"].sigmoid()


def cls_features(model: Model, batch: Batch) -> Tensor:
    """Reads the encoder's [CLS], [B D]."""
    return model.features(batch)
