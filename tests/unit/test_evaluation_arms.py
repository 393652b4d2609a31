from typing import Any

import numpy as np
import pytest

from bothways.evaluation import above_from, people_scores, side_by_side


def trial(value: float | None, **people: float) -> dict[str, Any]:
    return {"balanced_accuracy": value, "people": people}


def test_a_person_counts_by_the_mean_recall_of_their_classes() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    scores = np.eye(3)[[0, 0, 1, 1, 2, 0]]
    found = people_scores(labels, scores, ["a", "a", "a", "a", "b", "b"])
    assert found == pytest.approx({"a": (2 / 3 + 1) / 2, "b": 0.5})


def test_arms_side_by_side() -> None:
    arms = {
        "weak": {"1": trial(0.4, a=0.4, b=0.6), "2": trial(0.6, a=0.6, c=0.4)},
        "strong": {"1": trial(0.7, a=0.7, b=0.8), "2": trial(0.6, a=0.5, c=0.6)},
        "ours": {"1": trial(0.8, a=0.9, b=0.9), "2": trial(0.8, a=0.5, c=0.8)},
    }
    found = side_by_side(arms, ["weak", "strong"])
    assert found["strongest_control"] == "strong"
    assert found["arms"]["ours"]["trials"] == {"1": 0.8, "2": 0.8}
    assert found["arms"]["ours"]["people"] == pytest.approx({"a": 0.7, "b": 0.9, "c": 0.8})
    assert found["arms"]["ours"]["over_people"]["mean"] == pytest.approx(0.8)
    over = found["arms"]["ours"]["over_people"]
    assert (over["low"], over["high"]) == (pytest.approx(0.7), pytest.approx(0.9))  # all draws of three people
    assert found["arms"]["strong"]["over_trials"]["mean"] == pytest.approx(0.65)
    assert found["differences"].keys() == {"ours"}
    assert found["differences"]["ours"].keys() == {"weak", "strong"}
    difference = found["differences"]["ours"]["strong"]
    assert (difference["mean"], difference["n"], difference["wins"]) == (pytest.approx(0.4 / 3), 3, 3)
    assert (difference["low"], difference["high"]) == (pytest.approx(0.1), pytest.approx(0.2))


def test_trials_that_one_of_two_arms_lacks_do_not_count_in_their_difference() -> None:
    arms = {
        "control": {"1": trial(0.5, a=0.5), "2": trial(0.9, b=0.9)},
        "ours": {"1": trial(0.6, a=0.6)},
        "other": {"3": trial(1.0, c=1.0)},
    }
    found = side_by_side(arms, ["control"])
    assert found["differences"]["ours"]["control"]["mean"] == pytest.approx(0.1)
    assert found["differences"]["ours"]["control"]["n"] == 1
    assert found["differences"]["other"] == {}


def test_what_is_undefined_is_left_out() -> None:
    found = side_by_side({"ours": {"1": trial(None, a=1.0), "2": trial(0.5, a=0.5)}}, [])
    assert found["arms"]["ours"]["over_trials"]["mean"] == 0.5
    assert found["strongest_control"] is None
    assert found["differences"] == {"ours": {}}
    found = side_by_side({"ours": {"1": trial(None, a=1.0)}}, [])
    assert found["arms"]["ours"]["over_trials"] == {"mean": None, "sd": None, "n": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("lows", "expected"),
    [
        ({1: 0.1, 2: 0.2}, 1),
        ({1: 0.1, 2: -0.1, 4: 0.1, 8: 0.2}, 4),  # above at 1 too, but not from there on
        ({1: 0.1, 2: 0.0}, None),
        ({8: 0.1, 1: -0.1}, 8),
        ({1: 0.1, 2: None}, None),
        ({}, None),
    ],
)
def test_from_which_size_an_arm_is_above(lows: dict[int, float | None], expected: int | None) -> None:
    assert above_from({size: {"low": low} for size, low in lows.items()}) == expected


def test_a_size_without_a_difference_is_not_above() -> None:
    assert above_from({1: {"low": 0.1}, 2: None, 4: {"low": 0.1}}) == 4
