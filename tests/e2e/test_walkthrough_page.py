"""The page of a walkthrough in a real browser, from disk: what it shows, and that its numbers are NumPy's."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from bothways.report import write_walkthrough
from bothways.walkthrough import Paper, Walk, as_page, layer_alone, walk_classifier, walk_eeg, walk_text
from bothways.walkthrough.tape import ACTIVATIONS, OPERATIONS, Tape
from pages import channels_walk, operations_walk, replay, sentence_walk

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium on the path, and there is none")

Q, K = "encoder.layers.0.attention.Q", "encoder.layers.0.attention.K"
WEIGHTS = "encoder.layers.0.attention.attention"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        quiet = ["background-networking", "component-update", "sync", "gpu"]
        arguments = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page in the browser, and all that it said and asked for."""

    page: Page
    walk: Walk
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def card(self, name: str) -> Locator:
        return self.page.locator(f'[data-step="{name}"]')

    def point(self, name: str, row: int, column: int) -> None:
        """Points at a cell of a step's result."""
        self.card(name).locator(f'.made td[data-cell="{row},{column}"]').hover()

    def lit(self, name: str, which: int) -> list[str]:
        """The cells that are lit in one matrix of a step."""
        cells = self.card(name).locator(".matrix").nth(which).locator("td.lit")
        return [cell.get_attribute("data-cell") or "" for cell in cells.all()]

    def figure(self, name: str) -> float:
        return number(self.page.locator(f"#figure-{name} dd").first.inner_text())

    def position(self, index: int) -> Locator:
        return self.page.locator(f'.picture [data-position="{index}"]')

    def values(self) -> dict[str, np.ndarray]:
        entries = "Object.entries(bothways.values).map(([name, x]) => [name, [x.shape, Array.from(x.data)]])"
        found = self.page.evaluate(f"() => Object.fromEntries({entries})")
        return {name: np.array(data, dtype=float).reshape(shape) for name, (shape, data) in found.items()}


def number(text: str) -> float:
    return float(text.replace("−", "-"))


@dataclass
class Opener:
    browser: Browser
    folder: Path
    opened: list[Opened] = field(default_factory=list)

    def __call__(self, walk: Walk, **context: Any) -> Opened:
        path = self.folder / f"{len(self.opened)}.html"
        write_walkthrough(path, as_page(walk))
        one = Opened(self.browser.new_context(**context).new_page(), walk)
        one.page.on("console", lambda message: one.said.append(message.text))
        one.page.on("pageerror", lambda problem: one.said.append(str(problem)))
        one.page.on("request", lambda request: one.asked.append(request.url))
        one.page.goto(path.as_uri())
        self.opened.append(one)
        return one


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens walks; whatever a test does there, nothing is fetched and nothing goes wrong."""
    opener = Opener(browser, tmp_path)
    yield opener
    for one in opener.opened:
        one.page.context.close()
        assert one.said == []
        assert [url for url in one.asked if not url.startswith(("file://", "data:"))] == []


@pytest.fixture(scope="module")
def eeg() -> Walk:
    return walk_eeg(Paper())


@pytest.fixture(scope="module")
def sentence() -> Walk:
    return sentence_walk()


def assert_equal(found: dict[str, np.ndarray], tape: Tape) -> None:
    assert found.keys() == tape.arrays.keys()
    for name, expected in tape.arrays.items():
        assert found[name].shape == expected.shape, name
        largest = max(1.0, np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-12 * largest, err_msg=name)


# --- what is shown -----------------------------------------------------------------------------------------------


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


def test_a_token_of_one_channel_is_drawn_and_hidden_alone(show: Opener) -> None:
    walk = channels_walk()
    opened = show(walk)
    opened.position(9).click()
    opened.position(10).click()  # channel 1, patch 4: one patch of that channel is no token
    rebuilt = replay(walk.tape, (3, 10), False)["rebuilt"]
    points = re.findall(r"[ML](\S+?) ([\d.-]+)", opened.page.locator("path.rebuilt").get_attribute("d"))
    row = 92.0  # pixels of a channel
    most = np.abs(walk.tape["signal"]).max()
    expected = [
        (from_sample + k, row * (channel + 0.5 - 0.42 * np.clip(rebuilt[place, k] / most, -1.15, 1.15)))
        for place, channel, from_sample in ((2, 0, 20), (9, 1, 40))
        for k in range(10)
    ]
    np.testing.assert_allclose(np.array(points, dtype=float), expected, atol=0.00501)
    assert opened.page.locator("button.patch").count() == 17
    label = opened.position(10).get_attribute("aria-label")
    assert label == "C1 p4, 6 to 6.50 s"


def test_later_layers_are_closed_and_open(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    layers = opened.page.locator("details", has=opened.page.get_by_role("heading", name="Layer", exact=False))
    assert [layer.get_attribute("open") is not None for layer in layers.all()] == [True, False]
    late = opened.card("encoder.layers.1.attention.Q")
    assert late.locator("canvas").count() == 0
    opened.page.get_by_text("Layer 1", exact=True).last.click()
    late.locator("canvas").first.wait_for()


def test_text_that_could_end_the_script_is_only_text(show: Opener, eeg: Walk) -> None:
    nasty = "</script><script>throw 1</script>\u2028<!-- & <b>bold</b>"
    opened = show(replace(eeg, title=nasty, lead=nasty))
    assert opened.page.locator("h1").text_content() == nasty
    assert opened.page.locator("[data-step]").count() == len(eeg.tape.steps)
    assert "\u2028" not in opened.page.locator("#data").text_content()


def test_predictions_are_the_five_likeliest_tokens(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    likely = sentence.tape[sentence.outputs["predictions"]]
    for row, block in zip(likely, opened.page.locator(".guess").all(), strict=True):
        best = np.argsort(-row)[:5]
        assert block.locator("li span").all_inner_texts() == [f"word{i}" for i in best]
        assert block.locator("li b").all_inner_texts() == [f"{100 * row[i]:.1f} %" for i in best]


# --- pointing ----------------------------------------------------------------------------------------------------


def test_a_cell_lights_its_row_and_column_and_shows_their_products(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    opened.point(Q, 2, 3)
    step = next(step for step in eeg.tape.steps if step.name == Q)
    x, w = (eeg.tape[name] for name in step.inputs)
    products = [number(one) for one in opened.page.locator("#dock .term b").all_inner_texts()]
    np.testing.assert_allclose(products, x[2] * w[:, 3], atol=6e-5)
    assert number(opened.page.locator("#dock .result").inner_text()) == pytest.approx(eeg.tape[Q][2, 3], abs=1e-6)
    assert opened.lit(Q, 0) == [f"2,{k}" for k in range(8)]
    assert opened.lit(Q, 1) == [f"{k},3" for k in range(8)]
    assert opened.page.locator("td.lit").count() == 16
    assert opened.card(Q).locator("td.at").get_attribute("data-cell") == "2,3"


def test_a_score_comes_from_two_rows(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    scores = "encoder.layers.0.attention.raw_scores"
    opened.card(scores).get_by_label("Head", exact=True).select_option("1")
    opened.point(scores, 4, 1)
    assert opened.lit(scores, 0) == [f"4,{k}" for k in range(4)]
    assert opened.lit(scores, 1) == [f"{k},1" for k in range(4)]  # K is shown turned, its row is a column
    q, k = eeg.tape[f"{Q}_heads"][1, 4], eeg.tape[f"{K}_heads"][1, 1]
    products = [number(one) for one in opened.page.locator("#dock .term b").all_inner_texts()]
    np.testing.assert_allclose(products, q * k, atol=6e-5)


def test_attention_shows_where_a_row_looks(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    opened.page.locator('#weights td[data-cell="4,2"]').hover()
    shares = eeg.tape[WEIGHTS][0, 4]
    tints = [
        number(opened.position(i).evaluate("node => node.style.getPropertyValue('--share')")[:-1]) for i in range(9)
    ]
    np.testing.assert_allclose(tints, 100 * shares / shares.max(), rtol=1e-9)
    assert "asking" in (opened.position(4).get_attribute("class") or "")
    best = opened.page.locator("#row-shares li b").all_inner_texts()
    assert best == [f"{share:.3f}" for share in sorted(shares)[:0:-1]]


def test_long_sums_are_abbreviated_in_the_middle(show: Opener, sentence: Walk) -> None:
    opened = show(sentence)
    heat = opened.card(Q).locator(".made .heat")
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    assert box
    heat.hover(position={"x": box["width"] * 3.5 / 24, "y": box["height"] * 2.5 / 18})
    assert opened.page.locator("#dock-name").inner_text().startswith("Q[cat, 3] = ")
    value = sentence.tape[Q][2, 3]
    assert number(opened.page.locator("#dock .result").inner_text()) == pytest.approx(value, abs=1e-5)
    terms = [number(one) for one in opened.page.locator("#dock .term b").all_inner_texts()]
    assert len(terms) == 8 + 1 + 4 + 1  # first, what lies between, last, bias
    assert sum(terms) == pytest.approx(value, abs=1e-3)
    assert "… 12 more …" in opened.page.locator("#dock").inner_text()
    assert opened.card(Q).locator(".heat .lit").count() == 3
    assert opened.card(Q).locator(".heat .at").count() == 1


@pytest.mark.parametrize("causal", [False, True])
def test_every_number_of_every_operation_is_explained(show: Opener, causal: bool) -> None:
    opened = show(operations_walk())
    opened.page.evaluate("causal => bothways.set({causal})", causal)
    explained = opened.page.evaluate(
        """() => [...document.querySelectorAll(".made td[data-cell]")].map((cell) => {
          cell.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
          const card = cell.closest("[data-step]");
          return [card.dataset.step, document.querySelector("#dock .result").textContent,
            card.querySelectorAll("td.lit").length, document.querySelector("#dock-body").textContent];
        })"""
    )
    arrays = replay(opened.walk.tape, opened.walk.tape.masked, causal).arrays
    steps = {name for name, *_ in explained}
    assert steps == {step.name for step in opened.walk.tape.steps} - {"none"}  # a matrix without rows has no cells
    for name, result, lit, text in explained:
        assert lit > 0 or name == "mean_of_none", name
        assert "undefined" not in text, (name, text)
        assert "NaN" not in text, (name, text)
        assert np.isclose(arrays[name], number(result), rtol=1e-4, atol=1e-6).any(), name


# --- computing anew ----------------------------------------------------------------------------------------------


def test_every_operation_occurs() -> None:
    steps = operations_walk().tape.steps
    assert {step.operation for step in steps} == OPERATIONS.keys()
    assert {step.options["kind"] for step in steps if step.operation == "activation"} == ACTIVATIONS.keys()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [None, (2, 4), (), (1, 2, 3, 4)])
def test_every_operation_equals_numpy(show: Opener, masked: tuple[int, ...] | None, causal: bool) -> None:
    walk = operations_walk()
    masked = walk.tape.masked if masked is None else masked
    opened = show(walk)
    opened.page.evaluate("state => bothways.set(state)", {"masked": list(masked), "causal": causal})
    assert_equal(opened.values(), replay(walk.tape, masked, causal))


def test_erf_is_exact_to_the_last_digits(show: Opener) -> None:
    opened = show(operations_walk())
    x = np.linspace(-7, 7, 2801)
    given = "[{shape: [x.length], data: Float64Array.from(x)}]"
    script = f"x => Array.from(bothways.compute('activation', {given}, {{kind: 'gelu'}}).data)"
    found = opened.page.evaluate(script, x.tolist())
    np.testing.assert_allclose(found, ACTIVATIONS["gelu"](x), rtol=1e-15, atol=2e-15)


@pytest.mark.parametrize("name", ["eeg", "sentence"])
def test_every_value_of_every_step_equals_numpy(show: Opener, request: pytest.FixtureRequest, name: str) -> None:
    walk = request.getfixturevalue(name)
    opened = show(walk)
    assert_equal(opened.values(), walk.tape)
    for masked, causal in [
        (walk.tape.masked, True),
        ((2, 6), True),
        ((2, 3, 6), False),
        ((), False),
        (walk.tape.masked, False),
    ]:
        opened.page.evaluate("state => bothways.set(state)", {"masked": list(masked), "causal": causal})
        assert_equal(opened.values(), replay(walk.tape, masked, causal))


def test_the_switch_changes_attention_reconstruction_and_loss(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    rebuilt = opened.page.locator("path.rebuilt").get_attribute("d")
    switch = opened.page.get_by_role("switch", name="causal mask")
    assert switch.get_attribute("aria-checked") == "false"
    switch.click()
    assert switch.get_attribute("aria-checked") == "true"
    causal = replay(eeg.tape, eeg.tape.masked, True)
    assert opened.figure("loss") == pytest.approx(causal[eeg.outputs["loss"]].item(), abs=6e-5)
    assert opened.figure("probability") == pytest.approx(causal[eeg.outputs["probability"]].item(), abs=6e-5)
    assert opened.page.locator("#figure-loss .before").inner_text() == "before 1.3559"
    cells = opened.page.locator("#weights td[data-cell]").all_inner_texts()
    np.testing.assert_allclose([number(one) for one in cells], causal[WEIGHTS][0].ravel(), atol=0.00501)
    assert opened.page.locator("path.rebuilt").get_attribute("d") != rebuilt
    opened.page.get_by_role("button", name="reset").click()
    assert opened.figure("loss") == pytest.approx(1.3559, abs=1e-9)
    assert opened.page.locator("path.rebuilt").get_attribute("d") == rebuilt


def test_other_positions_can_be_masked(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    first = eeg.tape.masked[0]
    opened.position(1).click()
    opened.position(first).click()
    masked = sorted({*eeg.tape.masked, 1} - {first})
    assert opened.page.evaluate("bothways.state.masked") == masked
    again = replay(eeg.tape, masked, False)
    assert opened.figure("loss") == pytest.approx(again[eeg.outputs["loss"]].item(), abs=6e-5)
    assert opened.position(1).get_attribute("aria-pressed") == "true"
    assert opened.position(first).get_attribute("aria-pressed") == "false"
    assert opened.position(0).evaluate("node => node.tagName") == "SPAN"  # [CLS] carries no content


def test_names_of_masked_rows_follow(show: Opener, eeg: Walk) -> None:
    opened = show(eeg)
    opened.page.evaluate("bothways.set({masked: [2, 5, 6]})")
    names = opened.card("targets").locator(".made tbody th").all_inner_texts()
    assert names == ["p1", "p4", "p5"]


# --- keyboard, width, light and dark -----------------------------------------------------------------------------


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
