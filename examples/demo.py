"""The main job on real recordings: check, prepare, pretrain, fine-tune, evaluate on unseen people, predict, report.

Run it with `make demo`. It uses the same functions as the command line, so it is also an example of the Python API.
People, not windows, are divided; each of several splits has its own pretraining, which never sees the tested people.
"""

import csv
import json
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import bothways
from bothways import eeg, run
from bothways.evaluation import few_subjects, repeated_splits, summarise
from bothways.report import write_report

ROOT = Path(__file__).parent.parent
DATA = ROOT / "examples/data/eeg_mental_arithmetic"
OUT = ROOT / "demo-run"
RECIPES = ROOT / "recipes"
N_SPLITS = 5
N_LABELLED = 4
CAVEAT = (
    "Rest always precedes the arithmetic and lies in another file, so time on task and drift are mixed with the "
    "condition. The table shows that the steps carry over to people never seen; it is no evidence about brains."
)
ARMS = {
    "chance": "chance",
    "band_power": "band power + logistic regression",
    "scratch": "same encoder from scratch",
    "frozen_probe": "pretrained, frozen, linear probe",
    "finetuned": "pretrained and fine-tuned",
}
console = Console(highlight=False)


def main() -> None:
    """Runs all steps and prints the table."""
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    say(f"1 check: {DATA.relative_to(ROOT)}")
    checked = run.check([DATA])
    totals = checked["totals"]
    say(f"  {totals['recordings']} recordings of {totals['subjects']} people, {totals['duration_s'] / 60:.0f} minutes")
    say("2 prepare: band-pass, notch, 200 Hz, robust scaling; the first minute of rest calibrates each person")
    run.prepare([DATA], OUT / "store", baseline=DATA / "baseline.csv")
    subjects = {recording.subject for recording in eeg.Store.open(OUT / "store").recordings}

    results: dict[str, list[float]] = {name: [] for name in ARMS}
    evaluations, pretrainings = [], []
    for number, split in enumerate(
        repeated_splits(subjects, N_SPLITS, seed=0, train_fraction=0.77, validation_fraction=0)
    ):
        say(
            f"3-5 split {number + 1} of {N_SPLITS}: pretrain on {len(split.train)} people, label {N_LABELLED} of them, "
            f"test on {len(split.test)} others"
        )
        folder = OUT / f"split-{number + 1}"
        folder.mkdir()
        few_subjects(split, N_LABELLED, seed=number).save(folder / "labelled.json")
        split.save(folder / "all.json")
        seed = [f"training.seed={number}"]
        pretrainings.append(
            run.pretrain(
                OUT / "store",
                folder / "pretrained",
                recipe=RECIPES / "few-people-pretrain.toml",
                changes=seed,
                split=folder / "all.json",
            )
        )
        for name, start in (("scratch", "scratch"), ("finetuned", folder / "pretrained")):
            run.finetune(
                start,
                OUT / "store",
                DATA / "labels.csv",
                folder / name,
                recipe=RECIPES / "few-people-finetune.toml",
                changes=seed,
                split=folder / "labelled.json",
            )
            evaluation = run.evaluate(folder / name)
            results[name].append(evaluation["model"]["balanced_accuracy"])
        evaluations.append(evaluation)
        for name in ("chance", "band_power", "frozen_probe"):
            results[name].append(evaluation["controls"][name]["balanced_accuracy"])

    say("6 predict: one whole recording of a person never seen")
    unseen = min(subjects)
    tested_in = next(i for i, e in enumerate(evaluations) if unseen in e["split"]["test"]) + 1
    prediction = run.predict(
        OUT / f"split-{tested_in}" / "finetuned",
        [DATA / f"sub-{unseen}_rest.edf", DATA / f"sub-{unseen}_task.edf"],
        OUT / "predictions",
        baseline=DATA / "baseline.csv",
    )
    seconds = time.monotonic() - started
    write_report(report(checked, results, evaluations, pretrainings, prediction, seconds), OUT / "report.html")
    (OUT / "results.json").write_text(json.dumps({"balanced_accuracy": results, "seconds": seconds}, indent=1))
    show(results, overlaps(evaluations), seconds)


def say(line: str) -> None:
    """Prints a step."""
    console.print(line, style="bold" if line[0].isdigit() else None, markup=False)


def show(results: dict[str, list[float]], overlap: list[str], seconds: float) -> None:
    """Prints the table, where everything lies, and what to try next."""
    table = Table("balanced accuracy, people never seen", "mean", "SD", "splits", box=None, header_style="bold")
    for name, title in ARMS.items():
        values = results[name]
        each = " ".join(f"{value:.2f}" for value in values)
        table.add_row(title, f"{np.mean(values):.3f}", f"{np.std(values, ddof=1):.3f}", each)
    console.print(table)
    console.print(CAVEAT)
    console.print(f"Overlap of the tested people with pretraining: {', '.join(overlap)}.")
    console.print(f"{seconds:.0f} s. Everything lies in {OUT.name}/; look at {OUT.name}/report.html first.")
    console.print("On your own recordings:", *(f"  {step['command']}" for step in NEXT), sep="\n", markup=False)


NEXT = [
    {"command": ".venv/bin/bothways eeg check FOLDER", "what": "what is in your recordings and what is wrong"},
    {"command": ".venv/bin/bothways eeg prepare FOLDER --out my-store", "what": "filter, resample, scale"},
    {"command": ".venv/bin/bothways eeg pretrain --data my-store --out my-run", "what": "learn without labels"},
]


def report(
    checked: dict[str, Any],
    results: dict[str, list[float]],
    evaluations: list[dict[str, Any]],
    pretrainings: list[dict[str, Any]],
    prediction: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Gathers what the page shows."""
    last = evaluations[0]
    metrics = [json.loads(line) for line in (OUT / "split-1/pretrained/metrics.jsonl").read_text().splitlines()]
    losses = [name for name in metrics[0] if name.startswith("loss_")]
    curve = [
        {"label": name.removeprefix("loss_"), "x": [m["step"] for m in metrics], "y": [m[name] for m in metrics]}
        for name in losses
    ]
    summaries = {name: summarise(values) for name, values in results.items()}
    rows = [
        [ARMS[name], {"mean": s["mean"], "sd": s["sd"]}, *(round(v, 3) for v in results[name])]
        for name, s in summaries.items()
    ]
    bands = pretrainings[0]["reconstruction"]["spectrum"]
    unseen = prediction["recordings"][0]["subject"]
    sections: list[dict[str, Any]] = [
        {
            "kind": "dots",
            "title": "People never seen: rest or arithmetic?",
            "x_label": "balanced accuracy of 10-s windows",
            "chance": 0.5,
            "arms": [{"label": ARMS[name], "values": values} for name, values in results.items() if name != "chance"],
            "caption": f"One dot for each of {N_SPLITS} splits by person; {N_LABELLED} labelled people in each.",
            "note": CAVEAT,
        },
        {
            "kind": "table",
            "title": "The same as numbers",
            "columns": ["arm", "balanced accuracy", *(f"split {i + 1}" for i in range(N_SPLITS))],
            "rows": rows,
            "best": {"balanced accuracy": "max"},
        },
        {
            "kind": "confusion",
            "title": "Pretrained and fine-tuned, split 1",
            "classes": last["classes"],
            "matrix": last["model"]["confusion"],
        },
        {
            "kind": "curve",
            "title": "Pretraining, split 1",
            "x_label": "step",
            "y_label": "loss on hidden patches",
            "series": curve,
        },
        {
            "kind": "bars",
            "title": "Hidden patches rebuilt: error by frequency band, split 1",
            "unit": "squared error / that of guessing the mean",
            "groups": list(bands),
            "series": [
                {"label": guess, "values": [errors[guess] for errors in bands.values()]}
                for guess in ("model", "interpolation", "zero")
            ],
            "caption": "Log spectrum, other hidden patches of the people it was trained on. Interpolation: from the "
            "visible patches before and after, for a token here holds all electrodes.",
        },
        *(recording_section(r) for r in prediction["recordings"]),
        {
            "kind": "facts",
            "title": "Data and cost",
            "facts": {
                "Recordings": checked["totals"]["recordings"],
                "People": checked["totals"]["subjects"],
                "Minutes": round(checked["totals"]["duration_s"] / 60),
                "Parameters of the encoder and its front end": pretrainings[0]["parameters"]["encoder"]
                + pretrainings[0]["parameters"]["embedding"],
                "Pretraining, windows/s": round(float(np.mean([p["windows_per_s"] for p in pretrainings]))),
                "Overlap of the tested people with pretraining": ", ".join(overlaps(evaluations)),
                "Seconds in all": round(seconds),
            },
        },
        {
            "kind": "files",
            "title": "Where everything lies",
            "files": [
                {"path": f"{OUT.name}/store", "what": "the prepared recordings"},
                {"path": f"{OUT.name}/split-1/pretrained", "what": "a pretrained run"},
                {"path": f"{OUT.name}/split-1/finetuned", "what": "a fine-tuned run with its evaluation"},
                {"path": f"{OUT.name}/predictions", "what": f"predictions for person {unseen}"},
                {"path": f"{OUT.name}/results.json", "what": "the table as JSON"},
            ],
            "next": NEXT,
        },
    ]
    return {
        "title": "Rest or mental arithmetic, from EEG",
        "subtitle": "Pretrained without labels, fine-tuned on a few people, tested on people never seen. "
        "Data: Zyma et al. 2019 (doi:10.3390/data4010014) by way of PhysioNet (Goldberger et al. 2000), ODC-By 1.0.",
        "created": time.strftime("%Y-%m-%d %H:%M"),
        "versions": {"bothways": bothways.__version__, "python": platform.python_version()},
        "sections": sections,
    }


def overlaps(evaluations: list[dict[str, Any]]) -> list[str]:
    """Returns how the tested people are touched by what the encoders were pretrained on, each kind once."""
    return sorted({evaluation["pretraining_overlap"]["kind"] for evaluation in evaluations})


def recording_section(entry: dict[str, Any]) -> dict[str, Any]:
    """Shows one recording with its predictions and what is true of it."""
    signal = eeg.read_recording(DATA / entry["file"])
    with (OUT / "predictions" / entry["csv"]).open(newline="", encoding="utf-8") as file:
        windows = list(csv.DictReader(file))
    labels = [row for row in eeg.read_labels(DATA / "labels.csv").rows if row.file == entry["file"]]
    return {
        "kind": "recording",
        "title": f"{entry['file']}, a person never seen",
        "ch_names": signal.ch_names,
        "sfreq_hz": signal.sfreq_hz,
        "signals_uv": np.nan_to_num(signal.data_uv),
        "classes": ["rest", "task"],
        "trace": {
            "label": "probability of task",
            "times_s": [float(w["onset_s"]) + float(w["duration_s"]) / 2 for w in windows],
            "values": [float(w["p_task"]) for w in windows],
        },
        "threshold": 0.5,
        "predicted": [
            {
                "start_s": float(w["onset_s"]),
                "stop_s": float(w["onset_s"]) + float(w["duration_s"]),
                "label": w["label"],
            }
            for w in windows
        ],
        "truth": [
            {"start_s": row.onset_s, "stop_s": row.onset_s + row.duration_s, "label": row.label}
            for row in labels
            if row.onset_s is not None and row.duration_s is not None
        ],
    }


if __name__ == "__main__":
    main()
