"""The page of `bothways eeg compare`: its result as a plot, tables and facts."""

import platform
import time
from typing import Any

from bothways import __version__

ABOVE = (
    "The people of a trial share one trained model, whose luck the interval over people does not know: above means "
    "that it and, with three trials or more, the interval of the trials' own differences lie above 0 (Student's t)."
)


def page(result: dict[str, Any]) -> dict[str, Any]:
    """Returns what `report.write_report` draws of a comparison."""
    arms, strongest = result["arms"], result["strongest_control"]
    shown = {name: [v for v in arm["trials"].values() if v is not None] for name, arm in arms.items()}
    names = [trial["name"] for trial in result["trials"]]
    whole = {name: values for name, values in shown.items() if len(values) == len(names)}
    sections: list[dict[str, Any]] = []
    if len(whole) > ("chance" in whole):
        sections.append(
            {
                "kind": "dots",
                "title": "People never seen",
                "x_label": "balanced accuracy of windows",
                "chance": 1 / len(result["classes"]),
                "splits": names,
                "arms": [{"label": arms[name]["title"], "values": v} for name, v in whole.items() if name != "chance"],
                "caption": f"One dot for each of {len(names)} trials; a trial is a split and a seed."
                + (" Arms that lack a trial are in the table alone." if len(whole) < len(shown) else ""),
            }
        )
    sections.append(
        {
            "kind": "table",
            "title": "Arms",
            "columns": [
                "arm", "over trials", "trials", "95 % of trials", "mean over people", "95 % of people",
                "fitted parameters", "encoder's parameters",
            ],
            "rows": [
                [
                    arm["title"], arm["over_trials"]["mean"], arm["over_trials"]["n"] or 0,
                    span(arm["over_trials"]), arm["over_people"]["mean"], span(arm["over_people"]), arm["trained"],
                    arm["encoder"],
                ]
                for arm in arms.values()
            ],
            "best": {"over trials": "max", "mean over people": "max"},
            "caption": "Balanced accuracy. Over trials: of those in which it is defined; what the seed does not change "
            "counts once for each split; they share people, so the interval, told from three on, is too narrow. "
            "Over people: classes weigh the same, the recall of each is that of the people who "
            "have it, each by the mean over the trials; the interval is Student's t.",
        }
    )  # fmt: skip
    rows = [(arm, control, d) for arm, those in result["differences"].items() for control, d in those.items()]
    if rows:
        columns = ("difference", "95 % of people", "95 % of trials", "above", "better for", "people", "p", "p, Holm")
        sections.append(
            {
                "kind": "table",
                "title": "Differences to the controls",
                "columns": ["arm", "control", *columns],
                "rows": [
                    [
                        arms[arm]["title"], arms[control]["title"], d["mean"], span(d), span(d["over_trials"]),
                        "yes" if d["above"] else "no", d["wins"], d["n"], d["p"], d["p_holm"],
                    ]
                    for arm, control, d in rows
                ],
                "caption": f"Balanced accuracy, person by person. {ABOVE} p by changing the signs of their "
                "differences; by Holm's method for all controls of an arm but those that need no signal. "
                f"{every(result)} The strongest control on these people: {arms[strongest]['title']}.",
            }
        )  # fmt: skip
    sections += [
        {
            "kind": "table",
            "title": "What each arm was given",
            "columns": ["arm", "given"],
            "rows": [[arm["title"], arm["given"]] for arm in arms.values()],
        },
        {
            "kind": "facts",
            "title": "Data and cost",
            "facts": {
                "Classes": ", ".join(result["classes"]),
                "Trials": len(names),
                "Splits": result["splits"],
                "People tested": len(next(iter(arms.values()))["people"]),
                "Overlap of tested people with pretraining": overlap(result),
                "Seconds in all": round(result["seconds"]),
            },
        },
    ]
    if result["notes"]:
        sections.append({"kind": "text", "title": "Notes", "paragraphs": result["notes"]})
    return {
        "title": "A pretrained encoder beside its controls",
        "subtitle": "The same people, seeds and budget for every arm.",
        "created": time.strftime("%Y-%m-%d %H:%M"),
        "versions": {"bothways": __version__, "python": platform.python_version()},
        "sections": sections,
    }


def every(result: dict[str, Any]) -> str:
    """Says of each arm whether it is above every control."""
    return " ".join(
        f"{result['arms'][name]['title']}: {'above' if one['above'] else 'not above'} every control (p {one['p']:.3g})."
        for name, one in result["every_control"].items()
        if one is not None
    )


def span(values: dict[str, Any]) -> str:
    """Writes an interval."""
    return "" if values["low"] is None else f"{values['low']:.3f} to {values['high']:.3f}"


def overlap(result: dict[str, Any]) -> str:
    """Says how pretraining touches the tested people, in all splits."""
    kinds: dict[str, list[str]] = {}
    for one in result["pretraining_overlap"]:
        kinds.setdefault(one["kind"], []).append(str(one["split"]))
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind} (split {', '.join(splits)})" for kind, splits in kinds.items())
