"""Where sentences end, and that nothing is lost between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.text import split_sentences

SENTENCES = [
    ["The cat sat.", "It was good!", "Was it?", "Yes."],
    ["Mr. Smith met Dr. J. R. R. Tolkien in the U.S. Senate.", "They spoke at 3.5 p.m.", "He left."],
    ["It cost 3.50 dollars.", "See Fig. 3 and No. 5 of Smith et al. 2010.", "He said no.", "Then he left."],
    ['He said "Stop!" and ran.', '"Why?" she asked.', "“No.”", "(So it was.)", "Good."],
    ["He left...", "Then snow fell… and fell.", "Wait . . . what?!", "Ok."],
    ["我来了。", "你好吗？", "「好。」", "他说！", "价３．５元。"],
    ["1. First point.", "2. Second point.", "A. Third."],
    ["So do I.", "He does, i.e. Always does."],
    ["¿Cómo?", "¡Bien!", "Été.", "Über alles.", "42 is it.", "🙂 is one.", "क्या है।", "हाँ।"],
]


@pytest.mark.parametrize("sentences", SENTENCES)
def test_sentences_in_one_line(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("\n\n".join(sentences)) == sentences


def test_text_without_capitals() -> None:
    assert split_sentences("a film . it is good . very good !") == ["a film .", "it is good .", "very good !"]
    assert split_sentences("A film . it is good .") == ["A film . it is good ."]


def test_line_ends_in_running_text() -> None:
    wrapped = (
        "Hard wrapped text that goes\nover several lines of One\nsame width. And then it\nends.\nTitle\nNext sentence."
    )
    assert split_sentences(wrapped) == [
        "Hard wrapped text that goes over several lines of One same width.",
        "And then it ends.",
        "Title",
        "Next sentence.",
    ]
    long = "A line as long as this is a paragraph, " * 5
    assert split_sentences(f"{long}\n{long}\nand so on") == [long.strip(), f"{long}and so on"]


def test_lines_with_white_space_alone() -> None:
    assert split_sentences("One\n \t\ntwo\u00a0 three\n\n\n") == ["One", "two three"]
    assert split_sentences("") == split_sentences(" \n\t\n") == []


def test_long_runs_take_no_longer() -> None:
    """Of marks, and of abbreviations: each place is looked at once."""
    assert len(split_sentences("." * 200_000 + "a")) == 1
    assert len(split_sentences("Dr. " * 50_000)) == 1


@given(st.text(st.sampled_from("aB7.!?…\"'”()。」 \n\t\r\u2028\x1c猫é🙂.Dr") | st.characters(), max_size=80))
def test_no_character_but_white_space_is_lost(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(one == " ".join(one.split()) != "" for one in sentences)
