"""One event in a window: where it begins and ends, decoded and measured; arrays in, plain dicts out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.splits import Names

MOST_EDGES = 64
"""Moments of a window whose spans are all laid over each other; the work grows with their fourth power."""
_AT_ONCE = 1024
"""Rows whose spans are in memory at a time."""


def best_spans(
    probabilities: Float[np.ndarray, "n 2 M"],
) -> tuple[Int[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Finds the span that is expected to overlap most with the event, and how probable it is that there is one.

    Start and end are drawn apart, as in Devlin et al. 2019 (sections 4.2 and 4.3), but for spans that end before they
    begin, which cannot be. The likeliest span would be the better guess only where it counts to be exactly right: of
    doubtful edges it picks an arbitrary pair, and its probability is small however sure it is that there is an event.

    Args:
        probabilities: of each moment as start and as end, [CLS] first, which stands for no event.

    Returns:
        The first and last moment of the span, counted from 1; and the probability of an event: of all spans together
        as a share of theirs and no event's.
    """
    blocks = [_best(probabilities[i : i + _AT_ONCE]) for i in range(0, max(len(probabilities), 1), _AT_ONCE)]
    spans, certainty = zip(*blocks)
    return np.concatenate(spans), np.concatenate(certainty)


def span_metrics(
    truth: Int[np.ndarray, "n 2"],
    probabilities: Float[np.ndarray, "n 2 M"],
    classes: Sequence[str],
    subjects: Names,
    *,
    patch_s: float,
    event: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """Measures onsets and ends; windows without a label (-100) do not count.

    Args:
        truth: first and last patch of the event, from 1; both 0 where there is none.
        probabilities: see `best_spans`.
        classes: of no event and of the event.
        subjects: whose window it is.
        patch_s: how long a moment is.
        event: which of `classes` the event is.
        options: see `classification_metrics`.

    Returns:
        `classification_metrics` of whether there is an event, and of the windows that hold one `spans`: their number
        `n`, the median error of the onset and of the end, `onset_error_s` and `end_error_s`, and `overlap`, the mean
        share of truth and guess together that both cover (None where there is no such window).
    """
    counted = truth[:, 0] >= 0
    truth, probabilities, subjects = truth[counted], probabilities[counted], np.asarray(subjects)[counted]
    spans, certainty = best_spans(probabilities)
    scores = np.stack([1 - certainty, certainty], 1)[:, [1 - event, event]]
    there = truth[:, 0] > 0
    result = classification_metrics(np.where(there, event, 1 - event), scores, classes, subjects, **options)
    a, b = truth[there], spans[there]
    shared = np.minimum(a[:, 1], b[:, 1]) - np.maximum(a[:, 0], b[:, 0]) + 1
    either = np.maximum(a[:, 1], b[:, 1]) - np.minimum(a[:, 0], b[:, 0]) + 1
    error_s = np.abs(a - b) * patch_s
    medians: list[float | None] = np.median(error_s, axis=0).tolist() if len(a) else [None, None]
    result["spans"] = {
        "n": len(a),
        "onset_error_s": medians[0],
        "end_error_s": medians[1],
        "overlap": float(np.mean(np.maximum(shared, 0) / either)) if len(a) else None,
    }
    return result


def _best(
    probabilities: Float[np.ndarray, "n 2 M"],
) -> tuple[Int[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """`best_spans` of some rows: each span that there can be is laid over all others.

    Of more than `MOST_EDGES` moments, stretches of several are laid over each other, and the edges are then the
    likeliest moments in the first and the last stretch.
    """
    n, m = len(probabilities), probabilities.shape[2] - 1
    if m > MOST_EDGES:
        step = -(-m // MOST_EDGES)
        first_of = np.arange(0, m, step)
        inner = probabilities[:, :, 1:]
        joined = np.concatenate([probabilities[:, :, :1], np.add.reduceat(inner, first_of, axis=2)], axis=2)
        coarse, certainty = _best(joined)
        fine = np.empty_like(coarse)
        for row, (a, b) in enumerate(coarse - 1):
            begin = first_of[a] + int(inner[row, 0, first_of[a] : first_of[a] + step].argmax())
            least = max(begin, first_of[b])
            fine[row] = begin, least + int(inner[row, 1, least : first_of[b] + step].argmax())
        return fine + 1, certainty
    start, end = probabilities[:, 0, 1:], probabilities[:, 1, 1:]
    spans = np.triu(start[:, :, None] * end[:, None, :]).reshape(n, m * m)
    first, last = np.divmod(np.arange(m * m), m)
    best, most = np.zeros((n, 2), dtype=np.int64), np.full(n, -1.0)
    for a in range(m):
        b = np.arange(a, m)[:, None]
        shared = np.maximum(np.minimum(b, last) - np.maximum(a, first) + 1, 0)
        overlap = spans @ (shared / (np.maximum(b, last) - np.minimum(a, first) + 1)).T  # [n m-a]
        better = overlap.max(1) > most
        best[better] = np.stack([np.full(n, a), a + overlap.argmax(1)], 1)[better]
        most = np.maximum(most, overlap.max(1))
    found = spans.sum(1)
    both = found + probabilities[:, 0, 0] * probabilities[:, 1, 0]
    return best + 1, np.divide(found, both, out=np.zeros_like(found), where=both > 0)
