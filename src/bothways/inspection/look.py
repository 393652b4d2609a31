"""A whole pass with everything in it caught: taps, predictions, losses."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bothways.encoder import Embedded, Rows
from bothways.heads import Head
from bothways.inspection.trace import tap_names, trace
from bothways.model import Model


@dataclass(frozen=True)
class Look:
    """What a pass held; all rows of the last block too, whatever the heads read."""

    taps: dict[str, Tensor]
    embedded: Embedded
    rows: Rows
    pooled: Tensor
    """[CLS], through the pooler where the model has one [B D]."""
    predictions: dict[str, Tensor]
    losses: dict[str, Tensor]
    """Means, of the heads whose truth the batch holds."""


@torch.no_grad()
def look(model: Model, batch: Mapping[str, Tensor]) -> Look:
    """Runs a model in eval mode on a batch.

    Heads that rebuild what is hidden are left out where the batch hides nothing.

    Args:
        model: in the precision that the batch has.
        batch: as the model's front end wants it; see docs/architecture.md.
    """
    model.eval()
    # Layers that a form lacks are identities too; what goes through them has another tap's name already.
    names = [name for name in tap_names(model) if name.split(".")[-1] not in ("norm", "final_norm", "pooler")]
    with trace(model, names) as taps:
        embedded: Embedded = model.embedding(batch)
        rows: Rows = model.encoder(embedded.hidden, embedded.attention_mask)
    pooled = model.pooler(rows.cls())
    predictions: dict[str, Tensor] = {}
    losses: dict[str, Tensor] = {}
    for name, head in _heads(model.heads).items():
        if "reconstruction" in head.config.kind and embedded.masked is None:
            continue
        predictions[name] = head(rows, embedded, pooled)
        needed = _TRUTH.get(head.config.kind)
        if needed is None or needed in batch:
            losses[name] = head.loss(predictions[name], embedded, batch).mean()
    return Look(dict(taps), embedded, rows, pooled, predictions, losses)


_TRUTH = {
    "mlm": "mlm_labels",
    "nsp": "nsp_labels",
    "sequence": "labels",
    "position": "position_labels",
    "span": "span_labels",
}
"""Kind of head -> the tensor of a batch that its loss needs."""


def _heads(heads: nn.ModuleDict) -> dict[str, Head]:
    return {name: head for name, head in heads.items() if isinstance(head, Head)}
