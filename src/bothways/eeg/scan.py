"""Finds recordings in folders, and whose they are."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bothways.eeg.annotations import EDF_ENDINGS, annotations_only, bare_name, lies_in
from bothways.eeg.channels import shown
from bothways.eeg.reading import decoded
from bothways.eeg.recording import Recording, read_recording
from bothways.eeg.table_files import TABLE_ENDINGS
from bothways.eeg.tables import why_no_recording, why_text_left_out
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
UNNAMED = ("array", "mne")
"""What recordings in memory are called that nobody named; several get a number."""
_ADVICE = "if that is wrong, give --subject-from parent or a CSV file,subject"
_NOT_RAW = ("derivatives", "sourcedata", "code")
"""Folders beside the subjects of a BIDS dataset that hold none of its raw data."""
_SIDECAR = re.compile(
    r"(?i)participants\.tsv|samples\.tsv|([a-z]+-[a-z0-9+]+_)+(channels|events|electrodes|scans|sessions)\.tsv(\.gz)?"
)
"""Tables of a BIDS dataset that speak of recordings: none of them is one."""
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
    code: str = "subject_guessed"
    """The note's, for programs."""
    recording: Recording | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class LeftOut:
    """A file or folder (with `/` at its end) that a scan passed over; `code` is a stable word for programs.

    `no_recording`: a table of something else; `no_rate`, `no_times`, `no_data`: one of channels, without rate and
    times, with times that do not rise, without rows; `not_read`: one that cannot be read; `text_table`: a `.txt`;
    `annotations`: an EDF file with another one's annotations; `bids_folder`: see `_NOT_RAW`; `seen_already`: a link to
    what is taken; `no_file`: a pipe or device.
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


def as_paths(paths: Any) -> list[str | Path | Recording]:
    """Returns what to look at as a list; one path or recording alone is a list of one.

    Raises:
        UserError: one of them is neither.
    """
    alone = isinstance(paths, str | os.PathLike | Recording) or not isinstance(paths, Iterable)
    some: list[str | Path | Recording] = []
    for one in [paths] if alone else paths:
        if not isinstance(one, str | os.PathLike | Recording):
            raise UserError(
                f"expected paths, or recordings as `from_array` or `from_mne` make them, got {type(one).__name__}"
            )
        some.append(one if isinstance(one, str | Recording) else Path(one))
    return some


def scan(
    paths: str | Path | Recording | Iterable[str | Path | Recording],
    subject_from: str | Path = "path",
    left_out: list[LeftOut] | None = None,
) -> list[Found]:
    """Lists the recordings among files and, recursively, in folders, in the order of their names.

    Args:
        paths: files, folders and recordings in memory (`from_array`, `from_mne`, …), or one of these.
        subject_from: `path` = the last `sub-…` of the name below the given folder (with a note where two folders have
            the same); else, with a note, of the folders above it, or the name without its ending, with its folder where
            another folder has it too; `parent` = the folder that the file lies in; else a CSV with the columns
            `file,subject`.
        left_out: is filled with what was passed over, and why.

    Raises:
        UserError: a path is missing, nothing is found, or the CSV does not name a recording's subject.
    """
    passed: list[LeftOut] = []
    paths = as_paths(paths)
    recordings = _without_annotations(_named(_listed(paths, passed)), passed)
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


@dataclass(frozen=True)
class _Seen:
    """What lies where: `inside` is its name below the given folder `root`."""

    path: Path
    inside: str
    root: Path
    recording: Recording | None = None

    def name(self, length: int) -> str:
        """Its name; the greater the length, the more of the path."""
        if self.recording is not None:
            return shown(self.inside)
        whole = self.path.absolute().as_posix().lstrip("/")
        return shown((self.inside, f"{self.root.name}/{self.inside}", whole)[length])


def _listed(paths: Sequence[str | Path | Recording], passed: list[LeftOut]) -> list[_Seen]:
    """Lists each recording once, in the order of paths and names."""
    seen: dict[Path | int, _Seen] = {}
    for root in paths:
        if isinstance(root, Recording):
            name = root.path.name if root.path.is_absolute() else root.path.as_posix()
            seen.setdefault(id(root), _Seen(root.path, name, Path(), root))
            continue
        root = Path(root)
        if not _exists(root):
            raise UserError(f"{root}: expected a file or folder here, found none; check the path")
        if not (root.is_file() or root.is_dir()):
            raise UserError(f"{root}: expected a file or folder, got a pipe or a device; check the path")
        single = root.is_file() or (root.name.lower().endswith(_FOLDERS) and _is_whole(root))
        for path in [root] if single else sorted(_walk(root, passed)):
            inside = path.name if single else path.relative_to(root).as_posix()
            real = path.resolve()
            first = seen.setdefault(real, _Seen(path, inside, path.absolute().parent if single else root.resolve()))
            if path.absolute() not in (first.path.absolute(), real):
                passed.append(LeftOut(shown(inside), "seen_already", f"leads to {shown(first.inside)}, which is taken"))
    return list(seen.values())


def _named(seen: list[_Seen]) -> list[Found]:
    """Gives each a name of its own, with more of its path where two have the same, and says whose it is."""
    length = [0] * len(seen)
    for _ in range(2):
        names = [one.name(n) for one, n in zip(seen, length)]
        count = Counter(name for name, _ in {(name, one.root) for name, one in zip(names, seen) if not one.recording})
        length = [n + (count[name] > 1 and n < 2) for n, name in zip(length, names)]
    names = [one.name(n) for one, n in zip(seen, length)]
    unnamed = {name: sum(one.recording is not None for one in seen if one.inside == name) for name in UNNAMED}
    numbers: Counter[str] = Counter()
    taken: set[str] = set()
    found = []
    for one, name in zip(seen, names):
        if one.recording is not None and unnamed.get(name, 0) > 1:
            numbers[name] += 1
            name = f"{name}-{numbers[name]}"
        file = _untaken(name, taken)  # names may differ in what cannot be shown, or be given twice
        above = "" if one.recording is not None else one.path.absolute().as_posix().removesuffix(one.inside)
        sessions = _SESSION.findall(one.inside) or _SESSION.findall(above)
        session = sessions[-1] if sessions else ""
        subject, note = _subject_of_path(one.inside, above)
        if one.recording is not None:
            session = one.recording.session or session
            if one.recording.subject:
                subject, note = shown(one.recording.subject), ""
            elif note:
                subject, note = _own_person(file if file != shown(one.inside) else subject)
        found.append(Found(one.path, file, subject, session, note, recording=one.recording))
    return _apart(found)


def _apart(found: list[Found]) -> list[Found]:
    """Keeps guessed people of two folders apart, and says where two folders have the same `sub-…`."""
    folders: dict[str, list[str]] = {}
    for one in found:
        if one.recording is None and (folder := _folder_of(one)) not in folders.setdefault(one.subject, []):
            folders[one.subject].append(folder)
    apart = []
    for one in found:
        if one.recording is None and len(same := folders[one.subject]) > 1:
            short = _ends_apart(same)
            here = short[_folder_of(one)]
            others = ", ".join(name for name in list(short.values())[:4] if name != here)
            if one.note and one.subject not in _SUBJECT.findall(one.path.absolute().as_posix()):
                subject, note = _own_person(f"{here}/{one.subject}")
                one = replace(one, subject=subject, note=note)
            elif not one.note:
                both = f"sub-{one.subject} lies in {len(same)} folders, here in {here} and in {others}"
                note = f"{both}, and is taken as one person; {_ADVICE}"
                one = replace(one, note=note, code="subject_in_two_folders")
        apart.append(one)
    return apart


def _ends_apart(folders: list[str]) -> dict[str, str]:
    """Returns, of each folder, as many of its last parts as tell it from the others."""
    for n in range(1, 100):
        short = {folder: "/".join(folder.split("/")[-n:]) for folder in folders}
        if len(set(short.values())) == len(folders):
            break
    return short


def _folder_of(one: Found) -> str:
    """The folder that holds a person's recordings: above the first part with their `sub-…`, but for sessions."""
    parts = one.path.absolute().as_posix().split("/")
    last = next((i for i, part in enumerate(parts) if one.subject in _SUBJECT.findall(part)), len(parts) - 1)
    return shown("/".join(part for part in parts[:last] if not _SESSION.match(part)))


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


def _untaken(file: str, taken: set[str]) -> str:
    """Returns the name, with a number where it is taken already, and takes it."""
    number, one = 2, file
    while file in taken:
        file, number = f"{one}#{number}", number + 1
    taken.add(file)
    return file


def _walk(root: Path, passed: list[LeftOut]) -> Iterator[Path]:
    visited: dict[Path, str] = {}
    for folder, folders, files in os.walk(root, followlinks=True):
        here = Path(folder).resolve()
        inside = shown(Path(folder).relative_to(root).as_posix())
        if here in visited:  # a link, perhaps back up
            reason = f"leads to {visited[here]}/, which is searched already"
            passed.append(LeftOut(f"{inside}/", "seen_already", reason))
            folders.clear()
            continue
        visited[here] = inside
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
            path, why = Path(folder) / name, None
            table = name.lower().endswith(TABLE_ENDINGS)
            if table and _SIDECAR.fullmatch(name):
                continue
            if name.lower().endswith((".txt", ".txt.gz")) and path.is_file():
                why = why_text_left_out(path)
            elif not (table or _is_recording(name.lower(), names)):
                continue
            elif path.exists() and not (path.is_file() or path.is_dir()):
                why = "no_file", "a pipe or a device, and no file"
            elif not (table and (why := why_no_recording(path))):
                yield path
            if why:
                passed.append(LeftOut(shown(path.relative_to(root).as_posix()), *why))


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
    if subjects := _SUBJECT.findall(above):
        return subjects[-1], f"no 'sub-…' but in the folders above; {subjects[-1]!r} taken as the person; {_ADVICE}"
    name = shown(inside).rpartition("/")[2]
    return _own_person(name.split(".")[0] or name)


def _own_person(subject: str) -> tuple[str, str]:
    return subject, f"no 'sub-…' in the path; {subject!r} taken as a person of its own; {_ADVICE}"


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
    lines = list(io.StringIO(decoded(content), newline=None))
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
