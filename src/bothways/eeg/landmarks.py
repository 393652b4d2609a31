"""Landmarks of a signal: by them a copy is found in another file, format, scale, polarity, rate or cut.

As for recognising music (A. Wang, An industrial-strength audio search algorithm, ISMIR 2003), moments that any copy
keeps are described by their distances: here the peaks of a channel. Which of them are kept depends on the description
alone (S. Schleimer, D. Wilkerson and A. Aiken, Winnowing, SIGMOD 2003), so that a piece has those of the whole.
"""

import numpy as np
from jaxtyping import Int32, Int64

from bothways.eeg.store import Store

N_DISTANCES = 12
"""Distances between peaks, one after another, that make a landmark: a second or so, about 40 bits."""
ONE_OF = 16
"""So many landmarks are described for each that is kept: one a second and channel, or so."""
MOST_CHANNELS = 32
"""Channels that are looked at, those with the shortest names: of nets the ones that small caps have, too."""
_SMOOTH = np.array([1, 2, 3, 4, 3, 2, 1], np.int32)
"""Weights of neighbouring samples, before peaks are sought: the top of a broad peak is found at any rate."""
_LEAST_DIFFERENT = 4
"""Different distances that there must be: what repeats itself (mains, a sine, a calibration) marks no moment."""
_LONGEST = 250
"""Samples between two peaks beyond which there is a hole."""


def landmarks(store: Store, recording: int) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Returns the landmarks of one recording and the stored samples that they begin at.

    Peaks above and below are described alike, for a copy may be inverted.
    """
    names = store.recordings[recording].ch_names
    order = sorted(range(len(names)), key=lambda i: (len(names[i]), names[i]))[:MOST_CHANNELS]
    signals = store.read_steps(recording)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for i in order:
        smooth = np.convolve(signals[i].astype(np.int32), _SMOOTH, "valid")
        found += [_of_peaks(smooth), _of_peaks(-smooth)]
    return np.concatenate([marks for marks, _ in found]), np.concatenate([starts for _, starts in found])


def _of_peaks(smooth: Int32[np.ndarray, " T"]) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    peaks = 1 + np.flatnonzero((smooth[1:-1] > smooth[:-2]) & (smooth[1:-1] >= smooth[2:]))
    before, at, after = (smooth[peaks + step].astype(np.float64) for step in (-1, 0, 1))
    # The top of the parabola through them lies between samples, which a cut or another rate puts elsewhere.
    times = peaks + (before - after) / (2 * (before - 2 * at + after))
    distances = np.rint(np.diff(times)).astype(np.int64)
    n = len(distances) - N_DISTANCES + 1
    if n < 1:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    factors = np.random.default_rng(0).integers(2**63, size=N_DISTANCES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    steps = distances.astype(np.uint64)
    marks = np.zeros(n, np.uint64)
    for place, factor in enumerate(factors):
        marks += steps[place : place + n] * factor  # modulo 2**64
    marks ^= marks >> np.uint64(29)
    marks *= np.uint64(0xBF58476D1CE4E5B9)  # so that the low bits depend on all others
    marks ^= marks >> np.uint64(32)
    kept = np.flatnonzero(marks % np.uint64(ONE_OF) == 0)
    around = np.sort(distances[kept[:, None] + np.arange(N_DISTANCES)], axis=1)
    telling = (np.diff(around, axis=1) > 0).sum(1) + 1 >= _LEAST_DIFFERENT
    kept = kept[telling & (around[:, -1] <= _LONGEST)]
    return marks[kept].view(np.int64), np.rint(times[kept] + len(_SMOOTH) // 2).astype(np.int64)
