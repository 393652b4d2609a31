"""A run's folder: gone on with to the same bits, refused where it does not fit, whole whatever happens to the disk."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.errors import BothwaysWarning, UserError
from bothways.model import Model
from bothways.training import folder, watch
from sentences import Poisoned, bert, classifier
from sittings import Stopped, Until, names, opened, outcome, sitting, step, stopped


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


def test_force_is_remembered(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 2)
    with pytest.warns(BothwaysWarning, match="--force goes on"):
        stopped(tmp_path / "run", 0, learning_rate=0.5, force=True)
    with pytest.raises(UserError, match="was begun with other settings"):  # nothing has come of it yet
        sitting(tmp_path / "run", learning_rate=0.5)
    with pytest.warns(BothwaysWarning, match="--force goes on"):
        stopped(tmp_path / "run", 1, learning_rate=0.5, force=True)
    sitting(tmp_path / "run", learning_rate=0.5)
    forced = [{"step": 2, "changed": ["training.learning_rate: 0.01, now 0.5"]}]
    for file in ("training.json", "manifest.json", f"checkpoints/{step(6)}/manifest.json"):
        assert json.loads((tmp_path / "run" / file).read_text())["forced"] == forced


def test_what_changes_no_number_may_change(tmp_path: Path, undisturbed: Any) -> None:
    stopped(tmp_path / "run", 2)
    sitting(tmp_path / "run", log_every=1, checkpoint_every_s=50.0, keep=1, workers=2)
    assert outcome(tmp_path / "run") == undisturbed


def begun_with(path: Path, **changes: Any) -> None:
    begun = json.loads((path / "training.json").read_text())
    (path / "training.json").write_text(json.dumps(begun | changes))


@pytest.mark.parametrize(("dropout", "end"), [(0.0, "the last bits may differ"), (0.1, "other dropout is drawn")])
def test_what_may_change_the_last_bits_is_said(tmp_path: Path, dropout: float, end: str) -> None:
    depends_on = {"encoder": {"hidden_dropout_prob": dropout}}
    stopped(tmp_path / "run", 2, depends_on=depends_on)
    begun_with(tmp_path / "run", bothways="0", torch="1.0", processes=4)
    told = r"goes on with bothways: \"0\", now .*; torch: \"1.0\", now .*; processes: 4, now 1"
    with pytest.warns(BothwaysWarning, match=f"{told}: {end}$"):
        sitting(tmp_path / "run", depends_on=depends_on)


@pytest.mark.parametrize(("name", "theirs", "mine"), [("device", "cuda", "cpu"), ("arithmetic", "bf16", "float32")])
def test_another_device_or_precision_is_refused(tmp_path: Path, name: str, theirs: str, mine: str) -> None:
    stopped(tmp_path / "run", 2)
    begun_with(tmp_path / "run", **{name: theirs})
    with pytest.raises(UserError, match=f'begun with other settings or data \\({name}: "{theirs}", now "{mine}"\\)'):
        sitting(tmp_path / "run")


def test_force_with_fewer_steps_than_done_is_one_line(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4)
    with (
        pytest.warns(BothwaysWarning, match="--force goes on although training.steps: 6, now 2"),
        pytest.raises(
            UserError, match=r"test: 4 steps are done already, training.steps is 2; raise it, or pass --over"
        ),
    ):
        sitting(tmp_path / "run", steps=2, force=True)


def test_force_with_as_many_steps_as_done_evaluates(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 4, log_every=100)
    with pytest.warns(BothwaysWarning, match="--force"):
        result = sitting(tmp_path / "run", steps=4, log_every=100, force=True)
    assert result.evaluation is not None
    assert result.steps == result.metrics[-1]["step"] == 4
    assert result.metrics[-1]["evaluation"] == result.evaluation


# Finished, begun anew, failed ------------------------------------------------------------------------------------


def test_a_finished_run_gives_its_result(tmp_path: Path) -> None:
    result = sitting(tmp_path / "run")
    before = outcome(tmp_path / "run")
    with opened(tmp_path / "run") as run:
        assert run.result == {"loss": result.metrics[-1]["loss"]}
    for force, said in ((False, ""), (True, ", and a finished run cannot be extended")):
        with pytest.raises(UserError, match=rf"was made with other .*training.seed: 0, now 1\){said}; use .* anew$"):
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


def test_killed_while_it_is_replaced_it_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting(tmp_path / "finished")
    everything = sorted(path.name for path in (tmp_path / "finished").rglob("*"))
    real = {"rename": Path.rename, "unlink": Path.unlink, "rmtree": shutil.rmtree}
    for changes in range(1, 40):
        run = tmp_path / f"run-{changes}"
        shutil.copytree(tmp_path / "finished", run)
        left = [changes]

        def mortal(real: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def change(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    raise Stopped
                left[0] -= 1
                return real(*arguments, **options)

            return change

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", mortal(real["rename"]))
            patch.setattr(Path, "unlink", mortal(real["unlink"]))
            patch.setattr(folder.shutil, "rmtree", mortal(real["rmtree"]))
            with suppress(Stopped):
                sitting(run, Until(0), seed=1, overwrite=True)
        with opened(run) as again:
            assert again.result is not None
        assert outcome(run) == outcome(tmp_path / "finished")
        assert sorted(path.name for path in run.rglob("*")) == everything
        if left[0]:
            break
    assert changes > 15


def test_what_is_replaced_is_kept_until_there_is_a_checkpoint(tmp_path: Path) -> None:
    sitting(tmp_path / "run")
    before = outcome(tmp_path / "run")
    with pytest.raises(UserError, match="typo"):
        sitting(tmp_path / "run", freeze=("typo",), overwrite=True)
    assert outcome(tmp_path / "run") == before
    with opened(tmp_path / "run") as run:
        assert run.result is not None
    stopped(tmp_path / "run", 0, seed=1, overwrite=True)
    assert outcome(tmp_path / "run") == before
    stopped(tmp_path / "run", 1, seed=1, overwrite=True)
    assert not (tmp_path / "run" / ".before").exists()
    assert names(tmp_path / "run") == ["latest", step(1)]


def test_what_failed_before_its_first_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    for overwrite in (False, True):
        stopped(tmp_path / "run", 0, overwrite=overwrite)
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


@pytest.mark.parametrize("left", [(), ("lock",), ("lock", ".training.json.7.partial")], ids=str)
def test_killed_before_its_first_file_it_begins(tmp_path: Path, undisturbed: Any, left: tuple[str, ...]) -> None:
    (tmp_path / "run").mkdir()
    for name in left:
        (tmp_path / "run" / name).write_bytes(b"")
    sitting(tmp_path / "run", overwrite=bool(left))
    assert outcome(tmp_path / "run") == undisturbed
    assert not list((tmp_path / "run").glob(".*"))


def test_what_began_without_a_checkpoint_removes_nothing_of_others(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 1)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    sitting(tmp_path / "run")
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_finished_run_that_only_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path / "stopped", 2)
    sitting(tmp_path / "run")

    def denied(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(folder, "locked", denied)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(Path, "mkdir", denied)
    with opened(tmp_path / "run") as run:
        assert run.result is not None
    with pytest.raises(UserError, match="was made with other settings"):
        sitting(tmp_path / "run", seed=1)
    for path, options in ((tmp_path / "run", {"overwrite": True}), (tmp_path / "stopped", {})):
        with pytest.raises(UserError, match="cannot be written"):
            sitting(path, **options)


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
        f"test: the loss of step {number} is inf; it comes from text-3.txt (the batch: {file}); look there, or "
        "lower training.learning_rate and begin anew with --overwrite"
    )
    kept = load_file(file)
    assert kept.keys() == {"input_ids.0", "labels.0", "sample_id.0"}
    assert 3 in kept["sample_id.0"].tolist()
    assert len(kept["sample_id.0"]) == 4
    content = file.read_bytes()
    sitting(tmp_path / "run", **{"checkpoint_every_s": 0, "evaluations": 1})
    assert file.read_bytes() == content


def test_the_batch_of_a_loss_that_is_not_finite_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(watch, "write_weights", full)
    model = classifier()
    with torch.no_grad():
        model.heads["sequence"].linear.bias[2] = -torch.inf
    settings = {"checkpoint_every_s": 0, "evaluations": 1}
    with pytest.raises(UserError, match=r"is inf; it comes from text-3.txt \(the batch could not be saved: .*No space"):
        sitting(tmp_path / "run", Poisoned(), model, **settings)


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
