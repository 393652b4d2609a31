"""Checkpoints serve as runs before the run is finished; `auto` and a finished run through whole commands."""

import json
from pathlib import Path

import pytest

import bothways
from bothways import run
from bothways.errors import BothwaysWarning, Interrupted
from bothways.training import loop, memory
from people import TINY, WINDOWS, Chain


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every training is asked to stop after its third step."""
    agree = loop._Training._agree

    def stops(self: loop._Training, stop: object) -> tuple[bool, bool]:
        asked, save = agree(self, stop)
        return asked or self.state.step == 3, save

    monkeypatch.setattr(loop._Training, "_agree", stops)
    return monkeypatch


def test_checkpoints_serve_as_runs(chain: Chain, tmp_path: Path, stop_after: pytest.MonkeyPatch) -> None:
    pretrained, finetuned = tmp_path / "pretrained", tmp_path / "finetuned"
    with pytest.raises(Interrupted, match="step 3 is saved"):
        run.pretrain(chain.store, pretrained, changes=[*TINY, *WINDOWS, "training.steps=20"])
    start = pretrained / "checkpoints" / "step-00000003"
    with pytest.raises(Interrupted):
        run.finetune(start, chain.store, chain.labels, finetuned, changes=[*WINDOWS, "training.steps=20"])
    trained = finetuned / "checkpoints" / "step-00000003"
    for pointer in (pretrained / "checkpoints", pretrained / "checkpoints" / "latest"):
        again = tmp_path / f"from-{pointer.name}"
        with pytest.raises(Interrupted):
            run.finetune(pointer, chain.store, chain.labels, again, changes=[*WINDOWS, "training.steps=20"])
        manifest = json.loads((again / "checkpoints" / "step-00000003" / "manifest.json").read_text())
        assert manifest["from"] == str(start)
        assert bothways.load(pointer).load_report is not None
    assert run.evaluate(trained)["model"]["n_subjects"] > 0
    assert run.evaluate(finetuned / "checkpoints" / "latest")["run"] == str(trained)
    found = run.predict(finetuned / "checkpoints", [next(chain.data.rglob("*.edf"))], tmp_path / "out")
    assert found["recordings"][0]["windows"] > 0
    for card in (start, trained):
        assert "3 steps" in (card / "README.md").read_text(encoding="utf-8")


def test_auto_is_said_and_kept(chain: Chain, tmp_path: Path, stop_after: pytest.MonkeyPatch) -> None:
    settings = [*TINY, *WINDOWS, "training.steps=6", 'training.batch_size="auto"']
    stop_after.setattr(memory, "free_bytes", lambda device: 20e6)
    with pytest.warns(BothwaysWarning, match=r"batch_size: auto = \d+$") as warned, pytest.raises(Interrupted):
        run.pretrain(chain.store, tmp_path / "run", changes=settings)
    size = int(str(warned[0].message).rpartition(" ")[2])
    stop_after.undo()
    with pytest.warns(BothwaysWarning, match=rf"batch_size: auto = {size}$"):
        made = run.pretrain(chain.store, tmp_path / "run", changes=settings)
    again = run.pretrain(chain.store, tmp_path / "run", changes=settings)
    assert not made.pop("finished_before")
    assert again.pop("finished_before")
    assert again == made
    assert f"batch_size = {size}\n" in (tmp_path / "run" / "recipe.toml").read_text()
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 6
