"""Laws of the time grid and of the events found on it, for any recording, any windows and any settings."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.config import EventConfig
from bothways.eeg import Moments, Segment, find_events, spans_s
from bothways.eeg.events import hysteresis, merge, runs, split, stretches

CLASSES = ["bckg", "seiz", "spike"]
SFREQ_HZ = 10.0
FEWER = settings(max_examples=50)
SHARES = st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, 10.0])


@st.composite
def segments(draw):
    """One to four pieces of up to 20 s with gaps of up to 30 s between them, or none."""
    made, at, onset_s = [], 0, 0.0
    for length, gap_s in draw(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 30)), min_size=1, max_size=4)):
        made.append(Segment(at, at + length, onset_s))
        at, onset_s = at + length, onset_s + length / SFREQ_HZ + gap_s
    return made


CASES = st.tuples(segments(), st.sampled_from([0.1, 0.3, 1.0, 2.5]), st.integers(0, 20), st.integers(0, 2**32 - 1))


def traced(case):
    """Averages over windows of random places and lengths; some moments are covered by none."""
    pieces, step_s, n, seed = case
    moments, generator = Moments(pieces, SFREQ_HZ, CLASSES, step_s), np.random.default_rng(seed)
    for _ in range(n):
        segment = pieces[generator.integers(len(pieces))]
        start, stop = np.sort(generator.integers(segment.start, segment.stop + 1, size=2))
        if start < stop:
            moments.add(np.array([start]), int(stop - start), generator.dirichlet(np.full(3, 0.3), size=1))
    return moments.trace()


@st.composite
def configs(draw, **fixed):
    enter, leave = sorted([draw(SHARES), draw(SHARES)], reverse=True)
    decision = draw(st.sampled_from(["threshold", "argmax"]))
    thresholds = {"enter": enter, "leave": leave} if decision == "threshold" else {}
    return EventConfig(
        **{
            "decision": decision,
            **thresholds,
            "background": draw(st.sampled_from([(), ("bckg",)])),
            "min_gap_s": draw(SECONDS),
            "min_duration_s": draw(SECONDS),
            "merge_s": draw(SECONDS),
            "max_duration_s": draw(st.sampled_from([None, 2.5, 3.0, 7.0])),
            **fixed,
        }
    )


def moments_of(events, trace, label):
    """Returns which moments the events of a class hold."""
    held = np.zeros(len(trace.onset_s), dtype=bool)
    for start_s, stop_s in spans_s(events, label):
        held |= (trace.onset_s >= start_s - 1e-6) & (trace.onset_s + trace.duration_s <= stop_s + 1e-6)
    return held


@FEWER
@given(pieces=segments(), step_s=st.sampled_from([0.1, 0.7, 3.0]), seed=st.integers(0, 2**32 - 1))
def test_a_moment_is_the_mean_over_windows_and_samples_in_any_order(pieces, step_s, seed) -> None:
    generator = np.random.default_rng(seed)
    total, count = np.zeros((pieces[-1].stop, 3)), np.zeros(pieces[-1].stop)
    starts, lengths, p = [], [], generator.dirichlet(np.ones(3), size=20)
    for values in p:
        segment = pieces[generator.integers(len(pieces))]
        starts.append(generator.integers(segment.start, segment.stop))
        lengths.append(generator.integers(1, segment.stop - starts[-1] + 1))
        total[starts[-1] : starts[-1] + lengths[-1]] += values
        count[starts[-1] : starts[-1] + lengths[-1]] += 1
    starts, lengths = np.array(starts), np.array(lengths)
    whole, parts = (Moments(pieces, SFREQ_HZ, CLASSES, step_s) for _ in range(2))
    whole.add(starts, lengths, p)
    for index in generator.permutation(20):
        parts.add(starts[[index]], lengths[[index]], p[[index]])
    trace = whole.trace()
    np.testing.assert_allclose(parts.trace().probabilities, trace.probabilities, atol=2e-12)
    bounds = [
        (at, min(at + whole.step, segment.stop))
        for segment in pieces
        for at in range(segment.start, segment.stop, whole.step)
    ]
    assert len(bounds) == len(trace.onset_s)
    for (a, b), told in zip(bounds, trace.probabilities):
        expected = total[a:b].sum(0) / count[a:b].sum() if count[a:b].any() else np.full(3, np.nan)
        np.testing.assert_allclose(told, expected, atol=2e-12)
    np.testing.assert_allclose(trace.recorded_s, pieces[-1].stop / SFREQ_HZ)


@FEWER
@given(case=CASES, config=configs(max_duration_s=None))
def test_events_of_a_class_are_apart_covered_and_long_enough(case, config) -> None:
    trace = traced(case)
    events, stretch = find_events(trace, config), stretches(trace)
    assert [event.onset_s for event in events] == sorted(event.onset_s for event in events)
    for label in CLASSES:
        own = [event for event in events if event.label == label]
        assert not own or label not in config.background
        for one, other in pairwise(own):
            assert one.onset_s + one.duration_s <= other.onset_s + 1e-9
        for event in own:
            held = moments_of([event], trace, label)
            assert len(set(stretch[held])) == 1
            assert stretch[held][0] >= 0
            np.testing.assert_allclose(trace.duration_s[held].sum(), event.duration_s)
            assert event.duration_s >= config.min_duration_s - 1e-6
            p = trace.probabilities[held, CLASSES.index(label)]
            assert event.max_probability == p.max()
            np.testing.assert_allclose(event.mean_probability, np.average(p, weights=trace.duration_s[held]))
            if config.decision == "threshold":
                assert event.max_probability >= config.enter
            assert event.mean_probability <= event.max_probability


@FEWER
@given(case=CASES, config=configs(max_duration_s=None), longest_s=st.sampled_from([2.5, 3.0, 7.0]))
def test_splitting_only_cuts(case, config, longest_s) -> None:
    trace = traced(case)
    whole, pieces = (
        find_events(trace, config),
        find_events(trace, config.model_copy(update={"max_duration_s": longest_s})),
    )
    assert all(piece.duration_s <= longest_s + 1e-6 for piece in pieces)
    for label in CLASSES:
        np.testing.assert_array_equal(moments_of(pieces, trace, label), moments_of(whole, trace, label))
    if all(event.duration_s <= longest_s for event in whole):
        assert pieces == whole


@FEWER
@given(case=CASES, config=configs(decision="threshold", leave=None, enter=0.0), a=SHARES, b=SHARES, c=SHARES)
def test_a_higher_threshold_never_finds_more(case, config, a, b, c) -> None:
    trace = traced(case)
    low, middle, high = sorted([a, b, c])

    def found(enter, leave, label):
        changed = config.model_copy(update={"enter": enter, "leave": leave})
        return moments_of(find_events(trace, changed), trace, label)

    for label in set(CLASSES) - set(config.background):
        assert not (found(high, low, label) & ~found(middle, low, label)).any()
        assert not (found(high, middle, label) & ~found(high, low, label)).any()


@FEWER
@given(case=CASES, p=SHARES, closer_s=SECONDS)
def test_merging_again_changes_nothing(case, p, closer_s) -> None:
    trace = traced(case)
    stretch = stretches(trace)
    spans = runs(trace.probabilities[:, 1] >= p, stretch)
    merged = merge(spans, trace, stretch, closer_s)
    np.testing.assert_array_equal(merge(merged, trace, stretch, closer_s), merged)
    np.testing.assert_array_equal(merge(spans, trace, stretch, 0.0), spans)
    for (_, stop), (start, _) in pairwise(merged):
        apart_s = trace.onset_s[start] - trace.onset_s[stop - 1] - trace.duration_s[stop - 1]
        assert stretch[start] != stretch[stop - 1] or apart_s >= closer_s - 1e-6


@FEWER
@given(case=CASES, enter=SHARES, leave=SHARES)
def test_hysteresis_is_what_a_walk_over_the_moments_finds(case, enter, leave) -> None:
    trace = traced(case)
    enter, leave = max(enter, leave), min(enter, leave)
    stretch, p = stretches(trace), trace.probabilities[:, 1]
    expected, on, before = [], False, None
    for value, here in zip(p, stretch):
        if here != before:
            on, before = False, here
        on = value >= enter or (on and value >= leave)
        expected.append(on)
    np.testing.assert_array_equal(hysteresis(p, enter, leave, stretch), expected)
    np.testing.assert_array_equal(hysteresis(p, enter, enter, stretch), p >= enter)


@FEWER
@given(case=CASES, longest_s=st.sampled_from([2.5, 3.0, 7.0]))
def test_runs_and_pieces_hold_what_was_on(case, longest_s) -> None:
    trace = traced(case)
    stretch = stretches(trace)
    active = trace.probabilities[:, 2] >= 0.4
    for spans in (runs(active, stretch), split(runs(active, stretch), trace, longest_s)):
        held = np.zeros(len(active), dtype=bool)
        for first, stop in spans:
            assert first < stop
            held[first:stop] = True
        np.testing.assert_array_equal(held, active)


@FEWER
@given(case=CASES)
def test_the_most_probable_class_leaves_no_moment_without_an_event(case) -> None:
    trace = traced(case)
    events = find_events(trace, EventConfig(decision="argmax"))
    held = np.sum([moments_of(events, trace, label) for label in CLASSES], 0)
    np.testing.assert_array_equal(held, trace.covered)


@FEWER
@given(case=CASES, config=configs())
def test_later_recordings_shift_their_events(case, config) -> None:
    trace = traced(case)
    moved = find_events(replace(trace, onset_s=trace.onset_s + 1024.0), config)
    events = find_events(trace, config)
    assert [event.label for event in moved] == [event.label for event in events]
    np.testing.assert_allclose([e.onset_s - 1024.0 for e in moved], [e.onset_s for e in events], atol=1e-9)
