"""`bothways eeg predict`."""

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import FinetuneConfig, WindowConfig, validate
from bothways.errors import UserError
from bothways.files import check_output, new_folder, write_json, write_text
from bothways.model import Model
from bothways.progress import progress
from bothways.run.common import Sources, calibration, check_baseline, check_names, usable, with_mains
from bothways.run.evaluate import finetuned_manifest
from bothways.training import class_probabilities, infer, load_recipe, load_run, run_at


def predict(
    run: str | Path,
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    baseline: str | Path | None = None,
    stride_s: float | None = None,
    notch_hz: float | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Predicts the class of each window of whole recordings, new ones of any format.

    Recordings are filtered, resampled and scaled as the model's contract says. A recording that cannot be used is
    named with the reason; the others go on.

    Args:
        run: a fine-tuned run.
        files: recordings, or folders of them, or one.
        out: folder for `<recording>.csv` (onset_s, duration_s, label, one probability a class) and
            `predictions.json`.
        baseline: CSV `file,onset_s,duration_s[,subject]`; needed where the model subtracts a baseline. The
            files that it names are read too, for calibration.
        stride_s: from one window to the next; as in training where not given.
        notch_hz: mains frequency where the recordings were made; as in training where not given.
        subject_from: see `check`; says whose baseline a recording gets.
        unit: see `check`.
        overwrite: replace `out`.

    Returns:
        `run`, `out`, `recordings` (`file`, `subject`, `csv`, `windows`, `counts`, `mean_probability` of each class,
        `uncovered_s`: seconds that no usable window covers, `left_out` channels, `notes` with codes), `skipped`,
        `load_report`.

    Raises:
        UserError: no such run, or none of the recordings can be used.
    """
    check_names(run, out)
    run, out, files = run_at(Path(run)), Path(out), [files] if isinstance(files, str | Path) else files
    finetuned_manifest(run)
    settings = load_recipe(run, FinetuneConfig)
    model = load_run(run, eeg.build_embedding)
    assert model.load_report is not None
    assert model.config.signal is not None
    assert model.config.patches is not None
    check_baseline(run, model.config.patches, baseline)
    windows_config = settings.windows
    if stride_s is not None:
        windows_config = validate(WindowConfig, windows_config.model_dump() | {"stride_s": stride_s}, "predict")
    signal = with_mains(run, model.config.signal, notch_hz, "predict")
    check_output(out, overwrite=overwrite, inputs=(*files, run))
    wanted = eeg.scan(files, subject_from)
    extra, rows = ([], []) if baseline is None else calibration(Path(baseline), files, wanted, subject_from)
    with new_folder(out, overwrite=overwrite) as folder, tempfile.TemporaryDirectory() as scratch:
        store = eeg.prepare(
            [*files, *extra],
            Path(scratch) / "store",
            signal,
            subject_from=subject_from,
            unit=unit,
            baseline=rows,
        )
        sources = Sources(store, model.config.patches)
        # A calibration beside them may make a longer name of one.
        places = {one.path.resolve() for one in wanted}
        named = eeg.scan([*files, *extra], subject_from) if extra else wanted
        names = {one.file for one in named if one.path.resolve() in places}
        done: list[dict[str, Any]] = []
        skipped = [entry for entry in store.head["skipped"] if entry["file"] in names]
        with progress("predict", len(names), "recordings") as meter:
            for index, recording in enumerate(store.recordings):
                if recording.file not in names:
                    continue
                try:
                    done.append(_predict_one(model, sources, index, windows_config, folder))
                except UserError as problem:
                    skipped.append({"file": recording.file, "reason": str(problem)})
                meter.advance(note=recording.file)
        if not done:
            raise UserError(f"none of {len(wanted)} recordings can be used: {skipped[0]['reason']}")
        result = {
            "run": str(run), "out": str(out), "recordings": done, "skipped": skipped,
            "load_report": model.load_report.as_dict(),
        }  # fmt: skip
        write_json(folder / "predictions.json", result)
    return result


def _predict_one(
    model: Model, sources: Sources, index: int, windows_config: WindowConfig, folder: Path
) -> dict[str, Any]:
    store = sources.store
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    windows = usable(sources, eeg.cut_windows(store, windows_config, recordings=[index]))
    scores = infer(model, sources.of(windows), class_probabilities)
    classes = model.config.heads["sequence"].classes
    length_s = windows.window_samples / sfreq_hz
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["onset_s", "duration_s", "label", *(f"p_{name}" for name in classes)])
    for start, row in zip(windows.start.tolist(), scores):
        onset_s = eeg.true_time_s(start / sfreq_hz, recording.segments, sfreq_hz)
        label = classes[int(row.argmax())]
        table.writerow([f"{onset_s:.3f}", f"{length_s:.3f}", label, *(f"{p:.6f}" for p in row)])
    name = recording.file.replace("/", "__") + ".csv"
    if (folder / name).exists():  # a/x.edf and a__x.edf
        name = f"{recording.id}__{name}"
    write_text(folder / name, lines.getvalue())
    counts = np.bincount(scores.argmax(1), minlength=len(classes))
    covered = np.zeros(recording.n_samples, dtype=bool)
    for start in windows.start:
        covered[start : start + windows.window_samples] = True
    return {
        "file": recording.file,
        "subject": recording.subject,
        "csv": name,
        "windows": len(windows),
        "counts": dict(zip(classes, counts.tolist())),
        "mean_probability": dict(zip(classes, scores.mean(0).round(6).tolist())),
        "uncovered_s": float((~covered).sum() / sfreq_hz),
        "left_out": recording.left_out,
        "notes": [asdict(note) for note in recording.notes],
    }
