"""Occlusion: by how much a score falls when a channel or a moment is hidden (Zeiler, Fergus 2014, section 4.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bothways.model import Model

MOST_PARTS = 64
"""Channels, or moments, that are hidden one by one; of more, neighbours are hidden together."""
_TOGETHER = 32


@dataclass(frozen=True)
class Hidden:
    """What was hidden together, by place, and by how much the score fell (negative: it rose; NaN: there is none)."""

    places: list[int]
    fall: float


@dataclass(frozen=True)
class Occlusion:
    """A window's score with nothing hidden, and what hiding does to it; what is not real cannot be hidden."""

    score: float
    channels: list[Hidden]
    moments: list[Hidden]


@torch.no_grad()
def occlude(
    model: Model,
    batch: Mapping[str, Tensor],
    read: Callable[[Model, Mapping[str, Tensor]], Float[Tensor, " B"]],
    *,
    most_parts: int = MOST_PARTS,
) -> Occlusion:
    """Hides each channel in turn, then each moment, and asks the model again: at most 1 + 2 `most_parts` windows.

    A hidden patch is not real in `patch_mask`: it is no token, or where a token holds all channels its part is 0.

    Args:
        model: of EEG.
        batch: one window, see docs/architecture.md.
        read: the score of each window of a batch.
        most_parts: channels, and moments, to hide one by one.
    """
    model.eval()
    device = next(model.parameters()).device
    real: Bool[np.ndarray, "C N"] = batch["patch_mask"][0].cpu().numpy()
    channels, moments = (_parts(np.any(real, axis=axis), most_parts) for axis in (1, 0))
    masks = np.repeat(real[None], 1 + len(channels) + len(moments), axis=0)
    for i, places in enumerate(channels, 1):
        masks[i, places] = False
    for i, places in enumerate(moments, 1 + len(channels)):
        masks[i, :, places] = False
    scores = []
    for part in torch.from_numpy(masks).split(_TOGETHER):
        copies = {name: tensor.expand(len(part), *tensor.shape[1:]) for name, tensor in batch.items()}
        copies = {name: tensor.to(device) for name, tensor in (copies | {"patch_mask": part}).items()}
        scores.append(read(model, copies).double().cpu().numpy())
    score, *others = np.concatenate(scores).tolist()
    hidden = [Hidden(places, score - other) for places, other in zip([*channels, *moments], others)]
    return Occlusion(score, hidden[: len(channels)], hidden[len(channels) :])


def _parts(real: Bool[np.ndarray, " n"], most: int) -> Sequence[list[int]]:
    places = np.flatnonzero(real)
    return [part.tolist() for part in np.array_split(places, min(len(places), most))] if len(places) else []
