"""The page of `bothways eeg evaluate`: its result as tables and plots; what a result does not hold is left out."""

import platform
import time
from collections.abc import Mapping
from typing import Any

from bothways import __version__
from bothways.run.compare_page import span

TITLES = {
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "kappa": "kappa",
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "ece": "calibration error",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
}
LOWER = {"log_loss", "brier", "ece", "mae", "rmse"}
"""Metrics of which less is better."""
RATES = {
    "sensitivity": "sensitivity",
    "precision": "precision",
    "f1": "F1",
    "false_alarms_per_24h": "false alarms per 24 h",
}
LEVELS = {"recording": "per recording", "subject": "per person"}


def evaluation_page(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of an evaluation; see `evaluate`."""
    part = {"test": "People never seen", "validation": "Validation people"}.get(result["part"], result["part"])
    model = result["model"]
    sections = [
        *seen_before(result),
        *_arms(result, part),
        *_differences(result.get("comparisons") or {}),
        *_people(result.get("levels") or {}, len(result.get("classes") or ())),
        *_levels(model, (result.get("levels") or {}).get("model") or {}),
        *_classes(model),
        *_reliability(result.get("temperature"), model),
        *_events(result.get("events") or {}, result.get("event_rules") or {}, model.get("spans")),
        *_sleep(result.get("sleep")),
        _facts(result),
    ]
    if result.get("notes"):
        sections.append({"kind": "text", "title": "Notes", "paragraphs": [str(note) for note in result["notes"]]})
    return {
        "title": f"Evaluation: {result['run']}",
        "subtitle": f"{part}, and controls on the same split.",
        "created": time.strftime("%Y-%m-%d %H:%M"),
        "versions": {"bothways": __version__, "python": platform.python_version()},
        "sections": sections,
    }


def seen_before(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Warns where the weights were trained on some of the people before."""
    people = (result.get("pretraining_overlap") or {}).get("subjects")
    if not people:
        return []
    told = f"The weights were trained on {', '.join(people)} before ({result['pretraining_overlap']['kind']})."
    return [
        {"kind": "text", "title": "Not unseen", "paragraphs": [f"{told} These are not figures of people never seen."]}
    ]


def _figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of one measurement by name, those over labels as `macro auroc`; counts are left out."""
    flat = {f"{key} {name}": v for key in ("macro", "micro") for name, v in (metrics.get(key) or {}).items()}
    found = {name: value for name, value in {**metrics, **flat}.items() if isinstance(value, float)}
    return {name: found[name] for name in [*filter(found.__contains__, TITLES), *(n for n in found if n not in TITLES)]}


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def _interval(metrics: Mapping[str, Any], name: str) -> str:
    intervals = metrics.get("intervals") or {}
    return span(intervals.get(name) or intervals.get(name.replace("_", " ")) or {"low": None, "high": None})


def _arms(result: Mapping[str, Any], title: str) -> list[dict[str, Any]]:
    """Sets the run beside its controls: each metric, and the interval of the first."""
    arms = {"this run": result["model"], **(result.get("controls") or {})}
    figures = {name: _figures(metrics) for name, metrics in arms.items()}
    columns = list(figures["this run"])
    if not columns:
        return []
    first, *others = columns
    best = {_title(name): "min" if name in LOWER else "max" for name in columns if name in TITLES}
    return [
        {
            "kind": "table",
            "title": title,
            "columns": ["", _title(first), "95 % over people", *map(_title, others)],
            "rows": [
                [
                    name.replace("_", " "), found.get(first), _interval(arms[name], first),
                    *(found.get(one) for one in others),
                ]
                for name, found in figures.items()
            ],
            "best": best,
            "caption": "The interval is over people, drawn anew (bootstrap): a person's windows are alike."
            + _few(result["model"]),
        }
    ]  # fmt: skip


def _few(model: Mapping[str, Any]) -> str:
    """Says why there is no interval, or why it is too narrow."""
    undefined = model.get("undefined") or {}
    why = (model.get("interval") or {}).get("note") or undefined.get("intervals")
    return f" 95 % over people: {why}." if why else ""


def _differences(comparisons: Mapping[str, Any]) -> list[dict[str, Any]]:
    arms = comparisons.get("arms", comparisons)
    rows = [
        [name.replace("_", " "), difference, span(one), one.get("p"), one.get("p_holm"), one.get("reason") or ""]
        for name, one in arms.items()
        if (difference := one.get("difference", one.get("mean"))) is not None
    ]
    if not rows:
        return []
    columns = ["this run against", "difference", "95 % over people", "p", "p (Holm)", "why something is missing"]
    shown = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    return [
        {
            "kind": "table",
            "title": "Differences to the controls",
            "columns": columns[:shown],
            "rows": [row[:shown] for row in rows],
            "caption": f"In {_title(comparisons.get('metric', 'the first figure'))}, on the same windows; the interval "
            "by drawing people anew, p by exchanging the two arms' answers in some of the people.",
        }
    ]


def _people(levels: Mapping[str, Any], n_classes: int) -> list[dict[str, Any]]:
    """Draws each person as a dot: the balanced accuracy where each has several classes, else the accuracy."""
    within = {name: one["within_subject"] for name, one in levels.items() if "within_subject" in one}
    for metric in ("balanced_accuracy", "accuracy"):
        values = {name: one[metric]["values"] for name, one in within.items()}
        if values and all(each and None not in each.values() for each in values.values()):
            return [
                {
                    "kind": "dots",
                    "title": "Each person",
                    "x_label": f"{_title(metric)} of a person's windows",
                    "chance": 1 / n_classes if metric == "balanced_accuracy" else None,
                    "splits": list(next(iter(values.values()))),
                    "each": "person",
                    "arms": [
                        {"label": "this run" if name == "model" else name.replace("_", " "), "values": list(v.values())}
                        for name, v in values.items()
                    ],
                    "caption": "A person has the same height in every row.",
                }
            ]
    return []


def _levels(model: Mapping[str, Any], levels: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tells the run's own figures per window, recording and person, each with its interval."""
    units = {"per window": model} | {
        title: m for level, title in LEVELS.items() if (m := (levels.get(level) or {}).get("metrics")) is not None
    }
    figures = {title: _figures(metrics) for title, metrics in units.items()}
    why = [
        f"{title.capitalize()}: {one['reason']}."
        for level, title in LEVELS.items()
        if (one := levels.get(level) or {}).get("reason")
    ]
    mixed = [
        f"{title.capitalize()}: {one['n_mixed']} with several classes left out."
        for level, title in LEVELS.items()
        if (one := levels.get(level) or {}).get("n_mixed") and not one.get("reason")
    ]
    names = list(figures["per window"])
    if not names:
        return []
    return [
        {
            "kind": "table",
            "title": "This run by window, recording and person",
            "columns": ["", *(column for title in units for column in (title, f"95 %, {title}"))],
            "rows": [
                [
                    _title(name),
                    *(x for title, m in units.items() for x in (figures[title].get(name), _interval(m, name))),
                ]
                for name in names
            ],
            "caption": " ".join(["Recordings and people are told by the mean over their windows.", *why, *mixed]),
        }
    ]


def _classes(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    sections: list[dict[str, Any]] = []
    if model.get("confusion"):
        sections.append(
            {
                "kind": "confusion",
                "title": "What is taken for what",
                "classes": model["classes"],
                "matrix": model["confusion"],
                "caption": "Windows of this run; percent of the true class.",
            }
        )
    each = model.get("per_class") or model.get("labels")
    if not isinstance(each, dict) or not each:
        return sections
    columns = [name for name, value in next(iter(each.values())).items() if not isinstance(value, dict | list)]
    sections.append(
        {
            "kind": "table",
            "title": "Class by class",
            "columns": ["class", *map(_title, columns)],
            "rows": [[name, *(one.get(column) for column in columns)] for name, one in each.items()],
        }
    )
    return sections


def _reliability(temperature: Mapping[str, Any] | None, model: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Draws how sure the run is against how often it is right, with the fitted temperature where there is one."""
    told = {"as it is": (temperature or {}).get("before") or model}
    if temperature and temperature.get("after"):
        told[f"with temperature {temperature['temperature']:.2f}"] = temperature["after"]
    series = [
        {"label": label, "ece": one["calibration"]["ece"], "bins": one["calibration"]["bins"]}
        for label, one in told.items()
        if one.get("calibration")
    ]
    if not series:
        return []
    section: dict[str, Any] = {"kind": "reliability", "title": "How sure it may be", "series": series}
    if temperature and temperature.get("reason"):
        section["caption"] = f"No temperature: {temperature['reason']}."
    elif temperature:
        section["caption"] = f"The temperature is fitted on {temperature['n_subjects']} validation people."
    return [section]


def _events(
    events: Mapping[str, Any], rules: Mapping[str, float], spans: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    sections: list[dict[str, Any]] = []
    said = ", ".join(f"{name} {value:g}" for name, value in rules.items())
    if events:
        sections.append(
            {
                "kind": "table",
                "title": "Events",
                "columns": ["event", "people", "true", "found", *RATES.values()],
                "rows": [
                    [
                        name,
                        found["n_subjects"],
                        found["pooled"]["n_reference"],
                        found["pooled"]["n_found"],
                        *((found.get(rate) or {}).get("mean") for rate in RATES),
                    ]
                    for name, found in events.items()
                ],
                "caption": f"Rules: {said}. Rates are the mean of the people in whom they are defined.",
            }
        )
    if spans:
        facts = {
            "Windows with an event": spans["n"],
            "Median error of the onset, s": spans["onset_error_s"],
            "Median error of the end, s": spans["end_error_s"],
            "Mean overlap": spans["overlap"],
        }
        sections.append({"kind": "facts", "title": "Onset and end", "facts": facts})
    return sections


def _sleep(sleep: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if not sleep:
        return []
    own = sleep["kappa_subjects"]
    caption = f"Of {sleep['n']} windows {sleep['accuracy']:.1%} are right."
    if sleep["kappa"] is not None:
        caption += f" Cohen's kappa is {sleep['kappa']:.3f}"
        if own is not None:
            caption += f", by person {own['mean']:.3f}" + (f" ({span(own)})" if span(own) else "")
            caption += f" ({own['n']} people in whom it is defined)"
        caption += "."
    if sleep["unscored"]:
        caption += f" {sleep['unscored']} have no stage and are left out."
    if others := [f"{name} is {stage}" for name, stage in sleep["stage_of"].items() if name != stage]:
        caption += f" Of the classes {', '.join(others)}."
    return [
        {
            "kind": "table",
            "title": "Sleep stages",
            "columns": ["stage", "windows", "predicted", "precision", "recall", "F1"],
            "rows": [
                [name, *(one[column] for column in ("n", "n_predicted", "precision", "recall", "f1"))]
                for name, one in sleep["stages"].items()
            ],
            "caption": caption,
        },
        {
            "kind": "confusion",
            "title": "Sleep stages: what is taken for what",
            "classes": list(sleep["stages"]),
            "matrix": sleep["confusion"],
        },
    ]


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    model, overlap = result["model"], result.get("pretraining_overlap") or {}
    facts = {
        "Run": result["run"],
        "Part": result["part"],
        "What is labelled": result.get("task"),
        "People": model.get("n_subjects"),
        "Windows": ", ".join(f"{n} {name}" for name, n in (model.get("support") or {}).items()) or model.get("n"),
        "Overlap of these people with pretraining": overlap.get("kind"),
        "Recordings concerned": ", ".join(overlap.get("recordings") or ()),
    }
    shown = {name: value for name, value in facts.items() if value not in (None, "")}
    return {"kind": "facts", "title": "Data", "facts": shown}
