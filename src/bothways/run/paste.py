"""`bothways eeg paste`."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.draws import generator
from bothways.eeg import Laid, Piece
from bothways.errors import UserError
from bothways.files import check_output, new_folder, write_json, write_text

PASTED = "pasted.json"
LABELS, PIECES, JOINS, BASELINE = "labels.csv", "pieces.csv", "joins.csv", "baseline.csv"


@dataclass(frozen=True)
class Rules:
    """How pieces are cut and joined.

    Attributes:
        background: class of the pieces that events are pasted into.
        shortest_s: of a piece.
        longest_s: of a piece.
        join_s: how long neighbours overlap.
        seed: of lengths, order and places; each person has draws of their own.
    """

    background: str = "rest"
    shortest_s: float = 6.0
    longest_s: float = 14.0
    join_s: float = 0.5
    seed: int = 0

    def check(self) -> None:
        """Refuses what cannot be cut.

        Raises:
            UserError: which setting, and what it should be.
        """
        if not self.join_s >= 0:
            raise UserError(f"join_s: expected 0 or more, got {self.join_s:g}")
        if not self.shortest_s >= max(2 * self.join_s, 1):
            least = max(2 * self.join_s, 1)
            raise UserError(f"shortest_s: expected {least:g} s or more (two joins, a second), got {self.shortest_s:g}")
        if not self.longest_s >= 2 * self.shortest_s:
            raise UserError(
                f"longest_s: expected twice shortest_s ({2 * self.shortest_s:g} s) or more, got {self.longest_s:g}: "
                "else a stretch cannot be cut without a rest"
            )
        if self.seed < 0:
            raise UserError(f"seed: expected 0 or more, got {self.seed}")


@dataclass
class _Person:
    """What one person has to be pasted."""

    files: list[str] = field(default_factory=list)
    dead_s: dict[str, float] = field(default_factory=dict)
    """Of files: what was asked for and holds no signal."""
    recordings: list[eeg.Recording] = field(default_factory=list)
    stretches: list[Piece] = field(default_factory=list)


def paste(
    paths: str | Path | Sequence[str | Path],
    labels: str | Path,
    out: str | Path,
    *,
    background: str = "rest",
    baseline: str | Path | None = None,
    recordings: int = 1,
    shortest_s: float | int = 6.0,
    longest_s: float | int = 14.0,
    join_s: float | int = 0.5,
    seed: int = 0,
    subject_from: str | Path = "path",
    unit: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Makes long recordings with events of recordings that hold one condition each; see `eeg.pasting` for how.

    Written are, of each person, `sub-…_run-….edf` (EDF+ with the events as annotations), and for all of them
    `labels.csv` (`file,onset_s,duration_s,label`: every stretch of a class, the background's too), `pieces.csv` (each
    piece, and from which file and second it is; a calibration has no label), `joins.csv` (each
    join: its middle, the classes on its sides, and whether it is a sham, without an event on either), with a baseline
    `baseline.csv`, and `pasted.json` (what this function returns).

    Args:
        paths: files and folders, as for `check`.
        labels: CSV `file,label` or `file,onset_s,duration_s,label`; what has no label is not used.
        out: the folder to write.
        background: the class that the others are pasted into.
        baseline: CSV `file,onset_s,duration_s[,subject]`: these stretches open each of the person's recordings, whole,
            and have no label; `baseline.csv` names their place.
        recordings: of each person; each is cut and ordered anew of the same stretches.
        shortest_s: of a piece.
        longest_s: of a piece; twice the shortest or more.
        join_s: seconds that neighbours overlap by.
        seed: of all draws.
        subject_from: see `check`.
        unit: see `check`.
        overwrite: replace `out`.

    Returns:
        `out`, `settings`, `classes`, `recordings` (of each `file`, `subject`, `duration_s`, `events`, `shams`,
        `unused_s`: labelled seconds for which there was no place), `left_out` (subject -> why), `notes`.

    Raises:
        UserError: a setting, a CSV that does not fit, files of a person with other rates or channels, stretches that
            overlap, or nobody of whom a recording can be made.
    """
    out, rules = Path(out), Rules(background, float(shortest_s), float(longest_s), float(join_s), seed)
    rules.check()
    if recordings < 1:
        raise UserError(f"recordings: expected 1 or more of each person, got {recordings}")
    paths = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    check_output(out, overwrite=overwrite, inputs=[*paths, labels, *([] if baseline is None else [baseline])])
    given = eeg.read_labels(labels)
    lost = [row for row in given.rows if row.label and eeg.NO_CLASS.fullmatch(row.label)]
    notes = [f"{len(lost)} rows have a label that is no class (n/a, …) and are left out"] if lost else []
    given = replace(given, rows=[row for row in given.rows if row not in lost])
    kinds = {row.label for row in given.rows if row.label}
    if background not in kinds or len(kinds) < 2:
        raise UserError(
            f"{labels}: expected stretches of {background} and of another class, got {', '.join(sorted(kinds))}; "
            "name the one that events are pasted into: --background"
        )
    calibration = [] if baseline is None else eeg.read_spans(baseline).rows
    people = _people(eeg.scan(paths, subject_from), [*given.rows, *calibration], unit)
    made, left_out, rows, pieces, joins, baselines = [], {}, [], [], [], []
    with new_folder(out, overwrite=overwrite) as folder:
        for subject, person in sorted(people.items()):
            if why := _lacks(person, rules):
                left_out[subject] = why
                continue
            sources = _sources(person)
            for number in range(1, recordings + 1):
                file = f"sub-{subject}_run-{number}.edf"
                data_uv, laid, sfreq_hz = _pasted(person, sources, rules, subject, number)
                stretches = _stretches(laid, sfreq_hz)
                events = [row for row in stretches if row[2] != background]
                eeg.write_edf_recording(
                    folder / file, data_uv, person.recordings[0].ch_names, sfreq_hz, events, subject
                )
                rows += [(file, *row) for row in stretches]
                pieces += [(file, *piece) for piece in _pieces(laid, person, rules, sfreq_hz)]
                of_file = _joins(laid, sfreq_hz, background)
                joins += [(file, *join) for join in of_file]
                if calm := [one for one in laid if not one.piece.label]:
                    baselines.append((file, 0, calm[-1].stop / sfreq_hz - join_s / 2))
                used = sum(len(one.piece) for one in laid if one.piece.label)
                made.append(
                    {
                        "file": file,
                        "subject": subject,
                        "duration_s": data_uv.shape[1] / sfreq_hz,
                        "events": len(events),
                        "shams": sum(sham == "sham" for *_, sham in of_file),
                        "unused_s": (sum(len(s) for s in person.stretches if s.label) - used) / sfreq_hz,
                    }
                )
        if not made:
            subject, why = next(iter(left_out.items()))
            raise UserError(f"{labels}: nobody has what a recording is made of, e.g. {subject}: {why}; label more")
        _write_csv(folder / LABELS, ("file", "onset_s", "duration_s", "label"), rows)
        columns = ("file", "onset_s", "duration_s", "label", "from_file", "from_s")
        _write_csv(folder / PIECES, columns, pieces)
        _write_csv(folder / JOINS, ("file", "at_s", "before", "after", "kind"), joins)
        if baselines:
            _write_csv(folder / BASELINE, ("file", "onset_s", "duration_s"), baselines)
        result = {
            "out": str(out),
            "settings": asdict(rules),
            "classes": sorted(kinds),
            "recordings": made,
            "left_out": left_out,
            "notes": [*notes, *(note.message for note in given.notes), *_dead_notes(people.values())],
        }
        write_json(folder / PASTED, result)
    return result


def _people(found: Sequence[eeg.Found], rows: Sequence[eeg.Span], unit: str | None) -> dict[str, _Person]:
    """Reads the recordings that the rows name, and says which of their samples each row means."""
    by_file: dict[str, list[eeg.Span]] = defaultdict(list)
    places = {one.path.absolute().as_posix(): one for one in found}
    for row in rows:
        fits = [place for place in places if row.file and eeg.ends_with(place, row.file)]
        if len(fits) != 1:
            name = row.file or f"subject {row.subject}"
            advice = "correct it" if not fits else "write more of the path"
            raise UserError(f"{name}: expected one recording of this name, got {len(fits)}; {advice}")
        by_file[fits[0]].append(row)
    people: dict[str, _Person] = defaultdict(_Person)
    for place, of_file in by_file.items():
        one, person = places[place], people[places[place].subject]
        if not one.subject.isalnum() or not one.subject.isascii():
            raise UserError(
                f"{one.file}: expected a person named by letters and digits, got {one.subject!r}; say whose it is by "
                "--subject-from CSV"
            )
        recording = eeg.load(one, unit)
        _check_alike(person, one.file, recording)
        person.stretches += _samples(person, recording, of_file, one.file)
        person.files.append(one.file)
        person.recordings.append(recording)
    return people


def _dead_notes(people: Iterable[_Person]) -> list[str]:
    dead_s = {file: seconds for person in people for file, seconds in person.dead_s.items()}
    if not dead_s:
        return []
    worst = max(dead_s, key=dead_s.__getitem__)
    return [
        f"{sum(dead_s.values()):.1f} s of {len(dead_s)} recordings hold no signal and are not used (missing samples, "
        f"or most channels move by less than {eeg.DEAD_UV:g} uV), most in {worst}: {dead_s[worst]:.2f} s"
    ]


def _check_alike(person: _Person, file: str, recording: eeg.Recording) -> None:
    if recording.sfreq_hz != round(recording.sfreq_hz):
        raise UserError(f"{file}: expected a whole number of samples a second, got {recording.sfreq_hz:g} Hz")
    for other, theirs in zip(person.files, person.recordings):
        if theirs.sfreq_hz != recording.sfreq_hz or theirs.ch_names != recording.ch_names:
            what = f"{len(recording.ch_names)} channels at {recording.sfreq_hz:g} Hz"
            raise UserError(
                f"{file}: expected the channels and rate of {other} ({len(theirs.ch_names)} at {theirs.sfreq_hz:g} "
                f"Hz), got {what}; pieces of the two cannot be joined"
            )


def _samples(person: _Person, recording: eeg.Recording, rows: Sequence[eeg.Span], file: str) -> list[Piece]:
    """Returns the stretches of a recording, in order, cut at gaps and where there is no signal."""
    source, asked = len(person.files), 0
    pieces = []
    for row in rows:
        for segment in recording.segments:
            begin, end = segment.start, segment.stop
            if row.onset_s is not None and row.duration_s is not None:
                first = begin + round((row.onset_s - segment.onset_s) * recording.sfreq_hz)
                begin, end = max(begin, first), min(end, first + round(row.duration_s * recording.sfreq_hz))
            if begin < end:
                runs = eeg.live_runs(recording, begin, end)
                pieces += [Piece(source, a, b, row.label or "") for a, b in runs]
                asked += end - begin
    if dead := asked - sum(map(len, pieces)):
        person.dead_s[file] = dead / recording.sfreq_hz
    pieces.sort(key=lambda piece: piece.start)
    for a, b in pairwise(pieces):
        if b.start < a.stop:
            at_s = b.start / recording.sfreq_hz
            raise UserError(
                f"{file}: expected stretches that do not overlap, got two at {at_s:g} s "
                f"({a.label or 'baseline'}, {b.label or 'baseline'}); nothing may be pasted twice"
            )
    return pieces


def _lacks(person: _Person, rules: Rules) -> str:
    """Says what a person lacks for a recording of three pieces or more with an event in it; "" = nothing."""
    seconds: dict[str, float] = defaultdict(float)
    for piece in person.stretches:
        whole = len(piece) / person.recordings[0].sfreq_hz
        if not piece.label and whole < 2 * rules.join_s:
            return f"a stretch of baseline of {whole:g} s, {2 * rules.join_s:g} s (two joins) are needed"
        if piece.label and whole >= rules.shortest_s:
            seconds["events" if piece.label != rules.background else rules.background] += whole
    if not seconds["events"]:
        return f"no stretch of another class than {rules.background} of {rules.shortest_s:g} s"
    needed_s = 2 * rules.longest_s + rules.shortest_s  # three pieces at the least, however long they are drawn
    if seconds[rules.background] < needed_s:
        return f"{seconds[rules.background]:g} s of {rules.background}, {needed_s:g} s are needed"
    return ""


def _sources(person: _Person) -> list[np.ndarray]:
    """Returns each recording's samples [C T], levelled over the stretches that are used of it."""
    sources = []
    for source, recording in enumerate(person.recordings):
        stretches = [(piece.start, piece.stop) for piece in person.stretches if piece.source == source]
        whole = np.asarray(recording.data_uv[:, :])
        sources.append(eeg.levelled(whole, stretches) if stretches else whole)
    return sources


def _pasted(
    person: _Person, sources: Sequence[np.ndarray], rules: Rules, subject: str, number: int
) -> tuple[np.ndarray, list[Laid], int]:
    """Returns one recording of a person [C T], whole seconds of it, where its pieces lie, and its rate."""
    sfreq_hz = round(person.recordings[0].sfreq_hz)
    draw = generator(f"paste {subject}", rules.seed, number)
    shortest, longest = round(rules.shortest_s * sfreq_hz), round(rules.longest_s * sfreq_hz)
    kinds: dict[str, list[Piece]] = {"calibration": [], "background": [], "events": []}
    for piece in person.stretches:
        kind = "events" if piece.label not in ("", rules.background) else "background" if piece.label else "calibration"
        kinds[kind].append(piece)
    background, events = (eeg.cut_pieces(kinds[kind], shortest, longest, draw) for kind in ("background", "events"))
    pieces = eeg.arrange(kinds["calibration"], background, events, draw)
    data_uv, laid = eeg.paste(pieces, sources, _join(rules, sfreq_hz))
    stop = data_uv.shape[1] // sfreq_hz * sfreq_hz  # the last piece is background of a second or more
    *others, last = laid
    return data_uv[:, :stop], [*others, Laid(last.piece, last.start, stop)], sfreq_hz


def _stretches(laid: Sequence[Laid], sfreq_hz: int) -> list[tuple[float, float, str]]:
    """Returns (onset_s, duration_s, class) of all that has a class; neighbours of one class are one."""
    spans: list[list[Any]] = []
    for one in laid:
        if spans and spans[-1][2] == one.piece.label:
            spans[-1][1] = one.stop
        else:
            spans.append([one.start, one.stop, one.piece.label])
    return [(start / sfreq_hz, (stop - start) / sfreq_hz, label) for start, stop, label in spans if label]


def _pieces(
    laid: Sequence[Laid], person: _Person, rules: Rules, sfreq_hz: int
) -> list[tuple[float, float, str, str, float]]:
    """Returns (onset_s, duration_s, class, source, onset_s in it) of each piece, without the first half of its join."""
    told = []
    for number, one in enumerate(laid):
        source = person.recordings[one.piece.source]
        first = one.piece.start + (_join(rules, sfreq_hz) // 2 if number else 0)
        from_s = eeg.true_time_s(first / sfreq_hz, source.segments, source.sfreq_hz)
        lasts_s = (one.stop - one.start) / sfreq_hz
        told.append((one.start / sfreq_hz, lasts_s, one.piece.label, person.files[one.piece.source], from_s))
    return told


def _join(rules: Rules, sfreq_hz: int) -> int:
    """Samples of a join, an even number."""
    return 2 * round(rules.join_s * sfreq_hz / 2)


def _joins(laid: Sequence[Laid], sfreq_hz: int, background: str) -> list[tuple[float, str, str, str]]:
    calm = ("", background)
    return [
        (
            b.start / sfreq_hz,
            a.piece.label or "baseline",
            b.piece.label or "baseline",
            "sham" if a.piece.label in calm and b.piece.label in calm else "event",
        )
        for a, b in pairwise(laid)
    ]


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(columns)
    table.writerows([f"{cell:.6f}".rstrip("0").rstrip(".") if isinstance(cell, float) else cell for cell in row]
                    for row in rows)  # fmt: skip
    write_text(path, lines.getvalue())
