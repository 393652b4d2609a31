"""Where recordings are cut into windows, and the label of each window."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np

from bothways.config import LabelConfig, WindowConfig
from bothways.eeg.channels import parse_label
from bothways.eeg.labels import Span, Spans, Windows
from bothways.eeg.recording import Note, true_time_s, whole_sample
from bothways.eeg.scan import by_ending, plain
from bothways.eeg.store import Store, StoredRecording
from bothways.eeg.targets import set_in, set_text
from bothways.errors import UserError

_TOLERANCE_S = 0.05
"""So far a label may reach into the next one: scorers' onsets and durations are rounded apart."""
_EDGES = "in a labelled stretch, or between two, for the longest has {:g} s"
T = TypeVar("T")
Region = tuple[int, int, str | None]
"""Samples [start, stop) without a gap, and whose they are where that is said."""
Piece = tuple[int, int, str | None]
"""Samples [start, stop) and their label."""
Labelled = tuple[int, int, str]
Cut = tuple[int, str | None, int, int]
"""A window's start and label, and its earliest and latest start."""


def cut_windows(
    store: Store,
    windows: WindowConfig,
    labels: Spans | Sequence[Span] | None = None,
    *,
    rules: LabelConfig | None = None,
    recordings: Collection[int] | None = None,
    spans: Spans | Sequence[Span] | None = None,
    by_moment: bool = False,
) -> Windows:
    """Cuts recordings into windows that lie wholly in one segment: none crosses a gap.

    Without labels, or with `windows.min_overlap` = 1, a stretch (labelled or not) is cut from its beginning in steps
    of `stride_s`; what is left at its end is no window, and no window is covered by a label in part. With a
    `min_overlap` below 1, each segment is cut from its beginning, and a window has the label that covers at least that
    share of it: of several the first in `labels.priority`, else the one that covers most, of equal ones the first in
    time; if none covers as much, the window has no label. `labels.background` counts as the label of all time that has
    none. A stretch that reaches beyond its recording is cut to it. Where labels are sets of classes (`rules.kind` =
    "several"), those that overlap hold together, and a stretch is what has one set.

    Args:
        store: the prepared recordings.
        windows: length, stride and share.
        labels: where given, labelled stretches carry their label and the rest -1; where not, all are -1.
        rules: what overlapping labels and the time without a label mean.
        recordings: indices to use; None = all.
        spans: where given, only windows inside these stretches.
        by_moment: cut each segment from its beginning whatever the labels' edges, and keep them as `tracks`; a window
            then has the label that covers most of its labelled time.

    Raises:
        UserError: no row fits a recording, a name fits several, labels contradict each other, or no window fits.
    """
    rules = rules or LabelConfig()
    notes = [note for given in (labels, spans) if isinstance(given, Spans) for note in given.notes]
    rows_labels = _rows_of(store, labels, "labels", notes)
    rows_spans = _rows_of(store, spans, "spans", notes)
    chosen = None if recordings is None else set(recordings)
    sfreq_hz = store.signal.sfreq_hz
    length, stride = (max(round(s * sfreq_hz), 1) for s in (windows.window_s, windows.stride_s))
    named = {row.label for rows in (rows_labels or {}).values() for row in rows if row.label}
    said: dict[str, list[str]] = defaultdict(list)
    labelled_of = {
        index: _labelled(recording, (rows_labels or {}).get(index, []), rules, sfreq_hz, said)
        for index, recording in enumerate(store.recordings)
        if chosen is None or index in chosen
    }
    named |= {label for pieces in labelled_of.values() for _, _, label in pieces}  # sets that overlap make another
    background = rules.background if labels is not None else None
    classes = sorted(named | ({background} if background else set()))
    numbers: dict[str | None, int] = {None: -1} | {name: number for number, name in enumerate(classes)}
    on_grid = labels is not None and (by_moment or windows.min_overlap < 1)
    min_overlap = 0.0 if by_moment else windows.min_overlap
    by_edges = labels is not None and not on_grid
    longest: dict[int, int] = defaultdict(int)
    tracks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    table: list[tuple[int, int, int, str, int, int]] = []
    for index, recording in enumerate(store.recordings):
        if chosen is not None and index not in chosen:
            continue
        before = len(table)
        rows = (rows_labels or {}).get(index, [])
        if rows_labels is not None and not rows:
            said["recordings_unlabelled"].append(recording.file)
        labelled = labelled_of[index]
        for start, stop, subject in _regions(recording, (rows_spans or {}).get(index, []), spans is None, sfreq_hz):
            pieces = list(_pieces(start, stop, labelled, background, apart=on_grid))
            longest[index] = max([longest[index], *(b - a for a, b, _ in pieces)])
            if on_grid:
                cuts = list(_on_grid(pieces, length, stride, min_overlap, rules.priority))
                if by_moment:  # the labels follow a window that is shifted
                    cuts = [(at, label, start, stop - length) for at, label, _, _ in cuts]
                said["windows_mixed"] += [recording.file] * _n_mixed(pieces, cuts, length)
            else:
                cuts = list(_inside(pieces, length, stride))
            if by_moment:
                tracks[index] += [(a, b, numbers[label]) for a, b, label in pieces if label is not None]
            else:
                lost = (label for label in _without_window(pieces, cuts, length) if label != background)
                said["label_too_short"] += [f"{label} in {recording.file}" for label in lost]
            table += [
                (index, at, numbers[label], subject or recording.subject, low, high) for at, label, low, high in cuts
            ]
        if len(table) == before and (spans is None or index in (rows_spans or {})):
            seconds = recording.n_samples / sfreq_hz
            where = _EDGES.format(longest[index] / sfreq_hz) if by_edges else f"in {seconds:g} s"
            notes.append(Note("no_window", f"{recording.file}: no window of {windows.window_s:g} s fits {where}"))
    notes += _said_notes(said, background, on_grid)
    if not table:
        files = [store.recordings[i].file for i in sorted(recordings or ())][:4]
        raise UserError(
            f"{', '.join(files) or store.path}: no window of {windows.window_s:g} s fits "
            + (_EDGES.format(max(longest.values(), default=0) / sfreq_hz) if by_edges else "in the recordings")
            + "; choose a shorter one"
            + (", or lower windows.min_overlap" if by_edges else "")
        )
    columns = list(zip(*table))
    arrays = [np.array(columns[i], np.int64) for i in (0, 1, 2, 4, 5)]
    return Windows(
        arrays[0], arrays[1], arrays[2], np.array(columns[3], dtype=np.str_), arrays[3], arrays[4],
        length, classes, notes, {index: np.array(rows, np.int64).reshape(-1, 3) for index, rows in tracks.items()},
    )  # fmt: skip


def labelled_seconds(
    store: Store, labels: Spans, background: str | None = None
) -> tuple[dict[str, dict[str, float]], list[Note]]:
    """Returns how long each subject's recordings have each label, and what was noted; no window is cut.

    Args:
        store: the prepared recordings.
        labels: see `labels.find_labels`.
        background: the label of all time that has none.

    Raises:
        UserError: no row fits a recording, or a name fits several.
    """
    notes = list(labels.notes)
    sfreq_hz = store.signal.sfreq_hz
    seconds: dict[str, dict[str, float]] = {recording.subject: defaultdict(float) for recording in store.recordings}
    for index, rows in (_rows_of(store, labels, "labels", notes) or {}).items():
        recording = store.recordings[index]
        stretches = _stretches(recording, sfreq_hz)
        for row in rows:
            samples = sum(stop - start for start, stop in stretches(row))
            if row.label and samples:
                seconds[recording.subject][row.label] += samples / sfreq_hz
    if background:
        for recording in store.recordings:
            seconds[recording.subject][background] += recording.n_samples / sfreq_hz
        for of in seconds.values():
            of[background] = max(of[background] - sum(s for name, s in of.items() if name != background), 0.0)
    return {name: {label: s for label, s in of.items() if s > 0} for name, of in seconds.items()}, notes


def _said_notes(said: dict[str, list[str]], background: str | None, on_grid: bool) -> list[Note]:
    short = "give no window its label" if on_grid else "are shorter than a window"
    unlabelled = f"count as {background} from end to end" if background else "give no labelled window"
    texts = {
        "label_outside": "labelled stretches hold no sample of their recording",
        "label_clipped": "labelled stretches reach before, beyond or over a gap of their recording and are cut to it",
        "labels_merged": "labelled stretches overlap one of the same label and are joined with it",
        "labels_overlap": f"labelled stretches reach up to {_TOLERANCE_S:g} s into the next: both keep their windows",
        "labels_overruled": "labelled stretches give way to a label that labels.priority puts before them",
        "label_too_short": f"labelled stretches {short}",
        "windows_mixed": "windows have no label that covers windows.min_overlap of them",
        "recordings_unlabelled": f"recordings have no label and {unlabelled}",
    }
    return [Note(code, f"{len(said[code])} {what}: {_some(said[code])}") for code, what in texts.items() if said[code]]


def _rows_of(
    store: Store, given: Spans | Sequence[Span] | None, what: str, notes: list[Note]
) -> dict[int, list[Span]] | None:
    """Sorts rows to the recordings that they name, or to all of the subject that they name."""
    if given is None:
        return None
    rows = given.rows if isinstance(given, Spans) else list(given)
    by_row: dict[int, list[Span]] = {}
    said: dict[str, list[str]] = defaultdict(list)
    exact = {recording.file: [index] for index, recording in enumerate(store.recordings)}
    find = by_ending([recording.file for recording in store.recordings])
    people: dict[str, list[int]] = {}
    for index, recording in enumerate(store.recordings):
        people.setdefault(_bare(recording.subject), []).append(index)
    places: dict[tuple[str, str | None], list[int]] = {}
    channels: dict[str, set[int]] = {}
    for row in rows:
        whose = row.subject if what == "labels" else None  # calibration names another person to calibrate
        if (row.file, whose) not in places:
            fits = (exact.get(row.file) or find(row.file)) if row.file else people.get(_bare(whose or ""), [])
            theirs = [i for i in fits if whose is None or i in people.get(_bare(whose), [])]
            if fits and not theirs:
                said["subject_differs"].append(f"{row.file} of {whose}, of {store.recordings[fits[0]].subject} here")
            places[row.file, whose] = fits = theirs or fits
            if row.file and len(fits) > 1:
                names = ", ".join(store.recordings[i].file for i in fits[:3])
                raise UserError(f"{what}: {row.file} fits {len(fits)} recordings ({names}); write more of the path")
        fits = places[row.file, whose]
        if row.channel and what == "labels":
            channels.setdefault(row.channel, set()).update(fits)
        for index in fits:
            by_row.setdefault(index, []).append(row)
            if len(plain(row.file)) > len(file := store.recordings[index].file):
                said["folders_dropped"].append(f"{file} for {row.file}")
        if not fits:
            said["rows_unmatched"].append(row.file or f"subject {row.subject}")
    for several, fits_of in channels.items():
        for channel in several.split(", "):
            spelled = {channel, parse_label(channel).name}
            if fits_of and not any(spelled & set(store.recordings[index].ch_names) for index in fits_of):
                said["channels_unknown"].append(channel)
    if not by_row:
        shown = ", ".join(dict.fromkeys(said["rows_unmatched"][:3]))
        here = store.recordings[0]
        against = f"subject {here.subject}" if rows and not rows[0].file else here.file
        raise UserError(f"{what}: none of {len(rows)} rows names a recording of the store: {shown} against {against}")
    for code, text in (
        ("rows_unmatched", "rows name no recording:"),
        ("folders_dropped", "rows name folders that the store does not; taken"),
        ("subject_differs", "files are of another subject in the store, which counts:"),
        ("channels_unknown", "channels of labels are in none of their recordings:"),
    ):
        if said[code]:
            notes.append(Note(code, f"{what}: {len(said[code])} {text} {_some(said[code])}"))
    return by_row


def _some(names: Sequence[str]) -> str:
    """Names four, each once, and says how many more there are."""
    different = list(dict.fromkeys(names))
    return ", ".join(different[:4]) + (f" and {len(different) - 4} more" if len(different) > 4 else "")


def _bare(subject: str) -> str:
    return subject.removeprefix("sub-")  # as BIDS's participants.tsv has it


def _regions(recording: StoredRecording, rows: Sequence[Span], whole: bool, sfreq_hz: float) -> list[Region]:
    """Where windows may lie: in the segments, or in the stretches that the rows name."""
    if whole:
        return [(s.start, s.stop, None) for s in recording.segments if s.stop > s.start]
    stretches = _stretches(recording, sfreq_hz)
    return sorted(((*piece, row.subject) for row in rows for piece in stretches(row)), key=lambda region: region[:2])


def _stretches(recording: StoredRecording, sfreq_hz: float) -> Callable[[Span], list[tuple[int, int]]]:
    """Returns what says where a row lies in stored samples: true time, so one over a gap falls into pieces."""
    segments = recording.segments
    ends_s = [s.onset_s + (s.stop - s.start) / sfreq_hz for s in segments]

    def stretches(row: Span) -> list[tuple[int, int]]:
        if row.onset_s is None or row.duration_s is None:
            return [(s.start, s.stop) for s in segments]
        stop_s, pieces = row.onset_s + row.duration_s, []
        for segment in _from(segments, bisect_right(ends_s, row.onset_s)):
            if segment.onset_s >= stop_s:
                break
            start = segment.start + whole_sample((row.onset_s - segment.onset_s) * sfreq_hz)
            stop = segment.start + whole_sample((stop_s - segment.onset_s) * sfreq_hz)
            start, stop = max(start, segment.start), min(stop, segment.stop)
            if stop > start:
                pieces.append((start, stop))
        return pieces

    return stretches


def _labelled(
    recording: StoredRecording,
    rows: Sequence[Span],
    rules: LabelConfig,
    sfreq_hz: float,
    said: dict[str, list[str]],
) -> list[Labelled]:
    """Returns stretches of a recording with one label each, in order; they overlap by `_TOLERANCE_S` at most.

    Raises:
        UserError: two labels overlap that are no sets of classes, and none is in `labels.priority`.
    """
    priority = rules.priority
    stretches = _stretches(recording, sfreq_hz)
    found: list[Labelled] = []
    for row in rows:
        pieces = stretches(row)
        if row.label is None:
            continue
        found += [(start, stop, row.label) for start, stop in pieces]
        lost = row.onset_s is not None and row.duration_s is not None and (
            whole_sample(row.duration_s * sfreq_hz) - sum(stop - start for start, stop in pieces) > 1
        )  # fmt: skip
        if lost or not pieces:
            said["label_clipped" if pieces else "label_outside"].append(f"{row.label} in {recording.file}")
    if rules.kind == "several":
        return _united(found)
    rank = {label: place for place, label in reversed(list(enumerate(priority)))}
    found.sort(key=lambda piece: (rank.get(piece[2], len(priority)), piece))
    taken: list[Labelled] = []
    for _, group in groupby(found, key=lambda piece: rank.get(piece[2], len(priority))):
        joined = _joined(recording, group, sfreq_hz, said)
        rest = list(_outside(joined, taken))
        if taken:
            lost_samples = Counter[str]()
            for sign, some in ((1, joined), (-1, rest)):
                for start, stop, label in some:
                    lost_samples[label] += sign * (stop - start)
            said["labels_overruled"] += [f"{name} in {recording.file}" for name, n in lost_samples.items() if n > 1]
        taken = sorted(taken + rest)
    return taken


def _united(pieces: Iterable[Labelled]) -> list[Labelled]:
    """Returns stretches without an overlap; each has all classes of the sets that hold there."""
    changes = sorted(change for start, stop, label in pieces for change in ((start, 1, label), (stop, -1, label)))
    held, at, united = Counter[str](), 0, list[Labelled]()
    for place, group in groupby(changes, key=itemgetter(0)):
        if held and place > at:
            label = set_text(name for one in held for name in set_in(one))
            if united and united[-1][1:] == (at, label):
                united[-1] = (united[-1][0], place, label)
            else:
                united.append((at, place, label))
        for _, sign, label in group:
            held[label] += sign
        held, at = +held, place
    return united


def _joined(
    recording: StoredRecording, pieces: Iterable[Labelled], sfreq_hz: float, said: dict[str, list[str]]
) -> list[Labelled]:
    """Joins stretches that overlap one of the same label; those that only touch stay two."""
    joined: list[Labelled] = []
    for start, stop, label in pieces:
        if joined and start < joined[-1][1]:
            first, end, other = joined[-1]
            if label == other:
                joined[-1] = (first, max(end, stop), label)
                said["labels_merged"].append(f"{label} in {recording.file}")
                continue
            if first < start and end <= stop and end - start <= max(1, round(_TOLERANCE_S * sfreq_hz)):
                if end - start > 1:  # times in milliseconds put two neighbours one sample over each other
                    said["labels_overlap"].append(f"{other} in {recording.file}")
            elif end - start == 1:  # rounding put two on one sample; the first has it
                start = end
            else:
                at_s = true_time_s(start / sfreq_hz, recording.segments, sfreq_hz)
                raise UserError(
                    f"labels: {recording.file}: {other!r} and {label!r} overlap at {at_s:g} s; a moment has one label: "
                    "shorten or remove one, or set labels.priority"
                )
        if stop > start:
            joined.append((start, stop, label))
    return joined


def _outside(pieces: Iterable[Labelled], taken: Sequence[Labelled]) -> Iterator[Labelled]:
    """Yields what of some stretches lies outside others; both in order."""
    first = 0
    for start, stop, label in pieces:
        while first < len(taken) and taken[first][1] <= start:
            first += 1
        for a, b, _ in _from(taken, first):
            if a >= stop:
                break
            if a > start:
                yield start, a, label
            start = max(start, b)
        if stop > start:
            yield start, stop, label


def _from(some: Sequence[T], first: int) -> Iterator[T]:
    """Yields the elements from one on, without a copy and without a walk to it."""
    return (some[i] for i in range(first, len(some)))


def _pieces(
    start: int, stop: int, labelled: Sequence[Labelled], background: str | None, *, apart: bool
) -> Iterator[Piece]:
    """Divides [start, stop) without rest into labelled pieces and those between them.

    With `apart`, what two labels share belongs to the first.
    """
    at = start
    for a, b, label in _from(labelled, bisect_right(labelled, start, key=lambda piece: piece[1])):
        a, b = max(a, at if apart else start), min(b, stop)
        if a >= stop:
            break
        if a > at:
            yield at, a, background
        yield a, b, label
        at = b
    if stop > at:
        yield at, stop, background


def _inside(pieces: Iterable[Piece], length: int, stride: int) -> Iterator[Cut]:
    for start, stop, label in pieces:
        yield from ((at, label, start, stop - length) for at in range(start, stop - length + 1, stride))


def _on_grid(
    pieces: Sequence[Piece], length: int, stride: int, min_overlap: float, priority: Sequence[str]
) -> Iterator[Cut]:
    """Yields windows regardless of the pieces' edges; one that lies over an edge may not be shifted."""
    rank = {label: -place for place, label in enumerate(priority)}
    needed = min_overlap * length - 1e-6
    first = 0
    for at in range(pieces[0][0], pieces[-1][1] - length + 1, stride):
        while pieces[first][1] <= at:
            first += 1
        covered = Counter[str | None]()  # in the order of time
        for a, b, label in _from(pieces, first):
            if a >= at + length:
                break
            covered[label] += min(b, at + length) - max(a, at)
        enough = [label for label, n in covered.items() if label is not None and n >= needed]
        best = max(enough, key=lambda label: (rank.get(label, -len(rank)), covered[label]), default=None)
        start, stop, _ = pieces[first]
        low, high = (start, stop - length) if at + length <= stop else (at, at)
        yield at, best, low, high


def _without_window(pieces: Iterable[Piece], cuts: Sequence[Cut], length: int) -> Iterator[str]:
    """Yields the label of each labelled piece that no window of its label touches."""
    starts = [cut[0] for cut in cuts]
    for start, stop, label in pieces:
        near = range(bisect_right(starts, start - length), bisect_left(starts, stop))
        if label is not None and not any(cuts[i][1] == label for i in near):
            yield label


def _n_mixed(pieces: Sequence[Piece], cuts: Iterable[Cut], length: int) -> int:
    """Counts the windows that have no label although one touches them."""
    stops = [stop for _, stop, _ in pieces]
    return sum(
        any(
            label is not None and start < at + length
            for start, _, label in pieces[bisect_right(stops, at) : bisect_left(stops, at + length) + 1]
        )
        for at, best, _, _ in cuts
        if best is None
    )
