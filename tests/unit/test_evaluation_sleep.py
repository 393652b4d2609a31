import json

import numpy as np
import pytest
from sklearn import metrics

from bothways.errors import UserError
from bothways.evaluation import UNSCORED, stage_metrics

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
