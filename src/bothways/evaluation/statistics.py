"""Is one arm better than another, or is it the draw of people? Means, spreads, paired differences."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from bothways.draws import generator

Values = Sequence[float] | Float[np.ndarray, "n"]
ClassValues = Float[np.ndarray, "n k"]
"""One value for each subject and class; NaN = the subject has no window of the class."""
EXACT_UP_TO = 14
"""Pairs up to which all 2^n changes of sign are tried, not drawn."""


def summarise(values: Values) -> dict[str, float | int | None]:
    """Summarises repeated measurements, one per split or subject.

    Returns:
        `mean`, `sd` (of the sample, n - 1), `n`, and `low` and `high` of the 95 % interval of the mean
        (Student's t). With one value only the mean is known, the rest is None. Splits share people, so
        over splits the interval is narrower than the truth.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    x = _finite(values)
    mean = float(x.mean())
    if len(x) == 1:
        return {"mean": mean, "sd": None, "n": 1, "low": None, "high": None}
    sd = float(x.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(x) - 1)) * sd / len(x) ** 0.5
    return {"mean": mean, "sd": sd, "n": len(x), "low": mean - half, "high": mean + half}


def wilson(n_right: int, n: int) -> dict[str, float | int]:
    """Returns a share and its 95 % interval, which holds near 0 and 1 and of few, too (Wilson 1927).

    Returns:
        `value`, `low`, `high`, `n`.

    Raises:
        ValueError: of none, or more than all.
    """
    if not 0 <= n_right <= n or n == 0:
        raise ValueError(f"expected some of 1 or more, got {n_right} of {n}")
    share, z = n_right / n, float(stats.norm.ppf(0.975))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return {"value": share, "low": max(0.0, middle - half), "high": min(1.0, middle + half), "n": n}


def mean_of_classes(values: ClassValues) -> dict[str, float | int | None]:
    """Summarises subjects of whom not everybody has every class, so that classes weigh the same.

    Subjects are a sample within each class; what one has of several classes varies together. So the standard error and
    its degrees of freedom are those of clusters (Bell and McCaffrey 2002), which is Student's t where everybody has
    every class, and Welch's with equal variances where everybody has one.

    Returns:
        `mean`: over classes, of the mean over the subjects who have it, `sd` (standard error × √n), `n` (subjects),
        and `low` and `high` of its 95 % interval; these and `sd` are None where a class has one subject only.

    Raises:
        ValueError: a subject or a class without a value, or one that is infinite.
    """
    has = ~np.isnan(values)
    if np.isinf(values).any() or not values.size or not (has.any(0).all() and has.any(1).all()):
        raise ValueError(f"expected finite numbers, some in each row and column, got {values!r}")
    n_of, means = has.sum(0), np.nanmean(values, 0)
    (n, k), mean = values.shape, float(means.mean())
    if n_of.min() < 2:
        return {"mean": mean, "sd": None, "n": n, "low": None, "high": None}
    weight = has / (k * np.sqrt(n_of * (n_of - 1.0)))
    error = float(np.linalg.norm((np.where(has, values - means, 0) * weight).sum(1)))
    spread = np.diag((weight**2).sum(1)) - weight / n_of @ weight.T  # of the subjects' errors, were these all alike
    half = float(stats.t.ppf(0.975, np.trace(spread) ** 2 / (spread**2).sum())) * error
    return {"mean": mean, "sd": error * n**0.5, "n": n, "low": mean - half, "high": mean + half}


def paired_difference(
    a: Values | ClassValues, b: Values | ClassValues, seed: int = 0, n_draws: int = 10_000
) -> dict[str, float | int | None]:
    """Compares two arms measured on the same splits or subjects, in the same order.

    Args:
        a: one value each, or [n k], one for each class that a subject has: classes weigh the same then.
        b: of the other arm.
        seed: of the test's draws.
        n_draws: changes of sign that are drawn where not all are tried.

    Returns:
        `mean` of a - b, `sd`, `n`, `low` and `high` of its 95 % interval (Student's t; of classes see
        `mean_of_classes`), `wins` (pairs with a > b), `p`: two-sided, from changing the signs of the differences (all
        2^n changes up to 14 pairs), `p_wilcoxon`: the same of their ranks (Wilcoxon 1945: what is large counts less;
        pairs without a difference left out).

    Raises:
        ValueError: different shapes or classes, no pair, a value that is not finite.
    """
    x, y = (_finite(one)[:, None] if np.ndim(one) == 1 else np.asarray(one, dtype=float) for one in (a, b))
    if x.shape != y.shape or (np.isnan(x) != np.isnan(y)).any():
        raise ValueError(f"expected pairs, got {len(a)} and {len(b)} values, or other classes")
    difference = x - y
    result = mean_of_classes(difference)
    share = np.nansum(difference / (~np.isnan(difference)).sum(0), 1) / difference.shape[1]  # in the mean, by subject
    draw = generator("paired", seed)
    result |= {"wins": int((share > 0).sum()), "p": _sign_test(share, draw, n_draws)}
    unequal = share[share != 0]
    ranks = np.sign(unequal) * stats.rankdata(np.abs(unequal))
    return result | {"p_wilcoxon": _sign_test(ranks, draw, n_draws)}


def holm(p: Sequence[float]) -> list[float]:
    """Adjusts p values of several comparisons so that one false alarm among all stays as rare as said (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, …, none gets below one that was smaller, or above 1.
    """
    values = np.asarray(p, dtype=float)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)), 1)
    return adjusted.tolist()


def sign_changes(n: int, draw: np.random.Generator, n_draws: int) -> Int[np.ndarray, "r n"]:
    """Returns all 2^n changes of n signs up to 14, of more as many as are to be drawn: rows of 1 and -1."""
    return np.array(list(product((-1, 1), repeat=n))) if n <= EXACT_UP_TO else draw.choice([-1, 1], size=(n_draws, n))


def as_large(values: Float[np.ndarray, "r"], observed: float, *, exact: bool) -> float:
    """Returns the two-sided p: the share of the values as far from 0 as the observed one.

    Where they are drawn, the observed one counts among them. An undefined value (NaN) counts as large.
    """
    # The tolerance keeps sums that are equal but for rounding on the side of "as large".
    n_large = int((~(np.abs(values) < abs(observed) - 1e-12)).sum())
    return n_large / len(values) if exact else (n_large + 1) / (len(values) + 1)


def _sign_test(difference: Float[np.ndarray, "n"], draw: np.random.Generator, n_draws: int) -> float:
    n = len(difference)
    if n == 0:
        return 1.0
    sums = sign_changes(n, draw, n_draws) @ difference
    return as_large(sums, float(difference.sum()), exact=n <= EXACT_UP_TO)


def _finite(values: Values) -> Float[np.ndarray, "n"]:
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise ValueError(f"expected a list of finite numbers, got {values!r}")
    return x
