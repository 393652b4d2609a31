"""The numbers of the second reference that only torch's generator can draw, kept as a file.

`tests/reference_draws.py` draws them again and writes the file.
"""

from importlib import resources

import numpy as np

from bothways.walkthrough.tape import Array


def torch_draws(group: str) -> dict[str, Array]:
    """Returns the arrays of one group: whole numbers as they are, weights and inputs in float64.

    Args:
        group: toy (the attention of 4 tokens), module (self-attention alone), classifier (its weights, by the names
            of the PyTorch model's `state_dict`) or data (its token ids and labels).
    """
    file = resources.files("bothways.walkthrough") / "torch_draws.npz"
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
        arrays = {name.removeprefix(f"{group}."): kept[name] for name in kept.files if name.startswith(f"{group}.")}
    return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()}
