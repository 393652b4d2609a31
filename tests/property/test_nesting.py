"""Nested, stratified subsets: what a curve over labels draws its texts by."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.draws import generator
from bothways.evaluation.nesting import largest_remainder, nested_order

Counts = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def things(counts: list[int]) -> list[str]:
    return [name for name, n in zip("abcdef", counts) for _ in range(n)]


@pytest.mark.parametrize(
    ("n", "counts", "expected"),
    [
        (10, [6, 6, 2], [4, 4, 2]),  # quotas 4.29, 4.29, 1.43
        (11, [6, 6, 2], [5, 5, 1]),  # the Alabama paradox: the third loses one
        (5, [90, 5, 5], [3, 1, 1]),  # 4.5, 0.25, 0.25: one each
        (3, [90, 5, 5], [1, 1, 1]),
        (100, [797, 3], [99, 1]),  # 99.6, 0.4
        (2, [90, 5, 5], [2, 0, 0]),  # fewer than strata: the share alone
        (14, [6, 6, 2], [6, 6, 2]),
    ],
)
def test_the_largest_remainder(n: int, counts: list[int], expected: list[int]) -> None:
    assert largest_remainder(n, np.array(counts)).tolist() == expected


def test_a_beginning_keeps_what_a_shorter_one_has() -> None:
    """6, 6 and 2: at 11 the largest remainder would take one away; at 12 all is as it says again."""
    strata = things([6, 6, 2])
    order = nested_order(strata, generator("test", 0))
    counts = [[Counter(strata[i] for i in order[:n])[name] for name in "abc"] for n in range(15)]
    assert sorted(map(sorted, counts[1:4])) == [[0, 0, 1], [0, 1, 1], [1, 1, 1]]
    assert counts[10] == [4, 4, 2]
    assert counts[11] in ([5, 4, 2], [4, 5, 2])
    assert counts[12] == [5, 5, 2]


@settings(max_examples=150, deadline=None)
@given(counts=Counts, seed=st.integers(0, 1000))
def test_laws(counts: list[int], seed: int) -> None:
    strata = things(counts)
    order = nested_order(strata, generator("test", seed))
    assert sorted(order) == list(range(len(strata)))
    taken = np.zeros(len(counts), int)
    for n, one in enumerate(order, 1):
        taken["abcdef".index(strata[one])] += 1
        if n >= len(counts):
            assert taken.min() >= 1
            exact = largest_remainder(n, np.array(counts))
            assert (exact >= 1).all()
            assert exact.sum() == n
            assert np.abs(taken - exact).max() <= 1
    assert taken.tolist() == counts


@settings(max_examples=100, deadline=None)
@given(a=st.integers(1, 80), b=st.integers(1, 80), seed=st.integers(0, 1000))
def test_two_classes_have_their_exact_shares(a: int, b: int, seed: int) -> None:
    """Each count is the whole number next to its share, or one where that is none."""
    strata = things([a, b])
    order = nested_order(strata, generator("test", seed))
    for n in range(2, a + b + 1):
        share = n * a / (a + b)
        n_a = sum(strata[i] == "a" for i in order[:n])
        rare = (n_a == 1 and share < 1) or (n_a == n - 1 and share > n - 1)
        assert rare or abs(n_a - share) <= 0.5 + 1e-9


def test_seeds_draw_others_and_the_same_seed_the_same() -> None:
    strata = things([30, 20, 10])
    orders = [nested_order(strata, generator("test", seed)) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
