"""A store seen through fewer channels, as differences of neighbours, or in another unit; nothing is written."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float32, Int16

from bothways.eeg.preprocess import robust_scale
from bothways.eeg.store import Store, StoredRecording, from_int16, to_int16
from bothways.errors import UserError

TEN_TWENTY = (
    "C3", "C4", "O1", "O2", "Fp1", "Fp2", "P7", "P8",
    "F3", "F4", "P3", "P4", "F7", "F8", "T7", "T8", "Fz", "Cz", "Pz",
)  # fmt: skip
"""The 19 places of the 10-20 system (Jasper 1958) in the order in which they are kept.

The first two are the central ones, the first four add the occipital ones, and the first eight are the montage of small
consumer headsets (frontal pole, central, posterior temporal, occipital, both sides).
"""
CHAINS = (
    ("Fp1", "F7", "T7", "P7", "O1"), ("Fp1", "F3", "C3", "P3", "O1"), ("Fz", "Cz", "Pz"),
    ("Fp2", "F4", "C4", "P4", "O2"), ("Fp2", "F8", "T8", "P8", "O2"),
)  # fmt: skip
"""The lines of the longitudinal bipolar montage ("double banana"; ACNS guideline 3, 2016)."""

_KEPT = 4
"""Recordings whose differences are kept in memory: windows come recording by recording."""


def ten_twenty(ch_names: Collection[str], n: int) -> list[str]:
    """Returns the first `n` of `TEN_TWENTY` that there are, fewer where there are not so many."""
    return [name for name in TEN_TWENTY if name in ch_names][:n]


def showing(store: Store, ch_names: Collection[str]) -> Store:
    """Returns the store with all channels but these hidden, as bad ones are; signals and their reference stay."""

    def hidden(entry: StoredRecording) -> list[str]:
        return [name for name in entry.ch_names if name in entry.bad_channels or name not in ch_names]

    return _with(store, [replace(r, bad_channels=hidden(r)) for r in store.recordings])


def in_other_unit(store: Store, factor: float) -> Store:
    """Returns the store as it were if all microvolts had been multiplied by `factor`: in robust SD units the same."""
    by = np.float32(factor)
    return _with(store, [replace(r, median_uv=r.median_uv * by, scale_uv=r.scale_uv * by) for r in store.recordings])


def _with(store: Store, recordings: list[StoredRecording]) -> Store:
    return Store(store.path, store.head, store.signal, recordings)


class BipolarStore(Store):
    """A store as the longitudinal bipolar montage shows it: each electrode less the next one of its line.

    Of each line the electrodes that a recording has. The difference is free of the reference that the store was
    prepared with. Filtering is linear, so the difference of filtered signals is the filtered difference.

    Args:
        store: of recordings against one reference.
        used: indices of the recordings that are looked at; the others stay as they are.

    Raises:
        UserError: a used recording has no two electrodes of a line, or its channels are differences already.
    """

    def __init__(self, store: Store, used: Collection[int]) -> None:
        recordings = list(store.recordings)
        self._source = store
        self._pairs = {index: _pairs(recordings[index]) for index in used}
        for index in used:
            entry, pairs = recordings[index], self._pairs[index]
            median_uv, scale_uv = robust_scale(self._differences_uv(index))
            at = {name: i for i, name in enumerate(entry.ch_names)}
            positions = np.stack([entry.positions[[at[a], at[b]], 0] for a, b in pairs])
            recordings[index] = replace(
                entry,
                ch_names=[f"{a}-{b}" for a, b in pairs],
                positions=positions,
                median_uv=median_uv,
                scale_uv=scale_uv,
                bad_channels=[f"{a}-{b}" for a, b in pairs if {a, b} & set(entry.bad_channels)],
                quality_json="{}",
            )
        super().__init__(store.path, store.head, store.signal, recordings)

    def _differences_uv(self, recording: int) -> Float32[np.ndarray, "C T"]:
        entry = self._source.recordings[recording]
        values = from_int16(self._source.read_steps(recording))
        data_uv = values * entry.scale_uv[:, None] + entry.median_uv[:, None]
        at = {name: i for i, name in enumerate(entry.ch_names)}
        first, second = ([at[pair[side]] for pair in self._pairs[recording]] for side in (0, 1))
        return data_uv[first] - data_uv[second]

    def _signals(self, recording: int) -> Int16[np.ndarray, "C T"]:
        if recording not in self._pairs:
            return self._source.read_steps(recording)
        if recording not in self._open:
            entry = self.recordings[recording]
            self._open[recording] = to_int16(self._differences_uv(recording), entry.median_uv, entry.scale_uv)
            if len(self._open) > _KEPT:
                self._open.popitem(last=False)
        return self._open[recording]


def _pairs(entry: StoredRecording) -> list[tuple[str, str]]:
    plain = {name for name, place in zip(entry.ch_names, entry.positions) if np.isnan(place[1]).all()}
    lines: list[Sequence[str]] = [[name for name in line if name in plain] for line in CHAINS]
    pairs = list(dict.fromkeys(pair for line in lines for pair in pairwise(line)))
    if not pairs:
        raise UserError(
            f"{entry.file}: has no two electrodes on a line of the longitudinal bipolar montage, each against the "
            f"common reference, but {', '.join(entry.ch_names[:8])}"
        )
    return pairs
