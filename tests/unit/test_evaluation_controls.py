import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bothways.errors import UserError
from bothways.evaluation import BANDS_HZ, LOGISTIC_C, band_power, fit_logistic, ridge_probe


def made_up(n: int = 90, d: int = 8, k: int = 3, seed: int = 0):
    draw = np.random.default_rng(seed)
    labels = draw.integers(k, size=n)
    features = draw.normal(size=(n, d)) * 3 + 5 + 2 * draw.normal(size=(k, d))[labels]
    return features, labels, np.repeat([f"s{i}" for i in range(n // 10)], 10)


@pytest.mark.parametrize("k", [2, 3])
def test_logistic_is_scikit_learns(k: int) -> None:
    features, labels, _ = made_up(k=k)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=2000))
    model.fit(features[:60], labels[:60])
    mine = fit_logistic(features[:60], labels[:60], k, c=0.1).scores(features[60:])
    assert mine == pytest.approx(model.predict_proba(features[60:]), abs=1e-6)


@pytest.mark.parametrize("present", [(0, 2), (0, 2, 3)])
def test_a_class_that_was_never_trained_on_gets_nothing(present: tuple[int, ...]) -> None:
    features, labels, _ = made_up(k=len(present))
    labels = np.array(present)[labels]
    for model in (fit_logistic(features, labels, 4), ridge_probe(features, labels, 4)):
        scores = model.scores(features)
        assert scores[:, 1] == pytest.approx(0)
        assert scores.sum(1) == pytest.approx(1)
        assert (scores.argmax(1) == labels).mean() > 0.7


def test_c_is_chosen_on_the_validation_people() -> None:
    """A strong effect in one feature, noise in forty: by few windows the noise is learned, unless C is small."""
    draw = np.random.default_rng(0)
    labels, asked = np.tile([0, 1], 30), np.tile([0, 0, 0, 0, 1], 40)

    def features(truth: np.ndarray, shift: float) -> np.ndarray:
        x = draw.normal(size=(len(truth), 40))
        x[:, 0] += shift * truth
        return x

    training, validation = features(labels, 1.0), features(asked, 1.0)
    chosen = fit_logistic(training, labels, 2, c=LOGISTIC_C, validation=(validation, asked, np.repeat(["a", "b"], 100)))
    balanced = {}
    for c in LOGISTIC_C:
        right = fit_logistic(training, labels, 2, c=c).scores(validation).argmax(1) == asked
        balanced[c] = (right[asked == 0].mean() + right[asked == 1].mean()) / 2
    assert balanced[chosen.strength] == max(balanced.values())
    assert len(set(balanced.values())) > 1
    with pytest.raises(UserError, match="needs validation people"):
        fit_logistic(training, labels, 2, c=LOGISTIC_C)


def test_ridge_is_scikit_learns_and_leaves_subjects_out_exactly() -> None:
    features, labels, subjects = made_up(n=60, d=6, k=2)
    strengths = (0.1, 3.0, 100.0)
    mine = ridge_probe(features, labels, 2, subjects=subjects, strengths=strengths)
    weight = len(labels) / (2 * np.bincount(labels)[labels])
    x = (features - mine.mean) / mine.scale
    target = np.eye(2)[labels]

    def refit(strength: float, rows) -> Ridge:
        return Ridge(alpha=strength).fit(x[rows], target[rows], sample_weight=weight[rows])

    assert mine.scores(features) == pytest.approx(refit(mine.strength, slice(None)).predict(x), abs=1e-10)
    errors = {}
    for strength in strengths:
        errors[strength] = 0.0
        for name in np.unique(subjects):
            out = subjects == name
            residual = target[out] - refit(strength, ~out).predict(x[out])
            errors[strength] += float((weight[out, None] * residual**2).sum())
    assert mine.strength == min(errors, key=errors.__getitem__)


def test_ridge_with_more_features_than_windows() -> None:
    features, labels, subjects = made_up(n=40, d=300, k=2)
    scores = ridge_probe(features, labels, 2, subjects=subjects).scores(features)
    assert (scores.argmax(1) == labels).all()


def test_classes_weigh_the_same() -> None:
    draw = np.random.default_rng(0)
    labels = np.array([0] * 190 + [1] * 10)
    features = draw.normal(size=(200, 2)) + 2 * labels[:, None]
    for model in (fit_logistic(features, labels, 2), ridge_probe(features, labels, 2)):
        assert (model.scores(features).argmax(1) == labels)[labels == 1].mean() > 0.7


def test_wrong_input() -> None:
    features, labels, _ = made_up()
    for fit in (fit_logistic, ridge_probe):
        with pytest.raises(UserError, match="at least 2 classes"):
            fit(features, np.zeros(90, int), 3)
        with pytest.raises(ValueError, match="not finite in 90 windows"):
            fit(features * np.nan, labels, 3)
    with pytest.raises(UserError, match="2 subjects or more, got 1"):
        ridge_probe(features, labels, 3, subjects=["s"] * 90)


def test_a_constant_feature_does_no_harm() -> None:
    features, labels, _ = made_up()
    features[:, 0] = 0.1 + 0.2
    for fit in (fit_logistic, ridge_probe):
        assert np.isfinite(fit(features, labels, 3).scores(features)).all()


def test_band_power_is_the_log_of_the_mean_power() -> None:
    frequencies = np.arange(1.0, 45.0)
    power = np.random.default_rng(0).lognormal(size=(3, 2, len(frequencies)))
    features = band_power(np.log(power), frequencies)
    assert features.shape == (3, 2 * 7)
    theta = list(BANDS_HZ).index("theta")
    assert features[:, 7 + theta] == pytest.approx(np.log(power[:, 1, 3:7].mean(1)))
    with pytest.raises(UserError, match=r"no bin .* lies in gamma \(30-45 Hz\)"):
        band_power(np.log(power[..., :20]), frequencies[:20])
