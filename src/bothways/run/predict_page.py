"""The page of a predicted recording: signal, classes over time, events, and what the most certain ones rest on."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from bothways import __version__, eeg
from bothways.config import EventConfig
from bothways.inspection import Hidden, occlude
from bothways.model import Model
from bothways.run.hypnogram import hypnogram
from bothways.run.tasks import of_spans, task_of
from bothways.training import class_probabilities, moment_probabilities, span_probabilities

MOST_EXPLAINED = 5
"""Events whose channels and moments are asked for."""
MOST_LISTED = 1000
"""Events, and annotations, in the page; the files hold all."""
COLUMNS = 1000
"""Of the probabilities over time."""
POINTS, MOST_POINTS = 2000, 60_000
"""Drawn of a channel, and of all channels together."""
POINTS_OF_EVENT, MOST_POINTS_OF_EVENT = 1000, 20_000
LEAST_SPAN = 0.05
"""Of the axis of falls, so that nothing looks like much."""
_TOGETHER = 2**18
"""Samples of a long recording that are looked at together."""
OCCLUSION = (
    "Occlusion asks the model again with one channel, or one moment, hidden, and shows by how much the probability of "
    "the event falls: it tells what this model's answer rests on in this window, not where in the brain the event "
    "arises, nor what caused it; and where channels tell the same, hiding one of them changes little."
)


def prediction_page(
    model: Model,
    source: eeg.WindowSource,
    trace: eeg.Trace,
    found: Sequence[eeg.PredictedEvent],
    rules: EventConfig,
    entry: Mapping[str, Any],
    stages: Sequence[eeg.Span] = (),
) -> dict[str, Any]:
    """Returns what `report.write_report` draws of one recording.

    Args:
        model: what predicted.
        source: all windows that it was asked for, of this one recording.
        trace: the classes over time.
        found: the events.
        rules: what makes an event.
        entry: what `predict` says of the recording.
        stages: sleep stages that are annotated in it.
    """
    store, index = source.store, int(source.windows.recording[0])
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    gaps = [(a.onset_s + (a.stop - a.start) / sfreq_hz, b.onset_s) for a, b in pairwise(recording.segments)]
    certain = sorted(found, key=lambda event: (-event.max_probability, -event.mean_probability, event.onset_s))
    listed = sorted(certain[:MOST_LISTED], key=lambda event: event.onset_s)
    annotated = [{"start_s": e.onset_s, "stop_s": e.onset_s + e.duration_s, "label": e.label} for e in recording.events]
    common = {
        "kind": "recording",
        "ch_names": recording.ch_names,
        "classes": trace.classes,
        "threshold": rules.enter if rules.decision == "threshold" and not rules.thresholds else None,
        "truth_label": "annotated",
    }
    whole = _drawn(store, index, 0, recording.n_samples, POINTS, MOST_POINTS)
    night = hypnogram(trace, source.windows.window_samples / sfreq_hz, stages)
    sections: list[dict[str, Any]] = [
        _facts(recording, sfreq_hz, len(gaps), trace, entry),
        common
        | whole
        | {
            "title": "The whole recording",
            "traces": _lines(trace, COLUMNS),
            "predicted": _spans(listed),
            "truth": annotated[:MOST_LISTED],
            "gaps": [{"start_s": start_s, "stop_s": stop_s} for start_s, stop_s in gaps],
            "caption": "As the model sees it, filtered: the least and the largest value of each column, so no spike is "
            "lost. Gaps in the recording are shaded; where no usable window lies, the probabilities are left open."
            + _rest(len(annotated), "annotations"),
        },
        *([night] if night is not None else []),
        _table(listed, len(found)),
    ]
    if found:
        sections.append(
            {
                "kind": "text",
                "title": "What the events rest on",
                "paragraphs": [
                    OCCLUSION,
                    f"Asked for the {min(len(found), MOST_EXPLAINED)} most certain events, each in the one window that "
                    "lies around its most certain moment; where windows overlap, the probability above is their mean.",
                ],
            }
        )
    for number, event in enumerate(certain[:MOST_EXPLAINED], 1):
        window, peak_s = _window_of(event, trace, source)
        start, start_s = int(source.windows.start[window]), float(_onsets_s(source)[window])
        stop_s = start_s + source.windows.window_samples / sfreq_hz
        title = f"Event {number}: {event.label} at {_seconds(event.onset_s)} s"
        sections.append(
            common
            | _drawn(store, index, start, start + source.windows.window_samples, POINTS_OF_EVENT, MOST_POINTS_OF_EVENT)
            | {
                "title": title,
                "traces": _lines(_part(trace, start_s, stop_s), COLUMNS),
                "predicted": _cut(_spans(listed), start_s, stop_s),
                "truth": _cut(annotated, start_s, stop_s),
            }
        )
        sections += _influence(f"What event {number} rests on", model, source, window, event, peak_s, start_s)
    sections.append(_files(entry))
    return {
        "title": f"Predictions: {entry['file']}",
        "subtitle": f"{len(found)} event{'s' * (len(found) != 1)} found in {trace.recorded_s / 60:.1f} minutes.",
        "versions": {"bothways": __version__},
        "sections": sections,
    }


def envelope_uv(
    store: eeg.Store, index: int, start: int, stop: int, points: int
) -> tuple[Float32[np.ndarray, "C n"], float, float]:
    """Draws stored samples down to `points` or fewer in true time: the least and the largest value of each column.

    Reads a piece at a time, so a recording may have any length.

    Args:
        store: where they lie.
        index: of the recording.
        start: first sample.
        stop: behind the last.
        points: most that are wanted; where there are fewer samples, these as they are.

    Returns:
        Microvolts (NaN = missing, or a gap), the first one's true time in seconds, and points a second.
    """
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    parts = [
        (max(s.start, start), min(s.stop, stop), s.onset_s + (max(s.start, start) - s.start) / sfreq_hz)
        for s in recording.segments
        if s.start < stop and start < s.stop
    ]
    start_s = parts[0][2]
    total = round((parts[-1][2] - start_s) * sfreq_hz) + parts[-1][1] - parts[-1][0]
    n = total if total <= points else points // 2
    low = np.full((len(recording.ch_names), n), np.nan, np.float32)
    high = low.copy()
    for first, last, onset_s in parts:
        for at in range(first, last, _TOGETHER):
            data = store.read(index, at, min(_TOGETHER, last - at))
            place = round((onset_s - start_s) * sfreq_hz) + at - first
            columns = np.arange(place * n // total, min((place + data.shape[1] - 1) * n // total, n - 1) + 1)
            begins = np.maximum(-(-columns * total // n) - place, 0)
            low[:, columns] = np.fmin(low[:, columns], np.fmin.reduceat(data, begins, axis=1))
            high[:, columns] = np.fmax(high[:, columns], np.fmax.reduceat(data, begins, axis=1))
    drawn = low if n == total else np.stack([low, high], 2).reshape(len(low), 2 * n)
    uv = drawn * recording.scale_uv[:, None] + recording.median_uv[:, None]
    return uv, float(start_s), float(drawn.shape[1] * sfreq_hz / total)


def _drawn(store: eeg.Store, index: int, start: int, stop: int, points: int, most: int) -> dict[str, Any]:
    points = max(2, min(points, most // len(store.recordings[index].ch_names)))
    signals_uv, start_s, rate_hz = envelope_uv(store, index, start, stop, points)
    return {"signals_uv": signals_uv, "start_s": round(start_s, 4), "sfreq_hz": rate_hz}


def _lines(trace: eeg.Trace, columns: int) -> list[dict[str, Any]]:
    """Returns each class over true time, open where there is a gap or no window: of many moments, least and largest."""
    rows = np.flatnonzero(trace.covered)
    if not len(rows):
        return []
    onset_s = trace.onset_s[rows]
    stop_s = onset_s + trace.duration_s[rows]
    new = (np.diff(rows, prepend=-2) != 1) | (np.diff(trace.segment[rows], prepend=-1) != 0)
    share = (onset_s - onset_s[0]) / (stop_s[-1] - onset_s[0])
    column = np.arange(len(rows)) if len(rows) <= columns else np.floor(share * columns)
    first = np.flatnonzero(new | (np.diff(column, prepend=-1) != 0))
    last = np.append(first[1:], len(rows)) - 1
    breaks = 2 * np.flatnonzero(new[first])[1:]
    times_s = np.stack([onset_s[first], stop_s[last]], 1).flatten()
    lines = []
    for k, label in enumerate(trace.classes):
        p = trace.probabilities[rows, k]
        values = np.stack([np.minimum.reduceat(p, first), np.maximum.reduceat(p, first)], 1).flatten()
        lines.append(
            {
                "label": label,
                "times_s": np.insert(times_s, breaks, times_s[breaks]).round(3),
                "values": np.insert(values, breaks, np.nan).round(4),
            }
        )
    return lines


def _part(trace: eeg.Trace, start_s: float, stop_s: float) -> eeg.Trace:
    """Returns the moments that lie in a stretch of time, cut to it."""
    ends_s = trace.onset_s + trace.duration_s
    inside = (ends_s > start_s + 1e-6) & (trace.onset_s < stop_s - 1e-6)
    onset_s = np.maximum(trace.onset_s[inside], start_s)
    lasts_s = np.minimum(ends_s[inside], stop_s) - onset_s
    return eeg.Trace(trace.classes, onset_s, lasts_s, trace.segment[inside], trace.probabilities[inside], trace.step_s)


def _spans(events: Sequence[eeg.PredictedEvent]) -> list[dict[str, Any]]:
    return [{"start_s": e.onset_s, "stop_s": e.onset_s + e.duration_s, "label": e.label} for e in events]


def _cut(spans: Sequence[dict[str, Any]], start_s: float, stop_s: float) -> list[dict[str, Any]]:
    return [span for span in spans if span["start_s"] < stop_s and span["stop_s"] >= start_s][:MOST_LISTED]


def _seconds(time_s: float) -> str:
    return f"{round(time_s, 2):.10g}"


def _rest(n: int, what: str) -> str:
    return "" if n <= MOST_LISTED else f" Of {n} {what} {MOST_LISTED} are shown."


def _facts(
    recording: eeg.StoredRecording, sfreq_hz: float, n_gaps: int, trace: eeg.Trace, entry: Mapping[str, Any]
) -> dict[str, Any]:
    facts = {
        "Person": recording.subject,
        "Recorded, minutes": f"{recording.n_samples / sfreq_hz / 60:.1f}",
        "Began": recording.meas_date,
        "Gaps": n_gaps,
        "Windows": entry["windows"],
        "Seconds without a usable window": f"{trace.uncovered_s:g}",
        "Channels": len(recording.ch_names),
        "Bad channels, hidden from the model": ", ".join(recording.bad_channels),
        "Left out": ", ".join(f"{name} ({why})" for name, why in recording.left_out.items()),
        "Mean probability": ", ".join(f"{name} {p:.2f}" for name, p in entry["mean_probability"].items()),
    }
    section: dict[str, Any] = {
        "kind": "facts",
        "title": "The recording",
        "facts": {name: value for name, value in facts.items() if value not in (None, "")},
    }
    if entry["notes"]:
        section["note"] = " ".join(f"{note['message'].rstrip('.')}." for note in entry["notes"])
    return section


def _table(listed: Sequence[eeg.PredictedEvent], n_found: int) -> dict[str, Any]:
    if not listed:
        return {"kind": "text", "title": "Events", "paragraphs": ["No event was found."]}
    return {
        "kind": "table",
        "title": "Events",
        "columns": ["event", "onset, s", "end, s", "duration, s", "mean probability", "largest probability"],
        "rows": [
            [
                event.label, round(event.onset_s, 3), round(event.onset_s + event.duration_s, 3),
                round(event.duration_s, 3), round(event.mean_probability, 6), round(event.max_probability, 6),
            ]
            for event in listed
        ],
        "caption": f"Seconds since the beginning of the recording, gaps counted.{_rest(n_found, 'events')}",
    }  # fmt: skip


def _onsets_s(source: eeg.WindowSource) -> Float[np.ndarray, " n"]:
    """Returns the true time at which each window begins."""
    recording = source.store.recordings[int(source.windows.recording[0])]
    starts, onsets_s = (np.array([getattr(s, name) for s in recording.segments]) for name in ("start", "onset_s"))
    segment = np.searchsorted(starts, source.windows.start, "right") - 1
    return onsets_s[segment] + (source.windows.start - starts[segment]) / source.store.signal.sfreq_hz


def _window_of(event: eeg.PredictedEvent, trace: eeg.Trace, source: eeg.WindowSource) -> tuple[int, float]:
    """Returns the window whose middle is nearest to the most certain moment of an event, and that moment's."""
    stop_s = event.onset_s + event.duration_s
    inside = np.flatnonzero((trace.onset_s > event.onset_s - 1e-6) & (trace.onset_s < stop_s - 1e-6))
    p = trace.probabilities[inside, trace.classes.index(event.label)]
    middles_s = (trace.onset_s + trace.duration_s / 2)[inside]
    best = np.flatnonzero(p == np.nanmax(p))
    peak_s = float(middles_s[best[len(best) // 2]])
    half_s = source.windows.window_samples / source.store.signal.sfreq_hz / 2
    return int(np.abs(_onsets_s(source) + half_s - peak_s).argmin()), peak_s


def _influence(
    title: str,
    model: Model,
    source: eeg.WindowSource,
    window: int,
    event: eeg.PredictedEvent,
    peak_s: float,
    start_s: float,
) -> list[dict[str, Any]]:
    """Hides the window's channels and moments in turn; nothing where the model says nothing of it."""
    patch_s = source.patch_samples / source.store.signal.sfreq_hz
    middles_s = start_s + (np.arange(source.n_patches) + 0.5) * patch_s
    inside = (middles_s > event.onset_s) & (middles_s < event.onset_s + event.duration_s)
    inside[np.abs(middles_s - peak_s).argmin()] = True  # a grid of windows may lie beside that of the moments
    batch = source.batch(np.array([window]))
    told = occlude(model, batch, _reader(model, event.label, np.flatnonzero(inside)))
    if not math.isfinite(told.score):
        return []
    recording = source.store.recordings[int(source.windows.recording[window])]
    names = [recording.ch_names[place] for place in source.channels[int(source.windows.recording[window])]]

    def items(parts: Sequence[Hidden], name: Callable[[int, int], str]) -> list[dict[str, Any]]:
        return [{"label": name(part.places[0], part.places[-1]), "value": round(part.fall, 6)} for part in parts]

    def channel(first: int, last: int) -> str:
        return names[first] if first == last else f"{names[first]} to {names[last]}"

    def moment(first: int, last: int) -> str:
        return f"{_seconds(start_s + first * patch_s)} to {_seconds(start_s + (last + 1) * patch_s)} s"

    caption = f"In this window, with nothing hidden, {event.label} has a probability of {told.score:.3f}."
    if task_of(model) == "moment":
        caption += " It is the mean over the event's moments in the window; a hidden moment itself has none."
    return [
        {
            "kind": "influence",
            "title": title,
            "unit": "by how much the probability falls when it is hidden",
            "groups": [
                {"label": "Channels", "items": items(told.channels, channel)},
                {"label": "Moments", "items": items(told.moments, moment)},
            ],
            "least": LEAST_SPAN,
            "caption": caption,
        }
    ]


def _reader(
    model: Model, label: str, inside: Int[np.ndarray, " m"]
) -> Callable[[Model, Mapping[str, Tensor]], Float[Tensor, " B"]]:
    """Returns what reads the probability of an event: a window's, or the mean over the moments inside it."""
    task, head = task_of(model), next(iter(model.config.heads.values()))
    place = head.classes.index(label)

    def read(model: Model, batch: Mapping[str, Tensor]) -> Float[Tensor, " B"]:
        if task == "window":
            return class_probabilities(model, batch)[:, place]
        if task == "moment":
            return moment_probabilities(model, batch)[:, inside, place].nanmean(1)
        answers = span_probabilities(model, batch).float().cpu().numpy()
        background = [name for name in head.classes if name != label]
        return torch.from_numpy(of_spans(answers, head.classes, background)[:, inside, place].mean(1))

    return read


def _files(entry: Mapping[str, Any]) -> dict[str, Any]:
    events, bids, edf, parquet, npy, about = entry["files"][:6]
    return {
        "kind": "files",
        "title": "Files",
        "files": [
            {"path": entry["csv"], "what": "the answer for each window, or moment"},
            {"path": events, "what": "the events, as a table"},
            {"path": bids, "what": "the same as BIDS has it; lay it beside the recording under its name"},
            {"path": edf, "what": "the same as EDF+ annotations, for EDFbrowser and others"},
            {"path": parquet, "what": "each class over time"},
            {"path": npy, "what": "the same as an array"},
            {"path": about, "what": "the array's classes and times"},
        ],
        "next": [
            {"what": "In Python, the events:", "command": f"import mne\nmne.read_annotations({edf!r})"},
            {
                "what": "In Python, the probabilities:",
                "command": f"from pyarrow import parquet\nparquet.read_table({parquet!r})",
            },
        ],
    }
