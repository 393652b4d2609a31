import json
from itertools import product

import numpy as np
import pytest
from sklearn import metrics

from bothways.evaluation import (
    classification_metrics,
    compare_arms,
    mean_by_group,
    metrics_by_level,
    paired_difference,
    within_subjects,
)

BINARY = ["rest", "task"]


def people(n_subjects: int, seed: int, shift: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two recordings each, one of rest and one of task, five windows in each."""
    draw = np.random.default_rng(seed)
    recordings = np.repeat(np.arange(2 * n_subjects), 5)
    labels = recordings % 2
    score = 1 / (1 + np.exp(-draw.normal(shift * (2 * labels - 1), 1)))
    return labels, np.stack([1 - score, score], 1), recordings // 2, recordings


def test_means_of_groups() -> None:
    names, mean = mean_by_group(np.array([[1.0, 0], [0, 1], [0, 1]]), ["b", "a", "b"])
    assert names.tolist() == ["a", "b"]
    assert mean.tolist() == [[0, 1], [0.5, 0.5]]
    assert mean_by_group(np.array([30.0, 40, 50]), ["b", "a", "b"])[1].tolist() == [40, 40]


def test_recordings_are_measured_by_their_mean_probability() -> None:
    labels, scores, subjects, recordings = people(6, seed=0)
    told = metrics_by_level(labels, scores, BINARY, subjects, recordings, seed=1, n_bootstrap=50)
    recording = told["recording"]
    assert (recording["n_mixed"], recording["reason"]) == (0, None)
    mean = scores.reshape(12, 5, 2).mean(1)
    expected = classification_metrics(np.arange(12) % 2, mean, BINARY, np.arange(12) // 2, seed=1, n_bootstrap=50)
    assert recording["metrics"]["n"] == 12
    assert recording["metrics"]["confusion"] == expected["confusion"]
    assert recording["metrics"]["auroc"] == expected["auroc"] > metrics.roc_auc_score(labels, scores[:, 1])
    assert recording["metrics"]["n_subjects"] == 6
    assert recording["metrics"]["interval"] == expected["interval"]
    # Everybody rests and calculates: a person has no class.
    assert told["subject"] == {"metrics": None, "n_mixed": 6, "reason": "every subject has windows of several classes"}
    json.dumps(told, allow_nan=False)


def test_a_diagnosis_is_measured_by_subject_and_mixed_recordings_are_counted() -> None:
    labels, scores, _, recordings = people(4, seed=2)
    labels[0] = 1 - labels[0]
    told = metrics_by_level(labels, scores, BINARY, recordings, recordings, n_bootstrap=20)
    assert told["subject"] == told["recording"]
    assert told["subject"]["n_mixed"] == 1
    assert told["subject"]["metrics"]["n"] == told["subject"]["metrics"]["n_subjects"] == 7
    assert told["within_subject"]["balanced_accuracy"]["n"] == 1
    with pytest.raises(ValueError, match="of one subject"):
        metrics_by_level(labels, scores, BINARY, np.arange(40), recordings)
    with pytest.raises(ValueError, match="as many labels"):
        metrics_by_level(labels, scores, BINARY, recordings, recordings[1:])


def test_within_subjects_is_the_mean_over_people() -> None:
    labels, scores, subjects, _ = people(5, seed=3)
    scores = np.where(subjects[:, None] == 2, scores * [0.01, 1], scores)  # a person who is all task
    scores /= scores.sum(1, keepdims=True)
    told = within_subjects(labels, scores, subjects)
    aucs = [metrics.roc_auc_score(labels[subjects == s], scores[subjects == s, 1]) for s in range(5)]
    assert told["auroc"]["values"] == {str(s): pytest.approx(auc) for s, auc in enumerate(aucs)}
    assert told["auroc"]["mean"] == pytest.approx(np.mean(aucs))
    assert told["auroc"]["mean"] > metrics.roc_auc_score(labels, scores[:, 1])
    assert told["balanced_accuracy"]["values"]["2"] == 0.5
    one = within_subjects(labels[labels == 1], scores[labels == 1], subjects[labels == 1])
    assert one["auroc"] == {
        "mean": None, "sd": None, "n": 0, "low": None, "high": None, "values": dict.fromkeys("01234"),
    }  # fmt: skip
    assert one["accuracy"]["n"] == 5


@pytest.mark.parametrize("metric", ["balanced_accuracy", "auroc", "auprc", "log_loss"])
def test_arms_are_exchanged_within_people(metric: str) -> None:
    """All 2^5 exchanges, done by hand."""
    labels, scores, subjects, _ = people(5, seed=4, shift=1.5)
    worse = people(5, seed=5, shift=0.3)[1]
    told = compare_arms(labels, {"good": scores, "worse": worse}, subjects, reference="good", metric=metric)

    def measure(values: np.ndarray) -> float:
        return {
            "balanced_accuracy": lambda: metrics.balanced_accuracy_score(labels, values.argmax(1)),
            "auroc": lambda: metrics.roc_auc_score(labels, values[:, 1]),
            "auprc": lambda: metrics.average_precision_score(labels, values[:, 1]),
            "log_loss": lambda: metrics.log_loss(labels, values),
        }[metric]()

    differences = []
    for swap in product([False, True], repeat=5):
        rows = np.array(swap)[subjects][:, None]
        differences.append(measure(np.where(rows, worse, scores)) - measure(np.where(rows, scores, worse)))
    arm = told["arms"]["worse"]
    assert arm["difference"] == pytest.approx(differences[0])
    assert arm["p"] == np.mean(np.abs(differences) >= abs(differences[0]) - 1e-9)
    assert arm["p_holm"] == arm["p"]
    assert min(arm["low"], arm["high"]) <= arm["difference"] <= max(arm["low"], arm["high"])
    assert (arm["difference"] > 0) == (metric != "log_loss")


def test_several_arms_many_people_and_none() -> None:
    labels, scores, subjects, _ = people(30, seed=6, shift=1.5)
    arms = {"good": scores, "same": scores, "worse": people(30, seed=7, shift=0.2)[1], "worst": 1 - scores}
    told = compare_arms(labels, arms, subjects, reference="good", seed=1)
    assert told == compare_arms(labels, arms, subjects, reference="good", seed=1)
    assert told["n_subjects"] == 30
    same, worse, worst = told["arms"].values()
    assert (same["difference"], same["low"], same["high"], same["p"]) == (0, 0, 0, 1)
    assert worst["p"] == 1 / 2001
    assert worst["p_holm"] == pytest.approx(3 / 2001)
    assert 0 < worse["low"] < worse["difference"] < worse["high"]
    one = compare_arms(labels[:10], {a: s[:10] for a, s in arms.items()}, subjects[:10], reference="good")["arms"]
    assert one["worst"]["reason"] == "they are of one subject"
    assert one["worst"]["p"] is one["worst"]["p_holm"] is one["worst"]["low"] is None
    task = labels == 1
    rest = compare_arms(labels[task], {a: s[task] for a, s in arms.items()}, subjects[task], reference="good")["arms"]
    assert rest["worst"]["reason"] == "balanced_accuracy is undefined here"
    json.dumps([told, one, rest], allow_nan=False)
    with pytest.raises(ValueError, match="expected a reference of good, same"):
        compare_arms(labels, arms, subjects, reference="best")
    with pytest.raises(ValueError, match="expected 300 scores"):
        compare_arms(labels, {"a": scores, "b": scores[1:]}, subjects, reference="a")


def test_the_accuracy_of_equally_many_windows_is_a_paired_difference() -> None:
    labels, scores, subjects, _ = people(9, seed=8)
    other = people(9, seed=9, shift=0.1)[1]
    pooled = compare_arms(labels, {"a": scores, "b": other}, subjects, reference="a", metric="accuracy")["arms"]["b"]
    each = [list(within_subjects(labels, s, subjects)["accuracy"]["values"].values()) for s in (scores, other)]
    paired = paired_difference(*each)
    assert pooled["difference"] == pytest.approx(paired["mean"])
    assert pooled["p"] == paired["p"]
