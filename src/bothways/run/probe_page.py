"""The page of `bothways eeg probe`: each question, its answer in a plot and in words."""

import platform
import time
from collections.abc import Mapping
from typing import Any

from bothways import __version__
from bothways.run.compare_page import span


def probe_page(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of what a run was asked; see `probe`."""
    sections = [
        *(_identity(result["identity"]) if result["identity"] else []),
        *(_shuffled(result["shuffled"]) if result["shuffled"] else []),
        *(_amplitude(result["amplitude"]) if result["amplitude"] else []),
    ]
    if result["notes"]:
        sections.append({"kind": "text", "title": "Notes", "paragraphs": result["notes"]})
    return {
        "title": f"Probes: {result['run']}",
        "subtitle": "What a result should be asked before it is believed.",
        "created": time.strftime("%Y-%m-%d %H:%M"),
        "versions": {"bothways": __version__, "python": platform.python_version()},
        "sections": sections,
    }


def _identity(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    above, chance = one["above_chance"], one["chance"]
    ends = {key: [None if above[key] is None else chance + above[key]] for key in ("low", "high")}
    return [
        {
            "kind": "curve",
            "title": "Whom it recognises",
            "x_label": "a linear probe on the frozen embedding",
            "y_label": "windows told whose they are",
            "x_names": [f"{one['people']} people"],
            "chance": chance,
            "series": [{"label": "mean over people", "x": [0], "y": [one["accuracy"]], **ends}],
            "caption": f"It learns whose the first half of each recording is and is asked about the second: "
            f"{one['accuracy']:.1%} of {one['n']} windows, by chance {chance:.1%}; p {above['p']:.3g}. The more it "
            "knows, the more a split that is not by person flatters. The line: chance.",
        }
    ]


def _shuffled(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    over = one["over_shuffles"]
    verdict = (
        "Its interval holds chance, as it must."
        if one["at_chance"]
        else "Its interval does not hold chance: the tested people are known from elsewhere, or it is luck."
    )
    return [
        {
            "kind": "curve",
            "title": "Labels dealt anew",
            "x_label": f"{one['steps']} steps of training each",
            "y_label": "balanced accuracy, people never seen",
            "x_names": ["shuffled", "as labelled"],
            "chance": one["chance"],
            "series": [
                {
                    "label": f"mean of {over['n']} deals",
                    "x": [0],
                    "y": [over["mean"]],
                    "low": [over["low"]],
                    "high": [over["high"]],
                },
                {"label": "true labels", "x": [1], "y": [one["as_labelled"]]},
            ],
            "caption": f"Shuffled {over['mean']:.3f} ({span(over)}), as labelled {one['as_labelled']:.3f}, chance "
            f"{one['chance']:.3f}. {verdict}",
        }
    ]


def _amplitude(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table = {
        "kind": "table",
        "title": "Amplitudes of another unit",
        "columns": [
            "amplitude", "answers that change", "balanced accuracy", "as it is", "suspected", "refused", "recordings",
            "said",
        ],
        "rows": [
            [
                row["what"], f"{row['changed']:.0%}", row["balanced_accuracy"], row["as_it_is"], row["suspected"],
                row["refused"], row["recordings"], row["said"],
            ]
            for row in rows
        ],
        "caption": "Suspected and refused: how many of the recordings `check` and `prepare` would doubt, or not take.",
    }  # fmt: skip
    values = {
        label: [row[key] for row in rows] for label, key in (("as it is", "as_it_is"), ("then", "balanced_accuracy"))
    }
    if all(value is None for line in values.values() for value in line):
        return [table]
    bars = {
        "kind": "bars",
        "title": "If a unit were mistaken",
        "unit": "balanced accuracy",
        "groups": [row["what"] for row in rows],
        "series": [{"label": label, "values": line} for label, line in values.items()],
        "caption": "Of the tested people.",
    }
    return [bars, table]
