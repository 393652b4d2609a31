"""Taps by name: what they catch, and that a wrong or silent one is an error."""

import pytest
import torch

from bothways.config import EncoderConfig
from bothways.encoder import Encoder
from bothways.errors import UserError
from bothways.inspection import tap_names, trace

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderConfig(**SIZES)).eval()


def test_attention_weights_are_caught_and_the_fused_path_comes_back() -> None:
    model = encoder()
    hidden = torch.randn(3, 5, 8)
    name = "layers.1.attention.attention"
    with trace(model, [name]) as seen:
        traced = model(hidden).values
    assert seen[name].shape == (3, 2, 5, 5)
    torch.testing.assert_close(seen[name].sum(-1), torch.ones(3, 2, 5))
    torch.testing.assert_close(traced, model(hidden).values)
    assert [layer.attention.written_out for layer in model.layers] == [False, False]
    assert not any(module._forward_hooks for module in model.modules())


def test_a_gradient_reaches_a_tap() -> None:
    model = encoder()
    with trace(model, ["layers.0.residual_1"]) as seen:
        model(torch.randn(1, 4, 8)).values.sum().backward()
    assert seen["layers.0.residual_1"].grad_fn is not None


def test_an_unknown_tap_is_answered_with_the_nearest() -> None:
    answer = r"no tap 'layers\.0\.resid_1'; did you mean 'layers\.0\.residual_1'\?"
    with pytest.raises(UserError, match=answer), trace(encoder(), ["layers.0.resid_1"]):
        pass


def test_a_tap_that_never_ran_is_an_error() -> None:
    with pytest.raises(UserError, match=r"tap layers\.0\.Z1 never ran"), trace(encoder(), ["layers.0.Z1"]):
        pass


def test_names_of_one_block() -> None:
    of_first = [name.removeprefix("layers.0.") for name in tap_names(encoder()) if name.startswith("layers.0.")]
    assert sorted(of_first) == sorted(
        [
            *(f"attention.{name}" for name in ("Q", "K", "V", "raw_scores", "scaled_scores", "attention")),
            *("attention.head_outputs", "attention.concat", "attention_output", "residual_1", "Z1"),
            *("feed_forward.pre_activation", "feed_forward.post_activation", "ffn_output", "output"),
        ]
    )
