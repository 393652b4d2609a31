"""The page of `bothways text curve`: its result as a plot, tables and facts."""

from typing import Any

from bothways.run.compare_page import span
from bothways.run.curve_page import curve_page
from bothways.run.text_curve_result import MEASURES


def text_curve_page(result: dict[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of a curve on text."""
    sizes, titles, measure = result["sizes"], result["titles"], MEASURES[result["measure"]]
    series = []
    for name, title in titles.items():
        at = [i for i, row in enumerate(sizes) if name in row["arms"]]
        ends = {
            key: [sizes[i]["arms"][name][which] for i in at]
            for key, which in (("y", "mean"), ("low", "low"), ("high", "high"))
        }
        series.append({"label": title, "x": [sizes[i]["labels"] for i in at], **ends})
    pairs = [
        (f"{row['labels']:,}", titles[arm], titles[other], d)
        for row in sizes
        for arm, those in row["differences"].items()
        for other, d in those.items()
    ]
    sections: list[dict[str, Any]] = [
        {
            "kind": "curve",
            "title": "Texts never seen",
            "x_label": "labelled texts",
            "y_label": f"{measure}, mean over seeds",
            "log_x": True,
            "chance": 1 / len(result["classes"]) if result["measure"] == "balanced_accuracy" else None,
            "series": series,
            "caption": f"Mean over seeds (which texts are labelled, order, first weights) and its 95 % interval "
            f"(Student's t), on {result['n_tested']:,} texts.",
        },
        {
            "kind": "table",
            "title": "Arms",
            "columns": ["labels", "arm", measure, "95 %", "SD", "seeds", "labels that chose"],
            "rows": [
                [
                    f"{row['labels']:,}",
                    titles[name],
                    arm["mean"],
                    span(arm),
                    "" if arm["sd"] is None else arm["sd"],
                    arm["n"],
                    arm["chosen_by"],
                ]
                for row in sizes
                for name, arm in row["arms"].items()
            ],
            "caption": "The intervals know the luck of seeds; of tested texts only where each seed draws others. "
            "Labels that chose C, a rate or a step are among those counted.",
        },
    ]
    if pairs:
        sections.append(
            {
                "kind": "table",
                "title": "Differences",
                "columns": ["labels", "arm", "against", "difference", "95 %", "seeds"],
                "rows": [[n, arm, other, d["mean"], span(d), d["n"]] for n, arm, other, d in pairs],
                "caption": f"Of {measure}, seed by seed: both arms have the same labels and texts.",
            }
        )
        sections.append({"kind": "text", "title": "Where they cross", "paragraphs": result["said"]})
    facts = {
        "Classes": ", ".join(result["classes"]),
        "Tested texts": result["n_tested"],
        "Seconds in all": round(result["seconds"]),
    }
    sections.append({"kind": "facts", "title": "Data and cost", "facts": facts})
    return curve_page("How many labelled texts", "The same texts for every arm.", sections, result["notes"])
