"""Occlusion against hiding by hand."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from bothways.inspection import Hidden, occlude
from bothways.model import Model
from bothways.training import class_probabilities
from models import FORMS, SEQUENCE, Form


def one(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor[:1] for name, tensor in batch.items() if name not in ("masked", "action", "replacement")}


def test_it_hides_each_channel_and_each_moment_in_turn() -> None:
    form = FORMS["eeg_channels"]
    batch = one(form.batch())
    real = batch["patch_mask"] = torch.tensor([[[True, True, True], [True, False, True], [False] * 3]])
    weights = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0], [64.0] * 3])
    seen = []

    def read(model: Model, batch: Mapping[str, Tensor]) -> Tensor:
        seen.append(batch["patch_mask"])
        return (batch["patch_mask"] * weights).sum((1, 2))

    told = occlude(form.build(), batch, read)
    assert told.score == 1 + 2 + 4 + 8 + 32
    assert told.channels == [Hidden([0], 7.0), Hidden([1], 40.0)]  # the third is not real
    assert told.moments == [Hidden([0], 9.0), Hidden([1], 2.0), Hidden([2], 36.0)]
    assert torch.equal(batch["patch_mask"], real)
    assert sum(map(len, seen)) == 6
    few = occlude(form.build(), batch, read, most_parts=2)
    assert few.moments == [Hidden([0, 1], 11.0), Hidden([2], 36.0)]


@pytest.mark.parametrize("name", ["eeg_channels", "eeg_all_channels"])
def test_a_fall_is_what_the_model_says_of_the_rest(name: str) -> None:
    form = Form(FORMS[name].config.model_copy(update={"heads": {"sequence": SEQUENCE}}))
    model, batch = form.build().double().eval(), one(form.batch())
    batch = {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in batch.items()}
    batch["patch_mask"] = torch.ones_like(batch["patch_mask"])

    def read(model: Model, batch: Mapping[str, Tensor]) -> Tensor:
        return class_probabilities(model, batch)[:, 1]

    told = occlude(model, batch, read)
    for axis, parts in ((1, told.channels), (2, told.moments)):
        assert [part.places for part in parts] == [[i] for i in range(batch["patch_mask"].shape[axis])]
        for part in parts:
            mask = batch["patch_mask"].clone()
            mask.select(axis, part.places[0])[:] = False
            with torch.no_grad():
                rest = float(read(model, batch | {"patch_mask": mask})[0])
            assert part.fall == pytest.approx(told.score - rest, abs=1e-12)
    assert max(abs(part.fall) for part in told.channels) > 1e-6
