"""How good scores are, in numbers that stay honest where a class is rare and a person's windows are alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.metrics import roc_auc_score

from bothways.draws import generator
from bothways.errors import UserError
from bothways.evaluation.splits import Names


def classification_metrics(
    labels: Int[np.ndarray, "n"],
    scores: Float[np.ndarray, "n k"],
    classes: Sequence[str],
    subjects: Names | None = None,
    *,
    seed: int = 0,
    n_bootstrap: int = 2000,
) -> dict[str, Any]:
    """Measures one set of predictions; what is undefined (no such class, one subject only) is None.

    Args:
        labels: true class of each window, 0 to k - 1.
        scores: score of each class, best probabilities; the largest is the prediction.
        classes: names of the k classes.
        subjects: whose window it is; needed for `subjects` and `interval`.
        seed: draws of the bootstrap.
        n_bootstrap: resamples of the subjects.

    Returns:
        `n`, `classes`, `support` (class -> windows), `accuracy`, `balanced_accuracy` (mean recall of the classes
        that occur; None where there is one alone), `macro_f1` (over classes that occur or are predicted), `kappa`,
        `auroc` (k > 2: one against the rest, mean), `confusion` [k k] (row = truth), `n_subjects`, `subjects` (name ->
        `n`, `accuracy`), and `interval`: `low` and `high` of the 95 % interval of the balanced accuracy when subjects
        are drawn anew.

    Raises:
        UserError: no window.
        ValueError: shapes that differ, labels outside the classes, scores that are not finite.
    """
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=float)
    _check(labels, scores, classes, subjects)
    k = len(classes)
    predicted = scores.argmax(1)
    # One confusion matrix per subject: every other count, and every resample, is a sum of them.
    names, owner = np.unique(np.zeros(len(labels), int) if subjects is None else subjects, return_inverse=True)
    counts = np.bincount((owner * k + labels) * k + predicted, minlength=len(names) * k * k)
    per_subject = counts.reshape(len(names), k, k)
    confusion = per_subject.sum(0)
    told_apart = np.count_nonzero(confusion.sum(1)) > 1  # where all windows are of one class, a constant is perfect

    result: dict[str, Any] = {
        "n": len(labels),
        "classes": list(classes),
        "support": dict(zip(classes, confusion.sum(1).tolist())),
        "accuracy": float(np.trace(confusion) / len(labels)),
        "balanced_accuracy": float(_balanced_accuracy(confusion[None])[0]) if told_apart else None,
        "macro_f1": _macro_f1(confusion),
        "kappa": _kappa(confusion),
        "auroc": _auroc(labels, scores),
        "confusion": confusion.tolist(),
        "n_subjects": None,
        "subjects": None,
        "interval": None,
    }
    if subjects is not None:
        n_windows = per_subject.sum((1, 2))
        correct = np.trace(per_subject, axis1=1, axis2=2)
        result["n_subjects"] = len(names)
        result["subjects"] = {
            str(name): {"n": int(n), "accuracy": float(right / n)} for name, n, right in zip(names, n_windows, correct)
        }
        if len(names) > 1 and told_apart:
            result["interval"] = _interval(per_subject, seed, n_bootstrap)
    return result


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


def _balanced_accuracy(confusions: Int[np.ndarray, "b k k"]) -> Float[np.ndarray, "b"]:
    support = confusions.sum(2)
    recall = np.diagonal(confusions, axis1=1, axis2=2) / np.maximum(support, 1)
    return recall.sum(1) / (support > 0).sum(1)


def _macro_f1(confusion: Int[np.ndarray, "k k"]) -> float:
    both = confusion.sum(0) + confusion.sum(1)
    return float(np.mean(2 * np.diag(confusion)[both > 0] / both[both > 0]))


def _kappa(confusion: Int[np.ndarray, "k k"]) -> float | None:
    n = confusion.sum()
    expected = float(confusion.sum(0) @ confusion.sum(1)) / n**2
    return None if expected == 1 else float((np.trace(confusion) / n - expected) / (1 - expected))


def _auroc(labels: Int[np.ndarray, "n"], scores: Float[np.ndarray, "n k"]) -> float | None:
    k = scores.shape[1]
    if len(np.unique(labels)) < k or k < 2:
        return None
    if k == 2:
        return float(roc_auc_score(labels, scores[:, 1] - scores[:, 0]))
    return float(np.mean([roc_auc_score(labels == c, scores[:, c]) for c in range(k)]))


def _interval(per_subject: Int[np.ndarray, "s k k"], seed: int, n_bootstrap: int) -> dict[str, float]:
    n = len(per_subject)
    times = generator("bootstrap", seed).multinomial(n, np.full(n, 1 / n), size=n_bootstrap)
    values = _balanced_accuracy(np.einsum("rs,sij->rij", times, per_subject))
    low, high = np.quantile(values, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}
