"""A recording as a small picture: for each channel and column the least and the largest value, in a byte."""

import base64
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int, UInt8

from bothways.eeg.recording import Recording

MOST_BYTES = 16_000
"""Of a drawing, before base64: 64 channels fit at full width."""
COLUMNS = 240
GAP_COLUMNS = 4
"""Width of a gap, however long it is."""
NOTHING = 0xF0
"""Byte of a column without samples: no least value lies above the largest."""
_TOGETHER = 2**20
"""Samples of a long recording that are looked at together."""
SPAN_SDS = 6.0
"""Robust SDs of the median channel that reach from a row's middle to its edge."""


def draw(recording: Recording, quality: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Draws all channels of a recording, a row at a time.

    Args:
        recording: what to draw.
        quality: what `assess` says of its channels.

    Returns:
        `columns`; `levels` (base64 of a byte for each channel and column: least value × 16 + largest, both 0 to 15
        from the row's lower to its upper edge; `NOTHING`); `span_uv` (from a row's middle to its edge); `bad` (places
        of bad channels); and in columns `stretches` [[channel, start, stop]], `gaps` [[start, stop, seconds]] and
        `events` (each once).
    """
    places, starts = _layout(recording)
    columns = int(places[-1]) + 1
    amplitudes = [q["amplitude_uv"] for q in quality.values() if q["amplitude_uv"] and not q["bad"]]
    amplitudes = amplitudes or [q["amplitude_uv"] for q in quality.values() if q["amplitude_uv"]]
    span_uv = SPAN_SDS * float(np.median(amplitudes)) if amplitudes else 1.0
    levels = np.full((len(recording.ch_names), columns), NOTHING, np.uint8)
    for row, data_uv in zip(levels, recording.data_uv):
        row[places] = _levels(data_uv, starts, max(round(recording.sfreq_hz), 1), span_uv)

    def at(sample: int | float) -> int:
        return int(places[max(int(np.searchsorted(starts, sample, "right")) - 1, 0)])

    return {
        "columns": columns,
        "levels": base64.b64encode(levels.tobytes()).decode(),
        "span_uv": round(span_uv, 3),
        "bad": [place for place, q in enumerate(quality.values()) if q["bad"]],
        "stretches": [
            [place, at(start_s * recording.sfreq_hz), at(stop_s * recording.sfreq_hz - 1) + 1]
            for place, q in enumerate(quality.values())
            for start_s, stop_s, _ in q["bad_stretches"]
        ],
        "gaps": [
            [at(a.stop - 1) + 1, at(b.start), round(b.onset_s - a.onset_s - (a.stop - a.start) / recording.sfreq_hz, 3)]
            for a, b in pairwise(recording.segments)
        ],
        "events": sorted({at(event.start_sample) for event in recording.events}),
    }


def _layout(recording: Recording) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Returns the columns that hold samples, and the first sample of each; a gap is a few columns in between."""
    columns = min(COLUMNS, MOST_BYTES // len(recording.ch_names))
    n_gaps = len(recording.segments) - 1
    gap = GAP_COLUMNS if n_gaps * GAP_COLUMNS <= columns / 4 else 0  # many gaps would leave no room for signal
    room = columns - n_gaps * gap
    n_samples = recording.data_uv.shape[1]
    places, starts, place = [], [], 0
    for segment in recording.segments:
        length = segment.stop - segment.start
        n = min(max(int(room * length / n_samples), 1), length)
        places.append(place + np.arange(n))
        starts.append(segment.start + np.arange(n) * length // n)
        place += n + gap
    return np.concatenate(places), np.concatenate(starts)


def _levels(
    data_uv: Float32[np.ndarray, " T"], starts: Int[np.ndarray, " n"], block: int, span_uv: float
) -> UInt8[np.ndarray, " n"]:
    """Least and largest value of each column, about a line through the means of all seconds: drift is not drawn."""
    seconds = np.arange(0, len(data_uv), block)
    there: Bool[np.ndarray, " T"] = ~np.isnan(data_uv)
    count = np.add.reduceat(there, seconds, dtype=int)
    some = count > 0
    if not some.any():
        return np.full(len(starts), NOTHING, np.uint8)
    mean = np.add.reduceat(np.where(there, data_uv, 0), seconds, dtype=float)[some] / count[some]
    middle = (seconds + block / 2)[some]
    edges = np.full((2, len(starts)), np.nan)
    together = max(_TOGETHER * len(starts) // len(data_uv), 1)
    for at in range(0, len(starts), together):
        first = starts[at]
        last = starts[at + together] if at + together < len(starts) else len(data_uv)
        centred = data_uv[first:last] - np.interp(np.arange(first, last), middle, mean)
        for row, extreme in zip(edges, (np.fmin, np.fmax)):
            row[at : at + together] = extreme.reduceat(centred, starts[at : at + together] - first)
    known = ~np.isnan(edges[0])
    steps = np.clip((np.where(known, edges, 0) / span_uv + 1) * 8, 0, 15).astype(np.uint8)
    return np.where(known, steps[0] * 16 + steps[1], NOTHING).astype(np.uint8)
