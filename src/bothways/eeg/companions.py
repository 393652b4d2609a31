"""What is wrong with a recording's files, where the readers below mne say it badly, or end the process."""

import importlib.util
import io
import signal
import struct
import subprocess
from pathlib import Path

from bothways.errors import UserError
from bothways.workers import python

_WHOLES = {
    ".eeg": (".vhdr", ".ahdr"), ".vmrk": (".vhdr", ".ahdr"), ".amrk": (".ahdr",), ".fdt": (".set",), ".dat": (".lay",),
    ".head": (".data",), **dict.fromkeys((".21e", ".pnt", ".log"), (".EEG", ".eeg")),
}  # fmt: skip
"""By the ending of a part, how the file ends that is given to read the recording."""


def need_reader(path: Path, reader: str) -> None:
    """Refuses a format whose reader is not installed."""
    if importlib.util.find_spec(reader) is None:
        raise UserError(f"{path}: expected {reader} to read this format with; pip install 'bothways[readers]'")


def check_companions(path: Path) -> None:
    """Refuses a part of a recording, and one that lacks a file of its own, or its reader; mne says so otherwise."""
    suffix = path.suffix.lower()
    folder = path if path.is_dir() else path.absolute().parent
    beside = {file.name.lower(): file.name for file in folder.iterdir()}
    wholes = [beside.get(path.with_suffix(ending).name.lower()) for ending in _WHOLES.get(suffix, ())]
    if suffix == ".bin" and folder.suffix.lower() == ".mff":
        wholes.append(folder.name)
    for whole in filter(None, wholes):
        raise UserError(f"{path}: expected a recording, got a part of one; give {whole}")
    readers = {".mff": "mffpy", ".dat": "curryreader", ".cdt": "curryreader"}
    if suffix in readers:
        need_reader(path, readers[suffix])
    header = [ending for ending in (".cdt.dpo", ".cdt.dpa") if path.with_suffix(ending).is_file()] or [".cdt.dpa"]
    endings = {".dat": [".dap", ".rs3"], ".cdt": header, ".data": [".head"]}
    expected = [path.with_suffix(ending) for ending in endings.get(suffix, [])]
    if suffix == ".mff":
        expected = [path / name for name in ("info.xml", "info1.xml", "signal1.bin", "epochs.xml", "sensorLayout.xml")]
    for file in expected:
        found = file.name if file.is_file() else beside.get(file.name.lower())
        where = "in it" if path.is_dir() else "beside it"
        if found is None:
            raise UserError(f"{path}: expected {file.name} {where}, found none; copy it there too")
        if found != file.name and path.suffix == suffix:
            raise UserError(f"{path}: expected {file.name} {where}, found {found}; rename it")


def check_nihon(path: Path) -> None:
    """Refuses companions in lower case, which the reader passes over: without one the channels get other names."""
    for ending in (".21E", ".LOG"):
        other = path.with_suffix(ending.lower())
        if other.is_file() and not path.with_suffix(ending).is_file():
            raise UserError(f"{path}: expected {path.with_suffix(ending).name}, found {other.name}; rename it")


def check_egi(path: Path) -> None:
    """Refuses a simple binary file shorter than its header says, before there is memory taken for it."""
    with path.open("rb") as file:
        head = file.read(36)
    if len(head) == 36:
        n_channels, n_samples, n_events = struct.unpack(">22xh6xih", head)
        width = {2: 2, 4: 4, 6: 8}.get(head[3] & 7, 0)  # versions 3, 5, 7 are of epochs, with another header
        if width and path.stat().st_size < 36 + 4 * n_events + n_samples * (n_channels + n_events) * width:
            why = f"expected {n_samples} samples of {n_channels} channels, it holds fewer"
            raise UserError(f"{path}: {why}; check that it was copied whole")


TRIAL_S = 9.0
_LIMIT = "import signal, sys; signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))\n"
"""So the trial ends by itself, also when the process that started it has been killed."""
_TRIAL = """
import mne
raw = mne.io.read_raw_ant(sys.argv[1], verbose="error")
for start in range(0, raw.n_times, 10_000):
    raw.get_data(start=start, stop=min(start + 10_000, raw.n_times))
"""


def check_ant(path: Path) -> None:
    """Refuses a damaged ANT file: in the maker's library it ends the process, or never ends, so another one tries."""
    with path.open("rb") as file:
        wide = file.read(4) == b"RF64"
        size, head = (8, "<4sQ") if wide else (4, "<4sI")
        file.seek(4 + size + 4)
        while len(chunk := file.read(4 + size)) == 4 + size:
            name, length = struct.unpack(head, chunk)
            if name == b"info":
                return _try_ant(path)
            file.seek(length + length % 2, io.SEEK_CUR)
    raise UserError(f"{path}: expected an ANT file, but its end is missing; check that it was copied whole")


_WATCHED = {"LD_PRELOAD": "libc_malloc_debug.so.0", "GLIBC_TUNABLES": "glibc.malloc.check=3"}
"""With glibc, writing beside one's memory ends the process, which elsewhere may go well this time and not the next."""


def _try_ant(path: Path) -> None:
    longest_s = TRIAL_S + path.stat().st_size / 2**20
    command, environment = python(_LIMIT + _TRIAL, str(path), str(longest_s))
    status = subprocess.run(
        command, env=environment | _WATCHED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode
    if status < 0:  # ended by a signal; what is an exception there will be one here
        late = f"was not done with it after {longest_s:.0f} s"
        why = f"its maker's library {late if status == -signal.SIGALRM else 'fails on it'}"
        raise UserError(f"{path}: expected an ANT file, but {why}; check that it was copied whole")
