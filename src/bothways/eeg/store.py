"""The store: prepared recordings in one folder, written once, read memory-mapped at any place."""

import hashlib
import json
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int16

from bothways.config import SignalConfig, validate
from bothways.eeg.recording import Event, Note, Recording, Segment
from bothways.errors import UserError
from bothways.files import read_json

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
    median_uv: Float32[np.ndarray, " C"]
    scale_uv: Float32[np.ndarray, " C"]
    bad_channels: list[str]
    file_sfreq_hz: float
    meas_date: str | None
    source: str = ""  # stores of earlier versions do not say it
    quality_json: str = "{}"

    @property
    def quality(self) -> dict[str, dict[str, Any]]:
        """What `assess` found, per channel; kept as text, for it would be most of a store's entries in memory."""
        quality: dict[str, dict[str, Any]] = json.loads(self.quality_json)
        return quality


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


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the entries of `recordings.json`, one at a time: those of a large store are more than can be held.

    Raises:
        UserError: it is missing or is not JSON.
    """
    read = 0
    try:
        with path.open(encoding="utf-8") as file:
            if file.readline() == "[\n":
                for line in file:
                    if line == "]\n":
                        return
                    yield json.loads(line.rstrip(",\n"))
                    read += 1
    except (OSError, ValueError, RecursionError):
        pass
    yield from read_json(path)[read:]  # laid out by another program, or an error to be told


def write_entries(path: Path, entries: Iterable[dict[str, Any]]) -> int:
    """Writes `recordings.json`, a recording a line: readable, and quicker than every number on its own."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for count, entry in enumerate(entries, 1):
            file.write(f"{',' if count > 1 else ''}\n{json.dumps(entry, ensure_ascii=False, allow_nan=False)}")
        file.write("\n]\n")
    return count


def content_hash(recording: Recording) -> str:
    """SHA-256 of the EEG as read (names, rate, segments, microvolts): the same whatever file or format holds it."""
    head = [recording.ch_names, recording.sfreq_hz, [(s.start, s.stop, s.onset_s) for s in recording.segments]]
    digest = hashlib.sha256(json.dumps(head).encode())
    for row in recording.data_uv:
        digest.update(np.ascontiguousarray(row, "<f4").data)
    return digest.hexdigest()


class Store:
    """A prepared folder, open for reading; made by `Store.open` or `prepare`.

    Attributes:
        path: the folder.
        signal: the contract that its numbers keep.
        recordings: what it holds.
        head: `store.json` as it stands, with `totals` and `skipped`.
        made: of a store that `prepare` returns, how many recordings were `already_there` or `added`, and of those
            `reused`.
        tried: of a store that `prepare` returns, the files that were not there already.
    """

    def __init__(
        self, path: Path, head: dict[str, Any], signal: SignalConfig, recordings: list[StoredRecording]
    ) -> None:
        self.path, self.head, self.signal, self.recordings = path, head, signal, recordings
        self.made: dict[str, int] = {}
        self.tried: list[str] = []
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
        head = read_json(path / "store.json")
        version = head.get("format_version") if isinstance(head, dict) else None
        if version != FORMAT_VERSION:
            raise UserError(f"{path}: expected a store of version {FORMAT_VERSION}, got {version}; prepare it again")
        try:
            signal = validate(SignalConfig, head["signal"], str(path / "store.json"))
            recordings = [_entry(entry) for entry in read_entries(path / "recordings.json")]
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
        return from_int16(self.read_steps(recording, start, n))

    def read_steps(self, recording: int, start: int = 0, n: int | None = None) -> Int16[np.ndarray, "C n"]:
        """Returns the same as it is stored: in steps of `STEP`, `MISSING` where missing; a view of the mapped file.

        Raises:
            IndexError: the samples do not lie in the recording.
        """
        stored = self._signals(recording)
        stop = stored.shape[1] if n is None else start + n
        if not 0 <= start <= stop <= stored.shape[1]:
            raise IndexError(f"samples {start} to {stop} of recording {recording}, which has {stored.shape[1]}")
        return stored[:, start:stop]

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
    quality_json = json.dumps(entry["quality"])
    return StoredRecording(
        **{name: value for name, value in entry.items() if name != "quality"}
        | {
            "ch_names": [sys.intern(name) for name in entry["ch_names"]],
            "positions": positions.reshape(-1, 2, 3),
            "segments": [Segment(**segment) for segment in entry["segments"]],
            "events": [Event(**event) for event in entry["events"]],
            "notes": [Note(**note) for note in entry["notes"]],
            "quality_json": quality_json,
            "median_uv": np.array(entry["median_uv"], np.float32),
            "scale_uv": np.array(entry["scale_uv"], np.float32),
        }
    )
