"""EDF and BDF as a recording: which signals are EEG, where their gaps and events lie."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from bothways.eeg.channels import Channel, parse_labels
from bothways.eeg.edf import EdfFile, EdfSignal, open_edf, status_events
from bothways.eeg.recording import (
    Event,
    Note,
    Recording,
    Segment,
    checked_rate,
    held_or_lazy,
    leave_out,
    listed,
    named,
    no_eeg_error,
    place_events,
    placed,
    possible_uv,
    true_time_s,
    unit_in_uv,
    unit_notes,
)
from bothways.errors import UserError

_JITTER_S = 0.05
"""Record times of a file that calls itself continuous may be this inexact and mean no gap."""


def looks_like_edf(path: Path) -> bool:
    """Whether a file is EDF or BDF by its name or its first bytes."""
    if path.suffix.lower() in (".edf", ".bdf", ".rec"):
        return True
    with path.open("rb") as file:
        return file.read(8) in (b"0       ", b"\xffBIOSEMI")


def read_edf(path: Path, unit: str | None) -> Recording:
    """Reads one recording; see `recording.read_recording`.

    Raises:
        UserError: damaged, or it holds no EEG or no data.
    """
    file = open_edf(path)
    notes = [Note(code, message) for code, message in file.notes]
    ordinary = [signal for signal in file.signals if not signal.is_annotation]
    if not ordinary:
        raise UserError(f"{file.path}: annotations only: the file holds events and no signal; use it as labels")
    if file.record_s == 0:
        raise UserError(f"{file.path}: expected a record duration above 0 in the EDF header, got 0; header damaged")
    if not file.n_records:
        raise UserError(f"{file.path}: no data: the header is followed by no whole record; leave the file out")

    chosen, channels, left_out = _pick_edf(file, ordinary, unit, notes)
    if not chosen:
        raise no_eeg_error(file.path, left_out)
    sfreq_hz = checked_rate(file.path, file.rate_hz(chosen[0]))
    for signal in chosen:
        if signal.no_scale is not None:
            which, (low, high) = signal.no_scale
            notes.append(
                Note("uncalibrated", f"{signal.label}: {which} range {low:g} to {high:g} is no scale; missing")
            )
    n_samples = file.n_records * chosen[0].n_per_record

    def read(rows: slice) -> Float32[np.ndarray, "c T"]:
        picked = chosen[rows]
        out = np.full((len(picked), n_samples), np.nan, np.float32)
        for first, pieces in file.pieces(picked):
            start = first * chosen[0].n_per_record
            for row, signal, integers in zip(out, picked, pieces):
                if signal.no_scale is None:
                    factor = unit_in_uv(unit or signal.unit)
                    gain, offset = signal.scale
                    values_uv = (integers * gain + offset) * (1.0 if factor is None else factor)
                    row[start : start + len(integers)] = possible_uv(values_uv)
        return out

    data_uv = held_or_lazy((len(chosen), n_samples), read)
    segments, events = _edf_times(file, sfreq_hz, chosen[0].n_per_record, notes)
    positions = placed(channels, notes)
    return Recording(
        file.path, file.format, data_uv, named(channels, notes, positions), [signal.label for signal in chosen],
        positions, sfreq_hz, segments, events, left_out, file.start, notes,
        file_units=[signal.unit for signal in chosen],
    )  # fmt: skip


def _pick_edf(
    file: EdfFile, ordinary: list[EdfSignal], unit: str | None, notes: list[Note]
) -> tuple[list[EdfSignal], list[Channel], dict[str, str]]:
    """Chooses the EEG among the signals: by name, then unit, then rate."""
    left_out: dict[str, str] = {}
    candidates: list[tuple[EdfSignal, Channel]] = []
    for signal, channel in zip(ordinary, parse_labels([signal.label for signal in ordinary])):
        if channel.left_out:
            leave_out(left_out, signal.label, channel.left_out)
        elif signal.n_per_record == 0:
            leave_out(left_out, signal.label, "no samples")
        elif unit_in_uv(signal.unit) is None and signal.unit and channel.anode is None:
            leave_out(left_out, signal.label, f"unit {signal.unit!r} is no voltage")
        else:
            candidates.append((signal, channel))
    known = [signal.n_per_record for signal, channel in candidates if channel.anode] or [
        signal.n_per_record for signal, _ in candidates
    ]
    if known:
        # the rate that most channels with a place on the scalp have; of equal ones the higher
        n = max(Counter(known).items(), key=lambda item: (item[1], item[0]))[0]
        rate_hz = n / file.record_s
        lost: list[str] = []
        for signal, channel in candidates:
            if signal.n_per_record != n:
                leave_out(left_out, signal.label, f"{file.rate_hz(signal):g} Hz, the EEG has {rate_hz:g} Hz")
                if channel.anode:
                    lost.append(f"{signal.label} ({file.rate_hz(signal):g} Hz)")
        if lost:
            notes.append(Note("other_rate", f"scalp EEG that has not the others' {rate_hz:g} Hz: {listed(lost)}"))
        candidates = [(signal, channel) for signal, channel in candidates if signal.n_per_record == n]
    chosen = [signal for signal, _ in candidates]
    notes += unit_notes([signal.label for signal in chosen], [signal.unit for signal in chosen], unit)
    return chosen, [channel for _, channel in candidates], left_out


def _edf_times(
    file: EdfFile, sfreq_hz: float, n_per_record: int, notes: list[Note]
) -> tuple[list[Segment], list[Event]]:
    starts_s, texts = file.annotations()
    given = [start for start in starts_s if start is not None]
    zero_s = given[0] if given and starts_s[0] is not None else 0.0
    n_samples = file.n_records * n_per_record
    segments = [Segment(0, n_samples, 0.0)]
    timed = [(index, start) for index, start in enumerate([zero_s, *starts_s[1:]]) if start is not None]
    backwards = [j + 1 for (i, a), (j, b) in pairwise(timed) if b <= a or b < a + (j - i) * file.record_s - _JITTER_S]
    if backwards and file.format.endswith("+D"):
        raise UserError(
            f"{file.path}: expected records that follow each other, but record {backwards[0]} begins before the end "
            "of the one before; correct the file's record times or leave it out"
        )
    if backwards:
        notes.append(
            Note("record_times", f"{len(backwards)} records begin before the one in front ends; taken as following on")
        )
    elif file.format.endswith(("+C", "+D")):
        stated_continuous = file.format.endswith("+C")
        if len(given) < len(starts_s) and not stated_continuous:
            notes.append(
                Note("record_times", f"{len(starts_s) - len(given)} records carry no time; taken as following on")
            )
        # rounding in the header and stamps; a gap shorter than half a sample moves no sample
        tolerance_s = max(0.5 / sfreq_hz, _JITTER_S if stated_continuous else 1e-3)
        edges, onsets_s, expected_s = [0], [0.0], 0.0
        for index, start_s in enumerate(starts_s):
            at_s = expected_s if start_s is None else start_s - zero_s
            if abs(at_s - expected_s) > tolerance_s:
                edges.append(index * n_per_record)
                onsets_s.append(at_s)
            expected_s = at_s + file.record_s
        segments = [Segment(a, b, t) for a, b, t in zip(edges, [*edges[1:], n_samples], onsets_s)]
        if len(segments) > 1:
            against = " (the header says continuous, the record times do not)" if stated_continuous else ""
            at = listed([f"{t:g}" for t in onsets_s])
            notes.append(Note("gaps", f"{len(segments)} pieces, starting at {at} s{against}"))
    stamps = [text for text in texts if not re.fullmatch(r"[+-]\d+(\.\d*)?", text[2])]
    events = [(onset_s - zero_s, duration_s, text) for onset_s, duration_s, text in stamps]
    for signal in file.signals:
        if re.fullmatch(r"(?i)(bdf )?status( ?\d+)?|trig(ger)?|sti ?\d*", signal.label):
            for sample, code in status_events(file.digital(signal)):
                stored_s = sample / file.rate_hz(signal)
                events.append((true_time_s(stored_s, segments, sfreq_hz), 0.0, str(code)))
    return segments, place_events(events, segments, sfreq_hz, notes)
