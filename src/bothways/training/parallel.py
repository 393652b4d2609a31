"""Several processes that train together, started by torchrun; with one, everything here does nothing."""

import atexit
import gc
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from accelerate import Accelerator
from jaxtyping import Shaped
from torch import Tensor, nn

from bothways.errors import UserError, plain_words
from bothways.model import Model

T = TypeVar("T")
_MESHES: list[Any] = []  # of this process's divided models


@dataclass(frozen=True)
class Team:
    """Who takes part: this process is number `rank` of `size`; number 0 writes and speaks."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    @property
    def here(self) -> int:
        """How many of the processes run on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.size)) if self.size > 1 else 1

    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum of the processes' values, the same in each."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Returns the plain values of all processes, by rank."""
        gathered = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(gathered, value)
        return gathered

    def agree(self, work: Callable[[], T]) -> list[T]:
        """Returns the plain values that `work` gives in the processes, by rank.

        Raises:
            UserError: in every process, if one of them cannot do it.
        """
        mine, problem = None, None
        try:
            mine = work()
        except UserError as own:
            problem = own
        except OSError as own:
            problem = UserError(f"{own.filename or 'a file'}: {plain_words(own)}; check the path and space")
        each = self.gather((mine, problem))
        for _, problem in each:
            if problem is not None:
                raise problem
        return [value for value, _ in each]

    def first_does(self, work: Callable[[], T]) -> T:
        """Returns, in every process, the plain value that `work` gives in the first one; its error is everyone's."""
        return self.agree(lambda: work() if self.first else None)[0]  # type: ignore[return-value]


def join() -> Team:
    """Returns the processes that torchrun started, of which this is one; without torchrun, this one alone."""
    # Autocast is our own: accelerate's precision is fixed for the life of a process, a run's is not.
    # Without `cpu` it would take several processes of a machine without a GPU for as many trainings of their own.
    begun = dist.is_available() and dist.is_initialized()
    if "LOCAL_RANK" in os.environ:
        # Imported later (DDP does), the defaults of its functions would keep the group, and its threads, for ever.
        import torch.distributed.nn
    accelerator = Accelerator(mixed_precision="no", cpu="LOCAL_RANK" in os.environ and not torch.cuda.is_available())
    if accelerator.num_processes > 1 and not begun:
        atexit.register(_leave)
    return Team(accelerator.process_index, accelerator.num_processes, accelerator.device)


def _leave() -> None:
    """Ends the group with its threads: one of gloo's that lets go of a tensor after Python's end aborts the process."""
    if dist.is_initialized():
        for mesh in _MESHES:  # DTensor's caches keep a mesh, and a mesh its groups
            getattr(mesh, "_pg_registry", {}).clear()
        dist.destroy_process_group()
        gc.collect()  # whoever held the last reference waits for the threads


def lost_peer(problem: RuntimeError) -> bool:
    """Whether an error comes from another process that has gone, not from this one's work."""
    return isinstance(problem, dist.DistError) or "gloo" in str(problem).lower() or "by peer" in str(problem)


class Spread:
    """A model over the processes of a team: a copy for each (DDP), or divided among them (FSDP2).

    Args:
        model: moved to the team's device; with `shard` divided in place.
        team: the processes.
        shard: divide weights, gradients and optimizer state.
    """

    def __init__(self, model: Model, team: Team, *, shard: bool) -> None:
        self.sharded = shard and team.size > 1
        # What is divided goes to the device layer by layer: a whole copy might not fit.
        self.model, self.team = model if self.sharded else model.to(team.device), team
        self.wrapped: nn.Module = model
        if self.sharded:
            try:
                from torch.distributed.device_mesh import init_device_mesh
                from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
            except ImportError:
                raise UserError(
                    f"training.shard: expected torch 2.6 or newer, got {torch.__version__}; install it, or leave it out"
                ) from None
            # Nobody changes an output in place.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
            mesh = init_device_mesh(team.device.type, (team.size,))
            _MESHES.append(mesh)
            for layer in model.encoder.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            for method in ("features", "counts"):
                register_fsdp_forward_method(model, method)
        elif team.size > 1:
            copied = nn.parallel.DistributedDataParallel
            renamed = "forward_sync_buffers" in inspect.signature(copied).parameters  # in torch 2.13
            no_sync: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
            self.wrapped = copied(model, **no_sync)  # no buffer ever changes

    def last_part(self, last: bool) -> Any:
        """A context for one part of a step: gradients are summed over the processes with the last one alone."""
        if isinstance(self.wrapped, nn.parallel.DistributedDataParallel) and not last:
            return self.wrapped.no_sync()
        if self.sharded:
            self.wrapped.set_requires_gradient_sync(last)  # type: ignore[operator]
        return nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """Returns all of a tensor that may be divided; every process has to ask."""
    return tensor.full_tensor() if is_divided(tensor) else tensor  # type: ignore[attr-defined]


def gathered(tensors: Mapping[str, Tensor], team: Team) -> dict[str, Tensor]:
    """Returns all of some tensors on the CPU of the first process, none in the others; every process has to ask."""
    found = {}
    for name, tensor in tensors.items():
        tensor = whole(tensor.detach())
        if team.first:
            found[name] = tensor.cpu()
    return found


def is_divided(tensor: Tensor) -> bool:
    """Whether this process has a part of a tensor alone (a `DTensor`, which torch 2.4 has elsewhere)."""
    return hasattr(tensor, "full_tensor")


def as_divided(value: Tensor, like: Tensor) -> Tensor:
    """Returns a tensor divided as `like` is, if it is not already."""
    value = value.to(like.device)
    if is_divided(like) and not is_divided(value) and value.shape == like.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value, like.device_mesh, like.placements)  # type: ignore[attr-defined]
    return value


def share_of(ids: Shaped[np.ndarray, " n"], team: Team) -> Shaped[np.ndarray, " m"]:
    """Returns what one process of a team takes of a list: as many as each other, the last one twice where need be."""
    most = -(-len(ids) // team.size)
    mine = ids[team.rank :: team.size]
    return np.concatenate([mine, ids[len(ids) - 1 :].repeat(most - len(mine))])


def put_together(parts: Sequence[np.ndarray], n: int) -> np.ndarray:
    """Joins what the processes made of their shares (see `share_of`) in the order of the list of `n`."""
    joined = np.stack(parts, axis=1)  # [m size ...]
    return joined.reshape(-1, *joined.shape[2:])[:n]
