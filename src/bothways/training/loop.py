"""The training loop: batches in, a trained model and its log out. It knows batches, not modalities."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from bothways.config import TrainingConfig
from bothways.errors import UserError
from bothways.model import Model
from bothways.progress import progress
from bothways.training.optim import build_optimizer, learning_rate
from bothways.training.sampler import Plan, Source, batches


@dataclass
class TrainResult:
    """What a training gave beside the weights, which are in the model."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each logged step."""
    seconds: float = 0.0
    samples_per_s: float = 0.0
    wait_share: float = 0.0
    """Share of the time spent waiting for batches."""


def train(
    model: Model,
    source: Source,
    config: TrainingConfig,
    *,
    title: str,
    unit: str = "windows",
    log: Path | None = None,
    evaluate: Callable[[Model], dict[str, Any]] | None = None,
    n_evaluations: int = 4,
) -> TrainResult:
    """Trains a model in place.

    Args:
        model: all parameters that require a gradient are trained.
        source: the samples.
        config: steps, batch size, rates, seed.
        title: shown with the progress.
        unit: what a sample is called, in the plural.
        log: metrics.jsonl to append to.
        evaluate: called in eval mode `n_evaluations` times, spread evenly, the last after the last step; what it
            returns is logged.
        n_evaluations: see `evaluate`.

    Raises:
        UserError: there are no samples, or the loss is not finite (the step and the samples' names are given).
    """
    if len(source) == 0:
        raise UserError(f"{title}: expected {unit} to train on, got none; look at the store with `bothways eeg check`")
    # Autocast is our own: accelerate's precision is fixed for the life of a process, a run's is not.
    accelerator = Accelerator(mixed_precision="no")
    if accelerator.num_processes > 1:
        raise UserError(
            f"{title}: training in {accelerator.num_processes} processes is not there yet; start one process"
        )
    bf16 = _in_bf16(config)
    optimizer = build_optimizer(model, config)
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    plan = Plan(len(source), config.batch_size, config.seed)
    result = TrainResult()
    evaluate_at = {round(config.steps * (k + 1) / n_evaluations) for k in range(n_evaluations)} if evaluate else set()
    started = ready = time.monotonic()
    waited = 0.0
    wrapped.train()
    with progress(title, config.steps * config.batch_size, unit) as meter:
        for step, batch in enumerate(batches(source, plan, config.steps, workers=config.workers)):
            waited += time.monotonic() - ready
            batch = {name: tensor.to(accelerator.device) for name, tensor in batch.items()}
            rate = learning_rate(step, config)
            for group in optimizer.param_groups:
                group["lr"] = rate
            # Dropout, too, is a function of (seed, step): a resumed run needs no generator's state.
            torch.manual_seed((config.seed << 32) + step)
            with torch.autocast(accelerator.device.type, torch.bfloat16, enabled=bf16):
                losses = wrapped(batch).losses
                loss = model.loss(losses)
            value = float(loss.detach())
            if not torch.isfinite(loss.detach()):
                names = _not_finite(model, source, *plan.step(step), accelerator.device)
                raise UserError(
                    f"{title}: the loss of step {step + 1} is {value}; it comes from {names}; look there with "
                    "`bothways eeg check`, or lower training.learning_rate"
                )
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(wrapped.parameters(), config.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            meter.advance(config.batch_size, f"loss {value:.4f}")
            done = step + 1
            evaluated = evaluate is not None and done in evaluate_at
            if done % config.log_every == 0 or done == config.steps or evaluated:
                entry: dict[str, Any] = {
                    "step": done,
                    "loss": value,
                    **{f"loss_{name}": float(part.mean().detach()) for name, part in losses.items()},
                    "learning_rate": rate,
                    "gradient_norm": float(norm),
                    f"{unit}_per_s": meter.rate,
                }
                if evaluate is not None and evaluated:
                    wrapped.eval()
                    entry["evaluation"] = evaluate(model)
                    wrapped.train()
                result.metrics.append(entry)
                if log is not None:
                    with log.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(entry) + "\n")
            ready = time.monotonic()
        result.samples_per_s = meter.rate
    wrapped.eval()
    result.seconds = time.monotonic() - started
    result.wait_share = waited / max(result.seconds, 1e-9)
    return result


def _in_bf16(config: TrainingConfig) -> bool:
    if config.precision == "auto":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if config.precision == "float32":
        return False
    if not (torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported()):
        raise UserError('training.precision = "bf16": this machine has no bf16 arithmetic; use "auto" or "float32"')
    return True


@torch.no_grad()
def _not_finite(model: Model, source: Source, ids: np.ndarray, epochs: np.ndarray, device: torch.device) -> str:
    """Names the files whose samples have no finite loss of their own; of many, the first ones."""
    guilty = []
    for i in range(len(ids)):
        batch = {name: tensor.to(device) for name, tensor in source.batch(ids[i : i + 1], epochs[i : i + 1]).items()}
        if not torch.isfinite(model.loss(model(batch).losses)):
            guilty += source.names(ids[i : i + 1])
    names = sorted(set(guilty or source.names(ids)))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
