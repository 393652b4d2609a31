"""Exact match, F1 and thresholds of answers, as SQuAD's scripts define them."""

import json
import re
import string
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.errors import UserError
from bothways.evaluation import answer_f1, answer_metrics, best_thresholds, exact_match, normalised_answer

WORDS = st.sampled_from(["the", "a", "An", "cat", "Cat.", "mat!", "sat", "été", "U.S.", "-", "\u00a0", "Thea"])
TEXTS = st.lists(WORDS, max_size=4).map(" ".join)
QUESTIONS = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, max_size=3), st.integers(-3, 3).map(float) | st.none()), min_size=1, max_size=8
)


def plain_normal(text: str) -> str:
    """The definition, step by step: lower case, punctuation, articles, white space."""
    kept = "".join(one for one in text.lower() if one not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def plain_f1(text: str, gold: str) -> float:
    found, wanted = plain_normal(text).split(), plain_normal(gold).split()
    if not found or not wanted:
        return float(found == wanted)
    shared = sum(min(n, Counter(wanted)[word]) for word, n in Counter(found).items())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(found), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def plain_totals(
    texts: Sequence[str], gold: Sequence[Sequence[str]], scores: Sequence[float | None], threshold: float
) -> tuple[float, float]:
    """Exact match and F1 where what scores above a threshold is taken for no answer."""
    exact = f1 = 0.0
    for text, answers, score in zip(texts, gold, scores):
        if score is None or score > threshold:
            exact, f1 = exact + (not answers), f1 + (not answers)
            continue
        counted = [one for one in answers if plain_normal(one)] or [""]
        exact += max(float(plain_normal(text) == plain_normal(one)) for one in counted)
        f1 += max(plain_f1(text, one) for one in counted)
    return exact / len(texts), f1 / len(texts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Cat's\ta mat!", "cats mat"), ("An apple, a day", "apple day"), ("Thea and Ann", "thea and ann"),
        ("the", ""), ("U.S.A.", "usa"), ("«été» — 3½", "«été» — 3½"), ("a.b the-cat", "ab thecat"),
    ],
)  # fmt: skip
def test_normalisation(text: str, wanted: str) -> None:
    assert normalised_answer(text) == wanted


@pytest.mark.parametrize(
    ("text", "gold", "exact", "f1"),
    [
        ("Denver Broncos", ["Denver Broncos", "The Denver Broncos!"], 1, 1),
        ("the Denver broncos", ["Broncos", "denver Broncos."], 1, 1),
        ("the cat sat", ["a cat on the mat"], 0, 0.4),  # cat of cat, sat and of cat, on, mat
        ("cat cat", ["cat"], 0, 2 / 3),
        ("dog", ["cat", "a mat"], 0, 0),
        ("", [], 1, 1),
        ("cat", [], 0, 0),
        ("the", [], 1, 1),
        ("", ["cat"], 0, 0),
        ("", ["the"], 1, 1),
    ],
)
def test_one_answer(text: str, gold: list[str], exact: float, f1: float) -> None:
    assert exact_match(text, gold) == exact
    assert answer_f1(text, gold) == pytest.approx(f1)


def test_totals_of_all_and_of_both_kinds() -> None:
    found = answer_metrics(["the cat", "cat sat", "mat", ""], [["cat"], ["cat"], [], []])
    assert found == {
        "n": 4, "exact": 0.5, "f1": pytest.approx((1 + 2 / 3 + 0 + 1) / 4),
        "has_answer": {"n": 2, "exact": 0.5, "f1": pytest.approx(5 / 6)},
        "no_answer": {"n": 2, "exact": 0.5, "f1": 0.5},
    }  # fmt: skip
    assert answer_metrics(["cat"], [["cat"]])["no_answer"] == {"n": 0, "exact": None, "f1": None}


def test_thresholds_are_tuned_on_other_questions_and_told_beside() -> None:
    texts, gold = ["cat", "mat", "dog", "sat"], [["cat"], ["mat"], [], []]
    tuned = best_thresholds(texts, gold, [-4.0, 1.5, 2.0, 3.0])
    assert tuned == {"exact": 1.0, "exact_threshold": 1.5, "f1": 1.0, "f1_threshold": 1.5}
    found = answer_metrics(texts, gold, [-1.0, 1.0, -2.0, 5.0], tuned=tuned)
    assert (found["threshold"], found["exact"]) == (0.0, 0.5)  # right: cat, and none for sat
    assert (found["tuned"]["exact"]["threshold"], found["tuned"]["exact"]["exact"]) == (1.5, 0.75)
    assert found["tuned"]["f1"]["has_answer"] == {"n": 2, "exact": 1.0, "f1": 1.0}
    assert found["best"]["exact"] == 0.75
    json.dumps(found, allow_nan=False)


def test_where_it_is_best_to_answer_none_the_threshold_says_so() -> None:
    for scores, threshold in (([0.2, 0.4], 0.0), ([-2.0, 3.0], -2.0)):
        found = best_thresholds(["cat", "mat"], [[], []], scores)
        assert found["exact"] == 1
        assert threshold - 1e-9 < found["exact_threshold"] <= threshold
        assert answer_metrics(["cat", "mat"], [[], []], scores, threshold=found["exact_threshold"])["exact"] == 1


def test_equal_scores_are_answered_together() -> None:
    """The script would count the first of them alone, which no threshold can."""
    found = best_thresholds(["cat", "mat"], [["cat"], []], [1.0, 1.0])
    assert found["exact"] == 0.5


def test_an_article_alone_is_no_answer() -> None:
    """The script would take a point from it that it has not lost."""
    assert best_thresholds(["cat", "the"], [["cat"], []], [2.0, 1.0])["exact"] == 1


def test_a_question_without_any_span_is_never_answered() -> None:
    found = answer_metrics(["", ""], [["the"], []], [None, None], threshold=9.0)
    assert (found["exact"], found["best"]["exact"]) == (0.5, 0.5)
    json.dumps(found, allow_nan=False)


@given(QUESTIONS, st.integers(-4, 4).map(float))
def test_as_the_definition_says(questions: list[tuple[str, list[str], float | None]], threshold: float) -> None:
    texts, gold, scores = ([*one] for one in zip(*questions))
    found = answer_metrics(texts, gold, scores, threshold=threshold)
    assert (found["exact"], found["f1"]) == pytest.approx(plain_totals(texts, gold, scores, threshold))
    parts = [found["has_answer"], found["no_answer"]]
    assert sum(one["n"] for one in parts) == found["n"] == len(questions)
    assert found["f1"] * found["n"] == pytest.approx(sum(one["n"] * (one["f1"] or 0) for one in parts))
    never = answer_metrics(texts, gold)
    assert (never["exact"], never["f1"]) == pytest.approx(plain_totals(texts, gold, [0.0] * len(texts), 0.0))
    assert never["exact"] <= never["f1"] + 1e-12


@given(QUESTIONS)
def test_the_best_threshold_is_the_best_of_all(questions: list[tuple[str, list[str], float | None]]) -> None:
    texts, gold, scores = ([*one] for one in zip(*questions))
    found = best_thresholds(texts, gold, scores)
    tried = [plain_totals(texts, gold, scores, at) for at in (-99.0, *(one for one in scores if one is not None))]
    for place, name in enumerate(("exact", "f1")):
        assert found[name] == pytest.approx(max(one[place] for one in tried))
        at = plain_totals(texts, gold, scores, found[f"{name}_threshold"])
        assert at[place] == pytest.approx(found[name])


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=2)), min_size=1, max_size=8))
def test_the_pass_of_evaluate_v2_gives_the_same(questions: list[tuple[str, list[str]]]) -> None:
    """One pass in the order of the scores, here distinct and above 0 as those of probabilities are."""
    texts, gold = ([*one] for one in zip(*questions))
    texts = [one if plain_normal(one) else "" for one in texts]
    scores = [(i + 1) / 10 for i in range(len(texts))]
    total = best = float(sum(not answers for answers in gold))
    threshold = 0.0
    for text, answers, score in zip(texts, gold, scores):
        total += exact_match(text, answers) if answers else -float(bool(text))
        if total > best:
            best, threshold = total, score
    found = best_thresholds(texts, gold, scores)
    assert found["exact"] == pytest.approx(best / len(texts))
    assert found["exact_threshold"] == threshold


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="expected questions to measure, got none"):
        answer_metrics([], [])
    with pytest.raises(ValueError, match="one for each question"):
        answer_metrics(["cat"], [[], []])
    with pytest.raises(ValueError, match="one for each question"):
        answer_metrics(["cat"], [[]], [])
