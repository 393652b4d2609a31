"""A run that is killed, stopped or starved of disk goes on to the bits that it would have reached undisturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from people import TINY, WINDOWS, Chain

OFTEN = ("training.checkpoint_every_s=0.001", "training.log_every=1", "training.evaluations=5", "training.keep=1")
CLOCK = ("windows_per_s", "wait_share", "seconds")
"""What tells of the time that it took."""


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def pretraining(chain: Chain, out: Path, *changes: str) -> list[str]:
    settings = (*TINY, *WINDOWS, "training.steps=100", "encoder.hidden_dropout_prob=0.1", *OFTEN, *changes)
    return ["pretrain", "--data", str(chain.store), "--out", str(out), *sets(*settings)]


def finetuning(chain: Chain, out: Path, *changes: str) -> list[str]:
    settings = (*WINDOWS, "training.steps=100", "training.ema=0.9", "training.accumulate=2", *OFTEN, *changes)
    places = ["--from", str(chain.pretrained), "--data", str(chain.store), "--labels", str(chain.labels)]
    return ["finetune", *places, "--out", str(out), *sets(*settings)]


def start(arguments: Sequence[str], processes: int = 1) -> subprocess.Popen[str]:
    """Starts a command in a process of its own, on one thread."""
    several = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    return subprocess.Popen(
        [sys.executable, *several, "-m", "bothways", "eeg", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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


def outcome(run: Path) -> tuple[bytes, list[Any], Any]:
    log = [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return (run / "model.safetensors").read_bytes(), log, timeless(json.loads((run / "manifest.json").read_text()))


def wait_for(path: Path, process: subprocess.Popen[str], other_than: str = "") -> None:
    while process.poll() is None and (not path.exists() or path.read_text() == other_than):
        time.sleep(0.005)


def kill_often(arguments: list[str], run: Path, kills: int) -> None:
    """Kills a command again and again, at moments after its checkpoints began, and lets it finish in the end."""
    moments = random.Random(0)
    latest, steps = run / "checkpoints" / "latest", [""]
    for _ in range(kills):
        process = start(arguments)
        wait_for(latest, process, other_than=steps[-1])
        time.sleep(moments.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        steps.append(latest.read_text())
    assert steps == sorted(set(steps))
    finish(arguments)


@pytest.mark.parametrize("command", [pretraining, finetuning])
def test_killed_at_any_moment(chain: Chain, tmp_path: Path, command: Callable[..., list[str]]) -> None:
    finish(command(chain, tmp_path / "undisturbed"))
    kill_often(command(chain, tmp_path / "killed"), tmp_path / "killed", 3)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")
    left = sorted(entry.name for entry in (tmp_path / "killed" / "checkpoints").iterdir())
    assert left == sorted(entry.name for entry in (tmp_path / "undisturbed" / "checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("command", [pretraining, finetuning])
def test_killed_twenty_times(chain: Chain, tmp_path: Path, command: Callable[..., list[str]], workers: int) -> None:
    slow = (f"training.workers={workers}", "training.steps=400")
    finish(command(chain, tmp_path / "undisturbed", *slow))
    kill_often(command(chain, tmp_path / "killed", *slow), tmp_path / "killed", 20)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGUSR1, 0)])
def test_a_signal_saves_and_says_how_to_go_on(chain: Chain, tmp_path: Path, number: int, status: int) -> None:
    arguments = pretraining(chain, tmp_path / "run", "training.checkpoint_every_s=0", "training.steps=3000")
    process = start(arguments)
    wait_for(tmp_path / "run" / "metrics.jsonl", process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (status, ""), errors
    step = int((tmp_path / "run" / "checkpoints" / "latest").read_text().removeprefix("step-"))
    last = errors.splitlines()[-1]
    assert last.startswith(f"pretrain: stopped by a signal; step {step} is saved; to go on, run the same command again: ")
    assert last.endswith(" ".join(arguments[-2:]))
    assert not (tmp_path / "run" / "manifest.json").exists()
