"""The numbers of a walkthrough's page: each is explained, and all are NumPy's in every state."""

import numpy as np
import pytest

from bothways.walkthrough import Walk
from bothways.walkthrough.tape import ACTIVATIONS, OPERATIONS
from browser import Opener, assert_equal, number
from explained import displayed, explanations, from_lit
from pages import model_walk, operations_walk, replay

Q, K = "encoder.layers.0.attention.Q", "encoder.layers.0.attention.K"
WEIGHTS = "encoder.layers.0.attention.attention"


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
@pytest.mark.parametrize("head", [0, 1])
def test_every_number_of_every_operation_is_explained(show: Opener, head: int, causal: bool) -> None:
    opened = show(operations_walk())
    opened.set(causal=causal)
    opened.page.locator('[aria-label="Head"]:visible').last.select_option(str(head))
    tape = replay(opened.walk.tape, opened.walk.tape.masked, causal)
    steps = {step.name: step for step in tape.steps}
    found = explanations(opened)
    n_cells = sum(tape[name].size if tape[name].ndim < 3 else tape[name][0].size for name in steps)
    assert len(found) == n_cells
    for one in found:
        step = steps[one.step]
        if step.name == "mean_of_none":
            assert (one.shown, one.lines, one.terms) == ("–", ["the mean of no numbers"], [])
            continue
        value, lit = one.value(tape), one.lit_numbers(tape, step)
        about = f"{one.step} {one.cell}: {one.lines}"
        np.testing.assert_allclose(number(one.shown), value, rtol=0.06, atol=0.0051, err_msg=about)
        np.testing.assert_allclose(from_lit(step, one.cell[1], lit), value, rtol=1e-9, atol=1e-12, err_msg=about)
        sides = displayed(one, step, lit)
        np.testing.assert_allclose(sides[:-1], value, rtol=2e-3, atol=1e-3, err_msg=about)
        np.testing.assert_allclose(sides[-1], value, rtol=1e-4, atol=1e-6, err_msg=about)


# --- computing anew --------------------------------------------------------------------------------------------------


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
    opened.set(masked=list(masked), causal=causal)
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
        opened.set(masked=list(masked), causal=causal)
        assert_equal(opened.values(), replay(walk.tape, masked, causal))


@pytest.mark.parametrize("name", ["eeg_channels", "eeg_all_channels"])
def test_every_value_of_a_model_of_ours_equals_numpy(show: Opener, name: str) -> None:
    walk = model_walk(name)
    opened = show(walk)
    assert_equal(opened.values(), walk.tape)
    for masked, causal in [(walk.tape.masked, True), ((1, 3, 4), True), ((), False), (walk.tape.content, False)]:
        opened.set(masked=list(masked), causal=causal)
        assert_equal(opened.values(), replay(walk.tape, masked, causal))
    opened.page.get_by_role("button", name="reset").click()
    assert_equal(opened.values(), walk.tape)


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
    opened.set(masked=[2, 5, 6])
    names = opened.card("targets").locator(".made tbody th").all_inner_texts()
    assert names == ["p1", "p4", "p5"]
