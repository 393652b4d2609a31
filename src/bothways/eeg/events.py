"""From probabilities over time to events: hysteresis, shortest duration, merging, splitting.

A span is (first, stop) of moments. Moments of one stretch follow each other without a gap and are all covered by a
window; no event leaves its stretch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float64, Int64

from bothways.config import EventConfig
from bothways.eeg.moments import Trace
from bothways.errors import UserError

_EXACT_S = 1e-6
"""Sums of steps are told from a setting by more than this."""


@dataclass(frozen=True)
class PredictedEvent:
    """An event that a model found; its mean and largest probability are those of its label."""

    onset_s: float
    duration_s: float
    label: str
    mean_probability: float
    max_probability: float


def find_events(trace: Trace, config: EventConfig) -> list[PredictedEvent]:
    """Finds the events of each class that is not background, by onset.

    Those of one class never overlap; of two classes they may.

    Raises:
        UserError: a setting names a class that there is not, no class is left, or a moment is longer than
            `max_duration_s`.
    """
    unknown = sorted({*config.background, *config.thresholds} - set(trace.classes))
    if unknown:
        raise UserError(f"events: no class {', '.join(unknown)}; expected of {', '.join(trace.classes)}")
    wanted = [k for k, name in enumerate(trace.classes) if name not in config.background]
    if not wanted:
        raise UserError(f"events: background names every class ({', '.join(trace.classes)}); leave one to be found")
    if config.max_duration_s is not None and config.max_duration_s < trace.step_s - _EXACT_S:
        raise UserError(
            f"events: expected max_duration_s of a step ({trace.step_s:g} s) or more, got {config.max_duration_s:g}; "
            "raise it or make the grid finer"
        )
    stretch = stretches(trace)
    likeliest = np.where(trace.covered, np.nan_to_num(trace.probabilities).argmax(1), -1)
    events = []
    for k in wanted:
        p = trace.probabilities[:, k]
        leave = config.enter if config.leave is None else config.leave
        enter, leave = config.thresholds.get(trace.classes[k], (config.enter, leave))
        active = hysteresis(p, enter, leave, stretch) if config.decision == "threshold" else likeliest == k
        spans = merge(runs(active, stretch), trace, stretch, config.min_gap_s)
        spans = spans[_lasts_s(spans, trace) >= config.min_duration_s - _EXACT_S]
        spans = split(merge(spans, trace, stretch, config.merge_s), trace, config.max_duration_s)
        for (first, stop), lasts_s in zip(spans, _lasts_s(spans, trace).tolist()):
            mean = float(np.average(p[first:stop], weights=trace.duration_s[first:stop]))
            top = float(p[first:stop].max())
            events.append(PredictedEvent(float(trace.onset_s[first]), lasts_s, trace.classes[k], min(mean, top), top))
    return sorted(events, key=lambda event: event.onset_s)


def spans_s(events: Sequence[PredictedEvent], label: str) -> Float64[np.ndarray, "n 2"]:
    """Returns (start_s, stop_s) of the events of a class, as `evaluation.score_events` takes them."""
    times = [(event.onset_s, event.onset_s + event.duration_s) for event in events if event.label == label]
    return np.array(times, dtype=float).reshape(-1, 2)


def stretches(trace: Trace) -> Int64[np.ndarray, " M"]:
    """Numbers the stretches: moments of one segment that are covered without a break. -1 = not covered."""
    covered = trace.covered
    breaks = (np.diff(trace.segment, prepend=-1) != 0) | (np.diff(covered.astype(int), prepend=0) != 0)
    return np.where(covered, np.cumsum(breaks), -1)


def hysteresis(
    p: Float64[np.ndarray, " M"], enter: float, leave: float, stretch: Int64[np.ndarray, " M"]
) -> Bool[np.ndarray, " M"]:
    """Returns where an event is on: from a moment of at least `enter` to the next one below `leave`, in a stretch."""
    on = p >= enter  # NaN is not
    off = ~(p >= leave) | (np.diff(stretch, prepend=-2) != 0)
    decided = np.maximum.accumulate(np.where(on | off, np.arange(len(p)), 0))
    return on[decided]


def runs(active: Bool[np.ndarray, " M"], stretch: Int64[np.ndarray, " M"]) -> Int64[np.ndarray, "n 2"]:
    """Returns the spans of moments that are on, cut where a stretch ends."""
    mark = np.where(active & (stretch >= 0), stretch, -1)
    edges = np.flatnonzero(np.diff(mark, prepend=-1, append=-1))
    return np.array([(a, b) for a, b in pairwise(edges) if mark[a] >= 0], dtype=np.int64).reshape(-1, 2)


def merge(
    spans: Int64[np.ndarray, "n 2"], trace: Trace, stretch: Int64[np.ndarray, " M"], closer_s: float
) -> Int64[np.ndarray, "m 2"]:
    """Joins neighbours that are closer than `closer_s` and in one stretch."""
    if len(spans) < 2:
        return spans
    before, after = spans[:-1, 1] - 1, spans[1:, 0]
    gap_s = trace.onset_s[after] - (trace.onset_s[before] + trace.duration_s[before])
    apart = (gap_s >= closer_s - _EXACT_S) | (stretch[before] != stretch[after])
    return np.stack([spans[np.r_[True, apart], 0], spans[np.r_[apart, True], 1]], 1)


def split(spans: Int64[np.ndarray, "n 2"], trace: Trace, longest_s: float | None) -> Int64[np.ndarray, "m 2"]:
    """Cuts spans into pieces of as many moments as `longest_s` holds, and the rest."""
    if longest_s is None:
        return spans
    at_most = int((longest_s + _EXACT_S) / trace.step_s)
    pieces = [(at, min(at + at_most, stop)) for first, stop in spans for at in range(first, stop, at_most)]
    return np.array(pieces, dtype=np.int64).reshape(-1, 2)


def _lasts_s(spans: Int64[np.ndarray, "n 2"], trace: Trace) -> Float64[np.ndarray, " n"]:
    last = spans[:, 1] - 1
    return trace.onset_s[last] + trace.duration_s[last] - trace.onset_s[spans[:, 0]]
