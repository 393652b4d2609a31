"""What a BIDS folder says about a recording in the files beside it and above it.

A file applies to the recordings below its folder that carry all of its entities (`task-rest_channels.tsv` to every
subject's rest); of several the nearest one is taken, JSON files are laid over each other.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bothways.eeg.channels import parse_label, parse_labels, shown, trusted_positions
from bothways.eeg.recording import (
    MARKED_BAD,
    Note,
    Recording,
    leave_out,
    listed,
    no_eeg_error,
    place_events,
    take_rows,
    unit_in_uv,
)  # fmt: skip
from bothways.eeg.scan import read_table
from bothways.errors import UserError
from bothways.files import read_json

_ENTITY = re.compile(r"([A-Za-z0-9]+)-([A-Za-z0-9+]+)")
_ABSENT = ("", "n/a")
_AGREE = 1e-3
"""Two statements of a rate that differ by this share contradict each other."""
_LEFT_FORWARD = ("CTF", "EEGLAB", "EEGLAB-HJ", "4DBti", "KitYokogawa")
"""Coordinate systems with x to the front and y to the left."""
_RIGHT_FORWARD = ("CapTrak", "NeuromagElektaMEG", "ElektaNeuromag", "ChietiItab")
"""Those with x to the right and y to the front, as here; all templates of MNI are such too."""


@dataclass(frozen=True)
class Beside:
    """The files of a dataset that speak of one recording; None = there is none."""

    root: Path
    subject: str
    files: dict[str, Path | None]
    facts: dict[str, Any]
    notes: list[Note] = field(default_factory=list)


def with_bids(recording: Recording, unit: str | None = None) -> Recording:
    """Returns the recording with what its BIDS dataset says, if it lies in one; each change and contradiction noted.

    - `channels.tsv`: channels of another type than EEG are left out; bad ones are marked; where the file itself states
      no unit (and the user none) the table's is used, else the file's stands.
    - `events.tsv`: its rows replace the file's own events, but for what those mark as bad.
    - `eeg.json`: rate, mains and reference are compared or told.
    - `electrodes.tsv` with `coordsystem.json`: positions, where the file has none of its own and the frame is known.

    A table that cannot be read is noted and changes nothing.

    Raises:
        UserError: by the dataset, none of the channels is EEG.
    """
    beside = _find(recording.path)
    if beside is None:
        return recording
    notes = [*recording.notes, *beside.notes]
    recording = replace(recording, notes=notes, left_out=dict(recording.left_out))
    for suffix, apply in (("channels", _channels), ("electrodes", _electrodes), ("events", _events)):
        path = beside.files[suffix]
        if path is not None:
            try:
                recording = apply(recording, path, beside, unit)
            except _Broken as problem:
                notes.append(Note("bids_broken", f"{problem}; not used"))
    _facts(recording, beside)
    _participant(recording, beside)
    return recording


class _Broken(Exception):
    """A table beside a recording that cannot be used."""


def _find(path: Path) -> Beside | None:
    match = re.fullmatch(r"((?:[A-Za-z0-9]+-[A-Za-z0-9+]+_)+)i?eeg\..+", path.name)
    entities = dict(_ENTITY.findall(match[1])) if match else {}
    if "sub" not in entities:
        return None
    folders = [path.absolute().parent]
    while not (folders[-1] / "dataset_description.json").is_file() and folders[-1].parent != folders[-1]:
        if folders[-1].name == f"sub-{entities['sub']}":  # the dataset lies right above, described or not
            folders.append(folders[-1].parent)
            break
        folders.append(folders[-1].parent)
    else:
        if not (folders[-1] / "dataset_description.json").is_file():
            folders = folders[:1]  # a name like BIDS's outside of any dataset
    # `channels`, `electrodes` and the like carry no entity that the recording does not; `space` is their own
    notes: list[Note] = []
    files: dict[str, Path | None] = {}
    for suffix in ("channels", "events", "electrodes"):
        files[suffix] = next(_applying(folders, suffix, ".tsv", entities), None)
    facts: dict[str, Any] = {}
    electrodes = files["electrodes"]
    space = dict(_ENTITY.findall(electrodes.name)).get("space") if electrodes else None
    for suffix in ("eeg", "coordsystem"):
        for file in reversed(list(_applying(folders, suffix, ".json", entities))):
            if dict(_ENTITY.findall(file.name)).get("space") not in (None, space):
                continue
            try:
                content = read_json(file)
                facts |= content if isinstance(content, dict) else {}
            except UserError as problem:
                notes.append(Note("bids_broken", f"{_one_line(problem)}; not used"))
    return Beside(folders[-1], entities["sub"], files, facts, notes)


def _applying(folders: list[Path], suffix: str, ending: str, entities: dict[str, str]) -> Iterator[Path]:
    """Yields the files that apply, the nearest first; in one folder those with more entities first."""
    for folder in folders:
        fitting = []
        for file in sorted(folder.glob(f"*{suffix}{ending}")):
            head, _, last = file.name.removesuffix(ending).rpartition("_")
            own = dict(_ENTITY.findall(head))
            if last == suffix and all(entities.get(k) == v for k, v in own.items() if k != "space"):
                fitting.append((-len(own), file))
        yield from (file for _, file in sorted(fitting))


def _rows(path: Path, required: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        return list(read_table(path, required).values())
    except UserError as problem:
        raise _Broken(_one_line(problem)) from None


def _one_line(problem: Exception) -> str:
    return shown(" ".join(str(problem).split()))


def _by_channel(rows: dict[str, dict[str, str]], file_names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the row of each channel: of its own name, else the only one that means the same (`Fp1`, `EEG Fp1`)."""
    found = {own: rows[own] for own in file_names if own in rows}
    alike: dict[str, tuple[list[str], list[str]]] = {}
    for side, names in enumerate((rows, file_names)):
        for name in names:
            if name not in found:
                alike.setdefault(parse_label(name).name, ([], []))[side].append(name)
    return found | {own[0]: rows[row[0]] for row, own in alike.values() if len(row) == len(own) == 1}


def _channels(recording: Recording, path: Path, beside: Beside, unit: str | None) -> Recording:
    rows = {row["name"]: row for row in _rows(path, ("name",))}
    own_rows = _by_channel(rows, recording.file_names)
    notes, left_out = recording.notes, recording.left_out
    kept: list[int] = []
    factors: list[float] = []
    bad = list(recording.marked_bad)
    typed, absent, differing, taken = [], [], [], []
    known = recording.file_units or [""] * len(recording.file_names)
    guessed = unit is None and any(note.code == "unit_guessed" for note in notes)
    for index, (own, name, file_unit) in enumerate(zip(recording.file_names, recording.ch_names, known)):
        row = own_rows.get(own)
        if row is None:
            absent.append(own)
            kept.append(index)
            factors.append(1.0)
            continue
        kind = row.get("type", "").strip()
        if kind.lower() not in (*_ABSENT, "eeg"):
            leave_out(left_out, own, f"{kind} by {path.name}, not scalp EEG")
            typed.append(f"{own} ({kind})")
            continue
        stated = unit_in_uv(row.get("units", ""))
        from_table = stated is not None and guessed and unit_in_uv(file_unit) is None
        if from_table:
            taken.append(own)
        elif stated is not None and unit_in_uv(file_unit) not in (None, stated):
            differing.append(f"{own} ({file_unit} in the file, {row['units']} in the table)")
        kept.append(index)
        factors.append(stated if from_table and stated is not None else 1.0)
        if row.get("status", "").strip().lower() == "bad" and name not in bad:
            bad.append(name)
    if not kept:
        raise no_eeg_error(recording.path, left_out)
    used = {row["name"] for row in own_rows.values()}
    missing = [name for name in rows if name not in used and name not in left_out]
    if typed:
        notes.append(Note("bids_channels", f"left out by {path.name}: {listed(typed)}"))
    if differing:
        notes.append(Note("bids_units", f"units differ, the file's stand: {listed(differing)}"))
    if absent or missing:
        parts = [
            f"not in {where}: {listed(names)}" for where, names in ((path.name, absent), ("the file", missing)) if names
        ]
        differ = "channels of the file and of the table differ, bad marks and types of these are not applied"
        notes.append(Note("bids_mismatch", f"{differ}; {'; '.join(parts)}"))
    if taken:
        still = [recording.file_names[i] for i in kept if recording.file_names[i] not in taken and not known[i].strip()]
        notes[:] = [note for note in notes if note.code != "unit_guessed"]
        if still:
            notes.append(Note("unit_guessed", f"unit taken for microvolts: {listed(still)}"))
        notes.append(Note("bids_units", f"units by {path.name}, as the file states none: {listed(taken)}"))
    names = [recording.ch_names[index] for index in kept]
    plain = kept == list(range(len(known))) and set(factors) == {1.0}
    return replace(
        recording,
        data_uv=recording.data_uv if plain else take_rows(recording.data_uv, kept, factors),
        ch_names=names,
        file_names=[recording.file_names[index] for index in kept],
        positions=recording.positions[kept],
        marked_bad=[name for name in bad if name in names],
        file_units=[known[index] for index in kept],
    )


def _events(recording: Recording, path: Path, beside: Beside, unit: str | None) -> Recording:
    events, skipped = [], 0
    for row in _rows(path, ("onset",)):
        onset_s, duration_s = _number(row["onset"]), _number(row.get("duration", ""))
        if onset_s is None:
            skipped += 1
            continue
        labels = (row.get(name, "").strip() for name in ("trial_type", "value", "stim_type", "event_type"))
        label = next((text for text in labels if text.lower() not in _ABSENT), "event")
        events.append((onset_s, max(duration_s or 0.0, 0.0), label))
    # what became of the file's own events is of no interest any more
    notes = [note for note in recording.notes if note.code not in ("events_outside", "events_shortened")]
    marks = [event for event in recording.events if MARKED_BAD.fullmatch(event.label)]
    marks = [event for event in marks if event.label not in {label for *_, label in events}]
    n_own = len(recording.events) - len(marks)
    notes.append(Note("bids_events", f"{len(events)} events of {path.name} in place of {n_own} of the file's own"))
    if skipped:
        notes.append(Note("bids_events_skipped", f"{skipped} rows of {path.name} have no onset and are left out"))
    placed = place_events(events, recording.segments, recording.sfreq_hz, notes)
    return replace(recording, events=sorted(marks + placed, key=lambda event: event.onset_s), notes=notes)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _electrodes(recording: Recording, path: Path, beside: Beside, unit: str | None) -> Recording:
    rows = _by_channel({row["name"]: row for row in _rows(path, ("name", "x", "y", "z"))}, recording.file_names)
    if any(note.code == "digitised_positions" for note in recording.notes):
        return recording
    points = np.full((len(recording.file_names), 3), np.nan)
    for point, own in zip(points, recording.file_names):
        if own in rows:
            point[:] = [np.nan if (x := _number(rows[own][axis])) is None else x for axis in "xyz"]
    system = str(beside.facts.get("EEGCoordinateSystem") or beside.facts.get("iEEGCoordinateSystem") or "none")
    turned = _axes(points, system)
    channels = parse_labels(recording.file_names)
    positions = None if turned is None else trusted_positions(turned, channels)
    if positions is None:
        why = "frame not known" if turned is None else "not near where the names belong"
        recording.notes.append(Note("bids_positions_unused", f"positions of {path.name} ({system}) left aside: {why}"))
        return recording
    notes = [note for note in recording.notes if note.code not in ("template_positions", "unknown_names")]
    notes.append(Note("digitised_positions", f"electrode positions by {path.name} ({system})"))
    if unknown := [n for n, p in zip(recording.ch_names, positions) if np.isnan(p[0]).any()]:
        notes.append(Note("unknown_names", f"no place on the head is known for {listed(unknown)}"))
    return replace(recording, positions=positions, notes=notes)


def _axes(points: np.ndarray, system: str) -> np.ndarray | None:
    """Turns points so that x is right and y front; None = the frame is not known."""
    if system in _RIGHT_FORWARD or system.startswith(("MNI", "ICBM", "Talairach", "fsaverage", "IXI", "OASIS")):
        return points
    if system in _LEFT_FORWARD:
        return np.stack([-points[:, 1], points[:, 0], points[:, 2]], 1)
    return None


def _facts(recording: Recording, beside: Beside) -> None:
    facts, notes = beside.facts, recording.notes
    rate_hz = facts.get("SamplingFrequency")
    if isinstance(rate_hz, int | float) and 0 < rate_hz < 1e9 and abs(rate_hz / recording.sfreq_hz - 1) > _AGREE:
        message = f"the dataset states {rate_hz:g} Hz, the file has {recording.sfreq_hz:g} Hz; the file's rate stands"
        notes.append(Note("bids_rate", message))
    for code, key, text in (
        ("bids_mains", "PowerLineFrequency", "mains frequency by the dataset: {} Hz"),
        ("bids_reference", "EEGReference", "reference by the dataset: {}"),
    ):
        if (value := facts.get(key)) not in (None, *_ABSENT):
            notes.append(Note(code, text.format(shown(" ".join(str(value).split())[:100]))))


def _participant(recording: Recording, beside: Beside) -> None:
    path = beside.root / "participants.tsv"
    if not path.is_file():
        return
    try:
        people = {row["participant_id"] for row in _rows(path, ("participant_id",))}
    except _Broken as problem:
        recording.notes.append(Note("bids_broken", f"{problem}; not used"))
        return
    if not people & {f"sub-{beside.subject}", beside.subject}:
        recording.notes.append(Note("bids_participant", f"sub-{beside.subject} is not in participants.tsv"))
