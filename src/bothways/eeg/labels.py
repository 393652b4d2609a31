"""Labels and calibration stretches: from a CSV, from the recordings' own events, from annotation files beside them."""

import contextlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from bothways.config import LabelConfig, LabelKind
from bothways.eeg.annotations import EDF_ENDINGS, read_annotations
from bothways.eeg.recording import MARKED_BAD, Note, listed
from bothways.eeg.scan import read_table
from bothways.eeg.store import Store
from bothways.eeg.targets import NONE_OF_THEM, number_in, number_text, set_in, set_text
from bothways.errors import UserError

EVENTS = "events"
"""The source of labels that is no file: the recordings' own events."""
NO_CLASS = re.compile(
    r"(?i)sleep stage (\?|unscored|unknown|n/a)|unscored|not scored|unknown stage|\?|n/a|nan|"
    r"\[?total time\b.*|recording (starts?|ends?|started|ended|stopped)|(start|end|stop) (of )?recording|"
    r"(new segment|boundary|edge boundary)/?|" + MARKED_BAD.pattern.removeprefix("(?i)")
)
"""What marks a stretch as not scored, or marks the recording and no state in it; a class only by its exact name."""
ENDS = ("stop", "end", "offset", "tmax", "stop_s", "end_s", "offset_s")
TIMES = {
    **dict.fromkeys(("onset", "start", "begin", "t0", "tmin", "start_s", "begin_s"), "onset_s"),
    **dict.fromkeys(("duration", "length", *ENDS), "duration_s"),
}
"""What others call the columns of times -> what they are here: a label without them is the whole recording's."""
_LONGEST_S = 1e8
"""Seconds (three years) beyond which a time is a date and no place in a recording."""


@dataclass(frozen=True)
class Span:
    """A labelled stretch: of a file, or of every recording of a subject (no file).

    Attributes:
        file: name of the recording, or the end of it; "" = every recording of `subject`.
        onset_s: true seconds since the recording's start; None = the whole recording.
        duration_s: seconds.
        label: the class; None = none. A number, or several classes at once, as `targets` writes them.
        subject: whose.
        channel: where the label is one channel's; a window takes it for all of its channels.
    """

    file: str
    onset_s: float | None = None
    duration_s: float | None = None
    label: str | None = None
    subject: str | None = None
    channel: str | None = None


@dataclass(frozen=True)
class Spans:
    """Stretches, with what was changed or left out in reading them."""

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
        tracks: where labels are asked for moment by moment, of each recording its labelled stretches in order: first
            sample, sample after the last, place in `classes`.
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
    tracks: Mapping[int, Int64[np.ndarray, "m 3"]] = field(default_factory=dict)

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
            tracks=self.tracks,
        )

    def with_classes(self, classes: list[str]) -> "Windows":
        """Returns the windows with some of the classes, in another order; what has another one has none."""
        number = np.array([classes.index(name) if name in classes else -1 for name in self.classes] + [-1])
        tracks = {}
        for recording, track in self.tracks.items():
            kept = track[number[track[:, 2]] >= 0]
            tracks[recording] = np.column_stack([kept[:, :2], number[kept[:, 2]]])
        return replace(self, label=number[self.label], classes=classes, tracks=tracks)

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


def find_labels(source: str | Path, store: Store, rules: LabelConfig | None = None) -> Spans:
    """Returns the labels of a store's recordings, each under the name of its class.

    Args:
        source: `events` = the recordings' own; an annotations-only EDF, or a folder of them (see
            `annotations.read_annotations`); else a CSV (see `read_labels`).
        store: the prepared recordings.
        rules: what a label is, which is which class, and how long an event lasts that does not say it.

    Raises:
        UserError: nothing can be read there, nothing is left, two classes differ in case or spaces only, or what
            should be a number is none.
    """
    rules = rules or LabelConfig()
    if str(source) == EVENTS:
        return labels_from_events(store, rules)
    path = Path(source)
    if not path.exists():
        raise UserError(f"{path}: expected `{EVENTS}`, a CSV, a hypnogram (EDF) or a folder of them; check the path")
    if path.is_dir() or path.name.lower().endswith(EDF_ENDINGS):
        annotated, notes = read_annotations(path, [(r.file, r.meas_date) for r in store.recordings])
        rows = [Span(one.file, *event) for one in annotated for event in one.events]
        return _as_classes(Spans(rows, notes), rules, str(path))
    return _as_classes(read_labels(path, rules.duration_s, rules.column, rules.kind), rules, str(path))


def labels_from_events(store: Store, rules: LabelConfig | None = None) -> Spans:
    """Returns the recordings' own events as labels; see `find_labels`.

    Raises:
        UserError: no event is left, or two classes differ in case or spaces only.
    """
    rows = [
        Span(r.file, e.onset_s, e.duration_s, e.label, channel=", ".join(e.ch_names) or None)
        for r in store.recordings
        for e in r.events
    ]
    notes = []
    outside, cut = "lie where no data are", "begin before or run past their data"
    for code, what in (("events_outside", outside), ("events_shortened", cut)):
        files = [r.file for r in store.recordings if any(note.code == code for note in r.notes)]
        if files:  # said when they were read; a label is lost with them
            notes.append(Note(code, f"events {what} in {len(files)} recordings: {listed(files)}"))
    return _as_classes(Spans(rows, notes), rules or LabelConfig(), f"{store.path}: events")


def _as_classes(spans: Spans, rules: LabelConfig, source: str) -> Spans:
    """Turns labels as given into classes; what is no class, or lasts no time, is left out and noted."""
    counts = Counter(row.label for row in spans.rows if row.label)
    class_of, dropped, used = _READ[rules.kind](counts, rules, source)
    points, lasting = Counter[str](), []
    for row in spans.rows:
        if not row.label or (label := class_of[row.label]) is None:
            continue
        duration_s = row.duration_s
        if row.onset_s is not None and not duration_s:
            duration_s = rules.duration_s
            if duration_s is None:
                points[row.label] += 1
                continue
        same = (label, duration_s) == (row.label, row.duration_s)  # most are: a copy takes longer than all the rest
        lasting.append(row if same else replace(row, label=label, duration_s=duration_s))
    unused = [key for key in rules.map if key not in used]
    notes = list(spans.notes)
    if dropped:
        what = "number" if rules.kind == "number" else "class"
        notes.append(Note("no_class", f"labels that are no {what}: {_counted(dropped)}"))
    if points:
        advice = "set labels.duration_s to give them one"
        notes.append(Note("no_duration", f"events without a duration are left out ({advice}): {_counted(points)}"))
    if unused:
        notes.append(Note("map_unused", f"labels.map fits no label: {', '.join(map(repr, unused))}"))
    if channels := sum(row.channel is not None for row in lasting):
        text = f"{channels} labels are of single channels; a window takes them for all of its channels"
        notes.append(Note("channel_labels", text))
    if not lasting:
        why = "; ".join(note.message for note in notes) or "there are none at all"
        raise UserError(f"{source}: expected labels, found no usable one: {why}")
    classes = {row.label for row in lasting if row.label} | ({rules.background} if rules.background else set())
    if rules.kind != "number":
        _check_names({name for label in classes for name in set_in(label)} if rules.kind == "several" else classes)
    if strangers := [name for name in rules.priority if name not in classes]:
        notes.append(Note("priority_unused", f"labels.priority names what is no class: {', '.join(strangers)}"))
    return Spans(lasting, notes)


_Read = tuple[dict[str, str | None], dict[str, int], set[str | None]]
"""Label as given -> as it is kept, or None; how often there was what is no class; the keys of the mapping that fit."""


def _read_classes(counts: Counter[str], rules: LabelConfig, source: str) -> _Read:
    key_of = {label: _key_of(label, rules.map) for label in counts}
    class_of = {label: None if key is None else rules.map.get(key, key) for label, key in key_of.items()}
    dropped = {label: n for label, n in counts.most_common() if key_of[label] is None}
    return class_of, dropped, set(key_of.values())


def _read_numbers(counts: Counter[str], rules: LabelConfig, source: str) -> _Read:
    dropped = {label: n for label, n in counts.most_common() if NO_CLASS.fullmatch(label)}
    kept = {label: number_text(number_in(label, source)) for label in counts if label not in dropped}
    return {**kept, **dict.fromkeys(dropped)}, dropped, set()


def _read_sets(counts: Counter[str], rules: LabelConfig, source: str) -> _Read:
    """What is no class is left out of its set; what is not scored leaves the whole set unknown."""
    key_of = {name: _key_of(name, rules.map) for label in counts for name in set_in(label)}
    unknown = {name for name, key in key_of.items() if key is None and NO_CLASS.fullmatch(name)}
    class_of: dict[str, str | None] = {}
    dropped = Counter[str]()
    for label, n in counts.items():
        names = set_in(label)
        dropped.update({name: n for name in names if key_of[name] is None})
        kept = ";".join(rules.map.get(key, key) for name in names if (key := key_of[name]) is not None)
        class_of[label] = None if unknown.intersection(names) else set_text(set_in(kept))
    return class_of, dict(dropped.most_common()), set(key_of.values())


_READ: dict[LabelKind, Callable[[Counter[str], LabelConfig, str], _Read]] = {
    "classes": _read_classes,
    "number": _read_numbers,
    "several": _read_sets,
}


def _key_of(label: str, mapping: Mapping[str, str]) -> str | None:
    """Returns the key of the mapping that a label falls under (without a mapping itself), or None."""
    if label in mapping:
        return label
    if NO_CLASS.fullmatch(label):
        return None
    return next((key for key in mapping if _fits(key, label)), None) if mapping else label


def _fits(pattern: str, label: str) -> bool:
    try:
        return re.fullmatch(pattern, label) is not None
    except re.error:  # a name with a bracket in it is no pattern
        return False


def _check_names(classes: Iterable[str]) -> None:
    """Refuses classes that are surely meant to be one: `Rest` and `rest`, `1` and `1.0`."""
    alike: dict[str, str] = {}
    for name in sorted(classes):
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        with contextlib.suppress(ValueError):
            plain = str(float(plain))
        if (other := alike.setdefault(plain, name)) != name:
            raise UserError(
                f"labels: expected classes that differ in more than case, spaces or digits, got {other!r} and "
                f"{name!r}; correct one, or name both in labels.map"
            )


def _counted(labels: Mapping[str, int]) -> str:
    shown = [f"{label} ({n})" for label, n in labels.items()]
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")


def read_labels(
    path: str | Path, duration_s: float | None = None, column: str = "label", kind: LabelKind = "classes"
) -> Spans:
    """Reads a CSV `file,label`, `subject,label` or `file,onset_s,duration_s,label[,channel][,subject]`.

    BIDS's words are taken, too: `participant_id` for `subject` (participants.tsv labels people), and `onset`,
    `duration`, `trial_type` for `onset_s`, `duration_s`, `label`.

    A row without onset and duration labels the whole recording, one without a file every recording of the subject.
    Labels stay the text they are. Rows without a label are left out and counted; other columns are ignored and named.

    Args:
        path: the CSV.
        duration_s: of rows with an onset that state none.
        column: the one that holds the labels.
        kind: what a label is; an empty cell says of `several` classes that none of them is there.

    Raises:
        UserError: not readable, a column missing, a time that is no number of seconds, a label that should be a number
            and is none, or no labelled row.
    """
    path = Path(path)
    table = read_table(path, ())
    columns = set(next(iter(table.values()))) if table else set()
    column = column.lower()
    if "trial_type" in columns and not columns & {"label", "onset_s", "duration_s"}:
        bids = {"onset": "onset_s", "duration": "duration_s"} | ({"trial_type": "label"} if column == "label" else {})
        table = {line: {bids.get(name, name): cell for name, cell in row.items()} for line, row in table.items()}
        columns = {bids.get(name, name) for name in columns}
    if columns & {"file", "subject", "participant_id"} and column not in columns:
        others = ", ".join(sorted(columns - {"file", "subject", "participant_id", "onset_s", "duration_s", "channel"}))
        raise UserError(
            f"{path}: expected a column {column!r} with the labels, got {others or 'none besides names and times'}; "
            "name the one that holds them: --set labels.column=NAME"
        )
    renamed = {column: "label"} | ({} if "subject" in columns else {"participant_id": "subject"})
    dropped = columns & ({"label"} - {column})
    table = {
        line: {renamed.get(name, name): cell for name, cell in row.items() if name not in dropped}
        for line, row in table.items()
    }
    columns = {renamed.get(name, name) for name in columns}
    who = "subject" if "subject" in columns and "file" not in columns else "file"
    if not columns >= {who, "label"}:
        read_table(path, (who, "label"))  # says which is missing
    spans = _to_spans(path, table, duration_s, dropped, kind)
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
    path = Path(path)
    spans = _to_spans(path, read_table(path, ("file", "onset_s", "duration_s")))
    if not spans.rows:
        raise UserError(f"{path}: expected rows of file,onset_s,duration_s, got none")
    return spans


def _to_spans(
    path: Path,
    table: Mapping[int, dict[str, str]],
    default_s: float | None = None,
    dropped: Collection[str] = (),
    kind: LabelKind = "classes",
) -> Spans:
    known = {"file", "onset_s", "duration_s", "label", "subject", "channel"}
    others = sorted({name for row in table.values() for name in row} - known | set(dropped))
    given = next(iter(table.values()), {})
    for name in others:
        wanted = TIMES.get(name)
        if wanted is not None and wanted not in given:
            remedy = "write" if name in ENDS else "rename it to"
            raise UserError(
                f"{path}: column {name!r}: expected 'onset_s' and 'duration_s', in seconds; {remedy} {wanted!r}, or "
                "remove it"
            )
    notes = [Note("columns_ignored", f"columns not used: {', '.join(others)}")] if others else []
    rows, commas = [], []
    for number, row in table.items():
        line = f"{path}: line {number}"
        onset_s, duration_s = (_seconds(line, row, name) for name in ("onset_s", "duration_s"))
        if onset_s is not None and not duration_s:
            duration_s = default_s or duration_s
        if (onset_s is None) != (duration_s is None):
            advice = ", or set labels.duration_s" if duration_s is None else ""
            raise UserError(f"{line}: expected both onset_s and duration_s or neither; fill in the other{advice}")
        if duration_s is not None and duration_s <= 0:
            raise UserError(f"{line}: expected a duration_s above 0, got {duration_s:g}")
        file, subject = row.get("file", ""), row.get("subject") or None
        if not file and (subject is None or onset_s is not None):
            raise UserError(f"{line}: expected a file name, got none; only a label of a whole subject needs none")
        commas += [text for name in ("onset_s", "duration_s") if "," in (text := row.get(name, ""))]
        label = row.get("label") or (NONE_OF_THEM if kind == "several" else None)
        if label and kind == "number" and not NO_CLASS.fullmatch(label):
            number_in(label, line)
        rows.append(Span(file, onset_s, duration_s, label, subject, row.get("channel") or None))
    if commas:
        notes.append(Note("decimal_comma", f"{len(commas)} times have a decimal comma: {', '.join(commas[:3])}"))
    return Spans(rows, notes)


def _seconds(line: str, row: Mapping[str, str], name: str) -> float | None:
    text = row.get(name, "")
    if not text or (text == "n/a" and name == "duration_s"):  # an onset that is not known is not the whole recording
        return None
    try:
        value = float(text.replace(",", ".") if text.count(",") == 1 and "." not in text else text)
    except ValueError:
        value = math.nan
    if abs(value) <= _LONGEST_S:
        return value
    what = (
        "a clock time or date"
        if re.search(r"\d[:/T-]\d", text)
        else "a date in seconds"
        if math.isfinite(value)
        else ""
    )
    advice = f", {what}; subtract the recording's start" if what else ""
    raise UserError(f"{line}: expected seconds in {name}, got {text!r}{advice}")


def baseline_spans(store: Store) -> list[Span]:
    """Returns the calibration stretches that a store was prepared with."""
    return [
        Span(row["file"], row["onset_s"], row["duration_s"], None, row["subject"]) for row in store.head["baseline"]
    ]
