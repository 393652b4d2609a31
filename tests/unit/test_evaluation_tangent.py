"""Covariances against signals whose covariance is known; means and tangent vectors against pyriemann's."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.errors import UserError
from bothways.evaluation import (
    band_power,
    covariances,
    fill_missing,
    fit_logistic,
    recentred,
    riemannian_mean,
    tangent_vectors,
    typical_variance,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tangent_space.json"
SFREQ_HZ = 100.0


def spd(seed: int, n: int = 5, size: int = 3) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, size, 2 * size))
    return rows @ rows.swapaxes(1, 2) / 6


def noise(n: int, mixing: np.ndarray, seed: int = 0, seconds: float = 4) -> np.ndarray:
    return mixing @ np.random.default_rng(seed).normal(size=(n, mixing.shape[1], round(seconds * SFREQ_HZ)))


def test_a_sine_has_half_its_amplitude_squared_and_other_bands_have_none_of_it() -> None:
    time_s = np.arange(400) / SFREQ_HZ
    wave = np.sin(2 * np.pi * 10 * time_s)
    signals = np.stack([2 * wave, wave])[None]
    (alpha,) = covariances(signals, SFREQ_HZ, (8.0, 12.0))
    assert np.trace(alpha) == pytest.approx(2**2 / 2 + 1 / 2)  # the shrinkage leaves the trace as it is
    assert alpha[0, 1] > 0
    (beta,) = covariances(signals, SFREQ_HZ, (15.0, 30.0))
    assert np.trace(beta) < 1e-6


def test_noise_has_the_covariance_of_its_mixing_in_proportion_to_the_band() -> None:
    mixing = np.array([[1.0, 0.0], [0.6, 0.8]])
    found = covariances(noise(200, mixing), SFREQ_HZ, (5.0, 30.0)).mean(0)
    assert found == pytest.approx(mixing @ mixing.T * (30 - 5) / (SFREQ_HZ / 2), abs=0.03)


def test_a_short_window_is_shrunk_until_it_can_be_inverted() -> None:
    found = covariances(noise(3, np.eye(19), seconds=1), SFREQ_HZ, (1.0, 4.0))  # 3 frequencies, 19 channels
    assert np.linalg.eigvalsh(found).min() > 0.01


def test_means_and_tangent_vectors_are_pyriemanns() -> None:
    golden = json.loads(GOLDEN.read_text())
    given_ = np.array(golden["covariances"])
    mean = riemannian_mean(given_)
    assert mean == pytest.approx(np.array(golden["mean"]), abs=1e-9)
    assert tangent_vectors(given_, mean) == pytest.approx(np.array(golden["vectors"]), abs=1e-8)


def test_the_mean_of_diagonal_matrices_is_geometric() -> None:
    assert riemannian_mean(np.array([np.diag([1.0, 4.0]), np.diag([4.0, 1.0])])) == pytest.approx(np.diag([2.0, 2.0]))


@given(st.integers(0, 2**31))
def test_laws_of_the_mean(seed: int) -> None:
    these = spd(seed)
    mean = riemannian_mean(these)
    assert tangent_vectors(these, mean).sum(0) == pytest.approx(0, abs=1e-8)
    mixing = np.random.default_rng(seed + 1).normal(size=(3, 3)) + 3 * np.eye(3)
    mixed = mixing @ these @ mixing.T
    assert riemannian_mean(mixed) == pytest.approx(mixing @ mean @ mixing.T, rel=1e-6, abs=1e-8)
    # Seen from its own mean, the cloud of a person is where everybody's is, however the electrodes mix.
    lengths = np.linalg.norm(tangent_vectors(these, mean), axis=1)
    assert np.linalg.norm(tangent_vectors(mixed, mixing @ mean @ mixing.T), axis=1) == pytest.approx(lengths, rel=1e-6)
    assert recentred(mean[None], mean)[0] == pytest.approx(np.eye(3), abs=1e-9)


def test_a_missing_channel_says_nothing() -> None:
    these = np.array([[[4.0, 1.0], [1.0, 9.0]], [[1.0, 0.5], [0.5, 1.0]]])
    real = np.array([[True, True], [True, False]])
    typical_uv2 = typical_variance(these, real)
    assert typical_uv2 == pytest.approx([2.0, 9.0])  # √(4 · 1), and 9 alone
    filled = fill_missing(these, real, typical_uv2)
    assert filled == pytest.approx(np.array([these[0], [[1.0, 0.0], [0.0, 9.0]]]))
    with pytest.raises(UserError, match="1 of 2 channels are bad in all training windows"):
        typical_variance(these, np.array([[True, False]] * 2))


def test_what_cannot_be_had() -> None:
    with pytest.raises(UserError, match="expected 2 channels or more, got 1"):
        covariances(np.ones((1, 1, 100)), SFREQ_HZ, (8.0, 12.0))
    with pytest.raises(UserError, match=r"a window of 0.2 s has no frequency in 1-4 Hz"):
        covariances(np.ones((1, 2, 20)), SFREQ_HZ, (1.0, 4.0))


def accuracies(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Of the tangent space and of band power, fitted on half of the windows and measured on the other half."""
    signals = np.concatenate([first, second])
    labels = np.repeat([0, 1], [len(first), len(second)])
    train = np.arange(len(labels)) % 2 == 0
    matrices = covariances(signals, SFREQ_HZ, (4.0, 30.0))
    mean = riemannian_mean(matrices[train])
    power = np.abs(np.fft.rfft(signals)) ** 2
    frequencies_hz = np.fft.rfftfreq(signals.shape[2], 1 / SFREQ_HZ)
    found = []
    for features in (tangent_vectors(matrices, mean), band_power(np.log(power + 1e-9), frequencies_hz)):
        scores = fit_logistic(features[train], labels[train], 2).scores(features[~train])
        found.append(float((scores.argmax(1) == labels[~train]).mean()))
    return found[0], found[1]


def test_who_sees_what() -> None:
    """Correlation of channels alone: the tangent space sees it, band power is blind. Power alone: both see it."""
    together, against = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[1.0, 0.0], [-0.8, 0.6]])
    tangent, power = accuracies(noise(100, together, 1), noise(100, against, 2))
    assert tangent == 1.0
    assert 0.35 < power < 0.65
    tangent, power = accuracies(noise(100, np.eye(2), 3), noise(100, 1.5 * np.eye(2), 4))
    assert (tangent, power) == (1.0, 1.0)
