"""A model as one graph of tensors, in which nothing depends on where padding lies: for tools that trace models (ONNX).

The model itself drops padding and computes only rows that are read, so its shapes follow the values of a mask. Here
every position is computed, and masks are weights. `own_outputs` gives the same by the model's own way, to compare with.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bothways.config import ModelConfig
from bothways.encoder import Embedded, Layout, first_positions
from bothways.errors import UserError
from bothways.heads import (
    Batch,
    MaskedLanguageModel,
    NextSentence,
    Position,
    Sequence,
    Span,
    real_moments,
    real_positions,
)
from bothways.model import Model

LABELS = ("sequence", "several", "number", "position", "span")
"""Heads of which a model has one, what it was fine-tuned for."""
WORDS = ("mlm", "nsp")
"""Heads of BERT's pretraining, told together."""


def predicting(config: ModelConfig) -> tuple[str, ...]:
    """Returns the heads that are told: the one for labels, else those of BERT's pretraining; () = there is none.

    Raises:
        UserError: there are several for labels.
    """
    labels = tuple(name for name, head in config.heads.items() if head.kind in LABELS)
    if len(labels) > 1:
        raise UserError(f"expected a model with one head for labels, got {', '.join(labels)}; tell its vectors instead")
    return labels or tuple(name for name, head in config.heads.items() if head.kind in WORDS)


def input_names(config: ModelConfig) -> tuple[str, ...]:
    """Returns what of a batch a model reads."""
    if config.text is not None:
        return ("input_ids", "attention_mask", *(["token_type_ids"] if config.text.type_vocab_size else []))
    assert config.patches is not None
    scaled = {"spectrum", "amplitude"} & {*config.patches.features}
    return (
        "signals",
        *(["log_scale_uv"] if scaled else []),
        *(["positions"] if config.patches.tokens == "channel" else []),
        "patch_mask",
        *(["baseline"] if config.patches.baseline else []),
    )


class Padded(nn.Module):
    """A model's predictions, or its vectors, by name.

    Args:
        model: in eval mode.
        vectors: the encoder's vectors instead of what the heads say.

    Attributes:
        inputs: names of the tensors that `forward` takes, in order.
        heads: names of the heads that are told; () = vectors.

    Raises:
        UserError: see `predicting`.
    """

    def __init__(self, model: Model, *, vectors: bool = False) -> None:
        super().__init__()
        self.model = model
        self.inputs = input_names(model.config)
        self.heads = () if vectors else predicting(model.config)
        self.eval()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Returns the values of `outputs`."""
        return tuple(self.outputs(dict(zip(self.inputs, tensors))).values())

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Returns what the model says of a batch, by name; see `named_outputs`."""
        embedded: Embedded = self.model.embedding.embed(batch)  # type: ignore[operator]
        real = real_positions(embedded)
        hidden = self._encoded(embedded.hidden, real)
        if not self.heads:
            return _vectors(hidden, real, self.model.config)
        raw = {name: self._told(name, hidden, real, embedded, batch) for name in self.heads}
        return named_outputs(raw, self.model.config)

    def _encoded(self, hidden: Float[Tensor, "B L D"], real: Bool[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Returns what `Encoder.forward` gives, of every position; that of padding means nothing."""
        encoder = self.model.encoder
        everywhere = Layout(hidden.shape[0], hidden.shape[1], None)
        flat, below = everywhere.flatten(hidden), []
        for layer in encoder.layers:
            flat = layer(flat, everywhere, real)
            below.append(flat)
        if encoder.config.mixed_layers > 1:
            flat = torch.stack(below[-encoder.config.mixed_layers :]).mean(0)
        return everywhere.pad(encoder.final_norm(flat))

    def _told(
        self,
        name: str,
        hidden: Float[Tensor, "B L D"],
        real: Bool[Tensor, "B L"],
        embedded: Embedded,
        batch: Batch,
    ) -> Tensor:
        """Returns a head's scores, padded: of positions NaN, and of spans minus infinity where there is none."""
        head = self.model.heads[name]
        if isinstance(head, Sequence):
            return head.linear(_pooled(head, hidden, real, self.model.pooler))
        if isinstance(head, NextSentence):
            return head.linear(self.model.pooler(hidden[:, 0]))
        if isinstance(head, Position | Span):
            values, there = _by_moment(hidden, real, embedded, batch)
            missing = torch.nan if isinstance(head, Position) else -torch.inf
            scores = _each(head.linear, values).masked_fill(~there[..., None], missing)  # [B M k]
            return scores if isinstance(head, Position) else scores.transpose(1, 2)
        assert isinstance(head, MaskedLanguageModel)
        return _each(lambda rows: head.scores(rows, embedded), hidden).masked_fill(~real[..., None], torch.nan)


def _each(
    layer: Callable[[Float[Tensor, "T D"]], Float[Tensor, "T k"]], padded: Float[Tensor, "B L D"]
) -> Float[Tensor, "B L k"]:
    """Maps each position by itself, on flat rows: a product with a matrix that stays as it is, not transposed."""
    return layer(padded.flatten(0, 1)).unflatten(0, padded.shape[:2])


def _content_mean(hidden: Float[Tensor, "B L D"], content: Bool[Tensor, "B L"]) -> Float[Tensor, "B D"]:
    weights = content.to(hidden.dtype) / content.sum(1, keepdim=True).clamp_min(1)
    return (weights[:, None] @ hidden).squeeze(1)


def _pooled(
    head: Sequence, hidden: Float[Tensor, "B L D"], real: Bool[Tensor, "B L"], pooler: nn.Module
) -> Float[Tensor, "B D"]:
    """Returns what `Sequence.pool` gives."""
    if head.config.pool == "cls":
        return pooler(hidden[:, 0])
    content = real & ~first_positions(real)
    if head.config.pool == "mean":
        return _content_mean(hidden, content)
    scores = head.query(hidden).squeeze(2) / hidden.shape[2] ** 0.5
    least = torch.finfo(scores.dtype).min  # not minus infinity, whose softmax is NaN where nothing is real
    weights = scores.masked_fill(~content, least).softmax(dim=1) * content
    return (weights[:, None] @ hidden).squeeze(1)


def _by_moment(
    hidden: Float[Tensor, "B L D"], real: Bool[Tensor, "B L"], embedded: Embedded, batch: Batch
) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"]]:
    """Returns the mean of each moment's real positions, and which moments have one."""
    if embedded.moments is None:
        return hidden, real
    moments = torch.arange(batch["patch_mask"].shape[2] + 1, device=hidden.device)
    belongs = (moments[:, None] == embedded.moments) & real[:, None]  # [B M L]
    counts = belongs.sum(2, keepdim=True)  # [B M 1]
    return belongs.to(hidden.dtype) @ hidden / counts.clamp_min(1), counts.squeeze(2) > 0


def _vectors(hidden: Float[Tensor, "B L D"], real: Bool[Tensor, "B L"], config: ModelConfig) -> dict[str, Tensor]:
    """Returns `cls` and `mean`: of text over all tokens (as `text.embed`), of EEG without [CLS]."""
    counted = real if config.text is not None else real & ~first_positions(real)
    return {"cls": hidden[:, 0], "mean": _content_mean(hidden, counted)}


def named_outputs(raw: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns heads' scores as a user knows them.

    Args:
        raw: of each head its scores: [B k], of positions [B M k], of spans [B 2 M], of words [B L V].
        config: the model's.

    Returns:
        Of classes `logits` and `probabilities` [B k] (several at once: each by itself); of a number `standardised` [B]
        and, in the unit of its labels and in float64, `value` [B]; of tags and moments both [B L k] (of EEG without
        [CLS], [B N k]; NaN = nothing is real there); of spans `start_logits`, `end_logits` and `…_probabilities` [B M];
        of words `logits` [B L V]; of next sentences `next_sentence_logits` [B 2].
    """
    found: dict[str, Tensor] = {}
    for name, scores in raw.items():
        head = config.heads[name]
        if head.kind == "number":
            found["standardised"] = scores.squeeze(1)
            found["value"] = found["standardised"].double() * head.sd + head.mean
        elif head.kind == "span":
            ends = {"start": scores[:, 0], "end": scores[:, 1]}
            found |= {f"{end}_logits": one for end, one in ends.items()}
            found |= {f"{end}_probabilities": one.softmax(dim=1) for end, one in ends.items()}
        elif head.kind == "nsp":
            found["next_sentence_logits"] = scores
        else:
            of_eeg = head.kind == "position" and config.text is None
            found["logits"] = scores[:, 1:] if of_eeg else scores
            if head.kind != "mlm":
                logits = found["logits"]
                found["probabilities"] = logits.sigmoid() if head.kind == "several" else logits.softmax(dim=-1)
    return found


@torch.inference_mode()
def own_outputs(model: Model, batch: Batch, *, vectors: bool = False) -> dict[str, Tensor]:
    """Returns what `Padded.outputs` gives, computed as the model does it: without padding.

    Args:
        model: in eval mode.
        batch: as its front end wants it, with an `attention_mask` where it is one of text.
        vectors: see `Padded`.
    """
    heads = () if vectors else predicting(model.config)
    if not heads:
        embedded = model.embedding(batch)
        rows = model.encoder(embedded.hidden, embedded.attention_mask)
        hidden = _scattered(rows.values, rows.selected, 0.0)
        return _vectors(hidden, rows.selected, model.config)
    output = model(batch, with_losses=False)
    raw = {}
    for name in heads:
        raw[name], kind = output.predictions[name], model.config.heads[name].kind
        if kind in ("position", "mlm"):
            there = real_moments(output.embedded) if kind == "position" else real_positions(output.embedded)
            raw[name] = _scattered(raw[name], there, torch.nan)
    return named_outputs(raw, model.config)


def _scattered(rows: Float[Tensor, "R F"], there: Bool[Tensor, "B M"], elsewhere: float) -> Float[Tensor, "B M F"]:
    padded = rows.new_full((*there.shape, rows.shape[1]), elsewhere)
    padded[there] = rows
    return padded
