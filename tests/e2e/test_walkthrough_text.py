"""The text and the classifier walkthrough print the second reference's figures, and every check on them holds."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bothways.config import EncoderConfig, ModelConfig, TextConfig
from bothways.model import Model
from bothways.text import TokenEmbedding
from bothways.walkthrough.classifier_reference import N_CLASSES, TINY, record, walk_classifier
from bothways.walkthrough.display import Paper
from bothways.walkthrough.page import Walk, as_page
from bothways.walkthrough.show import show
from bothways.walkthrough.tape import OPERATIONS, Step, Tape
from bothways.walkthrough.text_reference import BERT_BASE, actions, bert_parameters, pair, select, toy, walk_text
from bothways.walkthrough.torch_draws import torch_draws

Written = tuple[Paper, Walk]
FIGURES = json.loads((Path(__file__).resolve().parent.parent / "golden" / "text_figures.json").read_text("utf-8"))
WALKS: list[Callable[[Paper], Walk]] = [walk_text, walk_classifier]


def tiny_tape() -> Tape:
    data = torch_draws("data")
    return record(torch_draws("classifier"), data["ids"][0], int(data["labels"][0]))


@pytest.fixture(scope="module")
def text() -> Written:
    paper = Paper()
    return paper, walk_text(paper)


@pytest.fixture(scope="module")
def classifier() -> Written:
    paper = Paper()
    return paper, walk_classifier(paper)


def as_printed(array: np.ndarray) -> list[list[str]]:
    return [[f"{value:.4f}" for value in row] for row in array]


# --- the figures of the reference --------------------------------------------------------------------------------


@pytest.mark.parametrize(("figure", "name"), [("bert_weights", "attention"), ("causal_weights", "causal_attention")])
def test_attention_weights(text: Written, figure: str, name: str) -> None:
    paper, walk = text
    assert as_printed(walk.arrays[name]) == FIGURES[figure]
    lines = [f"pos {i} | {' '.join(row)}" for i, row in enumerate(FIGURES[figure])]
    assert "\n".join(lines) in paper.report()


def test_rows_sum_to_1_and_causal_rows_grow(text: Written) -> None:
    both, causal = text[1].arrays["attention"], text[1].arrays["causal_attention"]
    for array in (both, causal):
        np.testing.assert_allclose(array.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert (both > 0).sum(axis=1).tolist() == [4, 4, 4, 4]
    assert (causal > 0).sum(axis=1).tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(causal == 0, text[1].arrays["causal_mask"] == 1)
    assert "= [4 4 4 4]" in text[0].report()
    assert "= [1 2 3 4]" in text[0].report()


def test_masked_positions(text: Written) -> None:
    masking = FIGURES["masking"]
    assert text[1].arrays["masked_positions"].tolist() == masking["selected"]
    report = text[0].report()
    assert f"sorted: {masking['selected']}" in report
    selected, untouched = masking["percent"]
    for percent in masking["split_percent"]:
        assert f"{percent}% of {selected}%" in report
    assert re.search(rf"not selected +{untouched}%", report)
    assert f"{masking['too_many_percent']}%" in report
    for rate in FIGURES["rates"]:
        assert rate in report


def test_sizes_of_bert(text: Written) -> None:
    for name, number in FIGURES["bert"].items():
        assert getattr(BERT_BASE, name) == number
    parts = bert_parameters(BERT_BASE)
    assert parts["word"] + parts["layers"] == FIGURES["bert_words_and_layers"]
    report = text[0].report()
    for number in (FIGURES["bert_words_and_layers"], sum(parts.values()), 30_522):
        assert f"{number:,}" in report


def test_parameters_of_the_classifier(classifier: Written) -> None:
    for name, number in FIGURES["tiny"].items():
        assert getattr(TINY, name) == number
    for name, number in FIGURES["tiny_parameters"].items():
        assert sum(a.size for at, a in torch_draws("classifier").items() if at.startswith(name)) == number
        assert f"{name or 'all'}: {number:,} by the sizes | in the weights: {number:,}" in classifier[0].report()


def test_attention_module(classifier: Written) -> None:
    paper, walk = classifier
    module = FIGURES["module"]
    assert list(walk.arrays["module.output"].shape) == module["shape"]
    share = walk.arrays["module.attention"]
    assert [f"{value:.1f}" for value in share[0, 0].sum(axis=-1)] == module["row_sums"]
    assert (share > 0).all()
    assert f"output ({', '.join(map(str, module['shape']))})" in paper.lines


def test_shapes_of_the_classifier(classifier: Written) -> None:
    shapes = {name: f"({', '.join(map(str, shape))})" for name, shape in FIGURES["shapes"].items()}
    line = f"ids {shapes['ids']} -> [CLS] {shapes['cls']} -> logits {shapes['logits']}"
    assert line in classifier[0].lines


def test_loss_trace(classifier: Written) -> None:
    paper, walk = classifier
    losses, training = walk.arrays["losses"], FIGURES["training"]
    assert {str(i): f"{losses[i]:.4f}" for i in map(int, FIGURES["losses"])} == FIGURES["losses"]
    assert len(walk.arrays["labels"]) == training["sequences"]
    assert sum(bool(re.match(r" *epoch \d+: ", line)) for line in paper.lines) == len(losses) == training["epochs"]
    assert (np.diff(losses) < 0).all()
    assert losses[-1] < training["below"]
    for epoch, loss in FIGURES["losses"].items():
        assert re.search(rf"epoch {epoch}: {loss} ", paper.report())


def test_the_figures_are_those_of_the_document(shared: Path) -> None:
    document = next((shared / "reference").glob("001_*.txt")).read_text(encoding="utf-8")
    tables = {" ".join(row) for row in (*FIGURES["bert_weights"], *FIGURES["causal_weights"])}
    assert tables <= {" ".join(re.findall(r"\d\.\d{4}", line)) for line in document.splitlines()}
    numbers = {text for row in (*FIGURES["bert_weights"], *FIGURES["causal_weights"]) for text in row}
    assert set(re.findall(r"(?<!\d)\d\.\d{4}(?!\d)", document)) == numbers | set(FIGURES["losses"].values())
    whole = set(re.findall(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", document))
    assert whole == {
        f"{number:,}"
        for number in (
            FIGURES["bert_words_and_layers"],
            FIGURES["bert"]["vocabulary"],
            *(n for n in FIGURES["tiny_parameters"].values() if n >= 1000),
        )
    }


# --- beyond the reference ----------------------------------------------------------------------------------------


def test_parameters_of_bert_are_those_of_the_model() -> None:
    encoder = EncoderConfig(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        norm="post",
        final_norm=False,
    )
    config = ModelConfig(
        encoder=encoder,
        text=TextConfig(vocab_size=30_522, max_position_embeddings=512, type_vocab_size=2),
        pooler=True,
    )
    with torch.device("meta"):
        model = Model(config, TokenEmbedding(config))
    assert sum(p.numel() for p in model.parameters()) == sum(bert_parameters(BERT_BASE).values()) == 109_482_240


@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, 4), (3, 2)])
def test_a_pair_follows_the_rule(n: int, m: int) -> None:
    tokens, segments = pair(["a"] * n, ["b"] * m)
    assert tokens == ["[CLS]", *"a" * n, "[SEP]", *"b" * m, "[SEP]"]
    assert tokens[n + 1] == tokens[n + m + 2] == "[SEP]"
    assert segments == [0] * (n + 2) + [1] * (m + 1)


def test_fates_are_drawn_80_10_10(text: Written) -> None:
    counts = np.bincount(actions(np.random.default_rng(0), 30_000), minlength=3)
    assert text[1].arrays["action_counts"].tolist() == [*counts.tolist(), 170_000]
    expected = np.array([24_000, 3_000, 3_000])
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected * (1 - expected / 30_000))).all()
    for count in counts:
        assert f"{count:,}" in text[0].report()


def test_selection_is_without_repetition() -> None:
    for seed in range(20):
        chosen = select(np.random.default_rng(seed)).tolist()
        assert chosen == sorted(set(chosen))
        assert len(chosen) == 3


# --- paper and page ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("width", [80, 120])
def test_every_check_matches_and_no_line_is_too_wide(walk: Callable[[Paper], Walk], width: int) -> None:
    paper = Paper(width=width, row=2)
    walk(paper)
    assert [check for check in paper.checks if not check.match] == []
    assert len(paper.checks) > 20
    assert [line for line in paper.lines if len(line) > width] == []
    assert "MATCH: False" not in paper.report()


def shown_by_hand() -> list[tuple[str, Step]]:
    return [
        (kind, step)
        for kind, tape in (("text", toy()), ("causal", toy(causal=True)), ("classifier", tiny_tape()))
        for step in tape.steps
        if step.operation not in ("rows", "split_heads", "concat_heads")
    ]


@pytest.mark.parametrize(("kind", "step"), shown_by_hand(), ids=lambda value: getattr(value, "name", value))
def test_a_changed_number_fails_its_check(kind: str, step: Step) -> None:
    tape = {"text": toy, "causal": lambda: toy(causal=True), "classifier": tiny_tape}[kind]()
    paper = Paper()
    show(paper, tape, [step])
    assert paper.checks
    assert all(check.match for check in paper.checks)
    array = tape.arrays[step.name].copy()
    array[..., 0, 0] += 1e-6
    tape.arrays[step.name] = array
    changed = Paper()
    show(changed, tape, [step])
    assert not all(check.match for check in changed.checks)
    assert "MATCH: False" in changed.report()


@pytest.mark.parametrize(("walk", "kind"), [(walk_text, "text"), (walk_classifier, "classifier")])
def test_a_page_can_replay_the_tape(walk: Callable[[Paper], Walk], kind: str) -> None:
    walked = walk(Paper())
    tape = walked.tape
    page = json.loads(json.dumps(as_page(walked)))
    assert page["kind"] == kind
    assert page["picture"]["kind"] == "sentence"
    assert len(page["picture"]["tokens"]) == len(page["picture"]["segments"]) == len(tape.positions)
    names = [name for value in walked.outputs.values() for name in (value if isinstance(value, list) else [value])]
    assert names
    assert {step["name"] for step in page["steps"]} >= set(names)
    assert {step["operation"] for step in page["steps"]} <= OPERATIONS.keys()


def test_the_switch_to_causal_changes_the_same_tape() -> None:
    np.testing.assert_array_equal(toy()["scaled_scores"], toy(causal=True)["scaled_scores"])
    assert (toy(causal=True)["attention"][np.triu_indices(4, 1)] == 0).all()


def test_the_classifiers_probability_is_of_its_classes() -> None:
    tape = tiny_tape()
    assert tape["probability"].shape == (1, N_CLASSES)
    assert tape["loss"].item() == pytest.approx(-np.log(tape["probability"][0, int(tape["label"][0])]))
