"""An accelerator against the CPU: the same losses, bf16 that trains, windows in a second. Prints JSON.

python benchmarks/gpu.py [--sizes nano,tiny,small,base] [--batch-size N] [--repeats N]

Without an accelerator the CPU is compared with itself. Exit 1 where the losses differ or bf16 does not train.
"""

import argparse
import contextlib
import json
import os
import sys

import numpy as np
import torch
from encoder import pretraining_batch, pretraining_model
from timing import median_seconds
from torch import Tensor

from bothways.config import ENCODER_SIZES, EncoderConfig, TrainingConfig
from bothways.errors import UserError
from bothways.training import Team, train
from bothways.training.optim import in_bf16

SAMPLES = 16
TOLERANCE = 1e-3
"""Of a loss, relative, over five steps: float32 sums in another order, and AdamW divides by small numbers."""


class Waves:
    """Sixteen windows of slow waves, which can be rebuilt from both sides."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.all = pretraining_batch(SAMPLES)
        n_channels, n_samples = self.all["signals"].shape[1:]
        hz, phase = 1 + 7 * torch.rand(SAMPLES, 1, 1), torch.rand(SAMPLES, n_channels, 1)
        self.all["signals"] = torch.sin(2 * torch.pi * (hz * torch.arange(n_samples) / 200 + phase))

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        """Returns some of the windows; what is hidden of them is the same in each epoch."""
        return {name: tensor[ids] for name, tensor in self.all.items()}

    def names(self, ids: np.ndarray) -> list[str]:
        """Returns names for messages."""
        return [f"wave-{i}" for i in ids]


def losses(device: torch.device, steps: int, precision: str) -> list[float]:
    """Returns the losses of a short training of the default model."""
    config = TrainingConfig(steps=steps, batch_size=8, log_every=1, precision=precision)  # type: ignore[arg-type]
    model = pretraining_model(EncoderConfig(**ENCODER_SIZES["nano"], hidden_dropout_prob=0.0))
    result = train(model, Waves(), config, title=f"{device} {precision}", team=Team(0, 1, device))
    return [entry["loss"] for entry in result.metrics]


def can_bf16(device: torch.device) -> bool:
    """Whether a training in bf16 would begin."""
    try:
        return in_bf16(TrainingConfig(precision="bf16"), device)
    except UserError:
        return False


def windows_per_s(device: torch.device, size: str, batch_size: int, repeats: int, *, bf16: bool) -> float:
    """Returns how many windows of 19 channels × 10 s a second's training steps take."""
    model = pretraining_model(EncoderConfig(**ENCODER_SIZES[size])).to(device)
    batch = {name: tensor.to(device) for name, tensor in pretraining_batch(batch_size).items()}
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = model.loss(model(batch).losses)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return batch_size / median_seconds(step, repeats, warmup=2)


def main(arguments: list[str]) -> int:
    """Prints all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default=",".join(ENCODER_SIZES))
    parser.add_argument("--batch-size", type=int, default=256 if torch.cuda.is_available() else 8)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60, help="of the training in bf16")
    options = parser.parse_args(arguments)
    cuda = torch.cuda.is_available()
    device, cpu = torch.device("cuda" if cuda else "cpu"), torch.device("cpu")
    with contextlib.redirect_stderr(open(os.devnull, "w")):  # progress
        here, there = losses(device, 5, "float32"), losses(cpu, 5, "float32")
        has_bf16 = can_bf16(device)
        trace = losses(device, options.steps, "bf16") if has_bf16 else None
        rates = {
            size: {
                precision: windows_per_s(device, size, options.batch_size, options.repeats, bf16=precision == "bf16")
                for precision in ("float32", "bf16")
                if has_bf16 or precision == "float32"
            }
            for size in options.sizes.split(",")
        }
    difference = max(abs(a - b) / abs(b) for a, b in zip(here, there))
    falls = None if trace is None else float(np.mean(trace[-5:])) < float(np.mean(trace[:5]))
    found = {
        "device": torch.cuda.get_device_name() if cuda else "CPU",
        "torch": torch.__version__,
        "same_losses": {"largest_relative_difference": difference, "tolerance": TOLERANCE},
        "bf16": None if trace is None else {"first": trace[0], "last": trace[-1], "falls": falls},
        "windows_per_s": {"batch_size": options.batch_size, **rates},
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    return 0 if difference <= TOLERANCE and falls is not False else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
