"""Labels that are numbers or sets of classes: as they are read, cut, learned and measured."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways import eeg
from bothways.config import EncoderConfig, FinetuneConfig, HeadConfig, LabelConfig, WindowConfig, load_config
from bothways.encoder import Embedded, Rows
from bothways.errors import UserError
from bothways.evaluation import by_level, regression_metrics, ridge_regression
from bothways.heads import build_head
from stores import a_store, entry

NUMBER, SEVERAL = LabelConfig(kind="number"), LabelConfig(kind="several")


def read(tmp_path: Path, rows: str, rules: LabelConfig) -> list[tuple[str, str | None]]:
    (tmp_path / "labels.csv").write_text("file,label\n" + rows, encoding="utf-8")
    spans = eeg.find_labels(tmp_path / "labels.csv", a_store(entry("a.edf"), entry("b.edf")), rules)
    return [(row.file, row.label) for row in spans.rows]


def test_numbers_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, "a.edf,34.50\nb.edf,1e3\n", NUMBER) == [("a.edf", "34.5"), ("b.edf", "1000")]
    assert read(tmp_path, "a.edf,n/a\nb.edf,-0\na.edf,\n", NUMBER) == [("b.edf", "0")]
    for wrong, why in (
        ("old", "line 3: expected a number as label, or n/a, got 'old'"),
        ('"34,5"', "line 3: expected a number as label, or n/a, got '34,5'; write a decimal point"),
        ("inf", "got 'inf'"),
        ("1_0", "got '1_0'"),
    ):
        with pytest.raises(UserError, match=why):
            read(tmp_path, f"a.edf,3\nb.edf,{wrong}\n", NUMBER)


@settings(max_examples=30)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_the_same_text_and_the_same_number(value: float) -> None:
    text = eeg.number_text(value)
    assert float(text) == value
    assert eeg.number_text(float(text)) == text
    assert eeg.numbers([text]).tolist() == [[value]]


def test_sets_are_read(tmp_path: Path) -> None:
    rows = "a.edf, slow | spike\nb.edf,spike;slow;spike\n"
    assert read(tmp_path, rows, SEVERAL) == [("a.edf", "slow;spike"), ("b.edf", "slow;spike")]
    assert read(tmp_path, "a.edf,\nb.edf,;\na.edf,n/a\na.edf,x;?", SEVERAL) == [("a.edf", ";"), ("b.edf", ";")]
    mapped = LabelConfig(kind="several", map={"sp.*": "spike", "both": "spike;slow"})
    assert read(tmp_path, "a.edf,both\nb.edf,spikes;other\na.edf,other", mapped) == [
        ("a.edf", "slow;spike"), ("b.edf", "spike"), ("a.edf", ";"),
    ]  # fmt: skip
    with pytest.raises(UserError, match="'Spike' and 'spike'"):
        read(tmp_path, "a.edf,Spike;slow\nb.edf,spike\n", SEVERAL)
    assert eeg.indicators([";", "slow;spike", "spike"], ["slow", "spike"]).tolist() == [[0, 0], [1, 1], [0, 1]]


def labels_of(rows: Sequence[tuple[float, float, str]], rules: LabelConfig) -> list[str]:
    """The label of each second of a recording of 10 s."""
    store = a_store(entry("a.edf", 10))
    spans = [eeg.Span("a.edf", float(onset_s), float(duration_s), label) for onset_s, duration_s, label in rows]
    windows = eeg.cut_windows(store, WindowConfig(window_s=1.0), labels=spans, rules=rules)
    found = ["-"] * 10
    for start, label in zip(windows.start.tolist(), windows.label.tolist()):
        if label >= 0:
            found[start // 200] = windows.classes[label]
    return found


def test_sets_that_overlap_hold_together() -> None:
    assert labels_of([(0, 4, "a"), (2, 4, "b"), (3, 1, "a")], SEVERAL) == ["a", "a", "a;b", "a;b", "b", "b", *"----"]
    assert labels_of([(2, 2, ";"), (3, 2, "c")], SEVERAL) == ["-", "-", ";", "c", "c", *"-----"]
    elsewhere = LabelConfig(kind="several", background=";")
    assert labels_of([(1, 2, "a"), (2, 1, "b")], elsewhere) == [";", "a", "a;b", *[";"] * 7]
    with pytest.raises(UserError, match="overlap at 1 s"):
        labels_of([(0, 3, "34"), (1, 4, "35")], NUMBER)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.sampled_from("abc")), min_size=1, max_size=8))
def test_each_second_holds_what_covers_it(rows: list[tuple[int, int, str]]) -> None:
    found = labels_of(rows, SEVERAL)
    for second, label in enumerate(found):
        there = {name for onset, lasts, name in rows if onset <= second < onset + lasts}
        assert label == (";".join(sorted(there)) or "-")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (["labels.kind=number", "labels.background=rest"], 'background have no meaning with kind = "number"'),
        (["labels.kind=several", 'labels.priority=["a"]'], 'priority have no meaning with kind = "several"'),
        (["labels.kind=number", "task=event"], 'task = "event" needs labels.kind = "classes", got "number"'),
    ],
)
def test_settings_that_do_not_go_together(change: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        load_config(FinetuneConfig, None, change)


def losses(head: HeadConfig, prediction: list[list[float]], targets: list[list[float]]) -> tuple[float, float]:
    built = build_head(head, EncoderConfig(hidden_size=8, num_attention_heads=2))
    embedded, batch = Embedded(torch.zeros(len(targets), 3, 8), None), {"targets": torch.tensor(targets).float()}
    loss = built.loss(torch.tensor(prediction), embedded, batch)
    assert loss.count == built.count(embedded, batch)
    return float(loss.sum), float(loss.count)


def test_the_loss_of_a_number() -> None:
    nan = float("nan")
    squared = HeadConfig(kind="number", classes=("age",), loss="mse")
    assert losses(squared, [[1.0], [5.0], [0.0]], [[3.0], [5.5], [nan]]) == (4.25, 2)
    smooth = HeadConfig(kind="number", classes=("age",), loss="smooth_l1")
    assert losses(smooth, [[1.0], [5.0], [0.0]], [[3.0], [5.5], [nan]]) == (1.5 + 0.125, 2)
    assert losses(smooth, [[1.0]], [[nan]]) == (0, 0)
    head = build_head(HeadConfig(kind="number", classes=("age",), mean=40.0, sd=2.0), EncoderConfig())
    assert head.in_unit(torch.tensor([[0.0], [-1.5]])).tolist() == [40, 37]  # type: ignore[operator]


def test_the_loss_of_several_classes() -> None:
    nan, half = float("nan"), float(np.log(2))
    plain = HeadConfig(kind="several", classes=("a", "b"))
    assert losses(plain, [[0.0, 0.0], [0.0, 0.0]], [[1, 0], [nan, 1]]) == (pytest.approx(3 * half), 3)
    weighed = HeadConfig(kind="several", classes=("a", "b"), class_weights=(3.0, 1.0))
    assert losses(weighed, [[0.0, 0.0]], [[1, 0]]) == (pytest.approx(4 * half), 4)
    sure = losses(weighed, [[2.0, -2.0]], [[0, 1]])
    assert sure == (pytest.approx(2 * np.log1p(np.exp(2)), rel=1e-6), 2)


@pytest.mark.parametrize("kind", ["number", "several"])
def test_they_are_pooled_as_classes_are(kind: str) -> None:
    encoder = EncoderConfig(hidden_size=8, num_attention_heads=2)
    classes = ("age",) if kind == "number" else ("a", "b")
    hidden = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    embedded, rows = Embedded(hidden, None), Rows(hidden.flatten(0, 1), torch.ones(2, 3, dtype=torch.bool))
    for pool in ("cls", "mean", "attention"):
        own, other = (
            build_head(HeadConfig.model_validate({"kind": k, "classes": classes, "pool": pool}), encoder)
            for k in (kind, "sequence")
        )
        other.load_state_dict(own.state_dict())
        assert torch.equal(own(rows, embedded, rows.cls()), other(rows, embedded, rows.cls()))


def test_ridge_regression_is_the_closed_form() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40, 3))
    y = x @ [2.0, -1.0, 0.0] + 50 + draw.normal(0, 0.1, 40)
    model = ridge_regression(x, y, strengths=[5.0])
    z = (x - x.mean(0)) / x.std(0)
    expected = z @ np.linalg.solve(z.T @ z + 5 * np.eye(3), z.T @ (y - y.mean())) + y.mean()
    assert model.scores(x)[:, 0] == pytest.approx(expected)
    chosen = ridge_regression(x, y, subjects=np.repeat(np.arange(8), 5))
    assert chosen.strength == 0.1  # hardly any noise
    with pytest.raises(UserError, match="needs 2 subjects or more, got 1"):
        ridge_regression(x, y, subjects=["a"] * 40)


def test_recordings_and_people_by_their_mean() -> None:
    truth, predicted = np.array([10.0, 10, 20, 20, 20, 30]), np.array([8.0, 14, 20, 22, 24, 30])
    told = by_level(truth, predicted, list("aabbbb"), np.array([0, 0, 1, 1, 2, 2]), regression_metrics)
    recording = told["recording"]
    assert (recording["metrics"]["n"], recording["n_mixed"], recording["reason"]) == (2, 1, None)
    assert recording["metrics"]["mae"] == 1  # 11 for 10, 21 for 20
    assert (told["subject"]["metrics"]["n"], told["subject"]["metrics"]["mae"], told["subject"]["n_mixed"]) == (1, 1, 1)
    sets = by_level(np.eye(2), np.eye(2), ["a", "a"], np.array([0, 0]), lambda *_: {})
    assert sets["recording"] == {
        "metrics": None, "n_mixed": 1, "reason": "the windows of every recording differ in what is true of them",
    }  # fmt: skip
