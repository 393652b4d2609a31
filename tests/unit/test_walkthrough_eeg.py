"""The EEG walkthrough: every matrix of the golden file, every figure of the reference, every hand computation."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bothways.walkthrough import Paper, Walk, differences, walk_eeg
from bothways.walkthrough.eeg_reference import BURST, PATCH, SFREQ_HZ, compute
from bothways.walkthrough.eeg_story import tell
from figures import not_found, numbers_of

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.fixture(scope="module")
def told() -> tuple[Paper, Walk]:
    paper = Paper(width=120)
    return paper, walk_eeg(paper)


def test_every_matrix(told: tuple[Paper, Walk]) -> None:
    golden = json.loads((GOLDEN / "eeg_walkthrough.json").read_text())
    arrays = told[1].arrays
    assert arrays.keys() == golden.keys()
    for name, expected in golden.items():
        assert np.shape(arrays[name]) == np.shape(expected), name
        np.testing.assert_allclose(arrays[name], expected, rtol=0, atol=1e-13, err_msg=name)


def test_every_printed_figure(told: tuple[Paper, Walk]) -> None:
    lines = json.loads((GOLDEN / "eeg_figures.json").read_text())
    assert sum(map(len, lines)) == 3684
    assert not_found(lines, told[0].report()) == []


def test_the_table_of_figures_is_the_reference_s(shared: Path) -> None:
    (reference,) = (shared / "reference").glob("000_*.txt")
    every_line = [numbers_of(line) for line in reference.read_text(encoding="utf-8").splitlines()]
    decimals = [line for line in every_line if any("." in number for number in line)]
    decimals = [line for line in decimals if not (len(line) == 1 and line[0].endswith("."))]  # headings, sentences
    table = json.loads((GOLDEN / "eeg_figures.json").read_text())
    assert [line for line in table if any("." in number for number in line)] == decimals


def test_a_wrong_digit_is_noticed(told: tuple[Paper, Walk]) -> None:
    lines = json.loads((GOLDEN / "eeg_figures.json").read_text())
    assert not_found([["+2.006271", "+2.006270"]], told[0].report()) == [["+2.006271", "+2.006270"]]
    assert not_found(lines, told[0].report().replace("1.355886", "1.355887")) != []


def test_every_hand_computation(told: tuple[Paper, Walk]) -> None:
    paper = told[0]
    assert len(paper.checks) > 50
    assert [check for check in paper.checks if not check.match] == []
    assert paper.report().count("MATCH: True") > 15
    assert "MATCH: False" not in paper.report()


def test_causal_rows_grow(told: tuple[Paper, Walk]) -> None:
    arrays = told[1].arrays
    for head in range(2):
        assert (arrays["causal_attention"][head] != 0).sum(axis=1).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert (arrays["attention"][head] != 0).sum(axis=1).tolist() == [9] * 9
    assert arrays["causal_attention"].sum(axis=-1) == pytest.approx(1.0)


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_shows_the_same_numbers(told: tuple[Paper, Walk], width: int) -> None:
    paper = Paper(width=width)
    walk_eeg(paper)
    assert max(map(len, paper.report().splitlines())) <= width
    assert max(map(len, told[0].report().splitlines())) <= 120

    def decimals(text: str) -> Counter[str]:
        return Counter(number for number in numbers_of(text) if "." in number)

    assert decimals(paper.report()) == decimals(told[0].report())


def test_colour_changes_nothing_but_colour(told: tuple[Paper, Walk]) -> None:
    paper = Paper(width=120, colour=True)
    walk_eeg(paper)
    assert "\x1b[" in paper.report()
    assert re.sub(r"\x1b\[[\d;]*m", "", paper.report()) == told[0].report()


NOT_BY_HAND = {"cls", "mask", "PE", "Z0", "targets", "W_k", "W_v", "V", "masked_positions"}
"""Arrays that are inputs of others alone: what is made of them is checked."""


@pytest.mark.parametrize("name", sorted(set(json.loads((GOLDEN / "eeg_walkthrough.json").read_text())) - NOT_BY_HAND))
def test_a_changed_number_fails_a_hand_computation(name: str) -> None:
    tape, arrays = compute()
    right = np.asarray(arrays[name])
    # Not the same everywhere: the rows after a layer norm sum to 0, and would hide it.
    wrong = right + 1 if name == "relu_zeroed" else right + 1e-4 * (1 + np.arange(right.size)).reshape(right.shape)
    changed = {**arrays, name: wrong}
    paper = Paper()
    tell(paper, tape, changed, SFREQ_HZ, PATCH, BURST)
    assert [check.name for check in paper.checks if not check.match], name


def test_what_the_model_lacks_or_is_not_a_number_differs() -> None:
    walk = walk_eeg(Paper())
    right = walk.tape["embedding.Z"]
    assert differences(walk, {"embedding.Z": right}) == {"embedding.Z": 0.0}
    assert differences(walk, {"embedding.Z": right + 1e-6})["embedding.Z"] == pytest.approx(1e-6 / np.abs(right).max())
    for wrong in (right[:-1], right * np.nan, right + np.inf):
        assert differences(walk, {"embedding.Z": wrong}) == {"embedding.Z": np.inf}
    unknown = differences(walk, {"embedding.unknown": right, "encoder.layers.0.output": walk.arrays["H"]})
    assert list(unknown.items()) == [("encoder.layers.0.output", 0.0), ("embedding.unknown", np.inf)]
