"""A run that is killed, stopped or starved of disk goes on to the bits that it would have reached undisturbed."""

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import finetuning, finish, pretraining, start, timeless, wait_for
from people import Chain


def outcome(run: Path) -> tuple[bytes, list[Any], Any]:
    log = [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return (run / "model.safetensors").read_bytes(), log, timeless(json.loads((run / "manifest.json").read_text()))


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
    kill_often(command(chain, tmp_path / "killed"), tmp_path / "killed", 2)
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
