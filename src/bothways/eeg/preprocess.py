"""Band, mains, rate: one zero-phase filter and the change of rate in a single Fourier pass per channel.

The filter is a finite one (windowed sinc, Hamming, mne's default transitions), so each output sample depends on a
few seconds around it and on nothing across a gap; ends are extended by their own odd reflection, as in mne.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64
from scipy import fft

from bothways.config import SignalConfig
from bothways.eeg.quality import HALO_S, flat_samples, jumped_samples, median, without
from bothways.eeg.recording import Event, LazyRows, Note, Recording, Segment, held_or_lazy

NOTCH_ROOM_HZ = 1.0
"""Below half of the rate, nearer to it there is no notch."""
_TOGETHER = 8
"""Channels in one transform: the width of a vector register."""
_TRANSFORM_BYTES = 2**26
"""Samples in one transform, as float32; of a longer segment a channel at a time."""


@dataclass(frozen=True)
class Prepared:
    """A recording after the filters, at the store's rate: microvolts, NaN where data are missing."""

    data_uv: Float32[np.ndarray, "C T"] | LazyRows
    segments: list[Segment]
    events: list[Event]
    notes: list[Note]


def preprocess(recording: Recording, signal: SignalConfig, bad: Collection[str] = ()) -> Prepared:
    """Filters each segment of a recording and brings it to `signal.sfreq_hz`.

    Missing and flat stretches are filled for the filter (a straight line) and are missing again afterwards, so they
    spread to nothing else. With `reference = "average"` the mean of the channels not in `bad` is subtracted.
    """
    notes: list[Note] = []
    band_hz = _band(recording.sfreq_hz, signal, notes)
    ratio = Fraction(signal.sfreq_hz / recording.sfreq_hz).limit_denominator(100_000)
    edges = [0]
    for segment in recording.segments:
        edges.append(edges[-1] + max(round((segment.stop - segment.start) * float(ratio)), 1))
    pieces = [(s.start, s.stop, start, stop) for s, start, stop in zip(recording.segments, edges, edges[1:])]
    segments = [Segment(start, stop, s.onset_s) for s, (_, _, start, stop) in zip(recording.segments, pieces)]

    if signal.notch_hz is not None and signal.notch_hz >= recording.sfreq_hz / 2 - NOTCH_ROOM_HZ:
        rate = f"the file has {recording.sfreq_hz:g} Hz"
        notes.append(Note("notch_unused", f"mains at {signal.notch_hz:g} Hz cannot be taken out: {rate}"))
    reach = len(_kernel(recording.sfreq_hz, band_hz, signal.notch_hz, signal.sfreq_hz)) // 2

    def read(rows: slice) -> Float32[np.ndarray, "c T"]:
        source = recording.data_uv[rows]
        out = np.empty((len(source), edges[-1]), np.float32)
        for old_start, old_stop, start, stop in pieces:
            together = max(1, min(_TOGETHER, _TRANSFORM_BYTES // (4 * (old_stop - old_start + 2 * reach))))
            for at in range(0, len(out), together):
                group = source[at : at + together, old_start:old_stop]
                out[at : at + together, start:stop] = _filtered(
                    group, recording.sfreq_hz, ratio, band_hz, signal, stop - start
                )
        return out

    shape = (len(recording.ch_names), edges[-1])
    data_uv = held_or_lazy(shape, read)
    if signal.reference == "average":
        data_uv = _rereferenced(data_uv, [name not in bad for name in recording.ch_names])
    events = [
        replace(
            event,
            start_sample=min(new.start + round((event.start_sample - old.start) * float(ratio)), new.stop - 1),
        )
        for event in recording.events
        for old, new in zip(recording.segments, segments)
        if old.start <= event.start_sample < old.stop
    ]
    return Prepared(data_uv, segments, events, notes)


def _rereferenced(data_uv: Float32[np.ndarray, "C T"] | LazyRows, good: Sequence[bool]) -> Any:
    """Subtracts the mean of the good channels that are there at a moment; as much at a time as can be held."""
    if not any(good):
        return data_uv
    total = np.zeros(data_uv.shape[1], np.float32)
    count = np.zeros(data_uv.shape[1], np.int32)
    for row, counted in zip(data_uv, good):
        if counted:
            present = ~np.isnan(row)
            total += np.where(present, row, 0)
            count += present
    mean = total / np.maximum(count, 1).astype(np.float32)
    return held_or_lazy(data_uv.shape, lambda rows: data_uv[rows] - mean)


def _band(sfreq_hz: float, signal: SignalConfig, notes: list[Note]) -> tuple[float, float]:
    low, high = signal.band_hz
    nyquist = sfreq_hz / 2
    if high < 0.98 * nyquist:  # nearer, the filter would have no room to fall, or only by millions of taps
        return low, high
    lowered = 0.9 * nyquist
    notes.append(
        Note("band_lowered", f"upper edge {high:g} Hz lowered to {lowered:g} Hz: the file has {sfreq_hz:g} Hz")
    )
    return min(low, lowered / 2), lowered


def _filtered(
    data_uv: Float32[np.ndarray, "c T"],
    sfreq_hz: float,
    ratio: Fraction,
    band_hz: tuple[float, float],
    signal: SignalConfig,
    n_out: int,
) -> Float32[np.ndarray, "c n_out"]:
    """Filters some channels of one segment and changes their rate; several at once, for the transform's sake."""
    rows = [without(row, jumped_samples(row, sfreq_hz)) for row in data_uv]
    holes = [np.isnan(row) | flat_samples(row, sfreq_hz) for row in rows]
    reach = len(_kernel(sfreq_hz, band_hz, signal.notch_hz, signal.sfreq_hz)) // 2
    n_fft, n_back = _lengths(data_uv.shape[1] + 2 * reach, ratio)
    padded = np.stack([_extended(_bridged(row, hole), reach, n_fft) for row, hole in zip(rows, holes)])
    spectrum = fft.rfft(padded, overwrite_x=True)
    response = _response(sfreq_hz, band_hz, signal.notch_hz, signal.sfreq_hz, n_fft)
    kept = min(len(response), n_back // 2 + 1)
    spectrum = spectrum[:, :kept]
    spectrum *= response[:kept]
    filtered = fft.irfft(spectrum, n_back, overwrite_x=True)[:, :n_out]
    filtered *= n_back / n_fft
    for row, hole in zip(filtered, holes):
        if hole.any():
            row[_missing_after(hole, float(ratio), n_out, signal.sfreq_hz)] = np.nan
    return filtered


def _bridged(data_uv: Float32[np.ndarray, " T"], hole: Bool[np.ndarray, " T"]) -> Float32[np.ndarray, " T"]:
    """Fills missing samples with a straight line between their neighbours, all missing with zeros."""
    if not hole.any():
        return data_uv
    if hole.all():
        return np.zeros_like(data_uv)
    filled, missing = data_uv.copy(), np.flatnonzero(hole)
    edges = np.flatnonzero(hole[1:] != hole[:-1])
    beside = np.unique(np.where(hole[edges], edges + 1, edges))
    filled[missing] = np.interp(missing, beside, data_uv[beside])
    return filled


def _extended(data: Float32[np.ndarray, " T"], reach: int, n_fft: int) -> Float32[np.ndarray, " n_fft"]:
    """Lays the samples at the start of a circle, with their odd reflection behind the end and before the start."""
    n = len(data)
    padded = np.zeros(n_fft, np.float32)
    padded[:n] = data - data[0]
    most = min(reach, n - 1)
    if most:
        padded[n : n + most] = 2 * padded[n - 1] - padded[n - 1 - most : n - 1][::-1]
        padded[n_fft - most :] = -padded[1 : most + 1][::-1]
    if reach > most:
        padded[n + most : n + reach] = padded[n + most - 1]
        padded[n_fft - reach : n_fft - most] = padded[-most] if most else 0
    return padded


def _missing_after(hole: Bool[np.ndarray, " T"], ratio: float, n_out: int, sfreq_hz: float) -> Bool[np.ndarray, " n"]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hole.astype(np.int8), [0]])))
    halo = round(HALO_S * sfreq_hz)
    after = np.zeros(n_out, bool)
    for start, stop in edges.reshape(-1, 2):
        after[max(int(start * ratio) - halo, 0) : int(np.ceil(stop * ratio)) + halo] = True
    return after


@lru_cache(maxsize=64)
def _lengths(n: int, ratio: Fraction) -> tuple[int, int]:
    """Fast transform lengths of at least `n` before and after, exactly in the given ratio."""
    blocks = fft.next_fast_len(-(-n // ratio.denominator), real=True)
    return blocks * ratio.denominator, blocks * ratio.numerator


@lru_cache(maxsize=16)
def _kernel(
    sfreq_hz: float, band_hz: tuple[float, float], notch_hz: float | None, out_hz: float
) -> Float64[np.ndarray, " K"]:
    """The impulse response of band-pass and notches together, centred, odd length; at the recording's rate."""
    low, high = band_hz
    ceiling = min(sfreq_hz, out_hz) / 2
    low_width = min(max(0.25 * low, 2.0), low)
    high_width = min(max(0.25 * high, 2.0), ceiling - high)
    kernel = _high_pass(low - low_width / 2, low_width, sfreq_hz)
    kernel = _convolved(kernel, _low_pass(high + high_width / 2, high_width, sfreq_hz))
    harmonic = notch_hz or np.inf
    while harmonic < min(high + high_width, sfreq_hz / 2 - NOTCH_ROOM_HZ):
        stop = _low_pass(harmonic - 0.75, 1.0, sfreq_hz)
        stop += _high_pass(harmonic + 0.75, 1.0, sfreq_hz)
        kernel = _convolved(kernel, stop)
        harmonic += notch_hz or np.inf
    return kernel


def _convolved(a: Float64[np.ndarray, " K"], b: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " n"]:
    """Directly where that takes a moment; at hundreds of kHz it would take hours."""
    if len(a) * len(b) < 10**9:
        return np.convolve(a, b)
    n = len(a) + len(b) - 1  # by hand, for scipy.signal takes longer to import than a recording to prepare
    n_fft = fft.next_fast_len(n, real=True)
    return fft.irfft(fft.rfft(a, n_fft) * fft.rfft(b, n_fft), n_fft)[:n]


def _low_pass(cutoff_hz: float, width_hz: float, sfreq_hz: float) -> Float64[np.ndarray, " K"]:
    half = int(np.ceil(3.3 / width_hz * sfreq_hz / 2))
    t = np.arange(-half, half + 1)
    kernel = 2 * cutoff_hz / sfreq_hz * np.sinc(2 * cutoff_hz / sfreq_hz * t) * np.hamming(2 * half + 1)
    return kernel / kernel.sum()


def _high_pass(cutoff_hz: float, width_hz: float, sfreq_hz: float) -> Float64[np.ndarray, " K"]:
    kernel = -_low_pass(cutoff_hz, width_hz, sfreq_hz)
    kernel[len(kernel) // 2] += 1
    return kernel


@lru_cache(maxsize=8)
def _response(
    sfreq_hz: float, band_hz: tuple[float, float], notch_hz: float | None, out_hz: float, n_fft: int
) -> Float32[np.ndarray, " F"]:
    kernel = _kernel(sfreq_hz, band_hz, notch_hz, out_hz)
    half = len(kernel) // 2
    circle = np.zeros(n_fft)
    circle[: half + 1] = kernel[half:]
    circle[-half:] = kernel[:half]
    return fft.rfft(circle).real.astype(np.float32)


SCALE_SAMPLES = 8192


def robust_scale(
    data_uv: Float32[np.ndarray, "C T"],
) -> tuple[Float32[np.ndarray, " C"], Float32[np.ndarray, " C"]]:
    """Returns each channel's median and robust SD (1.4826 × MAD), missing samples left out.

    Of long recordings evenly spread samples are looked at, at least `SCALE_SAMPLES`: medians of all cost more than
    filtering, and differ by about 1 %. A channel that hardly moves gets its plain SD, or 1 where that is 0 too, so that
    nothing is divided by 0.
    """
    medians = np.zeros(len(data_uv), np.float32)
    scales = np.ones(len(data_uv), np.float32)
    for index, row in enumerate(data_uv):
        missing = np.isnan(row)
        there = row[~missing] if missing.any() else row
        if len(there) == 0:
            continue
        there = there[:: max(1, len(there) // SCALE_SAMPLES)]
        medians[index] = median(there)
        scale = 1.4826 * median(np.abs(there - medians[index]))
        if scale < 1e-6:
            scale = there.std(dtype=np.float64)
        scales[index] = scale if scale >= 1e-6 else 1.0
    return medians, scales
