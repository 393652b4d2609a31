"""Persyst: a header of text (`.lay`) and its samples (`.dat`).

mne takes the pieces of such a recording as one without gaps, and no header without a date of birth.
"""

import math
import re
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from bothways.eeg.channels import shown
from bothways.eeg.reading import decoded
from bothways.eeg.recording import (
    Note,
    Recording,
    Segment,
    checked_rate,
    held_or_lazy,
    listed,
    named,
    pick_eeg,
    place_events,
    placed,
    possible_uv,
    true_time_s,
    unit_in_uv,
)
from bothways.errors import UserError

_WIDTHS = {0: "<i2", 7: "<i4"}
_JITTER_S = 0.1
_DRIFT = 1e-4
_MOST_OFF_S = 0.5
"""A time may be late by `_JITTER_S` and by the share `_DRIFT` of what passed of its piece, but no more than this, and
mean no gap."""
_DAY_S = 86400
_PIECE = 2**16  # samples read at a time
_DATES = ("%m/%d/%Y", "%d-%m-%Y", "%Y.%m.%d", "%d-%b-%Y", "%m/%d/%y")


def read_persyst(path: Path, unit: str | None) -> Recording:
    """Reads one recording; see `recording.read_recording`.

    Raises:
        UserError: the header lacks what is needed, or the file of the samples is missing.
    """
    notes: list[Note] = []
    sections = _sections(path)
    info = {key.lower(): value for key, value in _pairs(sections.get("fileinfo", []))}
    sfreq_hz = checked_rate(path, _number(path, info, "samplingrate"))
    factor_uv = _number(path, info, "calibration") * (unit_in_uv(unit or "uV") or 1.0)
    n_rows, begins = _whole(path, info, "waveformcount"), _whole(path, info, "headerlength", 0.0)
    width = _WIDTHS.get(_whole(path, info, "datatype"))
    interleaved = info.get("filetype", "interleaved").lower() == "interleaved"
    if width is None or not interleaved or n_rows < 1 or begins < 0 or factor_uv == 0:
        got = shown(", ".join(f"{key}={value}" for key, value in info.items() if key != "file")[:300])
        raise UserError(
            f"{path}: expected FileType=Interleaved, DataType 0 or 7, WaveformCount from 1, HeaderLength from 0 and a "
            f"Calibration other than 0, got {got}; export it again"
        )
    data_file = _data_file(path, info.get("file", ""), notes)
    n_samples, rest = divmod(data_file.stat().st_size - begins, n_rows * np.dtype(width).itemsize)
    if n_samples < 1:
        raise UserError(f"{path}: no data: {data_file.name} holds no whole sample; leave the file out")
    if rest:
        notes.append(Note("truncated", f"the last {rest} bytes of {data_file.name} are no whole sample, left out"))

    mapped = [line.rpartition("=") for line in sections.get("channelmap", [])]  # a label may hold a "="
    rows = [(name.strip(), _row(path, name.strip(), row.strip(), n_rows)) for name, equals, row in mapped if equals]
    names = {row: name for name, row in rows}
    for name, row in rows:
        if names[row] != name:
            raise UserError(
                f"{path}: expected a number of its own for each channel, got {row + 1} for {shown(name[:40])} and "
                f"{shown(names[row][:40])}; header damaged"
            )
    picked, channels, left_out = pick_eeg(path, [name for name, _ in rows])
    labels, picks = [rows[index][0] for index in picked], [rows[index][1] for index in picked]

    def read(part: slice) -> Float32[np.ndarray, "c T"]:
        stored = np.memmap(data_file, width, "r", begins, (n_samples, n_rows))
        out = np.empty((len(picks[part]), n_samples), np.float32)
        for start in range(0, n_samples, _PIECE):
            piece = stored[start : start + _PIECE][:, picks[part]].T
            out[:, start : start + _PIECE] = possible_uv(piece * factor_uv)
        return out

    segments = _segments(sections.get("sampletimes", []), n_samples, sfreq_hz, notes)
    events = [
        (true_time_s(stored_s, segments, sfreq_hz) if stored_s >= 0 else stored_s, duration_s, label)
        for stored_s, duration_s, label in _comments(sections.get("comments", []), notes)
    ]
    positions = placed(channels, notes)
    return Recording(
        path, "Persyst", held_or_lazy((len(picks), n_samples), read), named(channels, notes, positions), labels,
        positions, sfreq_hz, segments, place_events(events, segments, sfreq_hz, notes), left_out,
        _start(dict(_pairs(sections.get("patient", [])))), notes,
    )  # fmt: skip


def _sections(path: Path) -> dict[str, list[str]]:
    content = path.read_bytes()
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in map(str.strip, decoded(content).splitlines()):
        if line.startswith("[") and line.endswith("]"):
            lines = sections.setdefault(line[1:-1].strip().lower(), [])
        elif line:
            lines.append(line)
    if "fileinfo" not in sections:
        raise UserError(
            f"{path}: expected a Persyst header with [FileInfo], got one that begins with {content[:16]!r}; check that "
            "it was copied whole"
        )
    return sections


def _pairs(lines: list[str]) -> list[tuple[str, str]]:
    return [(key.strip(), value.strip()) for key, equals, value in (line.partition("=") for line in lines) if equals]


def _number(path: Path, info: dict[str, str], key: str, default: float | None = None) -> float:
    try:
        value = float(info[key]) if key in info or default is None else default
    except (KeyError, ValueError):
        value = math.nan
    if not abs(value) < 1e12:
        got = shown(info.get(key, "none")[:40])
        raise UserError(f"{path}: expected a number for {key} in [FileInfo], got {got!r}; header damaged")
    return value


def _whole(path: Path, info: dict[str, str], key: str, default: float | None = None) -> int:
    value = _number(path, info, key, default)
    if value % 1:
        raise UserError(f"{path}: expected a whole number for {key} in [FileInfo], got {value:g}; header damaged")
    return int(value)


def _row(path: Path, name: str, text: str, n_rows: int) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or not 1 <= int(text) <= n_rows:
        raise UserError(
            f"{path}: expected a number from 1 to {n_rows} for the channel {shown(name[:40])}, got "
            f"{shown(text[:40])!r}; header damaged"
        )
    return int(text) - 1


def _data_file(path: Path, stated: str, notes: list[Note]) -> Path:
    """The file of the samples: beside the header under the stated name, in any case, or under the header's own."""
    name = re.split(r"[\\/]", stated)[-1]
    beside = {file.name.lower(): file for file in path.absolute().parent.iterdir() if file.is_file()}
    own = path.with_suffix(".dat").name
    found = beside.get(name.lower()) or beside.get(own.lower())
    if found is None:
        raise UserError(f"{path}: expected {shown(name or own)} beside it, which holds the samples; copy it there too")
    if name.lower() != found.name.lower():
        notes.append(
            Note("renamed", f"the header names {shown(name)!r}, which is not there; read {found.name} beside it")
        )
    return path.with_name(found.name)


def _segments(lines: list[str], n_samples: int, sfreq_hz: float, notes: list[Note]) -> list[Segment]:
    """Pieces by the times that the header gives for some samples."""
    times: dict[int, float] = {}
    for at, time in _pairs(lines):
        with suppress(ValueError):
            if 0 <= int(at) < n_samples and abs(float(time)) < 1e12:
                times[int(at)] = float(time)
    edges, onsets_s, off_s = [0], [0.0], []
    first_s, before_s, days_s = math.nan, 0.0, 0.0
    for sample, time_s in sorted(times.items()):
        if time_s < before_s - _DAY_S / 2:  # a time of the day, behind midnight
            days_s += _DAY_S
        before_s = time_s
        time_s += days_s
        if math.isnan(first_s):
            first_s = time_s - sample / sfreq_hz
        passed_s = (sample - edges[-1]) / sfreq_hz
        late_s = time_s - first_s - onsets_s[-1] - passed_s
        if late_s > min(_JITTER_S + _DRIFT * passed_s, _MOST_OFF_S):
            edges.append(sample)
            onsets_s.append(time_s - first_s)
        elif abs(late_s) > _JITTER_S:
            off_s.append(late_s)
    if off_s:
        worst_s = max(off_s, key=abs)
        notes.append(
            Note("record_times", f"{len(off_s)} times lie up to {worst_s:.3g} s beside their samples, which are taken "
                 "as following on")
        )  # fmt: skip
    if len(edges) > 1:
        at = listed([f"{onset_s:g}" for onset_s in onsets_s])
        notes.append(Note("gaps", f"{len(edges)} pieces, starting at {at} s"))
    return [Segment(a, b, t) for (a, b), t in zip(pairwise([*edges, n_samples]), onsets_s)]


def _comments(lines: list[str], notes: list[Note]) -> list[tuple[float, float, str]]:
    """Returns (stored seconds, duration, text)."""
    events, odd = [], []
    for line in lines:
        try:
            onset, duration, _, _, text = line.split(",", 4)
            onset_s, duration_s = float(onset), float(duration)
            if not abs(onset_s) < 1e9 or not duration_s < 1e9:
                raise ValueError
            events.append((onset_s, duration_s, text.strip()))
        except ValueError:
            odd.append(line)
    if odd:
        notes.append(Note("events_outside", f"{len(odd)} comments have no possible time: {listed(odd)}"))
    return events


def _start(patient: dict[str, str]) -> datetime | None:
    patient = {key.lower(): value for key, value in patient.items()}
    for form in _DATES:
        with suppress(ValueError):
            day = datetime.strptime(patient.get("testdate", ""), form)
            clock = datetime.strptime(patient.get("testtime", ""), "%H:%M:%S")
            return day.replace(hour=clock.hour, minute=clock.minute, second=clock.second)
    return None
