"""The store: prepared recordings in one folder, written once, read memory-mapped at any place."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int16

from bothways.config import SignalConfig, validate
from bothways.eeg.preprocess import Prepared, preprocess, robust_scale
from bothways.eeg.quality import assess
from bothways.eeg.recording import Event, Note, Recording, Segment, no_memory_error, read_recording, row_groups
from bothways.eeg.scan import Found, scan, shown
from bothways.errors import UserError
from bothways.files import check_output, new_folder, read_json, write_json, write_text
from bothways.progress import progress

FORMAT_VERSION = 1
CLIP = 15.0
"""Robust SDs at which samples are clipped."""
STEP = CLIP / 32767
"""Robust SDs in one step of the stored integers."""
MISSING = -32768
_OPEN_FILES = 64


@dataclass(frozen=True)
class StoredRecording:
    """One recording of a store; samples, segments and events at the store's rate."""

    id: str
    file: str
    sha256: str
    subject: str
    session: str
    format: str
    ch_names: list[str]
    positions: Float32[np.ndarray, "C 2 3"]
    n_samples: int
    segments: list[Segment]
    events: list[Event]
    left_out: dict[str, str]
    notes: list[Note]
    quality: dict[str, dict[str, Any]]
    median_uv: Float32[np.ndarray, " C"]
    scale_uv: Float32[np.ndarray, " C"]
    bad_channels: list[str]
    file_sfreq_hz: float
    meas_date: str | None


def to_int16(
    data_uv: Float32[np.ndarray, "C T"], median_uv: Float32[np.ndarray, " C"], scale_uv: Float32[np.ndarray, " C"]
) -> Int16[np.ndarray, "C T"]:
    """Returns what the store holds: robust SD units in steps of `STEP`, clipped at ±`CLIP`, NaN as `MISSING`."""
    out = np.empty(data_uv.shape, np.int16)
    for target, row, median, scale in zip(out, data_uv, median_uv, scale_uv):
        steps = np.clip(np.rint((row - median) / (scale * STEP)), -32767, 32767)
        missing = np.isnan(steps)
        steps[missing] = MISSING
        target[:] = steps
    return out


def from_int16(stored: Int16[np.ndarray, "C T"]) -> Float32[np.ndarray, "C T"]:
    """Returns robust SD units, NaN where samples are missing."""
    values = stored * np.float32(STEP)
    values[stored == MISSING] = np.nan
    return values


def prepare(
    paths: Iterable[str | Path],
    out: str | Path,
    signal: SignalConfig | None = None,
    *,
    subject_from: str | Path = "path",
    unit: str | None = None,
    baseline: Sequence[Mapping[str, Any]] = (),
    overwrite: bool = False,
) -> "Store":
    """Reads, filters and stores recordings, one at a time; a file that cannot be used is noted and left out.

    Args:
        paths: files and folders; see `scan`.
        out: the store's folder; written beside under another name and moved into place when whole.
        signal: what the stored numbers shall be.
        subject_from: see `scan`.
        unit: see `read_recording`.
        baseline: rows `file`, `onset_s`, `duration_s`, `subject`: kept as they are, for `labels.baseline_spans`.
        overwrite: replace an existing `out`.

    Raises:
        UserError: nothing is found or usable, or `out` cannot be written or exists.
    """
    out, signal = Path(out), signal or SignalConfig()
    check_output(out, overwrite=overwrite)
    found = scan(paths, subject_from)
    entries: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    seen: dict[str, str] = {}
    with new_folder(out, overwrite=overwrite) as folder, progress("prepare", len(found), "recordings") as meter:
        (folder / "signals").mkdir()
        for one in found:
            try:
                entries.append(_store_one(one, folder, f"{len(entries):06d}", signal, unit, seen))
            except UserError as problem:
                skipped.append({"file": one.file, "reason": shown(str(problem))})
            except MemoryError:
                skipped.append({"file": one.file, "reason": shown(str(no_memory_error(one.path)))})
            meter.advance(note=one.file)
        if not entries:
            reasons = "; ".join(f"{s['reason']}" for s in skipped[:3])
            raise UserError(f"none of {len(found)} recordings can be used: {reasons}")
        # a recording is a line: readable, and much quicker to write than with every number on its own
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries)
        write_text(folder / "recordings.json", f"[\n{lines}\n]\n")
        head = {
            "format_version": FORMAT_VERSION,
            "signal": signal.model_dump(mode="json"),
            "settings": {"subject_from": str(subject_from), "unit": unit},
            "baseline": [dict(row) for row in baseline],
            "totals": {
                "recordings": len(entries),
                "subjects": len({entry["subject"] for entry in entries}),
                "duration_s": round(sum(entry["n_samples"] for entry in entries) / signal.sfreq_hz, 3),
                "skipped": len(skipped),
            },
            "skipped": skipped,
        }
        write_json(folder / "store.json", head)
    return Store.open(out)


def _store_one(
    one: Found, folder: Path, name: str, signal: SignalConfig, unit: str | None, seen: dict[str, str]
) -> dict[str, Any]:
    recording = read_recording(one.path, unit=unit)
    quality, bad, notes = assess(recording)
    if len(bad) == len(quality):
        why = next((note.message for note in notes if note.code == "unit_suspect"), notes[0].message)
        raise UserError(f"{one.path}: no good channel: {why}")
    prepared = preprocess(recording, signal, bad)
    median_uv, scale_uv = _write_signals(folder / "signals" / f"{name}.npy", prepared)
    digest = content_hash(recording)
    notes = [*recording.notes, *notes, *prepared.notes]
    if one.note:
        notes.append(Note("subject_guessed", one.note))
    if (first := seen.setdefault(digest, one.file)) != one.file:
        notes.append(Note("duplicate_content", f"same content as {first}"))
    return {
        "id": name,
        "file": one.file,
        "sha256": digest,
        "subject": one.subject,
        "session": one.session,
        "format": recording.format,
        "ch_names": recording.ch_names,
        "positions": [
            [[None if np.isnan(x) else round(float(x), 6) for x in p] for p in c] for c in recording.positions
        ],
        "n_samples": prepared.data_uv.shape[1],
        "segments": [asdict(segment) for segment in prepared.segments],
        "events": [asdict(event) for event in prepared.events],
        "left_out": recording.left_out,
        "notes": [asdict(note) for note in notes],
        "quality": quality,
        "median_uv": [float(value) for value in median_uv],
        "scale_uv": [float(value) for value in scale_uv],
        "bad_channels": bad,
        "file_sfreq_hz": recording.sfreq_hz,
        "meas_date": recording.meas_date.isoformat() if recording.meas_date else None,
    }


def _write_signals(path: Path, prepared: Prepared) -> tuple[Float32[np.ndarray, " C"], Float32[np.ndarray, " C"]]:
    """Writes the samples as numpy's own file, some channels at a time; returns what they are scaled by."""
    medians, scales = [], []
    with path.open("wb") as file:
        head = {"descr": "<i2", "fortran_order": False, "shape": prepared.data_uv.shape}
        np.lib.format.write_array_header_1_0(file, head)
        for group in row_groups(prepared.data_uv):
            rows_uv = prepared.data_uv[group]
            median_uv, scale_uv = robust_scale(rows_uv)
            file.write(to_int16(rows_uv, median_uv, scale_uv).astype("<i2", copy=False).tobytes())
            medians.append(median_uv)
            scales.append(scale_uv)
    return np.concatenate(medians), np.concatenate(scales)


def content_hash(recording: Recording) -> str:
    """SHA-256 of the EEG as read (names, rate, segments, microvolts): the same whatever file or format holds it."""
    head = [recording.ch_names, recording.sfreq_hz, [(s.start, s.stop, s.onset_s) for s in recording.segments]]
    digest = hashlib.sha256(json.dumps(head).encode())
    for row in recording.data_uv:
        digest.update(row.astype("<f4").tobytes())
    return digest.hexdigest()


class Store:
    """A prepared folder, open for reading; made by `Store.open` or `prepare`.

    Attributes:
        path: the folder.
        signal: the contract that its numbers keep.
        recordings: what it holds.
        head: `store.json` as it stands, with `totals` and `skipped`.
    """

    def __init__(
        self, path: Path, head: dict[str, Any], signal: SignalConfig, recordings: list[StoredRecording]
    ) -> None:
        self.path, self.head, self.signal, self.recordings = path, head, signal, recordings
        self._open: OrderedDict[int, Int16[np.ndarray, "C T"]] = OrderedDict()

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Opens a store.

        Raises:
            UserError: it is no store, of another version, or damaged.
        """
        path = Path(path)
        if not (path / "store.json").is_file():
            raise UserError(
                f"{path}: expected a prepared store (with store.json); make one with `bothways eeg prepare`"
            )
        head, entries = read_json(path / "store.json"), read_json(path / "recordings.json")
        version = head.get("format_version") if isinstance(head, dict) else None
        if version != FORMAT_VERSION:
            raise UserError(f"{path}: expected a store of version {FORMAT_VERSION}, got {version}; prepare it again")
        try:
            signal = validate(SignalConfig, head["signal"], str(path / "store.json"))
            recordings = [_entry(entry) for entry in entries]
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise UserError(
                f"{path}: the store is damaged ({type(problem).__name__}: {problem}); prepare it again"
            ) from None
        for recording in recordings:
            payload = 2 * len(recording.ch_names) * recording.n_samples
            file = path / "signals" / f"{recording.id}.npy"
            size = file.stat().st_size if file.is_file() else 0
            if size <= payload or (size - payload) % 64:  # numpy's header fills blocks of 64
                raise UserError(
                    f"{file}: the store is damaged ({size} bytes, {payload} of samples expected); prepare it again"
                )
        return cls(path, head, signal, recordings)

    def read(self, recording: int, start: int = 0, n: int | None = None) -> Float32[np.ndarray, "C n"]:
        """Returns `n` samples of one recording from `start`, in robust SD units, NaN where missing.

        Raises:
            IndexError: the samples do not lie in the recording.
        """
        stored = self._signals(recording)
        stop = stored.shape[1] if n is None else start + n
        if not 0 <= start <= stop <= stored.shape[1]:
            raise IndexError(f"samples {start} to {stop} of recording {recording}, which has {stored.shape[1]}")
        return from_int16(stored[:, start:stop])

    def _signals(self, recording: int) -> Int16[np.ndarray, "C T"]:
        if recording in self._open:
            self._open.move_to_end(recording)
            return self._open[recording]
        entry = self.recordings[recording]
        file = self.path / "signals" / f"{entry.id}.npy"
        try:
            stored = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as problem:
            raise UserError(f"{file}: the store is damaged ({problem}); prepare it again") from None
        if stored.dtype != np.int16 or stored.shape != (len(entry.ch_names), entry.n_samples):
            raise UserError(f"{file}: the store is damaged ({stored.dtype} {stored.shape}); prepare it again")
        # a plain view: indexing a memmap object costs more than the read itself
        self._open[recording] = np.asarray(stored)
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)
        return self._open[recording]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}  # a worker maps the files itself


def _entry(entry: dict[str, Any]) -> StoredRecording:
    positions = np.array([[[np.nan if x is None else x for x in p] for p in c] for c in entry["positions"]], np.float32)
    return StoredRecording(
        **entry
        | {
            "positions": positions.reshape(-1, 2, 3),
            "segments": [Segment(**segment) for segment in entry["segments"]],
            "events": [Event(**event) for event in entry["events"]],
            "notes": [Note(**note) for note in entry["notes"]],
            "median_uv": np.array(entry["median_uv"], np.float32),
            "scale_uv": np.array(entry["scale_uv"], np.float32),
        }
    )
