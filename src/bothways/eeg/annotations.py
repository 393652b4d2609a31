"""Annotation files that lie apart from their recordings, such as Sleep-EDF's hypnograms."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from bothways.eeg.channels import shown
from bothways.eeg.edf import EdfFile, open_edf
from bothways.eeg.recording import Note, listed
from bothways.errors import UserError

EDF_ENDINGS = (".edf", ".bdf", ".rec")
_KIND = re.compile(
    r"(^|[\s_.-]+)(psg|eeg|signals?|raw|hypnograms?|hypno?|annotations?|events?|stag(es|ing)|scor(es|ing)|labels?|base)$"
)
"""A last word of a name that says what the file is and not which."""
_SLEEP_EDF = re.compile(r"(s[ct]\d{4}[a-z])[a-z0-9]")
"""Sleep-EDF's names end in a letter of the recorder or scorer: SC4001E0-PSG and SC4001EC-Hypnogram are one night."""
_DAY_S = 86400


@dataclass(frozen=True)
class Annotated:
    """A recording's name in the store, and what was marked in it: (onset_s, duration_s, text)."""

    file: str
    events: list[tuple[float, float, str]]


def read_annotations(source: Path, recordings: Sequence[tuple[str, str | None]]) -> tuple[list[Annotated], list[Note]]:
    """Reads annotations-only EDF+ files and finds whose they are.

    A file belongs to the recording with the same name, without its ending, a last word that says what it is (`-PSG`,
    `_eeg`, `-Hypnogram`, `_annotations`, …) and Sleep-EDF's last letter, in whatever case; where recordings of the
    store lie in folders, the file's own folder must end as the recording's does. Onsets count from the file's start;
    where both clocks are known and are less than a day apart, they are moved to the recording's.

    Args:
        source: a file, or a folder that is searched; files with signals in it are not looked at.
        recordings: file and clock at the start (ISO, None = unknown) of each, as the store has them.

    Raises:
        UserError: a file has signals or cannot be read, one fits several recordings or several fit one, or none fits.
    """
    notes: list[Note] = []
    opened = _open_all(source, notes)
    if not opened:
        why = f" ({'; '.join(note.message for note in notes)})" if notes else ""
        raise UserError(f"{source}: expected annotations-only EDF files (hypnograms) in this folder, found none{why}")
    by_name: dict[str, list[int]] = {}
    for index, (file, _) in enumerate(recordings):
        by_name.setdefault(bare_name(file), []).append(index)
    found: dict[int, Path] = {}
    unmatched: list[str] = []
    for path in opened:
        folder = path.absolute().parent.as_posix()
        fits = [i for i in by_name.get(bare_name(path.name), []) if lies_in(folder, recordings[i][0])]
        advice = "rename, or write the labels as a CSV"
        if len(fits) > 1:
            names = listed([recordings[i][0] for i in fits])
            raise UserError(f"{path}: expected to fit one recording, got {len(fits)} ({names}); {advice}")
        if not fits:
            unmatched.append(shown(path.name))
        elif fits[0] in found:
            both = f"{found[fits[0]].name} and {path.name}"
            raise UserError(f"{source}: expected one file of {recordings[fits[0]][0]}, got {both}; {advice}")
        else:
            found[fits[0]] = path
    if not found:
        raise UserError(
            f"{source}: expected names like the recordings' (a-PSG.edf and a-Hypnogram.edf), got {listed(unmatched)} "
            f"against {listed([file for file, _ in recordings])}; rename, or write the labels as a CSV"
        )
    if unmatched:
        notes.append(Note("rows_unmatched", f"{len(unmatched)} files name no recording: {listed(unmatched)}"))
    annotated, shifted, apart = [], [], []
    for index, path in sorted(found.items()):
        (file, clock), edf = recordings[index], opened[path]
        shift_s = _shift_s(clock, edf)
        if abs(shift_s) >= _DAY_S:  # a date that was taken out or made up
            apart.append(f"{file} ({shift_s / _DAY_S:+.0f} days)")
            shift_s = 0.0
        elif shift_s:
            shifted.append(f"{file} ({shift_s:+g} s)")
        _, texts = edf.annotations()
        annotated.append(
            Annotated(file, [(onset_s + shift_s, duration_s, text) for onset_s, duration_s, text in texts])
        )
    if shifted:
        text = f"labels of {len(shifted)} recordings start by another clock and are moved to it: {listed(shifted)}"
        notes.append(Note("labels_shifted", text))
    if apart:
        text = "days apart; taken as counted from the recording's start"
        notes.append(Note("clocks_differ", f"clocks of {len(apart)} recordings and labels are {text}: {listed(apart)}"))
    return annotated, notes


def _open_all(source: Path, notes: list[Note]) -> dict[Path, EdfFile]:
    """Opens the annotations-only files of a folder, or the one that is given."""
    single, damaged = source.is_file(), []
    opened: dict[Path, EdfFile] = {}
    for path in [source] if single else sorted(source.rglob("[!.]*")):
        if not (path.name.lower().endswith(EDF_ENDINGS) and path.is_file()):
            continue
        try:
            edf = open_edf(path)
        except UserError:
            if single:
                raise
            damaged.append(shown(path.name))
            continue
        if all(signal.is_annotation for signal in edf.signals):
            opened[path] = edf
        elif single:
            raise UserError(
                f"{source}: expected annotations only, got a recording of {len(edf.signals)} signals; "
                "`--labels events` takes the recordings' own"
            )
    if damaged:
        notes.append(Note("not_read", f"{len(damaged)} files are no EDF or damaged: {listed(damaged)}"))
    return opened


def annotations_only(path: Path) -> bool:
    """Whether a file is EDF and holds annotations and no signal."""
    try:
        return all(signal.is_annotation for signal in open_edf(path).signals)
    except (UserError, OSError):
        return False


def bare_name(file: str) -> str:
    """Returns what recordings and their annotations have in common in their names; see `read_annotations`."""
    name = PurePosixPath(file).name.lower().removesuffix(".gz").rpartition(".")[0]
    while (shorter := _KIND.sub("", name)) != name:
        name = shorter
    match = _SLEEP_EDF.fullmatch(name)
    return match[1] if match else name


def lies_in(folder: str, file: str) -> bool:
    """Whether a folder ends as the recording's does; a recording without one may lie anywhere."""
    parent = file.rpartition("/")[0]
    return not parent or f"{folder}/".endswith(f"/{parent}/")


def _shift_s(clock: str | None, edf: EdfFile) -> float:
    """Seconds from the recording's start to the annotations'; 0 where a clock is unknown."""
    if clock is None or edf.start is None:
        return 0.0
    return (edf.start - datetime.fromisoformat(clock).replace(tzinfo=None)).total_seconds()
