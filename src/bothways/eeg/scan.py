"""Finds recordings in folders, and whose they are."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bothways.eeg.annotations import EDF_ENDINGS, annotations_only, bare_name, lies_in
from bothways.eeg.channels import shown
from bothways.eeg.recording import Recording, read_recording
from bothways.eeg.table_files import TABLE_ENDINGS
from bothways.eeg.tables import why_no_recording
from bothways.errors import UserError, plain_words

EXTENSIONS = (
    ".edf", ".bdf", ".rec", ".gdf", ".vhdr", ".ahdr", ".set", ".fif", ".fif.gz", ".cnt", ".eeg", ".data", ".raw",
    ".mff", ".lay", ".cdt", ".dat", ".nedf", ".nxe", ".mefd", ".ds", ".ns3", ".xdf", ".xdfz",
)  # fmt: skip
"""Endings of what is a recording of its own; their companions (`.fdt`, `.vmrk`, …) are read with them.

Tables (`tables.TABLE_ENDINGS`) count too, where they look like a recording.
"""
# Of mne's own table not looked for (a file given by itself is tried all the same): `.dap` `.rs3` `.cef` `.cdt.dpa`
# `.cdt.cef`, companions of Curry's samples; BCI2000's `.dat`, of which mne reads neither scale nor names; `.mat` and
# `.txt`, which may be anything; `.con` `.sqd` `.bin` (MEG), `.hdr` `.snirf` (near infrared), `.asc` (eyes).
_FOLDERS = (".mff", ".mefd", ".ds")
_NOT_RAW = ("derivatives", "sourcedata", "code")
"""Folders beside the subjects of a BIDS dataset that hold none of its raw data."""
_SUBJECT = re.compile(r"(?:^|[/\\_.-])sub-([A-Za-z0-9]+)")
_SESSION = re.compile(r"(?:^|[/\\_.-])ses-([A-Za-z0-9]+)")


@dataclass(frozen=True)
class Found:
    """A recording on disk, or in memory where `recording` holds it; see `load`.

    `file` is its name relative to the scanned folder, with `/`, as `shown` gives it.
    """

    path: Path
    file: str
    subject: str
    session: str = ""
    note: str = ""
    recording: Recording | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class LeftOut:
    """A file or folder (with `/` at its end) that a scan passed over; `code` is a stable word for programs.

    `no_recording`: a table of something else; `no_rate`: one of channels, without rate and times; `not_read`: one that
    cannot be read; `annotations`: an EDF file with another one's annotations; `bids_folder`: see `_NOT_RAW`.
    """

    file: str
    code: str
    reason: str


def load(found: Found, unit: str | None = None) -> Recording:
    """Returns the recording, read from disk unless it is in memory already; `unit` as in `read_recording`.

    Raises:
        UserError: it cannot be read.
    """
    if found.recording is not None:
        if unit is not None:
            raise UserError(f"{found.file}: unit belongs to files; a recording in memory has its own, set it there")
        return found.recording
    return read_recording(found.path, unit=unit)


def scan(
    paths: Iterable[str | Path | Recording],
    subject_from: str | Path = "path",
    left_out: list[LeftOut] | None = None,
) -> list[Found]:
    """Lists the recordings among files and, recursively, in folders, in the order of their names.

    Args:
        paths: files, folders and recordings in memory (`from_array`, `from_mne`, …).
        subject_from: `path` = the last `sub-…` of the name below the given folder; else, with a note, of the folders
            above it, or the name without its ending; `parent` = the folder that the file lies in; else a CSV with the
            columns `file,subject`.
        left_out: is filled with what was passed over, and why.

    Raises:
        UserError: a path is missing, nothing is found, or the CSV does not name a recording's subject.
    """
    found: dict[Path | int, Found] = {}
    taken: set[str] = set()
    passed: list[LeftOut] = []
    paths = list(paths)
    for root in paths:
        if isinstance(root, Recording):
            if id(root) not in found:
                found[id(root)] = _in_memory(root, taken)
            continue
        root = Path(root)
        if not _exists(root):
            raise UserError(f"{root}: expected a file or folder here, found none; check the path")
        single = root.is_file() or (root.name.lower().endswith(_FOLDERS) and _is_whole(root))
        for path in [root] if single else sorted(_walk(root, passed)):
            real = path.resolve()
            if real in found:
                continue
            inside = path.name if single else path.relative_to(root).as_posix()
            file = shown(inside)
            if file in taken:  # of two folders with equal names inside, the second keeps its own in front
                file = shown(f"{path.parent.name if single else root.resolve().name}/{inside}")
            if file in taken:
                file = shown(path.absolute().as_posix().lstrip("/"))
            file = _untaken(file, taken)  # names may differ in what cannot be shown
            above = path.absolute().as_posix().removesuffix(inside)
            session = _SESSION.findall(inside) or _SESSION.findall(above)
            subject, note = _subject_of_path(inside, above)
            found[real] = Found(path, file, subject, session[-1] if session else "", note)
    recordings = _without_annotations(list(found.values()), passed)
    passed.sort(key=lambda one: one.file)
    if left_out is not None:
        left_out += passed
    if not recordings:
        there = "".join(f"; {one.file} left out: {one.reason}" for one in passed[:3])
        raise UserError(
            f"{', '.join(map(str, paths)) or 'no path given'}: no recording found; expected files that end in "
            f"{' '.join(EXTENSIONS)}, or tables ({' '.join(TABLE_ENDINGS)}) with 10-05 names above columns of samples "
            f"and a time column or a rate{there}"
        )
    return _with_subjects(recordings, subject_from)


def _without_annotations(found: list[Found], passed: list[LeftOut]) -> list[Found]:
    """Takes out the EDF files that hold only annotations of another recording found; one alone stays, to be refused."""
    alike: dict[str, list[Found]] = {}
    for one in found:
        alike.setdefault(bare_name(one.path.name), []).append(one)
    labels: dict[int, str] = {}
    for group in alike.values():
        if len(group) > 1:
            marks = [one for one in group if one.path.name.lower().endswith(EDF_ENDINGS) and annotations_only(one.path)]
            for one in marks:
                folder = one.path.absolute().parent.as_posix()
                of = [other.file for other in group if other not in marks and lies_in(folder, other.file)]
                if of:
                    labels[id(one)] = of[0]
    for one in found:
        if id(one) in labels:
            reason = f"annotations only, of {labels[id(one)]}: no recording, but labels (finetune --labels)"
            passed.append(LeftOut(one.file, "annotations", reason))
    return [one for one in found if id(one) not in labels]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as problem:  # a name too long, a folder that may not be looked into
        raise UserError(f"{path}: cannot be read: {plain_words(problem)}; check the path") from None


def _in_memory(recording: Recording, taken: set[str]) -> Found:
    path = recording.path
    name = path.name if path.is_absolute() else path.as_posix()
    subject, note = (recording.subject, "") if recording.subject else _subject_of_path(name, "")
    session = _SESSION.findall(name)
    session_name = recording.session or (session[-1] if session else "")
    return Found(path, _untaken(shown(name), taken), shown(subject), session_name, note, recording)


def _untaken(file: str, taken: set[str]) -> str:
    """Returns the name, with a number where it is taken already, and takes it."""
    number, one = 2, file
    while file in taken:
        file, number = f"{one}#{number}", number + 1
    taken.add(file)
    return file


def _walk(root: Path, passed: list[LeftOut]) -> Iterator[Path]:
    visited: set[Path] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        here = Path(folder).resolve()
        if here in visited:  # a link that leads back up
            folders.clear()
            continue
        visited.add(here)
        if {"dataset_description.json", "participants.tsv"} & set(files):
            for name in sorted(set(folders) & set(_NOT_RAW)):
                folders.remove(name)
                inside = shown((Path(folder) / name).relative_to(root).as_posix())
                reason = "holds none of the raw data of a BIDS dataset; give the folder itself to take it"
                passed.append(LeftOut(f"{inside}/", "bids_folder", reason))
        whole = [name for name in folders if name.lower().endswith(_FOLDERS) and _is_whole(here / name)]
        folders[:] = sorted(name for name in folders if name not in whole and not name.startswith("."))
        names = {name.lower() for name in files}
        for name in files + whole:
            if name.startswith("."):
                continue
            path = Path(folder) / name
            if name.lower().endswith(TABLE_ENDINGS):
                if code_and_reason := why_no_recording(path):
                    passed.append(LeftOut(shown(path.relative_to(root).as_posix()), *code_and_reason))
                else:
                    yield path
            elif _is_recording(name.lower(), names):
                yield path


def _is_whole(folder: Path) -> bool:
    """Whether a folder is one recording; `.ds` is CTF's where its header lies inside."""
    return folder.suffix.lower() != ".ds" or any(folder.glob("*.res4"))


def _is_recording(name: str, beside: set[str]) -> bool:
    stem, _, ending = name.rpartition(".")
    if not name.endswith(EXTENSIONS):
        return False
    if ending == "eeg":  # BrainVision's samples; alone or with Nihon Kohden's companions a recording
        return not beside & {f"{stem}.vhdr", f"{stem}.ahdr"}
    if ending == "dat":  # Curry 7's samples; Persyst's and others' belong to another file
        return f"{stem}.dap" in beside
    if ending == "data":
        return f"{stem}.head" in beside
    if part := re.fullmatch(r"(.*)-\d+\.fif(\.gz)?", name):  # further parts of a split file
        return f"{part[1]}.fif{part[2] or ''}" not in beside
    return not re.search(r"_split-(?!0*1_)\d+_", name)


def _with_subjects(found: list[Found], subject_from: str | Path) -> list[Found]:
    if subject_from == "parent":
        return [
            one if one.recording is not None else replace(one, subject=shown(one.path.absolute().parent.name), note="")
            for one in found
        ]
    if subject_from == "path":
        return found
    fits = by_ending([one.file for one in found])
    subjects_of: list[set[str]] = [set() for _ in found]
    for file, subject in _read_subjects(Path(subject_from)).items():
        for index in fits(file):
            subjects_of[index].add(subject)
    named = []
    for one, subjects in zip(found, subjects_of):
        if len(subjects) != 1:
            problem = "has no row" if not subjects else f"has {len(subjects)} different subjects"
            raise UserError(f"{subject_from}: {one.file} {problem}; add file,subject for it")
        named.append(replace(one, subject=subjects.pop(), note=""))
    return named


def _subject_of_path(inside: str, above: str) -> tuple[str, str]:
    """Whose a recording is, by its name below the given folder, and a note where that is a guess."""
    if subjects := _SUBJECT.findall(inside):
        return subjects[-1], ""
    advice = "if that is wrong, give --subject-from parent or a CSV file,subject"
    if subjects := _SUBJECT.findall(above):
        return subjects[-1], f"no 'sub-…' but in the folders above; {subjects[-1]!r} taken as the person; {advice}"
    name = shown(inside).rpartition("/")[2]
    stem = name.split(".")[0] or name
    return stem, f"no 'sub-…' in the path; {stem!r} taken as a person of its own; {advice}"


def _read_subjects(path: Path) -> dict[str, str]:
    rows: dict[str, str] = {}
    for row in read_table(path, ("file", "subject")).values():
        file, subject = row["file"], row["subject"]
        if file and subject and rows.setdefault(file, subject) != subject:
            raise UserError(f"{path}: {file} has two subjects, {rows[file]} and {subject}; keep one")
    return rows


def ends_with(file: str, name: str) -> bool:
    """Whether `name` is `file` or its last parts (`a.edf` of `x/a.edf`, not of `ba.edf`)."""
    name = plain(name)
    return file == name or file.endswith(f"/{name}") or name.endswith(f"/{file}")


def by_ending(files: Sequence[str]) -> Callable[[str], list[int]]:
    """Returns what gives the places of the files that a name fits, as `ends_with` does, without trying each."""
    whole: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for index, file in enumerate(files):
        whole.setdefault(file, []).append(index)
        for end in _ends(file):
            ends.setdefault(end, []).append(index)

    def fits(name: str) -> list[int]:
        name = plain(name)
        longer = {index for end in _ends(name)[1:] for index in whole.get(end, [])}
        return sorted(longer.union(ends.get(name, [])))

    return fits


def plain(name: str) -> str:
    """A file's name as a CSV has it, in the form that stores have: `/` between, nothing in front."""
    return name.replace("\\", "/").removeprefix("./").lstrip("/")


def _ends(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


def read_table(path: Path, required: tuple[str, ...]) -> dict[int, dict[str, str]]:
    """Reads a CSV with a header line; takes Excel's mark and line ends, `,` `;` or tab between, spaces around.

    Returns:
        the rows that are not blank, by the line of the file that they begin in.

    Raises:
        UserError: it cannot be read, a required column is missing, or a row has more cells than the header.
    """
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise UserError(f"{path}: expected a CSV file, but {plain_words(problem)}; check the path") from None
    if b"\0" in content:
        raise UserError(f"{path}: expected a CSV file, but it is no text in UTF-8 or Latin-1; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = list(io.StringIO(text, newline=None))
    delimiter = max(",;\t", key=next((line for line in lines if line.strip()), "").count)
    rows: dict[int, list[str]] = {}
    reader, begins = csv.reader(lines, delimiter=delimiter), 1
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                rows[begins] = cells
            begins = reader.line_num + 1
    except csv.Error as problem:
        raise UserError(f"{path}: expected a CSV file, but {problem}") from None
    header = [name.lower() for name in rows.pop(next(iter(rows)))] if rows else []
    missing = [name for name in required if name not in header]
    if missing:
        raise UserError(
            f"{path}: expected the columns {', '.join(required)}, got "
            f"{shown(', '.join(header)[:300]) or 'an empty file'}; add {', '.join(missing)}"
        )
    for line, cells in rows.items():
        if any(cells[len(header) :]):
            raise UserError(
                f"{path}: line {line}: expected {len(header)} cells as in the header, got {len(cells)}; put quotation "
                f"marks around a cell that holds {delimiter!r} itself"
            )
    return {line: dict(zip(header, cells + [""] * (len(header) - len(cells)))) for line, cells in rows.items()}
