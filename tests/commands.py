"""Commands in processes of their own, to be killed, stopped, or run by several at once."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from people import TINY, WINDOWS, Chain

OFTEN = ("training.checkpoint_every_s=0.001", "training.log_every=1", "training.evaluations=5", "training.keep=1")
CLOCK = ("windows_per_s", "wait_share", "seconds")
"""What tells of the time that it took."""


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def pretraining(chain: Chain, out: Path, *changes: str) -> list[str]:
    settings = (*TINY, *WINDOWS, "training.steps=40", "encoder.hidden_dropout_prob=0.1", *OFTEN, *changes)
    return ["pretrain", "--data", str(chain.store), "--out", str(out), *sets(*settings)]


def finetuning(chain: Chain, out: Path, *changes: str) -> list[str]:
    settings = (*WINDOWS, "training.steps=40", "training.ema=0.9", "training.accumulate=2", *OFTEN, *changes)
    places = ["--from", str(chain.pretrained), "--data", str(chain.store), "--labels", str(chain.labels)]
    return ["finetune", *places, "--out", str(out), *sets(*settings)]


def start(arguments: Sequence[str], processes: int = 1, **options: Any) -> subprocess.Popen[str]:
    """Starts a command in a process of its own, on one thread."""
    several = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    return subprocess.Popen(
        [sys.executable, *several, "-m", "bothways", "eeg", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


def finish(arguments: Sequence[str], processes: int = 1) -> str:
    process = start(arguments, processes)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def timeless(value: Any) -> Any:
    """A result without the time that it took, and where it lies."""
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in (*CLOCK, "run", "created")}
    return value


def wait_for(path: Path, process: subprocess.Popen[str], other_than: str = "") -> None:
    while process.poll() is None and (not path.exists() or path.read_text() == other_than):
        time.sleep(0.005)
