"""How good scores are, in numbers that stay honest where a class is rare and a person's windows are alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.errors import UserError
from bothways.evaluation.calibration import calibration, log_losses
from bothways.evaluation.splits import Names
from bothways.evaluation.tally import METRICS, PROBABLE, Tally, interval_of, resamples, too_few


def classification_metrics(
    labels: Int[np.ndarray, "n"],
    scores: Float[np.ndarray, "n k"],
    classes: Sequence[str],
    subjects: Names | None = None,
    *,
    seed: int = 0,
    n_bootstrap: int = 2000,
) -> dict[str, Any]:
    """Measures one set of predictions; what is undefined (no such class, one subject only) is None, with a reason.

    Args:
        labels: true class of each window, 0 to k - 1.
        scores: score of each class, best probabilities; the largest is the prediction.
        classes: names of the k classes.
        subjects: whose window it is; needed for `subjects` and the intervals.
        seed: draws of the bootstrap.
        n_bootstrap: resamples of the subjects.

    Returns:
        `n`, `classes`, `support` (class -> windows), `accuracy`, `balanced_accuracy` (mean recall of the classes
        that occur; None where there is one alone), `macro_f1` (as scikit-learn has it over classes that occur or are
        predicted: one that does not occur counts as 0 for whom predicts it, and not for others), `kappa`
        (Cohen's), `auroc` and `auprc` (average precision; of the second of two classes, of more the mean of one
        against the rest), `confusion` [k k] (row = truth), `per_class` (class -> `n`, `n_predicted`, `precision`,
        `recall`, `f1`, `auroc`, `auprc`), of probabilities also `log_loss` (natural), `balanced_log_loss` (the mean
        over classes of that of their windows), `brier` (0 to 1 for two
        classes, else 0 to 2), `ece` and `calibration` (see there), `n_subjects`, `subjects` (name -> `n`,
        `accuracy`), `interval`: `low` and `high` of the 95 % interval of the balanced accuracy when subjects are drawn
        anew (below ten subjects also `note`: it is too narrow; below five there is none), `intervals` (metric -> the
        same and the `resamples` in which it is defined; percentiles: the calibration error of a resample is biased
        upwards, as it is of few windows), and `undefined` (what is None -> why).

    Raises:
        UserError: no window.
        ValueError: shapes that differ, labels outside the classes, scores that are not finite.
    """
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=float)
    _check(labels, scores, classes, subjects)
    names, owner = np.unique(np.zeros(len(labels), int) if subjects is None else subjects, return_inverse=True)
    tally = Tally(labels, scores, owner, len(names))
    confusion = tally.confusion.sum(0)
    support = confusion.sum(1)
    point = {name: _or_none(values[0]) for name, values in tally.metrics(tally.once()).items()}
    per_class = {name: _of_class(tally, confusion, c) for c, name in enumerate(classes)}
    result: dict[str, Any] = {
        "n": len(labels),
        "classes": list(classes),
        "support": dict(zip(classes, support.tolist())),
        **point,
        "balanced_log_loss": _balanced_log_loss(tally.labels, tally.scores) if tally.probable else None,
        "calibration": calibration(labels, scores) if tally.probable else None,
        "confusion": confusion.tolist(),
        "per_class": per_class,
        "n_subjects": None,
        "subjects": None,
        "interval": None,
        "intervals": None,
        "undefined": _why_undefined(point, per_class),
    }
    if subjects is None:
        result["undefined"]["intervals"] = "whose windows they are is not known"
        return result
    correct = np.trace(tally.confusion, axis1=1, axis2=2)
    result["n_subjects"] = len(names)
    result["subjects"] = {
        str(name): {"n": int(n), "accuracy": float(right / n)} for name, n, right in zip(names, tally.n, correct)
    }
    if len(names) < 2:
        result["undefined"]["intervals"] = "they are of one subject"
        return result
    defined = [name for name in METRICS if point[name] is not None]
    if why := too_few(len(names)):
        result["undefined"]["intervals"] = why
        return result
    values = tally.metrics(resamples(len(names), seed, n_bootstrap), defined)
    result["intervals"] = intervals = {name: interval_of(values[name], len(names)) for name in defined}
    for name, interval in intervals.items():
        if interval is None:
            result["undefined"][f"interval of {name}"] = "in most draws of the subjects a class is absent"
    if balanced := intervals.get("balanced_accuracy"):
        result["interval"] = {key: value for key, value in balanced.items() if key != "resamples"}
    return result


TIE = 1e-9
"""What a unit of log loss weighs beside the balanced accuracy, which is coarse: enough to decide among equals."""


def how_good(measured: Mapping[str, Any]) -> float:
    """Returns by what a rate, a step or a strength is chosen: the larger, the better.

    Balanced accuracy, for by plain accuracy a rare class had better never be answered; among equals the least
    `balanced_log_loss`. Where there is one class only it is the accuracy, people weighing the same.

    Args:
        measured: what `classification_metrics` says of people who are neither trained on nor tested.
    """
    value = measured["balanced_accuracy"]
    if value is None:
        people = measured["subjects"]
        value = np.mean([p["accuracy"] for p in people.values()]) if people else measured["accuracy"]
    return float(value - TIE * (measured["balanced_log_loss"] or 0.0))


def _balanced_log_loss(labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n k"]) -> float:
    losses = log_losses(labels, probabilities)
    return float(np.mean([losses[labels == c].mean() for c in np.unique(labels)]))


def _check(labels: np.ndarray, scores: np.ndarray, classes: Sequence[str], subjects: Names | None) -> None:
    if not len(labels):
        raise UserError("evaluation: no labelled window to measure on; check the labels and the split")
    if scores.shape != (len(labels), len(classes)):
        raise ValueError(f"expected scores [{len(labels)} {len(classes)}], got {list(scores.shape)}")
    if subjects is not None and len(subjects) != len(labels):
        raise ValueError(f"expected {len(labels)} subjects, one per window, got {len(subjects)}")
    if labels.min() < 0 or labels.max() >= len(classes):
        raise ValueError(f"expected labels 0 to {len(classes) - 1}, got {labels.min()} to {labels.max()}")
    if not np.isfinite(scores).all():
        raise ValueError(f"scores are not finite in {int((~np.isfinite(scores)).any(1).sum())} windows")


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _of_class(tally: Tally, confusion: Int[np.ndarray, "k k"], c: int) -> dict[str, float | int | None]:
    right, n, n_predicted = int(confusion[c, c]), int(confusion[c].sum()), int(confusion[:, c].sum())
    auroc, auprc = tally.ranking(c, tally.once())[:, 0] if tally.k > 1 else (np.nan, np.nan)
    return {
        "n": n,
        "n_predicted": n_predicted,
        "precision": right / n_predicted if n_predicted else None,
        "recall": right / n if n else None,
        "f1": 2 * right / (n + n_predicted) if n + n_predicted else None,
        "auroc": _or_none(auroc),
        "auprc": _or_none(auprc),
    }


def _why_undefined(point: dict[str, float | None], per_class: dict[str, dict[str, Any]]) -> dict[str, str]:
    absent = [name for name, one in per_class.items() if not one["n"]]
    if len(absent) >= len(per_class) - 1:
        (alone,) = (name for name, one in per_class.items() if one["n"])
        lacking = f"all windows are of {alone}"
    else:
        lacking = f"no window is of {', '.join(absent)}"
    why = {name: lacking for name in ("balanced_accuracy", "kappa", "auroc", "auprc") if point[name] is None}
    if point["log_loss"] is None:
        why |= dict.fromkeys((*PROBABLE, "balanced_log_loss", "calibration"), "the scores are no probabilities")
    for name, one in per_class.items():
        if not one["n"]:
            why[f"recall of {name}"] = f"no window is of {name}"
        if not one["n_predicted"]:
            why[f"precision of {name}"] = f"no window is predicted to be of {name}"
    return why
