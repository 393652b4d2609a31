"""Stores that hold entries and no samples: enough to find labels and to cut windows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bothways.config import SignalConfig
from bothways.eeg import Event, Note, Segment, Store, StoredRecording

SFREQ_HZ = 200


def entry(
    file: str = "sub-1.edf",
    seconds: float = 30,
    *,
    subject: str = "1",
    events: Sequence[tuple[float, float, str]] = (),
    pieces_s: Sequence[tuple[float, float]] = (),
    meas_date: str | None = None,
    notes: Sequence[Note] = (),
) -> StoredRecording:
    """Makes a recording of one channel; `pieces_s` are (true onset, seconds) where it has gaps."""
    segments, at = [], 0
    for onset_s, length_s in pieces_s or [(0.0, seconds)]:
        n = round(length_s * SFREQ_HZ)
        segments.append(Segment(at, at + n, float(onset_s)))
        at += n
    return StoredRecording(
        id=file, file=file, sha256=file, source="", subject=subject, session="", format="EDF", ch_names=["C3"],
        positions=np.zeros((1, 2, 3), np.float32), n_samples=at, segments=segments,
        events=[Event(float(t), float(d), text, round(t * SFREQ_HZ)) for t, d, text in events], left_out={},
        notes=list(notes), quality_json="{}", median_uv=np.zeros(1, np.float32), scale_uv=np.ones(1, np.float32),
        bad_channels=[], file_sfreq_hz=float(SFREQ_HZ), meas_date=meas_date,
    )  # fmt: skip


def a_store(*recordings: StoredRecording) -> Store:
    return Store(Path("store"), {"baseline": []}, SignalConfig(), list(recordings))


def content(folder: Path) -> dict[str, bytes]:
    """Returns all files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    """Returns what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())
