"""Fine-tuning from what came from elsewhere or was changed: what is taken, what is refused, what is said."""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bothways import eeg, run
from bothways.errors import BothwaysWarning, UserError
from bothways.run.common import content_of
from people import TINY, WINDOWS, Chain

FINE = [*WINDOWS, "training.steps=1"]
WEIGHTS = "model.safetensors"


def half(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor.half() for name, tensor in tensors.items()}, folder / WEIGHTS)


def pipe(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        change(values)
        (folder / "config.json").write_text(json.dumps(values))
        # As one saved it elsewhere: of a run of ours its config's checksum would be refused first.
        (folder / "manifest.json").write_text(json.dumps({"kind": "imported"}))

    return damage


def text(values: dict[str, Any]) -> None:
    values.update(patches=None, text={"vocab_size": 9}, signal=values["signal"])


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "half precision": (half, "expected float32, got float16; save the model in float32"),
    "a pipe": (pipe, "expected a file, got a folder, a pipe or a device"),
    "10 GB of nothing": (lambda folder: os.truncate(folder / WEIGHTS, 10 * 2**30), "the file is damaged"),
    "one layer of two": (
        config(lambda c: c["encoder"].update(num_hidden_layers=1)), "unexpected: encoder.layers.1."
    ),
    "another norm": (
        config(lambda c: c["encoder"].update(norm="post", final_norm=False)), "unexpected: encoder.final_norm."
    ),
    "only a pickle": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), "found only pytorch_model.bin, a pickle"
    ),
    "of text": (config(text), "expected a model of EEG, got one of text"),
    "no signal": (config(lambda c: c.update(signal=None)), "its config says nothing of the signal"),
}  # fmt: skip


@pytest.mark.parametrize(("harm", "message"), HARMS.values(), ids=HARMS)
def test_a_start_that_is_refused(chain: Chain, tmp_path: Path, harm: Callable[[Path], object], message: str) -> None:
    shutil.copytree(chain.pretrained, tmp_path / "start")
    harm(tmp_path / "start")
    with pytest.raises(UserError) as caught:
        run.finetune(tmp_path / "start", chain.store, chain.labels, tmp_path / "out", changes=FINE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_start_without_a_manifest(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    for name in ("config.json", WEIGHTS):
        shutil.copy(chain.pretrained / name, tmp_path / "start")
    with pytest.warns(BothwaysWarning, match=r"start: has no manifest.json: what it was trained on is not known"):
        result = run.finetune(tmp_path / "start", chain.store, chain.labels, tmp_path / "out", changes=FINE)
    assert result["load_report"]["new_heads"] == ["sequence"]
    evaluated = run.evaluate(tmp_path / "out")
    assert evaluated["pretraining_overlap"] == {"kind": "unknown", "recordings": [], "subjects": []}
    assert set(evaluated["probe_load_report"]["unexpected"]) == set(result["load_report"]["unexpected"])


def test_a_head_that_is_not_taken_over_is_said(chain: Chain, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    rows = [row.split(",") for row in chain.labels.read_text().splitlines()]
    labels.write_text("\n".join(f"{file},{label.replace('open', 'wide open')}" for file, label in rows))
    with pytest.warns(BothwaysWarning, match="finetuned: its head is drawn anew, it tells closed, open apart"):
        report = run.finetune(chain.finetuned, chain.store, labels, tmp_path / "a", changes=FINE)["load_report"]
    assert report["other_classes"] == ["heads.sequence.linear.weight", "heads.sequence.linear.bias"]
    with pytest.warns(BothwaysWarning, match='its head was trained with pool = "cls" and goes on with "mean"'):
        result = run.finetune(
            chain.finetuned, chain.store, chain.labels, tmp_path / "b", changes=[*FINE, 'pool="mean"']
        )
    assert (result["load_report"]["other_classes"], result["load_report"]["missing"]) == ([], [])


def test_signals_that_changed_on_disk_are_other_data(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.store, tmp_path / "store")
    changes = [*TINY, *FINE]
    run.pretrain(tmp_path / "store", tmp_path / "out", changes=changes)
    assert run.pretrain(tmp_path / "store", tmp_path / "out", changes=changes)["finished_before"]
    file = next((tmp_path / "store" / "signals").glob("*.npy"))
    np.save(file, np.load(file)[:, ::-1])
    with pytest.raises(UserError, match=r"was made with other settings or data \(data: "):
        run.pretrain(tmp_path / "store", tmp_path / "out", changes=changes)


def test_of_a_large_store_pieces_are_looked_at(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(chain.store, tmp_path / "store")
    store, copy = eeg.Store.open(chain.store), eeg.Store.open(tmp_path / "store")
    monkeypatch.setattr("bothways.run.common.MOST_HASHED_BYTES", 100_000)
    before = content_of(store)
    assert content_of(copy) == before  # wherever it lies, whenever it was copied
    file = next((tmp_path / "store" / "signals").glob("*.npy"))
    signals = np.load(file)
    np.save(file, signals[:, ::-1])
    assert content_of(copy) != before
    np.save(file, signals)
    assert content_of(copy) == before
    signals[-1, -1] += 1
    np.save(file, signals)
    assert content_of(copy) != before  # the last piece ends with the file


def test_a_name_that_is_no_utf8(chain: Chain, tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(UserError, match="expected a path in UTF-8; rename it"):
        run.pretrain(chain.store, name, changes=[*TINY, *FINE])
    with pytest.raises(UserError, match="expected a path in UTF-8; rename it"):
        run.finetune("scratch", chain.store, chain.labels, name, changes=[*TINY, *FINE])
    with pytest.raises(UserError, match="expected a path in UTF-8; rename it"):
        run.predict(chain.finetuned, [chain.data], name)


@pytest.mark.parametrize("change", ["encoder.hidden_size=1000000", "encoder.num_hidden_layers=100000000"])
def test_a_model_that_no_memory_holds(chain: Chain, tmp_path: Path, change: str) -> None:
    with pytest.raises(UserError, match=r"parameters need [0-9,.]+ GiB of memory, [0-9,.]+ are free; lower"):
        run.pretrain(chain.store, tmp_path / "out", changes=[*FINE, change])
    with pytest.raises(UserError, match=r"parameters need [0-9,.]+ GiB of memory, [0-9,.]+ are free; lower"):
        run.finetune("scratch", chain.store, chain.labels, tmp_path / "out", changes=[*FINE, change])
    assert not (tmp_path / "out").exists()


def test_what_was_loaded_is_printed(
    chain: Chain, tmp_path: Path, bothways: Callable[..., tuple[int, str, str]]
) -> None:
    n = len(chain.results["finetune"]["load_report"]["matched"]) + 2
    _, _, err = bothways("eeg", "evaluate", chain.finetuned)
    assert f"weights: {n} loaded, 0 new, 0 not used\n" in err
    assert f"weights of the frozen probe: {n - 2} loaded, 0 new, " in err
    file = next(chain.data.rglob("*.edf"))
    _, _, err = bothways("eeg", "predict", chain.finetuned, file, "--out", tmp_path / "p")
    assert f"weights: {n} loaded, 0 new, 0 not used\n" in err


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory; lower training."),
        (UnicodeEncodeError("ascii", "a\xe9", 1, 2, "no"), r"the name 'a\xe9' cannot be written in ascii; set PYTHON"),
    ],
)
def test_other_programs_errors_are_one_line(
    problem: Exception, message: str, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def raises(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(run, "pretrain", raises)
    assert message in fails("eeg", "pretrain", "--data", tmp_path, "--out", tmp_path / "out")


def test_a_part_of_a_model(chain: Chain, tmp_path: Path) -> None:
    import bothways

    shutil.copytree(chain.pretrained, tmp_path / "start")
    config(lambda c: c["encoder"].update(num_hidden_layers=1))(tmp_path / "start")
    with pytest.raises(UserError, match="do not belong together"):
        bothways.load(tmp_path / "start")
    with pytest.warns(BothwaysWarning, match="start: loaded .* unexpected: encoder.layers.1."):
        model = bothways.load(tmp_path / "start", partial=True)
    assert len(model.encoder.layers) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bothways.load(chain.pretrained).load_report is not None
