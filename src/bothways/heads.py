"""What is read from the encoder: reconstruction, MLM, NSP, a label for the sequence or each position, a span.

Every head says which rows of the encoder's output it reads, turns them into a prediction, and gives its loss as a
sum and a count, so that a batch split over steps or processes has the loss of the whole batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from bothways.config import EncoderConfig, HeadConfig
from bothways.encoder import ACTIVATIONS, Embedded, Rows, first_positions

Batch = Mapping[str, Tensor]
IGNORED = -100
"""The label of a position or sequence that has none."""


@dataclass(frozen=True)
class LossSum:
    """A loss before division: the sum over `count` items."""

    sum: Float[Tensor, ""]
    count: Float[Tensor, ""]
    correct: Float[Tensor, ""] | None = None
    """How many of the items the highest score names, where the head says so."""

    def mean(self) -> Float[Tensor, ""]:
        """Returns the sum divided by the count; 0 where nothing counts, so that nothing masked is not NaN."""
        return self.sum / torch.where(self.count > 0, self.count, 1)

    def accuracy(self) -> float | None:
        """Returns the share of the items that are correct; none where nothing counts, or the head does not say."""
        return None if self.correct is None or not self.count > 0 else float(self.correct / self.count)


class Pooler(nn.Module):
    """BERT's dense layer and tanh on [CLS] (google-research/bert, modeling.py)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(size, size)

    def forward(self, cls: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Maps the [CLS] vector of each sequence."""
        return self.dense(cls).tanh()


class Head(nn.Module):
    """Base of the heads."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns the positions that the head reads."""
        return first_positions(real_positions(embedded))

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Tensor:
        """Predicts from the encoder's output; `pooled` is [CLS], through the pooler where the model has one."""
        raise NotImplementedError

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns what the sum of the losses is divided by; known before anything is predicted."""
        raise NotImplementedError

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Compares a prediction with what the batch holds."""
        raise NotImplementedError


def real_positions(embedded: Embedded) -> Bool[Tensor, "B L"]:
    """Returns which positions are no padding."""
    mask = embedded.attention_mask
    return torch.ones_like(embedded.hidden[..., 0], dtype=torch.bool) if mask is None else mask


def _masked(embedded: Embedded) -> Bool[Tensor, "B L"]:
    if embedded.masked is None:
        raise ValueError("this head rebuilds hidden positions, but the batch hides none; give it masked positions")
    return embedded.masked


def content_mean(rows: Rows, embedded: Embedded) -> Float[Tensor, "B D"]:
    """Returns the mean of each sequence's real positions without [CLS], which is no content; 0 where there is none."""
    content = real_positions(embedded) & ~first_positions(real_positions(embedded))
    sequence = content.nonzero()[:, 0]
    sums = torch.zeros_like(embedded.hidden[:, 0]).index_add(0, sequence, rows.take(content))
    return sums / content.sum(1, keepdim=True).clamp_min(1)


class Reconstruction(Head):
    """Rebuilds the content of the masked positions from their own output: [R D] -> [R F]."""

    def __init__(self, config: HeadConfig, encoder: EncoderConfig) -> None:
        super().__init__(config)
        self.linear = nn.Linear(encoder.hidden_size, sum(config.features.values()))

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns the masked positions."""
        return _masked(embedded)

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "R F"]:
        """Predicts all features, side by side in the order of `config.features`."""
        return self.linear(rows.take(_masked(embedded)))

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the number of masked positions."""
        return _masked(embedded).sum().float()

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Mean over a position's numbers that count, summed over masked positions and features."""
        compare = F.smooth_l1_loss if self.config.loss == "smooth_l1" else F.mse_loss
        parts = self.split(prediction)
        total = prediction.new_zeros(())
        for name, part in parts.items():
            weight = self.config.feature_weights.get(name, 1.0)
            error = compare(part, embedded.targets[name], reduction="none")  # [R f]
            real = embedded.targets_real.get(name)
            mean = error.mean(1) if real is None else (error * real).sum(1) / real.sum(1).clamp_min(1)
            total = total + weight * mean.sum()
        return LossSum(total, self.count(embedded, batch).to(total.dtype))

    def split(self, prediction: Float[Tensor, "R F"]) -> dict[str, Float[Tensor, "R f"]]:
        """Returns a prediction's features by name."""
        sizes = list(self.config.features.values())
        return dict(zip(self.config.features, prediction.split(sizes, dim=1)))


class ClsReconstruction(Reconstruction):
    """Rebuilds the masked positions from [CLS] and their place alone, so that [CLS] must carry the recording.

    Xiao et al. 2022 (RetroMAE, enhanced decoding: sentence vector plus position) with a layer for each position
    instead of attention; for EEG, the secondary loss of El Ouahidi et al. 2025 (REVE) rebuilds from one vector too.
    """

    def __init__(self, config: HeadConfig, encoder: EncoderConfig) -> None:
        super().__init__(config, encoder)
        self.dense = nn.Linear(encoder.hidden_size, encoder.hidden_size)
        self.norm = nn.LayerNorm(encoder.hidden_size, encoder.layer_norm_eps)

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns [CLS] alone."""
        return first_positions(real_positions(embedded))

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "R F"]:
        """Predicts the features of the masked positions from their sequence's [CLS]."""
        masked = _masked(embedded)
        if embedded.place is None:
            raise ValueError("rebuilding from [CLS] needs to know where a position lies; this front end does not say")
        sequence = masked.nonzero()[:, 0]  # [R]
        hidden = self.dense(rows.cls())[sequence] + embedded.place[masked]
        return self.linear(self.norm(F.gelu(hidden)))


class MaskedLanguageModel(Head):
    """Predicts the token of each masked position (Devlin et al. 2019, section 3.1); decoder tied to the table."""

    def __init__(self, config: HeadConfig, encoder: EncoderConfig, vocab_size: int) -> None:
        super().__init__(config)
        self.dense = nn.Linear(encoder.hidden_size, encoder.hidden_size)
        self.activation = ACTIVATIONS[encoder.hidden_act]
        self.norm = nn.LayerNorm(encoder.hidden_size, encoder.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns the masked positions; all real ones where none is masked (to look at predictions)."""
        return real_positions(embedded) if embedded.masked is None else embedded.masked

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "R V"]:
        """Scores every token of the vocabulary at the positions of `rows`."""
        return self.scores(rows.take(self.rows(embedded)), embedded)

    def scores(self, hidden: Float[Tensor, "R D"], embedded: Embedded) -> Float[Tensor, "R V"]:
        """Scores every token of the vocabulary for each row of the encoder's output."""
        if embedded.table is None:
            raise ValueError("the MLM decoder is tied to the word embedding; this front end has none")
        return F.linear(self.norm(self.activation(self.dense(hidden))), embedded.table, self.bias)

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the number of masked positions that have a label."""
        return _count(batch["mlm_labels"][_masked(embedded)])

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Cross-entropy with `batch["mlm_labels"]` [B L] at the masked positions."""
        return _with_correct(prediction, batch["mlm_labels"][_masked(embedded)])


class NextSentence(Head):
    """Predicts from the pooled [CLS] whether B follows A; label 0 = is next, 1 = random."""

    def __init__(self, config: HeadConfig, encoder: EncoderConfig) -> None:
        super().__init__(config)
        self.linear = nn.Linear(encoder.hidden_size, 2)

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "B 2"]:
        """Scores is-next and random."""
        return self.linear(pooled)

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the number of labelled pairs."""
        return _count(batch["nsp_labels"])

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Cross-entropy with `batch["nsp_labels"]` [B]."""
        return _with_correct(prediction, batch["nsp_labels"])


class Sequence(Head):
    """A label for the whole sequence, from [CLS], the mean of the real positions, or attention over them.

    Attention pooling: one learned query asks every position (Lee et al. 2019, Set Transformer, section 3.2, with one
    seed, one head and no other layer).
    """

    class_weights: Tensor

    def __init__(self, config: HeadConfig, encoder: EncoderConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.dropout)
        self.linear = nn.Linear(encoder.hidden_size, len(config.classes))
        if config.pool == "attention":
            self.query = nn.Linear(encoder.hidden_size, 1, bias=False)  # a bias would fall out of the softmax
        self.register_buffer("class_weights", _class_weights(config), persistent=False)

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns [CLS], or every real position."""
        return super().rows(embedded) if self.config.pool == "cls" else real_positions(embedded)

    def pool(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Returns one vector for each sequence; all but `cls` leave [CLS] out, for it is no content.

        Where nothing is real, that vector is 0.
        """
        if self.config.pool == "cls":
            return pooled
        if self.config.pool == "mean":
            return content_mean(rows, embedded)
        content = real_positions(embedded) & ~first_positions(real_positions(embedded))
        values = rows.take(content)  # [R D]
        scores = values.new_full(content.shape, -torch.inf)  # [B L]
        scores[content] = self.query(values).squeeze(1).to(values.dtype) / values.shape[1] ** 0.5
        weights = scores.softmax(dim=1)[content]  # [R]
        sums = values.new_zeros(len(content), values.shape[1])
        return sums.index_add(0, content.nonzero()[:, 0], weights[:, None] * values)

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "B k"]:
        """Scores the classes of each sequence."""
        return self.linear(self.dropout(self.pool(rows, embedded, pooled)))

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the sum of the weights of the labelled sequences."""
        return _count(batch["labels"], self.class_weights)

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Cross-entropy with `batch["labels"]` [B]; unlabelled sequences (-100) do not count."""
        return _cross_entropy(prediction, batch["labels"], self.class_weights)


class Number(Sequence):
    """A number for the whole sequence, standardised by the training data; pooled as a class is."""

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the number of sequences whose number is known."""
        return (~batch["targets"].isnan()).sum().float()

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Squared or smooth L1 error of `batch["targets"]` [B 1], standardised; NaN does not count."""
        known = ~batch["targets"].isnan()
        compare = F.smooth_l1_loss if self.config.loss == "smooth_l1" else F.mse_loss
        error = compare(prediction[known], batch["targets"][known].to(prediction.dtype), reduction="sum")
        return LossSum(error, self.count(embedded, batch).to(error.dtype))

    def in_unit(self, prediction: Float[Tensor, "B 1"]) -> Float[Tensor, " B"]:
        """Returns predictions in the unit of the training labels."""
        return prediction.squeeze(1).double() * self.config.sd + self.config.mean


class Several(Sequence):
    """For each class whether it is there, for the whole sequence; pooled as one class is."""

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the sum of the weights of what is known of each sequence and class."""
        return self._weights(batch).sum()

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Binary cross-entropy with `batch["targets"]` [B k], 1 = there; NaN does not count."""
        targets = batch["targets"].nan_to_num().to(prediction.dtype)
        entropy = F.binary_cross_entropy_with_logits(prediction, targets, reduction="none")
        total = (entropy * self._weights(batch)).sum()
        return LossSum(total, self.count(embedded, batch).to(total.dtype))

    def _weights(self, batch: Batch) -> Float[Tensor, "B k"]:
        targets = batch["targets"]
        return torch.where(targets == 1, self.class_weights, 1.0) * ~targets.isnan()


def real_moments(embedded: Embedded) -> Bool[Tensor, "B M"]:
    """Returns which moments have a real position; of text, and where a position is a moment of its own, M = L."""
    real = real_positions(embedded)
    if embedded.moments is None:
        return real
    there = torch.zeros(len(real), int(embedded.moments.max()) + 1, dtype=torch.bool, device=real.device)
    sequence, position = real.nonzero(as_tuple=True)
    there[sequence, embedded.moments[position]] = True
    return there


def _in_time(rows: Rows, embedded: Embedded) -> Float[Tensor, "R D"]:
    """Returns one vector for each real moment, row-major: the mean of its positions, the electrodes'."""
    real = real_positions(embedded)
    hidden = rows.take(real)
    if embedded.moments is None:
        return hidden
    there = real_moments(embedded)
    number = there.flatten().cumsum(0).view_as(there) - 1  # [B M]
    sequence, position = real.nonzero(as_tuple=True)
    which = number[sequence, embedded.moments[position]]  # [positions]
    n = int(there.sum())
    counts = torch.bincount(which, minlength=n).to(hidden.dtype)
    return hidden.new_zeros(n, hidden.shape[1]).index_add(0, which, hidden) / counts[:, None]


class Position(Head):
    """A label for each real moment: a patch's time of EEG, over all electrodes, or a token of text."""

    class_weights: Tensor

    def __init__(self, config: HeadConfig, encoder: EncoderConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.dropout)
        self.linear = nn.Linear(encoder.hidden_size, len(config.classes))
        self.register_buffer("class_weights", _class_weights(config), persistent=False)

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns every real position."""
        return real_positions(embedded)

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "R k"]:
        """Scores the classes of each real moment (`real_moments`, row-major)."""
        return self.linear(self.dropout(_in_time(rows, embedded)))

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns the sum of the weights of the labelled moments."""
        return _count(batch["position_labels"][real_moments(embedded)], self.class_weights)

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Cross-entropy with `batch["position_labels"]` [B M], [CLS] first; -100 does not count."""
        return _cross_entropy(prediction, batch["position_labels"][real_moments(embedded)], self.class_weights)


class Span(Head):
    """Start and end of one stretch: an event's onset and end, an answer (Devlin et al. 2019, section 4.2)."""

    def __init__(self, config: HeadConfig, encoder: EncoderConfig) -> None:
        super().__init__(config)
        self.linear = nn.Linear(encoder.hidden_size, 2)

    def rows(self, embedded: Embedded) -> Bool[Tensor, "B L"]:
        """Returns every real position."""
        return real_positions(embedded)

    def forward(self, rows: Rows, embedded: Embedded, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "B 2 M"]:
        """Scores each moment, [CLS] first, as start and as end; padding gets minus infinity."""
        real = real_moments(embedded)
        values = self.linear(_in_time(rows, embedded))  # [R 2]
        scores = values.new_full((*real.shape, 2), -torch.inf)
        scores[real] = values
        return scores.transpose(1, 2)

    def count(self, embedded: Embedded, batch: Batch) -> Float[Tensor, ""]:
        """Returns half the number of labelled starts and ends."""
        return _count(self._labels(embedded, batch)) / 2

    def loss(self, prediction: Tensor, embedded: Embedded, batch: Batch) -> LossSum:
        """Mean cross-entropy of start and end with `batch["span_labels"]` [B 2] (no event: both 0, [CLS])."""
        both = _cross_entropy(prediction.flatten(0, 1), self._labels(embedded, batch).flatten())
        return LossSum(both.sum / 2, both.count / 2)

    def _labels(self, embedded: Embedded, batch: Batch) -> Int[Tensor, "B 2"]:
        """The labels but for those at a moment of which nothing can be seen."""
        labels = batch["span_labels"]
        return labels.where(real_moments(embedded).gather(1, labels.clamp_min(0)), IGNORED)


def _class_weights(config: HeadConfig) -> Float[Tensor, " k"]:
    return torch.tensor(config.class_weights or [1.0] * len(config.classes))


def _cross_entropy(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> LossSum:
    total = F.cross_entropy(scores, labels, weights, ignore_index=IGNORED, reduction="sum")
    return LossSum(total, _count(labels, weights).to(total.dtype))


def _with_correct(scores: Tensor, labels: Tensor) -> LossSum:
    loss = _cross_entropy(scores, labels)
    return LossSum(loss.sum, loss.count, (scores.detach().argmax(1) == labels).sum().float())


def _count(labels: Tensor, weights: Tensor | None = None) -> Float[Tensor, ""]:
    real = labels != IGNORED
    # not the scores' type: bfloat16 cannot count beyond 256
    return real.sum().float() if weights is None else (weights[labels.clamp_min(0)] * real).sum()


def build_head(config: HeadConfig, encoder: EncoderConfig, vocab_size: int | None = None) -> Head:
    """Makes a head; `vocab_size` is needed by the MLM head alone."""
    if config.kind == "mlm":
        if vocab_size is None:
            raise ValueError("the MLM head belongs to the text front end")
        return MaskedLanguageModel(config, encoder, vocab_size)
    kinds: dict[str, type[Head]] = {
        "reconstruction": Reconstruction,
        "cls_reconstruction": ClsReconstruction,
        "nsp": NextSentence,
        "sequence": Sequence,
        "number": Number,
        "several": Several,
        "position": Position,
        "span": Span,
    }
    return kinds[config.kind](config, encoder)  # type: ignore[call-arg]
