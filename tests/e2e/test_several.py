"""Two processes are one training: the same samples, gradients and weights as one process, whatever is divided."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import finetuning, finish, pretraining, start, timeless, wait_for
from models import FORMS
from people import TINY, Chain
from several import WAYS

SCRIPT = Path(__file__).resolve().parent.parent / "several.py"


def run(processes: int, *arguments: object) -> dict[str, Any]:
    several = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    out = Path(str(arguments[1]))
    done = subprocess.run(
        [sys.executable, *several, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found.pop("size") == processes
    assert found.pop("threads") == 0  # one left at Python's end sometimes aborts the process
    return found


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("several")
    return {n: run(n, "train", folder / f"{n}.json") for n in (1, 2)}


def close(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("way", WAYS)
def test_two_are_one(trainings: dict[int, dict[str, Any]], way: str) -> None:
    one, two = trainings[1][way], trainings[2][way]
    assert len(one["log"]) == len(two["log"]) == 6
    for alone, together in zip(one["log"], two["log"]):
        mine, theirs = alone.pop("evaluation", {}), together.pop("evaluation", {})
        assert mine.get("n") == theirs.get("n")
        close({**alone, "sum": mine.get("sum", 0)}, {**together, "sum": theirs.get("sum", 0)})
    close(one["weights"], two["weights"])
    assert sorted(one["seen"]) == sorted(two["seen"])
    assert len(one["seen"]) == 36


def test_ways_differ_where_they_should(trainings: dict[int, dict[str, Any]]) -> None:
    weights = {way: trainings[1][way]["weights"] for way in WAYS}
    close(weights["copies"], weights["parts"])
    close(weights["copies"], weights["divided"])
    for way in ("divided average", "layers"):
        assert weights[way] != weights["copies"]
    fresh = {
        name: tensor.flatten().tolist()
        for name, tensor in FORMS["tiny_classifier"].build(0).double().state_dict().items()
    }
    same = {name for name in fresh if fresh[name] == weights["layers"][name]}
    assert same == {name for name in fresh if name.startswith("embedding.")}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(2, 1), (1, 2)])
def test_stopped_with_some_processes_and_gone_on_with_others(
    trainings: dict[int, dict[str, Any]], processes: tuple[int, int], tmp_path: Path
) -> None:
    first, second = processes
    assert run(first, "resume", tmp_path / "first.json", tmp_path / "run", 3) == {}
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == "step-00000003"
    close(run(second, "resume", tmp_path / "second.json", tmp_path / "run", 9), trainings[1]["copies"]["weights"])


@pytest.mark.slow
def test_processes_go_on_from_one_checkpoint_or_not_at_all(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(1, "resume", tmp_path / "out.json", first, 3)
    shutil.copytree(first, second)
    shutil.rmtree(first / "checkpoints" / "step-00000003")
    (first / "checkpoints" / "latest").write_text("step-00000002")
    found = run(2, "apart", tmp_path / "out.json", first, second)
    assert found.pop("loaded") == [2, 2]
    assert found == {
        "first": ["process 0 fails"] * 2,
        "second": ["process 1 fails"] * 2,
        "none": [[0, 1]] * 2,
        "of the first": [0, 0],
    }
    run(1, "resume", tmp_path / "out.json", tmp_path / "other", 2)
    theirs, another = (folder / "checkpoints" / "step-00000002" for folder in (second, tmp_path / "other"))
    for damage in (shutil.rmtree, lambda folder: shutil.copytree(another, folder)):
        damage(theirs)
        told = run(2, "apart", tmp_path / "out.json", first, second)["loaded"]
        assert told[0] == told[1]
        assert told[0].startswith(f"{theirs}: process 1 cannot go on from it (")


@pytest.mark.slow
def test_the_command_line_of_two_processes_speaks_once(chain: Chain, tmp_path: Path) -> None:
    """Two processes give what one gives, to the bits that sums in another order leave."""
    results = {}
    for n in (1, 2):
        quiet = ("training.steps=4", "encoder.hidden_dropout_prob=0")
        results[n] = json.loads(finish([*pretraining(chain, tmp_path / str(n), *quiet), "--json"], n))
    one, two = timeless(results[1]), timeless(results[2])
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert one.keys() == two.keys()
    log = [len((tmp_path / str(n) / "metrics.jsonl").read_text().splitlines()) for n in (1, 2)]
    assert log == [4, 4]


@pytest.mark.slow
def test_two_processes_fine_tune_as_one(chain: Chain, tmp_path: Path) -> None:
    """Nothing is hidden then, so the vector of hidden patches has no gradient to wait for."""
    results = {}
    for n in (1, 2):
        quiet = (*TINY, "training.steps=4", "head_dropout=0", "encoder.hidden_dropout_prob=0")
        arguments = finetuning(chain, tmp_path / str(n), *quiet)
        arguments[arguments.index("--from") + 1] = "scratch"
        results[n] = json.loads(finish([*arguments, "--json"], n))
    one, two = timeless(results[1]), timeless(results[2])
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert one.keys() == two.keys()


@pytest.mark.slow
def test_a_process_that_dies_ends_all_and_leaves_the_checkpoint(chain: Chain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = pretraining(chain, out, "training.steps=3000", "encoder.hidden_dropout_prob=0")
    launcher = start(arguments, 2)
    wait_for(out / "checkpoints" / "latest", launcher)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    trainers = [int(pid) for pid in children if "eeg" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(trainers) == 2
    os.kill(trainers[1], signal.SIGKILL)
    killed = time.monotonic()
    _, errors = launcher.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    assert launcher.returncode != 0
    assert "another process of this training has ended" in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in trainers)
    step = int((out / "checkpoints" / "latest").read_text().removeprefix("step-"))
    goes_on = finish([*arguments, "--set", f"training.steps={step + 1}", "--force", "--json"])
    assert json.loads(goes_on)["steps"] == step + 1
