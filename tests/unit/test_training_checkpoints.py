"""Checkpoints: which are kept, which are damaged and passed over, what going on from them gives."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import bothways
from bothways import run as commands
from bothways.config import PretrainConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.files import write_text
from bothways.training import TrainResult, folder, join, load_config_of, load_run, open_run, run_at, train
from bothways.training.checkpoint import sums_of
from bothways.weights import read_weights, write_weights
from models import embedding_of
from sentences import Sentences, bert, changed, classifier
from sittings import OFTEN, Stopped, Until, names, opened, outcome, sitting, step, stopped


@pytest.fixture
def undisturbed(tmp_path: Path) -> tuple[bytes, list[tuple[Any, ...]]]:
    sitting(tmp_path / "undisturbed")
    return outcome(tmp_path / "undisturbed")


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


def rewritten(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut": lambda c: os.truncate(c / "model.safetensors", 5000),
    "moments cut": lambda c: os.truncate(c / "optimizer.safetensors", 5000),
    "no moments": lambda c: (c / "optimizer.safetensors").unlink(),
    "no state": lambda c: (c / "state.json").unlink(),
    "another state": lambda c: (c / "state.json").write_text('{"steps": 3}'),
    "empty state": lambda c: (c / "state.json").write_text("{}"),
    "state of another step": lambda c: shutil.copy(c.with_name(step(3)) / "state.json", c),
    "state and sums of another step": lambda c: [
        shutil.copy(c.with_name(step(3)) / name, c) for name in ("state.json", "metrics.jsonl", "manifest.json")
    ],
    "negative step": lambda c: rewritten(c / "state.json", step=-2),
    "other numbers": lambda c: rewritten(c / "state.json", seconds=0.5),
    "no manifest": lambda c: (c / "manifest.json").unlink(),
    "another log": lambda c: (c / "metrics.jsonl").write_text(""),
    "log cut": lambda c: (c / "metrics.jsonl").write_text('{"st'),
    "gone": shutil.rmtree,
    "no manifest and no log": lambda c: [(c / name).unlink() for name in ("manifest.json", "metrics.jsonl")],
    "moments of another step": lambda c: shutil.copy(c.with_name(step(3)) / "optimizer.safetensors", c),
    "weights of another step": lambda c: shutil.copy(c.with_name(step(3)) / "model.safetensors", c),
    "weights of another model": lambda c: write_weights(c / "model.safetensors", bert().state_dict()),
    "moments without checksums": lambda c: save_file(
        {name: tensor + 1 for name, tensor in read_weights(c / "optimizer.safetensors").items()},
        c / "optimizer.safetensors",
    ),
    "a pipe for its state": lambda c: [(c / "state.json").unlink(), os.mkfifo(c / "state.json")],
    "a file in its place": lambda c: [shutil.rmtree(c), c.write_text("")],
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


MOMENTS: dict[str, Callable[[str, Tensor], Tensor]] = {
    "shape": lambda name, moment: moment[:1].clone() if name.startswith("exp_avg.") and moment.ndim else moment,
    "dtype": lambda name, moment: moment.to(torch.int8) if name.startswith("exp_avg.") else moment,
    "dtype of the step": lambda name, moment: moment.long() if name.startswith("step.") else moment,
    "step before the first": lambda name, moment: -moment if name.startswith("step.") else moment,
    "step to come": lambda name, moment: moment + 1 if name.startswith("step.") else moment,
    "step of every number": lambda name, moment: moment.expand(2).clone() if name.startswith("step.") else moment,
}
NAMES: dict[str, Callable[[str], str]] = {
    "other kind": lambda name: name.replace("exp_avg.", "max_exp_avg."),
    "other weight": lambda name: name.replace("heads.sequence", "heads.other"),
    "own weight": lambda name: name.replace("exp_avg.", "own."),
}


def sealed(checkpoint: Path) -> None:
    """Lets a checkpoint's manifest vouch for what lies there now."""
    sums = json.loads((checkpoint / "manifest.json").read_text())["sha256"]
    rewritten(checkpoint / "manifest.json", sha256=sums_of(checkpoint, sums))


@pytest.mark.parametrize("odd", [*MOMENTS, *NAMES])
def test_moments_that_do_not_fit_are_not_taken(tmp_path: Path, odd: str) -> None:
    """Fused AdamW would write beyond their ends."""
    stopped(tmp_path / "run", 4)
    checkpoint = tmp_path / "run" / "checkpoints" / step(4)
    moments = read_weights(checkpoint / "optimizer.safetensors")
    value, name = MOMENTS.get(odd, lambda _, moment: moment), NAMES.get(odd, str)
    moments = {name(key): value(key, moment) for key, moment in moments.items()}
    write_weights(checkpoint / "optimizer.safetensors", moments)
    sealed(checkpoint)
    with pytest.raises(UserError, match=r"the checkpoint of step 4 is of another model \(\w+\..* does not fit\);"):
        sitting(tmp_path / "run")


def test_a_weight_has_all_of_its_moments(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4)
    checkpoint = tmp_path / "run" / "checkpoints" / step(4)
    moments = read_weights(checkpoint / "optimizer.safetensors")
    del moments["exp_avg_sq.heads.sequence.linear.bias"]
    write_weights(checkpoint / "optimizer.safetensors", moments)
    sealed(checkpoint)
    with pytest.raises(UserError, match=r"another model \(exp_avg_sq.heads.sequence.linear.bias does not fit\)"):
        sitting(tmp_path / "run")


def test_a_pointer_older_than_all_checkpoints_removes_none(tmp_path: Path, undisturbed: Any) -> None:
    stopped(tmp_path / "run", 5)
    (tmp_path / "run" / "checkpoints" / "latest").write_text(step(3))
    with pytest.warns(BothwaysWarning, match=rf"{step(3)}: missing; going on from {step(5)} instead$"):
        stopped(tmp_path / "run", 0)
    assert names(tmp_path / "run") == ["latest", step(4), step(5)]
    with pytest.warns(BothwaysWarning, match=rf"{step(3)}: missing; going on from {step(5)} instead$"):
        sitting(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("name", ["checkpoints/latest", "checkpoints/best", "model.safetensors"])
def test_a_folder_in_a_files_place_is_refused_before_training(tmp_path: Path, name: str) -> None:
    stopped(tmp_path / "run", 2)
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).mkdir()
    with pytest.raises(UserError, match=rf"run/{name}: expected a file or nothing here, got a folder; move it away$"):
        sitting(tmp_path / "run", Until(0))


def test_what_a_kill_at_the_last_checkpoint_left_is_done_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = changed(steps=4, evaluations=4, keep=1)

    def go_on(*scores: float) -> int:
        left, model = list(scores), classifier()
        with open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run:
            result = train(
                model, Sentences(), config, title="test", evaluate=lambda _: {}, score=lambda _: left.pop(0), run=run
            )
            run.finish(model, {})
        return result.best_step

    def mortal(path: Path, text: str) -> None:
        if text == step(4) and path.name == "best":
            raise Stopped
        write_text(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_text", mortal)
        with pytest.raises(Stopped):
            go_on(1.0, 2.0, 3.0, 9.0)
    assert names(tmp_path / "run") == ["best", "latest", step(3), step(4)]
    assert go_on() == 4
    assert names(tmp_path / "run") == ["best", "latest", step(4)]
    assert (tmp_path / "run" / "checkpoints" / "best").read_text() == step(4)


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
    with pytest.raises(UserError) as caught:
        sitting(tmp_path / "run")
    each = r"{}/model.safetensors: expected safetensors, but the file is damaged \([^()]*\)"
    assert re.fullmatch(
        rf".*/run: no checkpoint can be read \({each.format(step(4))}; {each.format(step(3))}\); pass --overwrite to "
        "begin anew",
        str(caught.value),
    )


@pytest.mark.parametrize("lost", [step(4), ""], ids=["and the newest checkpoint", "alone"])
def test_a_lost_pointer_does_not_begin_anew(tmp_path: Path, lost: str, undisturbed: Any) -> None:
    stopped(tmp_path / "run", 4)
    (tmp_path / "run" / "checkpoints" / "latest").unlink()
    if lost:
        shutil.rmtree(tmp_path / "run" / "checkpoints" / lost)
    with pytest.warns(BothwaysWarning, match=rf"latest: missing; going on from {step(3 if lost else 4)} instead$"):
        sitting(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_checkpoints_without_what_they_come_from(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4)
    (tmp_path / "run" / "training.json").unlink()
    with pytest.raises(UserError, match=r"run: has checkpoints but no training.json, .*; restore it, choose another "):
        sitting(tmp_path / "run")
    (tmp_path / "run" / "training.json").write_text("[]")
    with pytest.raises(UserError, match=r"training.json: expected a JSON object; restore it"):
        sitting(tmp_path / "run")
    assert names(tmp_path / "run") == ["latest", step(3), step(4)]


def test_what_a_killed_process_left_is_removed(tmp_path: Path, undisturbed: Any) -> None:
    stopped(tmp_path / "run", 4)
    left = [".model.safetensors.7.partial", "checkpoints/.latest.7.partial", f"checkpoints/.{step(5)}.7.partial/x"]
    for name in left:
        (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "run" / name).write_bytes(b"")
    with opened(tmp_path / "run"):
        assert list((tmp_path / "run").rglob(".*")) == []


def test_checkpoints_that_were_passed_over_do_not_count(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 5, keep=3)
    for one in (4, 5):
        (tmp_path / "run" / "checkpoints" / step(one) / "state.json").write_text("{}")
    with pytest.warns(BothwaysWarning, match="going on from"):
        stopped(tmp_path / "run", 1, keep=3)
    assert names(tmp_path / "run") == ["latest", step(3), step(4)]


def test_an_old_checkpoint_that_cannot_be_removed_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Any
) -> None:
    def busy(path: Path, *_: object, **options: object) -> None:
        if not options.get("ignore_errors"):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    with monkeypatch.context() as patch:
        patch.setattr(folder.shutil, "rmtree", busy)
        sitting(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed
    with opened(tmp_path / "run"):
        assert not [name for name in names(tmp_path / "run") if name.startswith(".")]


def test_the_error_on_a_linked_folder_is_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "training.json").write_text("{}")
    stopped(tmp_path / "run", 0)
    assert os.listdir(tmp_path / "elsewhere") == []


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


def test_pointers_stand_for_checkpoints(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4)
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "best").write_text(step(3) + "\n")
    assert run_at(checkpoints) == run_at(checkpoints / "latest") == checkpoints / step(4)
    assert run_at(checkpoints / "best") == checkpoints / step(3)
    (checkpoints / "best").write_text("../../elsewhere")
    for path in (checkpoints / "best", checkpoints / step(4), tmp_path / "run", tmp_path / "latest"):
        assert run_at(path) == path


def test_a_run_without_its_manifest_says_so(tmp_path: Path) -> None:
    sitting(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(UserError, match="the run is not finished; give the command"):
        load_config_of(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(UserError, match=r"run: manifest.json is missing, without which .*; restore it$"):
        load_config_of(tmp_path / "run")


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


def test_a_damaged_best_is_said_with_a_way_on(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", PretrainConfig(), {}, join()) as run:
        (tmp_path / "run" / "checkpoints" / step(3)).mkdir(parents=True)
        with pytest.raises(UserError, match=r"training.patience chose; without them, go on with --force"):
            run.weights_of(3)
