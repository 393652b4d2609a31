from typing import Any

import numpy as np
import pytest
from scipy import stats

from bothways.evaluation import above_from, mean_of_classes, paired_difference, people_recalls, side_by_side


def trial(value: float | None, **people: float) -> dict[str, Any]:
    """People who have both classes, of each the same recall."""
    return {"balanced_accuracy": value, "people": {name: {"x": r, "y": r} for name, r in people.items()}}


def of_one_class(value: float, **people: tuple[str, float]) -> dict[str, Any]:
    return {"balanced_accuracy": value, "people": {name: {label: r} for name, (label, r) in people.items()}}


def test_the_recalls_of_a_person() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    scores = np.eye(3)[[0, 0, 1, 1, 2, 0]]
    found = people_recalls(labels, scores, ["a", "a", "a", "a", "b", "b"], ["x", "y", "z"])
    assert found == {"a": {"x": pytest.approx(2 / 3), "y": 1.0}, "b": {"z": 0.5}}


def test_a_constant_answer_is_at_chance_over_people_with_one_class_each() -> None:
    """16 healthy and 4 ill: their mean accuracy would be 0.8."""
    labels, whose = np.repeat([0] * 16 + [1] * 4, 10), [f"p{i // 10:02d}" for i in range(200)]
    people = people_recalls(labels, np.tile([0.8, 0.2], (200, 1)), whose, ["healthy", "ill"])
    even = {name: dict.fromkeys(own, 0.5) for name, own in people.items()}
    arms = {name: {"1": {"balanced_accuracy": 0.5, "people": p}} for name, p in (("same", people), ("chance", even))}
    found = side_by_side(arms, ["chance"])
    over = found["arms"]["same"]["over_people"]
    assert (over["mean"], over["low"], over["high"], over["n"]) == (0.5, 0.5, 0.5, 20)
    assert over["n_of_class"] == {"healthy": 16, "ill": 4}
    difference = found["differences"]["same"]["chance"]
    assert (difference["mean"], difference["p"]) == (0, 1)


def test_classes_weigh_the_same_however_many_people_have_them() -> None:
    values = np.array([[0.9, np.nan], [0.7, np.nan], [0.8, np.nan], [np.nan, 0.2], [np.nan, 0.5], [np.nan, 0.5]])
    told = mean_of_classes(values)
    assert told["mean"] == pytest.approx((0.8 + 0.4) / 2)
    # As many people in both: the t test of two groups, of the sum of their means, halved.
    sums = stats.ttest_ind(values[:3, 0], -values[3:, 1]).confidence_interval()
    assert (told["low"], told["high"]) == pytest.approx((sums.low / 2, sums.high / 2))
    everything = mean_of_classes(np.array([[0.9, 0.5], [0.7, 0.7], [0.6, 0.2]]))  # means 0.7, 0.7, 0.4
    assert everything == {
        "mean": pytest.approx(0.6), "sd": pytest.approx(0.03**0.5), "n": 3,
        "low": pytest.approx(0.6 - 4.302653 * 0.1), "high": pytest.approx(0.6 + 4.302653 * 0.1),
    }  # fmt: skip
    # a and b have both classes, c the second alone: (0.8 + 0.6) / 2 / 2 + (0.4 + 0.2 + 0.6) / 3 / 2
    mixed = mean_of_classes(np.array([[0.8, 0.4], [0.6, 0.2], [np.nan, 0.6]]))
    assert mixed["mean"] == pytest.approx(0.55)
    alone = mean_of_classes(np.array([[0.8, 0.4], [np.nan, 0.2]]))
    assert alone == {"mean": pytest.approx(0.55), "sd": None, "n": 2, "low": None, "high": None}
    with pytest.raises(ValueError, match="some in each row and column"):
        mean_of_classes(np.array([[0.8, np.nan], [0.6, np.nan]]))


def test_arms_are_exchanged_by_person_whatever_classes_they_have() -> None:
    a = np.array([[0.9, np.nan], [0.8, 0.6], [np.nan, 0.7]])
    told = paired_difference(a, a - np.array([[0.2], [0.1], [-0.1]]))
    # In the mean are (0.2 + 0.1) / 2 / 2 and (0.1 - 0.1) / 2 / 2: by person 0.05, 0.025 + 0.025, -0.025.
    assert (told["mean"], told["wins"], told["n"]) == (pytest.approx(0.075), 2, 3)
    assert told["p"] == 4 / 8  # as large: 0.075 and 0.125, of either sign
    with pytest.raises(ValueError, match="other classes"):
        paired_difference(a, np.where(np.isnan(a), 0.5, a))


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
    # Student's t of three people, SD 0.1; not above 1.
    assert (over["low"], over["high"]) == (pytest.approx(0.8 - 4.302653 * 0.1 / 3**0.5), 1.0)
    assert found["arms"]["strong"]["over_trials"]["mean"] == pytest.approx(0.65)
    assert found["differences"].keys() == {"ours"}
    assert found["differences"]["ours"].keys() == {"weak", "strong"}
    difference = found["differences"]["ours"]["strong"]
    assert (difference["mean"], difference["n"], difference["wins"]) == (pytest.approx(0.4 / 3), 3, 3)
    half = 4.302653 * np.std([0.1, 0.1, 0.2], ddof=1) / 3**0.5
    assert (difference["low"], difference["high"]) == pytest.approx((0.4 / 3 - half, 0.4 / 3 + half))


def test_people_of_one_class_have_no_balanced_accuracy() -> None:
    arms = {name: {"1": of_one_class(1.0, a=("x", 1.0), b=("x", 1.0))} for name in ("ours", "control")}
    found = side_by_side(arms, ["control"])
    assert found["arms"]["ours"]["over_people"] == {
        "mean": None, "sd": None, "n": 2, "low": None, "high": None, "n_of_class": {"x": 2},
    }  # fmt: skip
    assert found["strongest_control"] is None
    assert found["differences"] == {"ours": {}}


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


def test_above_is_above_over_people_and_over_trials() -> None:
    """Ten people in whom the arm is better by 0.1 and a bit, in models of which one is worse."""
    names = [f"p{i}" for i in range(10)]
    control = {t: trial(0.5, **dict.fromkeys(names, 0.5)) for t in "123"}

    def ours(*of_trials: float) -> dict[str, Any]:
        people = {name: 0.6 + i / 1000 for i, name in enumerate(names)}
        return {t: trial(value, **people) for t, value in zip("123", of_trials)}

    def difference(trials: dict[str, Any]) -> dict[str, Any]:
        return side_by_side({"ours": trials, "control": control}, ["control"])["differences"]["ours"]["control"]

    alike, unlike = difference(ours(0.6, 0.61, 0.62)), difference(ours(0.9, 0.7, 0.4))
    assert alike["low"] == unlike["low"] > 0.1
    assert alike["over_trials"]["mean"] == pytest.approx(0.11)
    assert alike["over_trials"]["low"] == pytest.approx(0.11 - 4.302653 * 0.01 / 3**0.5)
    assert unlike["over_trials"]["low"] < 0
    assert (alike["above"], unlike["above"]) == (True, False)
    two = difference(ours(0.9, 0.4))  # of which no interval tells much
    assert (two["over_trials"]["n"], two["above"]) == (2, True)
    assert difference({t: trial(0.5, **dict.fromkeys(names, 0.5)) for t in "123"})["above"] is False


def test_several_controls_need_a_smaller_p_and_all_of_them_the_largest() -> None:
    names = "abcdef"

    def arm(*values: float) -> dict[str, Any]:
        return {"1": trial(None, **dict(zip(names, values)))}

    arms = {
        "ours": arm(0.9, 0.91, 0.92, 0.93, 0.94, 0.95),
        "chance": arm(*[0.5] * 6),  # below in all six: p 2/64
        "weak": arm(*[0.6] * 6),
        "strong": arm(0.95, 0.8, 0.8, 0.8, 0.8, 0.8),
    }
    found = side_by_side(arms, ["chance", "weak", "strong"], ["chance"])
    against = found["differences"]["ours"]
    assert [against[name]["p"] for name in ("chance", "weak")] == [2 / 64, 2 / 64]
    # The smallest difference, -0.05, alone has another sign: as large are it, all of one sign, and their opposites.
    assert against["strong"]["p"] == 4 / 64
    assert [d["p_holm"] for d in against.values()] == [None, 2 * 2 / 64, 4 / 64]
    assert found["every_control"] == {"ours": {"p": 4 / 64, "above": against["strong"]["above"]}}
    assert side_by_side({"ours": arms["ours"]}, [])["every_control"] == {"ours": None}


def test_a_fit_counts_once_in_however_many_trials_it_stands() -> None:
    def fitted(fit: str, value: float) -> dict[str, Any]:
        return trial(value, a=value, b=value) | {"fit": fit}

    names = ("1", "2", "3", "4")
    arms = {
        "control": {t: fitted("split-1", 0.5) for t in names},
        "frozen": {t: fitted("split-1", 0.7) for t in names},
        "trained": {t: fitted(t, 0.6 + int(t) / 10) for t in names},
    }
    found = side_by_side(arms, ["control"])
    once = {"mean": 0.5, "sd": None, "n": 1, "low": None, "high": None}
    assert found["arms"]["control"]["over_trials"] == once
    assert found["arms"]["control"]["trials"] == dict.fromkeys(names, 0.5)
    differences = {name: those["control"]["over_trials"] for name, those in found["differences"].items()}
    assert differences["frozen"] == once | {"mean": pytest.approx(0.2)}
    assert (differences["trained"]["n"], differences["trained"]["mean"]) == (4, pytest.approx(0.35))
    # SD of 0.1, 0.2, 0.3, 0.4 is 0.129: 0.85 with half 3.182 · 0.129 / 2, not above 1.
    over = found["arms"]["trained"]["over_trials"]
    assert (over["low"], over["high"]) == (pytest.approx(0.85 - 3.182446 * (1 / 60) ** 0.5 / 2), 1.0)


def test_two_trials_have_no_interval_and_a_difference_no_bounds() -> None:
    arms = {
        "control": {t: trial(0.0, a=0.0, b=0.1) for t in "123"},
        "ours": {t: trial(value, a=0.5, b=0.5) for t, value in zip("123", (1.0, 0.5, 0.0))},
    }
    over = side_by_side(arms, ["control"])["arms"]["ours"]["over_trials"]
    assert (over["low"], over["high"]) == (0.0, 1.0)
    over = side_by_side(arms, ["control"])["differences"]["ours"]["control"]["over_trials"]
    assert (over["low"], over["high"]) == (pytest.approx(0.5 - 4.302653 * 0.5 / 3**0.5), pytest.approx(1.742, abs=1e-3))
    two = {name: {t: of[t] for t in "12"} for name, of in arms.items()}
    over = side_by_side(two, ["control"])["arms"]["ours"]["over_trials"]
    assert over == {"mean": 0.75, "sd": pytest.approx(0.125**0.5), "n": 2, "low": None, "high": None}


def test_what_is_undefined_is_left_out() -> None:
    found = side_by_side({"ours": {"1": trial(None, a=1.0), "2": trial(0.5, a=0.5)}}, [])
    assert found["arms"]["ours"]["over_trials"]["mean"] == 0.5
    assert found["strongest_control"] is None
    assert found["differences"] == {"ours": {}}
    found = side_by_side({"ours": {"1": trial(None, a=1.0)}}, [])
    assert found["arms"]["ours"]["over_trials"] == {"mean": None, "sd": None, "n": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ({1: True, 2: True}, 1),
        ({1: True, 2: False, 4: True, 8: True}, 4),  # above at 1 too, but not from there on
        ({1: True, 2: False}, None),
        ({8: True, 1: False}, 8),
        ({}, None),
    ],
)
def test_from_which_size_an_arm_is_above(above: dict[int, bool], expected: int | None) -> None:
    assert above_from({size: {"above": one} for size, one in above.items()}) == expected


def test_a_size_without_a_difference_is_not_above() -> None:
    assert above_from({1: {"above": True}, 2: None, 4: {"above": True}}) == 4
