"""Which electrodes carry nothing that the others see: their correlation, stretch by stretch, in bounded memory."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
from jaxtyping import Bool, Complex64, Float32, Int
from scipy import fft

from bothways.eeg.recording import GROUP_BYTES

ALONE, TOGETHER = 0.25, 0.7
"""An electrode is disconnected if its largest correlation with any other is below the first while that of the median
electrode reaches the second. The correlation criterion of PREP (Bigdely-Shamlo et al. 2015, Front. Neuroinform. 9:16;
bad below 0.4), with more room for good ones and only where the others do hang together."""
COPY = 0.99999
"""A correlation from here on is that of the same samples twice."""
LASTING = 3
"""Stretches in a row from which on it counts, with those between them that are not compared; at least two that are."""
FEWEST = 4
"""Channels among which one can be called alone."""
BAND_HZ = (1.0, 35.0)
"""Above drift, below the mains and what folds back from them at `RATE_HZ`."""
RATE_HZ = 100
"""Means over so short pieces are compared: cheaper, and the rest is not looked at anyway."""
COMPARED_S = 5.0
"""So much of each stretch is compared, from its beginning."""
MAX_HOLES = 0.25
"""Share of holes up to which a stretch of a channel is compared."""


@dataclass(frozen=True)
class Compared:
    """What a comparison found, a place for each channel.

    Attributes:
        correlation: median over stretches of the largest with any other channel; None = not compared.
        reasons: why all of the channel is bad, at most one.
        alone: stretches in which it is disconnected, `LASTING` or more in a row.
        copies: (channel, an earlier one with the same samples).
    """

    correlation: list[float | None]
    reasons: list[list[str]]
    alone: list[list[int]]
    copies: list[tuple[int, int]]


class Comparison:
    """Keeps a little of each channel, as they come, and compares them at the end.

    Args:
        n_channels: how many will come.
        stretches: samples [start, stop) of each; as many as fit in `GROUP_BYTES` are compared, spread evenly.
        sfreq_hz: the recording's rate.
    """

    def __init__(self, n_channels: int, stretches: Int[np.ndarray, "W 2"], sfreq_hz: float) -> None:
        self.step = max(round(sfreq_hz / RATE_HZ), 1)
        lengths = stretches[:, 1] - stretches[:, 0]
        self.n = min(round(COMPARED_S * sfreq_hz), int(lengths.max())) // self.step * self.step
        hz = np.fft.rfftfreq(self.n // self.step, self.step / sfreq_hz) if self.n else np.zeros(0)
        self.taper = np.hanning(self.n // self.step).astype(np.float32)
        self.band = (hz >= BAND_HZ[0]) & (hz <= BAND_HZ[1])
        long_enough = np.flatnonzero(lengths >= self.n) if self.n >= sfreq_hz else np.zeros(0, int)
        most = max(GROUP_BYTES // max(8 * n_channels * int(self.band.sum()), 1), 1)
        self.every = max(-(-len(long_enough) // most), 1)
        self.which = long_enough[:: self.every]
        self.starts = stretches[self.which, 0]
        self.kept = np.zeros((n_channels, len(self.which), int(self.band.sum())), np.complex64)
        self.n_added = 0

    def add(self, data_uv: Float32[np.ndarray, " T"], hole: Bool[np.ndarray, " T"]) -> None:
        """Takes the next channel."""
        if len(self.which):
            self.kept[self.n_added] = self._spectra(data_uv, hole)
        self.n_added += 1

    def _spectra(
        self, data_uv: Float32[np.ndarray, " T"], hole: Bool[np.ndarray, " T"]
    ) -> Complex64[np.ndarray, "w F"]:
        """The spectrum of each stretch within `BAND_HZ`, of length 1; 0 where nothing is to be compared."""
        pieces = np.stack([data_uv[start : start + self.n] for start in self.starts])
        if hole.any():
            holes = np.stack([hole[start : start + self.n] for start in self.starts])
            touched = holes.any(1)
            pieces[touched] = _filled(pieces[touched], holes[touched])
        # products with ones, many times faster than sums along a short axis
        means = pieces.reshape(len(pieces), -1, self.step) @ np.ones(self.step, np.float32)
        means -= means.mean(1, keepdims=True)
        spectra = fft.rfft(means * self.taper, axis=1)[:, self.band]
        power = np.einsum("wf,wf->w", spectra, spectra.conj()).real
        return spectra / np.sqrt(np.where(power > 0, power, np.inf))[:, None]

    def result(self) -> Compared:
        """Compares the channels that came."""
        n = len(self.kept)
        largest = np.full((len(self.which), n), np.nan)
        same, compared = np.ones((n, n), bool), np.zeros((n, n), bool)
        for w in range(len(self.which)):
            spectra = self.kept[:, w].view(np.float32)
            there = spectra.any(1)
            r = np.abs(spectra @ spectra.T)
            np.fill_diagonal(r, 0)
            if there.sum() > 1:
                largest[w, there] = r.max(1)[there]
            both = np.outer(there, there)
            same &= np.where(both, r >= COPY, np.equal.outer(there, there))
            compared |= both
        correlation = [_median(column) for column in largest.T]
        usual = _median(np.array([np.nan if r is None else r for r in correlation]))
        reasons: list[list[str]] = [[] for _ in range(n)]
        alone: list[list[int]] = [[] for _ in range(n)]
        if n >= FEWEST and usual is not None and usual >= TOGETHER:
            for channel, r in enumerate(correlation):
                if r is not None and r < ALONE:
                    reasons[channel] = [f"disconnected: correlation {r:.2f} with any other, {usual:.2f} is usual here"]
            typical = np.array([_median(row) or 0.0 for row in largest])[:, None]
            low = (largest < ALONE) & (typical >= TOGETHER)
            # a clenched jaw does it to a good electrode for a while: what counts is that it lasts
            alone = [_lasting(self.which, column, self.every) for column in low.T]
        earlier = [np.flatnonzero((same & compared)[later, :later]) for later in range(n)]
        copies = [(later, int(first[0])) for later, first in enumerate(earlier) if len(first)]
        return Compared([None if r is None else round(r, 4) for r in correlation], reasons, alone, copies)


def _filled(pieces: Float32[np.ndarray, "w n"], holes: Bool[np.ndarray, "w n"]) -> Float32[np.ndarray, "w n"]:
    """Puts each piece's mean in its holes; one with too many is all 0."""
    mean = np.where(holes, 0, pieces).sum(1, keepdims=True) / np.maximum((~holes).sum(1, keepdims=True), 1)
    filled = np.where(holes, mean.astype(np.float32), pieces)
    filled[holes.mean(1) > MAX_HOLES] = 0
    return filled


def _lasting(which: Int[np.ndarray, " w"], low: Bool[np.ndarray, " w"], every: int) -> list[int]:
    """Returns the stretches of each run of `low` ones that lasts, of which `which`, every so many, were compared."""
    runs = [list(group) for is_low, group in groupby(range(len(low)), lambda at: low[at]) if is_low]
    fewest = max(-(-LASTING // every), 2)
    lasting = [range(which[run[0]], which[run[-1]] + 1) for run in runs if len(run) >= fewest]
    return [stretch for run in lasting for stretch in run]


def _median(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None
