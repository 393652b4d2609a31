"""The task of a label for a whole text, or a pair: a class, several, or a number."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from bothways import text
from bothways.config import HeadConfig, LabelKind, TextFinetuneConfig
from bothways.errors import UserError
from bothways.evaluation import classification_metrics, how_good, multilabel_metrics, regression_metrics, wilson
from bothways.model import Model
from bothways.progress import progress
from bothways.run.text_data import Labelled
from bothways.training import class_probabilities, number_values, several_probabilities

KINDS: dict[LabelKind, Literal["sequence", "several", "number"]] = {
    "classes": "sequence", "several": "several", "number": "number",
}  # fmt: skip
"""What a label is -> the head that tells it."""


@dataclass(frozen=True)
class Rows(Labelled[text.LabelledText]):
    """Texts with what is known of them; of their files see `text.LabelledTexts.summary`."""

    def labelled(self) -> "Rows":
        """Returns the rows that have a label."""
        return replace(self, rows=[row for row in self.rows if row.label is not None])

    def identity(self) -> str:
        """Returns a hash of texts and labels, whatever the files are called."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(repr((row.text, row.pair, row.label, row.group)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def keys(self) -> list[str]:
        """Returns of each row what must not be on both sides of a split: its group, or its text."""
        return [
            row.group if row.group is not None else " ".join(f"{row.text}\n{row.pair or ''}".casefold().split())
            for row in self.rows
        ]

    def strata(self) -> list[str]:
        """Returns the class of each row, of which a split takes the same share; of other labels nothing."""
        return [row.label if isinstance(row.label, str) else "" for row in self.rows]


def read_rows(paths: Sequence[str | Path], settings: TextFinetuneConfig, *, labels: bool = True) -> Rows:
    """Reads tables.

    Raises:
        UserError: a file is no table, has not the columns, holds a label that is none; no row has a text.
    """
    reader = text.LabelledTexts(paths, settings.columns, settings.labels, labels)
    rows = list(reader)
    if not rows:
        raise UserError(f"{', '.join(map(str, paths))}: expected rows with a text, found none; check the file")
    return Rows(rows, reader.summary())


@dataclass(frozen=True)
class Classify:
    """What is learned of each text.

    Attributes:
        kind: what a label is, `classes`, `several` or `number`.
        classes: names; of a number, its column.
        mean: of the training numbers.
        sd: the same.
        weights: of each class in the loss.
    """

    kind: LabelKind
    classes: tuple[str, ...]
    mean: float = 0.0
    sd: float = 1.0
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, training: Rows, settings: TextFinetuneConfig) -> "Classify":
        """Returns what the training rows ask for.

        Raises:
            UserError: they are of one class, or all numbers are the same.
        """
        labels = [row.label for row in training.rows]
        if settings.labels == "number":
            values = np.array(labels, float)
            if np.ptp(values) <= 1e-12 * max(abs(values).max(), 1e-300):
                raise UserError(f"labels: all {len(values)} texts have the number {values[0]:g}; nothing to learn")
            return cls("number", (training.told["columns"]["label"],), float(values.mean()), float(values.std()))
        classes = tuple(text.classes_of(labels))
        if len(classes) < (2 if settings.labels == "classes" else 1):
            raise UserError(
                f"labels: expected texts of two classes or more to train on, got {', '.join(classes) or 'none'}; "
                "label more, or set labels=several or labels=number"
            )
        made = cls(settings.labels, classes)
        if settings.class_weights == "none":
            return made
        n, there = len(labels), made.targets(training)
        counts = np.bincount(there, minlength=len(classes)) if there.ndim == 1 else there.sum(0)
        weights = n / (len(classes) * counts) if there.ndim == 1 else (n - counts) / np.maximum(counts, 1)
        return replace(made, weights=tuple(np.where(weights > 0, weights, 1.0).tolist()))

    @classmethod
    def from_head(cls, head: HeadConfig) -> "Classify":
        """Returns what a trained head tells."""
        kind = next(kind for kind, name in KINDS.items() if name == head.kind)
        return cls(kind, head.classes, head.mean, head.sd, head.class_weights)

    def head(self, settings: TextFinetuneConfig) -> HeadConfig:
        """Returns the head that tells it."""
        return HeadConfig(
            kind=KINDS[self.kind], classes=self.classes, class_weights=self.weights, mean=self.mean, sd=self.sd,
            loss=settings.number_loss, pool=settings.pool, dropout=settings.head_dropout,
        )  # fmt: skip

    def targets(self, rows: Rows) -> np.ndarray:
        """Returns what is learned of labelled rows: class [n], standardised number [n 1], each class's 0 or 1 [n k]."""
        if self.kind == "number":
            return (np.array([[row.label] for row in rows.rows], float).reshape(-1, 1) - self.mean) / self.sd
        code = {name: i for i, name in enumerate(self.classes)}
        if self.kind == "classes":
            return np.array([code[str(row.label)] for row in rows.rows], np.int64)
        found = np.zeros((len(rows), len(code)))
        for place, row in enumerate(rows.rows):
            found[place, [code[name] for name in row.label or ()]] = 1  # type: ignore[union-attr]
        return found

    def unknown(self, rows: Rows) -> dict[str, int]:
        """Returns the classes of rows that are none of those that are learned, with how many rows have them."""
        if self.kind == "number":
            return {}
        names = Counter(
            name
            for row in rows.rows
            for name in ([row.label] if isinstance(row.label, str) else row.label or ())  # type: ignore[union-attr]
        )
        return {str(name): n for name, n in names.items() if name not in self.classes}

    def told(self, model: Model, texts: text.Tokenised, pad_id: int, title: str) -> Float[np.ndarray, "n k"]:
        """Returns what a model says of texts: the probability of each class, or a number [n 1] in its own unit."""
        read = {"classes": class_probabilities, "several": several_probabilities, "number": number_values}[self.kind]
        with progress(title, int(texts.first_window[-1]), "windows") as meter:
            return text.told(model, texts, pad_id, read, meter.advance)

    def measured(self, rows: Rows, said: Float[np.ndarray, "n k"], *, n_bootstrap: int = 2000) -> dict[str, Any]:
        """Returns `evaluation.classification_metrics`, `multilabel_metrics` or `regression_metrics`.

        With groups these are drawn anew for the intervals; of single classes accuracy has one without, too.
        """
        groups = None if any(row.group is None for row in rows.rows) else [str(row.group) for row in rows.rows]
        if self.kind == "number":
            truth = np.array([row.label for row in rows.rows], float)
            return regression_metrics(truth, said[:, 0], groups, n_bootstrap=n_bootstrap)
        truth = self.targets(rows)
        if self.kind == "several":
            return multilabel_metrics(truth, said, self.classes, groups, n_bootstrap=n_bootstrap)
        found = classification_metrics(truth, said, self.classes, groups, n_bootstrap=n_bootstrap)
        right = int((said.argmax(1) == truth).sum())
        return found | {"accuracy_interval": wilson(right, len(truth))}

    def prepare(
        self,
        data: Rows,
        tokenizer: text.Tokenizer,
        length: int,
        settings: TextFinetuneConfig,
        *,
        training: bool = False,
    ) -> text.Tokenised:
        """Returns rows, one at least, as a model reads them; see `text.tokenise`."""
        pairs = [row.pair or "" for row in data.rows] if data.rows[0].pair is not None else None
        texts = [row.text for row in data.rows]
        return text.tokenise(tokenizer, texts, pairs, length=length, too_long=settings.too_long)

    def source(self, made: text.Tokenised, data: Rows, pad_id: int, seed: int) -> text.TextSource:
        """Returns what is trained on."""
        names = [f"{row.file}:{row.row}" for row in data.rows]
        return text.TextSource(made, self.targets(data), pad_id, seed=seed, names=names)

    def notes(self, made: text.Tokenised, part: str, length: int, settings: TextFinetuneConfig) -> list[str]:
        """Says what is cut or read in windows."""
        if not made.n_too_long:
            return []
        rule = "lose their ends" if settings.too_long == "cut" or made.n_first.any() else "are read in windows"
        return [f"{made.n_too_long} of {len(made)} texts ({part}) are longer than {length} tokens: they {rule}"]

    def n_too_long(self, made: text.Tokenised) -> int:
        """Returns how many texts are longer than a window."""
        return made.n_too_long

    def known(self, data: Rows, notes: list[str]) -> Rows:
        """Leaves out rows of classes that are not learned, which adds a note."""
        if not (unknown := self.unknown(data)):
            return data
        named = ", ".join(f"{name} ({n})" for name, n in unknown.items())
        notes.append(f"no training text has the class {named}; such texts are not measured on")
        return replace(data, rows=[row for row in data.rows if not self.unknown(Rows([row], {}))])

    def counted(self, data: Rows) -> dict[str, int]:
        """Returns how many texts have each class, or how many there are."""
        if self.kind == "number":
            return {"texts": len(data)}
        targets = self.targets(data)
        counts = np.bincount(targets, minlength=len(self.classes)) if targets.ndim == 1 else targets.sum(0)
        return {name: int(n) for name, n in zip(self.classes, counts)}

    def evaluate(
        self, model: Model, made: text.Tokenised, data: Rows, pad_id: int, title: str, *, n_bootstrap: int = 2000
    ) -> dict[str, Any]:
        """Returns how well a model tells labelled rows; see `measured`."""
        return self.measured(data, self.told(model, made, pad_id, title), n_bootstrap=n_bootstrap)

    def score(self, measured: dict[str, Any]) -> float:
        """Returns how good a model is, more is better."""
        if self.kind == "number":
            return -float(measured["mae"])
        if self.kind == "several":
            macro = measured["macro"]["auroc"]
            return float(measured["exact_match"] if macro is None else macro)
        return how_good(measured)
