"""Masks by hand-made cases: what cannot be hidden, what replaces what, and one draw frozen for good."""

import numpy as np
import pytest
from scipy.stats import binom

from bothways.config import MaskingConfig
from bothways.draws import generator
from bothways.masking import Action, actions, block_positions, count_hidden, neighbours, random_positions

BERT = MaskingConfig(kind="random", ratio=0.15, mask=0.8, random=0.1)


def line_of(n: int) -> list[list[int]]:
    """Neighbours among `n` electrodes in a row, one apart."""
    places = np.arange(n, dtype=float)
    return neighbours(np.abs(places[:, None] - places))


@pytest.mark.parametrize(
    ("n", "ratio", "hidden"),
    [(0, 0.5, 0), (1, 0.15, 1), (3, 0.15, 1), (10, 0.15, 2), (10, 0.55, 6), (190, 0.5, 95), (2, 0.99, 2)],
)
def test_how_many_are_hidden(n: int, ratio: float, hidden: int) -> None:
    assert count_hidden(n, ratio) == hidden


def test_nothing_available_hides_nothing() -> None:
    none = np.zeros((3, 4), dtype=bool)
    for masked in (
        random_positions(none, 0.5, generator("mask", 0)),
        block_positions(none, line_of(3), MaskingConfig(), generator("mask", 0)),
    ):
        assert not masked.any()
        action, replacement = actions(masked, none, BERT, generator("mask", 0))
        assert (action == Action.KEEP).all()
        assert replacement.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_one_position_is_hidden_where_there_is_one() -> None:
    available = np.zeros((2, 3), dtype=bool)
    available[1, 2] = True
    assert (random_positions(available, 0.15, generator("mask", 0)) == available).all()
    assert (block_positions(available, line_of(2), MaskingConfig(), generator("mask", 0)) == available).all()


def test_blocks_hide_whole_stretches() -> None:
    """Of the hidden patches, nearly all have a hidden neighbour in time or on the next electrode."""
    config = MaskingConfig(ratio=0.3)
    alone = {"block": 0, "random": 0}
    for sample in range(50):
        everywhere = np.ones((10, 10), bool)
        rng = generator("mask", 1, 0, sample)
        for kind, masked in (
            ("block", block_positions(everywhere, line_of(10), config, rng)),
            ("random", random_positions(everywhere, 0.3, rng)),
        ):
            assert masked.sum() == 30
            padded = np.pad(masked, 1)
            near = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
            alone[kind] += int((masked & ~near).sum())
    assert alone["block"] < 50 * 30 * 0.05
    assert alone["random"] > 50 * 30 * 0.2


def test_shares_of_bert_lie_within_their_binomial_bounds() -> None:
    masked = np.ones((100, 200), dtype=bool)
    action, _ = actions(masked, masked, BERT, generator("mask", 0))
    for what, share in ((Action.MASK, 0.8), (Action.RANDOM, 0.1), (Action.UNCHANGED, 0.1)):
        count = int((action == what).sum())
        low, high = binom.interval(0.999, masked.size, share)
        assert low <= count <= high, (what, count)
    assert (action != Action.KEEP).all()


def test_all_mask_or_all_random() -> None:
    masked = random_positions(np.ones((8, 9), bool), 0.5, generator("mask", 3))
    only_mask, _ = actions(masked, np.ones((8, 9), bool), MaskingConfig(), generator("mask", 3))
    assert (only_mask == np.where(masked, Action.MASK, Action.KEEP)).all()
    only_random, _ = actions(masked, np.ones((8, 9), bool), MaskingConfig(mask=0, random=1), generator("mask", 3))
    assert (only_random == np.where(masked, Action.RANDOM, Action.KEEP)).all()


def test_neighbours_from_near_to_far() -> None:
    """Channel 1 lies where 0 lies; channel 3 at no known place."""
    inf = np.inf
    distances = np.array([[0, 0, 2, inf], [0, 0, 2, inf], [2, 2, 0, inf], [inf, inf, inf, 0]])
    assert neighbours(distances) == [[0, 1, 2], [1, 0, 2], [2, 0, 1], [3]]


def test_each_other_position_replaces_equally_often_and_itself_never() -> None:
    available = np.array([[True, True, False], [True, True, False]])
    always = MaskingConfig(kind="random", mask=0, random=1)
    counts = np.zeros((6, 6), dtype=int)
    for sample in range(3000):
        _, replacement = actions(available, available, always, generator("mask", 0, 0, sample))
        np.add.at(counts, (np.arange(6), replacement.ravel()), 1)
    low, high = binom.interval(0.9999, 3000, 1 / 3)
    for place in (0, 1, 3, 4):
        assert counts[place, place] == 0
        assert all(low <= counts[place, other] <= high for other in {0, 1, 3, 4} - {place})
    alone = np.array([[False, True]])
    action, replacement = actions(alone, alone, always, generator("mask", 0))
    assert (action.tolist(), replacement.tolist()) == ([[Action.KEEP, Action.RANDOM]], [[0, 1]])


def draw(epoch: int = 0, sample_id: int = 5, seed: int = 1) -> tuple[list[str], list[str], list[list[int]]]:
    available = np.ones((4, 8), dtype=bool)
    available[2, :3] = False
    rng = generator("mask", seed, epoch, sample_id)
    config = MaskingConfig(ratio=0.4, block_space=0.5, block_time=0.4, mask=0.6, random=0.3)
    masked = block_positions(available, line_of(4), config, rng)
    action, replacement = actions(masked, available, config, rng)
    random = [[int(i), int(replacement.flat[i])] for i in np.flatnonzero(action == Action.RANDOM)]
    rows = ["".join(".#"[x] for x in row) for row in masked.astype(int)]
    return rows, ["".join(".MRU"[x] for x in row) for row in action], random


def test_one_draw_is_frozen() -> None:
    """A change here changes every recorded loss and breaks exact resuming of older runs."""
    rows, what, random = draw()
    assert rows == ["..#....#", "..#.#..#", ".....###", "....####"]  # 12 of 29
    assert what == ["..M....R", "..R.M..M", ".....MRM", "....MRMU"]
    assert random == [[7, 12], [10, 7], [22, 6], [29, 11]]
    rng = generator("mask", 1, 0, 5)
    masked = random_positions(np.ones((2, 10), dtype=bool), 0.3, rng)
    assert np.flatnonzero(masked).tolist() == [2, 3, 4, 5, 10, 13]


def test_epoch_sample_and_seed_each_change_the_draw() -> None:
    assert len({str(d) for d in (draw(), draw(epoch=1), draw(sample_id=6), draw(seed=2))}) == 4
    assert draw() == draw()
