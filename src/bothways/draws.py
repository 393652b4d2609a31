"""Random numbers as pure functions of (purpose, seed, epoch, sample id); no global generator is touched."""

from functools import lru_cache
from zlib import crc32

import numpy as np


def generator(purpose: str, seed: int, epoch: int = 0, sample_id: int = 0) -> np.random.Generator:
    """Returns the generator that belongs to these numbers and to no others.

    The same arguments give the same draws in every process, worker and batch plan, which makes resuming exact.

    Args:
        purpose: what is drawn (`"order"`, `"mask"`, …), so that two uses of one sample are independent.
        seed: the run's seed, at least 0.
        epoch: the pass over the training data, from 0.
        sample_id: the sample's place in its data set, from 0.
    """
    return np.random.default_rng([crc32(purpose.encode()), seed, epoch, sample_id])


@lru_cache(maxsize=4)
def epoch_order(n_samples: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the order in which one epoch visits `n_samples` samples, [n_samples] int64, read-only."""
    order = generator("order", seed, epoch).permutation(n_samples)
    order.flags.writeable = False  # the next caller gets the same array
    return order
