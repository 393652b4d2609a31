"""Which samples make which batch: a pure function of (seed, step), whatever process asks."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bothways.draws import epoch_order
from bothways.training.signals import STOPPING


@runtime_checkable
class Source(Protocol):
    """What the loop asks of a data set."""

    def __len__(self) -> int:
        """Returns the number of samples."""
        ...

    def batch(self, ids: Int[np.ndarray, " B"], epochs: Int[np.ndarray, " B"]) -> dict[str, Tensor]:
        """Returns the samples `ids` as they are in `epochs`: masks and crops depend on nothing else."""
        ...

    def names(self, ids: Int[np.ndarray, " B"]) -> list[str]:
        """Returns where the samples come from, for messages."""
        ...


@dataclass(frozen=True)
class Plan:
    """An endless stream of samples, epoch after epoch in a new order, cut into batches.

    Every batch is full: one that reaches the end of an epoch goes on with the next. With several processes, and with
    several parts that each works through, every part is each `n_parts`-th sample of the batch: their union is the
    batch of one process.
    """

    n_samples: int
    batch_size: int
    seed: int
    process: int = 0
    n_processes: int = 1
    accumulate: int = 1

    @property
    def n_parts(self) -> int:
        """Parts that the batch of a step is computed in, by all processes."""
        return self.n_processes * self.accumulate

    def step(self, step: int, part: int = 0) -> tuple[Int[np.ndarray, " B"], Int[np.ndarray, " B"]]:
        """Returns the sample ids and their epochs of this process's `part` of one step."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, within = np.divmod(places, self.n_samples)
        orders = {int(epoch): epoch_order(self.n_samples, self.seed, int(epoch)) for epoch in np.unique(epochs)}
        ids = np.array([orders[epoch][place] for epoch, place in zip(epochs, within)])
        mine = slice(part * self.n_processes + self.process, None, self.n_parts)
        return ids[mine], epochs[mine]


class _Batches(Dataset):
    """The batches of a plan by step and part, so that loader workers can make them ahead."""

    def __init__(self, source: Source, plan: Plan, first_step: int, n_steps: int) -> None:
        self.source, self.plan, self.first_step, self.n_steps = source, plan, first_step, n_steps

    def __len__(self) -> int:
        return (self.n_steps - self.first_step) * self.plan.accumulate

    def __getitem__(self, place: int) -> Mapping[str, Tensor]:
        step, part = divmod(place, self.plan.accumulate)
        return self.source.batch(*self.plan.step(self.first_step + step, part))


def batches(source: Source, plan: Plan, n_steps: int, *, first_step: int = 0, workers: int = 0) -> DataLoader:
    """Returns the batches of steps `first_step` … `n_steps` − 1 in order; equal for any number of workers."""
    made = _Batches(source, plan, first_step, n_steps)
    return DataLoader(made, batch_size=None, shuffle=False, num_workers=workers, worker_init_fn=_deaf)


def _deaf(worker: int) -> None:
    """Leaves signals, which a group gets as a whole, to the process that trains; a worker ends with it."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
