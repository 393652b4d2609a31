"""What a user relies on without asking: unseen stays unseen, inputs stay, heads are not mixed up."""

import json
from pathlib import Path

import pytest

from bothways import run
from bothways.errors import BothwaysWarning, UserError
from people import CHANNELS, TINY, WINDOWS, Chain, alpha_uv
from recordings import write_edf


def test_one_split_keeps_people_unseen_by_both_trainings(chain: Chain, tmp_path: Path) -> None:
    run.split(chain.store, tmp_path / "split.json", seed=1)
    with pytest.raises(UserError, match="already exists"):
        run.split(chain.store, tmp_path / "split.json")
    short = [*TINY, *WINDOWS, "training.steps=2"]
    pretrained = run.pretrain(chain.store, tmp_path / "pre", changes=short, split=tmp_path / "split.json")
    split = json.loads((tmp_path / "split.json").read_text())
    assert (pretrained["subjects"], pretrained["validation_subjects"]) == (len(split["train"]), split["validation"])
    manifest = json.loads((tmp_path / "pre" / "manifest.json").read_text())
    assert manifest["data"]["subjects"] == split["train"]
    card = (tmp_path / "pre" / "README.md").read_text()
    assert f"subjects: {', '.join(f'`{name}`' for name in split['train'])}" in card
    run.finetune(
        tmp_path / "pre", chain.store, chain.labels, tmp_path / "tuned",
        changes=[*WINDOWS, "training.steps=2"], split=tmp_path / "split.json",
    )  # fmt: skip
    assert run.evaluate(tmp_path / "tuned")["pretraining_overlap"] == {
        "kind": "same corpus",
        "recordings": [],
        "subjects": [],
    }
    # Seen two runs ago is seen all the same.
    run.pretrain(chain.store, tmp_path / "all", changes=[*short, "validation_fraction=0"])
    run.finetune(
        tmp_path / "all", chain.store, chain.labels, tmp_path / "first",
        changes=[*WINDOWS, "training.steps=2"], split=tmp_path / "split.json",
    )  # fmt: skip
    run.finetune(
        tmp_path / "first", chain.store, chain.labels, tmp_path / "second",
        changes=[*WINDOWS, "training.steps=2"], split=tmp_path / "split.json",
    )  # fmt: skip
    assert run.evaluate(tmp_path / "second")["pretraining_overlap"]["kind"] == "same recording"


def test_labels_seen_before_are_said(chain: Chain, tmp_path: Path) -> None:
    """The tested people's labels trained the run that this one starts from."""
    for name, seed in (("a", 1), ("b", 2)):
        run.split(chain.store, tmp_path / f"{name}.json", seed=seed, train_fraction=0.5, validation_fraction=0.0)
    short = [*WINDOWS, "training.steps=1"]
    for name, start in (("a", chain.pretrained), ("b", tmp_path / "run-a")):
        run.finetune(
            start, chain.store, chain.labels, tmp_path / f"run-{name}", changes=short, split=tmp_path / f"{name}.json"
        )
    assert run.evaluate(tmp_path / "run-b")["pretraining_overlap"]["kind"] == "same recording, with its labels"


def test_two_recordings_never_share_a_file_of_predictions(chain: Chain, tmp_path: Path) -> None:
    source = next(chain.data.rglob("*.edf")).read_bytes()
    (tmp_path / "in" / "a").mkdir(parents=True)
    for name in ("a/x.edf", "a__x.edf"):
        (tmp_path / "in" / name).write_bytes(source)
    result = run.predict(chain.finetuned, [tmp_path / "in"], tmp_path / "out")
    assert len({r["csv"] for r in result["recordings"]}) == 2
    assert all((tmp_path / "out" / r["csv"]).is_file() for r in result["recordings"])


def test_one_labelled_person_is_evaluated_without_the_probe(chain: Chain, tmp_path: Path) -> None:
    changes = [*WINDOWS, "training.steps=2", "labelled_subjects=1"]
    run.finetune(chain.pretrained, chain.store, chain.labels, tmp_path / "run", changes=changes)
    result = run.evaluate(tmp_path / "run")
    assert "frozen_probe" not in result["controls"]
    assert any(note.startswith("no frozen probe: ") for note in result["notes"])


def test_an_input_is_never_overwritten(chain: Chain, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder that bothways wrote"):
        run.prepare([chain.data], chain.data, overwrite=True)
    with pytest.raises(UserError, match="may not be or hold the input"):
        run.finetune(chain.pretrained, chain.store, chain.labels, chain.pretrained, overwrite=True)
    assert len(list(chain.data.rglob("*.edf"))) == 12


def test_a_head_of_other_classes_starts_anew(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(chain.labels.read_text().replace(",closed", ",shut").replace(",open", ",wide"))
    short = [*WINDOWS, "training.steps=1"]
    with pytest.warns(BothwaysWarning, match="its head is drawn anew, it tells closed, open apart"):
        other = run.finetune(chain.finetuned, chain.store, tmp_path / "labels.csv", tmp_path / "other", changes=short)
    same = run.finetune(chain.finetuned, chain.store, chain.labels, tmp_path / "same", changes=short)
    assert set(other["load_report"]["other_classes"]) == {"heads.sequence.linear.weight", "heads.sequence.linear.bias"}
    assert other["load_report"]["missing"] == same["load_report"]["missing"] == []
    assert same["load_report"]["other_classes"] == []


def test_a_stride_beyond_the_window_is_said(chain: Chain, tmp_path: Path) -> None:
    new = write_edf(tmp_path / "new" / "sub-9_closed.edf", alpha_uv("closed", 99), CHANNELS)
    with pytest.warns(BothwaysWarning, match="--stride-s 10: 7 s after each window of 3 s get no answer"):
        result = run.predict(chain.finetuned, [new], tmp_path / "out", stride_s=10.0)
    assert (result["recordings"][0]["windows"], result["recordings"][0]["uncovered_s"]) == (3, 21.0)
