"""Time stamps of samples to a rate and to stretches without a gap, for files that state no rate of their own.

Stamps are rounded, come in bursts and late, and now and then before the one in front; the samples behind them are
evenly spaced. So nothing is read from single steps: the rate comes from the whole span, and a gap is where the level of
the stamps, averaged over a second, moves and stays.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int

from bothways.eeg.recording import Note, Segment
from bothways.errors import UserError

USUAL_HZ = (
    50, 64, 100, 125, 128, 150, 160, 200, 220, 240, 250, 256, 300, 400, 500, 512, 600, 800, 1000, 1024, 1200, 1600,
    2000, 2048, 2400, 2500, 4000, 4096, 4800, 5000, 5120, 8000, 8192, 9600, 10000, 16384, 20000,
)  # fmt: skip
"""Rates that amplifiers have; a measured one that fits one of them as well is taken for it."""
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MAX_BACK_S = 0.1
"""A stamp may lie so far before the one in front: packets arrive late. Further back the rows are out of order."""
_MAX_OFF_S = 0.5
"""So far from evenly spaced, the samples are not."""
_SOME = 2_000_000
"""So many stamps say what the usual step is."""
_SLOWEST_HZ = 20.0
"""The time's unit, where not stated, is the longest in which the rate is at least this."""
_AGREE = 0.02
"""A stated rate and the stamps may differ by this share."""


@dataclass(frozen=True)
class Timing:
    """What stamps say; `start_s` is the first one, in seconds of the stamps' own clock."""

    sfreq_hz: float
    segments: list[Segment]
    start_s: float
    notes: list[Note]


def read_stamps(
    path: Path,
    stamps: Float64[np.ndarray, " T"],
    unit: str | None,
    stated_hz: float | None = None,
    *,
    mend: str = "",
) -> Timing:
    """Finds rate and gaps.

    Args:
        path: for messages.
        stamps: a time for each sample, from any zero.
        unit: `s`, `ms`, `us`, `ns`; None = not stated, and told by the rate that it gives.
        stated_hz: the rate that the user or a file beside it states; None = unknown.
        mend: what to do about times that are missing or fall; empty = what one does in a table.

    Raises:
        UserError: fewer than two stamps, one is missing, they go back or are not evenly spaced, contradict the stated
            rate, or count samples and no rate is stated.
    """
    if len(stamps) < 2:
        raise UserError(f"{path}: expected at least two samples to tell a rate from their times, got {len(stamps)}")
    if not np.isfinite(stamps).all():
        row = int(np.argmin(np.isfinite(stamps))) + 1
        raise UserError(
            f"{path}: expected a time for each sample, sample {row} has none; {mend or 'fill it in or remove the row'}"
        )
    mend = mend or "sort the rows by time"
    if stamps[-1] <= stamps[0]:
        raise UserError(f"{path}: expected times that rise, got {stamps[0]:g} to {stamps[-1]:g}; {mend}")
    notes: list[Note] = []
    if unit is None and _counts(stamps):
        if stated_hz is None:
            raise UserError(
                f"{path}: expected times, got a count of samples ({stamps[0]:g}, {stamps[1]:g}, {stamps[2]:g}, …), "
                "which gives no rate; state the rate, or the unit in the column's name, such as 'time (ms)'"
            )
        notes.append(Note("time_counts", f"times count samples; taken at the stated {stated_hz:g} Hz"))
        stamps, unit = stamps / stated_hz, "s"
    if unit is None:
        unit = _guess_unit(_step(stamps), stated_hz)
        if unit != "s":
            rate = f"{1 / (_step(stamps) * SECONDS[unit]):g} Hz"
            notes.append(Note("time_unit_guessed", f"times taken for {unit}, which gives {rate}; no unit is stated"))
    times_s = (stamps - stamps[0]) * SECONDS[unit]
    steps_s = np.diff(times_s)
    if (worst_s := -steps_s.min()) > _MAX_BACK_S:
        row = int(steps_s.argmin()) + 2
        raise UserError(f"{path}: expected times that rise, sample {row} goes back {worst_s:g} s; {mend}")
    if worst_s > 0:
        notes.append(
            Note("time_jitter", f"{int((steps_s < 0).sum())} times lie up to {worst_s:.3g} s before the one in front; "
                 "samples taken as evenly spaced")
        )  # fmt: skip

    del steps_s  # of a day these take more than a channel
    edges = _gaps(times_s, _step(times_s))
    edges = _gaps(times_s, 1 / _rate(times_s, edges))
    measured_hz = _rate(times_s, edges)
    sfreq_hz = _usual(times_s, edges, measured_hz)
    if stated_hz is not None:
        if abs(measured_hz / stated_hz - 1) > _AGREE:
            raise UserError(
                f"{path}: expected times that fit the stated {stated_hz:g} Hz, they give {measured_hz:g} Hz; "
                "correct the rate or the time column"
            )
        sfreq_hz = stated_hz
    if abs(measured_hz / sfreq_hz - 1) > 1e-6:
        notes.append(Note("rate_rounded", f"{sfreq_hz:g} Hz taken for the {measured_hz:.6g} Hz that the times give"))
    onsets_s = [times_s[a:b].mean() - (b - a - 1) / 2 / sfreq_hz for a, b in pairwise(edges)]
    if (off_s := _off_s(times_s, edges, sfreq_hz)) > _MAX_OFF_S:
        raise UserError(
            f"{path}: expected evenly spaced samples, their times lie up to {off_s:.3g} s beside {sfreq_hz:g} Hz; "
            "bring them to one rate first"
        )
    segments = [Segment(a, b, round(float(t - onsets_s[0]), 6)) for (a, b), t in zip(pairwise(edges), onsets_s)]
    if len(segments) > 1:
        shown = ", ".join(f"{segment.onset_s:g}" for segment in segments[:6]) + (" …" if len(segments) > 6 else "")
        notes.append(Note("gaps", f"{len(segments)} pieces by their times, starting at {shown} s"))
    return Timing(sfreq_hz, segments, float(stamps[0] * SECONDS[unit]), notes)


def _counts(stamps: Float64[np.ndarray, " T"]) -> bool:
    """Whether stamps rise by one from sample to sample, but for gaps."""

    def by_one(some: Float64[np.ndarray, " t"]) -> bool:
        steps = np.diff(some)
        return len(steps) > 1 and bool((steps == np.rint(steps)).all() and steps.min() >= 1 and np.median(steps) == 1)

    return by_one(stamps[:1000]) and by_one(stamps)


def _guess_unit(step: float, stated_hz: float | None) -> str:
    if stated_hz is not None:
        return min(SECONDS, key=lambda unit: abs(np.log(max(step * SECONDS[unit] * stated_hz, 1e-300))))
    return next((unit for unit, s in SECONDS.items() if step * s <= 1 / _SLOWEST_HZ), "ns")


def _step(times: Float64[np.ndarray, " T"]) -> float:
    """The usual step: the mean over as large a distance as gaps allow, so that rounding and bursts average out."""
    tried: list[tuple[float, float]] = []
    times = times[:_SOME]
    steps = np.diff(times)
    precise = steps.min() > 0.5 * np.median(steps)  # else stamps are late and early and only their mean counts
    for distance in (64, 8, 1) if precise else (64, 8):
        if distance < len(times):
            far = times[distance:] - times[:-distance]
            low, middle, high = np.quantile(far, [0.25, 0.5, 0.75])
            step = float(far[np.abs(far - middle) <= 2 * (high - low) + middle / distance].mean()) / distance
            if middle > 0 and (not precise or high - low <= 1.5 * step):
                return step
            tried.append(((high - low) / distance, step))
    even = [(spread, step) for spread, step in tried if step > 0]
    return min(even)[1] if even else float(times[-1] - times[0]) / (len(times) - 1)


def _gaps(times_s: Float64[np.ndarray, " T"], step_s: float) -> list[int]:
    """Returns where pieces begin, and the end.

    A gap only ever moves stamps later; how far they seem to move earlier shows what is noise.
    """
    n = len(times_s)
    steps_s = np.diff(times_s)
    suspects = np.flatnonzero(steps_s > 1.5 * step_s) + 1
    if not len(suspects):
        return [0, n]
    late_s = times_s - np.arange(n) * step_s
    total = np.concatenate([[0.0], np.cumsum(late_s - late_s.mean())])

    def moved_s(at: Int[np.ndarray, " k"], reach: int) -> Float64[np.ndarray, " k"]:
        """How much later the stamps are on average in `reach` samples from `at` on than in as many before."""
        return (total[at + reach] - 2 * total[at] + total[at - reach]) / reach

    reaches = [1]
    while 2 * reaches[-1] <= min(1 / step_s, n / 2):
        reaches.append(2 * reaches[-1])
    needed_s: dict[int, float] = {}
    for reach in reversed(reaches):  # what is noise on average over some samples is so over fewer
        noise_s = -float(moved_s(np.arange(reach, n - reach + 1), reach).min())
        needed_s[reach] = max(0.75 * step_s, 3 * noise_s, needed_s.get(2 * reach, 0.0))
    edges = [0, n]
    inside = (suspects >= reaches[-1]) & (suspects <= n - reaches[-1])
    moves_s = np.full(len(suspects), np.inf)
    moves_s[inside] = moved_s(suspects[inside], reaches[-1])
    likely = moves_s > 0.5 * needed_s[reaches[-1]]  # of millions few; near the ends all
    suspects, moves_s = suspects[likely], np.where(inside, moves_s, 0.0)[likely]
    longest_first = np.lexsort((-moves_s, -np.rint(steps_s[suspects - 1] / step_s)))
    for place in suspects[longest_first].tolist():
        index = bisect_left(edges, place)
        room = min(place - edges[index - 1], edges[index] - place)
        reach = max(reach for reach in reaches if reach <= room)
        if moved_s(np.array([place]), reach)[0] > needed_s[reach]:
            edges.insert(index, place)
    return edges


def _rate(times_s: Float64[np.ndarray, " T"], edges: list[int]) -> float:
    """The least-squares rate that the pieces have in common."""
    both = squares = 0.0
    for a, b in pairwise(edges):
        centred = np.arange(b - a) - (b - a - 1) / 2
        both += float(centred @ times_s[a:b])
        squares += float(centred @ centred)
    return float(f"{squares / both:.9g}") if both > 0 else (len(times_s) - 1) / float(times_s[-1] - times_s[0])


def _off_s(times_s: Float64[np.ndarray, " T"], edges: list[int], sfreq_hz: float) -> float:
    """How far a sample lies from its place on an even grid, at most."""
    worst_s = 0.0
    for a, b in pairwise(edges):
        late_s = times_s[a:b] - np.arange(b - a) / sfreq_hz
        worst_s = max(worst_s, float(np.abs(late_s - late_s.mean()).max()))
    return worst_s


def _usual(times_s: Float64[np.ndarray, " T"], edges: list[int], measured_hz: float) -> float:
    nearest = min(USUAL_HZ, key=lambda hz: abs(hz - measured_hz))
    if abs(nearest / measured_hz - 1) > 0.01:
        return measured_hz
    allowed_s = 1.5 * _off_s(times_s, edges, measured_hz) + 1e-4
    return float(nearest) if _off_s(times_s, edges, float(nearest)) <= allowed_s else measured_hz
