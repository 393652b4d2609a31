"""The top of a walkthrough's page: the input with what is hidden of it, the figures and the guesses."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bothways.walkthrough import Walk
from browser import Opener
from pages import channels_walk, replay

TALL = 92.0
"""Pixels of a channel, where there are few."""


def points(path: str) -> np.ndarray:
    """The corners of a drawn line [n 2]."""
    return np.array(re.findall(r"[ML](\S+?) ([\d.-]+)", path), dtype=float)


# --- a signal --------------------------------------------------------------------------------------------------------


def test_a_token_of_one_channel_is_drawn_and_hidden_alone(show: Opener) -> None:
    walk = channels_walk()
    opened = show(walk)
    opened.position(9).click()
    opened.position(10).click()  # channel 1, patch 4: one patch of that channel is no token
    rebuilt = replay(walk.tape, (3, 10), False)["rebuilt"]
    most = np.abs(walk.tape["signal"]).max()
    expected = [
        (from_sample + k, TALL * (channel + 0.5 - 0.42 * np.clip(rebuilt[place, k] / most, -1.15, 1.15)))
        for place, channel, from_sample in ((2, 0, 20), (9, 1, 40))
        for k in range(10)
    ]
    drawn = points(opened.page.locator("path.rebuilt").get_attribute("d") or "")
    np.testing.assert_allclose(drawn, expected, atol=0.00501)
    assert opened.page.locator("button.patch").count() == 17
    assert opened.position(10).get_attribute("aria-label") == "C1 p4, 6 to 6.5 s, masked"
    assert opened.position(11).get_attribute("aria-label") == "C1 p5, 6.5 to 7 s"


def test_names_stand_at_the_edges_and_never_in_the_cells(show: Opener) -> None:
    opened = show(channels_walk(), viewport={"width": 360, "height": 800})
    assert opened.page.locator(".plot button").all_inner_texts() == [""] * 17
    assert opened.page.locator(".patch-name").all_inner_texts() == [f"p{i}" for i in range(6)]
    assert opened.page.locator(".names span").all_inner_texts() == ["C0", "C1", "C2"]
    for texts in (".patch-name", ".ticks span"):
        boxes = [one.bounding_box() for one in opened.page.locator(texts).all()]
        for one, following in pairwise(boxes):
            assert one["x"] + one["width"] <= following["x"] + 0.5


def test_what_is_missing_is_no_token_and_no_line(show: Opener) -> None:
    walk = channels_walk()
    signal = walk.picture["signal"].copy()
    signal[1, 20:30] = np.nan
    opened = show(replace(walk, picture=walk.picture | {"signal": signal, "unit": "", "start_s": 4.125}))
    lines = [points(one.get_attribute("d") or "") for one in opened.page.locator("path.plain, path.faint").all()]
    x, y = np.concatenate([line for line in lines if len(line)]).T
    there = (x >= 20) & (x < 30)
    assert there.any()
    assert not (there & (y > TALL) & (y < 2 * TALL)).any()
    assert opened.page.locator(".plot .absent").count() == 1
    assert opened.page.locator(".plot .absent").get_attribute("title") == "C1 p2, 5.125 to 5.625 s, no token"
    assert opened.legend() == ["signal", "rebuilt", "no token: bad or missing", "masked"]
    assert opened.page.locator(".unit").inner_text() == f"±{np.nanmax(np.abs(signal)):.2f} (no unit)"
    assert opened.page.locator(".ticks span").first.inner_text() == "4.125"


def test_the_count_of_the_hidden_and_the_legend_follow(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    count = opened.page.locator(".tally")
    assert count.inner_text() == "2 of 8 hidden"
    assert opened.legend() == ["signal", "rebuilt", "masked"]
    opened.page.locator('#weights td[data-cell="4,2"]').hover()
    assert opened.legend() == ["signal", "rebuilt", "masked", "attended to"]
    opened.page.keyboard.press("Escape")
    for position in eeg.tape.masked:
        opened.position(position).click()
    assert count.inner_text() == "0 of 8 hidden"
    assert opened.legend() == ["signal"]


def test_what_is_replaced_or_kept_is_told_from_what_is_masked(show: Opener) -> None:
    walk = channels_walk()
    walk.tape.masked = (3, 9, 12)
    opened = show(walk, {"fates": {"3": "another's content: C0 p4", "9": "its own content"}})
    hidden = [opened.position(i) for i in walk.tape.masked]
    labels = [one.get_attribute("aria-label") for one in hidden]
    assert labels == [
        "C0 p2, 5 to 5.5 s, replaced: another's content: C0 p4",
        "C1 p3, 5.5 to 6 s, kept: its own content",
        "C2 p0, 4 to 4.5 s, masked",
    ]
    hatching = {one.evaluate("node => getComputedStyle(node).backgroundImage") for one in hidden}
    assert len(hatching) == 3
    new = ["masked", "replaced by another’s content", "kept: its own content stands there"]
    assert opened.legend()[-3:] == new
    opened.position(1).click()  # from now on [MASK] stands in for all
    assert [one.get_attribute("aria-label").split(", ")[-1] for one in hidden] == ["masked"] * 3
    assert opened.legend()[-1] == "masked"
    opened.page.get_by_role("button", name="reset").click()
    assert opened.legend()[-3:] == new


# --- a sentence ------------------------------------------------------------------------------------------------------


def test_what_is_not_known_stays_hidden(show: Opener, sentence: Walk) -> None:
    opened = show(sentence, {"fixed": [5]})
    fixed = opened.position(5)
    assert fixed.evaluate("node => node.tagName") == "SPAN"
    assert fixed.get_attribute("title") == "the, position 5, masked; it stays so, for what it hides is not known"
    opened.position(12).click()
    assert opened.page.evaluate("bothways.state.masked") == [5]
    opened.set(masked=[1])
    assert opened.page.evaluate("bothways.state.masked") == [1, 5]
    opened.page.get_by_role("button", name="reset").click()
    assert opened.page.evaluate("bothways.state.masked") == [5, 12]
    assert opened.page.locator(".guess h3").all_inner_texts() == ["Position 5", "Position 12truly “want”"]


def test_predictions_are_the_five_likeliest_tokens(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    likely = sentence.tape[sentence.outputs["predictions"]]
    for row, block in zip(likely, opened.page.locator(".guess").all(), strict=True):
        best = np.argsort(-row)[:5]
        assert block.locator("li span").all_inner_texts() == [f"word{i}" for i in best]
        assert block.locator("li b").all_inner_texts() == [f"{100 * row[i]:.1f} %" for i in best]
    truths = [f"truly “{sentence.tape.positions[i]}”" for i in sentence.tape.masked]
    assert opened.page.locator(".guess small").all_inner_texts() == truths


def test_rows_that_pad_the_vocabulary_are_not_listed(show: Opener, sentence: Walk) -> None:
    name = sentence.outputs["predictions"]
    best = np.argsort(-sentence.tape[name][0])
    words = ["" if i == best[0] else f"word{i}" for i in range(30)]
    opened = show(sentence, {"columns": {name: words}})
    listed = opened.page.locator(".guess").first.locator("li span").all_inner_texts()
    assert listed == [f"word{i}" for i in best[1:6]]


def test_small_probabilities_keep_their_digits(show: Opener, sentence: Walk) -> None:
    shown = show(sentence).page.evaluate("[0.25, 0.001, 0.0005, 0.00004, 3e-9].map(percent)")
    assert shown == ["25.0 %", "0.1 %", "0.05 %", "0.004 %", "3e−7 %"]


# --- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eeg", "sentence"])
def test_nothing_hidden_has_no_loss(show: Opener, request: pytest.FixtureRequest, name: str) -> None:
    walk = request.getfixturevalue(name)
    opened = show(walk)
    before = opened.page.locator("#figure-loss dd").first.inner_text()
    opened.set(masked=[])
    assert opened.page.locator("#figure-loss dd").all_inner_texts() == ["–", f"nothing hidden, before {before}"]
    loss = opened.card(walk.outputs["loss"])
    assert loss.locator(".made td[data-cell]").inner_text() == "–"
    loss.locator(".made td[data-cell]").hover()
    assert opened.page.locator("#dock-name").inner_text().endswith("= –")
    if name == "sentence":
        assert opened.page.locator("#guesses").inner_text() == "Nothing is hidden, so there is nothing to guess."
    opened.set(masked=list(walk.tape.masked))
    assert opened.figure("loss") == pytest.approx(walk.tape[walk.outputs["loss"]].item(), abs=6e-5)
    assert opened.page.locator("#figure-loss .before").inner_text() == ""


def test_a_probability_says_of_what(show: Opener, eeg: Walk, sentence: Walk) -> None:
    words = show(eeg, {"outputs": eeg.outputs | {"probability_of": "seizure"}}).page.locator("#figure-probability dt")
    assert words.inner_text() == "probability of seizure"
    opened = show(sentence)
    likeliest = []
    for masked in (sentence.tape.masked, (), (1, 2, 3)):
        opened.set(masked=list(masked))
        name = sentence.outputs["probability"]
        shares = replay(sentence.tape, masked, False)[name].ravel()
        words = opened.page.locator("#figure-probability dt").inner_text()
        assert words == f"probability of {['is next', 'random'][shares.argmax()]}"
        assert opened.figure("probability") == pytest.approx(shares.max(), abs=6e-5)
        likeliest.append(shares.argmax())
    assert 1 in likeliest
