"""Every head and both modalities as ONNX: batches and lengths that no graph was traced with; runs of every task."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from bothways import run
from bothways.config import ModelConfig
from bothways.padded import Padded, own_outputs
from bothways.run.onnx_graph import Session, difference, quantise, to_bytes, trace
from graphs import GRAPHS, batch_of, build
from people import TINY, WINDOWS, Chain
from texts import save_bert

pytestmark = pytest.mark.filterwarnings("ignore::bothways.errors.BothwaysWarning")
Call = Callable[..., tuple[int, str, str]]
FAST = ("text tags",)
ONE_STEP = ["training.steps=2", "training.evaluations=1", "validation_fraction=0"]


def parts(batch: dict[str, Tensor], config: ModelConfig) -> list[dict[str, Tensor]]:
    """One sequence, a short one, more of them, and of EEG fewer channels and patches."""
    twice = {name: torch.cat([one, one.flip(0)]) for name, one in batch.items()}
    last = {name: one[-1:] for name, one in batch.items()}
    if config.patches is None:
        return [
            twice,
            last,
            {name: one[:, :2] for name, one in batch.items()},
            {n: one[:, :1] for n, one in last.items()},
        ]
    size = batch["signals"].shape[2] // batch["patch_mask"].shape[2]
    cut = {"signals": size, "patch_mask": 1}
    short = {name: one[:, :, : cut[name]] if name in cut else one for name, one in twice.items()}
    if config.patches.tokens == "all_channels":
        return [twice, last, short]
    return [twice, last, short, {name: one[:, :1] for name, one in short.items()}]


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in GRAPHS]
)
def test_a_graph_takes_any_size(name: str) -> None:
    form = GRAPHS[name]
    model, batch = build(form), batch_of(form)
    padded = Padded(model)
    batch = {name: batch[name] for name in padded.inputs}
    graph = trace(padded, {name: one.long() if name == "attention_mask" else one for name, one in batch.items()})
    session = Session(to_bytes(graph, {"a": "b"}))
    assert session.inputs == list(padded.inputs)
    assert session.outputs == list(padded.outputs(batch))
    for part in parts(batch, form.config):
        assert difference(session(part), own_outputs(model, part), model) < 1e-4
    small = Session(to_bytes(quantise(graph, form.config), {}))
    assert 0 < difference(small(batch), session(batch), model) < 1


def exported(source: Path, out: Path, **options: Any) -> dict[str, Any]:
    result = run.export_onnx(source, out, **options)
    assert result["largest_difference"] < 1e-4
    assert result["data"] is None or result["data"]["largest_difference"] < 1e-4
    return result


@pytest.mark.slow
def test_runs_of_text(tmp_path: Path) -> None:
    save_bert(tmp_path / "bert", transformers.BertForPreTraining)

    def table(name: str, columns: str, *rows: tuple[Any, ...]) -> Path:
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns.split(), *rows])
        return tmp_path / name

    several = table("several.csv", "text label", ("cat", "a;b"), ("mat", "b"), ("a", ";"), ("on", "a"))
    numbers = table(
        "numbers.csv", "text label", *[(word, 1000 + i) for i, word in enumerate(["cat", "mat", "the", "a", "on"])]
    )
    classes = table(
        "classes.csv", "text label", *[(word, len(word)) for word in ["cat", "mat", "the", "a", "on", "at", "the"]]
    )
    pairs = table("pairs.csv", "text other label", ("cat", "cat", 1), ("mat", "cat", 0), ("a", "a", 1), ("a", "mat", 0))
    conll = tmp_path / "tags.conll"
    conll.write_text("the O\ncat B-X\n\na O\nmat B-Y\nsat O\n", encoding="utf-8")
    context = "the cat sat on the mat"
    answer = {"question": "a cat", "context": context, "answers": {"text": ["cat sat"], "answer_start": [4]}}
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": str(i), **answer}) + "\n" for i in range(3)), encoding="utf-8")
    for name, data, figure, changes in (
        ("several", several, "exact_match", ["labels=several"]),
        ("number", numbers, "mae", ["labels=number", "pool=attention"]),
        ("pairs", pairs, "accuracy", ["columns.pair=other", "pool=mean"]),
        ("last four", classes, "accuracy", ["frozen=true", "features=last_four"]),
        ("tags", conll, "micro.f1", ["task=tag"]),
        ("answers", questions, "f1", ["task=answer"]),
    ):
        run.text_finetune(tmp_path / "bert", data, tmp_path / name, changes=[*changes, *ONE_STEP])
        result = exported(tmp_path / name, tmp_path / f"{name}.onnx", data=data, int8=True)
        one = result["data"]["figures"][figure]
        assert one["float"] == pytest.approx(_measured(run.text_evaluate(tmp_path / name, data)["metrics"], figure))
        assert one["difference"] == pytest.approx(one["int8"] - one["float"])
        assert (result["int8"]["agreement"] is None) == (name == "number")
    assert exported(tmp_path / "bert", tmp_path / "words.onnx")["facts"]["task"] == "hidden_tokens"
    result = exported(tmp_path / "bert", tmp_path / "vectors.onnx", vectors=True)
    assert list(result["facts"]["outputs"]) == ["cls", "mean"]
    assert result["notes"] == []
    save_bert(tmp_path / "bare", transformers.BertModel)
    (note,) = exported(tmp_path / "bare", tmp_path / "bare.onnx")["notes"]
    assert note.endswith("no head says what a file could tell: it tells vectors")
    for folder, out in ((tmp_path / "bert", "vectors"), (tmp_path / "bare", "bare")):
        ids = run.load_pretrained(folder).tokenizer.encode("the cat").ids  # type: ignore[union-attr]
        batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids))}
        found = Session((tmp_path / f"{out}.onnx").read_bytes())(batch)["mean"]
        np.testing.assert_allclose(found, run.load_pretrained(folder).embed(["the cat"]), atol=1e-5)


def _measured(metrics: dict[str, Any], figure: str) -> float:
    for part in figure.split("."):
        metrics = metrics[part]
    return float(metrics)  # type: ignore[arg-type]


@pytest.mark.slow
def test_runs_of_eeg(chain: Chain, tmp_path: Path) -> None:
    rows = [f"sub-{i}_closed.edf,{3 + i},5,burst" for i in range(6)]
    (tmp_path / "bursts.csv").write_text("\n".join(["file,onset_s,duration_s,label", *rows]))
    people = [
        f"sub-{i}_{state}.edf,{30 + i},{'a' if i % 2 else 'a;b'}" for i in range(6) for state in ("open", "closed")
    ]
    (tmp_path / "people.csv").write_text("\n".join(["file,age,waves", *people]))
    bursts, about = tmp_path / "bursts.csv", tmp_path / "people.csv"
    settings, together = [*TINY, *WINDOWS, "training.steps=2"], 'patches.tokens="all_channels"'
    for name, labels, figure, changes in (
        ("moments", bursts, "balanced_accuracy", ['task="moment"', 'labels.background="rest"']),
        ("events", bursts, "balanced_accuracy", ['task="event"', "windows.window_s=10", "windows.stride_s=10"]),
        ("number", about, "mae", ["labels.kind=number", "labels.column=age", 'pool="mean"']),
        (
            "several",
            about,
            "exact_match",
            ["labels.kind=several", "labels.column=waves", together],
        ),
    ):
        run.finetune("scratch", chain.store, labels, tmp_path / name, changes=[*settings, *changes])
        result = exported(tmp_path / name, tmp_path / f"{name}.onnx", data=chain.store, int8=True)
        found = run.evaluate(tmp_path / name)["model"]
        assert result["data"]["figures"][figure]["float"] == pytest.approx(found[figure], abs=1e-4)
        assert result["facts"]["task"] == name
        assert result["facts"]["window_s"] == (10 if name == "events" else 3)
    result = exported(chain.pretrained, tmp_path / "pretrained.onnx")
    assert list(result["facts"]["outputs"]) == ["cls", "mean"]
    checkpoint = exported(chain.finetuned / "checkpoints" / "latest", tmp_path / "checkpoint.onnx")
    assert checkpoint["facts"]["window_s"] == 3
