import json

import numpy as np
import pytest
from sklearn import metrics

from bothways.errors import UserError
from bothways.evaluation import chance, classification_metrics, majority, paired_difference, summarise

BINARY = ["rest", "task"]


def test_equal_to_scikit_learn_with_three_classes() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(3, size=200)
    scores = draw.dirichlet(np.ones(3), size=200) + 0.5 * np.eye(3)[labels]
    scores /= scores.sum(1, keepdims=True)
    result = classification_metrics(labels, scores, ["a", "b", "c"])
    predicted = scores.argmax(1)
    assert result["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert result["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(labels, predicted))
    assert result["macro_f1"] == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    assert result["kappa"] == pytest.approx(metrics.cohen_kappa_score(labels, predicted))
    assert result["auroc"] == pytest.approx(metrics.roc_auc_score(labels, scores, multi_class="ovr"))
    assert result["confusion"] == metrics.confusion_matrix(labels, predicted).tolist()
    assert result["subjects"] is None
    assert result["interval"] is None


def test_case_b35_the_largest_class_is_accurate_and_useless() -> None:
    labels = np.array([0] * 46 + [1] * 2)
    result = classification_metrics(labels, majority(labels, 48, 2), ["bckg", "seiz"], ["s"] * 48)
    assert result["support"] == {"bckg": 46, "seiz": 2}
    assert result["accuracy"] == pytest.approx(0.958, abs=5e-4)
    assert result["balanced_accuracy"] == 0.5
    assert result["kappa"] == 0
    assert result["auroc"] == 0.5
    told = chance(labels, ["bckg", "seiz"])
    assert told["majority_class"] == "bckg"
    assert told["majority_accuracy"] == result["accuracy"]
    assert told["majority_balanced_accuracy"] == told["balanced_accuracy"] == 0.5


def test_undefined_numbers_are_none_and_everything_is_json() -> None:
    scores = np.array([[0.9, 0.1], [0.6, 0.4]])
    result = classification_metrics(np.array([0, 0]), scores, BINARY, ["s1", "s2"])
    assert result["auroc"] is None
    assert result["kappa"] is None
    assert result["balanced_accuracy"] is result["interval"] is None
    assert result["accuracy"] == 1.0
    json.dumps(result, allow_nan=False)


def test_subjects_and_interval() -> None:
    draw = np.random.default_rng(1)
    labels, subjects = draw.integers(2, size=120), np.repeat([f"s{i:02d}" for i in range(12)], 10)
    scores = np.stack([np.full(120, 0.5), labels + draw.normal(size=120)], 1)
    result = classification_metrics(labels, scores, BINARY, subjects, seed=2)
    predicted = scores.argmax(1)
    for name, told in result["subjects"].items():
        mine = subjects == name
        assert told == {"n": 10, "accuracy": pytest.approx((predicted == labels)[mine].mean())}
    interval = result["interval"]
    assert interval["low"] < result["balanced_accuracy"] < interval["high"]
    assert interval == classification_metrics(labels, scores, BINARY, subjects, seed=2)["interval"]
    assert interval != classification_metrics(labels, scores, BINARY, subjects, seed=3)["interval"]
    # The same resamples done one by one, windows and all.
    resampled = []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(subjects == s) for s in draw.choice(np.unique(subjects), 12)])
        resampled.append(metrics.balanced_accuracy_score(labels[rows], predicted[rows]))
    assert [interval["low"], interval["high"]] == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.03)


def test_wrong_input() -> None:
    scores = np.full((2, 2), 0.5)
    with pytest.raises(UserError, match="no labelled window"):
        classification_metrics(np.zeros(0, int), np.zeros((0, 2)), BINARY)
    with pytest.raises(ValueError, match="labels 0 to 1, got -1"):
        classification_metrics(np.array([-1, 0]), scores, BINARY)
    with pytest.raises(ValueError, match=r"expected scores \[2 3\]"):
        classification_metrics(np.array([0, 1]), scores, ["a", "b", "c"])
    with pytest.raises(ValueError, match="not finite in 1 windows"):
        classification_metrics(np.array([0, 1]), np.array([[0.1, np.nan], [0, 1]]), BINARY)
    with pytest.raises(ValueError, match="one per window"):
        classification_metrics(np.array([0, 1]), scores, BINARY, ["a"])


def test_summaries() -> None:
    told = summarise([0.7, 0.8, 0.9])
    assert told["mean"] == pytest.approx(0.8)
    assert told["sd"] == pytest.approx(0.1)
    assert told["high"] == pytest.approx(0.8 + 4.302653 * 0.1 / 3**0.5)
    assert summarise([0.5]) == {"mean": 0.5, "sd": None, "n": 1, "low": None, "high": None}
    for bad in ([], [float("nan")]):
        with pytest.raises(ValueError, match="finite"):
            summarise(bad)


def test_paired_differences() -> None:
    a, b = [0.8, 0.85, 0.9, 0.7, 0.75], [0.7, 0.8, 0.8, 0.65, 0.7]
    told = paired_difference(a, b, seed=1)
    assert told == paired_difference(a, b, seed=1)
    assert told["mean"] == pytest.approx(0.07)
    assert told["wins"] == told["n"] == 5
    assert 0 < told["low"] < 0.07 < told["high"]
    assert told["p"] == 2 / 2**5  # all differences of one sign: two of the 32 changes are as large
    draw = np.random.default_rng(0)
    many = draw.normal(0.5, 1, size=40)
    assert paired_difference(many, np.zeros(40))["p"] < 0.05
    assert paired_difference(many, many)["p"] == 1
    with pytest.raises(ValueError, match="expected pairs"):
        paired_difference([1.0], [1.0, 2.0])
