"""Trainings in a folder that are stopped after some steps, and what is left of them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from bothways.config import PretrainConfig
from bothways.model import Model
from bothways.training import RunFolder, TrainResult, join, open_run, train
from sentences import Sentences, changed, classifier

OFTEN = {"checkpoint_every_s": 1e-9, "evaluations": 2}
"""A checkpoint after each step; evaluated after steps 3 and 6."""


class Stopped(Exception):
    """As if the process were killed."""


class Until(Sentences):
    """Gives the batches of so many steps."""

    def __init__(self, batches: int, then: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.left, self.then = batches, then

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        if self.left == 0:
            if self.then is None:
                raise Stopped
            self.then()
        self.left -= 1
        return super().batch(ids, epochs)


def evaluation(model: Model) -> dict[str, Any]:
    return {"bias": float(model.state_dict()["heads.sequence.linear.bias"].sum())}


@contextmanager
def opened(path: Path, depends_on: dict[str, Any] | None = None, **options: Any) -> Iterator[RunFolder]:
    places = {name: options.pop(name) for name in ("overwrite", "force") if name in options}
    with open_run(path, PretrainConfig(training=changed(**OFTEN | options)), depends_on or {}, join(), **places) as run:
        yield run


def sitting(path: Path, source: Sentences | None = None, model: Model | None = None, **options: Any) -> TrainResult:
    """Trains in a folder, from where it stands to the end or until the source stops it."""
    model = model or classifier(dropout=0.2)
    with opened(path, **options) as run:
        config = run.settings.training  # type: ignore[attr-defined]
        result = train(model, source or Sentences(), config, title="test", evaluate=evaluation, run=run)
        run.finish(model, {"loss": result.metrics[-1]["loss"]})
    return result


def stopped(path: Path, steps: int, **options: Any) -> None:
    with pytest.raises(Stopped):
        sitting(path, Until(steps), **options)


def outcome(path: Path) -> tuple[bytes, list[tuple[Any, ...]]]:
    log = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return (path / "model.safetensors").read_bytes(), [
        (entry["step"], entry["loss"], entry["gradient_norm"], entry.get("evaluation")) for entry in log
    ]


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in (path / "checkpoints").iterdir())


def step(n: int) -> str:
    return f"step-{n:08d}"
