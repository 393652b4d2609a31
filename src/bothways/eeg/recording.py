"""One recording in memory, in microvolts, with everything that was changed or lost in reading it noted."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from bothways.eeg.channels import (
    Channel,
    electrode_positions,
    parse_labels,
    shown,
    trusted_positions,
    unique_names,
)  # fmt: skip
from bothways.eeg.reading import reading
from bothways.errors import UserError

UNITS_UV = {"V": 1e6, "mV": 1e3, "uV": 1.0, "nV": 1e-3}
"""Microvolts in one of each unit."""
HELD_BYTES = 2**28
"""Samples of a recording, as float32, up to which it is held in memory as a whole."""
GROUP_BYTES = 2**27
"""Of a larger one so much is held at a time."""
MARKED_BAD = re.compile(r"(?i)(bad|edge)([ _].*)?")
"""Labels of stretches that shall not be used, as mne has them (`BAD_muscle`, `bad segment`, `EDGE boundary`)."""


@dataclass(frozen=True)
class Note:
    """Something that was changed, lost or looks wrong; `code` is a stable word for programs."""

    code: str
    message: str


@dataclass(frozen=True)
class Segment:
    """A stretch without a gap: stored samples [start, stop), and when it really began."""

    start: int
    stop: int
    onset_s: float


@dataclass(frozen=True)
class Event:
    """Something marked: `onset_s` in true time since the start, `start_sample` where that is stored.

    `ch_names` are the channels that it is about, as the file names them; empty = all.
    """

    onset_s: float
    duration_s: float
    label: str
    start_sample: int
    ch_names: list[str] = field(default_factory=list)


class LazyRows:
    """Rows [C T] of what is too large to hold, read again each time they are asked for.

    It can be sliced, iterated over and turned into an array as an array can; `row_groups` is the way to go through it.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, shape: tuple[int, int], read: "Callable[[slice], Float32[np.ndarray, 'c T']]") -> None:
        self.shape, self._read = shape, read

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        rows, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(rows, slice) and rows.step in (None, 1):
            return self._read(rows)[(slice(None), *rest)]
        if isinstance(rows, int | np.integer):
            row = range(len(self))[rows]
            return self._read(slice(row, row + 1))[(0, *rest)]
        return np.asarray(self)[key]

    def __iter__(self) -> "Iterator[Float32[np.ndarray, ' T']]":
        for group in row_groups(self):
            yield from self._read(group)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._read(slice(0, len(self))), dtype)


def row_groups(data: "Float32[np.ndarray, 'C T'] | LazyRows") -> list[slice]:
    """Returns slices that cover all rows, of so many that a group takes at most `GROUP_BYTES`, and at least one."""
    n_rows, n_samples = data.shape
    together = max(1, min(n_rows, GROUP_BYTES // max(4 * n_samples, 1)))
    return [slice(at, min(at + together, n_rows)) for at in range(0, n_rows, together)]


def held_or_lazy(
    shape: tuple[int, int], read: "Callable[[slice], Float32[np.ndarray, 'c T']]"
) -> "Float32[np.ndarray, 'C T'] | LazyRows":
    """Returns all rows at once where they are few, else what reads them when they are asked for."""
    return read(slice(0, shape[0])) if 4 * shape[0] * shape[1] <= HELD_BYTES else LazyRows(shape, read)


@dataclass(frozen=True)
class Recording:
    """One recording before any filter.

    Attributes:
        path: the file.
        format: `EDF`, `EDF+D`, `BrainVision`, …
        data_uv: EEG channels only, microvolts, NaN where data are missing.
        ch_names: 10-05 names where known, else the file's own; unique.
        file_names: the same channels as the file names them.
        positions: anode and cathode (head radius 1; x right, y front, z up); NaN = unknown or no cathode.
        sfreq_hz: the EEG's own rate.
        segments: stretches without a gap, in order.
        events: annotations and triggers that fall in a segment.
        left_out: name in the file -> why it is not among the channels.
        meas_date: the recorder's clock at the start, without a time zone; None = unknown.
        notes: each thing that was changed, lost or looks wrong.
        marked_bad: channels (10-05 names) that the file itself calls bad.
        file_units: the channels' units as the file states them; "" = it states none. Empty = not known.
        subject: whose it is, where its maker said so; "" = told by the path.
        session: the same of the session.
    """

    path: Path
    format: str
    data_uv: "Float32[np.ndarray, 'C T'] | LazyRows"
    ch_names: list[str]
    file_names: list[str]
    positions: Float32[np.ndarray, "C 2 3"]
    sfreq_hz: float
    segments: list[Segment]
    events: list[Event] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    meas_date: datetime | None = None
    notes: list[Note] = field(default_factory=list)
    marked_bad: list[str] = field(default_factory=list)
    file_units: list[str] = field(default_factory=list)
    subject: str = ""
    session: str = ""

    @property
    def duration_s(self) -> float:
        """Seconds of signal, gaps not counted."""
        return self.data_uv.shape[1] / self.sfreq_hz


def take_rows(
    data_uv: "Float32[np.ndarray, 'C T'] | LazyRows", rows: Sequence[int], factors: Sequence[float] | None = None
) -> "Float32[np.ndarray, 'c T'] | LazyRows":
    """Returns some rows, each times its factor (None = 1); what is read when asked for stays so."""
    scale = np.ones((len(rows), 1), np.float32) if factors is None else np.array(factors, np.float32)[:, None]
    if isinstance(data_uv, np.ndarray):
        return np.asarray(data_uv[list(rows)] * scale)
    lazy = data_uv
    return LazyRows(
        (len(rows), lazy.shape[1]),
        lambda part: np.stack([lazy[row] for row in rows[part]]) * scale[part],
    )


def unit_in_uv(text: str) -> float | None:
    """Returns the microvolts in one of a unit as files write it (`uV`, `µV`, `mV`, …), or None for no voltage."""
    # µ arrives as U+00B5, as the Greek letter, and as the Latin-1 reading of the UTF-8 of either
    plain = re.sub("Âµ|Î¼|[µμ]", "u", "".join(text.split()))
    for word, prefix in (("mi[ck]ro", "u"), ("milli", "m"), ("nano", "n")):
        plain = re.sub(f"(?i)^{word}", prefix, plain)
    plain = re.sub("(?i)v(olts?|lts?|ol?)?$", "V", plain)  # a field of eight letters cuts the word
    if plain.lower() in ("uv", "nv", "v"):
        plain = plain[:-1].lower() + "V"
    return UNITS_UV.get(plain)


def _odd_case(text: str) -> bool:
    """Whether a unit is a voltage by its letters but not by their case (`mv`, `UV`)."""
    return unit_in_uv(text) is not None and re.sub("Âµ|Î¼|[µμ]", "u", text.strip()) in {
        spelling for unit in UNITS_UV for spelling in (unit.lower(), unit.upper(), unit.capitalize())
    } - set(UNITS_UV)


def read_recording(path: str | Path, *, unit: str | None = None, sfreq_hz: float | int | None = None) -> Recording:
    """Reads one recording of any format that mne reads, or a table (CSV, TSV, Parquet).

    In a BIDS folder, what the files beside it say (channels, events, electrodes) is taken in; see `bids`.

    Args:
        path: the file; for formats of several files, the header (`.vhdr`, `.set`, …).
        unit: what the file's numbers really are (`V`, `mV`, `uV`, `nV`), where it states it wrongly or not at all.
        sfreq_hz: the rate of a table that has no time column.

    Raises:
        UserError: no such file, not a recording, damaged, no EEG channels or no data.
    """
    path = Path(path)
    if unit is not None and unit_in_uv(unit) is None:
        raise UserError(f"unit: expected one of {', '.join(UNITS_UV)}, got {unit!r}")
    if not path.exists():
        raise UserError(f"{path}: expected a recording here, found none; check the path")
    from bothways.eeg.bids import with_bids

    with reading(path):
        return with_bids(_read(path, unit, sfreq_hz), unit)


def _read(path: Path, unit: str | None, sfreq_hz: float | int | None) -> Recording:
    from bothways.eeg.edf_recording import looks_like_edf, read_edf
    from bothways.eeg.objects import read_epochs
    from bothways.eeg.other_formats import read_with_mne
    from bothways.eeg.persyst import read_persyst
    from bothways.eeg.table_files import TABLE_ENDINGS
    from bothways.eeg.tables import read_table_recording
    from bothways.eeg.xdf import XDF_ENDINGS, read_xdf

    if path.is_file() and path.name.lower().endswith((*TABLE_ENDINGS, ".txt", ".txt.gz")):
        return read_table_recording(path, unit, sfreq_hz)
    if sfreq_hz is not None:
        raise UserError(f"{path}: the file states its own rate, so sfreq_hz cannot be {sfreq_hz:g}; leave it out")
    if path.is_file() and looks_like_edf(path):
        return read_edf(path, unit)
    if re.search(r"(?i)[-_]epo\.fif(\.gz)?$", path.name):  # as mne names them
        return read_epochs(path, unit)
    if path.name.lower().endswith(XDF_ENDINGS):
        return read_xdf(path, unit)
    if path.suffix.lower() == ".lay":
        return read_persyst(path, unit)
    return read_with_mne(path, unit)


def listed(names: Sequence[str]) -> str:
    """The first six of some names, of each its beginning, and how many more there are."""
    first = [shown(name if len(name) <= 100 else f"{name[:99]}…") for name in names[:6]]
    return ", ".join(first) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def checked_rate(path: Path, sfreq_hz: float) -> float:
    """Returns the rate if an EEG can have it.

    Raises:
        UserError: it is below 10 Hz or above 100 kHz.
    """
    if not 10 <= sfreq_hz <= 1e5:
        raise UserError(f"{path}: expected a sampling rate of 10 Hz to 100 kHz, got {sfreq_hz:g} Hz; header damaged")
    return sfreq_hz


def possible_uv(values_uv: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Returns the values with NaN for what no voltage can be (not finite, or above a million volts)."""
    return np.where(np.abs(values_uv) < 1e12, values_uv, np.nan)


def leave_out(left_out: dict[str, str], name: str, reason: str) -> None:
    """Notes why a channel is not among the EEG; a second one of the same name gets a number."""
    name = shown(name)
    number, key = 2, name
    while key in left_out:
        key, number = f"{name}#{number}", number + 1
    left_out[key] = reason


def pick_eeg(
    path: Path, labels: Sequence[str], why_not: Callable[[int, Channel], str] = lambda _, channel: channel.left_out
) -> tuple[list[int], list[Channel], dict[str, str]]:
    """Chooses the EEG among the channels of a file.

    Args:
        path: for messages.
        labels: as the file names them.
        why_not: says of a channel, by its index and what is known by its name, why it is none; empty = it is one.

    Returns:
        The indices of the EEG, what is known of each, and why which others are left out.

    Raises:
        UserError: there is no EEG.
    """
    picks: list[int] = []
    channels: list[Channel] = []
    left_out: dict[str, str] = {}
    for index, channel in enumerate(parse_labels(labels)):
        if why := why_not(index, channel):
            leave_out(left_out, labels[index], why)
        else:
            picks.append(index)
            channels.append(channel)
    if not picks:
        raise no_eeg_error(path, left_out)
    return picks, channels, left_out


def unit_notes(labels: Sequence[str], units: Sequence[str], unit: str | None) -> list[Note]:
    """The notes of units that are no voltage, or one in unusual case; `unit` is what the user states for all."""
    notes = []
    if unit is None and (guessed := [f"{a} ({b or 'blank'})" for a, b in zip(labels, units) if unit_in_uv(b) is None]):
        notes.append(Note("unit_guessed", f"unit taken for microvolts: {listed(guessed)}"))
    if unusual := [f"{a} ({b})" for a, b in zip(labels, units) if _odd_case(b)]:
        notes.append(Note("unit_case", f"unit in unusual case: {listed(unusual)}; mv taken for mV, others alike"))
    return notes


def no_eeg_error(path: Path, left_out: dict[str, str]) -> UserError:
    """The error for a file without EEG, with what it holds instead."""
    found = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:4]) or "no channels at all"
    return UserError(f"{path}: no EEG channels among the {len(left_out)} in the file ({found}); leave the file out")


def placed(
    channels: Sequence[Channel], notes: list[Note], points: "Float64[np.ndarray, 'C 3'] | None" = None
) -> Float32[np.ndarray, "C 2 3"]:
    """Returns where the electrodes lie, by `points` of the file where those can be trusted, else by their names.

    A note says so where they are the file's, or a net's template.
    """
    trusted = None if points is None else trusted_positions(points, channels)
    if trusted is not None:
        notes.append(Note("digitised_positions", "electrode positions are the file's own"))
        return trusted
    positions, net = electrode_positions(channels)
    if net:
        notes.append(Note("template_positions", f"positions of {len(channels)} electrodes by their numbers in {net}"))
    return positions


def named(channels: Sequence[Channel], notes: list[Note], positions: Float32[np.ndarray, "C 2 3"]) -> list[str]:
    """Returns unique names; notes which were double and which have no known place."""
    names, double = unique_names([channel.name for channel in channels])
    if double:
        notes.append(Note("duplicate_labels", f"more than one channel is named {listed(double)}; numbered in order"))
    unknown = [name for name, position in zip(names, positions) if np.isnan(position[0]).any()]
    if unknown:
        notes.append(Note("unknown_names", f"no place on the head is known for {listed(unknown)}"))
    return names


def true_time_s(stored_s: float, segments: Sequence[Segment], sfreq_hz: float) -> float:
    """Returns the true time of a place given in stored seconds (gaps closed up)."""
    inside = [segment for segment in segments if segment.start <= stored_s * sfreq_hz] or [segments[0]]
    return inside[-1].onset_s + stored_s - inside[-1].start / sfreq_hz


def whole_sample(at: float) -> int:
    """The nearest whole sample; of two equally near ones the later, also where the half is inexact."""
    return math.floor(at + 0.5 + 1e-6)


def place_events(
    events: Sequence[tuple[float, float, str] | tuple[float, float, str, list[str]]],
    segments: Sequence[Segment],
    sfreq_hz: float,
    notes: list[Note],
) -> list[Event]:
    """Maps (true onset, duration, label, channels if not all) to stored samples.

    An event that lies outside every segment is left out; one that begins before its data or runs past them is cut to
    them (a gap inside stays inside). Both are counted in the notes.
    """
    placed, outside, shortened = [], [], []
    ends_s = [segment.onset_s + (segment.stop - segment.start) / sfreq_hz for segment in segments]
    for onset_s, duration_s, label, *about in sorted(events):
        label = shown(label)
        stop_s = onset_s + (duration_s if duration_s >= 0 else 0.0)  # not a number is none
        reached = [
            (segment, end_s)
            for segment, end_s in zip(segments, ends_s)
            if onset_s < end_s and (segment.onset_s - 1e-9 <= onset_s or segment.onset_s < stop_s)
        ]
        if not reached:
            outside.append(f"{label} at {onset_s:g} s")
            continue
        first, end_s = reached[0][0], reached[-1][1]
        begins_s = onset_s if first.onset_s - 1e-9 <= onset_s else first.onset_s
        lasts_s = duration_s if duration_s >= 0 else 0.0
        if begins_s > onset_s or stop_s > end_s + 1e-9:
            lasts_s = min(stop_s, end_s) - begins_s
            shortened.append(label)
        sample = first.start + whole_sample((begins_s - first.onset_s) * sfreq_hz)
        placed.append(Event(begins_s, lasts_s, label, min(sample, first.stop - 1), *about))
    for code, which, what in (
        ("events_outside", outside, "lie where no data are and are left out"),
        ("events_shortened", shortened, "begin before or run past their data and are shortened"),
    ):
        if which:
            notes.append(Note(code, f"{len(which)} events {what}: {listed(which[:4])}"))
    return placed
