"""What is labelled, a window, a moment or an event: the head, what is counted, and how well it is told."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bothways import eeg
from bothways.config import EventConfig, FinetuneConfig, HeadConfig, LabelConfig, Task
from bothways.errors import UserError
from bothways.evaluation import (
    SZCORE,
    EventRules,
    best_spans,
    classification_metrics,
    score_events,
    score_subjects,
    span_metrics,
)
from bothways.model import Model
from bothways.run.common import Sources, usable
from bothways.training import class_probabilities, infer, moment_probabilities, span_probabilities

AT_ONCE = 4096
"""Windows whose answers are in memory at a time."""
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
    """Returns the probability of each class at each moment [n N k]: that of the event inside the best span."""
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
    if source.task == "event":
        event = 1 - (source.background or 0)
        patch_s = source.patch_samples / source.store.signal.sfreq_hz
        subjects = source.windows.subject
        return span_metrics(source.labels(), answers, classes, subjects, patch_s=patch_s, event=event, **options)
    things, scores = told(source, answers)
    return classification_metrics(things.label, scores, classes, things.subject, **options)


def over_time(
    model: Model, sources: Sources, windows: eeg.Windows, recording: int, settings: FinetuneConfig
) -> tuple[eeg.Trace, np.ndarray]:
    """Averages the answers for a recording's windows on a time grid: of their stride, or of patches by moment.

    Args:
        model: fine-tuned.
        sources: of its patches.
        windows: of one recording.
        recording: which.
        settings: that it was fine-tuned with; the stride may be another.

    Returns:
        The classes over time, and where windows are labelled the answer for each, [n k]; else [0 k].
    """
    store, head = sources.store, next(iter(model.config.heads.values()))
    task, sfreq_hz, source = task_of(model), store.signal.sfreq_hz, sources.of(windows)
    config = settings.windows
    step_s = min(config.stride_s, config.window_s) if task == "window" else source.patch_samples / sfreq_hz
    moments = eeg.Moments(store.recordings[recording].segments, sfreq_hz, head.classes, step_s)
    by_window = [np.zeros((0, len(head.classes)), np.float32)]
    for first in range(0, len(windows), AT_ONCE):
        part = windows.select(np.arange(first, min(first + AT_ONCE, len(windows))))
        answers = probabilities(model, sources.of(part))
        if task == "window":
            moments.add(part.start, part.window_samples, answers)
            by_window.append(answers)
            continue
        nothing = rules_of(settings).background
        by_patch = of_spans(answers, head.classes, (nothing or "",)) if task == "event" else answers  # [n N k]
        there = np.isfinite(by_patch).all(2)
        moments.add_patches(
            part.start, part.window_samples, source.patch_samples, np.nan_to_num(by_patch), patch_mask=there
        )
    return moments.trace(), np.concatenate(by_window)


def merged_notes(events: Mapping[str, Any], rules: EventRules) -> list[str]:
    """Says where merging has made few true events of many, so that finding anything at all counts for much."""
    pooled = {name: found["pooled"] for name, found in events.items()}
    return [
        f"events {name}: merge_s {rules.merge_s:g} makes {n['n_reference']} true events of {n['n_given']}, and "
        "anything near one finds it whole; for short events give --event-rule merge_s=… and after_s=…"
        for name, n in pooled.items()
        if 0 < 2 * n["n_reference"] <= n["n_given"]
    ]


def event_scores(
    model: Model,
    sources: Sources,
    recordings: Sequence[int],
    rows: Sequence[eeg.Span],
    settings: FinetuneConfig,
    scoring: EventRules = SZCORE,
) -> dict[str, Any] | None:
    """Finds events as `predict` does by itself and scores them by rules; None where no time is background.

    Returns:
        Of each class but the background `evaluation.score_subjects`, with `uncovered_s` beside `recorded_s`: the time
        that no usable window covers, by which no false alarm is counted.

    Raises:
        UserError: no window of a recording can be used.
    """
    rules, store, sfreq_hz = rules_of(settings), sources.store, sources.store.signal.sfreq_hz
    if rules.background is None:
        return None
    whole = eeg.cut_windows(store, settings.windows, labels=rows, rules=rules, by_moment=True, recordings=recordings)
    kinds = [name for name in whole.classes if name != rules.background]
    scores: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for index in recordings:
        entry, windows = store.recordings[index], usable(sources, whole.select(whole.recording == index))
        trace, _ = over_time(model, sources, windows, index, settings)
        found = eeg.find_events(trace, EventConfig(background=(rules.background,)))
        end_s = float(trace.onset_s[-1] + trace.duration_s[-1])
        for name in kinds:
            track = whole.tracks[index]
            spans_s = track[track[:, 2] == whole.classes.index(name), :2] / sfreq_hz
            onsets_s = [eeg.true_time_s(start_s, entry.segments, sfreq_hz) for start_s in spans_s[:, 0].tolist()]
            lasts_s = (spans_s[:, 1] - spans_s[:, 0]).tolist()
            true_s = [(onset_s, onset_s + last_s) for onset_s, last_s in zip(onsets_s, lasts_s)]
            # Where no window is, no false alarm can be.
            told_s = trace.recorded_s - trace.uncovered_s
            score = score_events(true_s, eeg.spans_s(found, name), end_s, rules=scoring, recorded_s=told_s)
            scores[name].append({**score, "uncovered_s": trace.uncovered_s})
    subjects = [store.recordings[index].subject for index in recordings]
    return {name: score_subjects(some, subjects) for name, some in scores.items()}
