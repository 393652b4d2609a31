"""Several arms measured on the same splits and seeds, put side by side: means, intervals, paired differences."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import paired_difference, summarise

Trials = Mapping[str, Mapping[str, Any]]
"""Name of a trial (a split and a seed) -> what an arm gave in it: `balanced_accuracy` (None = undefined), `people`."""


def people_scores(labels: Int[np.ndarray, "n"], scores: Float[np.ndarray, "n k"], subjects: Names) -> dict[str, float]:
    """Returns each subject's balanced accuracy: the mean recall of the classes that the subject has."""
    right = scores.argmax(1) == labels
    names, owner = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    return {
        str(name): float(np.mean([right[own & (labels == c)].mean() for c in np.unique(labels[own])]))
        for index, name in enumerate(names)
        for own in [owner == index]
    }


def side_by_side(arms: Mapping[str, Trials], controls: Collection[str]) -> dict[str, Any]:
    """Puts arms side by side.

    Args:
        arms: name -> its trials; an arm may lack some.
        controls: which of them a pretrained encoder has to beat.

    Returns:
        `arms`: name -> `trials` (name -> balanced accuracy), `over_trials` (their mean, SD and 95 % interval),
        `people` (name -> mean over the trials in which the person is tested), `over_people` (mean, SD and n of these,
        the interval by drawing people anew); `strongest_control`: the control with the largest mean over people;
        `differences`: each arm that is no control -> control -> `paired_difference` to it over people, in the trials
        that both have.
    """
    told: dict[str, Any] = {}
    for name, trials in arms.items():
        values = {trial: entry["balanced_accuracy"] for trial, entry in trials.items()}
        people = _people(trials, list(trials))
        told[name] = {
            "trials": values,
            "over_trials": _summary([value for value in values.values() if value is not None]),
            "people": people,
            "over_people": _over_people(list(people.values())),
        }
    known = [name for name in arms if name in controls and arms[name]]
    strongest = max(known, key=lambda name: told[name]["over_people"]["mean"], default=None)
    differences: dict[str, dict[str, Any]] = {name: {} for name in arms if name not in controls}
    for name, against in differences.items():
        for control in known:
            if both := [trial for trial in arms[name] if trial in arms[control]]:
                mine, theirs = _people(arms[name], both), _people(arms[control], both)
                against[control] = paired_difference(list(mine.values()), [theirs[person] for person in mine])
    return {"arms": told, "strongest_control": strongest, "differences": differences}


def _people(trials: Trials, names: Sequence[str]) -> dict[str, float]:
    """Each person's mean over the trials of these names."""
    of: dict[str, list[float]] = {}
    for name in names:
        for person, value in trials[name]["people"].items():
            of.setdefault(person, []).append(value)
    return {person: float(np.mean(of[person])) for person in sorted(of)}


def _over_people(values: Sequence[float]) -> dict[str, float | int | None]:
    """Summarises one value for each person; the interval is the bootstrap's, which leaves no range of 0 to 1."""
    from_0 = paired_difference(values, [0.0] * len(values))
    return {key: from_0[key] for key in ("mean", "sd", "n", "low", "high")}


def _summary(values: Sequence[float]) -> dict[str, float | int | None]:
    return summarise(values) if values else dict.fromkeys(("mean", "sd", "n", "low", "high"))


def above_from(differences: Mapping[int, Mapping[str, Any] | None]) -> int | None:
    """Returns the smallest size from which on one arm is above another: at it and at all larger ones.

    Args:
        differences: size -> `paired_difference` of the arms; above = its 95 % interval lies above 0. None = not known,
            which is not above.
    """
    found = None
    for size in sorted(differences, reverse=True):
        low = (differences[size] or {}).get("low")
        if low is None or low <= 0:
            break
        found = size
    return found
