"""The same predictions per window, per recording and per subject: many short answers are one longer one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import summarise
from bothways.evaluation.tally import METRICS, Tally


def mean_by_group(values: Float[np.ndarray, "n *k"], groups: Names) -> tuple[np.ndarray, Float[np.ndarray, "g *k"]]:
    """Returns the names of the groups (recordings or subjects), sorted, and the mean of the values of each.

    Of scores the mean probability, as `predict` writes it, not the mean of the log: windows of one recording are no
    independent evidence, and a single window that is wrong for certain does not decide for all. So it also is
    defined for scores that are no probabilities, and works for the values of a regression.
    """
    names, owner = np.unique(groups, return_inverse=True)
    total = np.zeros((len(names), *values.shape[1:]))
    np.add.at(total, owner, values)
    n = np.bincount(owner).reshape(-1, *[1] * (values.ndim - 1))
    return names, total / n


def metrics_by_level(
    labels: Int[np.ndarray, "n"],
    scores: Float[np.ndarray, "n k"],
    classes: Sequence[str],
    subjects: Names,
    recordings: Names | Int[np.ndarray, "n"],
    *,
    seed: int = 0,
    n_bootstrap: int = 2000,
) -> dict[str, Any]:
    """Measures whole recordings and whole subjects by their windows' mean scores, and windows within each subject.

    Args:
        labels: true class of each window, 0 to k - 1.
        scores: score of each class, best probabilities.
        classes: names of the k classes.
        subjects: whose window it is.
        recordings: which recording it is of, by name or number.
        seed: draws of the bootstrap.
        n_bootstrap: resamples of the subjects.

    Returns:
        `recording` and `subject`, each with `metrics` (see `classification_metrics`; its `n` counts recordings or
        subjects), `n_mixed` (those with windows of several classes: they have no class and are left out) and `reason`
        (why `metrics` is None; else None); and `within_subject` (see there).

    Raises:
        UserError: no window.
        ValueError: arrays that do not fit together, or a recording of two subjects.
    """
    if not len(labels) == len(scores) == len(subjects) == len(recordings):
        raise ValueError("expected as many labels, scores, subjects and recordings")
    told = {}
    for level, groups in (("recording", recordings), ("subject", subjects)):
        _, first, owner = np.unique(groups, return_index=True, return_inverse=True)
        people = np.asarray(subjects)[first]
        if (people[owner] != np.asarray(subjects)).any():
            raise ValueError("expected each recording to be of one subject")
        alone = np.bincount(owner, labels != labels[first][owner]) == 0
        if alone.any():
            mean = mean_by_group(scores, groups)[1]
            metrics, reason = classification_metrics(
                labels[first][alone], mean[alone], classes, people[alone], seed=seed, n_bootstrap=n_bootstrap
            ), None  # fmt: skip
        else:
            metrics, reason = None, f"every {level} has windows of several classes"
        told[level] = {"metrics": metrics, "n_mixed": int((~alone).sum()), "reason": reason}
    return {**told, "within_subject": within_subjects(labels, scores, subjects)}


def by_level(
    truth: Float[np.ndarray, "n *t"],
    predicted: Float[np.ndarray, "n *t"],
    subjects: Names,
    recordings: Names | Int[np.ndarray, "n"],
    measure: Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, Any]],
) -> dict[str, Any]:
    """Measures whole recordings and whole subjects by the mean of what is predicted of their windows.

    Args:
        truth: of each window, a number or several.
        predicted: the same.
        subjects: whose window it is.
        recordings: which recording it is of, by name or number.
        measure: (truth, predicted, subjects) -> metrics, such as `regression_metrics`.

    Returns:
        `recording` and `subject`, each with `metrics`, `n_mixed` (those whose windows have different truths: they are
        left out) and `reason` (why `metrics` is None; else None).
    """
    told = {}
    for level, groups in (("recording", recordings), ("subject", subjects)):
        _, first, owner = np.unique(groups, return_index=True, return_inverse=True)
        differs = (truth != truth[first][owner]).reshape(len(truth), -1).any(1)
        alone = np.bincount(owner, differs) == 0
        mean = mean_by_group(predicted, groups)[1]
        metrics = measure(truth[first][alone], mean[alone], np.asarray(subjects)[first][alone]) if alone.any() else None
        reason = None if alone.any() else f"the windows of every {level} differ in what is true of them"
        told[level] = {"metrics": metrics, "n_mixed": int((~alone).sum()), "reason": reason}
    return told


def within_subjects(
    labels: Int[np.ndarray, "n"], scores: Float[np.ndarray, "n k"], subjects: Names
) -> dict[str, dict[str, Any]]:
    """Measures each subject's windows alone, so that how subjects differ helps nobody and each counts the same.

    Returns:
        Metric -> `mean`, `sd`, `n`, `low`, `high` over the subjects in whom it is defined (see `summarise`; all None
        and `n` 0 where that is nobody), and `values` (subject -> value or None).
    """
    names, owner = np.unique(subjects, return_inverse=True)
    rows = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    values: dict[str, dict[str, float | None]] = {metric: {} for metric in METRICS}
    for name, mine in zip(names, rows):
        tally = Tally(labels[mine], scores[mine], np.zeros(len(mine), int), 1)
        for metric, (value,) in tally.metrics(tally.once()).items():
            values[metric][str(name)] = None if np.isnan(value) else float(value)
    nobody = {"mean": None, "sd": None, "n": 0, "low": None, "high": None}
    told = {}
    for metric, each in values.items():
        known = [value for value in each.values() if value is not None]
        told[metric] = {**(summarise(known) if known else nobody), "values": each}
    return told
