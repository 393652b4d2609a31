"""What is in a set of recordings and what is wrong with it, as a plain dict; nothing is written."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bothways.eeg.quality import assess
from bothways.eeg.recording import Note, no_memory_error, read_recording
from bothways.eeg.scan import Found, scan, shown
from bothways.eeg.store import content_hash
from bothways.errors import UserError
from bothways.progress import progress

FINE = frozenset({"digitised_positions", "unit_case"})
"""Notes that are no warning."""
STATUS = {"ok": 0, "warning": 1, "unusable": 2}


def check(
    paths: Iterable[str | Path],
    *,
    subject_from: str | Path = "path",
    unit: str | None = None,
    min_duration_s: float = 1.0,
) -> dict[str, Any]:
    """Reads every recording and reports on it; a broken one never stops the others.

    Args:
        paths: files and folders; see `scan`.
        subject_from: see `scan`.
        unit: see `read_recording`.
        min_duration_s: a recording without a gapless stretch of this length is unusable.

    Returns:
        `recordings`, per file {`file`, `subject`, `session`, `status` (`ok`, `warning`, `unusable`), `reason`,
        `format`, `ch_names`, `left_out`, `sfreq_hz`, `duration_s`, `segments`, `n_events`, `event_labels`,
        `amplitude_uv` (median over channels), `quality`, `bad_channels`, `meas_date`, `notes`}; one that cannot be
        read has none after `reason`. `totals`. `exit_status`: 0 = all fine, 1 = usable with warnings, 2 = some
        unusable.

    Raises:
        UserError: no recording is found.
    """
    found = scan(paths, subject_from)
    recordings: list[dict[str, Any]] = []
    seen: dict[str, str] = {}
    with progress("check", len(found), "recordings") as meter:
        for one in found:
            recordings.append(_check_one(one, unit, min_duration_s, seen))
            meter.advance(note=one.file)
    by_status = Counter(entry["status"] for entry in recordings)
    usable = [entry for entry in recordings if entry["status"] != "unusable"]
    return {
        "recordings": recordings,
        "totals": {
            "recordings": len(recordings),
            "subjects": len({entry["subject"] for entry in usable}),
            "duration_s": round(sum(entry["duration_s"] for entry in usable), 3),
            **{status: by_status[status] for status in STATUS},
        },
        "exit_status": max(STATUS[entry["status"]] for entry in recordings),
    }


def _check_one(one: Found, unit: str | None, min_duration_s: float, seen: dict[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": one.file, "subject": one.subject, "session": one.session}
    try:
        recording = read_recording(one.path, unit=unit)
        quality, bad, notes = assess(recording)
        digest = content_hash(recording)
    except UserError as problem:
        return entry | {"status": "unusable", "reason": shown(str(problem))}
    except MemoryError:
        return entry | {"status": "unusable", "reason": shown(str(no_memory_error(one.path)))}
    notes = [*recording.notes, *notes]
    if one.note:
        notes.append(Note("subject_guessed", one.note))
    if (first := seen.setdefault(digest, one.file)) != one.file:
        notes.append(Note("duplicate_content", f"same content as {first}"))
    longest_s = max(segment.stop - segment.start for segment in recording.segments) / recording.sfreq_hz
    reason = ""
    if len(bad) == len(quality):
        why = next(n.message for code in ("unit_suspect", "bad_channels") for n in notes if n.code == code)
        reason = f"no good channel: {why}"
    elif longest_s < min_duration_s:
        reason = f"too short: {longest_s:g} s without a gap, at least {min_duration_s:g} s expected"
    warned = any(note.code not in FINE for note in notes)
    amplitudes = [q["amplitude_uv"] for q in quality.values() if q["amplitude_uv"] is not None]
    return entry | {
        "status": "unusable" if reason else "warning" if warned else "ok",
        "reason": reason,
        "format": recording.format,
        "ch_names": recording.ch_names,
        "left_out": recording.left_out,
        "sfreq_hz": recording.sfreq_hz,
        "duration_s": round(recording.duration_s, 4),
        "segments": [asdict(segment) for segment in recording.segments],
        "n_events": len(recording.events),
        "event_labels": dict(Counter(event.label for event in recording.events).most_common()),
        "amplitude_uv": round(float(np.median(amplitudes)), 4) if amplitudes else None,
        "quality": quality,
        "bad_channels": bad,
        "meas_date": recording.meas_date.isoformat() if recording.meas_date else None,
        "notes": [asdict(note) for note in notes],
    }
