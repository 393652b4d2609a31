"""What a pretrained encoder has to beat: chance, the largest class, and linear models in closed or convex form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from bothways.errors import UserError
from bothways.evaluation.metrics import classification_metrics, how_good
from bothways.evaluation.splits import Names

BANDS_HZ: dict[str, tuple[float, float]] = {
    "delta": (1, 4),
    "theta": (4, 8),
    "low alpha": (8, 10),
    "high alpha": (10, 12),
    "low beta": (12, 20),
    "high beta": (20, 30),
    "gamma": (30, 45),
}
"""From the first edge up to, not including, the second."""
LOGISTIC_C = (0.001, 0.01, 0.1, 1.0)
RIDGE_LAMBDA = tuple(float(value) for value in 10.0 ** np.arange(-1, 6))


@dataclass(frozen=True)
class LinearControl:
    """A fitted linear model: standardise, then one weighted sum per class."""

    mean: Float[np.ndarray, "d"]
    scale: Float[np.ndarray, "d"]
    weights: Float[np.ndarray, "d k"]
    bias: Float[np.ndarray, "k"]
    probabilities: bool
    """Softmax at the end (logistic), or the sums themselves (ridge: they add up to 1, but may leave 0 to 1)."""
    strength: float
    """C of the logistic regression, lambda of the ridge, as given or chosen."""

    def scores(self, features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Returns the score of each class; a class that was never trained on gets 0."""
        sums = (_finite(features) - self.mean) / self.scale @ self.weights + self.bias
        return softmax(sums, axis=1) if self.probabilities else sums


def chance(labels: Int[np.ndarray, "n"], classes: Sequence[str]) -> dict[str, Any]:
    """Returns what needs no signal: an even guess, and always the largest class of these labels.

    Returns:
        `accuracy` and `balanced_accuracy` of the guess, `majority_class`, `majority_accuracy`,
        `majority_balanced_accuracy`.
    """
    support = np.bincount(labels, minlength=len(classes))
    return {
        "accuracy": 1 / len(classes),
        "balanced_accuracy": 1 / len(classes),
        "majority_class": classes[int(support.argmax())],
        "majority_accuracy": float(support.max() / support.sum()),
        "majority_balanced_accuracy": 1 / int((support > 0).sum()),
    }


def majority(labels: Int[np.ndarray, "m"], n: int, n_classes: int) -> Float[np.ndarray, "n k"]:
    """Returns the classes' shares in the training labels as the score of each of `n` windows."""
    shares = np.bincount(labels, minlength=n_classes) / len(labels)
    return np.tile(shares, (n, 1))


def band_power(
    log_spectrum: Float[np.ndarray, "n c f"],
    frequencies_hz: Float[np.ndarray, "f"],
    bands: Mapping[str, tuple[float, float]] = BANDS_HZ,
) -> Float[np.ndarray, "n c*{len(bands)}"]:
    """Turns spectra into log band power: the log of the mean power of a band's bins.

    Args:
        log_spectrum: natural log of the power of n windows, c channels, f bins.
        frequencies_hz: the bins.
        bands: name -> edges in Hz.

    Raises:
        UserError: a band without a bin.
    """
    columns = []
    for name, (low, high) in bands.items():
        inside = (frequencies_hz >= low) & (frequencies_hz < high)
        if not inside.any():
            raise UserError(
                f"band power: no bin of the spectrum ({frequencies_hz[0]:g}-{frequencies_hz[-1]:g} Hz) lies in "
                f"{name} ({low:g}-{high:g} Hz); widen spectrum_hz or lengthen the patch"
            )
        columns.append(logsumexp(log_spectrum[:, :, inside], axis=2) - np.log(inside.sum()))
    return np.stack(columns, axis=2).reshape(len(log_spectrum), -1)


def fit_logistic(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, "n"],
    n_classes: int,
    *,
    c: float | Sequence[float] = 0.01,
    validation: tuple[Float[np.ndarray, "m d"], Int[np.ndarray, "m"], Names] | None = None,
) -> LinearControl:
    """Fits standardisation and a logistic regression in which every class weighs the same.

    Args:
        features: what to tell the classes from.
        labels: class of each window, 0 to `n_classes` - 1.
        n_classes: k.
        c: inverse strength of the penalty; several (`LOGISTIC_C`): the one that is best on validation (see
            `how_good`), the strongest penalty among equals.
        validation: features, labels and subjects of other people; needed to choose `c`.

    Raises:
        UserError: one class only, or nobody to choose `c` by.
        ValueError: features that are not finite.
    """
    features = _finite(features)
    values = [float(c)] if isinstance(c, int | float) else sorted(c)
    fitted = [_logistic(features, labels, n_classes, value) for value in values]
    if len(fitted) == 1:
        return fitted[0]
    if validation is None:
        raise UserError("logistic regression: choosing C needs validation people, got none; fix one C")
    asked, truth, subjects = validation
    names = [str(index) for index in range(n_classes)]
    return max(fitted, key=lambda one: how_good(classification_metrics(truth, one.scores(asked), names, subjects)))


def _logistic(
    features: Float[np.ndarray, "n d"], labels: Int[np.ndarray, "n"], n_classes: int, c: float
) -> LinearControl:
    present = _present(labels)
    mean, scale = _moments(features)
    model = LogisticRegression(C=c, class_weight="balanced", max_iter=2000)
    model.fit((features - mean) / scale, labels)
    weights = np.zeros((features.shape[1], n_classes))
    bias = np.full(n_classes, -np.inf)
    if len(present) == 2:  # one row for two classes: the logit of the second, the first one's being 0
        weights[:, present[1]] = model.coef_[0]
        bias[present] = 0.0, model.intercept_[0]
    else:
        weights[:, present] = model.coef_.T
        bias[present] = model.intercept_
    return LinearControl(mean, scale, weights, bias, probabilities=True, strength=c)


def ridge_probe(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, "n"],
    n_classes: int,
    *,
    subjects: Names | None = None,
    strengths: Sequence[float] = RIDGE_LAMBDA,
) -> LinearControl:
    """Fits a ridge regression of the classes (0 or 1 each) on frozen features, in closed form.

    Its lambda is the one with the least squared error when each subject in turn is left out, which needs no refit:
    with the hat matrix H, the error on the left-out rows b is (I - H_bb)^-1 r_b. Every class weighs the same.

    Args:
        features: what the frozen encoder gives.
        labels: class of each window, 0 to `n_classes` - 1.
        n_classes: k.
        subjects: whose window it is; None = each window is left out by itself.
        strengths: lambdas to choose from.

    Raises:
        UserError: one class only, or one subject only.
        ValueError: features that are not finite.
    """
    _present(labels)
    return _ridge(features, np.eye(n_classes)[labels], _class_weights(labels), subjects, strengths)


def ridge_regression(
    features: Float[np.ndarray, "n d"],
    values: Float[np.ndarray, "n"],
    *,
    subjects: Names | None = None,
    strengths: Sequence[float] = RIDGE_LAMBDA,
) -> LinearControl:
    """Fits a ridge regression of a number, in closed form; lambda is chosen as in `ridge_probe`, every row weighs 1.

    Args:
        features: what to tell the number from.
        values: the number of each window.
        subjects: whose window it is; None = each window is left out by itself.
        strengths: lambdas to choose from.

    Returns:
        the model, whose `scores` [n 1] are numbers.

    Raises:
        UserError: one subject only.
        ValueError: features that are not finite.
    """
    return _ridge(features, np.asarray(values, float)[:, None], np.ones(len(values)), subjects, strengths)


def _ridge(
    features: Float[np.ndarray, "n d"],
    target: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, "n"],
    subjects: Names | None,
    strengths: Sequence[float],
) -> LinearControl:
    features = _finite(features)
    names, owner = np.unique(np.arange(len(target)) if subjects is None else subjects, return_inverse=True)
    if len(names) < 2 and len(strengths) > 1:
        raise UserError(f"ridge probe: choosing lambda needs 2 subjects or more, got {len(names)} ({names[0]})")

    root = np.sqrt(weight)[:, None]
    mean, scale = _moments(features, weight)
    bias = np.average(target, axis=0, weights=weight)
    x, y = root * (features - mean) / scale, root * (target - bias)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    constant = root / np.linalg.norm(root)

    def error(strength: float) -> float:
        shrunk = u * (s**2 / (s**2 + strength))
        residual = y - shrunk @ (u.T @ y)
        total = 0.0
        for index in range(len(names)):
            b = owner == index
            hat = shrunk[b] @ u[b].T + constant[b] @ constant[b].T
            total += float((np.linalg.solve(np.eye(b.sum()) - hat, residual[b]) ** 2).sum())
        return total

    best = min(sorted(strengths, reverse=True), key=error) if len(strengths) > 1 else strengths[0]
    weights = vt.T @ ((s / (s**2 + best))[:, None] * (u.T @ y))
    return LinearControl(mean, scale, weights, bias, probabilities=False, strength=float(best))


def _present(labels: Int[np.ndarray, "n"]) -> Int[np.ndarray, "present"]:
    present = np.unique(labels)
    if len(present) < 2:
        raise UserError(
            f"expected windows of at least 2 classes to train on, got {len(present)}; check labels and split"
        )
    return present


def _class_weights(labels: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    support = np.bincount(labels)
    return len(labels) / ((support > 0).sum() * support[labels])


def _moments(
    features: Float[np.ndarray, "n d"], weight: Float[np.ndarray, "n"] | None = None
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "d"]]:
    mean = np.average(features, axis=0, weights=weight)
    scale = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=weight))
    # A feature that never changes tells nothing; rounding must not blow it up.
    return mean, np.where(scale > 1e-12 * (1 + np.abs(mean)), scale, 1.0)


def _finite(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    features = np.asarray(features, dtype=float)
    if not np.isfinite(features).all():
        raise ValueError(f"features are not finite in {int((~np.isfinite(features)).any(1).sum())} windows")
    return features
