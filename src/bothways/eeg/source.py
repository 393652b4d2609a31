"""What a recording is read from: the file, what belongs to it, and one hash over all of that."""

import hashlib
import re
from functools import lru_cache
from itertools import count, takewhile
from pathlib import Path

from bothways.files import sha256_file

_SIDECARS = ("eeg.json", "events.tsv", "events.json", "channels.tsv", "electrodes.tsv", "coordsystem.json")
"""BIDS: in the recording's folder or above it, with the same `key-value` parts or fewer, and perhaps a `space`."""
_FOLDERS_ABOVE = 3  # dataset/sub-…/ses-…/eeg


def source_hash(path: Path) -> str:
    """SHA-256 of the names and the content of `source_files`; the same wherever they lie.

    Raises:
        OSError: one of them cannot be read.
    """
    digest = hashlib.sha256()
    for file in source_files(path):
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        digest.update(f"{name.encode('utf-8', 'surrogateescape').hex()} {sha256_file(file)}\n".encode())
    return digest.hexdigest()


def source_files(path: Path) -> list[Path]:
    """Lists the files that a recording may be read from; one too many does no harm, one too few hides a change.

    Of a folder all in it. Else the file and, beside it, what has its name up to the ending, what a BrainVision header
    names, the further parts of a split FIF, and the sidecars of BIDS.
    """
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    folder = path.absolute().parent
    stem = re.sub(r"(?i)(\.(fif|csv|tsv|txt)\.gz|\.[^.]*)$", "", path.name)
    named, sidecars = _listing(folder)
    names = [name for name in named.get(_start(path.name), []) if name.lower().startswith(f"{stem.lower()}.")]
    if path.suffix.lower() in (".vhdr", ".ahdr"):
        names += re.findall(r"(?m)^(?:Data|Marker)File=(.+?)\s*$", path.read_bytes().decode("utf-8", "surrogateescape"))
    # An EEGLAB header may name a data file of another name; which one is not worth reading it for.
    beside = {".set": ".fdt", ".lay": ".dat"}.get(path.suffix.lower())
    if beside is not None:
        names += [name for same in named.values() for name in same if name.lower().endswith(beside)]
    if ending := re.search(r"(?i)\.fif(\.gz)?$", path.name):
        names += _parts(folder, stem, ending[0])
    files = {folder / name for name in (path.name, *names)}
    parts = stem.split("_")
    for above in (folder, *folder.parents[:_FOLDERS_ABOVE]) if _subject(parts) else ():
        _, sidecars = _listing(above)
        files |= {
            above / name
            for subject in ("", _subject(parts))
            for name in sidecars.get(subject, [])
            if {part for part in name.split("_")[:-1] if not part.startswith("space-")} <= set(parts)
        }
    return sorted(file for file in files if file.is_file())


def _parts(folder: Path, stem: str, ending: str) -> list[str]:
    """The further parts of a split FIF, in both ways to name them."""
    first = re.match(r"(.*_split-)(0*1)(_.*|)$", stem)
    names = (
        f"{first[1]}{number:0{len(first[2])}}{first[3]}{ending}" if first else f"{stem}-{number - 1}{ending}"
        for number in count(2)
    )
    return list(takewhile(lambda name: (folder / name).is_file(), names))


def _listing(folder: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Returns the names in a folder by `_start`, and its sidecars by subject: in a large one each needs a few only."""
    try:
        return _listed(folder, folder.stat().st_mtime_ns)
    except OSError:  # a folder that may be entered but not listed
        return {}, {}


@lru_cache(maxsize=8)
def _listed(folder: Path, _changed_ns: int) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    named: dict[str, list[str]] = {}
    sidecars: dict[str, list[str]] = {}
    for file in folder.iterdir():
        named.setdefault(_start(file.name), []).append(file.name)
        if file.name.endswith(_SIDECARS):
            sidecars.setdefault(_subject(file.name.split("_")), []).append(file.name)
    return named, sidecars


def _start(name: str) -> str:
    return name.split(".")[0].lower()


def _subject(parts: list[str]) -> str:
    return next((part for part in parts if part.startswith("sub-")), "")
