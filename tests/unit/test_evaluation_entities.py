"""Tags to entities and their scores: literal cases, and seqeval for any tags."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from seqeval import scheme as theirs
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as seqeval_default
from seqeval.metrics.v1 import precision_recall_fscore_support as seqeval_strict

from bothways.errors import UserError
from bothways.evaluation import convert_tags, entities_of, entity_metrics, recognise_scheme
from bothways.tags import SCHEMES, parse_tag

WANTED = [("ORG", 0, 2), ("ORG", 2, 3), ("PER", 4, 6), ("PER", 6, 7)]
SPELLED = {
    "IOB1": "I-ORG I-ORG B-ORG O I-PER I-PER B-PER O",
    "IOB2": "B-ORG I-ORG B-ORG O B-PER I-PER B-PER O",
    "BIOES": "B-ORG E-ORG S-ORG O B-PER E-PER S-PER O",
    "BILOU": "B-ORG L-ORG U-ORG O B-PER L-PER U-PER O",
}
THEIRS = {"IOB1": theirs.IOB1, "IOB2": theirs.IOB2, "BIOES": theirs.IOBES, "BILOU": theirs.BILOU}
FIGURES = ("precision", "recall", "f1", "support")


def tags_of(letters: str) -> st.SearchStrategy[str]:
    typed = [f"{letter}-{kind}" for letter in letters for kind in ("x", "y", "z-z")]
    return st.sampled_from(["O", *letters, *typed])


@st.composite
def pairs(draw: st.DrawFn, letters: str) -> tuple[list[list[str]], list[list[str]]]:
    """True and predicted tags of some sentences, often the same."""
    tag = tags_of(letters)
    truth = draw(st.lists(st.lists(tag, max_size=8), min_size=1, max_size=5))
    return truth, [[draw(st.one_of(st.just(one), tag)) for one in tags] for tags in truth]


def assert_equal(ours: dict[str, Any], function: Any, *tags: list[list[str]], **options: Any) -> None:
    each = function(*tags, average=None, zero_division=0, **options)
    assert [[one[key] for key in FIGURES] for one in ours["types"].values()] == np.array(each, object).T.tolist()
    for average in ("micro", "macro", "weighted"):
        wanted = function(*tags, average=average, zero_division=0, **options)
        assert tuple(ours[average][key] for key in FIGURES) == wanted


@pytest.mark.parametrize("scheme", SCHEMES)
def test_four_entities_in_every_scheme(scheme: str) -> None:
    tags = SPELLED[scheme].split()
    found = recognise_scheme([tags])
    assert (found.name, found.n_broken, found.ambiguous) == (scheme, 0, False)
    assert entities_of(tags) == WANTED
    assert [convert_tags(tags, other) for other in SCHEMES] == [SPELLED[other].split() for other in SCHEMES]
    if scheme != "IOB1":  # of which seqeval's strict reading leaves out what begins where another type ends
        assert entities_of(tags, "strict", scheme) == WANTED


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("O O", ("IOB2", 0, True)),
        ("I-x B-x O", ("IOB1", 0, False)),
        ("B-x I-x O I-x", ("IOB2", 1, True)),
        ("B-x I-x O I-x I-y", ("IOB1", 1, True)),
        ("B-x I-x E-x O S-y", ("BIOES", 0, False)),
        ("B-x I-x O S-y", ("BIOES", 2, False)),
        ("I E", ("BIOES", 2, False)),
        ("B I L O U", ("BILOU", 0, False)),
    ],
)
def test_a_scheme_is_named_and_its_doubts_told(tags: str, wanted: tuple[str, int, bool]) -> None:
    found = recognise_scheme([[], tags.split()])
    assert found[:3] == wanted
    assert (not found.ambiguous and not found.n_broken) or any(
        word in found.said for word in ("break", "neither", "the same in both")
    )


@pytest.mark.parametrize("tag", ["B_PER", "I-", "PER", "o", "B- PER", "", "-X-", "BB-x", "b-x", "B-x "])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(UserError, match="expected a tag such as"):
        parse_tag(tag)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="E or S of BIOES beside L or U"):
        recognise_scheme([["S-x"], ["U-x"]])
    with pytest.raises(UserError, match=r"expected tags of IOB2 .*'E-x'"):
        entities_of(["B-x", "E-x"], "strict", "IOB2")
    with pytest.raises(UserError, match="scheme: expected IOB1"):
        convert_tags(["O"], "IOB")
    with pytest.raises(UserError, match="rule: expected default or strict"):
        entities_of(["O"], "lenient")
    with pytest.raises(ValueError, match="as many words"):
        entity_metrics([["O"]], [["O", "O"]])
    assert entities_of(["B", "E"], "strict", "iobes") == [("_", 0, 2)]
    assert convert_tags(["B", "E"], "BIO") == ["B", "I"]


def test_scores_worked_out_by_hand() -> None:
    """Of three entities one is found, one has another type, and a fourth is invented."""
    truth = [["B-x", "I-x", "O", "B-y"], ["B-x", "O"]]
    found = [["B-x", "I-x", "O", "B-x"], ["O", "B-y"]]
    told = entity_metrics(truth, found)
    assert told["types"] == {
        "x": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2, "n_predicted": 2, "n_correct": 1},
        "y": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1, "n_predicted": 1, "n_correct": 0},
    }
    assert told["micro"] == {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "support": 3}
    assert told["macro"] == {"precision": 0.25, "recall": 0.25, "f1": 0.25, "support": 3}
    assert told["weighted"]["f1"] == pytest.approx(1 / 3)
    assert (told["rule"], told["scheme"], told["predicted_scheme"]) == ("default", "IOB2", "IOB2")
    assert "begins with B" in told["scheme_said"]
    assert "begins with B" in told["predicted_scheme_said"]
    assert (told["word_accuracy"], told["n_words"], told["n_sentences"]) == (0.5, 6, 2)
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize("rule", ["default", "strict"])
def test_no_entity_is_0_and_no_warning(rule: str) -> None:
    told = entity_metrics([["O"], []], [["O"], []], rule=rule)
    assert told["micro"] == told["macro"] == told["weighted"] == dict.fromkeys(FIGURES, 0)
    assert "the same in both" in told["scheme_said"]
    assert entity_metrics([], [])["word_accuracy"] == 0.0


def test_iob1_against_iob2(shared: Path) -> None:
    folder = shared / "cases" / "text"
    files = [(folder / f"b62_iob{n}.conll").read_text() for n in (1, 2)]
    one, two = ([[line.split("\t")[1] for line in file.split("\n") if line]] for file in files)
    told = entity_metrics(one, two)
    assert (told["scheme"], told["predicted_scheme"], told["micro"]["f1"]) == ("IOB1", "IOB2", 1.0)
    assert [entities_of(tags[0]) for tags in (one, two)] == [WANTED, WANTED]
    pair = json.loads((folder / "b62_strict_pred.json").read_text())
    strict = entity_metrics([pair["true"]], [pair["pred"]], rule="strict")
    assert (strict["micro"]["f1"], strict["scheme"], strict["rule"]) == (0.0, "IOB2", "strict")
    assert strict["predicted_scheme_said"] == "IOB2: strictly, as the truth is"
    asked = entity_metrics([pair["true"]], [pair["pred"]], rule="strict", scheme="bio")
    assert asked["scheme_said"] == "IOB2: strictly, as asked for"
    assert entity_metrics([pair["true"]], [pair["pred"]])["micro"]["f1"] == 1.0


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
@settings(max_examples=60)
def test_strict_equals_seqeval(scheme: str, data: st.DataObject) -> None:
    letters = scheme.replace("O", "").replace("1", "").replace("2", "")
    truth, found = data.draw(pairs(letters))
    ours = entity_metrics(truth, found, rule="strict", scheme=scheme)
    assume(ours["types"])  # seqeval's mean over no type is NaN, with a warning
    assert_equal(ours, seqeval_strict, truth, found, scheme=THEIRS[scheme])


@given(data=st.data())
@settings(max_examples=150)
def test_default_equals_seqeval(data: st.DataObject) -> None:
    truth, found = data.draw(pairs("BIES"))
    ours = entity_metrics(truth, found)
    assume(ours["types"])
    assert_equal(ours, seqeval_default, truth, found)


@given(tags=st.lists(tags_of("BIES"), max_size=12), scheme=st.sampled_from(SCHEMES))
def test_conversion_keeps_the_entities(tags: list[str], scheme: str) -> None:
    made = convert_tags(tags, scheme)
    assert entities_of(made) == entities_of(tags)
    assert convert_tags(made, scheme) == made
    if entities_of(tags) and scheme in ("IOB2", "BIOES"):
        assert entities_of(made, "strict", scheme) == entities_of(tags)
    assert recognise_scheme([made]).n_broken == 0
