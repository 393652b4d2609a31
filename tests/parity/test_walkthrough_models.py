"""The NumPy walkthrough is the PyTorch model: every tap, prediction and loss, of every form, in float64."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bothways.config import EncoderConfig
from bothways.encoder import Encoder
from bothways.inspection import look, tap_names, trace
from bothways.run.passes import tensors_of, weights_of
from bothways.walkthrough import Sentence, Walk, Window, differences, walk_eeg_model, walk_text_model
from bothways.walkthrough.model import encoder
from bothways.walkthrough.tape import Tape
from models import FORMS, SIGNAL, Form

TOLERANCE = 1e-12
EEG = [name for name, form in FORMS.items() if form.eeg]
TEXT = [name for name, form in FORMS.items() if not form.eeg]


@st.composite
def encoder_forms(draw: st.DrawFn) -> EncoderConfig:
    heads = draw(st.integers(1, 4))
    norm = draw(st.sampled_from(["pre", "post"]))
    return EncoderConfig(
        hidden_size=heads * draw(st.integers(1, 6)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        intermediate_size=draw(st.integers(1, 24)),
        hidden_act=draw(st.sampled_from(["gelu", "gelu_tanh", "relu", "silu"])),
        gated=draw(st.booleans()),
        norm=norm,
        final_norm=norm == "pre" and draw(st.booleans()),
        layer_norm_eps=draw(st.sampled_from([1e-12, 1e-5])),
        qkv_bias=draw(st.booleans()),
        linear_bias=draw(st.booleans()),
    )


@given(encoder_forms(), st.integers(1, 12), st.integers(0, 4), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_every_tap_of_every_form(config: EncoderConfig, length: int, padding: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model = Encoder(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    hidden = torch.randn(1, length + padding, config.hidden_size, generator=generator, dtype=torch.float64)
    real = torch.arange(length + padding) < length
    names = [name for name in tap_names(model) if name != "final_norm"]
    with torch.no_grad(), trace(model, names) as taps:
        rows = model(hidden, real[None])
    tape = Tape(tuple(f"{i}" for i in range(length)))
    tape.give("Z", hidden[0, :length].numpy(), rows=tape.positions)
    weights = {f"encoder.{name}": weight for name, weight in weights_of(model).items()}
    h = encoder(tape, "Z", config.model_dump(), weights)
    np.testing.assert_allclose(tape[h], rows.values.numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    for name in names:
        theirs = taps[name].numpy()
        if theirs.ndim > 2:
            theirs = theirs[0, ..., :length, :]
        if name.endswith(("scores", ".attention")):
            theirs = theirs[..., :length]
        ours = tape[f"encoder.{name}"]
        assert ours.shape == theirs.shape, name
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def double(form: Form, seed: int) -> tuple[Any, dict[str, Tensor]]:
    """Makes a model with weights large enough to matter, and a batch for it, in float64."""
    model = form.build(seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.2)
        for name, buffer in model.named_buffers():
            if name.endswith("spectrum_sd"):
                buffer.uniform_(0.5, 2.0, generator=generator)
    batch = form.batch(seed)
    return model, {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in batch.items()}


def eeg_walk(form: Form, weights: Mapping[str, np.ndarray], one: Mapping[str, Tensor]) -> Walk:
    arrays = {name: tensor[0].numpy() for name, tensor in one.items()}
    assert form.config.patches is not None
    names = form.config.patches.ch_names or [f"E{i}" for i in range(len(arrays["signals"]))]
    fields = ("signals", "log_scale_uv", "positions", "patch_mask", "baseline", "masked", "action", "replacement")
    window = Window("x.edf", 0.0, SIGNAL.sfreq_hz, list(names), *(arrays.get(name) for name in fields))
    return walk_eeg_model(form.config.model_dump(), weights, window)


def check(walk: Walk, tensors: Mapping[str, np.ndarray]) -> None:
    apart = differences(walk, tensors)
    assert {name: gap for name, gap in apart.items() if not gap <= TOLERANCE} == {}
    assert any(name.endswith("scaled_scores") for name in apart)
    assert "embedding.place" in apart


@pytest.mark.parametrize("name", EEG)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_tensor_of_an_eeg_model(name: str, seed: int) -> None:
    form = FORMS[name]
    model, batch = double(form, seed)
    for item in range(2):
        one = {key: tensor[item : item + 1] for key, tensor in batch.items()}
        if one["action"][0].eq(2).any():  # what replaces a hidden patch is a real one
            one["replacement"] = one["masked"].flatten(1).float().argmax(1)[:, None, None].expand_as(one["replacement"])
        walk = eeg_walk(form, weights_of(model), one)
        seen = look(model, one)
        tensors = tensors_of(seen, walk)
        check(walk, tensors)
        assert {f"heads.{head}" for head in seen.predictions} <= {key.removesuffix(".masked") for key in tensors}
        nothing = {key: value for key, value in one.items() if key not in ("masked", "action", "replacement")}
        walk = eeg_walk(form, weights_of(model), nothing)
        check(walk, tensors_of(look(model, nothing), walk))


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("masked", [(), (2,), (1, 5)])
def test_every_tensor_of_a_text_model(name: str, masked: tuple[int, ...]) -> None:
    form = FORMS[name]
    model, batch = double(form, 3)
    ids, segments = batch["input_ids"][0].clone(), batch["token_type_ids"][0]
    tokens = [f"t{i}" for i in ids.tolist()]
    words = [f"t{i}" for i in range(40)]
    sentence = Sentence(tokens, ids.numpy(), segments.numpy(), range(1, 8), masked, 39, words)
    walk = walk_text_model(form.config.model_dump(), weights_of(model), sentence)
    labels = torch.full_like(ids, -100)
    labels[list(masked)] = ids[list(masked)]
    ids[list(masked)] = 39
    one = {"input_ids": ids[None], "token_type_ids": segments[None]}
    if masked:
        one["mlm_labels"] = labels[None]
    tensors = tensors_of(look(model, one), walk)
    check(walk, tensors)
    if name == "bert" and masked:
        assert {"heads.mlm", "heads.mlm.loss", "heads.nsp"} <= tensors.keys()
    if name == "text_tasks":
        assert {"heads.sequence", "heads.position", "heads.span"} <= tensors.keys()


def test_another_weight_is_noticed_and_the_first_tensor_named() -> None:
    form = FORMS["walkthrough"]
    model, batch = double(form, 0)
    one = {key: tensor[:1] for key, tensor in batch.items()}
    one["action"] = one["masked"].long()
    walk = eeg_walk(form, weights_of(model), one)
    with torch.no_grad():
        model.encoder.layers[1].feed_forward.up.weight[0, 0] += 1e-6
    apart = differences(walk, tensors_of(look(model, one), walk))
    wrong = [name for name, gap in apart.items() if gap > 1e-9]
    assert wrong[0] == "encoder.layers.1.feed_forward.pre_activation"
    assert apart["encoder.layers.1.Z1"] < TOLERANCE
