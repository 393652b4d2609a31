"""Labels that are numbers, or several classes at once: what is learned of a window, and how well it is told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from bothways import eeg
from bothways.config import FinetuneConfig, HeadConfig, LabelConfig, LabelKind
from bothways.errors import UserError
from bothways.evaluation import Split, multilabel_metrics, regression_metrics
from bothways.model import Model
from bothways.training import infer, number_values, several_probabilities

SAID: dict[LabelKind, str] = {"number": "a number", "several": "several classes at once"}
"""What a window's label is, in words."""


@dataclass(frozen=True)
class Target:
    """What is learned of each window.

    Attributes:
        kind: `number` or `several`.
        names: the classes; of a number, the column that it was read from.
        mean: of the training windows' numbers.
        sd: the same.
        weights: of each class's presence in the loss, its absence being 1.
    """

    kind: LabelKind
    names: tuple[str, ...]
    mean: float = 0.0
    sd: float = 1.0
    weights: tuple[float, ...] = ()

    @property
    def classes(self) -> list[str]:
        """The classes; a number has none."""
        return [] if self.kind == "number" else list(self.names)

    def truth(self, windows: eeg.Windows) -> Float[np.ndarray, "n t"]:
        """Returns what is true of labelled windows: a number in its own unit, or 1 for each class that is there."""
        return self._table(windows)[windows.label]

    def codes(self, windows: eeg.Windows) -> Float[np.ndarray, "K t"]:
        """Returns what each label of a table of windows is learned as: a number standardised, classes as 0 or 1."""
        return (self._table(windows) - self.mean) / self.sd

    def _table(self, windows: eeg.Windows) -> Float[np.ndarray, "K t"]:
        number = self.kind == "number"
        return eeg.numbers(windows.classes) if number else eeg.indicators(windows.classes, self.names)

    def fitted(self, training: eeg.Windows, settings: FinetuneConfig) -> "Target":
        """Returns it with what the loss takes from the training windows.

        Raises:
            UserError: they all have the same number.
        """
        truth = self.truth(training)
        if self.kind == "number":
            mean, sd = float(truth.mean()), float(truth.std())
            if sd <= 1e-12 * max(abs(mean), 1e-300):
                raise UserError(
                    f"labels: all {len(truth)} windows of the training people have the number {eeg.number_text(mean)}: "
                    "there is nothing to learn; choose another split or seed"
                )
            return replace(self, mean=mean, sd=sd)
        there = truth.sum(0)
        absent = len(truth) - there
        balanced = np.where((there > 0) & (absent > 0), absent / np.maximum(there, 1), 1.0)
        return replace(self, weights=tuple(balanced.tolist()) if settings.class_weights == "balanced" else ())

    def head(self, settings: FinetuneConfig) -> HeadConfig:
        """Returns the head that tells it."""
        assert self.kind != "classes"
        return HeadConfig(
            kind=self.kind, classes=self.names, class_weights=self.weights, mean=self.mean, sd=self.sd,
            loss=settings.number_loss, pool=settings.pool, dropout=settings.head_dropout,
        )  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Returns it as a command tells it."""
        if self.kind == "number":
            return {"kind": self.kind, "name": self.names[0], "mean": self.mean, "sd": self.sd}
        return {"kind": self.kind, "threshold": 0.5}

    def counts(self, windows: eeg.Windows) -> dict[str, Any]:
        """Returns, in all and of each subject, how many windows there are, and their numbers or classes."""
        truth = self.truth(windows)
        people = {str(name): truth[windows.subject == name] for name in np.unique(windows.subject)}
        return {"classes": self._count(truth), "subjects": {name: self._count(own) for name, own in people.items()}}

    def _count(self, truth: Float[np.ndarray, "n t"]) -> dict[str, Any]:
        if self.kind == "number":
            known = {} if not len(truth) else {"least": truth.min(), "mean": truth.mean(), "most": truth.max()}
            return {"windows": len(truth), **{name: float(value) for name, value in known.items()}}
        each = {name: int(n) for name, n in zip(self.names, truth.sum(0))}
        return {**each, "(none)": int((truth.sum(1) == 0).sum()), "(windows)": len(truth)}

    def lacking(self, windows: eeg.Windows, split: Split) -> dict[str, list[str]]:
        """Returns the classes that a part has no window of, part -> classes; see `evaluation.check_classes`."""
        if self.kind == "number":
            return {}
        truth, found = self.truth(windows), {}
        for part, rows in split.rows(windows.subject.tolist()).items():
            there = truth[rows].any(0)
            if getattr(split, part) and not there.all():
                found[part] = [name for name, has in zip(self.names, there) if not has]
        return found

    def read(self, model: Model, source: eeg.WindowSource) -> Float[np.ndarray, "n t"]:
        """Returns what a model says of each window: a number in its own unit, or the probability of each class."""
        if self.kind == "number":
            return infer(model, source, number_values).astype(float)[:, None]
        return infer(model, source, several_probabilities).astype(float)

    def measured(
        self,
        truth: Float[np.ndarray, "n t"],
        said: Float[np.ndarray, "n t"],
        subjects: Sequence[str] | np.ndarray,
        **options: Any,
    ) -> dict[str, Any]:
        """Returns `evaluation.regression_metrics` or `evaluation.multilabel_metrics`."""
        if self.kind == "number":
            return regression_metrics(truth[:, 0], said[:, 0], subjects, **options)
        return multilabel_metrics(truth, said, self.names, subjects, **options)

    def score(self, evaluation: dict[str, Any]) -> float:
        """Returns how good a model is, more is better: minus the mean error, or the macro AUROC where it is defined."""
        if self.kind == "number":
            return -float(evaluation["mae"])
        macro = evaluation["macro"]["auroc"]
        return float(evaluation["exact_match"] if macro is None else macro)


def target_of(rules: LabelConfig, windows: eeg.Windows, source: str) -> Target | None:
    """Returns what labelled windows are to be learned as; None where each has one of several classes.

    Raises:
        UserError: there are no two different labels among them, or no class.
    """
    if rules.kind == "classes":
        return None
    present = [windows.classes[label] for label in np.unique(windows.label)]
    if rules.kind == "number":
        names: tuple[str, ...] = (rules.column,)
        got = f"{len(windows)} windows of {present[0]}" if present else "none"
        wanted = "windows of two different numbers or more"
    else:
        names = tuple(sorted({name for label in present for name in eeg.set_in(label)}))
        got = f"{len(windows)} windows of {', '.join(names) or 'no class'}" if present else "none"
        wanted = "windows of two different sets of classes or more"
    if len(present) < 2:
        why = f" ({'; '.join(note.message for note in windows.notes[:3])})" if windows.notes else ""
        raise UserError(f"{source}: expected {wanted}, got {got}{why}; label more, or shorten windows.window_s")
    return Target(rules.kind, names)


def target_of_model(model: Model) -> Target | None:
    """Returns what a fine-tuned model tells of a window; None where it is one of several classes."""
    kinds: tuple[LabelKind, ...] = ("number", "several")
    for kind in kinds:
        if (head := model.config.heads.get(kind)) is not None:
            return Target(kind, head.classes, head.mean, head.sd, head.class_weights)
    return None


def need_classes(settings: FinetuneConfig, what: str) -> None:
    """Refuses labels that are no single classes, for what measures by classes.

    Raises:
        UserError: they are numbers, or several classes at once.
    """
    if settings.labels.kind != "classes":
        raise UserError(
            f'{what}: expected labels.kind = "classes", got "{settings.labels.kind}": it measures by single classes; '
            f"`finetune`, `evaluate` and `predict` work with {SAID[settings.labels.kind]}"
        )
