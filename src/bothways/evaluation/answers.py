"""Answers to questions measured as SQuAD's published scripts do; texts in, plain dicts out."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from bothways.errors import UserError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
MEASURES = ("exact", "f1")


def normalised_answer(text: str) -> str:
    """Returns a text in lower case, without ASCII punctuation, English articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(text: str, gold: Sequence[str]) -> float:
    """Returns 1 where a text equals one of the gold answers, both normalised; of no gold answer, where it is empty."""
    return float(normalised_answer(text) in _counted(gold))


def answer_f1(text: str, gold: Sequence[str]) -> float:
    """Returns the best F1 of the words shared with a gold answer, all normalised; of an empty one 1 where both are."""
    words = Counter(normalised_answer(text).split())
    return max(_f1(words, Counter(one.split())) for one in _counted(gold))


def answer_metrics(
    texts: Sequence[str],
    gold: Sequence[Sequence[str]],
    no_answer_scores: Sequence[float | None] | None = None,
    *,
    threshold: float = 0.0,
    tuned: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Measures answers by exact match and F1 (Rajpurkar et al. 2016; 2018 with no-answer scores), from 0 to 1.

    The scripts of SQuAD give the same numbers times 100.

    Args:
        texts: the answer to each question; with `no_answer_scores` the best one there is, whatever the threshold.
        gold: what people answered to each question, the best of which counts; none = the context has no answer.
        no_answer_scores: how much rather there is no answer; None = nothing but that.
        threshold: above it a question counts as answered by "".
        tuned: `best_thresholds` of other questions, on which thresholds may be chosen.

    Returns:
        `n`, `exact`, `f1`, and the three again of the questions that have an answer (`has_answer`) and have none
        (`no_answer`), None where there is no such question. With `no_answer_scores` also `threshold`; `best`, the
        `best_thresholds` of these very questions, as evaluate-v2.0 gives them and too good for that; with `tuned`
        `tuned`: `exact` and `f1`, each all of that at its own threshold.

    Raises:
        UserError: there is no question.
        ValueError: other numbers of texts, gold answers and scores.
    """
    n, has_answer, raw, scores = _raw(texts, gold, no_answer_scores)
    if n == 0:
        raise UserError("answers: expected questions to measure, got none; give some with gold answers")
    if scores is None:
        return _totals(raw, has_answer)
    result = _at(threshold, raw, has_answer, scores)
    if tuned is not None:
        result["tuned"] = {name: _at(tuned[f"{name}_threshold"], raw, has_answer, scores) for name in MEASURES}
    return {**result, "best": best_thresholds(texts, gold, no_answer_scores or [])}


def best_thresholds(
    texts: Sequence[str], gold: Sequence[Sequence[str]], no_answer_scores: Sequence[float | None]
) -> dict[str, float]:
    """Finds the thresholds of no-answer scores with the best exact match and F1 (find_best_thresh of evaluate-v2.0).

    It differs from the script where that names a threshold that does not give what it promises: questions of equal
    scores are answered together, a text of which normalising leaves nothing is no answer, and where it is best to
    answer none the threshold lies below all scores, also negative ones.

    Args:
        texts: see `answer_metrics`.
        gold: see `answer_metrics`.
        no_answer_scores: see `answer_metrics`.

    Returns:
        `exact` and `f1` at their thresholds `exact_threshold` and `f1_threshold`; the lowest of equally good ones.
    """
    n, has_answer, raw, scores = _raw(texts, gold, no_answer_scores)
    assert scores is not None
    order = np.argsort(scores, kind="stable")[: int(np.isfinite(scores).sum())]  # None is never answered
    ranked = scores[order]
    last = np.append(ranked[1:] != ranked[:-1], True)[: len(ranked)]  # of equal ones
    lowest = float(ranked[0]) if len(ranked) else 1.0
    none = 0.0 if lowest > 0 else float(np.nextafter(lowest, -np.inf))
    found: dict[str, float] = {}
    for name in MEASURES:
        gain = (raw[name] - ~has_answer)[order]
        totals = np.concatenate([[0.0], gain.cumsum()[last]]) + (~has_answer).sum()
        best = int(totals.argmax())
        found[name] = float(totals[best]) / max(n, 1)
        found[f"{name}_threshold"] = none if best == 0 else float(ranked[last][best - 1])
    return found


def _raw(
    texts: Sequence[str], gold: Sequence[Sequence[str]], no_answer_scores: Sequence[float | None] | None
) -> tuple[int, Bool[np.ndarray, " n"], dict[str, Float[np.ndarray, " n"]], Float[np.ndarray, " n"] | None]:
    """Returns the number of questions, which have an answer, what each text is worth, and the no-answer scores."""
    n = len(texts)
    if len(gold) != n or len(no_answer_scores if no_answer_scores is not None else texts) != n:
        raise ValueError(f"{n} texts, {len(gold)} gold answers, and no-answer scores: expected one for each question")
    raw = {
        "exact": np.array([exact_match(text, answers) for text, answers in zip(texts, gold)], dtype=float),
        "f1": np.array([answer_f1(text, answers) for text, answers in zip(texts, gold)], dtype=float),
    }
    has_answer = np.array([len(answers) > 0 for answers in gold], dtype=bool)
    if no_answer_scores is None:
        return n, has_answer, raw, None
    return n, has_answer, raw, np.array([np.inf if one is None else one for one in no_answer_scores], dtype=float)


def _at(
    threshold: float,
    raw: Mapping[str, Float[np.ndarray, " n"]],
    has_answer: Bool[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
) -> dict[str, Any]:
    """Returns the totals where what scores above a threshold is answered by ""."""
    at = {name: np.where(scores > threshold, ~has_answer, values) for name, values in raw.items()}
    return {"threshold": threshold, **_totals(at, has_answer)}


def _totals(raw: Mapping[str, Float[np.ndarray, " n"]], has_answer: Bool[np.ndarray, " n"]) -> dict[str, Any]:
    def of(chosen: Bool[np.ndarray, " n"]) -> dict[str, Any]:
        some = bool(chosen.any())
        means = {name: float(values[chosen].mean()) if some else None for name, values in raw.items()}
        return {"n": int(chosen.sum()), **means}

    return {**of(np.ones_like(has_answer)), "has_answer": of(has_answer), "no_answer": of(~has_answer)}


def _counted(gold: Sequence[str]) -> list[str]:
    """Returns the gold answers of which something is left when normalised; of none an empty text."""
    return [one for one in map(normalised_answer, gold) if one] or [""]


def _f1(words: Counter[str], gold: Counter[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    shared = (words & gold).total()
    return 2 * shared / (words.total() + gold.total())
