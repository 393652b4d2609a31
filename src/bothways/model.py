"""Model = embedding + encoder + a dict of heads; its loss is the weighted sum of the heads' losses."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bothways.config import ModelConfig
from bothways.encoder import Embedded, Encoder, Rows, first_positions
from bothways.errors import UserError
from bothways.heads import Batch, Head, LossSum, Pooler, build_head, content_mean, real_positions


@dataclass(frozen=True)
class Output:
    """What one pass gives."""

    predictions: dict[str, Tensor]
    losses: dict[str, LossSum]
    embedded: Embedded
    rows: Rows


class Model(nn.Module):
    """One bidirectional encoder between a front end and its heads.

    Args:
        config: sizes and heads.
        embedding: the front end, batch -> `Embedded`; made by the `eeg` or the `text` room.
    """

    load_report: "LoadReport | None" = None
    """What `load_weights` filled; None where nothing was loaded."""

    def __init__(self, config: ModelConfig, embedding: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.encoder = Encoder(config.encoder)
        self.pooler = Pooler(config.encoder.hidden_size) if config.pooler else nn.Identity()
        vocab_size = config.text.vocab_size if config.text else None
        self.heads = nn.ModuleDict(
            {name: build_head(head, config.encoder, vocab_size) for name, head in config.heads.items()}
        )

    def forward(self, batch: Batch, *, with_losses: bool = True) -> Output:
        """Runs all heads; only the rows that one of them reads are computed in the last block."""
        embedded: Embedded = self.embedding(batch)
        # One more row than the heads need is cheap, and [CLS] is always there to be looked at.
        wanted = _first(embedded)
        for head in self._heads().values():
            wanted = wanted | head.rows(embedded)
        rows = self.encoder(embedded.hidden, embedded.attention_mask, wanted)
        pooled = self.pooler(rows.cls())
        predictions, losses = {}, {}
        for name, head in self._heads().items():
            predictions[name] = head(rows, embedded, pooled)
            if with_losses:
                losses[name] = head.loss(predictions[name], embedded, batch)
        return Output(predictions, losses, embedded, rows)

    def features(self, batch: Batch, pool: Literal["cls", "mean", "both"] = "cls") -> Float[Tensor, "B F"]:
        """Returns one vector of the encoder for each sequence, without pooler and heads; nothing may be masked.

        Args:
            batch: as the front end wants it.
            pool: `cls` = [CLS]; `mean` = the mean of the real positions besides it; `both` = side by side, F = 2 D.
        """
        embedded: Embedded = self.embedding(batch)
        if pool == "cls":
            return self.encoder(embedded.hidden, embedded.attention_mask, _first(embedded)).cls()
        rows = self.encoder(embedded.hidden, embedded.attention_mask, real_positions(embedded))
        mean = content_mean(rows, embedded)
        return torch.cat([rows.cls(), mean], dim=1) if pool == "both" else mean

    def _heads(self) -> dict[str, Head]:
        return {name: head for name, head in self.heads.items() if isinstance(head, Head)}

    def loss(self, losses: Mapping[str, LossSum]) -> Float[Tensor, ""]:
        """Returns the weighted sum of the heads' mean losses."""
        terms = [self.config.heads[name].weight * loss.mean() for name, loss in losses.items()]
        return torch.stack(terms).sum()

    @torch.no_grad()
    def counts(self, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        """Returns what each head's loss of a batch is divided by, without running the encoder."""
        embedded: Embedded = self.embedding(batch)
        return {name: head.count(embedded, batch) for name, head in self._heads().items()}

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draws all weights anew from `seed` alone: normal with BERT's SD, biases 0, norms 1.

        Front ends with constants of their own (fixed frequencies, statistics) keep those: they are buffers.
        """
        generator = torch.Generator().manual_seed(seed)
        sd = self.config.encoder.initializer_range
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
                continue
            for name, parameter in module.named_parameters(recurse=False):
                if name.endswith("bias"):
                    parameter.zero_()
                else:
                    draw = torch.empty(parameter.shape, dtype=torch.float32)
                    parameter.copy_(draw.normal_(0, sd, generator=generator))
            padding = getattr(module, "padding_idx", None)
            if isinstance(module, nn.Embedding) and padding is not None:
                module.weight[padding].zero_()


def _first(embedded: Embedded) -> Bool[Tensor, "B L"]:
    return first_positions(torch.ones_like(embedded.hidden[..., 0], dtype=torch.bool))


@dataclass
class LoadReport:
    """What a set of weights filled in a model, and what it did not."""

    matched: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """In the model, not in the weights: drawn anew."""
    new_heads: list[str] = field(default_factory=list)
    """Heads of which the weights hold nothing: their tensors are missing as expected."""
    unexpected: list[str] = field(default_factory=list)
    """In the weights, not in the model: not used."""
    reshaped: list[str] = field(default_factory=list)
    """In both, in different shapes: not used, drawn anew."""
    other_classes: list[str] = field(default_factory=list)
    """In both, of a head that tells other classes apart: not used, drawn anew."""
    names: str = ""
    """Whose names the weights had, and were renamed; "" = PyTorch's."""
    body_matched: int = 0
    body_total: int = 0

    @property
    def body_share(self) -> float:
        """Share of the embedding's and encoder's tensors that were filled."""
        return self.body_matched / max(self.body_total, 1)

    def line(self) -> str:
        """Returns the report as one line."""
        parts = [f"loaded {len(self.matched)} tensors ({self.body_share:.0%} of embedding and encoder)"]
        parts += [f"renamed from {self.names}"] * bool(self.names)
        parts += [
            f"{key.replace('_', ' ')}: {', '.join(names)}"
            for key, names in self.as_dict().items()
            if names and key != "matched"
        ]
        return "; ".join(parts)

    def as_dict(self) -> dict[str, list[str]]:
        """Returns the names by what became of them."""
        return {key: value for key, value in vars(self).items() if isinstance(value, list)}


def outline(config: ModelConfig, build_embedding: Callable[[ModelConfig], nn.Module], source: str) -> Model:
    """Builds a model that takes no memory (on the device `meta`), to compare its sizes with those of weights.

    Raises:
        UserError: nothing can have these sizes.
    """
    try:
        with torch.device("meta"):
            return Model(config, build_embedding(config))
    except (ArithmeticError, AssertionError, MemoryError, RuntimeError, TypeError, ValueError) as problem:
        why = str(problem).partition("\n")[0]
        raise UserError(f"{source}: no model can be built from it ({why}); restore the file") from None


def check_sizes(
    config: ModelConfig,
    build_embedding: Callable[[ModelConfig], nn.Module],
    weights: Mapping[str, Tensor],
    source: str,
    *,
    partial: bool = False,
) -> LoadReport:
    """Compares a config with the weights beside it before any memory is taken: a damaged config states any size.

    Args:
        config: as read.
        build_embedding: makes the front end.
        weights: by our names; they may be on `meta`.
        source: the config's file, for messages.
        partial: see `load_weights`; that the sizes fit in memory must be known then.

    Raises:
        UserError: see `load_weights`.
    """
    layers = {name.split(".")[2] for name in weights if name.startswith("encoder.layers.")}
    heads = {name.split(".")[1] for name in weights if name.startswith("heads.")}
    if not layers:
        raise UserError(f"{source}: {_misnamed(weights)}")
    for key, stated, there in (
        ("encoder.num_hidden_layers", config.encoder.num_hidden_layers, len(layers)),
        ("heads", len(config.heads), len(heads)),
    ):
        if stated > there and not partial:
            raise UserError(f"{source}: {key}: expected {there} as in the weights, got {stated}; restore the folder")
    return compare(outline(config, build_embedding, source), weights, partial=partial)


def _misnamed(weights: Mapping[str, Tensor]) -> str:
    """Says that the names in weights are not those of a model, and what a wrapper has put before them."""
    odd = [name for name in weights if not re.match(r"(embedding|encoder\.(layers|final_norm)|pooler|heads)\.", name)]
    shown = ", ".join(" ".join(name[:80].split()) for name in odd[:2])
    found = (re.search(r"\b(bert|embeddings?|encoder|pooler|heads|cls|classifier)\.", name) for name in odd)
    before = {one.string[: one.start()][:80] for one in found if one}
    wrapped = len(before) == 1 and "" not in before
    return f"expected names such as encoder.layers.0.… in the weights, got {shown or 'none of them'}; " + (
        f"save the model without the wrapper that names it {before.pop()}…" if wrapped else "restore the weights"
    )


def compare(
    model: Model, weights: Mapping[str, Tensor], *, partial: bool = False, anew: Collection[str] = ()
) -> LoadReport:
    """Says what of a model weights would fill; names, shapes and dtypes matter, so both may be on `meta`.

    Raises:
        UserError: see `load_weights`.
    """
    report = LoadReport()
    own = model.state_dict()
    drawn = tuple(f"heads.{head}." for head in anew)
    for name, tensor in own.items():
        if name not in weights:
            report.missing.append(name)
        elif name.startswith(drawn):
            report.other_classes.append(name)
        elif weights[name].shape != tensor.shape:
            report.reshaped.append(name)
        elif weights[name].is_floating_point() != tensor.is_floating_point():
            got, wanted = (str(one.dtype).removeprefix("torch.") for one in (weights[name], tensor))
            raise UserError(f"weight {name}: expected {wanted}, got {got}; load a checkpoint that is not quantised")
        else:
            report.matched.append(name)
    report.unexpected = [name for name in weights if name not in own]
    if not report.matched and not report.reshaped:
        raise UserError(_misnamed(weights))
    held = {name.split(".")[1] for name in weights if name.startswith("heads.")}
    report.new_heads = [name for name in model.heads if name not in held]
    body = [name for name in own if name.startswith(("embedding.", "encoder."))]
    report.body_total = len(body)
    report.body_matched = len(set(body) & set(report.matched))
    lacking = [name for name in body if name not in report.matched]
    if lacking and not partial:
        raise UserError(
            f"expected all {len(body)} tensors of embedding and encoder in the weights, {len(lacking)} are missing "
            f"or of another shape (first: {lacking[0]}); load a checkpoint of the same architecture"
        )
    return report


@torch.no_grad()
def load_weights(
    model: Model, weights: Mapping[str, Tensor], *, partial: bool = False, anew: Collection[str] = ()
) -> LoadReport:
    """Copies weights into a model by name and says what fitted; the model keeps the report as `load_report`.

    Heads may be missing (a new task) or left over (the pretraining heads); the embedding and the encoder must be
    filled completely unless `partial`. The heads in `anew` are not filled, whatever the weights hold of that name.

    Raises:
        UserError: a tensor of the embedding or encoder is missing or has another shape; one is of whole numbers, or
            holds NaN; all numbers are 0; no name fits.
    """
    report = compare(model, weights, partial=partial, anew=anew)
    own = model.state_dict()
    for name in report.matched:
        if not bool(torch.isfinite(weights[name]).all()):
            raise UserError(f"weight {name}: expected finite numbers, got NaN or infinity; the checkpoint is damaged")
    if not any(bool(weights[name].any()) for name in report.matched):
        raise UserError("expected weights, got zeros only; the checkpoint was not written whole, take an earlier one")
    for name in report.matched:
        own[name].copy_(weights[name])
    model.load_report = report
    return report
