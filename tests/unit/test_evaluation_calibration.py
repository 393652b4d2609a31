import json

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression

from bothways.evaluation import apply_temperature, calibration, fit_temperature, temperature_scaling


def overconfident(n: int, seed: int, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from softmax(z), probabilities that say softmax(sharpness z)."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(n, 3))
    labels = (softmax(logits, axis=1).cumsum(1) < draw.random((n, 1))).sum(1)
    return labels, softmax(sharpness * logits, axis=1)


def test_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 0])
    probabilities = np.array([[0.9, 0.1], [0.85, 0.15], [0.95, 0.05], [0.3, 0.7], [0.5, 0.5]])
    told = calibration(labels, probabilities, n_bins=5)
    # 0.5 is in (0.4, 0.6], 0.7 in (0.6, 0.8]; of 0.85, 0.9 and 0.95 two are right.
    assert told["bins"] == [
        {"low": 0.4, "high": pytest.approx(0.6), "n": 1, "confidence": 0.5, "accuracy": 1.0},
        {"low": pytest.approx(0.6), "high": 0.8, "n": 1, "confidence": 0.7, "accuracy": 1.0},
        {"low": 0.8, "high": 1.0, "n": 3, "confidence": pytest.approx(0.9), "accuracy": pytest.approx(2 / 3)},
    ]
    assert told["ece"] == pytest.approx((0.5 + 0.3 + 3 * (0.9 - 2 / 3)) / 5)
    assert told["mce"] == 0.5
    assert told["confidence"] == pytest.approx(0.78)
    assert told["accuracy"] == 0.8
    on_the_edge = calibration(np.array([0, 1]), np.array([[0.5, 0.5], [0.25, 0.75]]), n_bins=2)
    assert [(one["low"], one["high"], one["n"]) for one in on_the_edge["bins"]] == [(0, 0.5, 1), (0.5, 1, 1)]
    with pytest.raises(ValueError, match="expected probabilities"):
        calibration(labels, probabilities * 2)
    with pytest.raises(ValueError, match="expected probabilities"):
        calibration(labels[:0], probabilities[:0])


@pytest.mark.parametrize("class_index", [None, 2])
def test_bins_equal_scikit_learn(class_index: int | None) -> None:
    labels, probabilities = overconfident(400, seed=0)
    probabilities[:3] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # both edges
    told = calibration(labels, probabilities, class_index=class_index, n_bins=10)
    right = labels == (probabilities.argmax(1) if class_index is None else class_index)
    confidence = probabilities.max(1) if class_index is None else probabilities[:, class_index]
    true, mean = calibration_curve(right, confidence, n_bins=10)
    assert [one["accuracy"] for one in told["bins"]] == pytest.approx(true)
    assert [one["confidence"] for one in told["bins"]] == pytest.approx(mean)
    assert sum(one["n"] for one in told["bins"]) == 400


def test_the_temperature_undoes_what_was_done() -> None:
    labels, probabilities = overconfident(20_000, seed=1)
    fitted = fit_temperature(labels, probabilities)
    assert fitted["temperature"] == pytest.approx(3, rel=0.05)
    assert fitted["reason"] is None
    assert fitted["n"] == 20_000
    undone = apply_temperature(probabilities, 3.0)
    assert softmax(np.log(probabilities) / 3, axis=1) == pytest.approx(undone)
    assert (undone.argmax(1) == probabilities.argmax(1)).all()


def test_the_temperature_is_that_of_a_logistic_regression_on_the_logit() -> None:
    draw = np.random.default_rng(2)
    logit = draw.normal(size=300)
    labels = (draw.random(300) < 1 / (1 + np.exp(-logit))).astype(int)
    p = 1 / (1 + np.exp(-2 * logit))
    fitted = fit_temperature(labels, np.stack([1 - p, p], 1))
    theirs = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(2 * logit[:, None], labels)
    assert 1 / fitted["temperature"] == pytest.approx(theirs.coef_[0, 0], rel=1e-4)


def test_temperature_of_validation_on_the_tested() -> None:
    told = temperature_scaling(overconfident(500, seed=3), overconfident(500, seed=4))
    assert told["after"]["ece"] < told["before"]["ece"] / 2
    assert told["after"]["log_loss"] < told["before"]["log_loss"]
    assert told["after"]["brier"] < told["before"]["brier"]
    assert told["before"]["ece"] == told["before"]["calibration"]["ece"]
    json.dumps(told, allow_nan=False)


def test_no_temperature_has_a_reason() -> None:
    labels, probabilities = overconfident(100, seed=5)
    right = np.where(np.eye(3)[labels] == 1, 0.8, 0.1)
    for y, p, reason in (
        (labels[:19], probabilities[:19], "19 windows are too few, at least 20"),
        (np.zeros_like(labels), probabilities, "all windows are of one class"),
        (labels, right, "(nearly) all windows are right"),
        (
            np.arange(100) // 20 % 2,
            0.5 + 1e-3 * np.array([[-1, 1], [1, -1]])[np.arange(100) // 20 % 2 ^ (np.arange(100) % 5 > 0)],
            "the scores hardly differ between the classes",
        ),
        (labels, np.where(right > 0.5, 0.2, 0.4), "hardly better than chance"),
    ):
        told = fit_temperature(y, p)
        assert told["temperature"] is None
        assert told["n"] == len(y)
        assert reason in told["reason"]
    told = temperature_scaling((labels[:19], probabilities[:19]), (labels, probabilities))
    assert told["after"] is None
    assert told["before"]["ece"] > 0
    with pytest.raises(ValueError, match="expected probabilities"):
        fit_temperature(labels, probabilities * 2)


def test_a_probability_of_zero_is_no_end() -> None:
    """In float32 a sure model says 0; where it is wrong the loss is large, not infinite."""
    labels, probabilities = overconfident(200, seed=6, sharpness=10)
    sure = np.where(probabilities < 1e-9, 0, probabilities).astype(np.float32)
    assert (sure[np.arange(200), labels] == 0).any()
    told = temperature_scaling((labels, sure), (labels, sure))
    assert 5 < told["temperature"] < 20
    assert told["after"]["log_loss"] < told["before"]["log_loss"] < 36.1
