"""Laws of pasted recordings, for any stretches, lengths and draws."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.eeg import Piece, arrange, cut_pieces, paste

FEWER = settings(max_examples=50)
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def stretches(draw, label):
    """One to three stretches of a source of 400 samples, in order."""
    edges = sorted(draw(st.lists(st.integers(0, 400), min_size=2, max_size=6, unique=True)))
    return [Piece(0, a, b, label) for a, b in list(pairwise(edges))[::2]]


@FEWER
@given(some=stretches("rest"), shortest=st.integers(4, 40), more=st.integers(0, 40), seed=SEEDS)
def test_pieces_tile_what_is_long_enough(some, shortest, more, seed) -> None:
    longest = 2 * shortest + more
    pieces = cut_pieces(some, shortest, longest, np.random.default_rng(seed))
    assert all(shortest <= len(piece) <= longest for piece in pieces)
    used = sorted(sample for piece in pieces for sample in range(piece.start, piece.stop))
    assert used == [n for s in some if len(s) >= shortest for n in range(s.start, s.stop)]


@FEWER
@given(
    rest=stretches("rest"), task=stretches("task"), calm=st.booleans(), shortest=st.integers(4, 40),
    half=st.integers(0, 2), seed=SEEDS,
)  # fmt: skip
def test_what_is_pasted_is_all_there_in_order_and_events_lie_apart(rest, task, calm, shortest, half, seed) -> None:
    draw = np.random.default_rng(seed)
    background, events = (cut_pieces(some, shortest, 2 * shortest, draw) for some in (rest, task))
    calibration = [Piece(0, 0, 2 * shortest, "")] if calm else []
    order = arrange(calibration, background, events, draw)
    assert order[: len(calibration)] == calibration
    assert sorted(p for p in order if p.label != "task") == sorted([*calibration, *background])
    assert {p for p in order if p.label == "task"} <= set(events)
    if not order:
        return
    source, join = np.random.default_rng(seed).normal(size=(2, 400)).astype(np.float32), 2 * half
    data_uv, laid = paste(order, [source], join)
    assert data_uv.shape == (2, sum(map(len, order)) - join * (len(order) - 1))
    # They tile the recording, in their order.
    assert [one.piece for one in laid] == order
    assert (laid[0].start, laid[-1].stop) == (0, data_uv.shape[1])
    assert all(a.stop == b.start for a, b in pairwise(laid))
    # No event at an end or beside another; as many shams as events, or more.
    is_event = [piece.label == "task" for piece in order]
    assert not is_event[0]
    assert not is_event[-1]
    assert not any(a and b for a, b in pairwise(is_event))
    assert sum(not (a or b) for a, b in pairwise(is_event)) >= sum(is_event)
    # Away from its joins a piece is what it was.
    for number, one in enumerate(laid):
        first = one.piece.start + (half if number else 0)
        inner = slice(one.start + half, one.stop - half)
        expected = source[:, first + half : first + (one.stop - one.start) - half]
        np.testing.assert_allclose(data_uv[:, inner], expected, atol=1e-6)
