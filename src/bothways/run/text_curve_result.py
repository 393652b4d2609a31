"""What a curve on text comes to: means over seeds, differences, and where arms cross."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bothways.evaluation import FEWEST_TRIALS, crossings, summarise
from bothways.files import read_json

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
    for name in titles:
        for file in sorted((out / "results" / name).glob("*.json")):
            one = read_json(file)
            found.setdefault(one["labels"], {}).setdefault(name, {})[one["seed"]] = one
            seconds += one["seconds"]
            said |= dict.fromkeys(f"{titles[name]}, {one['labels']:,} labels: {note}" for note in one["notes"])
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
    return result | {"said": [_said(result, one, other) for one, other in pairs]}


def _size(n: int, arms: Mapping[str, Mapping[int, Mapping[str, Any]]], measure: str) -> dict[str, Any]:
    values = {
        name: {seed: one[measure] for seed, one in seeds.items() if one[measure] is not None}
        for name, seeds in arms.items()
    }
    differences: dict[str, dict[str, Any]] = {}
    for one, other in PAIRS:
        mine, theirs = values.get(one, {}), values.get(other, {})
        if both := [mine[seed] - theirs[seed] for seed in mine if seed in theirs]:
            differences.setdefault(one, {})[other] = _summary(both)
    return {"labels": n, "arms": {name: _summary([*own.values()]) for name, own in values.items() if own},
            "differences": differences}  # fmt: skip


def _summary(values: Sequence[float]) -> dict[str, Any]:
    """Returns mean and interval; none of two values, which is wider than all that is possible."""
    found: dict[str, Any] = {**summarise(values), "values": list(values)}
    if len(values) < FEWEST_TRIALS:
        found |= {"low": None, "high": None}
    low, high = found["low"], found["high"]
    return {**found, "above": low is not None and low > 0, "below": high is not None and high < 0}


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
