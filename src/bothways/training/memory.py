"""How large a batch memory holds: what one step keeps for its gradient, counted, not tried."""

import ctypes
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn

from bothways.config import ModelConfig, TrainingConfig
from bothways.errors import UserError
from bothways.model import Model, outline
from bothways.training.optim import freeze
from bothways.training.sampler import Source
from bothways.workers import available_bytes

SHARE = 0.5
"""Of the free memory; the rest is for what a step needs besides what it keeps."""
MOST = 1024
PROBE = 4
"""Samples that are looked at."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt, in malloc.h."""


def largest_batch(
    model: Model, source: Source, config: TrainingConfig, *, device: torch.device, n_processes: int = 1, n_here: int = 1
) -> int:
    """Returns how large a batch memory holds: for each part that a process computes it in a power of two.

    A process has at most `MOST` samples, and all together no more than there are.

    Args:
        model: what will be trained.
        source: the samples; the longest of some, evenly spread, stand for all.
        config: what of the model is frozen, and whether its layers are computed twice.
        device: where it will be trained.
        n_processes: that train together.
        n_here: those on this machine, which share its memory unless each has an accelerator.

    Raises:
        UserError: not even one sample fits.
    """
    ids = np.unique(np.linspace(0, len(source) - 1, min(len(source), PROBE)).round().astype(np.int64))
    batch = {name: tensor.to(device) for name, tensor in source.batch(ids, np.zeros_like(ids)).items()}
    model.to(device).train()
    freeze(model, config.freeze)
    model.encoder.checkpointing = config.gradient_checkpointing
    per_sample = kept_bytes(model, batch) / len(ids)
    weights = 4 * sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    sharing = 1 if device.type == "cuda" else n_here
    free = SHARE * (free_bytes(device) / sharing - weights)
    fits = int(free // max(per_sample, 1))
    if fits < 1:
        raise UserError(
            f'training.batch_size = "auto": one sample needs {per_sample / 2**20:.0f} MiB, '
            f"{max(free, 0) / 2**20:.0f} MiB are free for it; shorten windows.window_s (of text sequences.length), or "
            "set training.gradient_checkpointing = true"
        )
    n_parts = n_processes * config.accumulate
    most = min(MOST // config.accumulate, len(source) // n_parts)
    return n_parts * 2 ** int(np.log2(max(min(fits, most), 1)))


def check_fits(
    config: ModelConfig,
    build_embedding: Callable[[ModelConfig], nn.Module],
    source: str,
    *,
    trained: bool = False,
) -> None:
    """Refuses, before it is built, a model that this machine's memory cannot hold.

    Args:
        config: of the model; its heads may be missing.
        build_embedding: makes the front end.
        source: where the sizes come from, for messages.
        trained: with the gradient and the optimizer's two moments.

    Raises:
        UserError: the memory that it needs and what is free are named.
    """
    encoder = config.encoder.model_copy(update={"num_hidden_layers": 1})  # a layer takes time even without memory
    one = outline(config.model_copy(update={"encoder": encoder}), build_embedding, source)
    a_layer = sum(p.numel() for p in one.encoder.layers.parameters())
    n = sum(p.numel() for p in one.parameters()) + (config.encoder.num_hidden_layers - 1) * a_layer
    needed, free = 4 * n * (4 if trained else 1), free_bytes(torch.device("cpu"))
    if needed > free:
        raise UserError(
            f"{source}: {n:,} parameters need {needed / 2**30:,.1f} GiB of memory, {free / 2**30:,.1f} are free; lower "
            "encoder.hidden_size or encoder.num_hidden_layers"
        )


def kept_bytes(model: Model, batch: dict[str, Tensor]) -> int:
    """Counts the bytes that a forward pass keeps for the gradient, weights left out, each storage once.

    Of layers that are computed twice these are their inputs, which autograd is not shown.
    """
    own = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, int] = {}
    held = []

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)  # else its address may be given to another
        return tensor

    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs: [count(inputs[0]), None][1])
        for layer in (model.encoder.layers if model.encoder.checkpointing else ())
    ]
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model.loss(model(batch).losses)
    for hook in hooks:
        hook.remove()
    return sum(kept.values())


def free_bytes(device: torch.device) -> int:
    """Returns the memory that can still be taken: of the accelerator, or of this machine or its container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, available_bytes())


def keep_freed_memory() -> None:
    """Lets this process keep what it frees, instead of giving large pieces back to the system after each step.

    Of a step's tensors most are megabytes: the C library would take them from the system anew each time, page by page,
    which is up to a tenth of a step on a CPU. Nothing is done where it is not glibc.
    """
    with suppress(AttributeError, OSError, TypeError):  # no glibc, or no such function in it
        set_option = ctypes.CDLL(None).mallopt
        if set_option(_MMAP_THRESHOLD, 2**30) or set_option(_MMAP_THRESHOLD, 2**25):  # before 2.35 the most it takes
            set_option(_TRIM_THRESHOLD, 2**31 - 1)
