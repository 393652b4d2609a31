"""What is in a set of recordings and what is wrong with it, as a plain dict; nothing is written."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bothways.eeg.drawing import draw
from bothways.eeg.quality import AMPLITUDE_UV, USUAL_UV, assess, file_notes, rounded_uv, unusable
from bothways.eeg.reading import reading
from bothways.eeg.recording import Recording
from bothways.eeg.scan import Found, LeftOut, load, scan, shown
from bothways.eeg.store import content_hash
from bothways.errors import UserError
from bothways.progress import progress

FINE = frozenset({
    "bids_channels", "bids_events", "bids_mains", "bids_reference", "digitised_positions", "rate_rounded",
    "template_positions", "unit_case",
})  # fmt: skip
"""Notes that are no warning."""
TOLD = frozenset({"no_data", "no_file", "no_rate", "no_times", "not_read", "text_table"})
"""What a scan left out for these is a warning; for the others it is as it should be."""
STATUS = {"ok": 0, "warning": 1, "unusable": 2}


def check(
    paths: Iterable[str | Path | Recording],
    *,
    subject_from: str | Path = "path",
    unit: str | None = None,
    drawings: bool = False,
) -> dict[str, Any]:
    """Reads every recording and reports on it; a broken one never stops the others.

    Args:
        paths: files and folders; see `scan`.
        subject_from: see `scan`.
        unit: see `read_recording`.
        drawings: whether to draw each recording.

    Returns:
        `recordings`, per file {`file`, `subject`, `session`, `status` (`ok`, `warning`, `unusable`), `reason`,
        `format`, `ch_names`, `left_out`, `sfreq_hz`, `duration_s`, `segments`, `n_events`, `event_labels`,
        `amplitude_uv` (median over channels), `quality`, `bad_channels`, `meas_date`, `notes`, and if asked for
        `drawing` (see `draw`)}; one that cannot be read has none after `reason`. `electrodes` {`name`, `recordings`,
        `bad` (how many have it, and it is bad in), `anode` and `cathode` ([x y z], None = unknown)}. `totals`.
        `limits_uv` (`possible` and `usual` amplitudes). `harmless` (codes of notes that are no warning).
        `left_out` {`file`, `code`, `reason`}: what the folders hold besides; see `scan.LeftOut`.
        `exit_status`: 0 = all fine, 1 = usable with warnings, 2 = some unusable.

    Raises:
        UserError: no recording is found.
    """
    left_out: list[LeftOut] = []
    found = scan(paths, subject_from, left_out)
    recordings: list[dict[str, Any]] = []
    seen: dict[str, str] = {}
    electrodes: dict[str, dict[str, Any]] = {}
    with progress("check", len(found), "recordings") as meter:
        for one in found:
            recordings.append(_check_one(one, unit, seen, electrodes, drawings))
            meter.advance(note=one.file)
    by_status = Counter(entry["status"] for entry in recordings)
    usable = [entry for entry in recordings if entry["status"] != "unusable"]
    return {
        "recordings": recordings,
        "electrodes": list(electrodes.values()),
        "totals": {
            "recordings": len(recordings),
            "subjects": len({entry["subject"] for entry in usable}),
            "duration_s": round(sum(entry["duration_s"] for entry in usable), 3),
            **{status: by_status[status] for status in STATUS},
        },
        "limits_uv": {"possible": list(AMPLITUDE_UV), "usual": list(USUAL_UV)},
        "harmless": sorted(FINE),
        "left_out": [asdict(one) for one in left_out],
        "exit_status": max(
            *(STATUS[entry["status"]] for entry in recordings), *(int(one.code in TOLD) for one in left_out), 0
        ),
    }


def _check_one(
    one: Found, unit: str | None, seen: dict[str, str], electrodes: dict[str, dict[str, Any]], drawings: bool
) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": one.file, "subject": one.subject, "session": one.session}
    try:
        with reading(one.path):  # what is too large to hold is read again each time
            recording = load(one, unit)
            quality, bad, notes = assess(recording)
            digest = content_hash(recording)
            drawing = {"drawing": draw(recording, quality)} if drawings else {}
    except UserError as problem:
        return entry | {"status": "unusable", "reason": shown(str(problem))}
    reason = unusable(recording, bad, notes)
    notes = [*recording.notes, *notes, *file_notes(one, digest, seen)]
    _count(electrodes, recording, bad)
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
        "amplitude_uv": rounded_uv(float(np.median(amplitudes))) if amplitudes else None,
        "quality": quality,
        "bad_channels": bad,
        "meas_date": recording.meas_date.isoformat() if recording.meas_date else None,
        "notes": [asdict(note) for note in notes],
        **drawing,
    }


def _count(electrodes: dict[str, dict[str, Any]], recording: Recording, bad: list[str]) -> None:
    """Adds a recording's channels to what is known of them; a place is that of the first recording that has one."""
    for name, position in zip(recording.ch_names, recording.positions):
        one = electrodes.setdefault(name, {"name": name, "recordings": 0, "bad": 0, "anode": None, "cathode": None})
        one["recordings"] += 1
        one["bad"] += name in bad
        for which, point in zip(("anode", "cathode"), position):
            if one[which] is None and not np.isnan(point).any():
                one[which] = [round(float(x), 4) for x in point]
