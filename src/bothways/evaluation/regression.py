"""How far predicted numbers (an age, say) are from the true ones, beside what needs no signal."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.errors import UserError
from bothways.evaluation.splits import Names
from bothways.evaluation.tally import interval_of, resamples, too_few


def regression_metrics(
    truth: Float[np.ndarray, "n"],
    predicted: Float[np.ndarray, "n"],
    subjects: Names | None = None,
    *,
    seed: int = 0,
    n_bootstrap: int = 2000,
) -> dict[str, Any]:
    """Measures predicted numbers; what is undefined is None, with a reason.

    Of windows of one recording, take their mean first (`mean_by_group`): a subject has one age.

    Args:
        truth: the true numbers.
        predicted: what was predicted.
        subjects: whose they are; needed for the intervals.
        seed: draws of the bootstrap.
        n_bootstrap: resamples of the subjects.

    Returns:
        `n`, `bias` (mean of predicted - true), `mae`, `rmse`, `r2` (1 - squared error / that of the mean of `truth`
        itself; below 0 where that is better), `pearson`, `spearman`, `n_subjects`, `intervals` (metric -> `low`,
        `high`, `resamples`: 95 %, percentiles, subjects drawn anew; none below
        five, below ten with a `note`) and `undefined` (what is None -> why).

    Raises:
        UserError: nothing to measure.
        ValueError: different lengths, or a number that is not finite.
    """
    truth, predicted = np.asarray(truth, dtype=float), np.asarray(predicted, dtype=float)
    if not len(truth):
        raise UserError("evaluation: nothing with a true value to measure on; check the labels and the split")
    if len(predicted) != len(truth) or (subjects is not None and len(subjects) != len(truth)):
        raise ValueError(f"expected {len(truth)} predictions and as many subjects")
    if not np.isfinite([truth, predicted]).all():
        raise ValueError("expected finite numbers")
    names, owner = np.unique(np.zeros(len(truth), int) if subjects is None else subjects, return_inverse=True)
    once = np.ones((1, len(names)), dtype=np.int64)
    point = {name: values[0] for name, values in _metrics(truth, predicted, owner, once).items()}
    same = "true" if np.isnan(point["r2"]) else "predicted"
    undefined = {name: f"all {same} values are equal" for name, value in point.items() if np.isnan(value)}
    result: dict[str, Any] = {
        "n": len(truth),
        **{name: None if name in undefined else float(value) for name, value in point.items()},
        "n_subjects": None if subjects is None else len(names),
        "intervals": None,
        "undefined": undefined,
    }
    if len(names) < 2:
        undefined["intervals"] = "whose they are is not known" if subjects is None else "they are of one subject"
        return result
    if why := too_few(len(names)):
        undefined["intervals"] = why
        return result
    drawn = _metrics(truth, predicted, owner, resamples(len(names), seed, n_bootstrap))
    result["intervals"] = {
        name: interval_of(values, len(names)) for name, values in drawn.items() if name not in undefined
    }
    for name, interval in result["intervals"].items():
        if interval is None:
            undefined[f"interval of {name}"] = "in most draws of the subjects all values are equal"
    return result


def constant_controls(
    training: Float[np.ndarray, "m"],
    truth: Float[np.ndarray, "n"],
    subjects: Names | None = None,
    *,
    seed: int = 0,
    n_bootstrap: int = 2000,
) -> dict[str, dict[str, Any]]:
    """Measures what needs no signal: always the mean (best for `rmse`), always the median (best for `mae`) of training.

    Returns:
        `mean` and `median`, each with what `regression_metrics` returns and `value`, which is always predicted.
    """
    constants = {"mean": float(np.mean(training)), "median": float(np.median(training))}
    return {
        name: {
            **regression_metrics(truth, np.full(len(truth), value), subjects, seed=seed, n_bootstrap=n_bootstrap),
            "value": value,
        }
        for name, value in constants.items()
    }


def _metrics(
    truth: Float[np.ndarray, "n"],
    predicted: Float[np.ndarray, "n"],
    owner: Int[np.ndarray, "n"],
    times: Int[np.ndarray, "r s"],
) -> dict[str, Float[np.ndarray, "r"]]:
    """Returns each metric when each subject counts `times` often; NaN where all true or predicted values are equal."""
    error, t, p = predicted - truth, truth - truth.mean(), predicted - predicted.mean()
    per_window = (np.ones_like(t), error, np.abs(error), error**2, t, p, t * t, p * p, t * p)
    sums = np.stack([np.bincount(owner, values, times.shape[1]) for values in per_window], axis=1)
    n, error, absolute, square, t, p, tt, pp, tp = (times @ sums).T
    var_t, var_p = (_above_rounding(n * xx - x * x, n * xx) for x, xx in ((t, tt), (p, pp)))
    return {
        "bias": error / n,
        "mae": absolute / n,
        "rmse": np.sqrt(square / n),
        "r2": 1 - n * square / var_t,
        "pearson": (n * tp - t * p) / np.sqrt(var_t * var_p),
        "spearman": _spearman(truth, predicted, owner, times),
    }


def _above_rounding(difference: Float[np.ndarray, "r"], of: Float[np.ndarray, "r"]) -> Float[np.ndarray, "r"]:
    return np.where(difference > 1e-12 * of, difference, np.nan)


def _spearman(
    truth: Float[np.ndarray, "n"],
    predicted: Float[np.ndarray, "n"],
    owner: Int[np.ndarray, "n"],
    times: Int[np.ndarray, "r s"],
) -> Float[np.ndarray, "r"]:
    codes = [np.unique(values, return_inverse=True)[1] for values in (truth, predicted)]
    found = np.full(len(times), np.nan)
    for r, one in enumerate(times.astype(float)):
        weight, ranks, variances = one[owner], [], []
        for code in codes:
            n = np.bincount(code, weight)
            rank = np.cumsum(n) - (n + weight.sum()) / 2  # the mean rank of equal values, from the middle
            variances.append(n @ rank**2)
            ranks.append(rank[code])
        if min(variances) > 0:
            found[r] = (weight * ranks[0]) @ ranks[1] / np.sqrt(variances[0] * variances[1])
    return found
