"""`bothways text prepare`, `pretrain` and `show` as a user types them."""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import bothways as package
from bothways import run
from bothways.config import TextPretrainConfig, load_config
from bothways.errors import BothwaysWarning, Interrupted, UserError
from bothways.text import Corpus, SequenceSource
from bothways.training import load_manifest, load_tensors
from corpora import TINY, many_documents, write_tokenizer

Call = Callable[..., tuple[int, str, str]]


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


SETS = sets(*TINY)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(many_documents(30))
    (folder / "b.txt").write_text(many_documents(40).replace("a", "é"), encoding="latin-1")
    return folder


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One run; treat it as read-only."""
    out = tmp_path_factory.mktemp("run") / "run"
    with pytest.warns(BothwaysWarning, match="not UTF-8; read as cp1252"):
        result = run.text_pretrain(corpus, out, changes=[*TINY, "vocabulary.size=120"])
    return out, result


def log(run_folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]


def test_everything_in_one_call(trained: tuple[Path, dict[str, Any]]) -> None:
    out, result = trained
    assert (result["documents"], result["trained_documents"], result["held_out_documents"]) == (70, 63, 7)
    assert result["next_sentence"] is True
    assert result["corpus"] == f"{out}-corpus"
    assert set(result["validation"]) == {"mlm", "nsp"}
    assert result["validation"]["mlm"]["loss"] < np.log(120) * 1.2
    assert 0 <= result["validation"]["nsp"]["accuracy"] <= 1
    entries = log(out)
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4, 5, 6]
    # The accuracy of both heads stands beside their losses.
    assert all({"loss_mlm", "loss_nsp", "accuracy_mlm", "accuracy_nsp"} <= entry.keys() for entry in entries)
    assert entries[-1]["evaluation"]["validation"] == result["validation"]
    manifest = load_manifest(out)
    assert manifest["kind"] == "pretrain"
    assert manifest["data"]["documents"] == 63
    assert manifest["held_out"]["documents"] == len(manifest["held_out"]["names"]) == 7
    card = (out / "README.md").read_text()
    assert "63 documents" in card
    assert "15% of the tokens hidden" in card
    model = package.load(out)
    assert model.tokenizer is not None
    assert set(model.heads) == {"mlm", "nsp"}


def test_the_loss_falls(corpus: Path, trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    changes = [*TINY, "training.steps=150", "training.learning_rate=3e-3", "objective.next_sentence=false"]
    result = run.text_pretrain(trained[1]["corpus"], tmp_path / "run", changes=changes)
    first = np.mean([entry["loss_mlm"] for entry in log(tmp_path / "run")[:5]])
    assert result["validation"]["mlm"]["loss"] < 0.9 * first
    assert set(result["validation"]) == {"mlm"}
    assert set(package.load(tmp_path / "run").heads) == {"mlm"}


def test_the_same_seed_gives_the_same_weights(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    corpus = trained[1]["corpus"]
    run.text_pretrain(corpus, tmp_path / "one", changes=TINY)
    run.text_pretrain(corpus, tmp_path / "two", changes=[*TINY, "training.workers=1"])
    run.text_pretrain(corpus, tmp_path / "other", changes=[*TINY, "training.seed=1"])
    one, two, other = (load_tensors(tmp_path / name) for name in ("one", "two", "other"))
    assert all(one[name].equal(two[name]) for name in one)
    assert not all(one[name].equal(other[name]) for name in one)


def test_a_stopped_run_goes_on_to_the_same_bits(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = trained[1]["corpus"]
    run.text_pretrain(corpus, tmp_path / "whole", changes=TINY)
    real, calls = SequenceSource.batch, 0

    def batch(self: SequenceSource, *arguments: np.ndarray) -> dict[str, Tensor]:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SequenceSource, "batch", batch)
        with pytest.raises(Interrupted, match="step 3 is saved"):
            run.text_pretrain(corpus, tmp_path / "stopped", changes=TINY)
    assert not (tmp_path / "stopped" / "manifest.json").exists()
    run.text_pretrain(corpus, tmp_path / "stopped", changes=TINY)
    one, two = (load_tensors(tmp_path / name) for name in ("whole", "stopped"))
    assert all(one[name].equal(two[name]) for name in one)
    assert run.text_pretrain(corpus, tmp_path / "stopped", changes=TINY)["finished_before"] is True


def test_the_command_line(bothways: Call, corpus: Path, tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer")
    code, out, err = bothways("text", "prepare", corpus / "a.txt", "--tokenizer", folder, "--out", tmp_path / "store")
    assert code == 0, err
    assert "30 documents (0 empty ones left out) of 1 file in utf-8" in out
    assert re.search(r"tokens, 0.000% \[UNK\], \d+ sentences, \d+ pairs of neighbours", out)
    code, out, err = bothways("text", "pretrain", tmp_path / "store", "--out", tmp_path / "run", *SETS)
    assert code == 0, err
    assert "hidden tokens (MLM)" in out
    assert "next sentence (NSP)" in out
    assert "sequences/s" in out
    code, out, err = bothways("text", "show", tmp_path / "run", "--n", 2)
    assert code == 0, err
    assert out.count("sequence ") == 2
    assert "[CLS]" in out
    assert "-> [MASK]; model: " in out
    assert "(label " in out
    shown = json.loads(bothways("text", "show", tmp_path / "run", "--n", 3, "--json")[1])["examples"]
    source = SequenceSource(
        Corpus.open(tmp_path / "store"), np.arange(30), load_config(TextPretrainConfig, None, TINY).sequences,
        load_config(TextPretrainConfig, None, TINY).masking, next_sentence=True, seed=0,
    )  # fmt: skip
    for one in shown:
        assert one["truth"].startswith("[CLS]")
        assert all(0 <= token["probability"] <= 1 for token in one["hidden"])
        assert one["seen"].count("[MASK]") == sum(token["by"] == "mask" for token in one["hidden"])
    assert len(source) > len(shown)
    code, out, _ = bothways("text", "show", tmp_path / "store", "--n", 1, "--epoch", 4)
    assert code == 0
    assert "model:" not in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One cat sat.\n\nTwo dogs ran.\n\nThree cows ate.", "each document is one sentence"),
        ("One cat sat. Two dogs ran. Three cows ate.", "there is one document"),
        ("One cat sat. Two dogs ran.\n\nOne cat sat. Two dogs ran.", "all documents are equal"),
    ],
)
def test_without_pairs_nsp_is_off_and_that_is_said(bothways: Call, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    vocabulary = ["--set", "vocabulary.size=64"]
    code, out, err = bothways(
        "text", "pretrain", tmp_path / "a.txt", "--out", tmp_path / "run", *SETS, *vocabulary, "--json"
    )
    assert code == 0, err
    assert f"trained without next sentences (NSP): {said}" in err
    assert ("--documents file" if said.startswith("each") else "--documents line") in err
    result = json.loads(out)
    assert result["next_sentence"] is False
    assert any(said in note for note in result["notes"])
    assert set(result["validation"]) == {"mlm"}
    assert load_manifest(tmp_path / "run")["notes"] == result["notes"]


def test_cases_b50_b51_b56_b70(shared: Path, bothways: Call, tmp_path: Path) -> None:
    cases = shared / "cases" / "text"
    for name, pairs in (
        ("b50_blank_after_every_sentence.txt", False),
        ("b51_one_sentence_documents.txt", True),
        ("b56_very_short.txt", False),
        ("b70_corpus_bom_crlf.txt", None),
    ):
        out = tmp_path / name
        changes = [
            *SETS,
            "--set",
            "vocabulary.size=200",
            "--set",
            "training.batch_size=1",
            "--set",
            "training.steps=20",
        ]
        code, told, err = bothways("text", "pretrain", cases / name, "--out", out, *changes, "--json")
        assert code == 0, err
        result = json.loads(told)
        assert pairs in (None, result["next_sentence"])
        assert ("trained without next sentences" in err) is not result["next_sentence"]
        assert all(np.isfinite(entry["loss"]) for entry in log(out))
        assert result["sequences"] > 0
        assert result["unknown"] / result["tokens"] < 0.2


def test_text_that_is_changed_is_refused(bothways: Call, fails: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(many_documents(12))
    command = ("text", "pretrain", tmp_path / "in", "--out", tmp_path / "run", *SETS, "--set", "vocabulary.size=64")
    assert bothways(*command)[0] == 0
    assert "finished before" in bothways(*command)[1]
    (tmp_path / "in" / "a.txt").write_text(many_documents(13))
    assert "run-corpus: was made from other text, or with another tokenizer" in fails(*command)
    assert bothways(*command, "--overwrite")[0] == 0
    assert "leave out --documents" in fails(
        "text", "pretrain", tmp_path / "run-corpus", "--documents", "file", "--out", "x"
    )
    again = ("text", "pretrain", tmp_path / "run-corpus", "--out", tmp_path / "x")
    assert (
        "vocabulary.size 9 has no effect: a tokenizer of 64 tokens is given"
        in bothways(*again, *SETS, *sets("vocabulary.size=9"))[2]
    )
    shutil.rmtree(tmp_path / "run-corpus")
    assert "the run's corpus is not there" in fails("text", "show", tmp_path / "run")
    assert "expected a run of `bothways text pretrain` or a corpus" in fails("text", "show", tmp_path / "in")
    assert "did you mean 'masking.whole_words'" in fails(
        *command[:4], tmp_path / "y", "--set", "masking.whole_word=true"
    )


def test_a_file_that_cannot_be_used_is_told_at_the_end(bothways: Call, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(many_documents(12))
    (tmp_path / "in" / "b.txt").write_bytes(b"\x00" * 2000)
    command = ("text", "pretrain", tmp_path / "in", "--out", tmp_path / "run", *SETS, *sets("vocabulary.size=64"))
    code, _, err = bothways(*command)
    assert code == 2
    assert "b.txt: skipped: expected text, got bytes that are none" in err
    assert bothways(*command)[0] == 2
    assert bothways("text", "pretrain", tmp_path / "run-corpus", "--out", tmp_path / "again", *SETS)[0] == 0


def test_processes_that_train_together_do_not_wait_for_one_that_tokenises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text(many_documents(12))
    team = SimpleNamespace(size=2, first_does=lambda work: work())
    monkeypatch.setattr(sys.modules["bothways.run.text_pretrain"], "join", lambda: team)
    with pytest.raises(UserError, match="first run `bothways text prepare`"):
        run.text_pretrain(tmp_path / "a.txt", tmp_path / "run", changes=TINY)


def test_a_checkpoint_can_be_used(trained: tuple[Path, dict[str, Any]]) -> None:
    model = package.load(trained[0] / "checkpoints" / "latest")
    assert model.tokenizer is not None


def test_its_parts_have_names(trained: tuple[Path, dict[str, Any]]) -> None:
    assert run.text_pretrain.__doc__ is not None
    for key in ("steps", "best_step", "seconds", "sequences_per_s", "wait_share", "loss", "parameters", "sequences"):
        assert key in trained[1]
        assert f"`{key}`" in run.text_pretrain.__doc__
