"""Settings of runs on text."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bothways.config.settings import (
    Count,
    EncoderConfig,
    Fraction,
    Hiding,
    LabelKind,
    Positive,
    Settings,
    TrainingConfig,
)

TEXT_SIZES: dict[str, dict[str, int]] = {
    name: {
        "num_hidden_layers": layers,
        "hidden_size": size,
        "num_attention_heads": heads,
        "intermediate_size": 4 * size,
    }
    for name, layers, size, heads in (
        ("tiny", 2, 128, 2),
        ("mini", 4, 256, 4),
        ("small", 4, 512, 8),
        ("medium", 8, 512, 8),
        ("base", 12, 768, 12),
    )
}
"""`encoder.size` of text, as Turc et al. 2019 name them ("Well-Read Students Learn Better"); base as in BERT."""
PRESETS: dict[str, dict[str, Any]] = {
    "bert": {"norm": "post", "final_norm": False, "gated": False, "qkv_bias": True, "linear_bias": True},
    "fast": {
        "norm": "pre", "final_norm": True, "gated": True, "qkv_bias": False, "linear_bias": False,
        "hidden_dropout_prob": 0.0,
    },
}  # fmt: skip
"""`encoder.preset`: BERT as it is, which transformers opens; or without what costs time and gives little (Geiping and
Goldstein 2023, "Cramming", section 4)."""


def spelled_out(encoder: dict[str, Any], sets: Mapping[str, Mapping[str, dict[str, Any]]]) -> dict[str, Any]:
    """Returns an encoder's settings with the words of `sets` (`size`, `preset`) in numbers; what is given stays.

    A gate is a third matrix of the feed-forward layer: of a size with one, the others are two thirds as wide.
    """
    found = {
        key: value for name, known in sets.items() if name in encoder for key, value in known[encoder[name]].items()
    }
    if "preset" in encoder and found["gated"]:
        size = encoder.get("hidden_size", found.get("hidden_size", TEXT_SIZES["mini"]["hidden_size"]))
        found["intermediate_size"] = 32 * round(8 * size / 3 / 32)
    return found | {key: value for key, value in encoder.items() if key not in sets}


class TextMaskingConfig(Hiding):
    """Which tokens are hidden: exactly max(1, round(`ratio` · n)) of a sequence's n, of which special ones are none."""

    whole_words: bool = False
    """Hide all pieces of a word or none (Devlin's later models); the number of tokens stays, as far as words fit."""


class VocabularyConfig(Settings):
    """The WordPiece vocabulary that is learned where no tokenizer is given."""

    size: Count = 8192
    cased: bool = False
    strip_accents: bool | None = None
    """none = unless `cased`, as in BERT."""


class SequenceConfig(Settings):
    """How documents become sequences."""

    length: Annotated[int, Field(ge=8)] = 128
    """Tokens of a sequence at most, [CLS] and [SEP] among them."""
    short: Fraction = 0.1
    """Share of the sequences that are cut to a random length, for texts that are used later are short, too."""
    max_position_embeddings: Count | None = None
    """Longest text that the model takes; none = `length`. Positions beyond `length` are not trained."""

    @model_validator(mode="after")
    def _check(self) -> "SequenceConfig":
        most = self.max_position_embeddings
        if most is not None and most < self.length:
            raise ValueError(f"max_position_embeddings {most} is below length {self.length}; raise it")
        return self

    @property
    def positions(self) -> int:
        """Rows of the model's table of positions."""
        return self.length if self.max_position_embeddings is None else self.max_position_embeddings


class TextObjectiveConfig(Settings):
    """What is learned: hidden tokens, and whether a sentence is the next one."""

    next_sentence: bool = True
    """Pairs of which half follow each other in their document, and half are of two documents. Without it a sequence is
    one stretch of a document. A corpus without a pair of sentences, or of one document, turns it off, and says so."""
    next_sentence_weight: Annotated[float, Field(gt=0)] = 1.0
    """Of its loss beside that of the hidden tokens."""


class TextPretrainConfig(Settings):
    """`bothways text pretrain`."""

    encoder: EncoderConfig = EncoderConfig.model_validate(TEXT_SIZES["mini"] | PRESETS["bert"])
    vocabulary: VocabularyConfig = VocabularyConfig()
    sequences: SequenceConfig = SequenceConfig()
    masking: TextMaskingConfig = TextMaskingConfig()
    objective: TextObjectiveConfig = TextObjectiveConfig()
    training: TrainingConfig = TrainingConfig(
        steps=10_000, learning_rate=5e-4, weight_decay=0.01, schedule="linear", log_every=100, evaluations=10
    )
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the documents kept out to measure on; equal ones stay together."""
    validation_sequences: Count = 1000
    """How many sequences of theirs are measured, the same each time; of few documents each gives several."""


TextTask = Literal["classify", "tag", "answer"]
"""A label of the whole text, one of each word, or where in a context the answer to a question stands."""


class ColumnConfig(Settings):
    """Which columns of tables hold what; of what is not named it is found where that is plain, and said."""

    text: str | None = None
    pair: str | None = None
    """The second of two texts; without it there is none."""
    label: str | None = None
    group: str | None = None
    """Whose a text is (author, document): its rows are trained on or measured, never both."""


class AnswerConfig(Settings):
    """How questions about contexts are read and answered."""

    stride: Count | None = None
    """Tokens from one window's beginning to the next one's, where a context does not fit; none = 128, or half of what
    a window leaves a context where that is less."""
    max_question: Count | None = None
    """Tokens of a question, the rest of which is cut; none = 64, or a quarter of a window where that is less."""
    n_best: Count = 20
    """Answers that are told of each question."""
    max_answer_tokens: Count = 30


class TextFinetuneConfig(Settings):
    """`bothways text finetune`."""

    task: TextTask = "classify"
    columns: ColumnConfig = ColumnConfig()
    labels: LabelKind = "classes"
    """`classes`: one of several. `several`: any number of them at once, a list or parted by `;` or `|`. `number`."""
    length: Annotated[int, Field(ge=8)] | None = None
    """Tokens of a sequence, [CLS] and [SEP] among them; none = as many as the model was trained on, to answer 384 at
    most."""
    answers: AnswerConfig = AnswerConfig()
    too_long: Literal["windows", "cut"] = "windows"
    """A longer text is cut into windows of like length, of which one is drawn each time in training, and all are
    averaged when predicting; or it loses its end. Of a pair the longer text always loses its end."""
    pool: Literal["cls", "mean", "attention"] = "cls"
    head_dropout: Fraction = 0.1
    class_weights: Literal["none", "balanced"] = "none"
    number_loss: Literal["mse", "smooth_l1"] = "mse"
    frozen: bool = False
    """Leave the encoder as it is: its vectors are computed once, and a linear head is fitted to them."""
    features: Literal["cls", "mean", "last", "last_four"] = "mean"
    """Of `frozen`: [CLS], the mean of the tokens, or that of the mean of the last four layers. To tag, of each word's
    first piece: `last`, the last layer, which is taken if none is named, or the mean of the last four."""
    frozen_head: Literal["logistic", "closed_form"] = "logistic"
    """`closed_form`: linear discriminants with a shrunk covariance. A number is always a ridge regression."""
    scratch: bool = False
    """Draw the weights anew: the same network without its pretraining, to compare with."""
    reinitialise_layers: Annotated[int, Field(ge=0)] = 0
    """Draw the topmost layers (and the pooler) anew (Zhang et al. 2021, "Revisiting Few-sample BERT Fine-tuning")."""
    epochs: Positive | None = 3.0
    """How often the training data is gone through; none, also where `training.steps` or `training.minutes` is given:
    those say when the run ends."""
    least_steps: Count = 200
    """For small sets, whatever `epochs` says (Mosbach et al. 2021, "On the Stability of Fine-tuning BERT")."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the rows that is kept out to measure on where no validation data is given; equal texts stay together."""
    training: TrainingConfig = TrainingConfig(
        learning_rate=5e-5, batch_size=16, weight_decay=0.01, schedule="linear", evaluations=3, log_every=20
    )

    @model_validator(mode="before")
    @classmethod
    def _end(cls, values: Any) -> Any:
        training = values.get("training") if isinstance(values, dict) else None
        if isinstance(training, dict) and not {"steps", "minutes"}.isdisjoint(training):
            return {"epochs": None, **values}
        return values

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("task") == "tag" and values.get("frozen"):
            return {"features": "last", **values}
        return values

    @model_validator(mode="after")
    def _check(self) -> "TextFinetuneConfig":
        if not self.frozen:
            return self
        if self.task == "answer":
            raise ValueError('frozen = true belongs to task = "classify" or "tag"; to answer, all weights are trained')
        known = ("last", "last_four") if self.task == "tag" else ("cls", "mean", "last_four")
        if self.features not in known:
            raise ValueError(f"features: expected {' or '.join(known)} to {self.task}, got {self.features}; choose one")
        return self
