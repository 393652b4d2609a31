"""The page of `bothways eeg evaluate` of a run that tells a number, or several classes at once."""

import platform
import time
from typing import Any

import numpy as np

from bothways import __version__
from bothways.run.evaluation_page import seen_before

ARMS = {
    "model": "this run",
    "training_mean": "mean of the training people",
    "training_median": "median of the training people",
    "base_rate": "share of the training people",
    "band_power": "band power + linear model",
    "frozen_probe": "frozen encoder, linear probe",
}
LEVELS = {"window": "windows", "recording": "recordings", "subject": "people"}
NUMBER = {
    "mae": "MAE", "rmse": "RMSE", "r2": "R²", "pearson": "Pearson r", "spearman": "Spearman ρ",
    "bias": "bias",
}  # fmt: skip
EACH = {"auroc": "AUROC", "auprc": "AUPRC", "precision": "precision", "recall": "recall", "f1": "F1"}


def target_page(result: dict[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of an evaluation (see `evaluate_target`)."""
    kind = result["target"]["kind"]
    sections = [*seen_before(result), *(_of_number(result) if kind == "number" else _of_several(result))]
    sections.append(
        {
            "kind": "facts",
            "title": "Data",
            "facts": {
                "Run": result["run"],
                "People": f"{result['model']['n_subjects']} of {result['part']}",
                "Windows": result["model"]["n"],
                "Recordings": len(result["recordings"]),
                "Overlap of these people with pretraining": result["pretraining_overlap"]["kind"],
            },
        }
    )
    if result["notes"]:
        sections.append({"kind": "text", "title": "Notes", "paragraphs": result["notes"]})
    what = f"A number: {result['target']['name']}" if kind == "number" else "Several classes at once"
    return {
        "title": what,
        "subtitle": "People that the run was not trained on, beside controls on the same windows.",
        "created": time.strftime("%Y-%m-%d %H:%M"),
        "versions": {"bothways": __version__, "python": platform.python_version()},
        "sections": sections,
    }


def rows(result: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Returns arm, level and metrics of all that was measured, the model last."""
    told = []
    for name, metrics in {**result["controls"], "model": result["model"]}.items():
        levels = {level: one["metrics"] for level, one in result["levels"][name].items()}
        for level, found in {"window": metrics, **levels}.items():
            if found is not None:
                told.append((ARMS[name], LEVELS[level], found))
    return told


def _of_number(result: dict[str, Any]) -> list[dict[str, Any]]:
    name = result["target"]["name"]
    known = [one for one in result["recordings"] if one["true"] is not None]
    sections: list[dict[str, Any]] = []
    if known:
        true, predicted = ([one[key] for one in known] for key in ("true", "predicted"))
        line = np.linspace(min(true), max(true), 60).tolist()
        sections.append(
            {
                "kind": "scatter",
                "title": "True and predicted, a point for each recording",
                "x_label": f"true {name}",
                "y_label": f"predicted {name}",
                "series": [
                    {"label": "this run", "x": true, "y": predicted},
                    {"label": "predicted = true", "x": line, "y": line},
                ],
                "caption": "Predicted: the mean over the recording's windows.",
            }
        )
    table = [
        [arm, level, m["n"], *(m[metric] for metric in NUMBER), span((m["intervals"] or {}).get("mae"))]
        for arm, level, m in rows(result)
    ]
    sections.append(
        {
            "kind": "table",
            "title": "How far off",
            "columns": ["", "of", "n", *NUMBER.values(), "MAE, 95 % over people"],
            "rows": table,
            "caption": f"MAE: mean absolute error; RMSE: root mean square error; bias: predicted less true; all in the "
            f"unit of {name}. R² is 0 for who always says the mean of these very people.",
        }
    )
    compared = result["comparisons"]
    sections.append(
        {
            "kind": "table",
            "title": "Person by person",
            "columns": ["this run's MAE less that of", "difference", "95 %", "people", "p"],
            "rows": [[ARMS[arm], d["mean"], span(d), d["n"], d["p"]] for arm, d in compared.items()],
            "caption": "Below 0 this run is better.",
        }
    )
    return sections


def _of_several(result: dict[str, Any]) -> list[dict[str, Any]]:
    measured = {**result["controls"], "model": result["model"]}
    return [
        {
            "kind": "table",
            "title": "Class by class, windows",
            "columns": ["class", "", "there", "of", *EACH.values()],
            "rows": [
                [name, ARMS[arm], m["labels"][name]["n_positive"], m["labels"][name]["n"]]
                + [m["labels"][name][metric] for metric in EACH]
                for name in result["classes"]
                for arm, m in measured.items()
            ],
            "caption": "A class counts as there from a probability of 0.5 on.",
        },
        {
            "kind": "table",
            "title": "All classes",
            "columns": ["", "of", "n", *(f"macro {title}" for title in EACH.values()), "all right",
                        "macro AUROC, 95 % over people"],
            "rows": [
                [arm, level, m["n"], *(m["macro"][metric] for metric in EACH), m["exact_match"],
                 span((m["intervals"] or {}).get("macro auroc"))]
                for arm, level, m in rows(result)
            ],
            "caption": "Macro: the mean over the classes that these people have; one that is never predicted has a "
            "precision of 0 in it. All right: every class of a window.",
        },
    ]  # fmt: skip


def span(values: dict[str, Any] | None) -> str:
    """Writes an interval; of none, nothing."""
    return "" if values is None or values["low"] is None else f"{values['low']:.3g} to {values['high']:.3g}"
