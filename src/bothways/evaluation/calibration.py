"""Is a probability of 0.8 right eight times in ten? Reliability, and a temperature, fitted on validation, for it."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import softmax

BINS = 15
"""Bins of equal width of the expected calibration error (Guo et al. 2017, section 4.1)."""
FEWEST = 20
"""Windows below which no temperature is fitted."""
TEMPERATURES = (0.05, 20.0)
"""Beyond these there is no temperature to speak of: without an error in validation the best is 0, of noise infinite."""
ALL_RIGHT = 0.95
"""Share of right answers from which a best temperature of 0 comes of there being (nearly) no error."""
TINY = float(np.finfo(float).eps)
"""A probability of 0 counts as this much in the log loss, as in scikit-learn."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""A probability of 0 counts as this much where logits are taken from it: models reckon in float32."""


def are_probabilities(scores: Float[np.ndarray, "n k"]) -> bool:
    """Says whether each row lies in 0 to 1 and adds up to 1, but for what float32 rounds."""
    return bool((scores >= 0).all() and (np.abs(scores.sum(1) - 1) < 1e-4).all())


def bin_of(confidence: Float[np.ndarray, "n"], n_bins: int = BINS) -> Int[np.ndarray, "n"]:
    """Returns the bin of each confidence; bins are open below and closed above, the first has 0 as well."""
    return np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], confidence)


def calibration(
    labels: Int[np.ndarray, "n"],
    probabilities: Float[np.ndarray, "n k"],
    *,
    class_index: int | None = None,
    n_bins: int = BINS,
) -> dict[str, Any]:
    """Compares how sure a model is with how often it is right (Guo et al. 2017, section 2).

    Args:
        labels: true class of each window, 0 to k - 1.
        probabilities: of each class.
        class_index: the class whose probability is compared with how often it is true; None: the class predicted.
        n_bins: bins of equal width from 0 to 1.

    Returns:
        `ece` (mean over windows of the distance between their bin's confidence and accuracy), `mce` (the largest
        distance), `confidence` and `accuracy` (means), `n_bins`, and `bins`, those that hold a window: `low`, `high`
        (edges), `n`, `confidence`, `accuracy`.

    Raises:
        ValueError: no window, or rows that are no probabilities.
    """
    if not len(labels) or not are_probabilities(probabilities):
        raise ValueError("expected probabilities of at least one window")
    probabilities = np.asarray(probabilities, dtype=float)
    confidence = probabilities.max(1) if class_index is None else probabilities[:, class_index]
    right = labels == (probabilities.argmax(1) if class_index is None else class_index)
    order = np.lexsort((right, confidence))  # sums to the same bits whatever the order of the windows
    confidence, right = confidence[order], right[order]
    place = bin_of(confidence, n_bins)
    n, sure, correct = (np.bincount(place, weight, n_bins) for weight in (None, confidence, right))
    edges = np.linspace(0, 1, n_bins + 1)
    bins = [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "n": int(n[i]),
            "confidence": float(sure[i] / n[i]),
            "accuracy": float(correct[i] / n[i]),
        }
        for i in np.flatnonzero(n)
    ]
    return {
        "ece": float(np.abs(correct - sure).sum() / len(labels)),
        "mce": max(abs(one["accuracy"] - one["confidence"]) for one in bins),
        "confidence": float(sure.sum() / len(labels)),
        "accuracy": float(correct.sum() / len(labels)),
        "n_bins": n_bins,
        "bins": bins,
    }


def log_losses(labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
    """Returns minus the log of each window's probability of its true class."""
    return -np.log(np.clip(probabilities[np.arange(len(labels)), labels].astype(float), TINY, 1))


def brier_scores(labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
    """Returns each window's squared error, summed over classes; of two classes half of it, as scikit-learn has it."""
    k = probabilities.shape[1]
    squares = ((probabilities - np.eye(k)[labels]) ** 2).sum(1)
    return squares / 2 if k == 2 else squares


def apply_temperature(probabilities: Float[np.ndarray, "n k"], temperature: float) -> Float[np.ndarray, "n k"]:
    """Divides the logits by a temperature: above 1 the model becomes less sure; what it predicts stays."""
    return softmax(_logits(probabilities) / temperature, axis=1)


def fit_temperature(labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n k"]) -> dict[str, Any]:
    """Finds the temperature with the least log loss (Guo et al. 2017, section 4.2), on people not trained or tested on.

    The loss is convex in 1 / temperature, so where its slope is 0 there is the one minimum.

    Returns:
        `temperature` (None where there is none), `reason` (why; None where there is one), `n` (windows).

    Raises:
        ValueError: rows that are no probabilities.
    """
    n_classes = len(np.unique(labels))
    if len(labels) < FEWEST:
        return _no_temperature(len(labels), f"{len(labels)} windows are too few, at least {FEWEST} are needed")
    if n_classes < 2:
        return _no_temperature(len(labels), "all windows are of one class")
    if not are_probabilities(probabilities):
        raise ValueError("expected probabilities, rows in 0 to 1 that add up to 1")
    logits = _logits(probabilities)
    true = logits[np.arange(len(labels)), labels]

    def slope(inverse: float) -> float:
        return float(((softmax(inverse * logits, axis=1) * logits).sum(1) - true).mean())

    coldest, hottest = TEMPERATURES
    if slope(1 / coldest) <= 0:
        right = float((logits.argmax(1) == labels).mean())
        why = "(nearly) all windows are right" if right > ALL_RIGHT else "the scores hardly differ between the classes"
        return _no_temperature(len(labels), f"the best is below {coldest:g}: {why}")
    if slope(1 / hottest) >= 0:
        why = f"the best is above {hottest:g}: the scores are hardly better than chance, or far too sure"
        return _no_temperature(len(labels), why)
    return {"temperature": 1 / brentq(slope, 1 / hottest, 1 / coldest), "reason": None, "n": len(labels)}


def temperature_scaling(
    validation: tuple[Int[np.ndarray, "m"], Float[np.ndarray, "m k"]],
    tested: tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n k"]],
) -> dict[str, Any]:
    """Fits a temperature on validation and measures what it does to the tested.

    Args:
        validation: labels and probabilities of people who are not tested.
        tested: labels and probabilities of the others.

    Returns:
        What `fit_temperature` returns, and `before` and `after` (None without a temperature) of the tested: `ece`,
        `log_loss`, `brier`, and `calibration` for a plot.
    """
    labels, probabilities = tested
    fitted = fit_temperature(*validation)
    temperature = fitted["temperature"]
    after = None if temperature is None else _told(labels, apply_temperature(probabilities, temperature))
    return {**fitted, "before": _told(labels, np.asarray(probabilities, dtype=float)), "after": after}


def _told(labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n k"]) -> dict[str, Any]:
    reliability = calibration(labels, probabilities)
    return {
        "ece": reliability["ece"],
        "log_loss": float(log_losses(labels, probabilities).mean()),
        "brier": float(brier_scores(labels, probabilities).mean()),
        "calibration": reliability,
    }


def _no_temperature(n: int, reason: str) -> dict[str, Any]:
    return {"temperature": None, "reason": reason, "n": n}


def _logits(probabilities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Returns the logits but for a constant in each row, which softmax does not see."""
    return np.log(np.clip(np.asarray(probabilities, dtype=float), SMALLEST, 1))
