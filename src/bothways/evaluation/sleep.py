"""Which classes are sleep stages, which stage holds when, and how well two hypnograms agree, stage by stage."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.errors import UserError
from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import summarise

UNSCORED = -1
"""In labels and predictions: no stage."""
STAGES = ("W", "R", "NREM", "N1", "N2", "N3")
"""As a hypnogram has them from top to bottom; NREM where N1 to N3 are not told apart."""
MOVEMENT = "movement"
"""What Rechtschaffen and Kales score beside the stages, and the AASM manual does not."""
_KINDS = {
    "W": r"w|wk|wake|awake|wakefulness|s ?0",
    "R": r"r|rem",
    "NREM": r"n|n(?:on)? ?rem",
    "N1": r"(?:n|s|n(?:on)? ?rem) ?1",
    "N2": r"(?:n|s|n(?:on)? ?rem) ?2",
    "N3": r"(?:n|s|n(?:on)? ?rem) ?[34]|sws|slow wave",
    MOVEMENT: r"mt|movement(?: time)?",
}
_DIGITS = {"0": "W", "1": "N1", "2": "N2", "3": "N3", "4": "N3"}
"""Stages where the name says that it is one; REM has no digit that all agree on."""


def stage_of(name: str) -> str | None:
    """Returns the stage that a label means, as `W`, `Sleep stage 2`, `NREM 3`, `SLEEP-S4` or `REM sleep|5` do.

    S3 and S4 (N4) are one stage, N3, as the AASM manual has it.

    Returns:
        One of `STAGES`, `MOVEMENT`, or None: no stage.
    """
    plain = " ".join(re.split(r"[\s_\-/.:]+", name.casefold())).strip()
    found = re.fullmatch(r"(sleep )?(stage ?)?(.*?)( sleep)?(?: ?\| ?\d+)?", plain)
    assert found is not None
    if found[2] and (digit := _DIGITS.get(found[3])):
        return digit
    return next((stage for stage, pattern in _KINDS.items() if re.fullmatch(pattern, found[3])), None)


def sleep_stages(classes: Sequence[str]) -> dict[str, str] | None:
    """Returns the stage of each class, or None where the classes are no sleep stages.

    They are where each is one, or movement; there are two at least; and one is wake, or a name says `stage` or `sleep`:
    S1 and S2 alone may be codes of stimuli.
    """
    stages = {name: stage for name in classes if (stage := stage_of(name)) is not None}
    told = "W" in stages.values() or any(re.search("(?i)stage|sleep", name) for name in stages)
    if len(stages) < len(classes) or len({*stages.values()} - {MOVEMENT}) < 2 or not told:
        return None
    return stages


def stage_numbers(stages: Mapping[str, str]) -> tuple[list[str], Int[np.ndarray, " k"]]:
    """Returns the stages that classes stand for, in the order of `STAGES`, and the place of each class among them.

    Args:
        stages: see `sleep_stages`; movement is `UNSCORED`.
    """
    names = [stage for stage in STAGES if stage in stages.values()]
    return names, np.array([names.index(s) if s in names else UNSCORED for s in stages.values()], dtype=np.int64)


def most_of(
    edges_s: Float[np.ndarray, " e"],
    onset_s: Float[np.ndarray, " m"],
    duration_s: Float[np.ndarray, " m"],
    weights: Float[np.ndarray, "m k"],
) -> Int[np.ndarray, " n"]:
    """Returns what weighs most between each edge and the next: probabilities of moments, or 1 for a stage marked there.

    Args:
        edges_s: n + 1 times, rising.
        onset_s: where each stretch begins; stretches may overlap.
        duration_s: how long it lasts.
        weights: of each of the k in it; a row with NaN counts as nothing.

    Returns:
        0 to k - 1, of equal ones the first; `UNSCORED` where nothing lies.
    """
    known = ~np.isnan(weights).any(1) & (duration_s > 0)
    start_s, weight = onset_s[known], weights[known]
    times_s = np.concatenate([start_s, start_s + duration_s[known]]).clip(edges_s[0], edges_s[-1])
    order = np.argsort(times_s, kind="stable")
    times_s = np.concatenate([edges_s[:1], times_s[order]])
    slope = np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(np.concatenate([weight, -weight])[order], 0)])
    area = np.concatenate([np.zeros_like(slope[:1]), np.cumsum(slope[:-1] * np.diff(times_s)[:, None], 0)])
    within = np.stack([np.diff(np.interp(edges_s, times_s, column)) for column in area.T], 1).round(9)
    return np.where(within.max(1) > 0, within.argmax(1), UNSCORED)


def sleep_scores(
    labels: Int[np.ndarray, "n"], scores: Float[np.ndarray, "n k"], classes: Sequence[str], subjects: Names
) -> dict[str, Any] | None:
    """Measures the classes as sleep stages; None where they are others (see `sleep_stages`).

    Args:
        labels: true class of each window, 0 to k - 1.
        scores: of each class; the largest is the prediction.
        classes: names of the k classes.
        subjects: whose window it is.

    Returns:
        What `stage_metrics` returns, and `stage_of`: class -> stage.

    Raises:
        UserError: nothing but movement.
    """
    stages = sleep_stages(classes)
    if stages is None:
        return None
    names, number = stage_numbers(stages)
    return {**stage_metrics(number[labels], number[scores.argmax(1)], names, subjects), "stage_of": stages}


def stage_metrics(
    labels: Int[np.ndarray, "n"],
    predicted: Int[np.ndarray, "n"],
    stages: Sequence[str],
    subjects: Names | None = None,
) -> dict[str, Any]:
    """Compares two hypnograms, a stage per 30 s (the AASM manual's "epochs", which are windows here).

    Args:
        labels: true stage of each 30 s, 0 to k - 1; -1 = not scored.
        predicted: the same of the prediction; -1 = not covered.
        stages: names of the k stages.
        subjects: whose night it is; needed for `kappa_subjects`.

    Returns:
        `n` (compared), `unscored` (left out because one of both is -1), `accuracy`, `kappa` (Cohen's; None where one
        stage is all there is), `macro_f1` (mean over the stages that occur or are predicted), `stages` (name -> `n`,
        `n_predicted`, `precision`, `recall`, `f1`; None where undefined), `confusion` [k k] (row = truth), and
        `kappa_subjects`: what `summarise` says of each subject's own kappa, None without subjects.

    Raises:
        UserError: nothing to compare.
        ValueError: lengths that differ, or stages outside -1 to k - 1.
    """
    k = len(stages)
    if len(labels) != len(predicted) or (subjects is not None and len(subjects) != len(labels)):
        raise ValueError(f"expected as many predictions (and subjects) as labels, got {len(predicted)}, {len(labels)}")
    both = np.concatenate([labels, predicted])
    if len(both) and (both.min() < UNSCORED or both.max() >= k):
        raise ValueError(f"expected stages {UNSCORED} to {k - 1}, got {both.min()} to {both.max()}")
    scored = (labels != UNSCORED) & (predicted != UNSCORED)
    if not scored.any():
        raise UserError("sleep staging: no 30 s that are scored in both; check the labels and the coverage")
    labels, predicted = labels[scored], predicted[scored]
    whole = _agreement(labels, predicted, stages)
    kappas = []
    if subjects is not None:
        whose = np.asarray(subjects)[scored]
        kappas = [_agreement(labels[whose == s], predicted[whose == s], stages)["kappa"] for s in np.unique(whose)]
    known = [kappa for kappa in kappas if kappa is not None]
    return {
        "n": len(labels),
        "unscored": int((~scored).sum()),
        **{name: whole[name] for name in ("accuracy", "kappa", "macro_f1")},
        "stages": dict(zip(stages, _per_stage(np.array(whole["confusion"])))),
        "confusion": whole["confusion"],
        "kappa_subjects": summarise(known) if known else None,
    }


def _agreement(labels: Int[np.ndarray, "n"], predicted: Int[np.ndarray, "n"], stages: Sequence[str]) -> dict[str, Any]:
    return classification_metrics(labels, np.eye(len(stages))[predicted], stages)


def _per_stage(confusion: Int[np.ndarray, "k k"]) -> list[dict[str, Any]]:
    return [
        {
            "n": n,
            "n_predicted": n_predicted,
            "precision": hit / n_predicted if n_predicted else None,
            "recall": hit / n if n else None,
            "f1": 2 * hit / (n + n_predicted) if n + n_predicted else None,
        }
        for hit, n, n_predicted in zip(
            np.diag(confusion).tolist(), confusion.sum(1).tolist(), confusion.sum(0).tolist()
        )
    ]
