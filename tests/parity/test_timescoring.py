"""Event and sample scoring equal `timescoring`, SzCORE's own software, on whatever events there are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bothways.evaluation import SZCORE, EventRules, score_events, score_samples

annotations = pytest.importorskip("timescoring.annotations")
scoring = pytest.importorskip("timescoring.scoring")

RATES = ("sensitivity", "precision", "f1")


def events(step_s: float, longest_s: int = 900):
    """Lists of (start, stop) on a grid: unsorted, overlapping, touching, reaching out of the recording, or none."""
    start = st.integers(int(-1000 / step_s), int(9000 / step_s))
    length = st.integers(1, int(longest_s / step_s))
    one = st.tuples(start, length).map(lambda e: (e[0] * step_s, (e[0] + e[1]) * step_s))
    return st.lists(one, max_size=8)


def mask(intervals, duration_s: float, rate_hz: int) -> np.ndarray:
    made = np.zeros(round(duration_s * rate_hz), dtype=bool)
    for start, stop in intervals:
        made[max(0, round(start * rate_hz)) : max(0, round(stop * rate_hz))] = True
    return made


def check(ours, theirs) -> None:
    assert (ours["n_reference"], ours["n_found"], ours["n_false"]) == (theirs.refTrue, theirs.tp, theirs.fp)
    for rate in RATES:
        assert getattr(theirs, rate) == pytest.approx(np.nan if ours[rate] is None else ours[rate], nan_ok=True)
    assert ours["false_alarms_per_24h"] == pytest.approx(theirs.fpRate)


RULES = st.sampled_from([SZCORE, EventRules(0.0, 0.0, 90.0, 300.0), EventRules(0.5, 7.0, 2.5, 40.0)])


@given(events(0.5), events(0.5), st.integers(1, 16_000).map(lambda half: half / 2), RULES)
@settings(max_examples=200)
def test_events_on_half_seconds_with_every_boundary(reference, hypothesis, duration_s, rules) -> None:
    both = (annotations.Annotation(mask(e, duration_s, 10), 10) for e in (reference, hypothesis))
    theirs = scoring.EventScoring.Parameters(rules.before_s, rules.after_s, 0, rules.split_s, rules.merge_s)
    check(score_events(reference, hypothesis, duration_s, rules=rules), scoring.EventScoring(*both, theirs))


def exact(annotation) -> bool:
    """Whether a span is exactly 90 s or pieces of 300 s, which `timescoring` tells by rounded floats."""
    merged = scoring.EventScoring._mergeNeighbouringEvents(annotation, 90).events
    gaps = [b[0] - a[1] for a, b in pairwise(annotation.events)]
    return any(abs(gap - 90) < 0.01 for gap in gaps) or any(abs((b - a + 1) % 300 - 1) < 0.01 for a, b in merged)


@given(events(0.1), events(0.1), st.integers(1, 8000))
@settings(max_examples=100)
def test_events_on_tenths(reference, hypothesis, duration_s) -> None:
    both = [annotations.Annotation(mask(e, duration_s, 10), 10) for e in (reference, hypothesis)]
    assume(not any(map(exact, both)))
    check(score_events(reference, hypothesis, duration_s), scoring.EventScoring(*both))


@given(st.lists(st.floats(0.2, 800), max_size=16), st.lists(st.floats(0.2, 800), max_size=16))
@settings(max_examples=100)
def test_lists_of_events_at_any_time(reference, hypothesis) -> None:
    """`timescoring` takes lists as they are, so here they are in order and apart: gap, event, gap, event, …"""
    lists = []
    for steps in (reference, hypothesis):
        edges = np.cumsum(steps[: len(steps) // 2 * 2]).reshape(-1, 2)
        gaps = edges[1:, 0] - edges[:-1, 1]
        assume(not (np.abs(gaps - 90) < 0.2).any())
        lists.append([tuple(edge) for edge in edges.tolist()])
    both = [annotations.Annotation(e, 10, 130_000) for e in lists]
    for annotation in both:
        merged = scoring.EventScoring._mergeNeighbouringEvents(annotation, 90).events
        assume(not any(abs((b - a + 1) % 300 - 1) < 0.2 for a, b in merged))
    check(score_events(*lists, 13_000), scoring.EventScoring(*both))


@given(events(0.1), events(0.1), st.integers(1, 8000), st.sampled_from([1, 2, 10]))
def test_samples(reference, hypothesis, duration_s, rate_hz) -> None:
    both = [annotations.Annotation(mask(e, duration_s, rate_hz), rate_hz) for e in (reference, hypothesis)]
    check(score_samples(reference, hypothesis, duration_s, rate_hz=rate_hz), scoring.SampleScoring(*both, fs=rate_hz))
