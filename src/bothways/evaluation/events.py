"""Found events against true ones, by the rules of SzCORE (Dan et al. 2024, Epilepsia), and sample by sample."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Real

from bothways.errors import UserError
from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import summarise

Intervals = Sequence[Sequence[float | int]] | Real[np.ndarray, "_ 2"]
"""(start_s, stop_s) of each event, in any order."""
RESOLUTION_HZ = 10
"""Events are compared in tenths of a second, as `timescoring` does."""
RATES = ("sensitivity", "precision", "f1", "false_alarms_per_24h")


@dataclass(frozen=True)
class EventRules:
    """What counts as one event and as found.

    Attributes:
        before_s: an event is found from so long before its onset …
        after_s: … to so long after its end.
        merge_s: events closer than this are one.
        split_s: events longer than this are cut into pieces of this length and the rest.
    """

    before_s: float = 30.0
    after_s: float = 60.0
    merge_s: float = 90.0
    split_s: float = 300.0

    @classmethod
    def of(cls, changes: Sequence[str]) -> "EventRules":
        """Returns SzCORE's rules with some changed, each `name=seconds`; those of seizures suit no event of seconds.

        Raises:
            UserError: no such rule, or no number of seconds (0 or more; `split_s`: 0.1 or more).
        """
        rules: dict[str, float] = {}
        for change in changes:
            name, _, text = change.partition("=")
            try:
                seconds = float(text)
            except ValueError:
                seconds = np.nan
            if name not in asdict(cls()) or not (0.1 if name == "split_s" else 0) <= seconds < np.inf:
                known = ", ".join(asdict(cls()))
                raise UserError(f"event rule: expected NAME=SECONDS with a name of {known}, got {change!r}")
            rules[name] = seconds
        return cls(**rules)


SZCORE = EventRules()


def score_events(
    reference: Intervals,
    hypothesis: Intervals,
    duration_s: float | int,
    *,
    rules: EventRules = SZCORE,
    recorded_s: float | int | None = None,
) -> dict[str, Any]:
    """Scores the events of one recording and one class: any overlap counts as found.

    Of both lists, what overlaps or touches is one event, then come `rules.merge_s` and `rules.split_s`. A true event is
    found where anything of the hypothesis lies between `before_s` before it and `after_s` after it; a piece of the
    hypothesis that lies in none of these spans of found events is a false alarm. Equal to `timescoring.EventScoring`
    (0.0.7) on masks at 10 Hz, but for two things: spans of exactly `merge_s` or `split_s` are told in whole tenths,
    not in rounded floats, and an event shorter than a tenth of a second fills one.

    Args:
        reference: the true events.
        hypothesis: the found ones.
        duration_s: of the recording, gaps included; what lies beyond it is cut off.
        rules: SzCORE's where not given.
        recorded_s: seconds of signal, where the recording has gaps: false alarms are counted per 24 h of these.

    Returns:
        `n_given` (true events that do not overlap or touch), `n_reference`, `n_hypothesis` (after merging and
        splitting), `n_found` (true ones), `n_false` (false alarms), `sensitivity`, `precision`, `f1` (None where
        undefined), `false_alarms_per_24h`, `recorded_s`, and `n_outside`:
        events given that lie wholly outside the recording and are left out.

    Raises:
        UserError: a time that is not finite, an event that ends before it begins, or no duration.
    """
    n = _n_samples(duration_s, RESOLUTION_HZ)
    given, spans, masks, n_outside = [], [], [], 0
    for intervals in (reference, hypothesis):
        mask, outside = _mask(intervals, duration_s, n, RESOLUTION_HZ, fill=True)
        given.append(_runs(mask))
        spans.append(_split(_merged(given[-1], rules.merge_s), rules.split_s))
        masks.append(_filled(spans[-1], n))
        n_outside += outside
    true, found = spans
    near, n_found = np.zeros(n, dtype=bool), 0
    before, after = round(rules.before_s * RESOLUTION_HZ), round(rules.after_s * RESOLUTION_HZ)
    for start, stop in true:
        reach = slice(max(0, start - before), min(n, stop + after))
        if masks[1][reach].any():
            near[reach] = True
            n_found += 1
    n_false = sum(not near[start:stop].any() for start, stop in found)
    result = {
        "n_given": len(given[0]),
        "n_reference": len(true),
        "n_hypothesis": len(found),
        "n_found": n_found,
        "n_false": n_false,
    }
    seconds = n / RESOLUTION_HZ if recorded_s is None else float(recorded_s)
    return with_rates({**result, "recorded_s": seconds, "n_outside": n_outside})


def score_samples(
    reference: Intervals,
    hypothesis: Intervals,
    duration_s: float | int,
    *,
    rate_hz: float | int = 1,
    recorded_s: float | int | None = None,
) -> dict[str, Any]:
    """Scores one recording and one class sample by sample; equal to `timescoring.SampleScoring` (0.0.7).

    Args:
        reference: see `score_events`.
        hypothesis: see `score_events`.
        duration_s: see `score_events`.
        rate_hz: samples in a second.
        recorded_s: see `score_events`.

    Returns:
        The same as `score_events`, of samples: `false_alarms_per_24h` are false samples.

    Raises:
        UserError: see `score_events`.
    """
    n = _n_samples(duration_s, rate_hz)
    (true, outside), (found, beyond) = (
        _mask(intervals, duration_s, n, rate_hz, fill=False) for intervals in (reference, hypothesis)
    )
    n_true, n_found = int(true.sum()), int((true & found).sum())
    counts = {"n_reference": n_true, "n_hypothesis": int(found.sum()), "n_found": n_found}
    seconds = n / rate_hz if recorded_s is None else float(recorded_s)
    n_false = int((found & ~true).sum())
    return with_rates({**counts, "n_false": n_false, "recorded_s": seconds, "n_outside": outside + beyond})


def score_subjects(scores: Sequence[Mapping[str, Any]], subjects: Names) -> dict[str, Any]:
    """Joins the scores of recordings: counts are added within each subject, then rates averaged over the subjects.

    Args:
        scores: of `score_events` or `score_samples`, one per recording.
        subjects: whose recording it is.

    Returns:
        `subjects` (name -> the joined score), `pooled` (all recordings as one) and of each of the four rates what
        `summarise` says of the subjects where it is defined (None where it is of nobody). SzCORE's own spread divides
        by n, this `sd` by n - 1.

    Raises:
        ValueError: not one subject per score.
        UserError: no score.
    """
    if len(scores) != len(subjects):
        raise ValueError(f"expected a subject per score, got {len(subjects)} for {len(scores)}")
    if not len(scores):
        raise UserError("event scoring: expected at least one recording, got none; check the labels and the split")
    names = [str(name) for name in subjects]
    joined = {
        name: _joined([score for score, whose in zip(scores, names) if whose == name]) for name in sorted(set(names))
    }
    result: dict[str, Any] = {"subjects": joined, "n_subjects": len(joined), "pooled": _joined(scores)}
    for rate in RATES:
        known = [score[rate] for score in joined.values() if score[rate] is not None]
        result[rate] = summarise(known) if known else None
    return result


def with_rates(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Adds sensitivity, precision, F1 and false alarms per 24 h to counts; see `score_events`."""
    n_true, n_found, n_false = counts["n_reference"], counts["n_found"], counts["n_false"]
    return {
        **counts,
        "sensitivity": n_found / n_true if n_true else None,
        "precision": n_found / (n_found + n_false) if n_found + n_false else None,
        "f1": 2 * n_found / (n_found + n_false + n_true) if n_true + n_false else None,
        "false_alarms_per_24h": n_false / (counts["recorded_s"] / 86400),
    }


def _joined(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    added = [name for name in scores[0] if name not in RATES]
    return with_rates({name: sum(score[name] for score in scores) for name in added})


def _n_samples(duration_s: float | int, rate_hz: float | int) -> int:
    if not 0 < duration_s < np.inf or round(duration_s * rate_hz) < 1:
        raise UserError(f"event scoring: expected a recording of at least {1 / rate_hz:g} s, got {duration_s:g} s")
    return round(duration_s * rate_hz)


def _mask(
    intervals: Intervals, duration_s: float | int, n: int, rate_hz: float | int, *, fill: bool
) -> tuple[Bool[np.ndarray, " n"], int]:
    """Returns where there is an event, and how many lie outside; with `fill` each has one sample at least."""
    times_s = np.array(intervals, dtype=float).reshape(-1, 2)
    wrong = ~np.isfinite(times_s).all(1) | (times_s[:, 1] < times_s[:, 0])
    if wrong.any():
        start_s, stop_s = times_s[wrong][0]
        raise UserError(
            f"event scoring: expected events that end after they begin, got {start_s:g} to {stop_s:g} s "
            f"({int(wrong.sum())} such); correct or leave them out"
        )
    outside = (times_s[:, 0] < 0) & (times_s[:, 1] <= 0) | (times_s[:, 0] >= duration_s)
    mask = np.zeros(n, dtype=bool)
    for start, stop in np.rint(times_s[~outside] * rate_hz).astype(int).clip(0, n):
        if fill and start == stop:
            start = min(start, n - 1)
            stop = start + 1
        mask[start:stop] = True
    return mask, int(outside.sum())


def _runs(mask: Bool[np.ndarray, " n"]) -> Int[np.ndarray, "k 2"]:
    return np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)


def _filled(spans: Int[np.ndarray, "k 2"], n: int) -> Bool[np.ndarray, " n"]:
    mask = np.zeros(n, dtype=bool)
    for start, stop in spans:
        mask[start:stop] = True
    return mask


def _merged(spans: Int[np.ndarray, "k 2"], merge_s: float) -> Int[np.ndarray, "m 2"]:
    apart = (spans[1:, 0] - spans[:-1, 1]) / RESOLUTION_HZ >= merge_s
    ends = np.ones(min(len(spans), 1), dtype=bool)
    return np.stack([spans[np.r_[ends, apart], 0], spans[np.r_[apart, ends], 1]], 1)


def _split(spans: Int[np.ndarray, "k 2"], split_s: float) -> Int[np.ndarray, "m 2"]:
    longest = max(1, round(split_s * RESOLUTION_HZ))
    pieces = [(at, min(at + longest, stop)) for start, stop in spans for at in range(start, stop, longest)]
    return np.array(pieces, dtype=int).reshape(-1, 2)
