"""Events from probabilities, case by case; the laws are in tests/property/test_events.py."""

import numpy as np
import pytest
from pydantic import ValidationError

from bothways.config import EVENT_PRESETS, EventConfig
from bothways.eeg import PredictedEvent, find_events, spans_s
from bothways.eeg.moments import Trace
from bothways.errors import UserError


def trace(*p: float, step_s: float = 1.0, segment=None, classes=("bckg", "seiz")) -> Trace:
    """One row a moment: of two classes the second's probability is given."""
    n = len(p)
    parts = np.zeros(n, dtype=np.int64) if segment is None else np.array(segment)
    values = np.array(p, dtype=float)
    rows = np.stack([1 - values, values], 1) if values.ndim == 1 else values
    onset_s = np.arange(n) * step_s + 100.0 * parts
    return Trace(classes, onset_s, np.full(n, step_s), parts, rows, step_s)


def found(traced: Trace, **settings) -> list[tuple[float, float]]:
    config = EventConfig(background=("bckg",), **settings)
    return [(event.onset_s, event.duration_s) for event in find_events(traced, config)]


def test_an_event_has_its_place_its_label_and_its_probabilities() -> None:
    events = find_events(trace(0.1, 0.6, 1.0, 0.2), EventConfig(background=("bckg",)))
    assert events == [PredictedEvent(1.0, 2.0, "seiz", 0.8, 1.0)]
    np.testing.assert_array_equal(spans_s(events, "seiz"), [[1.0, 3.0]])
    assert spans_s(events, "bckg").shape == (0, 2)


def test_hysteresis() -> None:
    p = (0.5, 0.7, 0.9, 0.6, 0.3, 0.6, 0.9)
    assert found(trace(*p), enter=0.8) == [(2, 1), (6, 1)]
    assert found(trace(*p), enter=0.8, leave=0.5) == [(2, 2), (6, 1)]
    assert found(trace(*p), enter=0.8, leave=0.0) == [(2, 5)]


def test_a_class_can_have_its_own_thresholds() -> None:
    assert found(trace(0.5, 0.9, 0.7), thresholds={"seiz": (0.9, 0.7)}) == [(1, 2)]


def test_short_gaps_are_closed_before_and_events_merged_after_the_duration_is_judged() -> None:
    p = (1, 0, 1, 0, 0, 1, 1, 1)
    assert found(trace(*p), min_duration_s=3.0) == [(5, 3)]
    assert found(trace(*p), min_duration_s=3.0, min_gap_s=2.0) == [(0, 3), (5, 3)]
    assert found(trace(*p), min_duration_s=3.0, merge_s=10.0) == [(5, 3)]
    assert found(trace(*p), min_duration_s=3.0, min_gap_s=2.0, merge_s=2.0) == [(0, 3), (5, 3)]  # not closer than 2 s
    assert found(trace(*p), min_duration_s=3.0, min_gap_s=2.0, merge_s=2.1) == [(0, 8)]


def test_tenths_of_a_second_are_told_exactly() -> None:
    p = (1, 0, 0, 0, 1, 1, 1)
    assert found(trace(*p, step_s=0.1), merge_s=0.3, min_duration_s=0.3) == [pytest.approx((0.4, 0.3))]
    assert len(found(trace(*p, step_s=0.1), merge_s=0.3)) == 2
    assert len(found(trace(*p, step_s=0.1), merge_s=0.31)) == 1


def test_nothing_goes_over_a_gap_or_what_is_not_covered() -> None:
    p = (1, 1, np.nan, 1, 1, 1)
    parts = (0, 0, 0, 0, 1, 1)
    assert found(trace(*p, segment=parts), leave=0.1, merge_s=1000.0, min_gap_s=1000.0) == [(0, 2), (3, 1), (104, 2)]

    after_a_gap = trace(0.9, 0.9, 0.6, 0.9, segment=(0, 0, 1, 1))  # 0.6 would go on, but not begin
    assert found(after_a_gap, enter=0.8, leave=0.5) == [(0, 2), (103, 1)]


def test_what_is_too_long_is_cut_and_the_rest_is_kept() -> None:
    assert found(trace(*[1] * 7), max_duration_s=3.0, min_duration_s=2.0) == [(0, 3), (3, 3), (6, 1)]
    with pytest.raises(UserError, match=r"max_duration_s of a step \(2 s\) or more, got 1"):
        found(trace(1, step_s=2.0), max_duration_s=1.0)


def test_the_most_probable_class() -> None:
    rows = [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.2, 0.45, 0.35], [0.1, 0.2, 0.7]]
    traced = trace(*rows, classes=("W", "N1", "N2"))
    events = find_events(traced, EventConfig(decision="argmax"))
    assert [(e.label, e.onset_s, e.duration_s) for e in events] == [("W", 0, 1), ("N1", 1, 2), ("N2", 3, 1)]
    assert events[1].mean_probability == pytest.approx(0.425)
    assert find_events(traced, EventConfig()) == [PredictedEvent(3.0, 1.0, "N2", 0.7, 0.7)]


def test_events_of_several_classes_are_in_order_of_time() -> None:
    rows = [[0.9, 0.0], [0.9, 0.9], [0.0, 0.9], [0.9, 0.0]]
    events = find_events(trace(*rows, classes=("spike", "artefact")), EventConfig())
    assert [(e.label, e.onset_s) for e in events] == [("spike", 0), ("artefact", 1), ("spike", 3)]


def test_the_preset_of_szcore() -> None:
    config = EventConfig(**EVENT_PRESETS["szcore"], background=("bckg",))
    assert (config.min_duration_s, config.merge_s, config.max_duration_s) == (10.0, 90.0, 300.0)
    p = np.zeros(1000)
    p[[*range(100, 105), *range(300, 320), *range(409, 430), *range(520, 900)]] = 1
    events = find_events(trace(*p), config)
    assert [(e.onset_s, e.duration_s) for e in events] == [(300, 130), (520, 300), (820, 80)]


def test_defaults() -> None:
    assert EventConfig().model_dump() == {
        "decision": "threshold",
        "background": (),
        "enter": 0.5,
        "leave": None,
        "thresholds": {},
        "min_gap_s": 0.0,
        "min_duration_s": 0.0,
        "merge_s": 0.0,
        "max_duration_s": None,
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enter": 0.5, "leave": 0.6}, "enter and leave: leave 0.6 is above enter 0.5"),
        ({"thresholds": {"seiz": (0.1, 0.2)}}, "seiz: leave 0.2 is above enter 0.1"),
        ({"decision": "argmax", "enter": 0.7}, 'belong to decision = "threshold"'),
        ({"background": ("seiz",), "thresholds": {"seiz": (0.2, 0.1)}}, "thresholds of seiz, which background says"),
        ({"merge_s": -1.0}, "merge_s"),
    ],
)
def test_settings_that_contradict_each_other(settings, message) -> None:
    with pytest.raises(ValidationError, match=message):
        EventConfig(**settings)


def test_classes_that_there_are_not() -> None:
    with pytest.raises(UserError, match="no class background; expected of bckg, seiz"):
        find_events(trace(0.5), EventConfig(background=("background",)))
    with pytest.raises(UserError, match=r"background names every class \(bckg, seiz\)"):
        find_events(trace(0.5), EventConfig(background=("bckg", "seiz")))
