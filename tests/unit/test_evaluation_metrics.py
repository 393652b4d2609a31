import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from bothways.draws import generator
from bothways.errors import UserError
from bothways.evaluation import (
    METRICS,
    chance,
    classification_metrics,
    holm,
    how_good,
    majority,
    paired_difference,
    summarise,
)

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
    half = 2.776445 * np.std([0.1, 0.05, 0.1, 0.05, 0.05], ddof=1) / 5**0.5  # Student's t of five
    assert (told["low"], told["high"]) == pytest.approx((0.07 - half, 0.07 + half))
    assert told["p"] == 2 / 2**5  # all differences of one sign: two of the 32 changes are as large
    draw = np.random.default_rng(0)
    many = draw.normal(0.5, 1, size=40)
    assert paired_difference(many, np.zeros(40))["p"] < 0.05
    assert paired_difference(many, many)["p"] == 1
    with pytest.raises(ValueError, match="expected pairs"):
        paired_difference([1.0], [1.0, 2.0])


def test_more_of_it_equals_scikit_learn() -> None:
    for k in (2, 3):
        draw = np.random.default_rng(k)
        labels = draw.integers(k, size=150)
        # Rounded, so that there are ties.
        scores = np.round(draw.dirichlet(np.ones(k), size=150) + 0.3 * np.eye(k)[labels], 1) + 1e-9
        scores /= scores.sum(1, keepdims=True)
        classes = [f"c{c}" for c in range(k)]
        result = classification_metrics(labels, scores, classes)
        predicted, truth = scores.argmax(1), np.eye(k)[labels]
        one = scores[:, 1] if k == 2 else scores
        expected = {
            "auroc": metrics.roc_auc_score(labels, one, multi_class="ovr"),
            "auprc": metrics.average_precision_score(labels if k == 2 else truth, one),
            "log_loss": metrics.log_loss(labels, scores),
            "brier": ((scores - truth) ** 2).sum(1).mean() / (2 if k == 2 else 1),
        }
        assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12)
        if k == 2:
            assert result["brier"] == pytest.approx(metrics.brier_score_loss(labels, one))
        told = metrics.precision_recall_fscore_support(labels, predicted)
        for c, name in enumerate(classes):
            mine = result["per_class"][name]
            theirs = [float(values[c]) for values in told]
            assert [mine["precision"], mine["recall"], mine["f1"], mine["n"]] == pytest.approx(theirs)
            assert mine["n_predicted"] == (predicted == c).sum()
            assert mine["auroc"] == pytest.approx(metrics.roc_auc_score(labels == c, scores[:, c]))
            assert mine["auprc"] == pytest.approx(metrics.average_precision_score(labels == c, scores[:, c]))
        assert result["undefined"] == {"intervals": "whose windows they are is not known"}


def test_what_is_undefined_has_a_reason() -> None:
    scores = np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.2, 0.8, 0.0]])
    result = classification_metrics(np.array([0, 0, 1]), scores, ["a", "b", "c"], ["s"] * 3)
    assert result["auroc"] is result["auprc"] is result["intervals"] is None
    assert result["undefined"] == {
        "auroc": "no window is of c",
        "auprc": "no window is of c",
        "recall of c": "no window is of c",
        "precision of c": "no window is predicted to be of c",
        "intervals": "they are of one subject",
    }
    assert result["per_class"]["c"] == {
        "n": 0, "n_predicted": 0, "precision": None, "recall": None, "f1": None, "auroc": None, "auprc": None,
    }  # fmt: skip
    assert result["per_class"]["b"]["auroc"] == result["per_class"]["b"]["auprc"] == 1
    alone = classification_metrics(np.array([1, 1]), scores[:2, :2], BINARY)
    assert alone["undefined"]["auprc"] == alone["undefined"]["balanced_accuracy"] == "all windows are of task"
    assert alone["log_loss"] == pytest.approx(-np.log([0.1, 0.4]).mean())
    assert alone["accuracy"] == 0
    single = classification_metrics(np.array([0, 0]), np.ones((2, 1)), ["all"])
    assert (single["accuracy"], single["auroc"], single["log_loss"]) == (1, None, 0)
    # A ridge's sums are no probabilities; what needs only their order is there.
    sums = classification_metrics(np.array([0, 1]), np.array([[1.2, -0.2], [0.4, 0.6]]), BINARY)
    assert sums["log_loss"] is sums["brier"] is sums["ece"] is sums["calibration"] is None
    assert sums["undefined"]["ece"] == sums["undefined"]["calibration"] == "the scores are no probabilities"
    assert sums["auroc"] == sums["auprc"] == 1
    json.dumps([result, alone, sums], allow_nan=False)


def test_every_interval_is_that_of_subjects_drawn_whole() -> None:
    """The same draws done one by one: windows repeated, scikit-learn on the lot."""
    draw = np.random.default_rng(1)
    subjects = np.repeat([f"s{i}" for i in range(8)], draw.integers(3, 12, size=8))
    labels = draw.integers(2, size=len(subjects))
    scores = np.round(draw.dirichlet((1, 1), size=len(subjects)) + 0.2 * np.eye(2)[labels], 1) + 1e-9
    scores /= scores.sum(1, keepdims=True)
    intervals = classification_metrics(labels, scores, BINARY, subjects, seed=5, n_bootstrap=60)["intervals"]
    assert intervals.keys() == set(METRICS)
    values = []
    for times in generator("bootstrap", 5).multinomial(8, np.full(8, 1 / 8), size=60):
        rows = np.repeat(np.arange(len(labels)), times[np.unique(subjects, return_inverse=True)[1]])
        again = classification_metrics(labels[rows], scores[rows], BINARY)
        truth, p, predicted = labels[rows], scores[rows, 1], scores[rows].argmax(1)
        theirs = (
            metrics.accuracy_score(truth, predicted), metrics.balanced_accuracy_score(truth, predicted),
            metrics.f1_score(truth, predicted, average="macro"), metrics.cohen_kappa_score(truth, predicted),
            metrics.roc_auc_score(truth, p), metrics.average_precision_score(truth, p),
            metrics.log_loss(truth, scores[rows]), metrics.brier_score_loss(truth, p),
        )  # fmt: skip
        assert [again[name] for name in METRICS[:-1]] == pytest.approx(theirs)
        values.append([*theirs, again["ece"]])
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    note = "of 8 people, too narrow"
    for name, a, b in zip(METRICS, low, high):
        assert intervals[name] == {"low": pytest.approx(a), "high": pytest.approx(b), "resamples": 60, "note": note}, (
            name
        )


def test_draws_without_a_class_are_left_out() -> None:
    """Six people with one class each: with chance 1/2^5 a draw has one class alone."""
    labels = np.array([0, 0, 0, 1, 1, 1])
    scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]])
    result = classification_metrics(labels, scores, BINARY, list("abcdef"), n_bootstrap=400)
    assert 370 < result["intervals"]["auroc"]["resamples"] < 400
    assert result["intervals"]["accuracy"]["resamples"] == 400
    assert result["interval"]["low"] >= 0.5  # never a single class of which all are wrong
    # Of five people one has the other class: in (4/5)^5 of the draws she is missing.
    rare = classification_metrics(np.array([1] + [0] * 5), scores, BINARY, list("aabcde"), n_bootstrap=400)
    assert rare["intervals"]["auroc"]["resamples"] == pytest.approx(400 * (1 - 0.8**5), abs=40)


@pytest.mark.parametrize("n", [4, 5, 9, 10])
def test_few_people_have_an_interval_that_is_too_narrow_or_none(n: int) -> None:
    labels, whose = np.tile([0, 1], n), np.repeat([f"p{i}" for i in range(n)], 2)
    scores = np.eye(2)[np.where(np.arange(2 * n) % 5, labels, 1 - labels)]
    result = classification_metrics(labels, scores, BINARY, whose, n_bootstrap=20)
    if n < 5:
        assert result["interval"] is result["intervals"] is None
        assert result["undefined"]["intervals"] == "4 people are too few for an interval, 5 are needed"
    else:
        told = [result["interval"].get("note"), result["intervals"]["auroc"].get("note")]
        assert told == [f"of {n} people, too narrow" if n < 10 else None] * 2


def test_what_is_chosen_finds_the_rare_class() -> None:
    """90 windows of rest, 10 of task: always rest is right in 90, and no choice."""
    labels, whose = np.array([0] * 90 + [1] * 10), ["a", "b"] * 50

    def measured(hits: int, false: int, sure: float = 0.8) -> dict:
        answers = np.zeros(100, int)
        answers[:false], answers[90 : 90 + hits] = 1, 1
        scores = np.where(np.eye(2)[answers] == 1, sure, 1 - sure)
        return classification_metrics(labels, scores, BINARY, whose, n_bootstrap=2)

    constant, useful = measured(0, 0), measured(8, 18)
    assert (constant["accuracy"], useful["accuracy"]) == (0.9, 0.8)
    assert constant["balanced_log_loss"] == pytest.approx(-(np.log(0.8) + np.log(0.2)) / 2)
    assert (how_good(constant), how_good(useful)) == pytest.approx((0.5, 0.8))
    assert how_good(measured(8, 18, sure=0.7)) != how_good(useful)
    better = min((0.6, 0.7, 0.8), key=lambda sure: measured(8, 18, sure)["balanced_log_loss"])
    assert max((0.6, 0.7, 0.8), key=lambda sure: how_good(measured(8, 18, sure))) == better
    assert how_good(measured(9, 18, sure=0.99)) > how_good(measured(8, 18, sure=better))
    # Of one class there is no balanced accuracy: people's accuracies 1 and 1/3.
    alone = classification_metrics(np.zeros(4, int), np.eye(2)[[0, 0, 1, 1]], BINARY, list("abbb"), n_bootstrap=2)
    assert how_good(alone) == pytest.approx(2 / 3, abs=1e-6)


def test_holm_and_wilcoxon() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # p.adjust of R
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []
    draw = np.random.default_rng(3)
    for n in (5, 9, 13):
        a, b = draw.normal(0.4, 1, size=n), draw.normal(size=n)
        assert paired_difference(a, b)["p_wilcoxon"] == pytest.approx(stats.wilcoxon(a, b, method="exact").pvalue)
    a, b = draw.normal(0.4, 1, size=40), draw.normal(size=40)
    assert paired_difference(a, b)["p_wilcoxon"] == pytest.approx(stats.wilcoxon(a, b).pvalue, abs=0.02)
    assert paired_difference([1.0, 2.0], [1.0, 2.0])["p_wilcoxon"] == 1
