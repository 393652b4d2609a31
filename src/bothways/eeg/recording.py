"""One recording in memory, in microvolts, with everything that was changed or lost in reading it noted."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from bothways.eeg.channels import Channel, electrode_positions, parse_labels, shown, unique_names
from bothways.eeg.edf import EdfFile, EdfSignal, open_edf, status_events
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
_JITTER_S = 0.05
"""Record times of a file that calls itself continuous may be this inexact and mean no gap."""


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


def odd_case(text: str) -> bool:
    """Whether a unit is a voltage by its letters but not by their case (`mv`, `UV`)."""
    return unit_in_uv(text) is not None and re.sub("Âµ|Î¼|[µμ]", "u", text.strip()) in {
        spelling for unit in UNITS_UV for spelling in (unit.lower(), unit.upper(), unit.capitalize())
    } - set(UNITS_UV)


def odd_case_note(channels: Sequence[str]) -> Note:
    """The note of units that `odd_case` is true of."""
    return Note("unit_case", f"unit in unusual case: {listed(channels)}; mv taken for mV, others alike")


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
    if path.is_file() and _looks_like_edf(path):
        return _read_edf(open_edf(path), unit)
    if re.search(r"(?i)[-_]epo\.fif(\.gz)?$", path.name):  # as mne names them
        return read_epochs(path, unit)
    if path.name.lower().endswith(XDF_ENDINGS):
        return read_xdf(path, unit)
    if path.suffix.lower() == ".lay":
        return read_persyst(path, unit)
    return read_with_mne(path, unit)


def _looks_like_edf(path: Path) -> bool:
    if path.suffix.lower() in (".edf", ".bdf", ".rec"):
        return True
    with path.open("rb") as file:
        return file.read(8) in (b"0       ", b"\xffBIOSEMI")


def _read_edf(file: EdfFile, unit: str | None) -> Recording:
    notes = [Note(code, message) for code, message in file.notes]
    ordinary = [signal for signal in file.signals if not signal.is_annotation]
    if not ordinary:
        raise UserError(f"{file.path}: annotations only: the file holds events and no signal; use it as labels")
    if file.record_s == 0:
        raise UserError(f"{file.path}: expected a record duration above 0 in the EDF header, got 0; header damaged")
    if not file.n_records:
        raise UserError(f"{file.path}: no data: the header is followed by no whole record; leave the file out")

    chosen, channels, left_out = _pick_edf(file, ordinary, unit, notes)
    if not chosen:
        raise no_eeg_error(file.path, left_out)
    sfreq_hz = checked_rate(file.path, file.rate_hz(chosen[0]))
    for signal in chosen:
        if signal.no_scale is not None:
            which, (low, high) = signal.no_scale
            notes.append(
                Note("uncalibrated", f"{signal.label}: {which} range {low:g} to {high:g} is no scale; missing")
            )
    n_samples = file.n_records * chosen[0].n_per_record

    def read(rows: slice) -> Float32[np.ndarray, "c T"]:
        picked = chosen[rows]
        out = np.full((len(picked), n_samples), np.nan, np.float32)
        for first, pieces in file.pieces(picked):
            start = first * chosen[0].n_per_record
            for row, signal, integers in zip(out, picked, pieces):
                if signal.no_scale is None:
                    factor = unit_in_uv(unit or signal.unit)
                    gain, offset = signal.scale
                    values_uv = (integers * gain + offset) * (1.0 if factor is None else factor)
                    row[start : start + len(integers)] = possible_uv(values_uv)
        return out

    data_uv = held_or_lazy((len(chosen), n_samples), read)
    segments, events = _edf_times(file, sfreq_hz, chosen[0].n_per_record, notes)
    positions = placed(channels, notes)
    return Recording(
        file.path, file.format, data_uv, named(channels, notes, positions), [signal.label for signal in chosen],
        positions, sfreq_hz, segments, events, left_out, file.start, notes,
        file_units=[signal.unit for signal in chosen],
    )  # fmt: skip


def _pick_edf(
    file: EdfFile, ordinary: list[EdfSignal], unit: str | None, notes: list[Note]
) -> tuple[list[EdfSignal], list[Channel], dict[str, str]]:
    """Chooses the EEG among the signals: by name, then unit, then rate."""
    left_out: dict[str, str] = {}
    candidates: list[tuple[EdfSignal, Channel]] = []
    guessed: list[str] = []
    unusual: list[str] = []
    for signal, channel in zip(ordinary, parse_labels([signal.label for signal in ordinary])):
        is_voltage = unit_in_uv(signal.unit) is not None
        if channel.left_out:
            leave_out(left_out, signal.label, channel.left_out)
        elif signal.n_per_record == 0:
            leave_out(left_out, signal.label, "no samples")
        elif not is_voltage and signal.unit and channel.anode is None:
            leave_out(left_out, signal.label, f"unit {signal.unit!r} is no voltage")
        else:
            if odd_case(signal.unit):
                unusual.append(f"{signal.label} ({signal.unit})")
            if not is_voltage:
                guessed.append(f"{signal.label} ({signal.unit or 'blank'})")
            candidates.append((signal, channel))
    known = [signal.n_per_record for signal, channel in candidates if channel.anode] or [
        signal.n_per_record for signal, _ in candidates
    ]
    if known:
        # the rate that most channels with a place on the scalp have; of equal ones the higher
        n = max(Counter(known).items(), key=lambda item: (item[1], item[0]))[0]
        rate_hz = n / file.record_s
        lost: list[str] = []
        for signal, channel in candidates:
            if signal.n_per_record != n:
                leave_out(left_out, signal.label, f"{file.rate_hz(signal):g} Hz, the EEG has {rate_hz:g} Hz")
                if channel.anode:
                    lost.append(f"{signal.label} ({file.rate_hz(signal):g} Hz)")
        if lost:
            notes.append(Note("other_rate", f"scalp EEG that has not the others' {rate_hz:g} Hz: {listed(lost)}"))
        candidates = [(signal, channel) for signal, channel in candidates if signal.n_per_record == n]
    if guessed and unit is None:
        notes.append(Note("unit_guessed", f"unit taken for microvolts: {listed(guessed)}"))
    if unusual:
        notes.append(odd_case_note(unusual))
    return [signal for signal, _ in candidates], [channel for _, channel in candidates], left_out


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


def no_eeg_error(path: Path, left_out: dict[str, str]) -> UserError:
    """The error for a file without EEG, with what it holds instead."""
    found = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:4]) or "no channels at all"
    return UserError(f"{path}: no EEG channels among the {len(left_out)} in the file ({found}); leave the file out")


def placed(channels: Sequence[Channel], notes: list[Note]) -> Float32[np.ndarray, "C 2 3"]:
    """Returns where the electrodes lie by their names; notes the template where that is a net's."""
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


def _edf_times(
    file: EdfFile, sfreq_hz: float, n_per_record: int, notes: list[Note]
) -> tuple[list[Segment], list[Event]]:
    starts_s, texts = file.annotations()
    given = [start for start in starts_s if start is not None]
    zero_s = given[0] if given and starts_s[0] is not None else 0.0
    n_samples = file.n_records * n_per_record
    segments = [Segment(0, n_samples, 0.0)]
    timed = [(index, start) for index, start in enumerate([zero_s, *starts_s[1:]]) if start is not None]
    backwards = [j + 1 for (i, a), (j, b) in pairwise(timed) if b <= a or b < a + (j - i) * file.record_s - _JITTER_S]
    if backwards and file.format.endswith("+D"):
        raise UserError(
            f"{file.path}: expected records that follow each other, but record {backwards[0]} begins before the end "
            "of the one before; correct the file's record times or leave it out"
        )
    if backwards:
        notes.append(
            Note("record_times", f"{len(backwards)} records begin before the one in front ends; taken as following on")
        )
    elif file.format.endswith(("+C", "+D")):
        stated_continuous = file.format.endswith("+C")
        if len(given) < len(starts_s) and not stated_continuous:
            notes.append(
                Note("record_times", f"{len(starts_s) - len(given)} records carry no time; taken as following on")
            )
        # rounding in the header and stamps; a gap shorter than half a sample moves no sample
        tolerance_s = max(0.5 / sfreq_hz, _JITTER_S if stated_continuous else 1e-3)
        edges, onsets_s, expected_s = [0], [0.0], 0.0
        for index, start_s in enumerate(starts_s):
            at_s = expected_s if start_s is None else start_s - zero_s
            if abs(at_s - expected_s) > tolerance_s:
                edges.append(index * n_per_record)
                onsets_s.append(at_s)
            expected_s = at_s + file.record_s
        segments = [Segment(a, b, t) for a, b, t in zip(edges, [*edges[1:], n_samples], onsets_s)]
        if len(segments) > 1:
            against = " (the header says continuous, the record times do not)" if stated_continuous else ""
            at = listed([f"{t:g}" for t in onsets_s])
            notes.append(Note("gaps", f"{len(segments)} pieces, starting at {at} s{against}"))
    stamps = [text for text in texts if not re.fullmatch(r"[+-]\d+(\.\d*)?", text[2])]
    events = [(onset_s - zero_s, duration_s, text) for onset_s, duration_s, text in stamps]
    for signal in file.signals:
        if re.fullmatch(r"(?i)(bdf )?status( ?\d+)?|trig(ger)?|sti ?\d*", signal.label):
            for sample, code in status_events(file.digital(signal)):
                stored_s = sample / file.rate_hz(signal)
                events.append((true_time_s(stored_s, segments, sfreq_hz), 0.0, str(code)))
    return segments, place_events(events, segments, sfreq_hz, notes)


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
