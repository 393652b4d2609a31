"""Laws of the encoder in float64: one function however it is computed, and no position in it."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bothways.config import EncoderConfig
from bothways.encoder import Encoder

EXACT = {"rtol": 0.0, "atol": 1e-10}


def config_of(norm: str, final: bool, gated: bool, act: str, bias: bool) -> EncoderConfig:
    return EncoderConfig(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        hidden_act=act,
        gated=gated,
        norm=norm,
        final_norm=final,
        qkv_bias=bias,
        linear_bias=bias,
        hidden_dropout_prob=0.0,
    )


FORMS = {
    f"{norm}{'-final' * final}{'-gated' * gated}-{act}{'-bias' * bias}": config_of(norm, final, gated, act, bias)
    for (norm, final), gated, (act, bias) in itertools.product(
        [("post", False), ("pre", False), ("pre", True)],
        [False, True],
        [("gelu", True), ("gelu_tanh", False), ("relu", False), ("silu", True)],
    )
}
every_form = pytest.mark.parametrize("form", FORMS)
some_forms = st.sampled_from(sorted(FORMS))
LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def encoder_of(form: str, seed: int = 0) -> Encoder:
    """An encoder in which no weight or bias is 0 or 1."""
    encoder = Encoder(FORMS[form]).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return encoder


def batch_of(lengths: list[int], seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(len(lengths), max(lengths), 12, generator=generator, dtype=torch.float64)
    return hidden, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def written_out(encoder: Encoder, on: bool) -> Encoder:
    for layer in encoder.layers:
        layer.attention.written_out = on
    return encoder


@every_form
@pytest.mark.parametrize("lengths", [[5, 5], [5, 1, 3]], ids=["whole", "padded"])
def test_fused_is_written_out(form: str, lengths: list[int]) -> None:
    encoder = encoder_of(form)
    hidden, mask = batch_of(lengths)
    given_mask = None if len(set(lengths)) == 1 else mask
    results = []
    for on in (False, True):
        encoder.zero_grad()
        values = written_out(encoder, on)(hidden, given_mask).values
        values.square().sum().backward()
        results.append([values.detach(), *(p.grad.clone() for p in encoder.parameters())])
    for fused, step_by_step in zip(*results):
        torch.testing.assert_close(fused, step_by_step, rtol=1e-10, atol=1e-10)


@every_form
def test_each_sequence_of_a_padded_batch_is_itself(form: str) -> None:
    encoder = encoder_of(form)
    lengths = [4, 6, 1, 3]
    hidden, mask = batch_of(lengths)
    together = encoder(hidden, mask)
    alone = [encoder(hidden[i : i + 1, :n]).values for i, n in enumerate(lengths)]
    torch.testing.assert_close(together.values, torch.cat(alone), **EXACT)
    torch.testing.assert_close(together.cls(), torch.stack([values[0] for values in alone]), **EXACT)


@every_form
def test_asked_for_rows_are_the_rows_of_the_whole(form: str) -> None:
    encoder = encoder_of(form)
    hidden, mask = batch_of([4, 6, 2])
    asked = torch.zeros_like(mask)
    asked[0, [0, 3]] = asked[1, 0:5] = asked[2, 0] = True
    asked[2, 4] = True  # padding: left out
    results = []
    for rows in (None, asked):
        encoder.zero_grad()
        leaf = hidden.clone().requires_grad_()
        values = encoder(leaf, mask, rows).take(asked & mask)
        (values * torch.arange(1, 1 + len(values))[:, None]).sin().sum().backward()
        results.append([values.detach(), leaf.grad, *(p.grad.clone() for p in encoder.parameters())])
    assert len(results[0][0]) == 8
    for whole, pruned in zip(*results):
        torch.testing.assert_close(whole, pruned, rtol=1e-10, atol=1e-10)


@given(LENGTHS, some_forms, st.integers(0, 2**31), st.data())
def test_any_rows_of_any_batch(lengths: list[int], form: str, seed: int, data: st.DataObject) -> None:
    encoder = encoder_of(form, seed)
    hidden, mask = batch_of(lengths, seed)
    flags = data.draw(st.lists(st.booleans(), min_size=mask.numel(), max_size=mask.numel()))
    asked = torch.tensor(flags).view(mask.shape)
    with torch.no_grad():
        whole, pruned = encoder(hidden, mask), encoder(hidden, mask, asked)
        step_by_step = written_out(encoder, True)(hidden, mask, asked)
    torch.testing.assert_close(pruned.values, whole.take(asked & mask), **EXACT)
    torch.testing.assert_close(pruned.values, step_by_step.values, **EXACT)
    assert torch.equal(pruned.selected, asked & mask)


@given(LENGTHS, some_forms, st.integers(0, 2**31))
def test_what_stands_in_the_padding_does_not_matter(lengths: list[int], form: str, seed: int) -> None:
    encoder = encoder_of(form, seed)
    hidden, mask = batch_of(lengths, seed)
    other = torch.where(mask[..., None], hidden, torch.full_like(hidden, 1e6))
    nothing = torch.where(mask[..., None], hidden, torch.full_like(hidden, torch.nan))
    with torch.no_grad():
        expected = encoder(hidden, mask).values
        assert torch.equal(encoder(other, mask).values, expected)
        assert torch.equal(encoder(nothing, mask).values, expected)


@given(st.integers(1, 7), some_forms, st.integers(0, 2**31))
def test_a_permutation_goes_through(length: int, form: str, seed: int) -> None:
    encoder = encoder_of(form, seed)
    hidden, _ = batch_of([length, length], seed)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        before = encoder(hidden).values.view(2, length, -1)
        after = encoder(hidden[:, order]).values.view(2, length, -1)
    torch.testing.assert_close(after, before[:, order], **EXACT)


@given(LENGTHS, some_forms)
def test_attention_rows_sum_to_one_over_real_positions(lengths: list[int], form: str) -> None:
    encoder = written_out(encoder_of(form), True)
    hidden, mask = batch_of(lengths)
    seen: list[Tensor] = []
    for layer in encoder.layers:
        layer.attention.attention.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        encoder(hidden, mask)
    assert len(seen) == 2
    for weights in seen:  # [B H L L]
        torch.testing.assert_close(weights.sum(3), torch.ones_like(weights.sum(3)), **EXACT)
        assert (weights.masked_select(~mask[:, None, None, :]) == 0).all()
        assert (weights >= 0).all()


def test_each_switch_changes_the_function() -> None:
    """The forms above are not the same one under several names."""
    hidden, mask = batch_of([5, 3])
    with torch.no_grad():
        sums = {form: float(encoder_of(form)(hidden, mask).values.square().sum()) for form in FORMS}
    assert len({round(value, 6) for value in sums.values()}) == len(FORMS)


def test_dropout_acts_in_training_alone() -> None:
    config = FORMS["pre-gelu-bias"].model_copy(update={"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5})
    encoder = Encoder(config)
    hidden = torch.ones(2, 3, 12)
    assert torch.equal(encoder.eval()(hidden).values, encoder(hidden).values)
    assert not torch.equal(encoder.train()(hidden).values, encoder(hidden).values)


@pytest.mark.parametrize("on", [False, True])
def test_attention_dropout_falls_on_the_weights(on: bool) -> None:
    config = FORMS["pre-gelu-bias"].model_copy(update={"attention_probs_dropout_prob": 1.0})
    attention = written_out(Encoder(config).train(), on).layers[0].attention
    seen: list[Tensor] = []
    attention.head_outputs.register_forward_hook(lambda module, inputs, output: seen.append(output))
    attention_of = Encoder(config)
    attention_of.layers[0].attention = attention
    attention_of.train()(torch.ones(1, 3, 12))
    assert (seen[0] == 0).all()
