"""Covariances of windows as points of a curved space, and their tangent vectors, which a linear model can read.

Barachant et al. 2012 (Multiclass brain-computer interface classification by Riemannian geometry), section III; the
control that is hard to beat with few people.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from sklearn.covariance import oas

from bothways.errors import UserError

TANGENT_BANDS_HZ: dict[str, tuple[float, float]] = {
    "delta": (1.0, 4.0),
    "theta": (4.0, 8.0),
    "alpha": (8.0, 12.0),
    "beta": (12.0, 30.0),
}
"""From the first edge up to, not including, the second; each has a tangent space of its own."""


def covariances(
    signals_uv: Float[np.ndarray, "n C T"], sfreq_hz: float, band_hz: tuple[float, float]
) -> Float[np.ndarray, "n C C"]:
    """Returns the covariance of each window's channels in a band, in uV², shrunk so that it can be inverted.

    It is the covariance of the Fourier coefficients of the window under a Hann taper: they are nearly independent, as
    filtered samples are not, so the shrinkage (OAS, Chen et al. 2010) knows how little a short window tells.

    Raises:
        UserError: one channel only, or no frequency of the window in the band.
    """
    n, n_channels, n_samples = signals_uv.shape
    if n_channels < 2:
        raise UserError(f"covariance: expected 2 channels or more, got {n_channels}; take recordings that share more")
    frequencies_hz = np.fft.rfftfreq(n_samples, 1 / sfreq_hz)
    inside = (frequencies_hz >= band_hz[0]) & (frequencies_hz < band_hz[1])
    if not inside.any():
        raise UserError(
            f"covariance: a window of {n_samples / sfreq_hz:g} s has no frequency in {band_hz[0]:g}-{band_hz[1]:g} Hz; "
            "lengthen windows.window_s"
        )
    taper = np.hanning(n_samples + 1)[:-1]
    coefficients = np.fft.rfft(signals_uv * taper)[:, :, inside]
    rows = np.concatenate([coefficients.real, coefficients.imag], axis=2).swapaxes(1, 2)  # [n 2F C]
    rows = rows * np.sqrt(2 * rows.shape[1] / (n_samples * (taper**2).sum()))  # Parseval: a sine of 1 uV has 0.5 uV²
    return np.stack([oas(window, assume_centered=True)[0] for window in rows]) if n else np.zeros((0, *rows.shape[2:]))


def fill_missing(
    covariances: Float[np.ndarray, "n C C"], real: Bool[np.ndarray, "n C"], typical_uv2: Float[np.ndarray, "C"]
) -> Float[np.ndarray, "n C C"]:
    """Returns covariances in which a channel that is missing says nothing: a typical variance, no correlation."""
    filled = np.where(real[:, :, None] & real[:, None, :], covariances, 0.0)
    window, channel = np.nonzero(~real)
    filled[window, channel, channel] = typical_uv2[channel]
    return filled


def typical_variance(covariances: Float[np.ndarray, "n C C"], real: Bool[np.ndarray, "n C"]) -> Float[np.ndarray, "C"]:
    """Returns the geometric mean of each channel's variance over the windows that have it.

    Raises:
        UserError: a channel is missing in all windows.
    """
    if not real.any(0).all():
        raise UserError(
            f"covariance: {int((~real.any(0)).sum())} of {real.shape[1]} channels are bad in all training windows; "
            "leave them out of the store"
        )
    logs = np.log(np.diagonal(covariances, axis1=1, axis2=2))
    return np.exp((logs * real).sum(0) / real.sum(0))


def riemannian_mean(
    covariances: Float[np.ndarray, "n C C"], *, tolerance: float = 1e-10, most: int = 100
) -> Float[np.ndarray, "C C"]:
    """Returns the point whose squared affine-invariant distances to all are the least (Moakher 2005).

    Steps along the mean of the tangent vectors, until that is 0 (Barachant et al. 2012, algorithm 1).
    """
    mean = covariances.mean(0)
    for _ in range(most):
        root, inverse = _of_eigenvalues(mean, np.sqrt), _of_eigenvalues(mean, lambda w: w**-0.5)
        step = _of_eigenvalues(inverse @ covariances @ inverse, np.log).mean(0)
        mean = root @ _of_eigenvalues(step, np.exp) @ root
        if np.linalg.norm(step) < tolerance:
            break
    return mean


def recentred(
    covariances: Float[np.ndarray, "n C C"], reference: Float[np.ndarray, "C C"]
) -> Float[np.ndarray, "n C C"]:
    """Returns covariances seen from a reference, which becomes the identity.

    With a person's covariance at rest as the reference people become comparable (Zanini et al. 2018).
    """
    inverse = _of_eigenvalues(reference, lambda w: w**-0.5)
    return inverse @ covariances @ inverse


def tangent_vectors(
    covariances: Float[np.ndarray, "n C C"], reference: Float[np.ndarray, "C C"]
) -> Float[np.ndarray, "n d"]:
    """Returns log(M^-1/2 C M^-1/2) of each, its upper triangle as a vector with the same norm.

    Args:
        covariances: of n windows.
        reference: M, the mean of the training windows alone.
    """
    logs = _of_eigenvalues(recentred(covariances, reference), np.log)
    row, column = np.triu_indices(len(reference))
    return logs[:, row, column] * np.where(row == column, 1.0, np.sqrt(2))


def _of_eigenvalues(
    matrices: Float[np.ndarray, "*n C C"], function: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, "*n C C"]:
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * function(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
