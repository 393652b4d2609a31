"""Small labelled sets inside larger ones, with the classes as in the whole."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def largest_remainder(n: int, counts: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """Returns how many of `n` things are of each stratum, so that shares are as in the whole (Hamilton's method).

    Each has its share rounded down, and those with the largest remainders one more; from as many things as strata on
    each has one at least, which those give up that have most beyond their share.

    Args:
        n: at most as many as there are.
        counts: of the whole, each above 0.
    """
    total = int(counts.sum())
    taken = np.maximum(n * counts // total, int(n >= len(counts)))
    while (missing := n - int(taken.sum())) != 0:
        short = n * counts - taken * total  # in whole numbers: no tie is broken by rounding
        if missing > 0:
            taken[int(short.argmax())] += 1
        else:
            taken[int(np.where(taken > 1, short, short.max() + 1).argmin())] -= 1
    return taken


def nested_order(strata: Sequence[str], rng: np.random.Generator) -> list[int]:
    """Returns an order of things whose beginnings, however long, have the strata in the shares of the whole.

    The first ones are one of each stratum, the most frequent first. From there on a beginning has what
    `largest_remainder` says, but for lengths at which that would take a thing away again that a shorter one has (the
    Alabama paradox; not with two strata).

    Args:
        strata: of each thing.
        rng: draws which things of a stratum come first, and which stratum goes before where they are equal.
    """
    names, of = np.unique(np.asarray(strata, dtype=str), return_inverse=True)
    of = rng.permutation(len(names))[of]
    counts = np.bincount(of, minlength=len(names))
    waiting = [rng.permutation(np.flatnonzero(of == stratum)).tolist() for stratum in range(len(names))]
    order, taken = [], np.zeros_like(counts)
    for n in range(1, len(of) + 1):
        if n <= len(names):
            chosen = int(np.where(taken == 0, counts, 0).argmax())
        else:
            behind = largest_remainder(n, counts) > taken
            chosen = int(np.where(behind, n * counts - taken * len(of), -len(of) * len(of)).argmax())
        order.append(waiting[chosen].pop())
        taken[chosen] += 1
    return order
