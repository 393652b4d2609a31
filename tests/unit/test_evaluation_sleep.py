import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from bothways.errors import UserError
from bothways.evaluation import (
    UNSCORED,
    most_of,
    sleep_scores,
    sleep_stages,
    stage_metrics,
    stage_numbers,
    stage_of,
)

STAGES = ["W", "N1", "N2", "N3", "REM"]


def test_equal_to_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(5, size=900)
    predicted = np.where(draw.random(900) < 0.7, labels, draw.integers(5, size=900))
    subjects = np.repeat(["a", "b", "c"], 300)
    told = stage_metrics(labels, predicted, STAGES, subjects)
    assert told["kappa"] == pytest.approx(metrics.cohen_kappa_score(labels, predicted))
    assert told["macro_f1"] == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    assert told["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(labels, predicted)
    for k, stage in enumerate(STAGES):
        expected = {"n": support[k], "precision": precision[k], "recall": recall[k], "f1": f1[k]}
        assert {name: told["stages"][stage][name] for name in expected} == pytest.approx(expected)
    own = [metrics.cohen_kappa_score(labels[subjects == s], predicted[subjects == s]) for s in "abc"]
    assert told["kappa_subjects"]["mean"] == pytest.approx(np.mean(own))


def test_what_is_not_scored_is_left_out_and_counted() -> None:
    labels = np.array([0, 0, 1, UNSCORED, 2, 2])
    predicted = np.array([0, 1, 1, 0, UNSCORED, 2])
    told = stage_metrics(labels, predicted, STAGES)
    assert (told["n"], told["unscored"], told["accuracy"]) == (4, 2, 0.75)
    assert told["stages"]["W"] == {"n": 2, "n_predicted": 1, "precision": 1.0, "recall": 0.5, "f1": 2 / 3}
    assert told["stages"]["REM"] == {"n": 0, "n_predicted": 0, "precision": None, "recall": None, "f1": None}
    assert told["kappa_subjects"] is None
    json.dumps(told, allow_nan=False)


def test_one_stage_alone_has_no_kappa() -> None:
    told = stage_metrics(np.array([2, 2]), np.array([2, 2]), STAGES, ["a", "a"])
    assert (told["kappa"], told["kappa_subjects"], told["macro_f1"]) == (None, None, 1.0)


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(UserError, match="no 30 s that are scored in both"):
        stage_metrics(np.array([0, UNSCORED]), np.array([UNSCORED, 1]), STAGES)
    with pytest.raises(ValueError, match="stages -1 to 4, got 0 to 5"):
        stage_metrics(np.array([0]), np.array([5]), STAGES)
    with pytest.raises(ValueError, match="as many predictions"):
        stage_metrics(np.array([0]), np.array([0]), STAGES, ["a", "b"])


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ("W", "W|Wake|AWAKE|Sleep stage W|S0|SLEEP-S0|Stage 0"),
        ("R", "R|REM|rem sleep|Sleep stage R|Sleep_stage_REM"),
        ("N1", "N1|S1|NREM1|Sleep stage 1|Stage 1 sleep|Sleep stage N1|nrem 1"),
        ("N2", "N2|S2|Sleep stage 2|SLEEP-S2|non-REM 2"),
        ("N3", "N3|N4|S3|S4|Sleep stage 3|Sleep stage 4|SWS|Slow-wave sleep"),
        ("NREM", "N|NREM|non-REM"),
        ("movement", "Movement time|MT|SLEEP-MT"),
        (None, "1|rest|read|seizure|stage|sleep|Sleep stage ?|Sleep stage 5|N5|S10|R1|wakes|"),
    ],
)
def test_names_of_stages(stage: str | None, names: str) -> None:
    assert {name: stage_of(name) for name in names.split("|")} == dict.fromkeys(names.split("|"), stage)


def test_what_a_public_archive_writes_behind_the_name() -> None:
    assert [stage_of(name) for name in ("Stage 2 sleep|2", "REM sleep|5", "Wake|0")] == ["N2", "R", "W"]


def test_classes_are_stages_where_all_are() -> None:
    assert sleep_stages(["N1", "Movement time", "W"]) == {"N1": "N1", "Movement time": "movement", "W": "W"}
    assert sleep_stages(["Sleep stage 1", "Sleep stage 2"]) == {"Sleep stage 1": "N1", "Sleep stage 2": "N2"}
    for others in (["S1", "S2"], ["W", "seizure"], ["W"], ["MT", "W"], ["S3", "Sleep stage 4"], []):
        assert sleep_stages(others) is None


def test_the_order_of_a_hypnogram() -> None:
    stages = sleep_stages(["MT", "N1", "REM", "S3", "S4", "W"])
    assert stages is not None
    names, number = stage_numbers(stages)
    assert (names, number.tolist()) == (["W", "R", "N1", "N3"], [-1, 2, 1, 3, 3, 0])


def test_what_weighs_most_between_two_times() -> None:
    edges_s = np.array([0.0, 30, 60, 90, 120])
    onset_s, duration_s = np.array([0.0, 20, 40, 100]), np.array([20.0, 20, 20, 5])
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [np.nan, np.nan], [0.5, 0.5]])
    # 20 s × 0.9 + 10 s × 0.2 against 20 s × 0.1 + 10 s × 0.8; nothing known; nothing there; a draw
    assert most_of(edges_s, onset_s, duration_s, probabilities).tolist() == [0, 1, UNSCORED, 0]
    assert most_of(edges_s, onset_s[:0], duration_s[:0], probabilities[:0]).tolist() == [UNSCORED] * 4


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(-5, 25), st.integers(0, 12), st.integers(0, 2)), max_size=8))
def test_it_is_what_counting_seconds_gives(stretches: list[tuple[int, int, int]]) -> None:
    seconds = np.zeros((20, 3))
    for onset, duration, k in stretches:
        seconds[max(onset, 0) : max(onset + duration, 0), k] += 1
    counted = seconds.reshape(4, 5, 3).sum(1)
    expected = np.where(counted.max(1) > 0, counted.argmax(1), UNSCORED)
    onset_s, duration_s = (np.array([one[i] for one in stretches], dtype=float) for i in (0, 1))
    weights = np.eye(3)[[k for *_, k in stretches]].reshape(-1, 3)
    assert most_of(np.arange(0.0, 21, 5), onset_s, duration_s, weights).tolist() == expected.tolist()


def test_scores_of_classes_that_are_stages() -> None:
    classes = ["Sleep stage 3", "Sleep stage 4", "Sleep stage W", "Movement time"]
    labels = np.array([0, 1, 2, 2, 3])
    scores = np.eye(4)[[1, 0, 2, 0, 2]]
    told = sleep_scores(labels, scores, classes, ["a", "a", "a", "a", "a"])
    assert told is not None
    assert told["stages"]["N3"]["f1"] == 0.8  # S3 taken for S4 is no error, wake taken for S3 is
    assert (told["n"], told["unscored"], told["confusion"]) == (4, 1, [[1, 1], [0, 2]])
    assert told["stage_of"] == dict(zip(classes, ["N3", "N3", "W", "movement"]))
    assert sleep_scores(labels, scores, ["a", "b", "c", "d"], ["a"] * 5) is None
