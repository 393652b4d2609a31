"""What is wrong with a channel, seen from its samples alone: cheap, deterministic, and said in numbers."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32

from bothways.eeg.recording import Note, Recording

AMPLITUDE_UV = (0.1, 500.0)
"""Robust SD (within one second) that a living head can give at the scalp, with a wide margin."""
USUAL_UV = (1.0, 200.0)
"""Where the median channel of a good recording lies; a unit slip is a thousand times outside."""
FLAT_S = 0.5
"""A value that does not change for as long as this is no signal."""
HALO_S = 0.05
"""Taken as missing on both sides of missing data: there the low-pass still sees what was filled in."""
MAX_FLAT, MAX_MISSING, MAX_CLIPPED = 0.5, 0.5, 0.05
"""Shares of a channel's samples above which it is bad."""


def assess(recording: Recording) -> tuple[dict[str, dict[str, Any]], list[str], list[Note]]:
    """Measures each channel of a recording.

    Returns:
        per channel {`flat`, `missing`, `clipped` (shares 0 to 1), `amplitude_uv` (robust SD about each second's
        mean, flat stretches left out; None = no samples), `line_noise` {`50`, `60`: share of the power from 1 Hz
        up}, `bad` (list of reasons)}; the bad channels; notes.
    """
    quality: dict[str, dict[str, Any]] = {}
    missing = 0
    for name, data_uv in zip(recording.ch_names, recording.data_uv):
        missing += int(np.isnan(data_uv).sum())
        still = flat_samples(data_uv, recording.sfreq_hz)
        measured = _measure(data_uv, still, recording.sfreq_hz)
        lost = _lost_share(still | np.isnan(data_uv), recording.sfreq_hz)
        marked = ["marked bad in the file"] if name in recording.marked_bad else []
        measured["bad"] = _reasons(measured, lost) + marked
        quality[name] = measured
    bad = [name for name, measured in quality.items() if measured["bad"]]
    notes = [Note("bad_channels", f"{len(bad)} of {len(quality)}: {_listed(bad, quality)}")] if bad else []
    notes += _unit_notes([q["amplitude_uv"] for q in quality.values() if q["amplitude_uv"]])
    flat = {name: q["flat"] for name, q in quality.items() if q["flat"] and name not in bad}
    if flat:
        names = ", ".join(f"{name} {share:.1%}" for name, share in list(flat.items())[:6])
        more = f" and {len(flat) - 6} more" if len(flat) > 6 else ""
        notes.append(Note("flat_stretches", f"stretches without any change are taken as missing: {names}{more}"))
    if missing:
        notes.append(Note("missing_samples", f"{missing} samples are missing (not a number)"))
    return quality, bad, notes


def _listed(bad: list[str], quality: dict[str, dict[str, Any]]) -> str:
    shown = "; ".join(f"{name} ({', '.join(quality[name]['bad'])})" for name in bad[:6])
    return shown + (f" and {len(bad) - 6} more" if len(bad) > 6 else "")


def _measure(data_uv: Float32[np.ndarray, " T"], flat: Bool[np.ndarray, " T"], sfreq_hz: float) -> dict[str, Any]:
    missing = np.isnan(data_uv)
    n = len(data_uv)
    measured: dict[str, Any] = {"missing": round(float(missing.mean()), 4) if n else 1.0}
    good = data_uv[~missing] if missing.any() else data_uv
    if len(good) == 0:
        return measured | {"flat": 0.0, "clipped": 0.0, "amplitude_uv": None, "line_noise": {"50": 0.0, "60": 0.0}}
    measured["flat"] = round(float(flat.mean()), 4)
    measured["clipped"] = round(_clipped_share(good), 4)
    if flat.any() and not flat.all():
        moving = data_uv[~(missing | flat)]
        good = moving if len(moving) else good
    block = max(min(round(sfreq_hz), len(good)), 1)
    blocks = good[: len(good) // block * block].reshape(-1, block)
    centred = blocks - blocks.mean(1, keepdims=True)
    # a long recording is judged by some whole seconds of it (single samples could fall in step with a rhythm)
    spread = np.abs(centred[:: max(len(centred) // 40, 1)])
    measured["amplitude_uv"] = round(float(1.4826 * np.median(spread)), 4)
    measured["line_noise"] = _line_noise(centred, sfreq_hz)
    return measured


def _lost_share(hole: Bool[np.ndarray, " T"], sfreq_hz: float) -> float:
    """Share of the samples that are missing or flat, or within the halo that the filter takes with them."""
    if not hole.any():
        return 0.0
    # how many holes lie within the halo of each sample, by a running sum
    halo = round(HALO_S * sfreq_hz)
    total = np.concatenate([[0], np.cumsum(hole)])
    at = np.arange(len(hole))
    near = total[np.minimum(at + halo + 1, len(hole))] - total[np.maximum(at - halo, 0)]
    return float((near > 0).mean())


def flat_samples(data_uv: Float32[np.ndarray, " T"], sfreq_hz: float) -> Bool[np.ndarray, " T"]:
    """Returns which samples lie in a stretch of at least `FLAT_S` in which the value never changes."""
    flat = np.zeros(len(data_uv), bool)
    shortest = min(max(round(FLAT_S * sfreq_hz), 2), len(data_uv))
    half = (shortest + 1) // 2
    if len(data_uv) < 2 or half < 1:
        return flat
    # a stretch of that length holds a whole block of half of it: where none may be constant, no need to look closer
    blocks = data_uv[: len(data_uv) // half * half].reshape(-1, half)
    first = blocks[:, 0]
    if not ((first == blocks[:, -1]) & (first == blocks[:, half // 2]) & (first == blocks[:, half // 3])).any():
        return flat
    changes = np.flatnonzero(data_uv[1:] != data_uv[:-1]) + 1
    edges = np.concatenate([[0], changes, [len(data_uv)]])
    for index in np.flatnonzero(np.diff(edges) >= shortest):
        flat[edges[index] : edges[index + 1]] = True
    return flat & ~np.isnan(data_uv)


def _clipped_share(good: Float32[np.ndarray, " n"]) -> float:
    """Share of samples that stand at the highest or lowest value three times or more in a row.

    An amplifier's limit collects what lies beyond it; the outermost step of a coarse but whole signal holds no more
    than the one inside it, and does not count.
    """
    low, high = good.min(), good.max()
    if low == high:
        return 0.0
    total = 0
    for extreme in (low, high):
        at = good == extreme
        if (n := np.count_nonzero(at)) >= 3:
            others = good[~at]
            inside = others.min() if extreme == low else others.max()
            if n <= 2 * np.count_nonzero(others == inside):
                continue
            inner = at[1:-1] & at[:-2] & at[2:]
            total += int(np.count_nonzero(inner)) + 2 * int(np.count_nonzero(np.diff(inner.astype(np.int8)) == 1))
    return min(total / len(good), 1.0)


def _line_noise(blocks: Float32[np.ndarray, "n block"], sfreq_hz: float) -> dict[str, float]:
    """Share of the power above 1 Hz that lies within 1 Hz of the mains, over some 30 seconds spread evenly."""
    block = blocks.shape[1]
    some = blocks[:: max(len(blocks) // 30, 1)]
    power = (np.abs(np.fft.rfft(some * np.hanning(block).astype(np.float32), axis=1)) ** 2).mean(0)
    hz = np.fft.rfftfreq(block, 1 / sfreq_hz)
    total = power[hz >= 1].sum()
    return {
        str(mains): round(float(power[np.abs(hz - mains) <= 1.01].sum() / total), 4) if total > 0 else 0.0
        for mains in (50, 60)
    }


def _reasons(measured: dict[str, Any], lost: float) -> list[str]:
    low, high = AMPLITUDE_UV
    amplitude_uv = measured["amplitude_uv"]
    reasons = []
    if measured["missing"] > MAX_MISSING:
        reasons.append(f"{measured['missing']:.0%} missing")
    if measured["flat"] > MAX_FLAT:
        reasons.append(f"{measured['flat']:.0%} flat")
    elif amplitude_uv is not None and not low <= amplitude_uv <= high:
        reasons.append(f"amplitude {amplitude_uv:g} uV outside {low:g} to {high:g}")
    if lost > MAX_MISSING and measured["missing"] <= MAX_MISSING and measured["flat"] <= MAX_FLAT:
        reasons.append(f"{lost:.0%} missing or flat with {HALO_S:g} s around")
    if measured["clipped"] > MAX_CLIPPED:
        reasons.append(f"{measured['clipped']:.0%} clipped")
    return reasons


def _unit_notes(amplitudes_uv: list[float]) -> list[Note]:
    """Suspects a unit slip where the median channel is far outside, and says which factor would make sense."""
    if not amplitudes_uv:
        return []
    median_uv = float(np.median(amplitudes_uv))
    low, high = AMPLITUDE_UV
    if low <= median_uv <= high:
        return []
    for factor, hint in ((1e-3, "÷1000"), (1e3, "×1000"), (1e-6, "÷1000000"), (1e6, "×1000000")):
        if USUAL_UV[0] <= median_uv * factor <= USUAL_UV[1]:
            advice = f"{hint} would make {median_uv * factor:.3g} uV; if the stated unit is wrong, pass --unit"
            break
    else:
        advice = "no change of unit makes sense of it"
    return [Note("unit_suspect", f"median amplitude {median_uv:.3g} uV is not that of scalp EEG; {advice}")]
