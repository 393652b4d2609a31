"""Trials that Python holds, an array [n C T] or mne's Epochs, to a store in memory: one window for each trial."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int16

from bothways.config import SignalConfig
from bothways.eeg.labels import Windows
from bothways.eeg.objects import from_array, from_mne
from bothways.eeg.preparing import bad_stretches, scaled
from bothways.eeg.preprocess import preprocess
from bothways.eeg.quality import AMPLITUDE_UV, assess, unusable
from bothways.eeg.recording import Note, Recording, Segment
from bothways.eeg.store import Store, StoredRecording
from bothways.errors import UserError

_OF_TIME = ("gaps", "overlapping_epochs", "metadata_left_out")


class HeldStore(Store):
    """A store whose samples lie in memory instead of a folder."""

    def __init__(
        self, signal: SignalConfig, recordings: list[StoredRecording], samples: Sequence[Int16[np.ndarray, "C T"]]
    ) -> None:
        super().__init__(Path("memory"), {"baseline": [], "skipped": [], "left_out": []}, signal, recordings)
        self._samples = samples

    def _signals(self, recording: int) -> Int16[np.ndarray, "C T"]:
        return self._samples[recording]


def is_epochs(trials: Any) -> bool:
    """Whether trials are mne's Epochs, or a list of them, as scikit-learn makes one where it takes some of them."""
    first = trials[0] if isinstance(trials, list) and trials else trials
    return all(hasattr(first, name) for name in ("get_data", "event_id", "info"))


def read_trials(
    trials: Any, ch_names: Sequence[str] | None = None, sfreq_hz: float | int | None = None, unit: str | None = None
) -> Recording:
    """Makes one recording of trials; segment k is trial k, whatever order they have in time.

    Args:
        trials: an array [n C T], or mne's Epochs, which carry names, rate and unit.
        ch_names: a name for each channel of an array; see `from_array`.
        sfreq_hz: its rate.
        unit: its unit.

    Raises:
        UserError: what an array needs is not given, Epochs contradict what is given, or there is no EEG.
    """
    if not is_epochs(trials):
        given = {"ch_names": ch_names, "sfreq_hz": sfreq_hz, "unit": unit}
        if lacking := [name for name, value in given.items() if value is None]:
            raise UserError(
                f"an array [n C T] does not say its {', '.join(lacking)}; give them, e.g. ch_names=['C3', 'C4'], "
                "sfreq_hz=250, unit='uV'"
            )
        assert ch_names is not None
        assert sfreq_hz is not None
        assert unit is not None
        if getattr(trials, "ndim", 3) != 3:
            raise UserError(
                f"expected trials as an array [n C T], got {trials.ndim} dimensions {trials.shape}; reshape it"
            )
        return _without_times(from_array(trials, ch_names, sfreq_hz, unit=unit, name="trials"))
    if unit not in (None, "V"):
        raise UserError(f"unit: mne's Epochs are in V, got {unit!r}; leave unit out, or give an array")
    parts = [_in_order(part) for part in (trials if isinstance(trials, list) else [trials])]
    first = parts[0]
    for part in parts[1:]:
        if (part.ch_names, part.sfreq_hz) != (first.ch_names, first.sfreq_hz):
            raise UserError("epochs: expected the same channels and rate in all, got others; pick the common channels")
    if sfreq_hz is not None and abs(sfreq_hz - first.sfreq_hz) > 1e-6:
        raise UserError(f"sfreq_hz: the Epochs have {first.sfreq_hz:g} Hz, got {sfreq_hz:g}; leave sfreq_hz out")
    if ch_names is not None and not set(first.file_names) <= set(ch_names):
        odd = ", ".join(sorted(set(first.file_names) - set(ch_names))[:4])
        raise UserError(f"ch_names: the Epochs have channels that it does not name ({odd}); leave ch_names out")
    lengths = [segment.stop - segment.start for part in parts for segment in part.segments]
    if len(set(lengths)) > 1:
        raise UserError(f"epochs: expected one length, got {min(lengths)} to {max(lengths)} samples; crop them")
    data_uv = np.concatenate([np.asarray(part.data_uv) for part in parts], axis=1)
    return replace(first, data_uv=data_uv, segments=_one_after_another(lengths, first.sfreq_hz))


def in_channel_order(recording: Recording, file_names: Sequence[str]) -> Recording:
    """Returns a recording with its channels in the order of their names, which are no others than its own, each once.

    Args:
        recording: of `read_trials`.
        file_names: the names in the order that is wanted.
    """
    rows = [recording.file_names.index(name) for name in file_names]
    return replace(
        recording,
        data_uv=np.asarray(recording.data_uv)[rows],
        ch_names=[recording.ch_names[row] for row in rows],
        file_names=list(file_names),
        positions=recording.positions[rows],
        file_units=[recording.file_units[row] for row in rows] if recording.file_units else [],
    )


def _without_times(recording: Recording) -> Recording:
    """Leaves out what is only said of where pieces lie in time: trials are apart by themselves."""
    return replace(recording, notes=[note for note in recording.notes if note.code not in _OF_TIME])


def _in_order(epochs: Any) -> Recording:
    """Returns the recording of Epochs with its segments in their order; `from_mne` has them in that of time."""
    recording = _without_times(from_mne(epochs, name="trials"))
    in_time = np.argsort(epochs.events[:, 0], kind="stable")
    n = recording.segments[0].stop
    pieces = np.asarray(recording.data_uv).reshape(len(recording.ch_names), -1, n)[:, np.argsort(in_time)]
    segments = _one_after_another([n] * len(in_time), recording.sfreq_hz)
    return replace(recording, data_uv=pieces.reshape(len(pieces), -1), segments=segments, events=[])


def _one_after_another(lengths: Sequence[int], sfreq_hz: float) -> list[Segment]:
    stops = np.cumsum(lengths).tolist()
    return [Segment(stop - n, stop, (stop - n) / sfreq_hz) for n, stop in zip(lengths, stops)]


def hold_trials(
    recording: Recording,
    signal: SignalConfig,
    patch_s: float,
    owners: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"] | None = None,
    classes: Sequence[str] = (),
) -> tuple[HeldStore, Windows]:
    """Filters, resamples and scales trials as `prepare` does recordings, and cuts a window out of each.

    Trials of one owner are scaled together, as those of one recording are. A window begins with its trial and is as
    many whole patches long as fit in it.

    Args:
        recording: of `read_trials`.
        signal: what the numbers shall be.
        patch_s: of the model.
        owners: which trials belong to one recording.
        labels: of each trial; None = none.
        classes: their names.

    Raises:
        UserError: a trial holds no usable patch or is shorter than one, or its unit cannot be right.
    """
    entries: list[StoredRecording] = []
    samples: list[Int16[np.ndarray, "C T"]] = []
    where = np.zeros((len(owners), 2), np.int64)  # recording, start
    length = int(np.floor(_length_s(recording) / patch_s + 1e-9)) * round(patch_s * signal.sfreq_hz)
    if length == 0:
        raise UserError(
            f"trials of {_length_s(recording):g} s hold no patch of {patch_s:g} s; cut longer ones, or take a model "
            "with shorter patches"
        )
    for owner in np.unique(owners):
        own = np.flatnonzero(owners == owner)
        entry, steps = _held(_some(recording, own), signal, f"trial {own[0]}", str(len(entries)))
        where[own] = [(len(entries), segment.start) for segment in entry.segments]
        entries.append(entry)
        samples.append(steps)
    usual_uv = float(np.median([entry.scale_uv for entry in entries]))
    if not AMPLITUDE_UV[0] <= usual_uv <= AMPLITUDE_UV[1]:
        low, high = AMPLITUDE_UV
        raise UserError(
            f"trials: expected amplitudes of {low:g} to {high:g} uV, got {usual_uv:.3g} uV by the unit "
            f"{(recording.file_units or ['V'])[0]}; correct the unit"
        )
    store = HeldStore(signal, entries, samples)
    none = np.full(len(owners), -1)
    table = Windows(
        where[:, 0], where[:, 1], none if labels is None else labels.astype(np.int64),
        np.array([entries[index].subject for index in where[:, 0]]), where[:, 1], where[:, 1], length, list(classes),
    )  # fmt: skip
    return store, table


def _length_s(recording: Recording) -> float:
    segment = recording.segments[0]
    return (segment.stop - segment.start) / recording.sfreq_hz


def _some(recording: Recording, trials: Int[np.ndarray, " k"]) -> Recording:
    """Returns a recording of some of the segments."""
    chosen = [recording.segments[trial] for trial in trials]
    data_uv = np.concatenate([recording.data_uv[:, one.start : one.stop] for one in chosen], axis=1)
    segments = _one_after_another([one.stop - one.start for one in chosen], recording.sfreq_hz)
    return replace(recording, data_uv=data_uv, segments=segments, events=[])


def _held(
    recording: Recording, signal: SignalConfig, name: str, number: str
) -> tuple[StoredRecording, Int16[np.ndarray, "C T"]]:
    quality, bad, notes = assess(recording)
    if len(bad) == len(recording.ch_names):
        raise UserError(f"{name}: {unusable(recording, bad, notes)}; leave it out")
    prepared = preprocess(recording, signal, bad)
    steps, median_uv, scale_uv = scaled(np.asarray(prepared.data_uv), bad_stretches(recording, prepared, quality, bad))
    entry = StoredRecording(
        id=number, file=name, sha256="", subject=number, session="", format=recording.format,
        ch_names=recording.ch_names, positions=recording.positions, n_samples=steps.shape[1],
        segments=prepared.segments, events=[], left_out=recording.left_out,
        notes=[*recording.notes, *notes, *prepared.notes], median_uv=median_uv, scale_uv=scale_uv, bad_channels=bad,
        file_sfreq_hz=recording.sfreq_hz, meas_date=None,
    )  # fmt: skip
    return entry, steps


def said_of(store: Store) -> Mapping[str, list[Note]]:
    """Returns the notes of a store's recordings by code."""
    said: dict[str, list[Note]] = {}
    for entry in store.recordings:
        for note in entry.notes:
            said.setdefault(note.code, []).append(note)
    return said
