"""The pages of `bothways eeg curve`: each result as a plot, tables and facts."""

import platform
import time
from typing import Any

from bothways import __version__
from bothways.run.compare_page import ABOVE, overlap, span


def label_page(result: dict[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of a label curve."""
    sizes, titles = result["sizes"], result["titles"]
    series = []
    for name, title in titles.items():
        found = [row["arms"].get(name, {}).get("over_people", {}) for row in sizes]
        ends = {
            key: [one.get(which) for one in found] for key, which in (("y", "mean"), ("low", "low"), ("high", "high"))
        }
        series.append({"label": title, "x": list(range(len(sizes))), **ends})
    pairs = [
        (str(row["people"]), titles[arm], titles[control], d)
        for row in sizes
        for arm, those in row["differences"].items()
        for control, d in those.items()
    ]
    sections: list[dict[str, Any]] = [
        {
            "kind": "curve",
            "title": "People never seen",
            "x_label": "labelled people",
            "y_label": "balanced accuracy, mean over people",
            "x_names": [str(row["people"]) for row in sizes],
            "chance": 1 / len(result["classes"]),
            "series": series,
            "caption": f"Mean over people, each by the mean over {result['seeds']} trials (split and seed), and its "
            "95 % interval (Student's t); classes weigh the same. The line: chance.",
        },
        {
            "kind": "table",
            "title": "Arms",
            "columns": [
                "people", "arm", "over trials", "trials", "95 % of trials", "mean over people", "95 % of people",
            ],
            "rows": [
                [
                    str(row["people"]), arm["title"], arm["over_trials"]["mean"], arm["over_trials"]["n"] or 0,
                    span(arm["over_trials"]),
                    arm["over_people"]["mean"], span(arm["over_people"]),
                ]
                for row in sizes
                for arm in row["arms"].values()
            ],
            "caption": "Balanced accuracy. Trials: what the seed does not change counts once for each split; they "
            "share people, so their interval, told from three on, is too narrow.",
        },
    ]  # fmt: skip
    if pairs:
        columns = ("difference", "95 % of people", "95 % of trials", "above", "better for", "tested people", "p")
        sections.append(
            {
                "kind": "table",
                "title": "Differences",
                "columns": ["people", "arm", "against", *columns],
                "rows": [
                    [
                        n, arm, control, d["mean"], span(d), span(d["over_trials"]), "yes" if d["above"] else "no",
                        d["wins"], d["n"], d["p"],
                    ]
                    for n, arm, control, d in pairs
                ],
                "caption": f"Balanced accuracy, person by person. {ABOVE}",
            }
        )  # fmt: skip
        sections.append({"kind": "text", "title": "From where on", "paragraphs": result["said"]})
    facts = {
        "Classes": ", ".join(result["classes"]),
        "Trials": result["seeds"],
        "Overlap of tested people with pretraining": overlap(result),
        "Seconds in all": round(result["seconds"]),
    }
    sections.append({"kind": "facts", "title": "Data and cost", "facts": facts})
    return curve_page("How many labelled people", "The same tested people at every number.", sections, result["notes"])


def said_above(result: dict[str, Any]) -> list[str]:
    """Says from which number of people on an arm is above a control, for each pair."""
    titles = result["titles"]
    return [
        f"{titles[arm]} is above {titles[control]} "
        + (f"from {n} labelled people on" if n is not None else "from no number of labelled people on")
        for arm, those in result["above_from"].items()
        for control, n in those.items()
    ]


def curve_page(title: str, subtitle: str, sections: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Returns a page of these sections, with its notes."""
    if notes:
        sections = [*sections, {"kind": "text", "title": "Notes", "paragraphs": notes}]
    return {
        "title": title,
        "subtitle": subtitle,
        "created": time.strftime("%Y-%m-%d %H:%M"),
        "versions": {"bothways": __version__, "python": platform.python_version()},
        "sections": sections,
    }


def channel_page(result: dict[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of a channel curve."""
    rows = result["montages"]
    over = [row["over_people"] for row in rows]
    names = [row["name"] for row in rows]
    at = [i for i, name in enumerate(names) if name != "bipolar"]
    groups = {"channels kept": at, "a montage never seen": [i for i in range(len(rows)) if i not in at]}
    sections: list[dict[str, Any]] = [
        {
            "kind": "curve",
            "title": "People never seen" if result["part"] == "test" else "Validation people",
            "x_label": "channels",
            "y_label": "balanced accuracy, mean over people",
            "x_names": [f"all {row['n_channels']}" if row["name"] == "all" else row["name"] for row in rows],
            "chance": 1 / len(result["classes"]),
            "series": [
                {
                    "label": label, "x": places, "y": [over[i]["mean"] for i in places],
                    "low": [over[i]["low"] for i in places], "high": [over[i]["high"] for i in places],
                }
                for label, places in groups.items()
                if places
            ],
            "caption": "Mean over people and its 95 % interval (Student's t); classes weigh the same. The line: "
            "chance. Nothing was trained again.",
        },
        {
            "kind": "table",
            "title": "Montages",
            "columns": [
                "montage", "channels", "of windows", "mean over people", "95 % of people", "difference to all", "95 %",
            ],
            "rows": [
                [
                    row["name"], ", ".join(row["ch_names"]), row["balanced_accuracy"], row["over_people"]["mean"],
                    span(row["over_people"]), *(("", "") if d is None else (d["mean"], span(d))),
                ]
                for row in rows
                for d in [row["difference_to_all"]]
            ],
            "caption": "Balanced accuracy of the same windows.",
        },
    ]  # fmt: skip
    notes = [*result["notes"], *(f"not {name}: {why}" for name, why in result["refused"].items())]
    return curve_page("Fewer channels", f"{result['run']}, without training again.", sections, notes)
