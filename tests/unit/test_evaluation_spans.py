"""One event in a window: decoding of starts and ends, and how far off they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.evaluation import best_spans, span_metrics


def probabilities(*rows: tuple[list[float], list[float]]) -> np.ndarray:
    return np.array(rows)


def test_a_span_does_not_end_before_it_begins() -> None:
    spans, certainty = best_spans(
        probabilities(
            ([0.1, 0.2, 0.6, 0.1], [0.1, 0.7, 0.1, 0.1]),  # 2 to 1 would be likelier: 1 to 1 is what there can be
            ([0.8, 0.1, 0.1, 0.0], [0.5, 0.1, 0.3, 0.1]),
        )
    )
    assert spans.tolist() == [[1, 1], [1, 2]]
    assert certainty.tolist() == pytest.approx([0.31 / (0.31 + 0.01), 0.09 / (0.09 + 0.4)])


def test_of_doubtful_edges_the_middle_is_taken_and_the_event_is_sure() -> None:
    edges = [0.0, 0.3, 0.2, 0.15, 0.35], [0.0, 0.0, 0.0, 0.0, 1.0]  # the likeliest span is 4 to 4
    spans, certainty = best_spans(probabilities(edges))
    assert spans.tolist() == [[2, 4]]  # its expected overlap is 0.64, that of 4 to 4 is 0.57
    assert certainty.tolist() == [1.0]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 3))
def test_no_other_span_is_expected_to_overlap_more(seed: int, n_moments: int, n: int) -> None:
    given_p = np.random.default_rng(seed).dirichlet(np.full(n_moments + 1, 0.5), (n, 2))
    spans, certainty = best_spans(given_p)
    every = [(a, b) for a in range(1, n_moments + 1) for b in range(a, n_moments + 1)]
    for row, (start, end) in enumerate(given_p):
        weight = {(a, b): start[a] * end[b] for a, b in every}
        expected = {
            (a, b): sum(
                w * len({*range(a, b + 1)} & {*range(c, d + 1)}) / len({*range(a, b + 1)} | {*range(c, d + 1)})
                for (c, d), w in weight.items()
            )
            for a, b in every
        }
        assert expected[tuple(spans[row].tolist())] == pytest.approx(max(expected.values()))
        total = sum(weight.values())
        assert certainty[row] == pytest.approx(total / (total + start[0] * end[0]))


def test_onsets_ends_and_overlap() -> None:
    sure = np.full((4, 2, 5), 0.01)
    for row, (first, last) in enumerate([(2, 3), (1, 4), (0, 0), (1, 1)]):
        sure[row, 0, first] = sure[row, 1, last] = 0.96
    truth = np.array([[2, 4], [1, 4], [0, 0], [-100, -100]])
    found = span_metrics(truth, sure, ["nothing", "burst"], ["a", "b", "a", "b"], patch_s=0.5, n_bootstrap=2)
    assert found["n"] == 3  # the last has no label
    assert found["confusion"] == [[1, 0], [0, 2]]
    assert found["spans"] == {
        "n": 2, "onset_error_s": 0.0, "end_error_s": 0.25, "overlap": pytest.approx((2 / 3 + 1) / 2)
    }  # fmt: skip


def test_no_event_in_any_window() -> None:
    sure = np.full((2, 2, 3), 0.01)
    sure[:, :, 0] = 0.98
    found = span_metrics(np.zeros((2, 2), int), sure, ["burst", "nothing"], ["a", "b"], patch_s=1.0, event=0)
    assert found["spans"] == {"n": 0, "onset_error_s": None, "end_error_s": None, "overlap": None}
    assert found["confusion"] == [[0, 0], [0, 2]]


def test_of_many_moments_the_edges_are_found_too() -> None:
    probabilities = np.full((2, 2, 201), 1e-4)
    for row, (first, last) in enumerate([(31, 90), (148, 149)]):
        probabilities[row, 0, first] = probabilities[row, 1, last] = 0.9
    spans, certainty = best_spans(probabilities / probabilities.sum(2, keepdims=True))
    assert spans.tolist() == [[31, 90], [148, 149]]
    assert certainty.min() > 0.99
