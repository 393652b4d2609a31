"""The page of a walkthrough in a real browser, from disk: what it shows, and how it is moved about in."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bothways.walkthrough import Paper, Walk, layer_alone, walk_classifier, walk_text
from browser import Opener, assert_equal, number
from pages import replay

Q = "encoder.layers.0.attention.Q"
WEIGHTS = "encoder.layers.0.attention.attention"


def test_everything_is_there(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    page = opened.page
    assert page.title() == eeg.title == page.locator("h1").inner_text()
    shown = [card.get_attribute("data-step") for card in page.locator("[data-step]").all()]
    assert shown == [step.name for step in eeg.tape.steps]
    assert page.locator("[data-step] .made").count() == len(shown)  # the only layer is open, so all are built
    assert page.locator(".patch").count() == 8
    assert page.locator(".patch.masked").count() == len(eeg.tape.masked)
    assert page.locator("path.rebuilt").get_attribute("d").count("M") == 2 * len(eeg.tape.masked)
    assert opened.figure("loss") == pytest.approx(1.3559, abs=1e-9)
    assert opened.figure("probability") == pytest.approx(0.6137, abs=1e-9)
    cells = opened.card(Q).locator(".made td[data-cell]").all_inner_texts()
    np.testing.assert_allclose([number(one) for one in cells], eeg.tape[Q].ravel(), atol=0.00501)


@pytest.mark.parametrize("make", [walk_text, walk_classifier])
def test_the_other_references_are_shown_too(show: Opener, make: Any) -> None:
    walk = make(Paper())
    assert_equal(show(walk).values(), walk.tape)


def test_one_layer_alone_is_shown(show: Opener, eeg: Walk) -> None:
    opened = show(layer_alone(eeg, 0))
    assert_equal(opened.values(), replay(opened.walk.tape, opened.walk.tape.masked, False))
    assert opened.page.locator(".patch.masked").count() == 2
    assert opened.page.locator("button.patch").count() == 0  # nothing here depends on what is hidden


def test_later_layers_are_closed_and_open(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    layers = opened.page.locator("details", has=opened.page.get_by_role("heading", name="Layer", exact=False))
    assert [layer.get_attribute("open") is not None for layer in layers.all()] == [True, False]
    late = opened.card("encoder.layers.1.attention.Q")
    assert late.locator("canvas").count() == 0
    opened.page.get_by_text("Layer 1", exact=True).last.click()
    late.locator("canvas").first.wait_for()


def test_a_name_leads_to_its_step(show: Opener, sentence: Walk) -> None:
    opened = show(sentence, reduced_motion="reduce")  # else it scrolls there slowly
    last = opened.card("encoder.layers.1.output")
    assert not last.is_visible()
    opened.card("heads.mlm.rows").get_by_role("link", name="layers.1.output").click()
    assert last.locator("h4").evaluate("node => node === document.activeElement")
    assert last.locator(".made canvas").is_visible()
    box = last.bounding_box()
    assert box
    assert 0 <= box["y"] < opened.page.viewport_size["height"]


def test_attention_of_a_layer_and_head_is_chosen(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    opened.page.locator("#head").select_option("1")
    opened.page.get_by_label("Layer", exact=True).select_option("1")  # the head stays
    first = sentence.tape.masked[0]
    shares = sentence.tape["encoder.layers.1.attention.attention"][1, first]
    assert opened.page.locator("#row-name").inner_text() == f"{sentence.tape.positions[first]} (masked) attends to"
    bars = opened.page.locator("#row-shares li")
    best = np.argsort(-shares)[:8]
    assert bars.locator("span").all_inner_texts() == [sentence.tape.positions[i] for i in best]
    assert bars.locator("b").all_inner_texts() == [f"{shares[i]:.3f}" for i in best]
    widths = bars.evaluate_all("nodes => nodes.map(node => parseFloat(node.style.getPropertyValue('--share')))")
    np.testing.assert_allclose(widths, 100 * shares[best], rtol=1e-6)  # the whole width is all attention


def assert_signs(colours: np.ndarray, values: np.ndarray) -> None:
    clear = np.abs(values) > 0.3
    warm = np.sign(colours[..., 0] - colours[..., 2])  # red less blue
    assert set(np.sign(values[clear])) == {-1, 1}
    np.testing.assert_array_equal(warm[clear], np.sign(values)[clear])


def test_positive_numbers_are_orange_and_negative_ones_blue(show: Opener, eeg: Walk, sentence: Walk) -> None:
    read = (
        "nodes => nodes.map(node => getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number))"
    )
    cells = show(eeg).card(Q).locator(".made td[data-cell]")
    assert_signs(np.array(cells.evaluate_all(read)).reshape(9, 8, 3), eeg.tape[Q])
    canvas = show(sentence).card(Q).locator(".made canvas")
    pixels = canvas.evaluate("node => [...node.getContext('2d').getImageData(0, 0, node.width, node.height).data]")
    assert_signs(np.array(pixels).reshape(18, 24, 4), sentence.tape[Q])


def test_text_that_could_end_the_script_is_only_text(show: Opener, eeg: Walk) -> None:
    nasty = "</script><script>throw 1</script>\u2028<!-- & <b>bold</b>"
    opened = show(replace(eeg, title=nasty, lead=nasty))
    assert opened.page.locator("h1").text_content() == nasty
    assert opened.page.locator("[data-step]").count() == len(eeg.tape.steps)
    assert "\u2028" not in opened.page.locator("#data").text_content()


def test_the_keyboard_does_it_all(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    page, keys = opened.page, opened.page.keyboard
    reached = []
    for _ in range(8):
        keys.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
    assert reached[:3] == ["skip", "theme", "causal"]
    assert sum("patch" in one for one in reached) == 1  # the patches are one stop

    page.locator("#causal").focus()
    keys.press("Space")
    assert page.evaluate("bothways.state.causal") is True
    keys.press("Enter")
    assert page.evaluate("bothways.state.causal") is False

    keys.press("Tab")  # reset is disabled again: on to the patches
    assert page.evaluate("document.activeElement.dataset.position") == "1"
    keys.press("ArrowRight")
    keys.press("Enter")
    assert page.evaluate("bothways.state.masked") == sorted({*eeg.tape.masked, 2})
    keys.press("Space")
    assert page.evaluate("bothways.state.masked") == list(eeg.tape.masked)
    assert page.evaluate("document.activeElement.dataset.position") == "2"

    cell = opened.card(Q).locator(".made td[tabindex='0']")
    assert cell.count() == 1
    cell.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        keys.press(key)
    assert page.evaluate("document.activeElement.dataset.cell") == "2,2"
    assert opened.lit(Q, 0) == [f"2,{k}" for k in range(8)]
    assert opened.lit(Q, 1) == [f"{k},2" for k in range(8)]
    assert number(page.locator("#dock .result").inner_text()) == pytest.approx(eeg.tape[Q][2, 2], abs=1e-6)
    assert opened.card(Q).locator(".made td[tabindex='0']").count() == 1
    keys.press("End")
    assert page.evaluate("document.activeElement.dataset.cell") == "2,7"
    keys.press("Escape")
    assert page.locator("td.lit").count() == 0
    assert page.locator("#dock.open").count() == 0


def test_heat_maps_are_read_by_keyboard(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    opened.card(Q).locator(".made .heat").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "PageDown"):
        opened.page.keyboard.press(key)
    assert opened.page.locator("#dock-name").inner_text().startswith(f"Q[{sentence.tape.positions[11]}, 2] = ")
    assert number(opened.page.locator("#dock .result").inner_text()) == pytest.approx(sentence.tape[Q][11, 2], abs=1e-5)


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("name", ["eeg", "sentence"])
def test_the_body_never_scrolls_sideways(show: Opener, request: pytest.FixtureRequest, name: str, width: int) -> None:
    opened = show(request.getfixturevalue(name), viewport={"width": width, "height": 800})
    opened.page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    opened.page.wait_for_timeout(200)
    first = opened.card(Q).locator(".made td[data-cell], .made .heat").first
    first.hover()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    dock = opened.page.locator("#dock").bounding_box()
    assert dock
    assert dock["x"] >= 0
    assert dock["x"] + dock["width"] <= width


def test_light_and_dark(show: Opener, sentence: Walk) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    picture = f"""document.querySelector('[data-step="{WEIGHTS}"] .made canvas').toDataURL()"""
    opened = show(sentence, color_scheme="dark", reduced_motion="reduce")
    toggle = opened.page.locator("#theme")
    dark, dark_picture = opened.page.evaluate(ground), opened.page.evaluate(picture)
    assert toggle.get_attribute("aria-pressed") == "true"
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "false"
    light = show(sentence, color_scheme="light").page
    assert opened.page.evaluate(ground) == light.evaluate(ground) != dark
    assert opened.page.evaluate(picture) == light.evaluate(picture) != dark_picture
    assert opened.page.locator("#dock").evaluate("node => getComputedStyle(node).transitionProperty") == "none"
