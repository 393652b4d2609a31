import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from bothways.draws import generator
from bothways.errors import UserError
from bothways.evaluation import constant_controls, multilabel_metrics, regression_metrics


def ages(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Several recordings of each person, in whole years: with ties."""
    draw = np.random.default_rng(seed)
    subjects = np.repeat(np.arange(n), draw.integers(1, 5, size=n))
    truth = np.round(draw.normal(40, 15, size=n))[subjects]
    return truth, np.round(truth * 0.5 + draw.normal(25, 8, size=len(truth))), subjects


def theirs(truth: np.ndarray, predicted: np.ndarray) -> list[float]:
    return [
        np.mean(predicted - truth),
        metrics.mean_absolute_error(truth, predicted),
        metrics.root_mean_squared_error(truth, predicted),
        metrics.r2_score(truth, predicted),
        stats.pearsonr(truth, predicted)[0],
        stats.spearmanr(truth, predicted)[0],
    ]


def test_equal_to_scikit_learn_and_scipy_each_draw_as_well() -> None:
    truth, predicted, subjects = ages(12, seed=0)
    told = regression_metrics(truth, predicted, subjects, seed=3, n_bootstrap=50)
    names = ["bias", "mae", "rmse", "r2", "pearson", "spearman"]
    assert [told[name] for name in names] == pytest.approx(theirs(truth, predicted))
    assert (told["n"], told["n_subjects"], told["undefined"]) == (len(truth), 12, {})
    values = []
    for times in generator("bootstrap", 3).multinomial(12, np.full(12, 1 / 12), size=50):
        rows = np.repeat(np.arange(len(truth)), times[subjects])
        values.append(theirs(truth[rows], predicted[rows]))
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    for name, a, b in zip(names, low, high):
        assert told["intervals"][name] == {"low": pytest.approx(a), "high": pytest.approx(b), "resamples": 50}, name
    json.dumps(told, allow_nan=False)


def test_constants_are_the_control() -> None:
    truth, predicted, subjects = ages(12, seed=1)
    told = constant_controls(np.array([20.0, 30.0, 70.0]), truth, subjects, n_bootstrap=20)
    assert (told["mean"]["value"], told["median"]["value"]) == (40, 30)
    assert told["median"]["mae"] == pytest.approx(np.abs(truth - 30).mean())
    assert told["mean"]["r2"] <= 0
    assert told["mean"]["pearson"] is told["mean"]["spearman"] is None
    assert told["mean"]["undefined"]["pearson"] == "all predicted values are equal"
    assert told["mean"]["intervals"].keys() == {"bias", "mae", "rmse", "r2"}
    same = regression_metrics(np.full(3, 0.1), np.array([0.1, 0.2, 0.3]))
    assert same["r2"] is same["pearson"] is same["spearman"] is None
    assert same["undefined"] == {
        **dict.fromkeys(("r2", "pearson", "spearman"), "all true values are equal"),
        "intervals": "whose they are is not known",
    }
    one = regression_metrics(truth[:1], predicted[:1], ["a"])
    assert one["intervals"] is one["r2"] is None
    assert one["undefined"]["intervals"] == "they are of one subject"
    json.dumps([told, same, one], allow_nan=False)


def test_wrong_numbers() -> None:
    with pytest.raises(UserError, match="nothing with a true value"):
        regression_metrics(np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="expected 2 predictions and as many subjects"):
        regression_metrics(np.zeros(2), np.zeros(2), ["a"])
    with pytest.raises(ValueError, match="finite"):
        regression_metrics(np.zeros(2), np.array([0, np.nan]))


def findings(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    labels = (draw.random((n, 3)) < [0.5, 0.3, 0.2]).astype(float)
    return labels, np.round(np.clip(labels * 0.2 + draw.random((n, 3)) * 0.8, 0, 1), 1)


def test_several_labels_equal_scikit_learn() -> None:
    labels, scores = findings(120, seed=0)
    told = multilabel_metrics(labels, scores, ["seizure", "spike", "artefact"], threshold=[0.5, 0.4, 0.6])
    predicted = scores >= [0.5, 0.4, 0.6]
    for average in ("macro", "micro"):
        assert told[average] == pytest.approx(
            {
                "auroc": metrics.roc_auc_score(labels, scores, average=average),
                "auprc": metrics.average_precision_score(labels, scores, average=average),
                "precision": metrics.precision_score(labels, predicted, average=average),
                "recall": metrics.recall_score(labels, predicted, average=average),
                "f1": metrics.f1_score(labels, predicted, average=average),
            }
        )
    each = metrics.f1_score(labels, predicted, average=None)
    assert [one["f1"] for one in told["labels"].values()] == pytest.approx(each)
    assert told["exact_match"] == metrics.accuracy_score(labels, predicted)
    assert (told["n_exact"], told["threshold"]) == (120, [0.5, 0.4, 0.6])
    assert told["undefined"] == {"intervals": "whose they are is not known"}


def test_what_is_not_known_counts_nowhere() -> None:
    labels, scores = findings(80, seed=1)
    hidden = np.random.default_rng(2).random((80, 3)) < 0.3
    labels[hidden] = -1
    told = multilabel_metrics(labels, scores, list("abc"))
    for c, name in enumerate("abc"):
        known = ~hidden[:, c]
        mine = told["labels"][name]
        assert (mine["n"], mine["n_positive"]) == (known.sum(), (labels[:, c] == 1).sum())
        assert mine["auroc"] == pytest.approx(metrics.roc_auc_score(labels[known, c], scores[known, c]))
    assert told["micro"]["f1"] == pytest.approx(metrics.f1_score(labels[~hidden], scores[~hidden] >= 0.5))
    whole = ~hidden.any(1)
    assert told["exact_match"] == metrics.accuracy_score(labels[whole], scores[whole] >= 0.5)
    assert told["n_exact"] == whole.sum()
    labels[hidden] = np.nan
    assert multilabel_metrics(labels, scores, list("abc")) == told
    integers = np.where(hidden, -1, np.nan_to_num(labels)).astype(int)
    assert multilabel_metrics(integers, scores, list("abc")) == told


def test_intervals_of_several_labels_draw_people_whole() -> None:
    labels, scores = findings(100, seed=3)
    subjects = np.repeat(np.arange(10), 10)
    told = multilabel_metrics(labels, scores, list("abc"), subjects, seed=4, n_bootstrap=40)
    values = []
    for times in generator("bootstrap", 4).multinomial(10, np.full(10, 1 / 10), size=40):
        rows = np.repeat(np.arange(100), times[subjects])
        y, p = labels[rows], scores[rows]
        exact = metrics.accuracy_score(y, p >= 0.5)
        values.append([metrics.roc_auc_score(y, p), metrics.f1_score(y, p >= 0.5, average="micro"), exact])
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    for name, a, b in zip(("macro auroc", "micro f1", "exact match"), low, high):
        assert told["intervals"][name] == {"low": pytest.approx(a), "high": pytest.approx(b), "resamples": 40}
    json.dumps(told, allow_nan=False)


def test_labels_without_an_example() -> None:
    labels = np.array([[1, 0, -1], [0, 0, -1], [1, 0, -1]])
    scores = np.array([[0.9, 0.1, 0.5], [0.8, 0.2, 0.5], [0.7, 0.3, 0.5]])
    told = multilabel_metrics(labels, scores, ["there", "nowhere", "unknown"])
    assert told["labels"]["nowhere"] == {
        "n": 3, "n_positive": 0, "auroc": None, "auprc": None, "precision": None, "recall": None, "f1": None,
    }  # fmt: skip
    assert told["labels"]["unknown"]["n"] == 0
    assert told["macro"]["auroc"] == told["labels"]["there"]["auroc"] == 0.5
    assert told["exact_match"] is None
    assert told["undefined"]["exact match"] == "no window has all labels known"
    assert told["undefined"]["auroc of nowhere"] == "it is known to be there everywhere or nowhere"
    json.dumps(told, allow_nan=False)
    with pytest.raises(UserError, match="no known label"):
        multilabel_metrics(np.full((2, 1), -1), np.zeros((2, 1)), ["a"])
    with pytest.raises(ValueError, match="labels of 0, 1"):
        multilabel_metrics(np.array([[2]]), np.zeros((1, 1)), ["a"])
    with pytest.raises(ValueError, match=r"\[n 2\]"):
        multilabel_metrics(np.array([[1]]), np.zeros((1, 1)), ["a", "b"])


def test_macro_figures_are_over_the_same_labels_for_all_scores() -> None:
    """One arm cries wolf of a label that nobody has, the other never; one never dares a label that is there."""
    labels = np.array([[1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1]])
    names = ["seizure", "nowhere", "everywhere", "spike"]
    quiet = np.where(labels, 0.9, 0.1)
    wolf = quiet.copy()
    wolf[:, 1] = [0.8, 0.2, 0.2, 0.2]
    timid = np.where([True, True, True, False], quiet, 0.1)
    told = {name: multilabel_metrics(labels, one, names) for name, one in [("q", quiet), ("w", wolf), ("t", timid)]}
    assert told["q"]["macro"] == told["w"]["macro"] == dict.fromkeys(told["q"]["macro"], 1.0)
    assert told["w"]["labels"]["nowhere"]["f1"] == 0.0
    assert told["t"]["macro"] == {
        "auroc": 0.75, "auprc": 0.75, "precision": pytest.approx(2 / 3), "recall": pytest.approx(2 / 3),
        "f1": pytest.approx(2 / 3),
    }  # fmt: skip
    left_out = {name: why for name, why in told["q"]["undefined"].items() if name.endswith("in macro")}
    assert left_out == {
        "nowhere in macro": "it is known to be there nowhere, so no macro figure counts it",
        "everywhere in macro": "it is known to be there everywhere, so macro auroc and auprc leave it out",
    }
    nobody = multilabel_metrics(np.zeros((2, 1)), np.ones((2, 1)), ["a"])
    assert nobody["macro"]["f1"] is None
    assert nobody["undefined"]["f1 of macro"] == "no label is known to be there"


def test_macro_intervals_are_of_draws_that_hold_every_label() -> None:
    labels, scores = findings(100, seed=3)
    labels[:, 2] = np.arange(100) < 20  # of two people in ten
    subjects = np.repeat(np.arange(10), 10)
    wolf, silent = scores.copy(), scores.copy()
    wolf[:, 2], silent[:, 2] = 1.0, 0.0
    n = [
        multilabel_metrics(labels, one, list("abc"), subjects, n_bootstrap=60)["intervals"]["macro f1"]["resamples"]
        for one in (wolf, silent)
    ]
    assert n[0] == n[1] < 60
