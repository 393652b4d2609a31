"""What a model found, and what was made, in files that others open: CSV, BIDS, EDF+, NumPy, Parquet. Each is atomic."""

import csv
import io
import json
import math
import unicodedata
from collections.abc import Sequence
from datetime import datetime, time
from itertools import pairwise
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64

from bothways.eeg.events import PredictedEvent
from bothways.eeg.moments import Trace
from bothways.errors import UserError
from bothways.files import replacing, write_bytes, write_json, write_text

EDF_YEARS = range(1985, 2085)
"""Years that an EDF file can state; anonymised dates often lie before."""
_COLUMNS = {
    "onset": "Beginning of the event, from the first sample of the recording; gaps in it count",
    "duration": "Duration of the event",
    "trial_type": "Class that the model found",
    "mean_probability": "Mean of the class's probability over the event",
    "max_probability": "Largest probability of the class in the event",
}


def write_events_csv(path: Path, events: Sequence[PredictedEvent], file: str) -> None:
    """Writes `file,onset_s,duration_s,label,mean_probability,max_probability`, which `read_labels` takes again.

    Args:
        path: the CSV.
        events: what was found.
        file: the recording, as labels name it.

    Raises:
        UserError: a label that no text file holds.
    """
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["file", "onset_s", "duration_s", "label", "mean_probability", "max_probability"])
    table.writerows([file, *_row(event)] for event in events)
    write_text(path, lines.getvalue())


def write_bids_events(path: Path, events: Sequence[PredictedEvent]) -> None:
    """Writes a BIDS events.tsv and, beside it, the JSON file that explains its columns (BIDS 1.10, task events).

    Args:
        path: `…_events.tsv`.
        events: what was found.

    Raises:
        UserError: another ending, or a label that no text file holds.
    """
    if not path.name.endswith("events.tsv"):
        raise UserError(f"{path}: expected a name that ends in events.tsv, as BIDS has it; rename it")
    rows = [list(_COLUMNS), *(_row(event) for event in events)]
    about: dict[str, Any] = {name: {"Description": text} for name, text in _COLUMNS.items()}
    for name in ("onset", "duration"):
        about[name]["Units"] = "s"
    about["trial_type"]["Levels"] = {label: f"Found as {label}" for label in sorted({e.label for e in events})}
    write_json(path.with_suffix(".json"), about)
    write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def write_edf_annotations(path: Path, events: Sequence[PredictedEvent], start: datetime | None = None) -> None:
    """Writes an EDF+C file that holds annotations and no signal, as Sleep-EDF's hypnograms are (Kemp & Olivan 2003).

    Args:
        path: the file.
        events: what was found; onsets count from `start`, to the microsecond.
        start: the recorder's clock at the recording's start (`Recording.meas_date`), fractions of a second too. None =
            anonymous: no date in the file, which other software shows as 1 January 1985, midnight.

    Raises:
        UserError: a year that EDF does not have, or a label that no text file holds.
    """
    if start is not None and start.year not in EDF_YEARS:
        raise UserError(
            f"{path}: expected a start from {EDF_YEARS[0]} to {EDF_YEARS[-1]}, which is what EDF can state, got "
            f"{start.year}; write it without a start"
        )
    annotations = [
        edfio.EdfAnnotation(round(event.onset_s, 6), round(event.duration_s, 6), _checked(event.label))
        for event in events
    ]
    made = edfio.Edf(
        [],
        recording=edfio.Recording(startdate=None if start is None else start.date(), equipment_code="bothways"),
        starttime=time() if start is None else start.time().replace(tzinfo=None),
        annotations=annotations or [edfio.EdfAnnotation(0.0, None, "nothing")],
    )
    if not annotations:
        made.drop_annotations("nothing")  # edfio makes no file without any, but a file without any is valid
    content = io.BytesIO()
    made.write(content)
    write_bytes(path, content.getvalue())


def write_edf_recording(
    path: Path,
    data_uv: Float64[np.ndarray, "C T"],
    ch_names: Sequence[str],
    sfreq_hz: int,
    events: Sequence[tuple[float, float, str]],
    subject: str = "X",
) -> None:
    """Writes a recording with its events as EDF+C: 16 bit, one symmetric range a channel, no date.

    Args:
        path: the file.
        data_uv: microvolts; whole seconds of it.
        ch_names: up to 16 letters each.
        sfreq_hz: samples in a second.
        events: (onset_s, duration_s, label).
        subject: code of the person.

    Raises:
        UserError: a name or label that EDF cannot hold.
    """
    if odd := [name for name in ch_names if len(name) > 16 or not (name.isascii() and name.isprintable())]:
        raise UserError(f"{path.name}: expected channel names of up to 16 ASCII letters, got {odd[0]!r}; rename it")
    signals = []
    for row, name in zip(data_uv, ch_names):
        top = max(math.ceil(np.abs(row).max()), 1)
        signals.append(
            edfio.EdfSignal(
                row, sfreq_hz, label=name, physical_dimension="uV", physical_range=(-top, top),
                digital_range=(-32767, 32767),
            )
        )  # fmt: skip
    made = edfio.Edf(
        signals,
        patient=edfio.Patient(code=subject),
        recording=edfio.Recording(equipment_code="bothways"),
        data_record_duration=1,
        annotations=[edfio.EdfAnnotation(round(a, 6), round(n, 6), _checked(label)) for a, n, label in events],
    )
    content = io.BytesIO()
    made.write(content)
    write_bytes(path, content.getvalue())


def write_trace_npy(path: Path, trace: Trace) -> None:
    """Writes the probabilities [M K] as float32 and, in a JSON file beside it, what the rows and columns are.

    The JSON has `classes`, `step_s`, `uncovered_s` and `segments`: rows `first` to `stop` begin at `onset_s` and end at
    `end_s` (true seconds), one each `step_s`. Rows that no window covers are NaN.
    """
    edges = np.flatnonzero(np.diff(trace.segment, prepend=-1, append=-1)).tolist()
    segments = [
        {
            "first": first,
            "stop": stop,
            "onset_s": float(trace.onset_s[first]),
            "end_s": float(trace.onset_s[stop - 1] + trace.duration_s[stop - 1]),
        }
        for first, stop in pairwise(edges)
    ]
    write_json(path.with_suffix(".json"), {**_about(trace), "segments": segments})
    with replacing(path) as file:
        np.save(file, trace.probabilities.astype(np.float32), allow_pickle=False)


def write_trace_parquet(path: Path, trace: Trace) -> None:
    """Writes `onset_s`, `duration_s`, `segment` and a column `p_<class>` each; null where no window covers the moment.

    Each field's metadata has its `unit` (`s`, or `1` for a probability), the schema's has `bothways`: JSON with
    `classes`, `step_s` and `uncovered_s`.
    """
    seconds, share = {"unit": "s"}, {"unit": "1"}
    schema = pa.schema(
        [
            pa.field("onset_s", pa.float64(), nullable=False, metadata=seconds),
            pa.field("duration_s", pa.float64(), nullable=False, metadata=seconds),
            pa.field("segment", pa.int32(), nullable=False),
            *(pa.field(f"p_{name}", pa.float32(), metadata=share) for name in trace.classes),
        ],
        metadata={"bothways": json.dumps(_about(trace), ensure_ascii=False)},
    )
    columns = [trace.onset_s, trace.duration_s, trace.segment.astype(np.int32)]
    columns += [pa.array(p.astype(np.float32), from_pandas=True) for p in trace.probabilities.T]  # NaN -> null
    with replacing(path) as file:
        pq.write_table(pa.table(columns, schema=schema), file)


def _about(trace: Trace) -> dict[str, Any]:
    return {"classes": list(trace.classes), "step_s": trace.step_s, "uncovered_s": trace.uncovered_s}


def _row(event: PredictedEvent) -> list[str]:
    seconds = [f"{value:.6f}".rstrip("0").rstrip(".") for value in (event.onset_s, event.duration_s)]
    return [*seconds, _checked(event.label), f"{event.mean_probability:.6f}", f"{event.max_probability:.6f}"]


def _checked(label: str) -> str:
    """Returns a label that stands on one line; tabs, line ends and EDF's separators are control codes."""
    if not label.strip() or any(unicodedata.category(character) == "Cc" for character in label):
        raise UserError(f"events: expected labels of one line of text, got {label!r}; rename the class")
    return label
