"""Labels that are not one of several classes: a number, or the set of the classes that are there, as text."""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from bothways.errors import UserError

NONE_OF_THEM = ";"
"""The label that says that no class is there; where nothing is known there is no label."""


def number_in(text: str, where: str) -> float:
    """Reads a number.

    Raises:
        UserError: the text is no finite number.
    """
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        comma = "; write a decimal point" if re.fullmatch(r"-?\d+,\d+", text) else ""
        raise UserError(f"{where}: expected a number as label, or n/a, got {text!r}{comma}")
    return value


def number_text(value: float) -> str:
    """Writes a number so that equal numbers are equal texts, and the text gives the same number again."""
    return repr(value + 0.0).removesuffix(".0")


def set_in(text: str) -> tuple[str, ...]:
    """Reads the names between `;` and `|`, sorted, each once."""
    return tuple(sorted({name.strip() for name in re.split("[;|]", text)} - {""}))


def set_text(names: Iterable[str]) -> str:
    """Writes names as `set_in` reads them; of none it is `NONE_OF_THEM`."""
    return ";".join(sorted(set(names))) or NONE_OF_THEM


def numbers(labels: Sequence[str]) -> Float[np.ndarray, "K 1"]:
    """Returns the number that each label is."""
    return np.array([float(label) for label in labels]).reshape(-1, 1)


def indicators(labels: Sequence[str], classes: Sequence[str]) -> Float[np.ndarray, "K k"]:
    """Returns 1 where a label holds a class, else 0."""
    sets = [set_in(label) for label in labels]
    return np.array([[float(name in names) for name in classes] for names in sets]).reshape(len(sets), len(classes))
