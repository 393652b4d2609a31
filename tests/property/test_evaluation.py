import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from bothways.evaluation import (
    METRICS,
    apply_temperature,
    calibration,
    classification_metrics,
    few_subjects,
    fit_temperature,
    metrics_by_level,
    people_recalls,
    repeated_splits,
    side_by_side,
    summarise,
    within_subjects,
)

NAMES = st.sets(st.text(min_size=1, max_size=8), min_size=3, max_size=40)
SEEDS = st.integers(0, 2**32 - 1)


@given(names=NAMES, n_splits=st.integers(1, 8), seed=SEEDS, strata=st.integers(1, 4))
def test_splits_share_nobody_and_use_everybody(names, n_splits, seed, strata) -> None:
    stratify = {name: str(i % strata) for i, name in enumerate(sorted(names))}
    splits = repeated_splits(names, n_splits, seed=seed, stratify=stratify)
    assert splits == repeated_splits(sorted(names), n_splits, seed=seed, stratify=stratify)
    for split in splits:
        everybody = [*split.train, *split.validation, *split.test]
        assert sorted(everybody) == sorted(names)
    tested = [
        sum(name in split.test for split in repeated_splits(names, n_splits, seed=seed)) for name in sorted(names)
    ]
    assert max(tested) - min(tested) <= 1


@given(names=NAMES, seed=SEEDS)
def test_few_subjects_are_nested(names, seed) -> None:
    (split,) = repeated_splits(names, 1, seed=seed)
    subsets = [set(few_subjects(split, k, seed).train) for k in range(1, len(split.train) + 1)]
    assert all(smaller < larger for smaller, larger in pairwise(subsets))
    assert [len(subset) for subset in subsets] == list(range(1, len(split.train) + 1))


@st.composite
def predictions(draw):
    k = draw(st.integers(2, 4))
    n = draw(st.integers(k, 40))
    generator = np.random.default_rng(draw(SEEDS))
    # Every class occurs, for scikit-learn warns where one does not.
    labels = generator.permutation(np.concatenate([np.arange(k), generator.integers(k, size=n - k)]))
    scores = generator.dirichlet(np.ones(k), size=n)
    subjects = generator.integers(draw(st.integers(1, 5)), size=n).astype(str)
    return labels, scores, [f"class {c}" for c in range(k)], subjects, generator.permutation(n)


@given(predictions())
@settings(deadline=None)
def test_metrics_equal_scikit_learn_in_any_order(case) -> None:
    labels, scores, classes, subjects, order = case
    result = classification_metrics(labels, scores, classes, subjects, n_bootstrap=50)
    predicted = scores.argmax(1)
    expected = {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, predicted),
        "macro_f1": metrics.f1_score(labels, predicted, average="macro"),
        "kappa": metrics.cohen_kappa_score(labels, predicted),
        "auroc": metrics.roc_auc_score(labels, scores[:, 1])
        if len(classes) == 2
        else metrics.roc_auc_score(labels, scores, multi_class="ovr"),
        "auprc": metrics.average_precision_score(labels, scores[:, 1])
        if len(classes) == 2
        else metrics.average_precision_score(np.eye(len(classes))[labels], scores),
        "log_loss": metrics.log_loss(labels, scores),
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    again = classification_metrics(labels[order], scores[order], classes, subjects[order], n_bootstrap=50)
    assert again == result
    json.dumps(result, allow_nan=False)


@given(predictions())
@settings(deadline=None)
def test_levels_of_windows_alone_are_windows(case) -> None:
    """Where each window is a recording, a recording is measured as a window; one subject's metrics are everybody's."""
    labels, scores, classes, subjects, _ = case
    levels = metrics_by_level(labels, scores, classes, subjects, np.arange(len(labels)), n_bootstrap=20)
    whole = classification_metrics(labels, scores, classes, subjects, n_bootstrap=20)
    assert levels["recording"] == {"metrics": whole, "n_mixed": 0, "reason": None}
    alone = within_subjects(labels, scores, ["one"] * len(labels))
    assert {name: alone[name]["mean"] for name in METRICS} == pytest.approx({name: whole[name] for name in METRICS})


@given(predictions(), st.floats(0.1, 10))
@settings(deadline=None)
def test_a_temperature_is_the_best_there_is(case, other) -> None:
    labels, scores, _, _, _ = case
    fitted = fit_temperature(labels, scores)
    assert (fitted["temperature"] is None) == (fitted["reason"] is not None)
    if fitted["temperature"] is not None:
        least, more = (metrics.log_loss(labels, apply_temperature(scores, t)) for t in (fitted["temperature"], other))
        assert least <= more + 1e-9
    told = calibration(labels, scores)
    assert 0 <= told["ece"] <= told["mce"] + 1e-12
    assert abs(told["confidence"] - told["accuracy"]) <= told["ece"] + 1e-12  # bins can only add distance
    assert sum(one["n"] for one in told["bins"]) == len(labels)


@given(n_people=st.integers(2, 8), k=st.integers(2, 4), seed=SEEDS)
def test_over_people_who_have_every_class_is_the_mean_of_their_balanced_accuracies(n_people, k, seed) -> None:
    draw = np.random.default_rng(seed)
    labels = np.concatenate([np.concatenate([np.arange(k), draw.integers(k, size=5)]) for _ in range(n_people)])
    scores, whose = draw.dirichlet(np.ones(k), size=len(labels)), np.repeat(np.arange(n_people), k + 5).astype(str)
    people = people_recalls(labels, scores, whose, [f"class {c}" for c in range(k)])
    over = side_by_side({"arm": {"1": {"balanced_accuracy": None, "people": people}}}, [])["arms"]["arm"]["over_people"]
    each = [
        metrics.balanced_accuracy_score(labels[whose == str(person)], scores[whose == str(person)].argmax(1))
        for person in range(n_people)
    ]
    plain = summarise(each)
    assert (over["mean"], over["sd"]) == pytest.approx((plain["mean"], plain["sd"]))
    assert (over["low"], over["high"]) == pytest.approx((max(plain["low"], 0), min(plain["high"], 1)))
