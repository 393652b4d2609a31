"""A run's folder: gone on with to the same bits, refused where it does not fit, whole whatever happens to the disk."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import bothways
from bothways import run as commands
from bothways.config import PretrainConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.model import Model
from bothways.training import RunFolder, TrainResult, folder, join, load_config_of, load_run, open_run, train
from models import embedding_of
from sentences import Poisoned, Sentences, bert, changed, classifier

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


@pytest.fixture
def undisturbed(tmp_path: Path) -> tuple[bytes, list[tuple[Any, ...]]]:
    sitting(tmp_path / "undisturbed")
    return outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize("options", [{}, {"ema": 0.5}, {"accumulate": 2}, {"log_every": 4}], ids=str)
def test_stopped_at_every_step_it_comes_to_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    sitting(tmp_path / "undisturbed", **options)
    for _ in range(4):
        stopped(tmp_path / "run", options.get("accumulate", 1), **options)
    sitting(tmp_path / "run", **options)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


# Other settings --------------------------------------------------------------------------------------------------


def test_what_differs_is_named_and_refused(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 2, depends_on={"data": "abc"})
    with pytest.raises(UserError) as caught:
        sitting(tmp_path / "run", learning_rate=0.5, depends_on={"data": "xyz"})
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: was begun with other settings or data (training.learning_rate: 0.01, now 0.5; data: "
        '"abc", now "xyz"); use those, choose another --out, pass --overwrite to begin anew, or --force to go on all '
        "the same"
    )
    assert names(tmp_path / "run") == ["latest", step(1), step(2)]


def test_force_says_what_it_overrides(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 2)
    with pytest.warns(BothwaysWarning, match=r"--force goes on although training.learning_rate: 0.01, now 0.5$"):
        result = sitting(tmp_path / "run", learning_rate=0.5, force=True)
    assert [entry["learning_rate"] for entry in result.metrics][:3] == pytest.approx([0.01, 0.01, 0.4522542485937369])


def test_force_on_another_model_is_one_line(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 2)
    with pytest.raises(UserError, match=r"the checkpoint of step 2 is of another model \(embedding.segment"):
        sitting(tmp_path / "run", model=bert())


def test_force_with_other_frozen_parts(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 2)
    with pytest.warns(BothwaysWarning, match="training.freeze"):
        sitting(tmp_path / "run", freeze=("embedding",), force=True)


def test_what_changes_no_number_may_change(tmp_path: Path, undisturbed: Any) -> None:
    stopped(tmp_path / "run", 2)
    sitting(tmp_path / "run", log_every=1, checkpoint_every_s=50.0, keep=1, workers=2)
    assert outcome(tmp_path / "run") == undisturbed


def test_what_may_change_the_last_bits_is_said(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 2)
    begun = json.loads((tmp_path / "run" / "training.json").read_text())
    (tmp_path / "run" / "training.json").write_text(json.dumps(begun | {"torch": "1.0", "processes": 4}))
    with pytest.warns(BothwaysWarning, match=r"goes on with torch: \"1.0\", now .*; processes: 4, now 1: the last"):
        sitting(tmp_path / "run")


# Finished, begun anew, failed ------------------------------------------------------------------------------------


def test_a_finished_run_gives_its_result(tmp_path: Path) -> None:
    result = sitting(tmp_path / "run")
    before = outcome(tmp_path / "run")
    with opened(tmp_path / "run") as run:
        assert run.result == {"loss": result.metrics[-1]["loss"]}
    for force in (False, True):
        with pytest.raises(UserError, match=r"was made with other settings .*training.seed: 0, now 1\).* anew$"):
            sitting(tmp_path / "run", seed=1, force=force)
    assert outcome(tmp_path / "run") == before


def test_overwrite_begins_anew(tmp_path: Path) -> None:
    sitting(tmp_path / "other", seed=1)
    sitting(tmp_path / "run")
    sitting(tmp_path / "run", seed=1, overwrite=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "other")
    assert names(tmp_path / "run") == names(tmp_path / "other")
    stopped(tmp_path / "run", 2, overwrite=True)
    assert names(tmp_path / "run") == ["latest", step(1), step(2)]
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_killed_while_it_is_cleared_it_is_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each deletion the folder is the finished run, or one that has to begin."""
    sitting(tmp_path / "other", seed=1)
    sitting(tmp_path / "finished")
    unlink, rmtree = Path.unlink, shutil.rmtree
    for deletions in range(1, 20):
        run = tmp_path / f"run-{deletions}"
        shutil.copytree(tmp_path / "finished", run)
        left = [deletions]

        def mortal(real: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def delete(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    raise Stopped
                left[0] -= 1
                return real(*arguments, **options)

            return delete

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", mortal(unlink))
            patch.setattr(folder.shutil, "rmtree", mortal(rmtree))
            with suppress(Stopped):
                sitting(run, Until(0), seed=1, overwrite=True)
        killed = left[0] == 0
        if (run / "manifest.json").exists():
            with opened(run) as again:
                assert again.result is not None
            continue
        sitting(run, seed=1)
        assert outcome(run) == outcome(tmp_path / "other")
        if not killed:
            break
    assert deletions > 6


def test_what_failed_before_its_first_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 0)
    assert not (tmp_path / "run").exists()


def test_two_trainers_of_one_run(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "run"),
        pytest.raises(UserError, match=r"run: another process trains it; wait until it is done$"),
        opened(tmp_path / "run"),
    ):
        pass
    sitting(tmp_path / "run")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_bytes(b"")
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"photos: (already exists|not a folder that bothways wrote)"):
            sitting(tmp_path / "photos", overwrite=overwrite)
    assert os.listdir(tmp_path / "photos") == ["me.jpg"]


# Checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_and_the_best_are_kept(tmp_path: Path, keep: int) -> None:
    scores = iter([3.0, 1.0, 2.0])
    config = changed(steps=9, evaluations=3, keep=keep, checkpoint_every_s=1e-9)
    with open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run:
        train(
            classifier(), Sentences(), config, title="test", run=run,
            evaluate=lambda _: {}, score=lambda _: next(scores),
        )  # fmt: skip
    assert names(tmp_path / "run") == ["best", "latest", step(3), *map(step, range(10 - keep, 10))]
    assert (tmp_path / "run" / "checkpoints" / "best").read_text() == step(3)
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == step(9)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut": lambda c: os.truncate(c / "model.safetensors", 5000),
    "moments cut": lambda c: os.truncate(c / "optimizer.safetensors", 5000),
    "no moments": lambda c: (c / "optimizer.safetensors").unlink(),
    "no state": lambda c: (c / "state.json").unlink(),
    "another state": lambda c: (c / "state.json").write_text('{"steps": 3}'),
    "log cut": lambda c: (c / "metrics.jsonl").write_text('{"st'),
    "gone": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, damage: Callable[[Path], object], undisturbed: Any
) -> None:
    stopped(tmp_path / "run", 4)
    damage(tmp_path / "run" / "checkpoints" / step(4))
    with pytest.warns(BothwaysWarning, match=rf"{step(4)}.*; going on from {step(3)} instead$"):
        sitting(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("text", ["", "\0\0\0\0", "step-99999999"])
def test_a_damaged_pointer_does_not_begin_anew(tmp_path: Path, text: str, undisturbed: Any) -> None:
    stopped(tmp_path / "run", 4)
    (tmp_path / "run" / "checkpoints" / "latest").write_text(text)
    with opened(tmp_path / "run") as run:
        assert run.latest == step(4)


def test_the_best_of_an_older_checkpoint_is_still_there(tmp_path: Path) -> None:
    """The newest, which is the best, is damaged: the best of the one before it is needed again."""
    config = changed(steps=8, evaluations=8, patience=8, keep=2)

    def score_until(*scores: float) -> TrainResult:
        left, model = list(scores), classifier()
        with open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run:
            return train(
                model, Sentences(), config, title="test", evaluate=lambda _: {}, score=lambda _: left.pop(0), run=run
            )

    with pytest.raises(IndexError):
        score_until(5.0, 1.0, 2.0, 9.0)
    assert names(tmp_path / "run") == ["best", "latest", step(1), step(3), step(4)]
    os.truncate(tmp_path / "run" / "checkpoints" / step(4) / "model.safetensors", 5000)
    with pytest.warns(BothwaysWarning, match="going on from"):
        assert score_until(1.0, 1.0, 1.0, 1.0, 1.0).best_step == 1


def test_all_checkpoints_damaged(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4)
    for one in (3, 4):
        os.truncate(tmp_path / "run" / "checkpoints" / step(one) / "model.safetensors", 5000)
    with pytest.raises(UserError, match=r"run: no checkpoint can be read \(.*\); pass --overwrite to begin anew$"):
        sitting(tmp_path / "run")


def test_a_full_disk_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Any
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(UserError) as caught:
        sitting(tmp_path / "run", Until(3, lambda: patch.setattr(os, "fsync", full)))
    assert str(caught.value) == (
        f"{tmp_path / 'run' / 'checkpoints' / step(4)}: cannot be written: No space left on device; make room and run "
        "the same command again, it goes on from step 3"
    )
    assert names(tmp_path / "run") == ["latest", step(2), step(3)]
    sitting(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_full_disk_at_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        monkeypatch.context() as patch,
        pytest.raises(UserError, match=r"it goes on from the beginning$"),
    ):
        sitting(tmp_path / "run", Until(0, lambda: patch.setattr(os, "fsync", full)))
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_is_a_run(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4)
    model = load_run(tmp_path / "run" / "checkpoints" / step(4), embedding_of)
    assert not model.training
    short = classifier(dropout=0.2)
    with pytest.raises(Stopped):
        train(short, Until(4), changed(**OFTEN), title="test")
    assert all(torch.equal(one, short.state_dict()[name]) for name, one in model.state_dict().items())


@pytest.mark.parametrize(
    "load",
    [
        load_config_of,
        bothways.load,
        lambda run: commands.predict(run, ["x.edf"], "out"),
        lambda run: commands.evaluate(run),
    ],
    ids=["config", "load", "predict", "evaluate"],
)
def test_an_unfinished_run_names_its_checkpoint(tmp_path: Path, load: Callable[[Path], object]) -> None:
    stopped(tmp_path / "run", 4)
    with pytest.raises(UserError) as caught:
        load(tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: the run is not finished; give the command that began it again, or take its newest "
        f"checkpoint, {tmp_path / 'run' / 'checkpoints' / step(4)}"
    )


# Numbers that are not finite -------------------------------------------------------------------------------------


def test_the_batch_of_a_loss_that_is_not_finite_is_kept(tmp_path: Path) -> None:
    model = classifier()
    with torch.no_grad():
        model.heads["sequence"].linear.bias[2] = -torch.inf  # class 2 has no chance: its loss is infinite
    with pytest.raises(UserError) as caught:
        sitting(tmp_path / "run", Poisoned(), model, **{"checkpoint_every_s": 0, "evaluations": 1})
    (file,) = (tmp_path / "run").glob("not-finite-*.safetensors")
    number = int(file.stem.removeprefix("not-finite-step-"))
    assert str(caught.value) == (
        f"test: the loss of step {number} is inf; it comes from text-3.txt (the batch: {file}); look there with "
        "`bothways eeg check`, or lower training.learning_rate"
    )
    kept = load_file(file)
    assert kept.keys() == {"input_ids.0", "labels.0", "sample_id.0"}
    assert 3 in kept["sample_id.0"].tolist()
    assert len(kept["sample_id.0"]) == 4


def test_a_gradient_that_is_not_finite(tmp_path: Path) -> None:
    model = classifier()

    def loss(losses: Any) -> Tensor:
        return Model.loss(model, losses) + (model.heads["sequence"].linear.bias * 0).sum().sqrt()  # 0, its slope NaN

    model.loss = loss  # type: ignore[method-assign]
    with pytest.raises(
        UserError, match=r"^test: the gradient of step 1 is not finite; it comes from (text-\d.txt\W+){4}"
    ):
        sitting(tmp_path / "run", model=model)
    assert (tmp_path / "run" / "not-finite-step-1.safetensors").is_file()
