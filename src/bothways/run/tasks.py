"""What is labelled, a window, a moment or an event: the head, what is counted, and how well it is told."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from bothways import eeg
from bothways.config import FinetuneConfig, HeadConfig, LabelConfig, Task
from bothways.errors import UserError
from bothways.evaluation import best_spans, classification_metrics, span_metrics
from bothways.model import Model
from bothways.training import class_probabilities, infer, moment_probabilities, span_probabilities

HEADS: dict[Task, Literal["sequence", "position", "span"]] = {
    "window": "sequence",
    "moment": "position",
    "event": "span",
}
"""Name, and kind, of the head."""
NOTHING = "nothing"
"""The class of no event, where `labels.background` names none."""


def rules_of(settings: FinetuneConfig) -> LabelConfig:
    """Returns the label rules; of events the time between them is a class."""
    if settings.task == "event" and settings.labels.background is None:
        return settings.labels.model_copy(update={"background": NOTHING})
    return settings.labels


def labelled(windows: eeg.Windows, task: Task, background: str | None, patch_samples: int) -> eeg.Windows:
    """Returns a row for each thing that has a label: a window, a moment, or a window with one event or none.

    Raises:
        UserError: there are several kinds of events.
    """
    if task == "window":
        return windows.select(windows.label >= 0)
    if task == "moment":
        return eeg.labelled_moments(windows, patch_samples, background)
    assert background is not None
    kinds = [name for name in windows.classes if name != background]
    if len(kinds) != 1:
        raise UserError(
            f'task = "event": expected one class beside {background}, got {", ".join(kinds) or "none"}; choose it by '
            'labels.map, or use task = "moment"'
        )
    return eeg.windows_with_events(windows, patch_samples, background)


def head_of(settings: FinetuneConfig, classes: list[str], training: eeg.Windows) -> HeadConfig:
    """Returns the head of a task; `training` are the labelled things to learn from, whose classes it may balance."""
    weights: tuple[float, ...] = ()
    if settings.class_weights == "balanced" and settings.task != "event":
        counts = np.bincount(training.label, minlength=len(classes))
        weights = tuple(float(len(training) / (len(counts) * n)) for n in counts)
    return HeadConfig(
        kind=HEADS[settings.task],
        classes=tuple(classes),
        class_weights=weights,
        pool=settings.pool,
        dropout=settings.head_dropout,
    )


def task_of(model: Model) -> Task:
    """Returns what a fine-tuned model labels."""
    return next(task for task, head in HEADS.items() if head in model.config.heads)


def probabilities(model: Model, source: eeg.WindowSource, advance: Callable[[int], None] | None = None) -> np.ndarray:
    """Returns a model's answer for each window: classes [n k], by moment [n N k], or starts and ends [n 2 M]."""
    read = {"window": class_probabilities, "moment": moment_probabilities, "event": span_probabilities}
    return infer(model, source, read[task_of(model)], advance=advance)


def of_spans(answers: np.ndarray, classes: Sequence[str], background: Sequence[str]) -> np.ndarray:
    """Returns the probability of each class at each moment [n N k]: that of the event inside the likeliest span."""
    spans, certainty = best_spans(answers)
    moment = np.arange(1, answers.shape[2])
    inside = (moment >= spans[:, :1]) & (moment <= spans[:, 1:])  # [n N]
    event = np.where(inside, certainty[:, None], 0.0)
    return np.stack([1 - event if name in background else event for name in classes], axis=2)


def told(source: eeg.WindowSource, answers: np.ndarray) -> tuple[eeg.Windows, np.ndarray]:
    """Returns a row for each labelled thing that has an answer, and the probability of each class for it [m k]."""
    windows, truth = source.windows, source.labels()
    if source.task == "window":
        return windows, answers
    nothing = None if source.background is None else windows.classes[source.background]
    things = labelled(windows, source.task, nothing, source.patch_samples)
    if source.task == "moment":
        scores = answers[truth >= 0]
        there = np.isfinite(scores).all(1)
        return things.select(there), scores[there]
    _, certainty = best_spans(answers[truth[:, 0] >= 0])
    both = np.stack([1 - certainty, certainty], 1)
    return things, both if source.background == 0 else both[:, ::-1]


def measured(source: eeg.WindowSource, answers: np.ndarray, classes: list[str], **options: Any) -> dict[str, Any]:
    """Compares answers (see `probabilities`) with the labels of a source.

    Returns:
        `classification_metrics` of windows or of moments, or `span_metrics`.
    """
    truth, subjects = source.labels(), source.windows.subject
    if source.task == "event":
        event = 1 - (source.background or 0)
        patch_s = source.patch_samples / source.store.signal.sfreq_hz
        return span_metrics(truth, answers, classes, subjects, patch_s=patch_s, event=event, **options)
    if source.task == "moment":
        counted = (truth >= 0) & np.isfinite(answers[..., 0])
        subjects = np.repeat(subjects[:, None], truth.shape[1], axis=1)[counted]
        truth, answers = truth[counted], answers[counted]
    return classification_metrics(truth, answers, classes, subjects, **options)
