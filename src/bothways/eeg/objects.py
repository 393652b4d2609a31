"""Recordings that Python holds already: arrays, mne's Raw and Epochs, data sets of braindecode."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bothways.eeg.other_formats import convert, warned
from bothways.eeg.recording import (
    UNITS_UV,
    Event,
    Note,
    Recording,
    Segment,
    checked_rate,
    named,
    pick_eeg,
    place_events,
    placed,
    possible_uv,
    take_rows,
    unit_in_uv,
)  # fmt: skip
from bothways.errors import UserError


def from_array(
    data: Any,
    ch_names: Sequence[str],
    sfreq_hz: float | int,
    *,
    unit: str,
    events: Sequence[Any] = (),
    name: str = "array",
    subject: str = "",
    session: str = "",
) -> Recording:
    """Makes a recording of an array.

    Args:
        data: samples [C T], or pieces that do not follow on each other [n C T]; what a masked array masks is missing.
        ch_names: a name for each channel; what is no scalp EEG by its name is left out.
        sfreq_hz: the rate.
        unit: what the numbers are: `V`, `mV`, `uV` or `nV`.
        events: (onset_s, duration_s, label) since the start; of pieces as if they followed on each other.
        name: its name in reports and stores, such as `sub-01_rest`.
        subject: whose it is; empty = by the name.
        session: empty = by the name.

    Raises:
        UserError: shape, names, rate, unit or events do not fit, or there is no EEG.
    """
    for what, text in (("name", name), ("subject", subject), ("session", session)):
        if not isinstance(text, str):
            raise UserError(f"{what}: expected text, got {type(text).__name__}; put quotation marks around it")
    path = Path(name)
    ch_names, rate_hz = _names(name, ch_names), _rate(name, sfreq_hz)
    if isinstance(data, np.ma.MaskedArray) and data.dtype.kind in "fiu":
        data = np.ma.filled(data.astype(np.float64), np.nan)
    try:
        samples = np.asarray(data)
    except (TypeError, ValueError):
        raise UserError(f"{name}: expected an array [C T] or [n C T], got rows of different lengths") from None
    factor = unit_in_uv(unit) if isinstance(unit, str) else None
    if factor is None:
        raise UserError(f"{name}: unit: expected one of {', '.join(UNITS_UV)}, got {unit!r}")
    if samples.ndim not in (2, 3) or not (
        np.issubdtype(samples.dtype, np.floating) or np.issubdtype(samples.dtype, np.integer)
    ):
        raise UserError(f"{name}: expected real numbers [C T] or [n C T], got {samples.dtype} {samples.shape}")
    n_channels, n = samples.shape[-2:]
    if n_channels != len(ch_names):
        turned = "; turn the array, it seems to be [T C]" if n == len(ch_names) else ""
        raise UserError(f"{name}: expected {len(ch_names)} channels as named, got an array {samples.shape}{turned}")
    if samples.size == 0:
        raise UserError(f"{name}: no data: the array {samples.shape} holds no samples")
    pieces = samples.shape[0] if samples.ndim == 3 else 1
    flat = np.moveaxis(samples, -2, 0).reshape(n_channels, -1)
    sfreq_hz = checked_rate(path, rate_hz)
    segments = [Segment(k * n, (k + 1) * n, k * n / sfreq_hz) for k in range(pieces)]
    notes = (
        [Note("gaps", f"{pieces} pieces of {n / sfreq_hz:g} s; no window crosses their edges")] if pieces > 1 else []
    )
    picks, channels, left_out = pick_eeg(path, ch_names)
    data_uv = np.empty((len(picks), flat.shape[1]), np.float32)
    for row, index in zip(data_uv, picks):
        row[:] = possible_uv(flat[index].astype(np.float64) * factor)
    if not isinstance(events, Iterable):
        raise UserError(f"{name}: events: expected a list of (onset_s, duration_s, label), got {type(events).__name__}")
    stamped = [_stamped(name, event) for event in events]
    positions = placed(channels, notes)
    return Recording(
        path, "array", data_uv, named(channels, notes, positions), [ch_names[index] for index in picks], positions,
        sfreq_hz, segments, place_events(stamped, segments, sfreq_hz, notes), left_out, None, notes,
        file_units=[unit] * len(picks), subject=subject, session=session,
    )  # fmt: skip


def _names(name: str, ch_names: Any) -> list[str]:
    names = [] if isinstance(ch_names, str) or not isinstance(ch_names, Iterable) else list(ch_names)
    if not names or not all(isinstance(one, str) for one in names):
        got = repr(ch_names)[:80]
        raise UserError(f"{name}: ch_names: expected a name for each channel, such as ['Fp1', 'Cz'], got {got}")
    return [str(one) for one in names]


def _rate(name: str, sfreq_hz: Any) -> float:
    try:
        return float(sfreq_hz)
    except (TypeError, ValueError):
        raise UserError(f"{name}: sfreq_hz: expected a rate in Hz, got {repr(sfreq_hz)[:80]}") from None


def _stamped(name: str, event: Any) -> tuple[float, float, str]:
    try:
        onset_s, duration_s, label = event
        stamped = float(onset_s), float(duration_s), str(label)
    except (TypeError, ValueError):
        stamped = math.nan, 0.0, ""
    if not math.isfinite(stamped[0]) or not 0 <= stamped[1] < math.inf:
        raise UserError(
            f"{name}: events: expected (onset_s, duration_s, label) with seconds, got {repr(event)[:80]}; correct it"
        )
    return stamped


def from_mne(source: Any, *, name: str = "", subject: str = "", session: str = "") -> Recording:
    """Makes a recording of an `mne.io.Raw` or `mne.Epochs`.

    Each epoch becomes a segment, with an event of its label over all of it. Where epochs overlap in time, the same
    signal is in more than one, and their times count as if they followed on each other: each keeps its own label.

    Args:
        source: as mne gives it; volts.
        name: its name in reports and stores; empty = its file's name.
        subject: whose it is; empty = by the name.
        session: empty = by the name.

    Raises:
        UserError: it is neither, or holds no EEG or no data.
    """
    import mne

    files = [file for file in getattr(source, "filenames", None) or [getattr(source, "filename", None)] if file]
    path = Path(name or (files[0] if files else "mne"))
    if isinstance(source, mne.io.BaseRaw):
        recording = convert(path, source, None, of_file=False)
    elif isinstance(source, mne.BaseEpochs):
        recording = _of_epochs(path, source)
    else:
        raise UserError(f"{path}: expected an mne Raw or Epochs, got {type(source).__name__}")
    return replace(recording, subject=subject, session=session)


def read_epochs(path: Path, unit: str | None) -> Recording:
    """Reads a FIF file of mne's Epochs (`…-epo.fif`); see `from_mne` and `recording.read_recording`.

    Raises:
        UserError: mne does not read it, or it holds no EEG or no data.
    """
    import mne

    try:
        with warned(path) as notes:
            epochs = mne.read_epochs(path, preload=True, verbose="warning")
    except (OSError, MemoryError):
        raise
    except Exception as problem:  # mne's readers raise all kinds on damaged files
        why = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
        raise UserError(f"{path}: expected mne's Epochs, but {why}; check that it was copied whole") from None
    recording = _of_epochs(path, epochs)
    recording = replace(recording, notes=recording.notes + notes)
    if unit is None:
        return recording
    factor = (unit_in_uv(unit) or 1e6) / 1e6  # mne takes them for volts
    rows = take_rows(recording.data_uv, range(len(recording.ch_names)), [factor] * len(recording.ch_names))
    return replace(recording, data_uv=rows)


def _of_epochs(path: Path, epochs: Any) -> Recording:
    import mne

    with mne.utils.use_log_level("error"):
        data = epochs.get_data(copy=False)
        if data.size == 0:
            raise UserError(f"{path}: no data: the epochs hold no samples; leave them out")
        in_time = np.argsort(epochs.events[:, 0], kind="stable")  # they may have been shuffled or put together
        marks = epochs.events[in_time]
        joined = mne.io.RawArray(np.concatenate(list(data[in_time]), axis=1), epochs.info.copy())
    recording = convert(path, joined, None, of_file=False)
    sfreq_hz, n, samples = recording.sfreq_hz, data.shape[2], marks[:, 0]
    # mne keeps the samples of the events at the rate that the raw data had
    rates_hz = set(np.ravel(getattr(epochs, "_raw_sfreq", None) or sfreq_hz).tolist())
    old_hz = float(rates_hz.pop()) if len(rates_hz) == 1 else sfreq_hz
    onsets_s = (samples - samples.min()) / old_hz
    overlapping = sum(b - a < (n - 0.5) / sfreq_hz for a, b in pairwise(onsets_s))
    if overlapping:
        onsets_s = np.arange(len(marks)) * n / sfreq_hz
    names = {code: label for label, code in epochs.event_id.items()}
    segments = [Segment(k * n, (k + 1) * n, float(onset_s)) for k, onset_s in enumerate(onsets_s)]
    events = [
        Event(segment.onset_s, n / sfreq_hz, str(names.get(int(code), code)), segment.start)
        for segment, code in zip(segments, marks[:, 2])
    ]
    notes = [*recording.notes, Note("gaps", f"{len(segments)} epochs of {n / sfreq_hz:g} s, from {epochs.tmin:g} s on")]
    if overlapping:
        text = "signal is doubled, and times count as if one followed on the other"
        notes.append(Note("overlapping_epochs", f"{overlapping} epochs begin before the one in front ends: {text}"))
    if epochs.metadata is not None:
        notes.append(
            Note("metadata_left_out", f"columns not taken over: {', '.join(map(str, epochs.metadata.columns))}")
        )
    if abs(old_hz - sfreq_hz) > 1e-6:
        notes.append(Note("resampled", f"epochs were brought from {old_hz:g} to {sfreq_hz:g} Hz before"))
    return replace(recording, format="Epochs", segments=segments, events=events, notes=notes)


def from_braindecode(dataset: Any) -> list[Recording]:
    """Makes recordings of a braindecode data set, one for each of its members.

    `subject` and `session` come from the description. Where it was cut into windows that refer to the continuous
    signal, each window with a target becomes an event of that label in place of the annotations; of windows with
    signals of their own each becomes a segment, as in `from_mne`.

    Args:
        dataset: a `BaseConcatDataset` or one of its members; known by what it has (`datasets`, `raw`, `windows`).

    Raises:
        UserError: it has neither, or holds no EEG.
    """
    members = getattr(dataset, "datasets", [dataset])
    recordings = []
    for index, member in enumerate(members):
        source = getattr(member, "windows", None)
        source = getattr(member, "raw", None) if source is None else source
        if source is None:
            raise UserError(
                f"braindecode: expected data sets with `raw` or `windows`, member {index} is {type(member).__name__}"
            )
        about = getattr(member, "description", None)
        about = {} if about is None else {str(key): value for key, value in dict(about).items()}
        subject, session = (str(about[key]) if about.get(key) is not None else "" for key in ("subject", "session"))
        parts = [f"{short}-{about[key]}" for short, key in (("sub", "subject"), ("ses", "session"), ("run", "run"))
                 if about.get(key) is not None]  # fmt: skip
        recording = from_mne(source, name="_".join([*parts, f"{index:04d}"]), subject=subject, session=session)
        windows = getattr(member, "metadata", None) if getattr(member, "windows", None) is None else None
        recordings.append(recording if windows is None else _with_windows(recording, windows))
    return recordings


def _with_windows(recording: Recording, windows: Any) -> Recording:
    """Puts braindecode's table of windows in the place of the events, unless none of them has a target."""
    if {int(target) for target in windows["target"] if isinstance(target, int | np.integer)} == {-1}:
        return replace(recording, notes=[*recording.notes, Note("windows_left_out", "windows without targets")])
    notes = [note for note in recording.notes if note.code not in ("events_outside", "events_shortened")]
    spans = [
        (start / recording.sfreq_hz, (stop - start) / recording.sfreq_hz, str(target))
        for start, stop, target in zip(windows["i_start_in_trial"], windows["i_stop_in_trial"], windows["target"])
    ]
    notes.append(Note("events_of_windows", f"{len(spans)} windows in place of {len(recording.events)} annotations"))
    events = place_events(spans, recording.segments, recording.sfreq_hz, notes)
    return replace(recording, events=events, notes=notes)
