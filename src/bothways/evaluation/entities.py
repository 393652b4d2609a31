"""Entities found in sentences, measured as seqeval and conlleval do; tags in, plain dicts out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bothways.tags import entities_of, recognise_scheme, scheme_named


def entity_metrics(
    truth: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    rule: str = "default",
    scheme: str | None = None,
) -> dict[str, Any]:
    """Measures predicted entities, of which type and words must be right; equal to seqeval 1.2.2.

    What is divided by 0 is 0. With `default` the two may be in different schemes, and BILOU is read as BIOES in other
    letters (seqeval's default does not know it).

    Args:
        truth: tags of each sentence's words.
        predicted: as many.
        rule: `default` or `strict`, see `tags.entities_of`.
        scheme: that `strict` reads both by; if none, the one recognised in `truth`.

    Returns:
        `rule`, `scheme` and `predicted_scheme` (that `strict` read them by; with `default` those recognised), beside
        each how it is known (`scheme_said`, `predicted_scheme_said`), `types` (name -> `precision`, `recall`, `f1`,
        `support`, `n_predicted`, `n_correct`), `micro`, `macro` (over the types that are true or predicted) and
        `weighted` (by their support), each with the first four, `word_accuracy`, `n_words`, `n_sentences`.

    Raises:
        UserError: a tag of no scheme, or with `strict` of another one; a rule or scheme that is none.
        ValueError: not as many sentences and words in both.
    """
    if [len(one) for one in truth] != [len(one) for one in predicted]:
        raise ValueError("expected as many sentences, and as many words in each, in truth and predicted")
    asked = scheme_named(scheme) if scheme is not None and rule == "strict" else None
    seen = None if asked else recognise_scheme(truth)
    name = seen.name if seen else asked
    assert name is not None
    theirs = recognise_scheme(predicted) if rule == "default" else None
    said = f"{name}: strictly, {'as asked for' if asked else 'as the truth is'}"
    true, found = (
        {(i, *entity) for i, tags in enumerate(sentences) for entity in entities_of(tags, rule, name)}
        for sentences in (truth, predicted)
    )
    counts = [Counter(kind for _, kind, _, _ in some) for some in (true & found, found, true)]
    types = sorted(counts[1] | counts[2])
    correct, n_found, support = (np.array([one[kind] for kind in types], dtype=np.int64) for one in counts)
    each = _scores(correct, n_found, support)
    n_words = sum(map(len, truth))
    right = sum(a == b for tags, others in zip(truth, predicted) for a, b in zip(tags, others))
    total = _scores(*(one.sum(keepdims=True) for one in (correct, n_found, support)))
    return {
        "rule": rule,
        "scheme": name,
        "scheme_said": seen.said if seen else said,
        "predicted_scheme": theirs.name if theirs else name,
        "predicted_scheme_said": theirs.said if theirs else said,
        "types": {
            kind: _told(figures, int(s)) | {"n_predicted": int(n), "n_correct": int(k)}
            for kind, figures, s, n, k in zip(types, zip(*each), support, n_found, correct)
        },
        "micro": _told((one[0] for one in total), len(true)),
        "macro": _told(map(_average, each), len(true)),
        "weighted": _told((_average(one, support) for one in each), len(true)),
        "word_accuracy": right / n_words if n_words else 0.0,
        "n_words": n_words,
        "n_sentences": len(truth),
    }


def _scores(
    correct: Int[np.ndarray, " k"], n_found: Int[np.ndarray, " k"], support: Int[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Returns precision, recall and F1."""
    precision, recall = (correct / np.where(n == 0, 1, n) for n in (n_found, support))
    total = precision + recall
    return precision, recall, 2 * precision * recall / np.where(total == 0, 1, total)


def _average(values: Float[np.ndarray, " k"], weights: Int[np.ndarray, " k"] | None = None) -> float:
    """Returns the mean; 0 where there is nothing, or all weights are 0."""
    nothing = not len(values) or (weights is not None and not weights.any())
    return 0.0 if nothing else float(np.average(values, weights=weights))


def _told(figures: Iterable[float], support: int) -> dict[str, Any]:
    return dict(zip(("precision", "recall", "f1"), map(float, figures))) | {"support": support}
