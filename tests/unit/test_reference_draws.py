"""The walkthrough's data file holds what torch draws, to the last bit where torch rounds as it did then."""

import numpy as np
import pytest
import torch

from bothways.walkthrough.torch_draws import torch_draws
from reference_draws import FILE, draws


def test_every_array_is_drawn_again() -> None:
    again = draws()
    # The generator is the same everywhere, but without AVX2 torch rounds what it makes of it otherwise (1.4e-6).
    tolerance = 0 if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") else 1e-5
    with np.load(FILE, allow_pickle=False) as kept:
        assert sorted(kept.files) == sorted(again)
        for name, array in again.items():
            assert kept[name].dtype == array.dtype
            np.testing.assert_allclose(kept[name], array, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("group", "names"), [("toy", {"x", "q.weight", "k.weight"}), ("data", {"ids", "labels"})])
def test_a_group_comes_without_its_prefix(group: str, names: set[str]) -> None:
    assert torch_draws(group).keys() == names


def test_weights_come_in_float64_and_ids_as_whole_numbers() -> None:
    assert torch_draws("toy")["x"].dtype == np.float64
    assert torch_draws("data")["ids"].dtype == np.int64
