"""Which positions are hidden and by what: pure functions of a generator made by `draws.generator`."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from bothways.config import Hiding, MaskingConfig


class Action(IntEnum):
    """What stands in a hidden position's place (Devlin et al. 2019, section 3.1)."""

    KEEP = 0
    """Not hidden."""
    MASK = 1
    """[MASK]."""
    RANDOM = 2
    """The content of a random other position, which may be a hidden one."""
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


def neighbours(distances: Float[np.ndarray, "C C"]) -> list[list[int]]:
    """Returns each channel's neighbours, itself first, then from near to far.

    Args:
        distances: between channels; infinite where one has no known place, which leaves that channel alone.
    """
    apart = distances.copy()
    np.fill_diagonal(apart, -1)  # itself first, also where another lies in the same place
    order = np.argsort(apart, axis=1, kind="stable")
    return [near[np.isfinite(row[near])].tolist() for row, near in zip(apart, order)]


def block_positions(
    available: Bool[np.ndarray, "C N"],
    near: Sequence[Sequence[int]],
    config: MaskingConfig,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "C N"]:
    """Hides blocks in space and time: a run of patches on a channel and its nearest neighbours.

    Neighbouring electrodes and moments are much alike; hiding single ones would ask for interpolation only.
    Bao et al. 2022 (BEiT, algorithm 1) hide blocks of an image so, El Ouahidi et al. 2025 (REVE) blocks of EEG in
    space and time.
    The number of hidden positions is exact: the last block stops where it is reached.

    Args:
        available: positions that hold a real patch.
        near: of each channel, from `neighbours`.
        config: ratio and the largest extent of a block.
        rng: from `draws.generator`.
    """
    n_channels, n_patches = available.shape
    places = np.flatnonzero(available)
    left = count_hidden(len(places), config.ratio)
    most_channels = max(1, round(config.block_space * n_channels))
    most_patches = max(1, round(config.block_time * n_patches))
    # The next of a random order that is not hidden yet is a uniform draw among those that are not.
    centres = rng.permutation(places)
    share = rng.random((3, len(places)))  # integers(k) as floor(k · random): one call for all three
    widths = 1 + (most_channels * share[0]).astype(int)
    lengths = 1 + (most_patches * share[1]).astype(int)
    befores = (lengths * share[2]).astype(int)  # patches of the block before its centre
    # Blocks are a few positions each: plain lists are faster than arrays.
    free = available.ravel().tolist()
    drawn = (array.tolist() for array in (centres, widths, lengths, befores))
    for centre, width, length, before in zip(*drawn):
        if left == 0:
            break
        if not free[centre]:
            continue
        channel, patch = divmod(centre, n_patches)
        start = min(max(patch - before, 0), n_patches - length)
        for row in near[channel][:width]:
            first = row * n_patches + start
            for place in range(first, first + length):
                if left and free[place]:
                    free[place] = False
                    left -= 1
    return available & ~np.array(free).reshape(available.shape)


def word_positions(
    available: Bool[np.ndarray, " N"], words: Int[np.ndarray, " N"], ratio: float, rng: np.random.Generator
) -> Bool[np.ndarray, " N"]:
    """Hides whole words, in a random order: as many positions as `random_positions` does, as far as words fit.

    A word that is longer than what is left is passed over; where none fits, the shortest one is hidden.

    Args:
        available: positions that may be hidden.
        words: the number of the word that a position belongs to; those of a word follow each other.
        ratio: of the positions to hide.
        rng: from `draws.generator`.
    """
    _, word, sizes = np.unique(words[available], return_inverse=True, return_counts=True)
    left, chosen = count_hidden(int(available.sum()), ratio), np.zeros(len(sizes), dtype=bool)
    order = rng.permutation(len(sizes))
    for one in order:
        if left == 0:
            break
        if sizes[one] <= left:
            chosen[one] = True
            left -= sizes[one]
    if len(sizes) and not chosen.any():
        chosen[order[sizes[order].argmin()]] = True
    masked = np.zeros(available.shape, dtype=bool)
    masked[available] = chosen[word]
    return masked


def drawn_actions(
    masked: Bool[np.ndarray, "*shape"], config: Hiding, rng: np.random.Generator
) -> UInt8[np.ndarray, "*shape"]:
    """Draws the `Action` of each hidden position; of the others it is `KEEP`."""
    draw = rng.random(masked.shape)
    action = np.full(masked.shape, Action.UNCHANGED, dtype=np.uint8)
    action[draw < config.mask + config.random] = Action.RANDOM
    action[draw < config.mask] = Action.MASK
    action[~masked] = Action.KEEP
    return action


def actions(
    masked: Bool[np.ndarray, "G N"],
    available: Bool[np.ndarray, "G N"],
    config: MaskingConfig,
    rng: np.random.Generator,
) -> tuple[UInt8[np.ndarray, "G N"], Int[np.ndarray, "G N"]]:
    """Draws what stands in each hidden position's place: [MASK], another position's content, or its own.

    Returns:
        The `Action` of each position, and for `RANDOM` the flat index of the available position whose content it
        gets: another, hidden or not; itself only where there is no other (elsewhere its own index).
    """
    action = drawn_actions(masked, config, rng)
    own = np.arange(masked.size).reshape(masked.shape)
    places = np.flatnonzero(available)
    if config.random == 0 or len(places) < 2:
        return action, own
    other = rng.integers(len(places) - 1, size=masked.shape)
    other += other >= (available.cumsum() - 1).reshape(masked.shape)  # steps over the position itself
    return action, np.where(action == Action.RANDOM, places[other], own)
