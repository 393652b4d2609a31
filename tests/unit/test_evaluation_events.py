"""SzCORE's rules on cases worked out by hand; the comparison with its own software is in tests/parity."""

import json

import numpy as np
import pytest

from bothways.errors import UserError
from bothways.evaluation import EventRules, score_events, score_samples, score_subjects

HOUR_S = 3600
COUNTS = ("n_reference", "n_hypothesis", "n_found", "n_false")


def counts(reference, hypothesis, duration_s=HOUR_S, **options) -> tuple[int, ...]:
    score = score_events(reference, hypothesis, duration_s, **options)
    return tuple(score[name] for name in COUNTS)


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        ([(1000, 1060)], (1, 1, 1, 0)),
        ([(1059, 1060)], (1, 1, 1, 0)),  # any overlap
        ([(960, 970)], (1, 1, 0, 1)),  # ends where the tolerance of 30 s begins
        ([(960, 970.1)], (1, 1, 1, 0)),
        ([(1120, 1130)], (1, 1, 0, 1)),  # begins where the tolerance of 60 s ends
        ([(1119.9, 1130)], (1, 1, 1, 0)),
        ([], (1, 0, 0, 0)),
        ([(1000, 1010), (1050, 1060)], (1, 1, 1, 0)),  # closer than 90 s: one
        ([(1000, 1010), (3000, 3010)], (1, 2, 1, 1)),
        ([(0, 3600)], (1, 12, 1, 11)),  # in pieces of 5 min; only that from 900 to 1200 s touches 970 to 1120 s
    ],
)
def test_one_seizure_from_1000_to_1060_s(hypothesis, expected) -> None:
    assert counts([(1000, 1060)], hypothesis) == expected


def test_merging_is_for_less_than_90_s_and_splitting_for_more_than_300_s() -> None:
    assert counts([(0, 10), (99.9, 110)], []) == (1, 0, 0, 0)
    assert counts([(0, 10), (100, 110)], []) == (2, 0, 0, 0)
    assert counts([(0, 300)], []) == (1, 0, 0, 0)
    assert counts([(0, 300.1)], []) == (2, 0, 0, 0)
    assert counts([(0, 700)], []) == (3, 0, 0, 0)
    assert counts([(0, 10), (99.9, 110)], [], rules=EventRules(merge_s=5.0, split_s=4.0)) == (6, 0, 0, 0)


def test_what_lies_between_merged_events_is_a_part_of_them() -> None:
    strict = EventRules(before_s=0.0, after_s=0.0)
    assert counts([(1040, 1041)], [(1000, 1010), (1080, 1090)], rules=strict) == (1, 1, 1, 0)


def test_exactly_90_and_300_s_are_told_in_tenths_at_every_onset() -> None:
    for tenth in range(0, 3000, 17):
        onset_s = tenth / 10
        assert counts([(onset_s, onset_s + 300)], []) == (1, 0, 0, 0)
        assert counts([(onset_s, onset_s + 1), (onset_s + 91, onset_s + 92)], []) == (2, 0, 0, 0)


def test_order_overlap_and_type_of_the_events_do_not_matter() -> None:
    tidy = score_events([(100, 200), (1000, 1100)], [(150, 250)], HOUR_S)
    untidy = score_events(
        np.array([[1000, 1100], [150, 200], [100, 160], [120, 130]]), [[200, 250], [150, 200]], HOUR_S
    )
    assert tidy == untidy


def test_what_lies_outside_is_left_out_and_counted() -> None:
    score = score_events([(-50, -10), (-50, 0), (-50, 5)], [(3600, 3700), (3599, 9999)], HOUR_S)
    assert [score[name] for name in (*COUNTS, "n_outside")] == [1, 1, 0, 1, 3]


def test_an_event_without_length_is_an_event() -> None:
    assert counts([(500, 500)], [(500.01, 500.02)]) == (1, 1, 1, 0)
    assert counts([(3599.99, 3599.99)], []) == (1, 0, 0, 0)


def test_rates() -> None:
    score = score_events([(1000, 1060), (5000, 5060), (9000, 9060)], [(1000, 1060), (20_000, 20_010)], 12 * HOUR_S)
    assert score["sensitivity"] == pytest.approx(1 / 3)
    assert score["precision"] == 0.5
    assert score["f1"] == pytest.approx(2 * 1 / (2 * 1 + 1 + 2))
    assert score["false_alarms_per_24h"] == 2.0
    halved = score_events([], [(20_000, 20_010)], 12 * HOUR_S, recorded_s=6 * HOUR_S)
    assert (halved["false_alarms_per_24h"], halved["recorded_s"]) == (4.0, 21_600)


def test_undefined_rates_are_none_and_everything_is_json() -> None:
    score = score_events([], [], HOUR_S)
    assert (score["sensitivity"], score["precision"], score["f1"]) == (None, None, None)
    assert score["false_alarms_per_24h"] == 0
    only_false = score_events([], [(0, 10)], HOUR_S)
    assert (only_false["sensitivity"], only_false["precision"], only_false["f1"]) == (None, 0.0, 0.0)
    json.dumps([score, score_samples([], [], HOUR_S), score_subjects([score], ["a"])], allow_nan=False)


def test_samples() -> None:
    score = score_samples([(0, 10), (5, 20)], [(15, 30)], 100)
    assert [score[name] for name in COUNTS] == [20, 15, 5, 10]
    assert (score["sensitivity"], score["precision"], score["f1"]) == (0.25, 5 / 15, 10 / 35)
    assert score_samples([(0, 0.5)], [(0, 0.25)], 1, rate_hz=4)["n_reference"] == 2


def test_subjects_are_averaged_after_their_recordings_are_joined() -> None:
    scores = [
        score_events([(1000, 1060)], [(1000, 1060)], HOUR_S),
        score_events([(1000, 1060), (2000, 2060), (3000, 3060)], [], HOUR_S),
        score_events([(1000, 1060)], [(1000, 1060), (2000, 2060)], 2 * HOUR_S),
        score_events([], [], HOUR_S),
    ]
    told = score_subjects(scores, ["a", "a", "b", "c"])
    assert [told["subjects"][name]["sensitivity"] for name in "abc"] == [0.25, 1.0, None]
    assert (told["sensitivity"]["mean"], told["sensitivity"]["n"]) == (0.625, 2)
    assert told["false_alarms_per_24h"]["mean"] == pytest.approx((0 + 12 + 0) / 3)
    assert told["pooled"]["sensitivity"] == 0.4
    assert told["pooled"]["recorded_s"] == 5 * HOUR_S
    assert score_subjects(scores[3:], ["c"])["f1"] is None


@pytest.mark.parametrize(
    ("reference", "duration_s", "message"),
    [
        ([(5, 3)], 60, r"end after they begin, got 5 to 3 s \(1 such\)"),
        ([(0, float("nan"))], 60, "end after they begin, got 0 to nan s"),
        ([(0, 1)], 0, "recording of at least 0.1 s, got 0 s"),
        ([(0, 1)], float("inf"), "got inf s"),
    ],
)
def test_what_cannot_be_scored_is_named(reference, duration_s, message) -> None:
    with pytest.raises(UserError, match=message):
        score_events(reference, [], duration_s)


def test_scores_and_subjects_belong_together() -> None:
    with pytest.raises(ValueError, match="a subject per score, got 2 for 0"):
        score_subjects([], ["a", "b"])
    with pytest.raises(UserError, match="at least one recording"):
        score_subjects([], [])


def test_rules_are_changed_by_name() -> None:
    assert EventRules.of([]) == EventRules(30.0, 60.0, 90.0, 300.0)
    assert EventRules.of(["before_s=1", "merge_s=0"]) == EventRules(1.0, 60.0, 0.0, 300.0)


@pytest.mark.parametrize("change", ["before=1", "before_s", "before_s=-1", "after_s=nan", "merge_s=inf", "split_s=0"])
def test_what_is_no_rule_is_refused(change: str) -> None:
    with pytest.raises(UserError, match=rf"with a name of before_s, after_s, merge_s, split_s, got '{change}'"):
        EventRules.of([change])
