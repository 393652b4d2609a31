"""Laws of masking, for every grid of channels and patches and every draw."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bothways.config import MaskingConfig
from bothways.draws import generator
from bothways.masking import Action, actions, block_positions, count_hidden, neighbours, random_positions

GRIDS = st.tuples(st.integers(1, 7), st.integers(1, 9)).flatmap(lambda shape: arrays(bool, shape))
RATIOS = st.floats(0.01, 0.99)
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def electrodes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Available positions, and distances between channels of which some have no place."""
    available = draw(GRIDS)
    n = len(available)
    places = draw(arrays(float, (n, 3), elements=st.floats(-1, 1)))
    unknown = draw(arrays(bool, n))
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    distances[unknown] = distances[:, unknown] = np.inf
    np.fill_diagonal(distances, 0)
    return available, distances


@given(GRIDS, RATIOS, SEEDS)
def test_random_positions_are_available_and_counted(available: np.ndarray, ratio: float, seed: int) -> None:
    masked = random_positions(available, ratio, generator("mask", seed))
    assert not (masked & ~available).any()
    assert masked.sum() == count_hidden(int(available.sum()), ratio)


@given(electrodes(), RATIOS, st.floats(0, 1), st.floats(0, 1), SEEDS)
def test_block_positions_are_available_and_counted(
    grid: tuple[np.ndarray, np.ndarray], ratio: float, space: float, time: float, seed: int
) -> None:
    available, distances = grid
    config = MaskingConfig(ratio=ratio, block_space=space, block_time=time)
    masked = block_positions(available, neighbours(distances), config, generator("mask", seed))
    assert not (masked & ~available).any()
    assert masked.sum() == count_hidden(int(available.sum()), ratio)
    again = block_positions(available, neighbours(distances), config, generator("mask", seed))
    assert (masked == again).all()


class FirstBlock(np.random.Generator):
    """Draws the centre of one block and no second."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.centre: int | None = None

    def permutation(self, places: np.ndarray) -> np.ndarray:
        order = super().permutation(places)[:1]
        self.centre = int(order[0])
        return order


@given(electrodes(), st.integers(2, 12), st.floats(0, 1), st.floats(0, 1), SEEDS)
def test_a_block_is_a_run_in_time_and_a_ball_in_space(
    grid: tuple[np.ndarray, np.ndarray], m: int, space: float, time: float, seed: int
) -> None:
    distances = grid[1]
    n = len(distances)
    rng = FirstBlock(seed)
    config = MaskingConfig(ratio=0.99, block_space=space, block_time=time)
    masked = block_positions(np.ones((n, m), bool), neighbours(distances), config, rng)
    assert rng.centre is not None
    channel, patch = divmod(rng.centre, m)
    rows, columns = np.flatnonzero(masked.any(1)), np.flatnonzero(masked.any(0))
    assert masked[channel, patch]
    if masked.sum() < count_hidden(n * m, config.ratio):  # else the one block was cut where the count was reached
        assert masked.sum() == len(rows) * len(columns)
        assert (np.diff(columns) == 1).all()
        assert len(columns) <= max(1, round(time * m))
        assert len(rows) <= max(1, round(space * n))
        # A ball: nobody left out is nearer than one who is in it; a channel without a place is alone.
        out = np.setdiff1d(np.arange(n), rows)
        assert np.isfinite(distances[channel, rows]).all()
        assert distances[channel, rows].max() <= distances[channel, out].min(initial=np.inf)


@given(GRIDS, RATIOS, st.floats(0, 1), st.floats(0, 1), SEEDS)
def test_replacements_come_from_available_positions(
    available: np.ndarray, ratio: float, mask: float, random: float, seed: int
) -> None:
    config = MaskingConfig(kind="random", ratio=ratio, mask=mask, random=random * (1 - mask))
    rng = generator("mask", seed)
    masked = random_positions(available, ratio, rng)
    action, replacement = actions(masked, available, config, rng)
    own = np.arange(masked.size).reshape(masked.shape)
    swapped = action == Action.RANDOM
    assert ((action == Action.KEEP) == ~masked).all()
    assert (replacement[~swapped] == own[~swapped]).all()
    assert available.flat[replacement[swapped]].all()
    if available.sum() > 1:
        assert (replacement[swapped] != own[swapped]).all()
