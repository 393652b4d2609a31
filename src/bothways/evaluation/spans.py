"""One event in a window: where it begins and ends, decoded and measured; arrays in, plain dicts out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.splits import Names


def best_spans(
    probabilities: Float[np.ndarray, "n 2 M"],
) -> tuple[Int[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Decodes starts and ends as question answering does (Devlin et al. 2019, sections 4.2 and 4.3).

    Args:
        probabilities: of each moment as start and as end, [CLS] first, which stands for no event.

    Returns:
        The first and last moment, counted from 1, of the likeliest span that does not end before it begins; and the
        probability of an event: that of the span as a share of the span's and no event's.
    """
    start, end = probabilities[:, 0, 1:], probabilities[:, 1, 1:]
    best_end = np.maximum.accumulate(end[:, ::-1], axis=1)[:, ::-1]  # the likeliest end from each start on
    first = (start * best_end).argmax(1)
    rows = np.arange(len(first))
    last = np.where(np.arange(end.shape[1]) >= first[:, None], end, -1).argmax(1)
    found = start[rows, first] * end[rows, last]
    nothing = probabilities[:, 0, 0] * probabilities[:, 1, 0]
    both = found + nothing
    return np.stack([first, last], 1) + 1, np.divide(found, both, out=np.zeros_like(found), where=both > 0)


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
