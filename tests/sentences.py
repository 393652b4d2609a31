"""Sources of text for the training loop: sentences with labels, and pairs as BERT is pretrained on."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways.config import TrainingConfig
from bothways.draws import generator
from bothways.model import Model
from bothways.training import TrainResult
from models import FORMS, embedding_of

QUICK = TrainingConfig(steps=6, batch_size=4, learning_rate=1e-2, warmup_fraction=0.2, log_every=1, precision="float32")


class Sentences:
    """Ten texts whose label is whether they hold the token 7."""

    def __init__(self, n: int = 10) -> None:
        self.n = n
        draw = np.random.default_rng(0)
        self.ids = draw.integers(8, 40, (n, 6))
        self.ids[::2, 3] = 7

    def __len__(self) -> int:
        return self.n

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        return {
            "input_ids": torch.from_numpy(self.ids[ids]),
            "labels": torch.from_numpy((ids % 2 == 0).astype(np.int64)),
            "sample_id": torch.from_numpy(ids),
        }

    def names(self, ids: np.ndarray) -> list[str]:
        return [f"text-{i}.txt" for i in ids]


class Poisoned(Sentences):
    """One sample's label weighs infinitely much: the loss is not finite as soon as it is drawn."""

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        batch = super().batch(ids, epochs)
        batch["labels"][ids == 3] = 2
        return batch


class Pairs:
    """Twelve documents of two sentences that count upwards: [CLS] a [SEP] b [SEP], some hidden, half with another's b.

    The ids 1, 2 and 3 are [CLS], [SEP] and [MASK].
    """

    def __len__(self) -> int:
        return 12

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        rows = []
        for i, epoch in zip(ids.tolist(), epochs.tolist()):
            draw = generator("pair", 0, epoch, i)
            other = int(draw.integers(1, 12)) if draw.random() < 0.5 else 0
            a, b = 4 + i + np.arange(4), 10 + (i + other) % 12 + np.arange(4)
            whole = np.concatenate([[1], a, [2], b, [2]])
            hidden = (draw.random(len(whole)) < 0.3) & (whole > 3)
            rows.append((np.where(hidden, 3, whole), np.where(hidden, whole, -100), int(other > 0)))
        tokens, labels, nsp = map(np.array, zip(*rows))
        return {
            "input_ids": torch.from_numpy(tokens),
            "token_type_ids": (torch.arange(11) > 5).long().expand(len(ids), -1),
            "mlm_labels": torch.from_numpy(labels),
            "nsp_labels": torch.from_numpy(nsp),
        }

    def names(self, ids: np.ndarray) -> list[str]:
        return [f"text-{i}.txt" for i in ids]


def classifier(seed: int = 0, dropout: float = 0.0) -> Model:
    return _form("tiny_classifier", seed, dropout)


def bert(seed: int = 0, dropout: float = 0.1) -> Model:
    return _form("bert", seed, dropout)


def _form(name: str, seed: int, dropout: float) -> Model:
    config = FORMS[name].config
    encoder = config.encoder.model_copy(update={"hidden_dropout_prob": dropout})
    config = config.model_copy(update={"encoder": encoder})
    model = Model(config, embedding_of(config))
    model.initialise(seed)
    return model


def losses(result: TrainResult) -> list[float]:
    return [entry["loss"] for entry in result.metrics]


def changed(**changes: Any) -> TrainingConfig:
    """`QUICK` with other settings, checked."""
    return TrainingConfig(**QUICK.model_dump() | changes)
