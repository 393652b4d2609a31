"""The shapes written in signatures are checked while tests run (see conftest)."""

import pytest
import torch
from jaxtyping import TypeCheckError

from bothways.eeg.patches import LogSpectrum


def test_a_wrong_shape_is_refused() -> None:
    spectrum = LogSpectrum(200, 200.0, (1.0, 45.0))
    assert spectrum(torch.ones(2, 3, 4, 200), torch.zeros(2, 3)).shape == (2, 3, 4, 45)
    with pytest.raises(TypeCheckError):
        spectrum(torch.ones(2, 3, 4, 200), torch.zeros(2, 5))
