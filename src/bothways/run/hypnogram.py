"""The stages of a night: what a model of sleep stages says over time, beside what is annotated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import LabelConfig
from bothways.errors import UserError
from bothways.evaluation import (
    STAGES,
    UNSCORED,
    most_of,
    sleep_stages,
    stage_metrics,
    stage_numbers,
    stage_of,
)

EPOCH_S = 30.0
"""What the AASM manual scores at a time; of shorter windows one of these."""


@dataclass
class AnnotatedStages:
    """By recording: stretches under the names of stages, and what was noted in reading them from files beside it."""

    rows: dict[str, list[eeg.Span]] = field(default_factory=dict)
    notes: dict[str, list[eeg.Note]] = field(default_factory=dict)


def annotated_stages(store: eeg.Store, files: Sequence[str | Path], rules: LabelConfig) -> AnnotatedStages:
    """Returns the recordings' own annotations as classes, and where they have no stages those of files beside them.

    A hypnogram that cannot be used is a note.

    Args:
        store: the recordings.
        files: what was asked for; hypnograms (annotations-only EDF) are looked for in it.
        rules: which label is which class.
    """
    told = AnnotatedStages()
    hypnograms = {Path(one["file"]).name for one in store.head["left_out"] if one["code"] == "annotations"}
    places: list[str | Path] = [eeg.EVENTS]
    places += [place for one in files if hypnograms and ((place := Path(one)).is_dir() or place.name in hypnograms)]
    for source in places:
        try:
            spans = eeg.find_labels(source, store, rules)
        except UserError as problem:
            if source != eeg.EVENTS:  # most recordings have no events of these classes
                for recording in store.recordings:
                    if recording.file not in told.rows:
                        why = eeg.Note("hypnogram_not_used", str(problem))
                        told.notes.setdefault(recording.file, []).append(why)
            continue
        stages = [row for row in spans.rows if row.onset_s is not None and stage_of(row.label or "") in STAGES]
        for file in {row.file for row in stages} - told.rows.keys():
            told.rows[file] = [row for row in stages if row.file == file]
            if source != eeg.EVENTS:
                told.notes[file] = spans.notes
    return told


def hypnogram(trace: eeg.Trace, window_s: float, annotated: Sequence[eeg.Span]) -> dict[str, Any] | None:
    """Returns what `report.write_report` draws of the stages over time; None where the classes are no sleep stages.

    Args:
        trace: the classes over time.
        window_s: what the model takes at a time.
        annotated: stretches of this recording, each with one of `STAGES`; may be none.
    """
    stages = sleep_stages(trace.classes)
    if stages is None:
        return None
    step_s = min(EPOCH_S, window_s)
    begin_s, end_s = float(trace.onset_s[0]), float(trace.onset_s[-1] + trace.duration_s[-1])
    edges_s = begin_s + step_s * np.arange(max(1, np.ceil((end_s - begin_s) / step_s - 1e-6)) + 1)
    marked = [str(stage_of(row.label or "")) for row in annotated]
    names = [stage for stage in STAGES if stage in {*stages.values(), *marked}]
    classes = most_of(edges_s, trace.onset_s, trace.duration_s, trace.probabilities)
    own, number = stage_numbers(stages)
    places = np.array([names.index(stage) for stage in own] + [UNSCORED])
    predicted = np.where(classes == UNSCORED, UNSCORED, places[number[classes]])
    series = [_line("predicted", predicted)]
    caption = (
        f"A stage for each {step_s:g} s: the most probable class, by its mean probability there. The line is open "
        "where no usable window lies, or movement."
    )
    if annotated:
        onset_s = np.array([row.onset_s for row in annotated], float)
        duration_s = np.array([row.duration_s for row in annotated], float)
        truth = most_of(edges_s, onset_s, duration_s, np.eye(len(names))[[names.index(stage) for stage in marked]])
        series.append(_line("annotated", truth))
        caption += f" Annotated is what covers most of it. {_agreement(truth, predicted, names)}"
    return {
        "kind": "hypnogram",
        "title": "Hypnogram",
        "stages": names,
        "series": series,
        "window_s": step_s,
        "caption": caption + _said(stages),
    }


def _line(label: str, stages: np.ndarray) -> dict[str, Any]:
    return {"label": label, "values": [None if stage == UNSCORED else stage for stage in stages.tolist()]}


def _agreement(truth: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> str:
    try:
        told = stage_metrics(truth, predicted, names)
    except UserError:
        return "Nowhere is there both."
    kappa = "undefined, for there is one stage alone" if told["kappa"] is None else f"{told['kappa']:.3f}"
    return f"Of {told['n']} that have both, {told['accuracy']:.1%} are equal; Cohen's kappa is {kappa}."


def _said(stages: Mapping[str, str]) -> str:
    """Names the classes that are called otherwise than their stages."""
    others = [f"{name} is {stage}" for name, stage in stages.items() if name != stage]
    return f" Of the classes {', '.join(others)}." if others else ""
