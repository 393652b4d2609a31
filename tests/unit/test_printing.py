"""What commands print of figures: numbers with the words that go with them, a dash for what is undefined."""

import pytest

from bothways.cli.printing import number, print_compared


@pytest.mark.parametrize(("value", "said"), [(None, "–"), (0.0, "0"), (0.12345, "0.123"), (-2.0, "-2")])
def test_a_number_or_a_dash(value: float | None, said: str) -> None:
    assert number(value) == said


@pytest.mark.parametrize(("seeds", "splits", "said"), [(1, 1, "1 trial, 1 split"), (2, 3, "2 trials, 3 splits")])
def test_one_is_no_plural(capsys: pytest.CaptureFixture[str], seeds: int, splits: int, said: str) -> None:
    none = {"mean": None, "low": None, "n": 0}
    arm = {"title": "guess", "over_trials": none, "over_people": none, "trained": 0, "encoder": None, "given": "none"}
    result = {
        "seeds": seeds, "splits": splits, "arms": {"guess": arm}, "strongest_control": "guess", "differences": {},
        "every_control": {}, "pretraining_overlap": [], "notes": [], "out": "out", "seconds": 0.0,
    }  # fmt: skip
    print_compared(result)
    title, _, row = capsys.readouterr().out.splitlines()[:3]
    assert title.strip() == said
    assert row.split()[:3] == ["guess", "–", "0"]
