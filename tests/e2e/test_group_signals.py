"""A signal that several processes get: loader workers beside the training, trainings beside each other."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from commands import pretraining, start, wait_for
from people import Chain

pytestmark = pytest.mark.slow
LONG = ("training.steps=100000", "training.checkpoint_every_s=0", "training.evaluations=1")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Returns its status and what it said at the end."""
    _, errors = process.communicate(timeout=100)
    assert "Traceback" not in errors, errors
    lines = [line for line in errors.splitlines() if "windows/s" not in line]
    return process.returncode, "\n".join(lines)


def two(arguments: Sequence[str], before: str = "") -> list[subprocess.Popen[str]]:
    """Starts two processes of one training, as a scheduler does that counts them itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = ["bash", "-c", f'{before} exec "$0" "$@"', sys.executable, "-m", "bothways", "eeg", *arguments]
    return [
        subprocess.Popen(
            command, env={**os.environ, **shared, "OMP_NUM_THREADS": "1", "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in "01"
    ]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_group_with_loader_workers(chain: Chain, tmp_path: Path, number: int) -> None:
    process = start(pretraining(chain, tmp_path / "run", *LONG, "training.workers=2"), start_new_session=True)
    wait_for(tmp_path / "run" / "metrics.jsonl", process)
    os.killpg(process.pid, number)
    status, said = ended(process)
    assert status == (130 if number == signal.SIGINT else 0)
    assert "is saved; to go on, run the same command again" in said
    assert (tmp_path / "run" / "checkpoints" / "latest").is_file()


def test_torchrun_is_asked_to_end(chain: Chain, tmp_path: Path) -> None:
    """It passes SIGTERM on to its processes and their workers as a group, and ends with 1 itself."""
    launcher = start(pretraining(chain, tmp_path / "run", *LONG, "training.workers=1"), 2)
    wait_for(tmp_path / "run" / "metrics.jsonl", launcher)
    launcher.send_signal(signal.SIGTERM)
    _, errors = launcher.communicate(timeout=100)
    assert "is saved; to go on, start all processes again as before" in errors
    assert (tmp_path / "run" / "checkpoints" / "latest").is_file()


def test_one_signal_ends_both_with_one_status(chain: Chain, tmp_path: Path) -> None:
    processes = two(pretraining(chain, tmp_path / "run", *LONG))
    wait_for(tmp_path / "run" / "metrics.jsonl", processes[0])
    processes[1].send_signal(signal.SIGINT)
    (first, said), (second, _) = map(ended, processes)
    assert (first, second) == (130, 130)
    assert "is saved; to go on, start all processes again as before" in said


def test_a_full_disk_is_said_although_a_signal_came(chain: Chain, tmp_path: Path) -> None:
    """A scheduler's script would begin such a job again and again, were it to end with 0."""
    processes = two(pretraining(chain, tmp_path / "run", *LONG), before="ulimit -f 40;")  # KiB
    wait_for(tmp_path / "run" / "metrics.jsonl", processes[0])
    for process in processes:
        process.send_signal(signal.SIGUSR1)
    (first, said), (second, _) = map(ended, processes)
    assert (first, second) == (2, 2)
    assert "cannot be written" in said
    assert not (tmp_path / "run" / "checkpoints" / "latest").exists()
