"""What every model keeps, whatever its form; see `models.FORMS`.

After a wanted change of names or shapes, `PYTHONPATH=tests .venv/bin/python tests/unit/test_contracts.py` writes
the frozen list anew; say in the change log that older runs no longer load.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bothways.encoder import Embedded, Rows
from bothways.heads import Sequence
from models import FORMS, Form

KEYS = Path(__file__).resolve().parent.parent / "golden" / "checkpoint_keys.json"
EEG = [name for name, form in FORMS.items() if form.eeg]
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
every_eeg = pytest.mark.parametrize("form", [FORMS[name] for name in EEG], ids=EEG)
channel_tokens = pytest.mark.parametrize("form", [FORMS["eeg_channels"]], ids=["eeg_channels"])


def double(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in batch.items()}


def keys() -> dict[str, dict[str, list[int]]]:
    return {
        name: {key: list(tensor.shape) for key, tensor in form.build().state_dict().items()}
        for name, form in FORMS.items()
    }


def test_names_and_shapes_in_a_checkpoint_are_frozen() -> None:
    assert keys() == json.loads(KEYS.read_text())


@every_form
def test_every_parameter_gets_a_gradient(form: Form) -> None:
    model = form.build()
    model.loss(model(form.batch()).losses).backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert without == []
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@every_form
def test_the_seed_alone_makes_the_weights(form: Form) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = form.build(0)
    torch.manual_seed(2)
    same, other = form.build(0), form.build(1)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values()))
    drawn = [name for name, p in one.named_parameters() if p.ndim >= 2]
    weights, others = dict(one.named_parameters()), dict(other.named_parameters())
    assert not [name for name in drawn if torch.equal(weights[name], others[name])]
    torch.random.set_rng_state(before)
    one.initialise(3)
    assert torch.equal(torch.random.get_rng_state(), before)


@every_form
def test_fresh_weights_are_as_bert_draws_them(form: Form) -> None:
    weights = torch.cat([p.detach().flatten() for p in form.build().parameters() if p.ndim >= 2])
    assert abs(float(weights.std()) - 0.02) < 0.001
    for name, parameter in form.build().named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name and name.endswith("weight"):
            assert (parameter == 1).all(), name


@every_form
def test_the_same_batch_gives_the_same_loss_and_the_seed_matters(form: Form) -> None:
    def loss(seed: int) -> float:
        model = form.build(seed)
        return float(model.loss(model(form.batch()).losses).detach())

    assert loss(0) == loss(0) != loss(1)


def without_targets(form: Form) -> dict[str, Tensor]:
    batch = form.batch()
    for name in ("labels", "mlm_labels", "nsp_labels", "position_labels", "span_labels"):
        if name in batch:
            batch[name] = torch.full_like(batch[name], -100)
    if "masked" in batch:
        batch |= {name: torch.zeros_like(batch[name]) for name in ("masked", "action")}
    return batch


@every_form
@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_nothing_masked_and_nothing_labelled_is_loss_0(form: Form, weight: float) -> None:
    heads = {name: head.model_copy(update={"weight": weight}) for name, head in form.config.heads.items()}
    model = Form(form.config.model_copy(update={"heads": heads})).build()
    output = model(without_targets(form))
    assert output.losses.keys() == heads.keys()
    loss = model.loss(output.losses)
    assert float(loss.detach()) == 0.0
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(bool((g == 0).all()) for g in gradients)  # NaN would not be 0


@every_form
def test_a_sequence_without_targets_leaves_the_mean_alone(form: Form) -> None:
    model = form.build().double()
    batch, empty = double(form.batch()), double(without_targets(form))
    both = {name: torch.cat([batch[name], empty[name]]) for name in batch}
    with torch.no_grad():
        alone, together = (model.loss(model(b).losses) for b in (batch, both))
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


@every_form
def test_a_batch_in_two_halves_has_the_loss_of_the_whole(form: Form) -> None:
    model = form.build().double()
    batch = double(form.batch())
    with torch.no_grad():
        whole = model(batch).losses
        parts = (slice(1), slice(1, None))
        halves = [model({name: tensor[part] for name, tensor in batch.items()}).losses for part in parts]
    for name, loss in whole.items():
        total = sum(half[name].sum for half in halves)
        torch.testing.assert_close(total, loss.sum, rtol=1e-10, atol=1e-12)
        assert float(sum(half[name].count for half in halves)) == pytest.approx(float(loss.count), rel=1e-12)


@every_form
def test_counts_are_exact_under_bf16(form: Form) -> None:
    """bfloat16 has no 257: a count in the scores' own type would be off by up to 0.4 %."""
    model = form.build()
    one = form.batch()
    batch = {name: torch.cat([tensor] * 150) for name, tensor in one.items()}
    with torch.no_grad():
        exact = {name: 150 * float(loss.count) for name, loss in model(one).losses.items()}
        with torch.autocast("cpu", torch.bfloat16):
            counts = {name: float(loss.count) for name, loss in model(batch).losses.items()}
    assert counts == pytest.approx(exact, rel=1e-6)
    assert max(counts.values()) > 256


@every_form
def test_predictions_do_not_depend_on_the_other_sequences(form: Form) -> None:
    model = form.build().double().eval()
    batch = double(form.batch())
    with torch.no_grad():
        together = model.features({k: v for k, v in batch.items() if k not in ("masked", "mlm_labels")})
        for i in range(len(together)):
            alone = model.features({k: v[i : i + 1] for k, v in batch.items() if k not in ("masked", "mlm_labels")})
            torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-10)


def by_attention(form: Form) -> Sequence:
    """The head that pools by attention, with a query that tells positions apart."""
    model = form.build().double()
    head = model.heads["sequence"]
    assert isinstance(head, Sequence)
    with torch.no_grad():
        head.query.weight.copy_(torch.linspace(-3, 3, 16, dtype=torch.float64)[None])
    return head.eval()


def test_attention_pooling_by_hand() -> None:
    """exp(s / √D) of each position but [CLS], over their sum."""
    head = by_attention(FORMS["text_attention_pool"])
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 4, 16, generator=draw, dtype=torch.float64)
    real = torch.tensor([[True] * 4, [True, True, False, True]])
    rows = Rows(hidden[real], real)
    pooled = head.pool(rows, Embedded(hidden, real), hidden[:, 0])
    for i, content in enumerate([[1, 2, 3], [1, 3]]):
        weight = (hidden[i, content] @ torch.linspace(-3, 3, 16, dtype=torch.float64) / 4).exp()
        expected = (weight[:, None] * hidden[i, content]).sum(0) / weight.sum()
        torch.testing.assert_close(pooled[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["eeg_attention_pool", "text_attention_pool"])
def test_attention_pooling_does_not_see_padding(name: str) -> None:
    form = FORMS[name]
    model = form.build().double().eval()
    with torch.no_grad():
        model.heads["sequence"].query.weight.mul_(100)
    batch = double(form.batch())
    with torch.no_grad():
        together = model(batch, with_losses=False).predictions["sequence"]
        for i in range(len(together)):
            alone = {name: tensor[i : i + 1] for name, tensor in batch.items()}
            if not form.eeg:  # without the padding altogether
                n = int(alone["attention_mask"].sum())
                alone = {k: t[:, :n] if t.ndim == 2 and t.shape[1] == 9 else t for k, t in alone.items()}
            prediction = model(alone, with_losses=False).predictions["sequence"][0]
            torch.testing.assert_close(prediction, together[i], rtol=0, atol=1e-10)


def test_attention_pooling_of_nothing_is_0() -> None:
    head = by_attention(FORMS["text_attention_pool"])
    hidden = torch.randn(1, 3, 16, dtype=torch.float64, requires_grad=True)
    only_cls = torch.tensor([[True, False, False]])
    pooled = head.pool(Rows(hidden[only_cls], only_cls), Embedded(hidden, only_cls), hidden[:, 0])
    assert not pooled.any()
    pooled.sum().backward()
    assert head.query.weight.grad is not None
    assert bool((head.query.weight.grad == 0).all())  # NaN would not be 0


# EEG ------------------------------------------------------------------------------------------------------------


@every_eeg
def test_missing_patches_give_finite_output(form: Form) -> None:
    model = form.build().eval()
    batch = form.batch()
    batch["patch_mask"][0] = False  # nothing of the first window is real: [CLS] alone
    batch["masked"][0] = False
    batch["action"][0] = 0
    with torch.no_grad():
        output = model(batch)
    for prediction in output.predictions.values():
        assert prediction.masked_fill(prediction == -torch.inf, 0).isfinite().all()  # a moment that has no patch
    assert output.rows.values.isfinite().all()
    assert model.loss(output.losses).isfinite()


@every_eeg
def test_the_content_of_missing_patches_does_not_matter(form: Form) -> None:
    model = form.build().double().eval()
    batch = double(form.batch())
    size = model.embedding.patch_samples
    garbage = batch["signals"].clone()
    garbage[0, 0, 2 * size : 3 * size] = 1e4
    garbage[1, 3] = torch.nan
    with torch.no_grad():
        clean, dirty = model(batch), model({**batch, "signals": garbage})
    torch.testing.assert_close(dirty.rows.values, clean.rows.values, rtol=0, atol=0)
    for name, loss in clean.losses.items():
        assert torch.equal(dirty.losses[name].sum, loss.sum)


def per_channel(batch: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """The same windows with their channels in another order."""
    shuffled = {name: tensor if "labels" in name else tensor[:, order] for name, tensor in batch.items()}
    n_patches = batch["patch_mask"].shape[2]
    channel, patch = batch["replacement"].div(n_patches, rounding_mode="floor"), batch["replacement"] % n_patches
    place = torch.argsort(order)
    shuffled["replacement"] = (place[channel] * n_patches + patch)[:, order]
    return shuffled


@channel_tokens
def test_the_order_of_the_channels_does_not_matter(form: Form) -> None:
    model = form.build().double().eval()
    batch = double(form.batch())
    shuffled = per_channel(batch, torch.tensor([2, 0, 3, 1]))
    with torch.no_grad():
        one, other = model(batch), model(shuffled)
        plain = [model.features({k: v for k, v in b.items() if k != "masked"}) for b in (batch, shuffled)]
    torch.testing.assert_close(other.rows.cls(), one.rows.cls(), rtol=0, atol=1e-10)
    torch.testing.assert_close(plain[0], plain[1], rtol=0, atol=1e-10)
    for name, loss in one.losses.items():
        torch.testing.assert_close(other.losses[name].sum, loss.sum, rtol=0, atol=1e-10)


@channel_tokens
def test_padding_channels_do_not_matter(form: Form) -> None:
    model = form.build().double().eval()
    batch = double(form.batch())
    padded = {}
    for name, tensor in batch.items():
        if name == "labels":
            padded[name] = tensor
            continue
        filler = torch.full_like(tensor[:, :2], torch.nan if name == "positions" else 0)
        padded[name] = torch.cat([tensor, filler], dim=1)
    assert padded["patch_mask"].shape[1] == 6
    with torch.no_grad():
        one, other = model(batch), model(padded)
    torch.testing.assert_close(other.rows.cls(), one.rows.cls(), rtol=0, atol=1e-10)
    for name, loss in one.losses.items():
        torch.testing.assert_close(other.losses[name].sum, loss.sum, rtol=0, atol=1e-10)
        assert other.losses[name].count == loss.count


@channel_tokens
@pytest.mark.parametrize("what", ["anode", "cathode", "amplitude"])
def test_where_and_how_large_a_channel_is_matters(form: Form, what: str) -> None:
    model = form.build().double().eval()
    batch = double(form.batch())
    batch.pop("masked")
    changed = {name: tensor.clone() for name, tensor in batch.items()}
    if what == "amplitude":
        changed["log_scale_uv"][:, 0] += 0.5
    else:
        changed["positions"][:, 2, int(what == "cathode")] = torch.tensor([-0.3, 0.4, 0.2], dtype=torch.float64)
    with torch.no_grad():
        assert not torch.allclose(model.features(batch), model.features(changed), rtol=0, atol=1e-8)


@every_eeg
def test_what_is_hidden_cannot_be_seen(form: Form) -> None:
    """The encoder's output does not change with the content of a [MASK]ed patch; the target does."""
    model = form.build().double().eval()
    batch = double(form.batch())
    batch["action"] = batch["masked"].to(torch.uint8)  # all [MASK]
    size = model.embedding.patch_samples
    together = batch["masked"].shape[1] == 1
    changed = batch["signals"].clone()
    for b, g, n in batch["masked"].nonzero().tolist():
        rows = slice(None) if together else g
        changed[b, rows, n * size : (n + 1) * size] += 1.0 + 0.1 * torch.arange(size)
    with torch.no_grad():
        one, other = model(batch), model({**batch, "signals": changed})
    assert torch.equal(one.rows.values, other.rows.values)
    assert not torch.allclose(one.embedded.targets["samples"], other.embedded.targets["samples"])


@pytest.mark.parametrize("form", [FORMS["eeg_all_channels"]], ids=["eeg_all_channels"])
def test_a_missing_channel_of_a_token_does_not_count_in_the_loss(form: Form) -> None:
    """Its numbers, however wrong, add nothing, and the mean is over the others'."""
    model = form.build().double().eval()
    batch = double(form.batch())
    batch["patch_mask"][:] = True
    batch["patch_mask"][:, 3] = False
    head = model.heads["reconstruction"]
    with torch.no_grad():
        output = model(batch)
        prediction = torch.zeros_like(output.predictions["reconstruction"])
        parts = head.split(prediction)
        for name, part in parts.items():
            per_channel = part.unflatten(1, (4, -1))
            per_channel[:, :3] = output.embedded.targets[name].unflatten(1, (4, -1))[:, :3] + 0.5
            per_channel[:, 3] = 100.0
        loss = head.loss(torch.cat(list(parts.values()), dim=1), output.embedded, batch)
    assert float(loss.mean()) == pytest.approx(2 * 0.5 * 0.5**2, rel=1e-12)  # smooth L1, two features


@channel_tokens
def test_places_keep_their_precision_under_bf16(form: Form) -> None:
    config = form.config.model_copy(
        update={"patches": form.config.patches.model_copy(update={"positions": "sinusoidal"})}
    )
    model, batch = Form(config).build(), form.batch()
    with torch.no_grad():
        exact = model.embedding(batch).place
        with torch.autocast("cpu", torch.bfloat16):
            lower = model.embedding(batch).place
    assert torch.equal(exact, lower)
    # A whole model in bfloat16 rounds the codes, not the coordinates that go through the waves.
    half = Form(config).build().bfloat16()
    codes: list[Tensor] = []
    half.embedding.anode.register_forward_pre_hook(lambda _, inputs: codes.append(inputs[0].float()))
    with torch.no_grad():
        half.embedding._electrodes(batch["positions"])
    xyz = batch["positions"][:, :, 0].nan_to_num()
    finest = (xyz * torch.pi * 8).sin()
    assert (codes[0][..., 3 + 9 : 3 + 12] - finest).abs().max() < 0.004  # half a step of bfloat16 below 1


def test_rows_that_are_not_there_are_refused() -> None:
    """Padding on the left leaves no [CLS] at position 0; before, the other sequences' rows moved up."""
    selected = torch.tensor([[True, True, False], [False, True, True]])
    rows = Rows(torch.arange(4.0)[:, None], selected)
    assert rows.take(torch.tensor([[False, True, False], [False, False, True]])).squeeze(1).tolist() == [1.0, 3.0]
    with pytest.raises(ValueError, match=r"expected \[CLS\] at position 0 of every sequence, found padding"):
        rows.cls()
    with pytest.raises(ValueError, match="expected positions that were encoded, 2 of them are padding"):
        rows.take(torch.ones(2, 3, dtype=torch.bool))


if __name__ == "__main__":
    KEYS.write_text(json.dumps(keys(), indent=1) + "\n")
    print(f"wrote {KEYS}")
