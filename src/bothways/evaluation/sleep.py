"""How well sleep stages agree, stage by stage."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from bothways.errors import UserError
from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import summarise

UNSCORED = -1
"""In labels and predictions: no stage."""


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
