"""Labels and calibration stretches from CSV or from the recordings' own events; the table of windows."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from bothways.config import WindowConfig
from bothways.eeg.recording import Note
from bothways.eeg.scan import by_ending, plain, read_table
from bothways.eeg.store import Store, StoredRecording
from bothways.errors import UserError

NO_CLASS = re.compile(r"(?i)^(sleep stage \?|\[?total time.*|recording (starts|ends))$")
"""Annotations that mark the recording and no state in it."""


@dataclass(frozen=True)
class Span:
    """A row of a CSV: a stretch of a file, in true seconds since its start, or the whole of it (no onset)."""

    file: str
    onset_s: float | None = None
    duration_s: float | None = None
    label: str | None = None
    subject: str | None = None


@dataclass(frozen=True)
class Spans:
    """What a CSV said, with what was left out of it."""

    rows: list[Span]
    notes: list[Note] = field(default_factory=list)


@dataclass(frozen=True)
class Windows:
    """A table of windows; a window is `window_samples` samples of recording `recording` from sample `start`.

    Attributes:
        recording: index in the store.
        start: first sample.
        label: place in `classes`, -1 = none.
        subject: whose.
        earliest: where a shifted window may begin, at the least, and still lie in the same stretch and label.
        latest: the same, at the most.
        window_samples: samples in each window.
        classes: names of the labels, sorted.
        notes: rows that matched nothing, stretches too short for a window, …
    """

    recording: Int64[np.ndarray, " n"]
    start: Int64[np.ndarray, " n"]
    label: Int64[np.ndarray, " n"]
    subject: np.ndarray
    earliest: Int64[np.ndarray, " n"]
    latest: Int64[np.ndarray, " n"]
    window_samples: int
    classes: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)

    def select(self, which: np.ndarray) -> "Windows":
        """Returns the windows at these places (indices or True/False), same classes."""
        columns = ("recording", "start", "label", "subject", "earliest", "latest")
        return Windows(
            **{name: getattr(self, name)[which] for name in columns},
            window_samples=self.window_samples,
            classes=self.classes,
            notes=self.notes,
        )

    def counts(self) -> dict[str, Any]:
        """Returns how many windows there are, of each class and of each subject and class."""
        names = [*self.classes, "(no label)"]
        subjects, whose = np.unique(self.subject, return_inverse=True)
        cells = whose * len(names) + self.label % len(names)  # -1 is the last name
        table = np.bincount(cells, minlength=len(subjects) * len(names)).reshape(len(subjects), len(names))

        def count(row: np.ndarray) -> dict[str, int]:
            return {name: n for name, n in zip(names, row.tolist()) if n or name in self.classes}

        return {
            "windows": len(self),
            "classes": count(table.sum(0)),
            "subjects": {str(subject): count(row) for subject, row in zip(subjects, table)},
        }


def read_labels(path: str | Path) -> Spans:
    """Reads a CSV `file,label` or `file,onset_s,duration_s,label`; labels stay the text they are.

    Rows without a label are left out and counted; other columns are ignored and named.

    Raises:
        UserError: not readable, a column missing, a time that is no number, or no labelled row.
    """
    spans = _read_spans(Path(path), ("file", "label"))
    rows = [row for row in spans.rows if row.label]
    if not rows:
        raise UserError(f"{path}: expected labelled rows, got {len(spans.rows)} rows and no label; fill in `label`")
    notes = list(spans.notes)
    if len(rows) < len(spans.rows):
        notes.append(Note("unlabelled_rows", f"{len(spans.rows) - len(rows)} rows have no label and are left out"))
    return Spans(rows, notes)


def read_spans(path: str | Path) -> Spans:
    """Reads a CSV `file,onset_s,duration_s[,subject]`: stretches for calibration, without labels.

    Raises:
        UserError: see `read_labels`.
    """
    spans = _read_spans(Path(path), ("file", "onset_s", "duration_s"))
    if not spans.rows:
        raise UserError(f"{path}: expected rows of file,onset_s,duration_s, got none")
    return spans


def _read_spans(path: Path, required: tuple[str, ...]) -> Spans:
    table = read_table(path, required)
    known = {"file", "onset_s", "duration_s", "label", "subject"}
    others = sorted(set(table[0]) - known) if table else []
    notes = [Note("columns_ignored", f"columns not used: {', '.join(others)}")] if others else []
    rows = []
    for number, row in enumerate(table, 2):
        onset_s, duration_s = (_seconds(path, number, row, name) for name in ("onset_s", "duration_s"))
        if (onset_s is None) != (duration_s is None):
            raise UserError(
                f"{path}: line {number}: expected both onset_s and duration_s or neither; fill in the other"
            )
        if duration_s is not None and duration_s <= 0:
            raise UserError(f"{path}: line {number}: expected a duration_s above 0, got {duration_s:g}")
        if not row["file"]:
            raise UserError(f"{path}: line {number}: expected a file name, got none")
        rows.append(Span(row["file"], onset_s, duration_s, row.get("label") or None, row.get("subject") or None))
    return Spans(rows, notes)


def _seconds(path: Path, number: int, row: dict[str, str], name: str) -> float | None:
    text = row.get(name, "")
    if not text or text == "n/a":
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise UserError(f"{path}: line {number}: expected seconds in {name}, got {text!r}")
    return value


def labels_from_events(store: Store, mapping: Mapping[str, str] | None = None) -> Spans:
    """Returns the recordings' own events that last some time as labels.

    Args:
        store: the prepared recordings.
        mapping: event label -> class, others are left out; None = every event under its own name but those that
            mean 'unscored' (`Sleep stage ?`) or the recording itself.

    Raises:
        UserError: no event is left.
    """
    rows, dropped = [], Counter[str]()
    for recording in store.recordings:
        for event in recording.events:
            label = mapping.get(event.label) if mapping is not None else event.label
            if label is None or event.duration_s <= 0 or (mapping is None and NO_CLASS.search(label)):
                dropped[event.label] += 1
            else:
                rows.append(Span(recording.file, event.onset_s, event.duration_s, label))
    if not rows:
        raise UserError(
            f"{store.path}: no event with a duration can serve as a label; events: "
            f"{', '.join(dropped) or 'none'}; map them by name or give a CSV"
        )
    shown = ", ".join(f"{label} ({n})" for label, n in dropped.most_common(8))
    return Spans(rows, [Note("events_not_labels", f"events that give no label: {shown}")] if dropped else [])


Region = tuple[int, int, str | None, str | None]
"""Samples [start, stop), label, subject."""


def cut_windows(
    store: Store,
    windows: WindowConfig,
    labels: Spans | Sequence[Span] | None = None,
    *,
    recordings: Collection[int] | None = None,
    spans: Spans | Sequence[Span] | None = None,
) -> Windows:
    """Cuts recordings into windows that lie wholly in one segment and in one labelled or unlabelled stretch.

    A stretch is cut from its beginning in steps of `stride_s`; what is left at its end is no window. No window is
    covered by a label in part.

    Args:
        store: the prepared recordings.
        windows: length and stride.
        labels: where given, labelled stretches carry their label and the rest -1; where not, all are -1.
        recordings: indices to use; None = all.
        spans: where given, only windows inside these stretches.

    Raises:
        UserError: no row fits a recording, a name fits several, labels contradict each other, or no window fits.
    """
    notes = [note for given in (labels, spans) if isinstance(given, Spans) for note in given.notes]
    rows_labels = _rows_of(store, labels, "labels", notes)
    rows_spans = _rows_of(store, spans, "spans", notes)
    chosen = None if recordings is None else set(recordings)
    length, stride = (max(round(s * store.signal.sfreq_hz), 1) for s in (windows.window_s, windows.stride_s))
    classes = sorted({row.label for rows in (rows_labels or {}).values() for row in rows if row.label})
    table: list[tuple[int, int, int, str, int, int]] = []
    short: list[str] = []
    outside: list[str] = []
    for index, recording in enumerate(store.recordings):
        if chosen is not None and index not in chosen:
            continue
        before = len(table)
        outside += [
            f"{row.label} in {recording.file}"
            for row in (rows_labels or {}).get(index, [])
            if not _stretches(recording, row, store.signal.sfreq_hz)
        ]
        for start, stop, label, subject in _regions(store, index, rows_labels, rows_spans):
            number = classes.index(label) if label is not None else -1
            if label is not None and stop - start < length:
                short.append(f"{label} in {recording.file}")
            table += [
                (index, at, number, subject or recording.subject, start, stop - length)
                for at in range(start, stop - length + 1, stride)
            ]
        if len(table) == before and (spans is None or index in (rows_spans or {})):
            seconds = recording.n_samples / store.signal.sfreq_hz
            notes.append(
                Note("no_window", f"{recording.file}: no window of {windows.window_s:g} s fits in {seconds:g} s")
            )
    for code, which, what in (
        ("label_outside", outside, "hold no sample of their recording"),
        ("label_too_short", short, "are shorter than a window"),
    ):
        if which:
            notes.append(Note(code, f"{len(which)} labelled stretches {what}: {', '.join(which[:4])}"))
    if not table:
        files = [store.recordings[i].file for i in sorted(recordings or ())][:4]
        raise UserError(
            f"{', '.join(files) or store.path}: no window of {windows.window_s:g} s fits in the recordings; "
            "choose a shorter one"
        )
    columns = list(zip(*table))
    numbers = [np.array(columns[i], np.int64) for i in (0, 1, 2, 4, 5)]
    return Windows(
        numbers[0], numbers[1], numbers[2], np.array(columns[3], dtype=np.str_), numbers[3], numbers[4],
        length, classes, notes,
    )  # fmt: skip


def _rows_of(
    store: Store, given: Spans | Sequence[Span] | None, what: str, notes: list[Note]
) -> dict[int, list[Span]] | None:
    """Sorts rows to the recordings that they name."""
    if given is None:
        return None
    rows = given.rows if isinstance(given, Spans) else list(given)
    by_file: dict[int, list[Span]] = {}
    unmatched: list[str] = []
    dropped: list[str] = []
    exact = {recording.file: [index] for index, recording in enumerate(store.recordings)}
    find = by_ending([recording.file for recording in store.recordings])
    places: dict[str, list[int]] = {}
    for row in rows:
        if row.file not in places:
            places[row.file] = exact.get(row.file) or find(row.file)
        fits = places[row.file]
        if len(fits) > 1:
            names = ", ".join(store.recordings[i].file for i in fits[:3])
            raise UserError(f"{what}: {row.file} fits {len(fits)} recordings ({names}); write more of the path")
        if fits:
            by_file.setdefault(fits[0], []).append(row)
            if len(plain(row.file)) > len(file := store.recordings[fits[0]].file):
                dropped.append(f"{file} for {row.file}")
        else:
            unmatched.append(row.file)
    if not by_file:
        raise UserError(
            f"{what}: none of {len(rows)} rows names a recording of the store: "
            f"{', '.join(dict.fromkeys(unmatched[:3]))} against {store.recordings[0].file}"
        )
    if unmatched:
        shown = ", ".join(list(dict.fromkeys(unmatched))[:4])
        notes.append(Note("rows_unmatched", f"{what}: {len(unmatched)} rows name no recording: {shown}"))
    if dropped:
        shown = ", ".join(list(dict.fromkeys(dropped))[:4])
        notes.append(
            Note("folders_dropped", f"{what}: {len(dropped)} rows name folders that the store does not; taken {shown}")
        )
    return by_file


def _regions(
    store: Store, index: int, labels: dict[int, list[Span]] | None, spans: dict[int, list[Span]] | None
) -> list[Region]:
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    regions: list[Region] = [(s.start, s.stop, None, None) for s in recording.segments]
    if spans is not None:
        regions = [
            (max(a, start), min(b, stop), None, row.subject)
            for row in spans.get(index, [])
            for start, stop in _stretches(recording, row, sfreq_hz)
            for a, b, _, _ in regions
        ]
    if labels is not None and index in labels:
        labelled = _labelled(recording, labels[index], sfreq_hz)
        regions = [piece for region in regions for piece in _divided(region, labelled)]
    return sorted((r for r in regions if r[1] > r[0]), key=lambda r: r[:2])


def _stretches(recording: StoredRecording, row: Span, sfreq_hz: float) -> list[tuple[int, int]]:
    """Where a row lies in stored samples: true time, so a stretch over a gap falls into pieces."""
    if row.onset_s is None or row.duration_s is None:
        return [(s.start, s.stop) for s in recording.segments]
    pieces = []
    for segment in recording.segments:
        start = segment.start + round((row.onset_s - segment.onset_s) * sfreq_hz)
        stop = segment.start + round((row.onset_s + row.duration_s - segment.onset_s) * sfreq_hz)
        start, stop = max(start, segment.start), min(stop, segment.stop)
        if stop > start:
            pieces.append((start, stop))
    return pieces


def _labelled(recording: StoredRecording, rows: Sequence[Span], sfreq_hz: float) -> list[tuple[int, int, str]]:
    labelled: list[tuple[int, int, str]] = []
    pieces = sorted((*piece, row.label) for row in rows for piece in _stretches(recording, row, sfreq_hz) if row.label)
    for start, stop, label in pieces:
        if labelled and start < labelled[-1][1]:
            if labelled[-1][2] != label:
                raise UserError(
                    f"labels: {recording.file}: {labelled[-1][2]!r} and {label!r} overlap at stored second "
                    f"{start / sfreq_hz:g}; a moment has one label, shorten or remove one"
                )
            start = labelled[-1][1]  # the same label twice: count each moment once
        if stop > start:
            labelled.append((start, stop, label))
    return labelled


def _divided(region: Region, labelled: Sequence[tuple[int, int, str]]) -> list[Region]:
    start, stop, _, subject = region
    pieces: list[Region] = []
    at = start
    for a, b, label in labelled:
        a, b = max(a, start), min(b, stop)
        if b > a:
            pieces += [(at, a, None, subject), (a, b, label, subject)]
            at = b
    return [*pieces, (at, stop, None, subject)]


def baseline_spans(store: Store) -> list[Span]:
    """Returns the calibration stretches that a store was prepared with."""
    return [
        Span(row["file"], row["onset_s"], row["duration_s"], None, row["subject"]) for row in store.head["baseline"]
    ]
