"""Long recordings with events in them, made of stretches that were recorded apart; see `paste`.

What a model could find instead of the events is taken away where that can be done:

- *Level*: each source has the median of its stretches taken off, channel by channel (`levelled`).
- *Edges*: neighbours overlap by the length of a join. The one fades out by a cosine while the other fades in by a sine.
  The squares of the two add up to 1, so two signals that know nothing of each other keep their power: there is neither
  a step, which would show at all frequencies, nor the hollow that a straight fade leaves. An event begins and ends in
  the middle of its joins.
- *Padding*: a held value or zeros at a recording's end belong to that recording; they are not pasted.
- *Joins as such*: the background is cut into pieces of the same lengths as the events and put together anew. At least
  as many joins lie between two pieces of background (sham joins) as there are events, and they are listed: who finds
  joins finds these, too.

What differs between the sources as a whole (electrodes that dried, another gain) stays; it cannot be told from the
condition. Pasting rest into rest (two names for two stretches of one recording) shows what joins alone are worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float32, Float64
from scipy import ndimage

from bothways.eeg.recording import Recording

DEAD_UV, DEAD_S = 0.5, 0.5
"""No amplifier is as quiet: what moves by less than this in so long is no signal."""
BESIDE_S = 0.25
"""So much beside a dead stretch is not used."""


@dataclass(frozen=True, order=True)
class Piece:
    """Samples [start, stop) of a source and their class; "" = calibration, which has none."""

    source: int
    start: int
    stop: int
    label: str

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Laid:
    """Where a piece came to lie, from the middle of its first join to that of its last: samples [start, stop)."""

    piece: Piece
    start: int
    stop: int


def live_runs(recording: Recording, start: int, stop: int) -> list[tuple[int, int]]:
    """Returns the runs within [start, stop) that hold a signal: no gap, no missing sample, nothing dead.

    Dead is where, for `DEAD_S`, more than half of the channels move by less than `DEAD_UV` (padding, a held value), and
    `BESIDE_S` next to it, where filters ring. A single dead channel is the recording's own and stays.
    """
    n = recording.data_uv.shape[1]
    reach, beside = 2 * round(DEAD_S * recording.sfreq_hz / 2) + 1, round(BESIDE_S * recording.sfreq_hz)
    first = max(start - 2 * reach, 0)
    here = np.asarray(recording.data_uv[:, first : min(stop + 2 * reach, n)])
    filled = np.nan_to_num(here)
    moved_uv = ndimage.maximum_filter1d(filled, reach) - ndimage.minimum_filter1d(filled, reach)
    dead = (moved_uv < DEAD_UV).mean(0) > 0.5
    dead = ndimage.maximum_filter1d(dead, reach + 2 * beside) if dead.any() else dead
    broken = (dead | ~np.isfinite(here).all(0))[start - first : stop - first]
    mark = np.repeat(np.arange(len(recording.segments)), [s.stop - s.start for s in recording.segments])[start:stop]
    edges = np.flatnonzero(np.diff(np.where(broken, -1, mark), prepend=-2, append=-2)).tolist()
    return [(start + a, start + b) for a, b in pairwise(edges) if not broken[a]]


def cut_pieces(stretches: Sequence[Piece], shortest: int, longest: int, draw: np.random.Generator) -> list[Piece]:
    """Cuts stretches into pieces of drawn lengths, end to end.

    A length is uniform in [shortest, longest]; where less than `shortest` would be left behind, what there is becomes
    one piece, or two equal ones. So each sample lies in a piece, but for stretches shorter than `shortest`.

    Args:
        stretches: what to cut.
        shortest: samples of a piece, at the least.
        longest: at the most; twice `shortest` or more.
        draw: of the lengths.
    """
    pieces = []
    for stretch in stretches:
        at = stretch.start
        while (left := stretch.stop - at) >= shortest:
            n = int(draw.integers(shortest, longest + 1))
            if left - n < shortest:
                n = left if left <= longest else left // 2
            pieces.append(Piece(stretch.source, at, at + n, stretch.label))
            at += n
    return pieces


def arrange(
    calibration: Sequence[Piece], background: Sequence[Piece], events: Sequence[Piece], draw: np.random.Generator
) -> list[Piece]:
    """Returns an order: calibration first, then background in drawn order, and events in drawn places within.

    There is background at both ends of what follows the calibration and between any two events, and at least as many
    sham joins as events: of the places between pieces, none of which lies within the calibration, at most half are
    filled. Events for which there is no place are left
    out, which ones is drawn.
    """
    order = [*calibration, *(background[i] for i in draw.permutation(len(background)))]
    first = max(len(calibration) - 1, 0)  # behind it: an event between stretches of rest would be taken for rest
    places = max(len(order) - 1 - first, 0)
    n = min(len(events), places // 2)
    chosen = [events[i] for i in draw.permutation(len(events))[:n]]
    after = np.sort(draw.permutation(places)[:n]).tolist()
    for place, event in reversed(list(zip(after, chosen))):
        order.insert(first + place + 1, event)
    return order


def levelled(data_uv: Float32[np.ndarray, "C T"], stretches: Sequence[tuple[int, int]]) -> Float32[np.ndarray, "C T"]:
    """Returns a source less each channel's median over some stretches; padding outside of them moves no level."""
    used = np.concatenate([data_uv[:, start:stop] for start, stop in stretches], axis=1)
    return data_uv - np.median(used, axis=1, keepdims=True)


def paste(
    pieces: Sequence[Piece], sources: Sequence[Float32[np.ndarray, "C _"]], join: int
) -> tuple[Float64[np.ndarray, "C T"], list[Laid]]:
    """Joins pieces in their order; T is the sum of their lengths less `join` for each join.

    Args:
        pieces: twice `join` samples long or longer.
        sources: the recordings' samples in microvolts, `levelled`, in one order of channels.
        join: samples that neighbours overlap by; an even number.

    Returns:
        The samples in microvolts, and where each piece lies.
    """
    fade_in = np.sin((np.arange(join) + 0.5) / max(join, 1) * np.pi / 2)
    out = np.zeros((len(sources[0]), sum(map(len, pieces)) - join * (len(pieces) - 1)))
    laid, at = [], 0
    for number, piece in enumerate(pieces):
        signal = sources[piece.source][:, piece.start : piece.stop].astype(float)
        first, last = number == 0, number == len(pieces) - 1
        if not first:
            signal[:, :join] *= fade_in
        if not last:
            signal[:, len(piece) - join :] *= fade_in[::-1]
        stop = at + len(piece)
        out[:, at:stop] += signal
        laid.append(Laid(piece, at if first else at + join // 2, stop if last else stop - join // 2))
        at = stop - join
    return out, laid
