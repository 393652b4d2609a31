"""Draws are pure functions of their numbers; the literals freeze them, for a resumed run must draw the same."""

import numpy as np
import pytest

from bothways.draws import epoch_order, generator


def test_literal_draws() -> None:
    assert generator("mask", seed=7, epoch=3, sample_id=11).integers(0, 1000, 6).tolist() == [
        296,
        923,
        707,
        143,
        754,
        750,
    ]
    assert generator("crop", seed=0).random(2).tolist() == [0.14031811338253375, 0.3089522822592764]
    assert epoch_order(8, seed=0, epoch=0).tolist() == [6, 1, 2, 7, 5, 0, 3, 4]
    assert epoch_order(8, seed=0, epoch=1).tolist() == [0, 7, 4, 3, 1, 5, 2, 6]


@pytest.mark.parametrize(
    "other", [("crop", 7, 3, 11), ("mask", 8, 3, 11), ("mask", 7, 4, 11), ("mask", 7, 3, 12), ("mask", 3, 7, 11)]
)
def test_each_number_matters(other: tuple[str, int, int, int]) -> None:
    here = generator("mask", 7, 3, 11).random(4)
    assert not np.array_equal(here, generator(*other).random(4))


def test_the_order_of_calls_does_not_matter() -> None:
    alone = generator("mask", 0, 0, 5).random(3)
    np.random.default_rng(1).random(10)
    generator("mask", 0, 0, 4).random(100)
    assert np.array_equal(generator("mask", 0, 0, 5).random(3), alone)


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    epoch_order(100, seed=3, epoch=2)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("n_samples", [0, 1, 2, 1000])
def test_an_epoch_visits_every_sample_once(n_samples: int) -> None:
    assert sorted(epoch_order(n_samples, seed=1, epoch=4)) == list(range(n_samples))
