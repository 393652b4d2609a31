"""Is one arm better than another, or is it the draw of people? Means, spreads, paired differences."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from bothways.draws import generator

Values = Sequence[float] | Float[np.ndarray, "n"]
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


def paired_difference(a: Values, b: Values, seed: int = 0, n_bootstrap: int = 10_000) -> dict[str, float | int | None]:
    """Compares two arms measured on the same splits or subjects, in the same order.

    Returns:
        `mean` of a - b, `sd`, `n`, `low` and `high` of its 95 % interval (percentiles of the bootstrap over pairs;
        with under ten pairs it is too narrow, so read `p` as well), `wins` (pairs with a > b), `p`: two-sided, from
        changing the signs of the differences (all 2^n changes up to 14 pairs), `p_wilcoxon`: the same of their ranks
        (Wilcoxon 1945: what is large counts less; pairs without a difference left out).

    Raises:
        ValueError: different lengths, no pair, a value that is not finite.
    """
    if len(a) != len(b):
        raise ValueError(f"expected pairs, got {len(a)} and {len(b)} values")
    difference = _finite(a) - _finite(b)
    n, mean = len(difference), float(difference.mean())
    draw = generator("paired", seed)
    result: dict[str, float | int | None] = {"mean": mean, "sd": None, "n": n, "low": None, "high": None}
    if n > 1:
        resampled = difference[draw.integers(n, size=(n_bootstrap, n))].mean(1)
        low, high = np.quantile(resampled, [0.025, 0.975])
        result |= {"sd": float(difference.std(ddof=1)), "low": float(low), "high": float(high)}
    result |= {"wins": int((difference > 0).sum()), "p": _sign_test(difference, draw, n_bootstrap)}
    unequal = difference[difference != 0]
    ranks = np.sign(unequal) * stats.rankdata(np.abs(unequal))
    return result | {"p_wilcoxon": _sign_test(ranks, draw, n_bootstrap)}


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
