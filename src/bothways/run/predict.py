"""`bothways eeg predict`."""

import csv
import io
import re
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import EVENT_PRESETS, EventConfig, FinetuneConfig, WindowConfig, load_config, validate
from bothways.errors import BothwaysWarning, UserError
from bothways.evaluation import sleep_stages
from bothways.files import check_output, new_folder, write_json, write_text
from bothways.model import Model
from bothways.progress import progress
from bothways.report import write_report
from bothways.run.common import Sources, calibration, check_baseline, check_names, usable, with_mains
from bothways.run.hypnogram import AnnotatedStages, annotated_stages
from bothways.run.predict_page import prediction_page
from bothways.run.predict_target import file_stem, predict_target, uncovered_s
from bothways.run.targets import SAID, target_of_model
from bothways.run.tasks import over_time, rules_of, task_of
from bothways.run.tested import finetuned_manifest
from bothways.training import load_recipe, load_run, run_at


def predict(
    run: str | Path,
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    baseline: str | Path | None = None,
    stride_s: float | None = None,
    events: str | Path | None = None,
    changes: Sequence[str] = (),
    notch_hz: float | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
    pages: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Predicts whole recordings, new ones of any format: each window, the classes over time, and events.

    Recordings are filtered, resampled and scaled as the model's contract says. Windows that overlap are averaged on a
    time grid (a window's stride, or a patch where moments or events are labelled); neither they nor events reach over a
    gap. A recording that cannot be used is named with the reason; the others go on.

    Args:
        run: a fine-tuned run.
        files: recordings, or folders of them, or one.
        out: folder for `predictions.json` and of each recording `<recording>.csv` (of each window, or moment:
            onset_s, duration_s, label, one probability a class), `<recording>_events.csv`, the same as BIDS has it
            (`sub-1_task-x_events.tsv` of `sub-1_task-x_eeg.edf`, with its JSON) and as EDF+ (`_annotations.edf`), and
            the classes over time as
            `<recording>_probabilities.parquet` (a row for each moment of the grid, with its time) and `.npy` (float32
            [moments classes], NaN where no window covers one; the `.json` beside it has `classes`, `step_s` and which
            rows begin at which `onset_s`).
        baseline: CSV `file,onset_s,duration_s[,subject]`; needed where the model subtracts a baseline. The
            files that it names are read too, for calibration.
        stride_s: from one window to the next; as in training where not given.
        events: `szcore` (see `config.EVENT_PRESETS`) or a TOML of `config.EventConfig`; by default an event is where a
            class other than `labels.background` has a probability of 0.5 or more.
        changes: `a=value` on top of it.
        notch_hz: mains frequency where the recordings were made; as in training where not given.
        subject_from: see `check`; says whose baseline a recording gets.
        unit: see `check`.
        pages: write of each recording also `<recording>.html`: the signal, the classes over time, the events, which
            channels and moments they rest on, and of sleep stages the hypnogram, beside the annotated one where the
            recording, or a hypnogram among `files`, has it.
        overwrite: replace `out`.

    Returns:
        `run`, `out`, `task`, `target` (the run's `labels.kind`), `events_by` (the settings), `recordings` (`file`,
        `subject`, `csv` and the other `files`, `windows`, `counts`, `mean_probability` of each class, `events`,
        `uncovered_s`: seconds that no usable window covers, `left_out` channels, `notes` with codes), `skipped`,
        `load_report`. Of numbers and of several classes at once there are no events, `events_by` is None, and for
        `recordings` see `predict_target.predict_target`.

    Raises:
        UserError: no such run, none of the recordings can be used, or `events`, `changes` or `pages` for a run that
            tells a number or several classes at once.
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
    if stride_s is not None:
        windows = validate(WindowConfig, settings.windows.model_dump() | {"stride_s": stride_s}, "predict")
        settings = settings.model_copy(update={"windows": windows})
        if stride_s * model.config.signal.sfreq_hz < 1:
            shortest_s = 1 / model.config.signal.sfreq_hz
            raise UserError(f"--stride-s: expected a sample ({shortest_s:g} s) or more, got {stride_s:g}; raise it")
        if stride_s > windows.window_s:
            rest = f"{stride_s - windows.window_s:g} s after each window of {windows.window_s:g} s get no answer"
            warnings.warn(f"--stride-s {stride_s:g}: {rest}", BothwaysWarning, stacklevel=2)
    target = target_of_model(model)
    if target is not None and (events is not None or changes or pages):
        odd = " and ".join(
            name for name, given in (("--events", events), ("--set", changes), ("--html", pages)) if given
        )
        raise UserError(
            f"{odd}: events and their page are made of one class at a time, and {run} tells {SAID[target.kind]}; leave "
            f"{odd} out"
        )
    rules = None if target is not None else _event_rules(settings, events, changes)
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
        staged = pages and sleep_stages(next(iter(model.config.heads.values())).classes or ()) is not None
        stages = annotated_stages(store, files, rules_of(settings)) if staged else AnnotatedStages()
        done: list[dict[str, Any]] = []
        skipped = [entry for entry in store.head["skipped"] if entry["file"] in names]
        with progress("predict", len(names), "recordings") as meter:
            for index, recording in enumerate(store.recordings):
                if recording.file not in names:
                    continue
                try:
                    if target is not None:
                        done.append(predict_target(model, target, sources, index, settings, folder))
                    else:
                        assert rules is not None
                        done.append(_predict_one(model, sources, index, settings, rules, folder, pages, stages))
                except UserError as problem:
                    skipped.append({"file": recording.file, "reason": str(problem)})
                meter.advance(note=recording.file)
        if not done:
            raise UserError(f"none of {len(wanted)} recordings can be used: {skipped[0]['reason']}")
        result = {
            "run": str(run), "out": str(out), "task": settings.task, "target": settings.labels.kind,
            "events_by": None if rules is None else rules.model_dump(mode="json"),
            "recordings": done, "skipped": skipped,
            "load_report": model.load_report.as_dict(),
        }  # fmt: skip
        write_json(folder / "predictions.json", result)
    return result


def _event_rules(settings: FinetuneConfig, events: str | Path | None, changes: Sequence[str]) -> EventConfig:
    """Returns what makes an event of probabilities; the class of no event is the labels' background."""
    nothing = rules_of(settings).background
    background = () if nothing is None else (nothing,)
    if str(events) in EVENT_PRESETS:
        return load_config(EventConfig, None, changes, background=background, **EVENT_PRESETS[str(events)])
    return load_config(EventConfig, None if events is None else Path(events), changes, background=background)


def _predict_one(
    model: Model,
    sources: Sources,
    index: int,
    settings: FinetuneConfig,
    rules: EventConfig,
    folder: Path,
    pages: bool,
    stages: AnnotatedStages,
) -> dict[str, Any]:
    store = sources.store
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    windows = usable(sources, eeg.cut_windows(store, settings.windows, recordings=[index]))
    task, classes = task_of(model), next(iter(model.config.heads.values())).classes
    trace, by_window = over_time(model, sources, windows, index, settings)
    found = eeg.find_events(trace, rules)
    if task == "window":
        scores = by_window
        onsets_s = [eeg.true_time_s(start / sfreq_hz, recording.segments, sfreq_hz) for start in windows.start.tolist()]
        durations_s = [windows.window_samples / sfreq_hz] * len(scores)
    else:
        scores = trace.probabilities[trace.covered]
        onsets_s, durations_s = (times[trace.covered].tolist() for times in (trace.onset_s, trace.duration_s))
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["onset_s", "duration_s", "label", *(f"p_{name}" for name in classes)])
    for onset_s, duration_s, row in zip(onsets_s, durations_s, scores):
        label = classes[int(row.argmax())]
        table.writerow([f"{onset_s:.3f}", f"{duration_s:.3f}", label, *(f"{p:.6f}" for p in row)])
    stem = file_stem(folder, recording)
    write_text(folder / f"{stem}.csv", lines.getvalue())
    counts = np.bincount(scores.argmax(1), minlength=len(classes))
    notes = [asdict(note) for note in (*recording.notes, *stages.notes.get(recording.file, ()))]
    entry: dict[str, Any] = {
        "file": recording.file,
        "subject": recording.subject,
        "csv": f"{stem}.csv",
        "files": _write_events(folder, stem, recording, found, trace, notes),
        "windows": len(windows),
        "counts": dict(zip(classes, counts.tolist())),
        "mean_probability": dict(zip(classes, scores.mean(0).round(6).tolist())),
        "events": [asdict(event) for event in found],
        "uncovered_s": uncovered_s(recording, windows, sfreq_hz),
        "left_out": recording.left_out,
        "notes": notes,
    }
    if pages:
        night = stages.rows.get(recording.file, [])
        page = prediction_page(model, sources.of(windows), trace, found, rules, entry, night)
        write_report(page, folder / f"{stem}.html")
        entry["files"].append(f"{stem}.html")
    return entry


def _write_events(
    folder: Path,
    stem: str,
    recording: eeg.StoredRecording,
    found: list[eeg.PredictedEvent],
    trace: eeg.Trace,
    notes: list[dict[str, Any]],
) -> list[str]:
    """Writes events and probabilities in all forms; returns the files' names."""
    start = None if recording.meas_date is None else datetime.fromisoformat(recording.meas_date)
    if start is not None and start.year not in eeg.EDF_YEARS:
        notes.append(
            {"code": "date_not_in_edf", "message": f"EDF cannot state {start:%Y-%m-%d}: annotations have no date"}
        )
        start = None
    ends = ("events.csv", "events.tsv", "annotations.edf", "probabilities.parquet")
    names = [f"{stem}_{end}" for end in (*ends, "probabilities.npy", "probabilities.json")]
    under_its_name = f"{re.sub(r'(_eeg)?[.][A-Za-z]+$', '', stem)}_events.tsv"  # sub-1_eeg.edf: sub-1_events.tsv
    if not (folder / under_its_name).exists():  # a.edf and a.vhdr
        names[1] = under_its_name
    eeg.write_events_csv(folder / names[0], found, recording.file)
    eeg.write_bids_events(folder / names[1], found)
    eeg.write_edf_annotations(folder / names[2], found, start)
    eeg.write_trace_parquet(folder / names[3], trace)
    eeg.write_trace_npy(folder / names[4], trace)
    return names
