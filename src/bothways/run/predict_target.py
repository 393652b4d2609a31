"""`bothways eeg predict` of a run that tells a number, or several classes at once."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bothways import eeg
from bothways.config import FinetuneConfig
from bothways.files import replacing, write_text
from bothways.model import Model
from bothways.run.common import Sources, usable
from bothways.run.targets import Target


def predict_target(
    model: Model, target: Target, sources: Sources, index: int, settings: FinetuneConfig, folder: Path
) -> dict[str, Any]:
    """Predicts a recording window by window and writes `<recording>.csv` and `<recording>.parquet`.

    Their columns: `onset_s` (true time), `duration_s`, and `value` (in the unit of the labels), or `labels` (the
    classes with a probability of 0.5 or more, `;` between them) and a probability `p_<class>` each.

    Returns:
        `file`, `subject`, `csv`, `files`, `windows`, `mean_value`, or `counts` (windows with each class) and
        `mean_probability`, `uncovered_s`, `left_out`, `notes`.

    Raises:
        UserError: no window of the recording can be used.
    """
    store = sources.store
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    windows = usable(sources, eeg.cut_windows(store, settings.windows, recordings=[index]))
    said = target.read(model, sources.of(windows))
    columns: dict[str, list[Any]] = {
        "onset_s": [eeg.true_time_s(at / sfreq_hz, recording.segments, sfreq_hz) for at in windows.start.tolist()],
        "duration_s": [windows.window_samples / sfreq_hz] * len(windows),
    }
    about: dict[str, Any] = {"target": target.kind}
    if target.kind == "number":
        columns["value"] = said[:, 0].tolist()
        about["name"] = target.names[0]
        means: dict[str, Any] = {"mean_value": float(said.mean())}
    else:
        there = said >= 0.5
        columns["labels"] = [";".join(np.array(target.names)[row].tolist()) for row in there]
        columns |= {f"p_{name}": p.tolist() for name, p in zip(target.names, said.T)}
        about["classes"] = list(target.names)
        means = {
            "counts": dict(zip(target.names, there.sum(0).tolist())),
            "mean_probability": dict(zip(target.names, said.mean(0).round(6).tolist())),
        }
    stem = file_stem(folder, recording)
    write_text(folder / f"{stem}.csv", _as_csv(columns))
    table = pa.table(columns).replace_schema_metadata({"bothways": json.dumps(about, ensure_ascii=False)})
    with replacing(folder / f"{stem}.parquet") as file:
        pq.write_table(table, file)
    return {
        "file": recording.file,
        "subject": recording.subject,
        "csv": f"{stem}.csv",
        "files": [f"{stem}.parquet"],
        "windows": len(windows),
        **means,
        "uncovered_s": uncovered_s(recording, windows, sfreq_hz),
        "left_out": recording.left_out,
        "notes": [asdict(note) for note in recording.notes],
    }


def _as_csv(columns: dict[str, list[Any]]) -> str:
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(columns)
    digits = {"onset_s": ".3f", "duration_s": ".3f", "value": ".6g", "labels": ""}
    table.writerows(zip(*([format(v, digits.get(name, ".6f")) for v in column] for name, column in columns.items())))
    return lines.getvalue()


def file_stem(folder: Path, recording: eeg.StoredRecording) -> str:
    """Returns the name of a recording's files in a folder without folders."""
    stem = recording.file.replace("/", "__")
    return f"{recording.id}__{stem}" if (folder / f"{stem}.csv").exists() else stem  # a/x.edf and a__x.edf


def uncovered_s(recording: eeg.StoredRecording, windows: eeg.Windows, sfreq_hz: float) -> float:
    """Returns how many seconds of a recording no window covers."""
    covered = np.zeros(recording.n_samples, dtype=bool)
    for start in windows.start.tolist():
        covered[start : start + windows.window_samples] = True
    return float((~covered).sum() / sfreq_hz)
