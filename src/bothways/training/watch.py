"""Eyes on a training: the batch behind a loss that is not finite, and TensorBoard."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways.config import TrainingConfig
from bothways.errors import UserError
from bothways.model import Model
from bothways.training.folder import RunFolder
from bothways.training.parallel import Team, is_divided
from bothways.training.sampler import Plan, Source
from bothways.weights import write_weights


def not_finite_error(
    title: str,
    model: Model,
    source: Source,
    plan: Plan,
    step: int,
    value: float,
    parts: Sequence[Mapping[str, Tensor]],
    run: RunFolder | None,
    team: Team,
) -> UserError:
    """Makes the error for a step whose loss or gradient is not finite; its batch is saved for inspection."""
    names, saved = [], ""
    for number in range(len(parts)):
        ids, epochs = plan.step(step, number)
        # A divided model runs in all processes at once or not at all, so there nobody is singled out.
        divided = any(map(is_divided, model.parameters()))
        names += source.names(ids) if divided else _guilty(model, source, ids, epochs, team)
    names = sorted({name for some in team.gather(names) for name in some})
    if run is not None:
        file = run.path / f"not-finite-step-{step + 1}{f'-of-{team.rank}' if team.size > 1 else ''}.safetensors"
        tensors = {f"{name}.{i}": tensor for i, part in enumerate(parts) for name, tensor in part.items()}
        try:
            write_weights(file, tensors)
            saved = f" (the batch: {file})"
        except (OSError, UserError) as problem:
            saved = f" (the batch could not be saved: {problem})"
    where = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    what = (
        f"the loss of step {step + 1} is {value}"
        if not np.isfinite(value)
        else f"the gradient of step {step + 1} is not finite"
    )
    anew = " and begin anew with --overwrite" if run is not None else ""
    look = "look there" if model.config.text is not None else "look there with `bothways eeg check`"
    return UserError(f"{title}: {what}; it comes from {where}{saved}; {look}, or lower training.learning_rate{anew}")


@torch.no_grad()
def _guilty(model: Model, source: Source, ids: np.ndarray, epochs: np.ndarray, team: Team) -> list[str]:
    """Names the files whose samples have no finite loss of their own; of none, all."""
    guilty = []
    for i in range(len(ids)):
        batch = source.batch(ids[i : i + 1], epochs[i : i + 1])
        output = model({name: tensor.to(team.device) for name, tensor in batch.items()})
        if not torch.isfinite(model.loss(output.losses)):
            guilty += source.names(ids[i : i + 1])
    return sorted(set(guilty or source.names(ids)))


class Board:
    """Writes the log for TensorBoard where `training.tensorboard` asks for it.

    Raises:
        UserError: the `tensorboard` extra is missing.
    """

    def __init__(self, run: RunFolder | None, config: TrainingConfig, step: int, team: Team) -> None:
        self.writer: Any = None
        if config.tensorboard and run is not None and team.first:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise UserError(
                    "training.tensorboard: TensorBoard is not installed; `pip install 'bothways[tensorboard]'`, or "
                    "leave it out"
                ) from None
            self.writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Adds the numbers of a line of the log, each under the path of its names."""
        if self.writer is not None:
            for name, value in _numbers(entry):
                self.writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Writes what is left."""
        if self.writer is not None:
            self.writer.close()


def _numbers(entry: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(entry, Mapping):
        return [pair for key, value in entry.items() for pair in _numbers(value, f"{name}/{key}" if name else str(key))]
    return [(name, float(entry))] if isinstance(entry, int | float) and name != "step" else []
