"""Several labels at once, each there or not, or not known: seizure and artefact in one window, findings of a report."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from bothways.errors import UserError
from bothways.evaluation.splits import Names
from bothways.evaluation.tally import RANKED, interval_of, ranking, resamples, too_few

Values = dict[str, np.ndarray]
EACH = ("auroc", "auprc", "precision", "recall", "f1")


def multilabel_metrics(
    labels: Num[np.ndarray, "n k"],
    scores: Float[np.ndarray, "n k"],
    names: Sequence[str],
    subjects: Names | None = None,
    *,
    threshold: float | Sequence[float] = 0.5,
    seed: int = 0,
    n_bootstrap: int = 2000,
) -> dict[str, Any]:
    """Measures labels that do not exclude each other; what is undefined is None, with a reason.

    Args:
        labels: 1 = there, 0 = not; -1 or NaN = not known, which counts nowhere.
        scores: of each label.
        names: of the k labels.
        subjects: whose window it is; needed for the intervals.
        threshold: scores of at least this much are "there"; one for all labels, or one for each.
        seed: draws of the bootstrap.
        n_bootstrap: resamples of the subjects.

    Returns:
        `n`, `labels` (name -> `n` (known), `n_positive`, `auroc`, `auprc`, `precision`, `recall`, `f1`), `macro` (of
        each of the last five the mean over the same labels whatever the scores: those that are there somewhere, for
        `auroc` and `auprc` not everywhere; a precision of one predicted nowhere counts as 0; which labels are left out
        is in `undefined`), `micro` (of all known labels as if they were one), `exact_match` (share of the windows with
        all labels right, of those with all known), `n_exact` (how many those are), `threshold` (of each label),
        `n_subjects`, `intervals` (`macro auroc` … `exact match` -> `low`, `high`, `resamples`: 95 %, percentiles,
        subjects drawn anew; none below five, below ten with a `note`) and `undefined` (what is None, or left out of the
        macro figures -> why).

    Raises:
        UserError: no label is known.
        ValueError: shapes that differ, labels that are neither of these, scores that are not finite.
    """
    labels, scores = np.asarray(labels, dtype=float), np.asarray(scores, dtype=float)
    k = len(names)
    if labels.shape != scores.shape or scores.shape[1] != k or (subjects is not None and len(subjects) != len(labels)):
        raise ValueError(f"expected labels and scores [n {k}] and as many subjects")
    if not np.isfinite(scores).all() or not np.isin(labels[~np.isnan(labels)], (-1, 0, 1)).all():
        raise ValueError("expected finite scores, and labels of 0, 1, and -1 or NaN where they are not known")
    known, positive = labels >= 0, labels == 1
    if not known.any():
        raise UserError("evaluation: no known label to measure on; check the labels and the split")
    thresholds = np.broadcast_to(np.asarray(threshold, dtype=float), (k,))
    people, owner = np.unique(np.zeros(len(labels), int) if subjects is None else subjects, return_inverse=True)
    once = np.ones((1, len(people)), dtype=np.int64)
    predicted = scores >= thresholds

    def measured(times: Int[np.ndarray, "r s"]) -> tuple[list[Values], Values, np.ndarray]:
        columns = [
            _of_entries(positive[at, c], predicted[at, c], scores[at, c], owner[at], times)
            for c, at in enumerate(known.T)
        ]
        every = np.nonzero(known)
        micro = _of_entries(positive[every], predicted[every], scores[every], owner[every[0]], times)
        whole = known.all(1)
        right = (positive == predicted).all(1)[whole]
        n_right, n = (times @ np.bincount(owner[whole], weight, times.shape[1]) for weight in (right, None))
        return columns, micro, np.where(n > 0, n_right / np.maximum(n, 1), np.nan)

    columns, micro, exact = measured(once)
    undefined: dict[str, str] = {}

    def told(values: Values, of: str) -> dict[str, float | None]:
        found = {name: None if np.isnan(value[0]) else float(value[0]) for name, value in values.items()}
        why = MACRO_WHY if of == "macro" else WHY
        undefined.update({f"{name} of {of}": why[name] for name, value in found.items() if value is None})
        return found

    n_known, n_positive = known.sum(0), positive.sum(0)
    held = [c for c in range(k) if n_positive[c]]
    told_apart = [c for c in held if n_positive[c] < n_known[c]]
    averaged = {name: told_apart if name in RANKED else held for name in EACH}
    result: dict[str, Any] = {
        "n": len(labels),
        "labels": {
            name: {"n": int(n_known[c]), "n_positive": int(n_positive[c]), **told(columns[c], name)}
            for c, name in enumerate(names)
        },
        "macro": told(_macro(columns, averaged, 1), "macro"),
        "micro": told(micro, "micro"),
        "exact_match": None if np.isnan(exact[0]) else float(exact[0]),
        "n_exact": int(known.all(1).sum()),
        "threshold": thresholds.tolist(),
        "n_subjects": None if subjects is None else len(people),
        "intervals": None,
        "undefined": undefined,
    }
    for c, name in enumerate(names):
        if c not in held:
            undefined[f"{name} in macro"] = "it is known to be there nowhere, so no macro figure counts it"
        elif c not in told_apart:
            undefined[f"{name} in macro"] = "it is known to be there everywhere, so macro auroc and auprc leave it out"
    if result["exact_match"] is None:
        undefined["exact match"] = "no window has all labels known"
    if len(people) < 2:
        undefined["intervals"] = "whose they are is not known" if subjects is None else "they are of one subject"
        return result
    if why := too_few(len(people)):
        undefined["intervals"] = why
        return result
    columns, micro, exact = measured(times := resamples(len(people), seed, n_bootstrap))
    drawn = {f"macro {name}": values for name, values in _macro(columns, averaged, len(times)).items()}
    drawn |= {f"micro {name}": values for name, values in micro.items()} | {"exact match": exact}
    result["intervals"] = {name: interval_of(values, len(people)) for name, values in drawn.items()}
    return result


WHY = {
    "auroc": "it is known to be there everywhere or nowhere",
    "auprc": "it is known to be there everywhere or nowhere",
    "precision": "it is predicted nowhere",
    "recall": "it is known to be there nowhere",
    "f1": "it is there nowhere and predicted nowhere",
}

MACRO_WHY = dict.fromkeys(EACH, "no label is known to be there") | dict.fromkeys(
    RANKED, "no label is known to be there in some and not in others"
)


def _of_entries(
    positive: Bool[np.ndarray, "m"],
    predicted: Bool[np.ndarray, "m"],
    scores: Float[np.ndarray, "m"],
    owner: Int[np.ndarray, "m"],
    times: Int[np.ndarray, "r s"],
) -> dict[str, Float[np.ndarray, "r"]]:
    right, there, said = (
        times @ np.bincount(owner, which, times.shape[1]) for which in (positive & predicted, positive, predicted)
    )
    auroc, auprc = ranking(positive, scores, owner, times)
    return {
        "auroc": auroc,
        "auprc": auprc,
        "precision": np.where(said > 0, right / np.maximum(said, 1), np.nan),
        "recall": np.where(there > 0, right / np.maximum(there, 1), np.nan),
        "f1": np.where(there + said > 0, 2 * right / np.maximum(there + said, 1), np.nan),
    }


def _macro(columns: list[Values], averaged: dict[str, list[int]], n: int) -> Values:
    """Averages over labels that do not depend on the scores; NaN in a draw that one of them is nowhere in."""
    macro = {}
    for name, which in averaged.items():
        # What is predicted nowhere has no precision; left out, it would flatter who never dares it.
        values = [
            columns[c][name]
            if name in RANKED
            else np.where(np.isnan(columns[c]["recall"]), np.nan, np.nan_to_num(columns[c][name]))
            for c in which
        ]
        macro[name] = np.mean(values, axis=0) if which else np.full(n, np.nan)
    return macro
