"""The classifier in NumPy, forward and backward, is the PyTorch model: in float64, every gradient, every loss."""

import numpy as np
import pytest
import torch
from test_tiny_classifier import tiny_classifier

from bothways.walkthrough.classifier_reference import FORM, record
from bothways.walkthrough.classifier_training import fine_tune, logits, loss_and_gradients
from reference_draws import classifier, data

Arrays = dict[str, np.ndarray]


def drawn(seed: int) -> tuple[Arrays, np.ndarray, np.ndarray]:
    """Weights in float64, ids and labels; seed 99 draws the data after the weights, in one go."""
    weights = {name: value.detach().double().numpy() for name, value in classifier(seed).items()}
    kept = data(None if seed == 99 else 99)
    return weights, kept["ids"].numpy(), kept["labels"].numpy()


@pytest.mark.parametrize("n", [1, 7, 50])
def test_loss_and_every_gradient_equal_autograd(n: int) -> None:
    weights, ids, labels = drawn(42)
    model = tiny_classifier().double()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    output = model({"input_ids": torch.from_numpy(ids[:n]), "labels": torch.from_numpy(labels[:n])})
    model.loss(output.losses).backward()
    scores, _ = logits(weights, ids[:n], FORM)
    loss, gradients = loss_and_gradients(weights, ids[:n], labels[:n], FORM)
    np.testing.assert_allclose(scores, output.predictions["sequence"].detach().numpy(), rtol=0, atol=1e-12)
    assert loss == pytest.approx(float(model.loss(output.losses).detach()), abs=1e-12)
    expected = {name: value.grad for name, value in model.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient is not None
        np.testing.assert_allclose(gradients[name], gradient.numpy(), rtol=0, atol=1e-12, err_msg=name)


def test_the_tape_gives_the_logits_and_the_loss_of_one_sequence() -> None:
    weights, ids, labels = drawn(42)
    tape = record(weights, ids[0], int(labels[0]))
    np.testing.assert_allclose(tape["logits"], logits(weights, ids[:1], FORM)[0], rtol=0, atol=1e-12)
    loss, _ = loss_and_gradients(weights, ids[:1], labels[:1], FORM)
    assert tape["loss"].item() == pytest.approx(loss, abs=1e-12)


def test_adam_takes_torchs_steps() -> None:
    weights, ids, labels = drawn(42)
    model = tiny_classifier().double()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    expected = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model.loss(model({"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}).losses)
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    losses, _ = fine_tune(weights, ids, labels, FORM, epochs=5)
    # Where a gradient is nearly 0, Adam divides it by its own size: rounding shows, in the tenth digit.
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-9)


def test_fine_tuning_leaves_the_given_weights_alone() -> None:
    weights, ids, labels = drawn(42)
    before = {name: array.copy() for name, array in weights.items()}
    _, after = fine_tune(weights, ids, labels, FORM, epochs=2)
    for name, array in before.items():
        np.testing.assert_array_equal(weights[name], array)
        assert not np.array_equal(after[name], array)


def test_the_full_program_with_its_own_seed_gets_below_its_goal() -> None:
    losses, _ = fine_tune(*drawn(99), FORM, epochs=30)
    assert losses[-1] < 0.3
