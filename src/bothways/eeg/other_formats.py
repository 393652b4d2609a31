"""The formats that mne reads, through mne."""

import gzip
import io
import logging
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bothways.eeg.channels import Channel, shown
from bothways.eeg.companions import check_ant, check_companions, check_egi, check_nihon, need_reader
from bothways.eeg.edf import status_events
from bothways.eeg.matlab import check_eeglab
from bothways.eeg.reading import decoded
from bothways.eeg.recording import (
    Note,
    Recording,
    Segment,
    checked_rate,
    held_or_lazy,
    listed,
    named,
    pick_eeg,
    place_events,
    placed,
    possible_uv,
    true_time_s,
    unit_in_uv,
    unit_notes,
    whole_sample,
)
from bothways.errors import UserError

_BOUNDARY = re.compile(r"(?i)^(bad |edge )?boundary$|^new segment")
_SKIPPED = re.compile(r"(?i)^bad_acq_skip")
_SAID_BY_US = re.compile("^(The data contains 'boundary' events|Unsupported physical dimension)")
_GDF_UNITS = {0: "", 512: "", 4256: "V", 4274: "mV", 4275: "uV", 4276: "nV"}
_CHUNK_S = 60.0
_LONGEST_S = 1e9
"""An event that begins or lasts longer, some thirty years, is none."""


def read_with_mne(path: Path, unit: str | None) -> Recording:
    """Reads one recording through mne; see `recording.read_recording`.

    Raises:
        UserError: mne does not read it, or it holds no EEG or no data.
    """
    with warned(path) as notes:
        try:
            raw = _open(path)
            raw.get_channel_types()  # fails where a type is none
        except (UserError, OSError, MemoryError):
            raise
        except Exception as problem:  # mne's readers raise all kinds on damaged files
            head = _head(path)
            if path.suffix.lower() == ".cnt" and not head.startswith((b"RIFF", b"RF64", b"Version")):
                raise _other_error(path, "a Neuroscan or ANT file", head) from None
            raise UserError(
                f"{path}: expected a recording that mne reads, but {_why(problem)}; check that it was copied whole"
            ) from None
        recording = convert(path, raw, unit)
    return replace(recording, notes=recording.notes + notes + _more_samples(path, raw))


def _more_samples(path: Path, raw: Any) -> list[Note]:
    """Notes that EEGLAB's data file holds more than the header states; too few are refused where they are read."""
    data_file = Path(raw.filenames[0] or path)
    if data_file.suffix.lower() != ".fdt":
        return []
    n = data_file.stat().st_size // (4 * len(raw.ch_names))
    text = f"{data_file.name} holds {n} samples of each channel, {path.name} states {raw.n_times}; those are read"
    return [Note("more_samples", text)] if n > raw.n_times else []


@contextmanager
def warned(path: Path) -> Iterator[list[Note]]:
    """Makes notes of what mne and the readers below it warn of while a file is read; they are there behind it."""
    notes: list[Note] = []
    with warnings.catch_warnings(record=True) as caught, _readers_told() as told, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        yield notes
    ignored = (DeprecationWarning, FutureWarning, ResourceWarning)
    texts = [_one_line(w.message) for w in caught if not issubclass(w.category, ignored)] + told
    notes += [
        Note("reader", text.replace(f"{path.absolute().parent}/", "").replace(str(path), path.name))
        for text in dict.fromkeys(texts)
        if not _SAID_BY_US.search(text)
    ]


@contextmanager
def _readers_told() -> Iterator[list[str]]:
    """Collects what readers below mne log (Curry's), and drops what they print (EGI's), instead of showing it."""
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(_one_line(record.getMessage()))

    handler = Handler(logging.WARNING)
    logging.root.addHandler(handler)
    try:
        with redirect_stdout(io.StringIO()):
            yield told
    finally:
        logging.root.removeHandler(handler)


def _one_line(problem: Any) -> str:
    return shown(" ".join(str(problem).split())[:300])


def _why(problem: Exception) -> str:
    """The error in one line; of a traceback quoted in it the last error only."""
    if quoted := re.findall(r"(?m)^(\w+(?:Error|Exception): .*)$", str(problem)):
        return _one_line(quoted[-1])
    text = _one_line(problem)
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _head(path: Path) -> bytes:
    """The first bytes, unpacked where the file is compressed; none of a folder."""
    if path.is_dir():
        return b""
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            return file.read(16)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return b""


def _other_error(path: Path, expected: str, head: bytes) -> UserError:
    what = f"that begins with {head!r}" if head else "without content"
    return UserError(f"{path}: expected {expected}, got one {what}; check that it was copied whole")


def _open(path: Path) -> Any:
    import mne

    if re.search(r"(?i)\.fif(\.gz)?$", path.name) and (head := _head(path))[:4] != b"\0\0\0\x64":
        raise _other_error(path, "a FIF file", head)
    quiet = {"verbose": "warning"}
    suffix = path.suffix.lower()
    if suffix == ".eeg":
        check_nihon(path)
    if suffix == ".raw":
        check_egi(path)
    openers: dict[str, Callable[[], Any]] = {
        ".set": lambda: _open_eeglab(path),
        ".raw": lambda: mne.io.read_raw_egi(path, **quiet),
        ".data": lambda: mne.io.read_raw_nicolet(path, ch_type="eeg", **quiet),
        ".cnt": lambda: _open_cnt(path),
        ".dat": lambda: mne.io.read_raw_curry(path, **quiet),
    }
    with mne.utils.use_log_level("warning"):
        try:
            return openers.get(suffix, lambda: mne.io.read_raw(path, **quiet))()
        except Exception as problem:
            check_companions(path)
            if suffix in (".data", ".dat", ".cdt", ".cnt") and path.suffix != suffix:
                raise UserError(
                    f"{path}: expected {suffix}, in lower case; rename it and what lies beside it"
                ) from None
            if isinstance(problem, FileNotFoundError):
                raise UserError(f"{path}: a file that belongs to it is missing: {_one_line(problem)}") from None
            raise


def _open_eeglab(path: Path) -> Any:
    import mne

    check_eeglab(path)
    return mne.io.read_raw(path, verbose="warning")


def _open_cnt(path: Path) -> Any:
    import mne

    with path.open("rb") as file:
        if file.read(4) in (b"RIFF", b"RF64"):  # ANT's; Neuroscan's has the same ending
            need_reader(path, "antio")
            check_ant(path)
            return mne.io.read_raw_ant(path, verbose="warning")
    try:
        return mne.io.read_raw_cnt(path, verbose="warning")
    except Exception:
        # mne's guess of the sample width fails on files cut short or without an event table
        raw = mne.io.read_raw_cnt(path, data_format="int16", verbose="warning")
        warnings.warn("sample width could not be told from the header; read as int16", stacklevel=2)
        return raw


def convert(path: Path, raw: Any, unit: str | None, *, of_file: bool = True) -> Recording:
    """Takes a recording over from mne.

    Args:
        path: its name.
        raw: as mne has it.
        unit: see `recording.read_recording`.
        of_file: `raw` is what mne read from `path`; else it may have been worked on since, and is in volts.

    Raises:
        UserError: no EEG or no data, or the samples cannot be read.
    """
    notes: list[Note] = []
    types = raw.get_channel_types()
    stated = _stated_units(path, raw) if of_file else {}
    unscaled = _unscaled_units(path, raw, types, stated) if of_file else {}

    def why_not(index: int, channel: Channel) -> str:
        label, kind = raw.ch_names[index], types[index]
        if kind != "eeg" and index not in unscaled:
            unit_text = stated.get(label, "n/a")
            odd = unit_text not in ("n/a", "") and unit_in_uv(unit_text) is None
            return f"unit {unit_text!r} is no voltage" if odd else f"{kind} channel in the file, not scalp EEG"
        if not channel.left_out and unit is None and unscaled.get(index) and unit_in_uv(unscaled[index]) is None:
            return f"unit {shown(unscaled[index])!r} is no voltage"
        return channel.left_out

    picks, channels, left_out = pick_eeg(path, raw.ch_names, why_not)
    file_names = [raw.ch_names[pick] for pick in picks]
    if raw.n_times == 0:
        raise UserError(f"{path}: no data: the recording has no samples; leave the file out")
    sfreq_hz = checked_rate(path, float(raw.info["sfreq"]))
    _check_size(path, raw)
    data_uv = held_or_lazy(
        (len(picks), int(raw.n_times)), lambda rows: _samples(path, raw, picks[rows], unit, stated, unscaled)
    )
    if of_file and type(raw).__name__ == "RawBrainVision":
        notes += _cut(path, raw)
    segments, events = _times(path, raw, types, sfreq_hz, notes)
    points = np.array([raw.info["chs"][pick]["loc"][:3] for pick in picks], dtype=np.float64)
    notes += unit_notes(file_names, [unscaled.get(pick, "uV") for pick in picks], unit)
    positions = placed(channels, notes, points)
    ch_names = named(channels, notes, positions)
    bads = set(raw.info["bads"])
    date = raw.info["meas_date"]
    return Recording(
        path, type(raw).__name__.removeprefix("Raw") or "FIF", data_uv, ch_names, file_names,
        positions, sfreq_hz, segments, events, left_out,
        date.replace(tzinfo=None) if date else None, notes,
        [name for name, own in zip(ch_names, file_names) if own in bads],
        [unscaled.get(pick, stated.get(raw.ch_names[pick], "")) for pick in picks],
    )  # fmt: skip


def _check_size(path: Path, raw: Any) -> None:
    """Refuses a file that is far too small for the samples it states, before there is memory taken for them."""
    files = [Path(name) for name in getattr(raw, "filenames", ()) if name is not None]
    if raw.preload or not all(file.is_file() for file in files):
        return
    size = sum(file.stat().st_size for file in files)
    most = 1000 * size if any(file.suffix == ".gz" for file in files) else 100 * size  # FIF does not store pauses
    if int(raw.n_times) * len(raw.ch_names) > most > 0:
        raise UserError(
            f"{path}: expected {raw.n_times} samples of {len(raw.ch_names)} channels by the header, the file has "
            f"{size} bytes; it is damaged, copy it again"
        )


def _stated_units(path: Path, raw: Any) -> dict[str, str]:
    """The units that the file states, by mne's names of the channels; "" where it leaves one open."""
    if type(raw).__name__ != "RawGDF":
        return getattr(raw, "_orig_units", None) or {}
    with path.open("rb") as file:
        head = file.read(256)
        if head[4:6] == b"1.":  # then as text
            n = struct.unpack("<I", head[252:256])[0]
            file.seek(96 * n, io.SEEK_CUR)
            texts = [file.read(8).decode("latin-1").strip(" \0") for _ in range(n)]
        else:
            n = struct.unpack("<H", head[252:254])[0]
            file.seek(102 * n, io.SEEK_CUR)
            texts = [_GDF_UNITS.get(code, f"code {code}") for code in struct.unpack(f"<{n}H", file.read(2 * n))]
    return dict(zip(raw.ch_names, texts))


def _unscaled_units(path: Path, raw: Any, types: list[str], stated: dict[str, str]) -> dict[int, str]:
    """The units of channels that mne leaves unscaled: it does not know their spelling (BrainVision), or them at all."""
    eeg = {i: name for i, name in enumerate(raw.ch_names) if types[i] == "eeg"}
    if type(raw).__name__ == "RawANT":  # the reader has them in lower case
        texts = raw._raw_extras[0]["orig_ch_units"]
        return {i: re.sub("v$", "V", texts[i].replace("âµ", "µ")) for i in eeg if texts[i] not in ("uv", "µv")}
    if type(raw).__name__ == "RawCurry":
        return {i: stated.get(name, "n/a") for i, name in eeg.items() if raw._cals[i] == 1}
    if type(raw).__name__ == "RawGDF":
        return {i: stated[name] for i, name in eeg.items() if stated[name] != "mV" and stated[name][:2] != "uV"}
    if type(raw).__name__ != "RawBrainVision" or "misc" not in types:
        return {}
    section = decoded(path.read_bytes()).partition("[Channel Infos]")[2].partition("\n[")[0]
    units = {int(n) - 1: row.split(",")[3].strip() for n, row in re.findall(r"(?m)^Ch(\d+)=((?:.*?,){3}.*)$", section)}
    return {
        index: text
        for index, text in units.items()
        if index < len(types) and types[index] == "misc" and unit_in_uv(text) is not None
    }


def _cut(path: Path, raw: Any) -> list[Note]:
    """The note of a BrainVision file whose samples are fewer than it states, or end within one."""
    text = decoded(path.read_bytes())
    stated = re.search(r"(?m)^DataPoints=(\d{1,12})\s*$", text)
    form = re.search(r"(?m)^BinaryFormat=(INT_16|INT_32|IEEE_FLOAT_32)", text)
    size = Path(raw.filenames[0]).stat().st_size
    rest = size % (len(raw.ch_names) * (2 if form[1] == "INT_16" else 4)) if form else 0
    if rest or (stated and int(stated[1]) > raw.n_times):
        of = f" of {stated[1]}" if stated else ""
        return [Note("truncated", f"{raw.n_times} whole samples{of} are there; the end is missing")]
    return []


def _samples(
    path: Path, raw: Any, picks: list[int], unit: str | None, stated: dict[str, str], unscaled: dict[int, str]
) -> np.ndarray:
    """Reads in pieces, so that double precision is held for a minute of signal only."""
    factors = np.full((len(picks), 1), 1e6)
    for factor, pick in zip(factors, picks):
        if pick in unscaled:
            factor[:] = unit_in_uv(unit or unscaled[pick]) or 1.0
    if unit is not None:
        for factor, pick in zip(factors, picks):
            if pick in unscaled:
                continue
            # mne multiplied by the unit that the file states (none: FIF holds volts, the others microvolts)
            usual = "V" if type(raw).__name__ == "Raw" else "uV"
            in_file = unit_in_uv(stated.get(raw.ch_names[pick], usual)) or 1.0
            factor *= (unit_in_uv(unit) or 1.0) / in_file
    data_uv = np.empty((len(picks), raw.n_times), np.float32)
    step = max(int(_CHUNK_S * raw.info["sfreq"]), 1)
    for start in range(0, raw.n_times, step):
        piece = _piece(path, raw, picks, start, min(start + step, int(raw.n_times)))
        data_uv[:, start : start + step] = possible_uv(piece * factors)
    return data_uv


def _piece(path: Path, raw: Any, picks: list[int], start: int, stop: int) -> np.ndarray:
    try:
        with redirect_stdout(io.StringIO()):  # EGI's reader prints
            return np.asarray(raw.get_data(picks, start, stop, verbose="error"))
    except (OSError, MemoryError):
        raise
    except Exception as problem:
        data_file = Path(raw.filenames[0] or path)
        if path.suffix.lower() == ".set" and data_file.suffix.lower() != ".set" and data_file.is_file():
            n = data_file.stat().st_size // (4 * len(raw.ch_names))
            raise UserError(
                f"{path}: expected {raw.n_times} samples in {data_file.name}, it holds {n}; copy it again"
            ) from None
        raise UserError(
            f"{path}: the samples cannot be read: {_why(problem)}; check that it was copied whole"
        ) from None


def _times(
    path: Path, raw: Any, types: list[str], sfreq_hz: float, notes: list[Note]
) -> tuple[list[Segment], list[Any]]:
    n = int(raw.n_times)
    cuts, holes, events, unplaced = {0, n}, [], [], []
    first_s = raw.first_time if raw.annotations.orig_time is not None else 0.0
    marks = raw.annotations
    for onset, duration_s, label, about in zip(marks.onset, marks.duration, marks.description, marks.ch_names):
        onset_s, duration_s = float(onset) - first_s, float(duration_s) if duration_s > 0 else 0.0
        if not abs(onset_s) < _LONGEST_S or not duration_s < _LONGEST_S:
            unplaced.append(str(label))
            continue
        sample = whole_sample(onset_s * sfreq_hz)
        if _SKIPPED.search(label):
            stop = whole_sample((onset_s + duration_s) * sfreq_hz)
            holes.append((min(max(sample, 0), n), min(max(stop, 0), n)))
        elif _BOUNDARY.search(label):
            cuts.add(min(max(sample, 0), n))
        else:
            events.append((onset_s, duration_s, str(label), [str(name) for name in about]))
    if unplaced:
        notes.append(Note("events_outside", f"{len(unplaced)} events have an impossible time: {listed(unplaced)}"))
    edges = sorted(cuts | {edge for hole in holes for edge in hole})
    segments = [
        Segment(a, b, a / sfreq_hz)
        for a, b in pairwise(edges)
        if b > a and not any(start <= a and b <= stop for start, stop in holes)
    ]
    if not segments:
        raise UserError(f"{path}: no data: the file marks all of it as skipped; leave the file out")
    if len(segments) > 1 or holes:
        notes.append(Note("gaps", f"{len(segments)} pieces, cut where the file marks a boundary or a skip"))
    if type(raw).__name__ == "RawNihon":  # its events count the stored seconds
        stored, segments = segments, _nihon_onsets(path, raw, segments, sfreq_hz)
        if segments != stored:
            events = [(true_time_s(at_s, segments, sfreq_hz), s, label, on) for at_s, s, label, on in events]
    known = {(whole_sample(onset_s * sfreq_hz), label) for onset_s, _, label, _ in events}
    # EGI's stimulus channels number the codes that the annotations name
    for pick in (i for i, kind in enumerate(types) if kind == "stim" and type(raw).__name__ != "RawMff"):
        values = np.nan_to_num(_piece(path, raw, [pick], 0, n)[0])
        for sample, code in status_events(np.clip(values, -(2**31), 2**31 - 1).astype(np.int32)):
            label = str(code) if code != 1 else raw.ch_names[pick]
            if (sample, label) not in known:  # some readers give triggers as annotations too
                events.append((true_time_s(sample / sfreq_hz, segments, sfreq_hz), 0.0, label, []))
    return segments, place_events(events, segments, sfreq_hz, notes)


def _nihon_onsets(path: Path, raw: Any, segments: list[Segment], sfreq_hz: float) -> list[Segment]:
    """Nihon Kohden's blocks with the onsets that their headers give, in whole seconds."""
    blocks = raw._raw_extras[0]["header"]["controlblocks"][0]["datablocks"]
    if len(blocks) != len(segments):
        return segments
    begins = []
    with path.open("rb") as file:
        for block in blocks:
            file.seek(int(block["address"]) + 0x14)
            try:
                begins.append(datetime.strptime(file.read(6).hex(), "%y%m%d%H%M%S"))
            except ValueError:
                return segments
    timed = [segments[0]]
    for begin, segment in zip(begins[1:], segments[1:]):
        last = timed[-1]
        follows_s = last.onset_s + (last.stop - last.start) / sfreq_hz
        onset_s = (begin - begins[0]).total_seconds()
        timed.append(replace(segment, onset_s=onset_s if onset_s > follows_s + 1 else follows_s))
    return timed
