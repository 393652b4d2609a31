"""How large a batch memory holds: bytes counted by hand, and a number that a run keeps."""

import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bothways.config import PretrainConfig, load_config
from bothways.errors import BothwaysWarning, UserError
from bothways.heads import LossSum
from bothways.model import Model
from bothways.run.common import fitted_batch
from bothways.training import Team, join, largest_batch, memory, open_run, train
from bothways.training.memory import kept_bytes
from sentences import Sentences, changed, classifier

CPU = torch.device("cpu")


class Line(Model):
    """Three numbers to two, squared: of a sample 3 inputs and 2 outputs are kept, 20 bytes; 8 weights take 32."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.linear = nn.Linear(3, 2)
        self.encoder = SimpleNamespace(checkpointing=False, layers=[])

    def forward(self, batch: dict[str, Tensor], *, with_losses: bool = True) -> Any:
        return SimpleNamespace(losses={"x": LossSum(self.linear(batch["x"]).square().sum(), torch.ones(()))})

    def loss(self, losses: dict[str, LossSum]) -> Tensor:
        return losses["x"].sum


class Points:
    def __init__(self, n: int = 5000) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        return {"x": torch.ones(len(ids), 3)}

    def names(self, ids: np.ndarray) -> list[str]:
        return []


def test_bytes_by_hand() -> None:
    assert kept_bytes(Line(), {"x": torch.ones(4, 3)}) == 4 * 20
    assert kept_bytes(Line(), {"x": torch.ones(7, 3)}) == 7 * 20


def largest(monkeypatch: pytest.MonkeyPatch, free: float, n: int = 5000, **options: Any) -> int:
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    return largest_batch(Line(), Points(n), changed(), device=CPU, **options)


@pytest.mark.parametrize(("samples", "expected"), [(1, 1), (2, 2), (3.9, 2), (10, 8), (16, 16), (1e6, 1024)])
def test_the_largest_power_of_two_within_half_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch, samples: float, expected: int
) -> None:
    weights = 4 * 32  # themselves, gradients, two moments
    assert largest(monkeypatch, weights + 2 * 20 * samples) == expected


def test_no_more_than_there_are_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest(monkeypatch, 1e9, n=100) == 64


def test_processes_share_the_memory_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest(monkeypatch, 3 * (128 + 2 * 20 * 10), n_processes=6, n_here=3) == 6 * 8


def test_processes_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert [Team(0, size, CPU).here for size in (1, 4)] == [1, 2]


@pytest.mark.parametrize(("samples", "parts", "expected"), [(10, 3, 3 * 8), (1e6, 4, 1024), (10, 2000, 2000)])
def test_parts_of_a_step_need_the_memory_of_one(
    monkeypatch: pytest.MonkeyPatch, samples: float, parts: int, expected: int
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 128 + 2 * 20 * samples)
    assert largest_batch(Line(), Points(), changed(accumulate=parts), device=CPU) == expected


def test_the_control_group_of_this_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 123)
    assert memory.free_bytes(CPU) == 123


@pytest.mark.parametrize("free", [100.0, 128 + 39.0])
def test_not_even_one(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    with pytest.raises(UserError, match=r'training.batch_size = "auto": one sample needs 0 MiB, 0 MiB are free'):
        largest(monkeypatch, free)


def test_frozen_parts_and_layers_computed_twice_keep_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2e6)
    sizes = {}
    for name, changes in {
        "all": {}, "twice": {"gradient_checkpointing": True}, "frozen": {"freeze": ("embedding", "encoder")},
    }.items():  # fmt: skip
        config = changed(**changes)
        sizes[name] = largest_batch(classifier(), Sentences(10_000), config, device=CPU)
    assert sizes["all"] < sizes["twice"]
    assert sizes["all"] < sizes["frozen"]


def test_the_inputs_of_layers_computed_twice_count() -> None:
    batch = Sentences().batch(np.arange(8), np.zeros(8))
    model = classifier().train()
    whole = kept_bytes(model, batch)
    model.encoder.checkpointing = True
    twice = kept_bytes(model, batch)
    inputs = 2 * 8 * 6 * 16 * 4  # layers x samples x positions x size x bytes
    assert inputs <= twice < whole / 2


def test_free_memory_is_a_number_of_bytes() -> None:
    assert 2**20 < memory.free_bytes(CPU) < 2**50


# What `auto` comes to --------------------------------------------------------------------------------------------


def test_a_run_keeps_the_number_that_it_was_begun_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free = [0]
    monkeypatch.setattr(memory, "free_bytes", lambda device: free[0])
    given = load_config(
        PretrainConfig, None,
        ['training.batch_size="auto"', "training.steps=4", "training.checkpoint_every_s=1e-9", "training.evaluations=2",
         "training.precision='float32'"],
    )  # fmt: skip

    class Stopped(Exception): ...

    def evaluate(model: Model) -> dict[str, Any]:
        if not resumed:
            raise Stopped
        return {}

    sizes = []
    for resumed, free[0] in ((False, 200_000), (True, 2_000_000)):
        model, source = classifier(), Sentences(100)
        with open_run(tmp_path / "run", given, {}, join()) as run:
            with pytest.warns(BothwaysWarning, match=r"training.batch_size: auto = \d+$"):
                run.settings = settings = fitted_batch(given, model, source, run)
            sizes.append(settings.training.batch_size)
            try:
                train(model, source, settings.training, title="test", evaluate=evaluate, run=run)
                run.finish(model, {"loss": 1.0})
            except Stopped:
                assert not resumed
    assert sizes[0] == sizes[1]
    assert largest_batch(classifier(), Sentences(100), changed(), device=CPU) > sizes[0]
    kept = load_config(PretrainConfig, tmp_path / "run" / "recipe.toml")
    assert kept.training.batch_size == sizes[0]
    with open_run(tmp_path / "run", given, {}, join()) as run:  # `auto` is still what it was begun with
        assert run.result == {"loss": 1.0}


def test_freed_memory_is_kept() -> None:
    """Large tensors that are made again and again cost no new pages; in another process, for it changes this one."""
    code = """
import resource, sys, torch
from bothways.training import keep_freed_memory
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for _ in range(20):
        torch.zeros(2**24).add_(1)
if sys.argv[1] == "keep":
    keep_freed_memory()
work()
before = faults()
work()
print(faults() - before)
"""
    found = {
        how: int(subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "give back")
    }
    if platform.libc_ver()[0] == "glibc":
        assert found["keep"] < 0.1 * found["give back"]
