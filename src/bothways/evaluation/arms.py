"""Several arms measured on the same splits and seeds, put side by side: means, intervals, paired differences."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import holm, mean_of_classes, paired_difference, summarise

FEWEST_TRIALS = 3
"""Trials from which on their interval is told."""
Trials = Mapping[str, Mapping[str, Any]]
"""Name of a trial (a split and a seed) -> what an arm gave in it: `balanced_accuracy` (None = undefined), `people`: see
`people_recalls`, and where one fit stands for several trials its `fit`: a name by which it counts once."""


def people_recalls(
    labels: Int[np.ndarray, "n"], scores: Float[np.ndarray, "n k"], subjects: Names, classes: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns the recall of each class in the windows of each subject: name -> class, of those they have -> recall."""
    right = scores.argmax(1) == labels
    names, owner = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    return {
        str(name): {classes[c]: float(right[own & (labels == c)].mean()) for c in np.unique(labels[own])}
        for index, name in enumerate(names)
        for own in [owner == index]
    }


def side_by_side(
    arms: Mapping[str, Trials], controls: Collection[str], trivial: Collection[str] = ()
) -> dict[str, Any]:
    """Puts arms side by side.

    Over people, classes weigh the same, as in the balanced accuracy of windows: what counts is the mean over classes of
    the mean over the people who have it. Where everybody has every class that is the mean of their balanced accuracies.

    Args:
        arms: name -> its trials; an arm may lack some.
        controls: which of them a pretrained encoder has to beat.
        trivial: which of these need no signal (chance, the largest class).

    Returns:
        `arms`: name -> `trials` (name -> balanced accuracy), `over_trials` (their mean, SD, n and 95 %
        interval within 0 to 1, of those that are defined; a fit that stands for several counts once, and below three
        there is no interval), `people` (name -> mean recall of their classes, over the trials in which the person is
        tested), `over_people` (`statistics.mean_of_classes` of the people's recalls, within 0 to 1; `n_of_class`: how
        many people have each; all but the numbers of people is None where there is one class only);
        `strongest_control`: the control with the largest mean over people; `differences`: each arm that is no control
        -> control -> `paired_difference` to it over people, in the trials that both have and that have two classes,
        with `over_trials` (the same of the differences by trial, without bounds: people tested in one trial share one
        trained model, whose luck the interval over people does not know), `above` (see `is_above`) and `p_holm` (for as
        many controls as there are, but for the trivial ones, of which it is None); `every_control`: each arm that is no
        control ->
        `p` of the claim that it is above all of them (intersection and union: the largest `p`), and whether it is
        `above` all; None without a difference.
    """
    told: dict[str, Any] = {}
    for name, trials in arms.items():
        values = {trial: entry["balanced_accuracy"] for trial, entry in trials.items()}
        people = _people(trials, list(trials))
        told[name] = {
            "trials": values,
            "over_trials": _within_0_1(_over_trials([trials], values)),
            "people": {person: float(np.mean(list(own.values()))) for person, own in people.items()},
            "over_people": _over_people(people),
        }
    known = [name for name in arms if name in controls and arms[name]]
    measured = [name for name in known if told[name]["over_people"]["mean"] is not None]
    strongest = max(measured, key=lambda name: told[name]["over_people"]["mean"], default=None)
    differences: dict[str, dict[str, Any]] = {name: {} for name in arms if name not in controls}
    for name, against in differences.items():
        for control in known:
            both = [trial for trial in arms[name] if trial in arms[control]]
            mine, theirs = (_table(_people(arms[one], both)) for one in (name, control))
            if mine.shape[1] > 1:
                found: dict[str, Any] = dict(paired_difference(mine, theirs))
                pairs = {t: [arms[one][t]["balanced_accuracy"] for one in (name, control)] for t in both}
                apart = {t: None if a is None or b is None else a - b for t, (a, b) in pairs.items()}
                found["over_trials"] = _over_trials([arms[name], arms[control]], apart)
                against[control] = found | {"above": is_above(found), "p_holm": None}
        tested = [control for control in against if control not in trivial]
        for control, p in zip(tested, holm([against[control]["p"] for control in tested])):
            against[control]["p_holm"] = p
    every = {
        name: {"p": max(d["p"] for d in those.values()), "above": all(d["above"] for d in those.values())}
        if those
        else None
        for name, those in differences.items()
    }
    return {"arms": told, "strongest_control": strongest, "differences": differences, "every_control": every}


def _people(trials: Trials, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Each person's recall of each class, the mean over the trials of these names."""
    of: dict[str, dict[str, list[float]]] = {}
    for name in names:
        for person, recalls in trials[name]["people"].items():
            for label, recall in recalls.items():
                of.setdefault(person, {}).setdefault(label, []).append(recall)
    return {person: {label: float(np.mean(r)) for label, r in of[person].items()} for person in sorted(of)}


def _table(people: Mapping[str, Mapping[str, float]]) -> Float[np.ndarray, "n k"]:
    """Recalls of people by class; NaN = they have no window of it."""
    classes = sorted({label for own in people.values() for label in own})
    rows = [[own.get(label, np.nan) for label in classes] for own in people.values()]
    return np.array(rows, dtype=float).reshape(len(people), len(classes))


def _over_people(people: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    of_class = Counter(label for own in people.values() for label in own)
    if len(of_class) < 2:  # a constant would be perfect
        found: dict[str, Any] = dict.fromkeys(("mean", "sd", "n", "low", "high")) | {"n": len(people)}
    else:
        found = mean_of_classes(_table(people))
    return {**_within_0_1(found), "n_of_class": {label: of_class[label] for label in sorted(of_class)}}


def _within_0_1(found: dict[str, Any]) -> dict[str, Any]:
    """An interval knows no bounds, a recall does."""
    if found["low"] is None:
        return found
    return found | {"low": max(found["low"], 0.0), "high": min(found["high"], 1.0)}


def _over_trials(arms: Sequence[Trials], values: Mapping[str, float | None]) -> dict[str, Any]:
    """Summarises a value of each trial, of one arm or of two together; trials with the same fits are one value."""
    own = {tuple(arm[trial].get("fit", trial) for arm in arms): value for trial, value in values.items()}
    known = [value for value in own.values() if value is not None]
    if not known:
        return dict.fromkeys(("mean", "sd", "n", "low", "high"))
    # Of two values Student's t is 13 times their spread: wider than all that is possible.
    return summarise(known) | (dict.fromkeys(("low", "high")) if len(known) < FEWEST_TRIALS else {})


def is_above(difference: Mapping[str, Any]) -> bool:
    """Says whether a difference (see `side_by_side`) lies above 0.

    Its 95 % interval over people does and, where there are three trials or more, that over trials too.
    """
    trials, low = difference["over_trials"], difference["low"]
    return low is not None and low > 0 and (trials["low"] is None or trials["low"] > 0)


def above_from(differences: Mapping[int, Mapping[str, Any] | None]) -> int | None:
    """Returns the smallest size from which on one arm is above another: at it and at all larger ones.

    Args:
        differences: size -> the arms' difference, as `side_by_side` has it. None = not known, which is not above.
    """
    found = None
    for size in sorted(differences, reverse=True):
        if not (differences[size] or {}).get("above"):
            break
        found = size
    return found


def crossings(differences: Mapping[int, float]) -> list[float]:
    """Returns the sizes at which a difference changes its sign, on a straight line over the logarithm of size.

    Args:
        differences: size -> the mean difference of two arms.
    """
    found: list[float] = []
    before: tuple[int, float] | None = None
    level: int | None = None  # the first size since then at which there is no difference
    for size in sorted(differences):
        value = differences[size]
        if not value:
            level = level or size
            continue
        if before is not None and (value > 0) != (before[1] > 0):
            share = before[1] / (before[1] - value)
            found.append(float(level or before[0] * (size / before[0]) ** share))
        before, level = (size, value), None
    return found
