"""What each of several processes runs in a test: `python -m torch.distributed.run … several.py WHAT OUT`."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways.config import PretrainConfig, TrainingConfig
from bothways.errors import UserError
from bothways.model import Model
from bothways.training import Team, infer, join, open_run, train
from bothways.training.parallel import _leave, whole
from models import FORMS

STEADY = TrainingConfig(
    steps=6, batch_size=6, learning_rate=1e-2, warmup_fraction=0.2, log_every=1, precision="float32", evaluations=2
)
WAYS: dict[str, dict[str, Any]] = {
    "copies": {},
    "parts": {"accumulate": 2},
    "divided": {"shard": True},
    "divided parts": {"shard": True, "accumulate": 3},
    "divided average": {"shard": True, "ema": 0.5},
    "layers": {"layer_decay": 0.5, "freeze": ("embedding",), "gradient_checkpointing": True, "head_first": 0.4},
}


class Sentences:
    """Eleven texts of which some have no label: what a loss is divided by differs from process to process."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self.ids = draw.integers(8, 40, (11, 6))
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        self.seen += ids.tolist()
        labels = np.where(ids % 4 == 1, -100, ids % 2)
        return {"input_ids": torch.from_numpy(self.ids[ids]), "labels": torch.from_numpy(labels)}

    def names(self, ids: np.ndarray) -> list[str]:
        return [f"text-{i}.txt" for i in ids]


def evaluation(model: Model) -> dict[str, Any]:
    scores = infer(model, Sentences(), lambda m, batch: m.features(batch), batch_size=2)
    return {"n": len(scores), "sum": float(scores.astype(np.float64).sum())}


def trained(team: Team, **changes: Any) -> dict[str, Any]:
    """Trains the tiny classifier in float64; returns its losses, gradients, weights, and which samples it saw."""
    model, source = FORMS["tiny_classifier"].build(0).double(), Sentences()
    result = train(
        model, source, STEADY.model_copy(update=changes), title="test", evaluate=evaluation,
        score=lambda found: found["sum"], team=team,
    )  # fmt: skip
    clock = ("windows_per_s", "wait_share")
    return {
        "log": [{name: value for name, value in entry.items() if name not in clock} for entry in result.metrics],
        "weights": {name: whole(tensor).flatten().tolist() for name, tensor in model.state_dict().items()},
        "seen": [seen for one in team.gather(source.seen) for seen in one],
    }


def resumed(team: Team, folder: Path, steps: int) -> dict[str, Any]:
    """Trains in a folder until `steps` are done, as if it were stopped then."""

    class Stopped(Exception): ...

    model, source = FORMS["tiny_classifier"].build(0).double(), Sentences()
    config = STEADY.model_copy(update={"evaluations": 6, "shard": True})

    def evaluate(m: Model) -> dict[str, Any]:
        if evaluate.calls == steps:  # type: ignore[attr-defined]
            raise Stopped
        evaluate.calls += 1  # type: ignore[attr-defined]
        return evaluation(m)

    evaluate.calls = 0  # type: ignore[attr-defined]
    try:
        with open_run(folder, PretrainConfig(training=config), {}, team) as run:
            train(model, source, config, title="test", evaluate=evaluate, team=team, run=run)
            run.finish(model, {})
    except Stopped:
        return {}
    return {name: whole(tensor).flatten().tolist() for name, tensor in model.state_dict().items()}


def apart(team: Team, folders: list[Path]) -> dict[str, Any]:
    """What each process loads, or is told, where each has a folder of its own; and whose errors are everyone's."""

    def told(work: Callable[[], Any]) -> list[Any]:
        try:
            return team.gather(work())
        except UserError as problem:
            return team.gather(str(problem))

    def fail(rank: int) -> int:
        if team.rank == rank:
            raise UserError(f"process {rank} fails")
        return team.rank

    config = STEADY.model_copy(update={"evaluations": 6, "shard": True})
    with open_run(folders[team.rank], PretrainConfig(training=config), {}, team) as run:
        loaded = told(lambda: [saved := run.load(), saved and saved[2].step][1])
    return {
        "loaded": loaded,
        "first": told(lambda: team.first_does(lambda: fail(0))),
        "second": told(lambda: team.agree(lambda: fail(1))),
        "none": told(lambda: team.agree(lambda: fail(2))),
        "of the first": told(lambda: team.first_does(lambda: fail(1))),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    team = join()
    what, out = sys.argv[1], Path(sys.argv[2])
    if what == "train":
        found = {way: trained(team, **changes) for way, changes in WAYS.items()}
    elif what == "apart":
        found = apart(team, [Path(folder) for folder in sys.argv[3:]])
    else:
        found = resumed(team, Path(sys.argv[3]), int(sys.argv[4]))
    _leave()  # as at the end of the process
    names = [Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task")]
    if team.first:
        out.write_text(json.dumps({"size": team.size, "threads": sum("gloo" in name for name in names), **found}))
