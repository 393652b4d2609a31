"""Which positions are hidden and by what: pure functions of a generator made by `draws.generator`."""

from enum import IntEnum

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from bothways.config import MaskingConfig


class Action(IntEnum):
    """What stands in a hidden position's place (Devlin et al. 2019, section 3.1)."""

    KEEP = 0
    """Not hidden."""
    MASK = 1
    """[MASK]."""
    RANDOM = 2
    """The content of a random other position."""
    UNCHANGED = 3
    """Its own content, but it is still to be rebuilt."""


def count_hidden(n_available: int, ratio: float) -> int:
    """Returns how many of `n_available` positions are hidden: max(1, round(ratio · n)), and 0 of 0."""
    return min(n_available, max(1, round(ratio * n_available)))


def random_positions(
    available: Bool[np.ndarray, "G N"], ratio: float, rng: np.random.Generator
) -> Bool[np.ndarray, "G N"]:
    """Hides single positions, drawn without replacement from the available ones."""
    places = np.flatnonzero(available)
    chosen = rng.choice(places, count_hidden(len(places), ratio), replace=False)
    masked = np.zeros(available.shape, dtype=bool)
    masked.flat[chosen] = True
    return masked


def block_positions(
    available: Bool[np.ndarray, "C N"],
    distances: Float[np.ndarray, "C C"],
    config: MaskingConfig,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "C N"]:
    """Hides blocks in space and time: a run of patches on a channel and its nearest neighbours.

    Neighbouring electrodes and moments are much alike; hiding single ones would ask for interpolation only.
    The number of hidden positions is exact: the last block stops where it is reached.

    Args:
        available: positions that hold a real patch.
        distances: between channels; infinite where one has no known place.
        config: ratio and the largest extent of a block.
        rng: from `draws.generator`.
    """
    n_channels, n_patches = available.shape
    wanted = count_hidden(int(available.sum()), config.ratio)
    masked = np.zeros(available.shape, dtype=bool)
    most_channels = max(1, round(config.block_space * n_channels))
    most_patches = max(1, round(config.block_time * n_patches))
    left = wanted
    while left:
        channel, patch = np.unravel_index(rng.choice(np.flatnonzero(available & ~masked)), available.shape)
        # Itself first, also where another lies in the same place; a channel without a place is hidden alone.
        apart = np.where(np.arange(n_channels) == channel, -1, distances[channel])
        near = np.argsort(apart, kind="stable")[: rng.integers(1, most_channels + 1)]
        near = near[np.isfinite(apart[near])]
        length = rng.integers(1, most_patches + 1)
        start = int(np.clip(patch - rng.integers(length), 0, n_patches - length))
        block = np.zeros(available.shape, dtype=bool)
        block[near, start : start + length] = True
        new = np.flatnonzero(block & available & ~masked)[:left]
        masked.flat[new] = True
        left -= len(new)
    return masked


def actions(
    masked: Bool[np.ndarray, "G N"],
    available: Bool[np.ndarray, "G N"],
    config: MaskingConfig,
    rng: np.random.Generator,
) -> tuple[UInt8[np.ndarray, "G N"], Int[np.ndarray, "G N"]]:
    """Draws what stands in each hidden position's place: [MASK], another position's content, or its own.

    Returns:
        The `Action` of each position, and for `RANDOM` the flat index of the position whose content it gets
        (elsewhere its own index).
    """
    draw = rng.random(masked.shape)
    action = np.full(masked.shape, Action.UNCHANGED, dtype=np.uint8)
    action[draw < config.mask + config.random] = Action.RANDOM
    action[draw < config.mask] = Action.MASK
    action[~masked] = Action.KEEP
    own = np.arange(masked.size).reshape(masked.shape)
    places = np.flatnonzero(available)
    replacement = rng.choice(places, masked.shape) if len(places) else own
    return action, np.where(action == Action.RANDOM, replacement, own)
