"""A run that is killed, stopped or starved of disk goes on to the bits that it would have reached undisturbed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import finetuning, pretraining, start, timeless, wait_for
from people import Chain

KILLER = str(Path(__file__).resolve().parent.parent / "killer.py")


def outcome(run: Path) -> tuple[bytes, list[Any], Any]:
    log = [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return (run / "model.safetensors").read_bytes(), log, timeless(json.loads((run / "manifest.json").read_text()))


def kill(command: Callable[..., list[str]], chain: Chain, run: Path, kills: int, *changes: str) -> list[str]:
    """Kills a command so often, at moments drawn anew, lets it finish in the end, and returns how far it had come."""
    done = subprocess.run(
        [sys.executable, KILLER, str(run), str(kills), "eeg", *command(chain, run, *changes)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = json.loads(Path(f"{run}.json").read_text())
    assert len(steps) == kills
    assert steps == sorted(set(steps))
    return steps


@pytest.mark.parametrize("command", [pretraining, finetuning])
def test_killed_at_any_moment(chain: Chain, tmp_path: Path, command: Callable[..., list[str]]) -> None:
    kill(command, chain, tmp_path / "undisturbed", 0)
    kill(command, chain, tmp_path / "killed", 3)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")
    left = sorted(entry.name for entry in (tmp_path / "killed" / "checkpoints").iterdir())
    assert left == sorted(entry.name for entry in (tmp_path / "undisturbed" / "checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("command", [pretraining, finetuning])
def test_killed_twenty_times(chain: Chain, tmp_path: Path, command: Callable[..., list[str]], workers: int) -> None:
    long = (f"training.workers={workers}", "training.steps=200")
    kill(command, chain, tmp_path / "undisturbed", 0, *long, "training.checkpoint_every_s=0")
    kill(command, chain, tmp_path / "killed", 20, *long)
    one, other = outcome(tmp_path / "killed"), outcome(tmp_path / "undisturbed")
    assert one[:2] == other[:2]
    assert {**one[2], "recipe_sha256": ""} == {**other[2], "recipe_sha256": ""}  # the clock of checkpoints differs


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGUSR1, 0)])
def test_a_signal_saves_and_says_how_to_go_on(chain: Chain, tmp_path: Path, number: int, status: int) -> None:
    arguments = pretraining(chain, tmp_path / "run", "training.checkpoint_every_s=0", "training.steps=3000")
    process = start(arguments)
    wait_for(tmp_path / "run" / "metrics.jsonl", process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (status, ""), errors
    step = int((tmp_path / "run" / "checkpoints" / "latest").read_text().removeprefix("step-"))
    last = errors.splitlines()[-1]
    assert last.startswith(
        f"pretrain: stopped by a signal; step {step} is saved; to go on, run the same command again: "
    )
    assert last.endswith(" ".join(arguments[-2:]))
    assert not (tmp_path / "run" / "manifest.json").exists()
