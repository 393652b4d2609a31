"""What a curve on text comes to: means over seeds, differences, and where arms cross."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bothways.evaluation import FEWEST_TRIALS, above_from, crossings, summarise
from bothways.files import read_json

MEASURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
}
PAIRS = (
    ("full", "frozen"),
    ("full", "scratch"),
    ("full", "tfidf"),
    ("frozen", "tfidf"),
    ("frozen", "frozen_cls"),
    ("frozen_last_four", "frozen"),
    ("full_mean", "full"),
)
"""Arms whose difference is told, where both are there."""


def curve_result(
    out: Path, titles: Mapping[str, str], classes: Sequence[str], measure: str, notes: Sequence[str]
) -> dict[str, Any]:
    """Reads all that is finished and puts it side by side; see `text_curve`."""
    found: dict[int, dict[str, dict[int, dict[str, Any]]]] = {}
    seconds, said = 0.0, dict.fromkeys(notes)
    repeated: dict[str, list[str]] = {}
    for name in titles:
        for file in sorted((out / "results" / name).glob("*.json")):
            one = read_json(file)
            found.setdefault(one["labels"], {}).setdefault(name, {})[one["seed"]] = one
            seconds += one["seconds"]
            for note in one["notes"]:
                repeated.setdefault(re.sub(r"\d[\d,.]*", "…", note), []).append(note)
    for alike in repeated.values():
        more = f" (and {len(alike) - 1} more results have a note of this kind)" if len(alike) > 1 else ""
        said[f"{alike[0]}{more}"] = None
    sizes = [_size(n, found[n], measure) for n in sorted(found)]
    there = [name for name in titles if any(name in row["arms"] for row in sizes)]
    pairs = [(one, other) for one, other in PAIRS if one in there and other in there]
    uneven = {name: {arm["n"] for row in sizes if (arm := row["arms"].get(name))} for name in there}
    if len(set().union(*uneven.values())) > 1:
        counted = ", ".join(f"{titles[name]} {'/'.join(map(str, sorted(n)))}" for name, n in uneven.items())
        said[f"not as many seeds everywhere: {counted}"] = None
    result: dict[str, Any] = {
        "out": str(out),
        "classes": list(classes),
        "measure": measure,
        "labels": [row["labels"] for row in sizes],
        "sizes": sizes,
        "crossings": {},
        "above_from": {},
        "titles": {name: titles[name] for name in there},
        "notes": list(said),
        "seconds": seconds,
    }
    for one, other in pairs:
        means = {
            row["labels"]: row["differences"][one][other]["mean"]
            for row in sizes
            if other in row["differences"].get(one, {})
        }
        result["crossings"].setdefault(one, {})[other] = crossings(means)
        those = {row["labels"]: row["differences"].get(one, {}).get(other) for row in sizes}
        result["above_from"].setdefault(one, {})[other] = above_from(those)
    return result | {"said": [_said(result, one, other) for one, other in pairs]}


def _size(n: int, arms: Mapping[str, Mapping[int, Mapping[str, Any]]], measure: str) -> dict[str, Any]:
    def values(name: str, key: str) -> dict[int, float]:
        return {seed: one[key] for seed, one in arms.get(name, {}).items() if one[key] is not None}

    told: dict[str, Any] = {}
    for name, seeds in arms.items():
        every = {key: _within_0_1(_summary([*own.values()])) for key in MEASURES if (own := values(name, key))}
        if measure in every:
            chosen_by = max(one["chosen_by"] for one in seeds.values())
            told[name] = {**every[measure], "chosen_by": chosen_by, "measures": every}
    differences: dict[str, dict[str, Any]] = {}
    for one, other in PAIRS:
        mine, theirs = values(one, measure), values(other, measure)
        if both := [mine[seed] - theirs[seed] for seed in mine if seed in theirs]:
            found = _summary(both)
            low, high = found["low"], found["high"]
            apart = {"above": low is not None and low > 0, "below": high is not None and high < 0}
            differences.setdefault(one, {})[other] = {**found, **apart}
    return {"labels": n, "arms": told, "differences": differences}


def _summary(values: Sequence[float]) -> dict[str, Any]:
    """Returns mean and interval; none of two values, of which it is wider than all that is possible."""
    found: dict[str, Any] = {**summarise(values), "values": list(values)}
    return found if len(values) >= FEWEST_TRIALS else {**found, "low": None, "high": None}


def _within_0_1(found: dict[str, Any]) -> dict[str, Any]:
    if found["low"] is None:
        return found
    return {**found, "low": max(found["low"], 0.0), "high": min(found["high"], 1.0)}


def _said(result: Mapping[str, Any], one: str, other: str) -> str:
    """Says of two arms which is ahead where, and where they cross."""
    first, second = result["titles"][one], result["titles"][other]
    rows = [(row["labels"], d) for row in result["sizes"] if (d := row["differences"].get(one, {}).get(other))]
    if not rows:
        return f"{first} and {second}: not with the same labels"
    ahead = [f"{n:,}" for n, d in rows if d["above"]]
    behind = [f"{n:,}" for n, d in rows if d["below"]]
    sure = (
        "; by the interval over seeds "
        + " and ".join(
            part
            for part in (
                f"ahead with {', '.join(ahead)}" if ahead else "",
                f"behind with {', '.join(behind)}" if behind else "",
            )
            if part
        )
        if ahead or behind
        else "; by the interval over seeds nowhere apart"
    )
    where = result["crossings"][one][other]
    if not where:
        word = "ahead" if rows[-1][1]["mean"] > 0 else "behind" if rows[-1][1]["mean"] < 0 else "level"
        span = f"{rows[0][0]:,}" if len(rows) == 1 else f"{rows[0][0]:,} to {rows[-1][0]:,}"
        return f"{first} against {second}: {word} in the mean with {span} labels, no crossover{sure}"
    word = "ahead" if rows[-1][1]["mean"] > 0 else "behind"
    at = ", ".join(f"{n:,.0f}" for n in where)
    return f"{first} against {second}: the means cross at about {at} labels, {word} beyond{sure}"
