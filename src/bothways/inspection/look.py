"""A whole pass with everything in it caught: taps, predictions, losses."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
    """Taps by their names, and the outputs of layers that have none."""
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
    predictions: dict[str, Tensor] = {}
    losses: dict[str, Tensor] = {}
    with _layers(model) as layers:
        with trace(model, names) as taps:
            embedded: Embedded = model.embedding(batch)
            rows: Rows = model.encoder(embedded.hidden, embedded.attention_mask)
        pooled = model.pooler(rows.cls())
        for name, head in model.heads.items():
            assert isinstance(head, Head)
            if "reconstruction" in head.config.kind and embedded.masked is None:
                continue
            predictions[name] = head(rows, embedded, pooled)
            needed = _TRUTH.get(head.config.kind)
            if needed is None or needed in batch:
                losses[name] = head.loss(predictions[name], embedded, batch).mean()
    return Look(layers | taps, embedded, rows, pooled, predictions, losses)


_TRUTH = {
    "mlm": "mlm_labels",
    "nsp": "nsp_labels",
    "sequence": "labels",
    "number": "targets",
    "several": "targets",
    "position": "position_labels",
    "span": "span_labels",
}
"""Kind of head -> the tensor of a batch that its loss needs."""


@contextmanager
def _layers(model: Model) -> Iterator[dict[str, Tensor]]:
    """Catches what the layers without a tap give: norms as `<name>.output`, the heads' and pooler's own layers."""
    caught: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name, module in model.named_modules():
            is_norm = isinstance(module, nn.LayerNorm)
            if is_norm or (isinstance(module, nn.Linear) and name.startswith(("heads.", "pooler."))):

                def keep(module: nn.Module, inputs: object, output: Tensor, name: str = name) -> None:
                    caught[f"{name}.output" if isinstance(module, nn.LayerNorm) else name] = output

                stack.callback(module.register_forward_hook(keep).remove)
        yield caught
