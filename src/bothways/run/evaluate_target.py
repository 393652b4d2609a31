"""`bothways eeg evaluate` of a run that tells a number, or several classes at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from bothways import eeg
from bothways.errors import UserError
from bothways.evaluation import (
    LinearControl,
    by_level,
    fit_logistic,
    mean_by_group,
    paired_difference,
    ridge_probe,
    ridge_regression,
)
from bothways.files import write_json
from bothways.run.common import SCRATCH, band_powers, control_patches, guessed_subjects, of_subjects, usable
from bothways.run.leaks import pretraining_overlap
from bothways.run.targets import Target
from bothways.run.tested import EVALUATION, Tested, frozen_encoder
from bothways.training import cls_features, infer

Said = Float[np.ndarray, "n t"]
"""A number, or the score of each class, for each window."""


def evaluate_target(opened: Tested, target: Target, part: str) -> dict[str, Any]:
    """Measures a run on its tested people, per window, recording and person, beside controls on the same windows.

    The controls: the training people's mean and median, or their share of each class; band power with a ridge
    regression, or a logistic regression of each class by itself; the frozen encoder with a ridge regression in closed
    form. One that cannot be had is left out with a note. The result is also written to the run.

    Args:
        opened: the run and its windows.
        target: what it tells.
        part: `test` or `validation`.

    Returns:
        `run`, `part`, `split`, `target` (see `finetune`), `classes` (of a number none), `task`, `model` and `controls`
        (of windows: `evaluation.regression_metrics`, or `evaluation.multilabel_metrics`), `levels` (the model and each
        control: `evaluation.by_level`), `comparisons` (of a number: the model's mean absolute error less each
        control's, person by person, `evaluation.paired_difference`; None of classes), `recordings` (`file`, `subject`,
        `windows`, `true` (the number, or the classes that are there; None where its windows differ), `predicted` (the
        mean number, or the mean probability of each class)), `pretraining_overlap`, `load_report`,
        `probe_load_report`, `notes`.

    Raises:
        UserError: no tested window can be used.
    """
    manifest, store, split, notes = opened.manifest, opened.store, opened.split, opened.notes
    people = getattr(split, part)
    sources = opened.sources()
    tested = usable(sources, opened.tested)
    training = usable(sources, of_subjects(opened.windows, split.train))
    truth, subjects = target.truth(tested), tested.subject
    arms: dict[str, Said] = {"model": target.read(opened.model, sources.of(tested))}
    arms |= _constants(target, training, len(tested))
    notes += guessed_subjects(store, {*split.train, *people})
    if gone := sorted(set(people) - set(subjects.tolist())):
        notes.append(f"{len(gone)} of the {part} people have no window in {store.path}: {', '.join(gone[:8])}")
    if target.kind == "several" and not truth.any(0).all():
        absent = [name for name, n in zip(target.names, truth.sum(0).tolist()) if not n]
        notes.append(f"the {part} people have no window of {', '.join(absent)}: no macro figure counts it")
    try:
        patches = control_patches(store, training, opened.patches)
        seen, asked = (band_powers(store, patches, windows) for windows in (training, tested))
        arms["band_power"] = _fitted(target, training, seen, asked, _logistic)
    except UserError as problem:
        notes.append(f"no band power: {problem}")
    encoder = frozen_encoder(manifest, notes)
    if encoder is not None:
        try:
            seen, asked = (infer(encoder, sources.of(windows), cls_features) for windows in (training, tested))
            arms["frozen_probe"] = _fitted(target, training, seen, asked, _probe)
        except UserError as problem:
            notes.append(f"no frozen probe: {problem}")

    def measure(truth: np.ndarray, said: np.ndarray, subjects: np.ndarray) -> dict[str, Any]:
        return target.measured(truth, said, subjects)

    measured = {name: measure(truth, said, subjects) for name, said in arms.items()}
    pretraining = None if manifest["from"] == SCRATCH else manifest["pretraining"] or {}
    result: dict[str, Any] = {
        "run": str(opened.run),
        "part": part,
        "split": manifest["split"],
        "target": target.told(),
        "classes": target.classes,
        "task": opened.task,
        "model": measured["model"],
        "controls": {name: one for name, one in measured.items() if name != "model"},
        "levels": {name: by_level(truth, said, subjects, tested.recording, measure) for name, said in arms.items()},
        "comparisons": _compared(truth, arms, subjects) if target.kind == "number" else None,
        "recordings": _recordings(target, store, tested, truth, arms["model"]),
        "pretraining_overlap": pretraining_overlap(pretraining, store, people, split),
        "load_report": None if opened.model.load_report is None else opened.model.load_report.as_dict(),
        "probe_load_report": encoder.load_report.as_dict() if encoder and encoder.load_report else None,
        "notes": notes,
    }
    file = opened.run / EVALUATION[part]
    try:
        write_json(file, result)
    except OSError as problem:
        notes.append(f"not kept in the run: {problem}")
    return result


def _constants(target: Target, training: eeg.Windows, n: int) -> dict[str, Said]:
    """Returns what needs no signal, of the training people, who each count the same."""
    people = mean_by_group(target.truth(training), training.subject)[1]
    if target.kind == "several":
        return {"base_rate": np.tile(people.mean(0), (n, 1))}
    return {
        "training_mean": np.tile(people.mean(0), (n, 1)),
        "training_median": np.tile(np.median(people, axis=0), (n, 1)),
    }


def _fitted(
    target: Target,
    training: eeg.Windows,
    seen: Float[np.ndarray, "m d"],
    asked: Float[np.ndarray, "n d"],
    classify: Callable[[np.ndarray, np.ndarray, list[str]], LinearControl],
) -> Said:
    """Fits a linear model to features, a number by ridge regression, of several classes each by itself."""
    truth, subjects = target.truth(training), training.subject.tolist()
    if target.kind == "number":
        return ridge_regression(seen, truth[:, 0], subjects=subjects).scores(asked)
    columns = []
    for column in truth.T.astype(np.int64):
        if column.min() == column.max():  # nothing to tell apart: as it always was
            columns.append(np.full(len(asked), float(column[0])))
        else:
            columns.append(classify(seen, column, subjects).scores(asked)[:, 1])
    return np.stack(columns, axis=1)


def _logistic(features: np.ndarray, labels: np.ndarray, subjects: list[str]) -> LinearControl:
    return fit_logistic(features, labels, 2)


def _probe(features: np.ndarray, labels: np.ndarray, subjects: list[str]) -> LinearControl:
    return ridge_probe(features, labels, 2, subjects=subjects)


def _compared(truth: Said, arms: dict[str, Said], subjects: np.ndarray) -> dict[str, Any]:
    """Compares the model's mean absolute error with each control's, person by person; below 0 it is better."""
    errors = {name: mean_by_group(np.abs(said - truth)[:, 0], subjects)[1].tolist() for name, said in arms.items()}
    mine = errors.pop("model")
    return {name: paired_difference(mine, theirs) for name, theirs in errors.items()}


def _recordings(target: Target, store: eeg.Store, tested: eeg.Windows, truth: Said, said: Said) -> list[dict[str, Any]]:
    told = []
    for index in np.unique(tested.recording).tolist():
        own, mean = truth[tested.recording == index], said[tested.recording == index].mean(0).tolist()
        number = target.kind == "number"
        true = float(own[0, 0]) if number else [name for name, there in zip(target.names, own[0]) if there]
        told.append(
            {
                "file": store.recordings[index].file,
                "subject": store.recordings[index].subject,
                "windows": len(own),
                "true": true if (own == own[0]).all() else None,
                "predicted": mean[0] if number else dict(zip(target.names, mean)),
            }
        )
    return told
