"""Is one arm better than others on the same windows, or is it the draw of people? Paired, subject by subject."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.draws import generator
from bothways.evaluation.splits import Names
from bothways.evaluation.statistics import EXACT_UP_TO, as_large, holm, sign_changes
from bothways.evaluation.tally import METRICS, Tally, interval_of, resamples, too_few


def compare_arms(
    labels: Int[np.ndarray, "n"],
    arms: Mapping[str, Float[np.ndarray, "n k"]],
    subjects: Names,
    *,
    reference: str,
    metric: str = "balanced_accuracy",
    seed: int = 0,
    n_bootstrap: int = 2000,
    n_permutations: int = 2000,
) -> dict[str, Any]:
    """Compares one arm with each of the others on the same windows.

    Args:
        labels: true class of each window, 0 to k - 1.
        arms: name -> score of each class.
        subjects: whose window it is.
        reference: the arm that the others are compared with.
        metric: of `METRICS`.
        seed: draws of the bootstrap and the permutation.
        n_bootstrap: resamples of the subjects, the same for both arms.
        n_permutations: exchanges that are drawn where not all are tried.

    Returns:
        `metric`, `reference`, `n_subjects`, and `arms`: name -> `difference` (reference - arm; of `log_loss`, `brier`
        and `ece` below 0 is better), `low` and `high` (95 % interval, subjects drawn anew; below five there is none,
        below ten it has a `note`), `p` (two-sided: how often a difference as large comes about when the two arms'
        answers are exchanged in some of the subjects; all exchanges up to 14 subjects), `p_holm` (for as many arms as
        there are, Holm 1979), `reason` (why something is None; else None). With one subject there is neither interval
        nor test, with five no p below 2 / 2^5.

    Raises:
        ValueError: an unknown reference or metric, or arrays that do not fit together.
    """
    if reference not in arms or metric not in METRICS:
        raise ValueError(f"expected a reference of {', '.join(arms)} and a metric of {', '.join(METRICS)}")
    if any(len(scores) != len(labels) for scores in arms.values()) or len(subjects) != len(labels):
        raise ValueError(f"expected {len(labels)} scores in each arm and as many subjects")
    names, owner = np.unique(subjects, return_inverse=True)
    others = {
        name: _against(labels, arms[reference], scores, owner, len(names), metric, seed, n_bootstrap, n_permutations)
        for name, scores in arms.items()
        if name != reference
    }
    tested = [name for name, one in others.items() if one["p"] is not None]
    for name, adjusted in zip(tested, holm([others[name]["p"] for name in tested])):
        others[name]["p_holm"] = adjusted
    return {"metric": metric, "reference": reference, "n_subjects": len(names), "arms": others}


def _against(
    labels: Int[np.ndarray, "n"],
    ours: Float[np.ndarray, "n k"],
    theirs: Float[np.ndarray, "n k"],
    owner: Int[np.ndarray, "n"],
    n_subjects: int,
    metric: str,
    seed: int,
    n_bootstrap: int,
    n_permutations: int,
) -> dict[str, Any]:
    tallies = [Tally(labels, scores, owner, n_subjects) for scores in (ours, theirs)]
    told: dict[str, Any] = dict.fromkeys(("difference", "low", "high", "p", "p_holm", "reason"))
    point = [float(tally.metrics(tally.once(), [metric])[metric][0]) for tally in tallies]
    if np.isnan(point).any():
        return told | {"reason": f"{metric} is undefined here"}
    told["difference"] = point[0] - point[1]
    if n_subjects < 2:
        return told | {"reason": "they are of one subject"}
    times = resamples(n_subjects, seed, n_bootstrap)
    first, second = (tally.metrics(times, [metric])[metric] for tally in tallies)
    interval = interval_of(first - second, n_subjects)
    if interval is None:
        told["reason"] = too_few(n_subjects) or "no interval: in most draws of the subjects a class is absent"
    else:
        told |= {key: value for key, value in interval.items() if key != "resamples"}
    # Each subject is there twice, once with either arm's scores: who counts in which arm is then a matter of weights.
    both = Tally(
        np.tile(labels, 2), np.concatenate([ours, theirs]), np.append(owner, owner + n_subjects), 2 * n_subjects
    )
    kept = (sign_changes(n_subjects, generator("exchange", seed), n_permutations) > 0).astype(np.int64)
    with_ours, with_theirs = np.hstack([kept, 1 - kept]), np.hstack([1 - kept, kept])
    exchanged = both.metrics(with_ours, [metric])[metric] - both.metrics(with_theirs, [metric])[metric]
    return told | {"p": as_large(exchanged, told["difference"], exact=n_subjects <= EXACT_UP_TO)}
