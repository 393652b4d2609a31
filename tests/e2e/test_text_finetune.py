"""`bothways text finetune`, `predict` and `evaluate` on labelled texts, as a user types them."""

import csv
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from bothways import run
from bothways.errors import BothwaysWarning, Interrupted, UserError
from bothways.text import TextSource, load_folder
from bothways.training import load_tensors
from texts import save_bert

pytestmark = pytest.mark.filterwarnings("ignore::bothways.errors.BothwaysWarning")
Call = Callable[..., tuple[int, str, str]]
QUICK = ["training.steps=120", "training.learning_rate=2e-3", "training.batch_size=8", "training.evaluations=2"]
FEW = ["training.steps=3", "training.evaluations=1"]
GOOD, BAD = ["a cat", "the cat", "a cat sat", "my cat .", "cat"], ["a mat", "the mat", "a mat sat", "my mat .", "mat"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    save_bert(folder, transformers.BertForPreTraining)
    return folder


def table(path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [(one, "good") for one in GOOD] + [(one, "bad") for one in BAD]
    return table(tmp_path_factory.mktemp("data") / "train.csv", rows)


@pytest.fixture(scope="module")
def trained(bert: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One run; treat it as read-only."""
    out = tmp_path_factory.mktemp("run") / "run"
    return out, run.text_finetune(bert, data, out, validation=data, changes=QUICK)


def test_it_learns_what_it_is_shown(trained: tuple[Path, dict[str, Any]], data: Path) -> None:
    out, result = trained
    assert result["classes"] == ["bad", "good"]
    assert result["texts"] == {"train": {"bad": 5, "good": 5}, "validation": {"bad": 5, "good": 5}}
    assert result["validation"]["accuracy"] == 1.0
    assert any("10 texts or groups are trained on and measured on" in note for note in result["notes"])
    assert result["load_report"]["missing"] == ["heads.sequence.linear.weight", "heads.sequence.linear.bias"]
    found = run.text_predict(out, texts=["THE CAT", "the mat", ""])
    assert [one["prediction"] for one in found["predictions"]] == ["good", "bad", None]
    assert (found["n"], found["empty"], found["counts"]) == (3, 1, {"good": 1, "bad": 1, "None": 1})
    best = found["predictions"][0]
    assert best["probability"] == best["probabilities"]["good"] > 0.5
    measured = run.text_evaluate(out, data)
    assert measured["metrics"]["accuracy"] == 1.0
    assert measured["seen"] == 10
    assert any("10 of 10 are what the run was trained on or chosen by" in note for note in measured["notes"])
    assert "cat" not in (out / "seen.txt").read_text()
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "- train: 5 `bad`, 5 `good`" in card
    assert "- texts kept out: balanced accuracy 1, accuracy 1" in card
    assert "bothways text predict PATH new.csv" in card
    assert measured["controls"]["most_frequent"]["accuracy"] == 0.5


def test_transformers_gives_the_same_probabilities(trained: tuple[Path, dict[str, Any]]) -> None:
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(trained[0])
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained[0])
    texts = ["a cat sat", "my mat"]
    with torch.no_grad():
        wanted = theirs(**tokenizer(texts, return_tensors="pt", padding=True)).logits.softmax(1).numpy()
    found = run.text_predict(trained[0], texts=texts)["predictions"]
    ours = [[one["probabilities"][theirs.config.id2label[i]] for i in range(2)] for one in found]
    np.testing.assert_allclose(ours, wanted, atol=1e-5)


def test_a_stopped_run_goes_on_to_the_same_bits(
    bert: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ["training.steps=6", "training.evaluations=2"]
    run.text_finetune(bert, data, tmp_path / "whole", changes=changes)
    real, calls = TextSource.batch, 0

    def batch(self: TextSource, *arguments: np.ndarray) -> dict[str, Tensor]:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TextSource, "batch", batch)
        with pytest.raises(Interrupted, match="step 3 is saved"):
            run.text_finetune(bert, data, tmp_path / "stopped", changes=changes)
    run.text_finetune(bert, data, tmp_path / "stopped", changes=changes)
    one, two = (load_tensors(tmp_path / name) for name in ("whole", "stopped"))
    assert all(one[name].equal(two[name]) for name in one)
    assert run.text_finetune(bert, data, tmp_path / "stopped", changes=changes)["finished_before"] is True


def test_several_classes_a_number_and_pairs(bert: Path, tmp_path: Path) -> None:
    several = table(tmp_path / "several.csv", [("cat", "a;b"), ("mat", "b"), ("the", ""), ("a", ";"), ("on", "a")] * 2)
    result = run.text_finetune(bert, several, tmp_path / "s", changes=[*FEW, "labels=several", "validation_fraction=0"])
    assert result["classes"] == ["a", "b"]
    assert result["texts"] == {"train": {"a": 4, "b": 4}}
    assert result["data"]["unlabelled_rows"] == 2
    assert result["validation"] is None
    (one,) = run.text_predict(tmp_path / "s", texts=["cat"])["predictions"]
    assert set(one["probabilities"]) == {"a", "b"}
    assert isinstance(one["prediction"], list)
    number = table(tmp_path / "number.csv", [("cat", 1.5), ("mat", 3), ("the cat", 1.5), ("the mat", "3")] * 3)
    changes = [*QUICK, "labels=number", "validation_fraction=0"]
    run.text_finetune(bert, number, tmp_path / "n", changes=changes)
    found = [one["prediction"] for one in run.text_predict(tmp_path / "n", texts=["cat", "mat"])["predictions"]]
    np.testing.assert_allclose(found, [1.5, 3], atol=0.2)
    measured = run.text_evaluate(tmp_path / "n", number)
    assert measured["metrics"]["mae"] < 0.2
    assert measured["controls"]["mean"]["mae"] == pytest.approx(0.75)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "n")
    assert theirs.config.problem_type == "regression"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "n")
    with torch.no_grad():
        value = float(theirs(**tokenizer("the cat", return_tensors="pt")).logits)
    assert run.text_predict(tmp_path / "n", texts=["the cat"])["predictions"][0]["prediction"] == pytest.approx(value)
    rows = [("cat", "cat", 1), ("mat", "cat", 1), ("cat", "mat", 0), ("mat", "mat", 0)] * 3
    pairs = table(tmp_path / "pairs.csv", rows, ("text", "other", "label"))
    changes = [*QUICK, "columns.pair=other", "validation_fraction=0"]
    run.text_finetune(bert, pairs, tmp_path / "p", changes=changes)
    assert run.text_evaluate(tmp_path / "p", pairs)["metrics"]["accuracy"] == 1.0


def test_the_command_line(bothways: Call, fails: Callable[..., str], bert: Path, data: Path, tmp_path: Path) -> None:
    sets = [word for change in FEW for word in ("--set", change)]
    code, out, err = bothways("text", "finetune", "--from", bert, "--data", data, "--out", tmp_path / "run", *sets)
    assert code == 0, err
    assert "train: 4 bad, 4 good" in out
    assert "validation: 1 bad, 1 good" in out
    code, out, err = bothways("text", "predict", tmp_path / "run", data, "--out", tmp_path / "p.csv")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8")))
    assert [int(row["row"]) for row in rows] == list(range(1, 11))
    assert all(float(row["p: bad"]) + float(row["p: good"]) == pytest.approx(1) for row in rows)
    assert "already exists" in fails("text", "predict", tmp_path / "run", data, "--out", tmp_path / "p.csv")
    code, out, _ = bothways("text", "predict", tmp_path / "run", data, "--out", tmp_path / "p.jsonl", "--json")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["prediction"] for line in lines] == [row["prediction"] for row in rows]
    assert json.loads(out)["n"] == 10
    (tmp_path / "lines.txt").write_text("a cat\n\nthe mat\n")
    assert "2 texts: " in bothways("text", "predict", tmp_path / "run", tmp_path / "lines.txt")[1]
    code, out, err = bothways("text", "evaluate", tmp_path / "run", data)
    assert code == 0, err
    assert "most frequent, a guess: accuracy 0.500" in out
    assert "give tables of labelled texts" in fails("text", "evaluate", tmp_path / "run")
    assert "run `bothways text finetune` first" in fails("text", "predict", bert, data)
    assert "expected a number, got 'good'" in fails(
        "text", "finetune", "--from", bert, "--data", data, "--out", tmp_path / "x", "--set", "labels=number"
    )


def test_labels_of_the_cases(shared: Path, bert: Path, tmp_path: Path) -> None:
    """B57, B58 and B60."""
    cases = shared / "cases" / "text"
    for name, classes in (
        ("b58_labels_1_to_3.csv", ["1", "2", "3"]), ("b58_labels_minus1_1.csv", ["-1", "1"]),
        ("b58_labels_float.csv", ["1", "2"]), ("b60_train_some_empty.csv", ["bad", "good"]),
    ):  # fmt: skip
        result = run.text_finetune(bert, cases / name, tmp_path / name, changes=[*FEW, "validation_fraction=0"])
        assert result["classes"] == classes
    assert any("2 rows have no label: 3, 5" in note for note in result["notes"])
    found = run.text_predict(tmp_path / name, cases / "b60_predict_no_label.csv")
    assert [one["prediction"] in ("bad", "good") for one in found["predictions"]] == [True, True]
    for rule in ("windows", "cut"):
        changes = [*FEW, "validation_fraction=0", f"too_long={rule}"]
        with pytest.warns(BothwaysWarning, match=r"1 of 2 texts \(train\) are longer than 20 tokens"):
            run.text_finetune(bert, cases / "b57_too_long.csv", tmp_path / rule, changes=changes)
        with pytest.warns(BothwaysWarning, match="1 of 2 texts are longer than 20 tokens"):
            assert run.text_predict(tmp_path / rule, cases / "b57_too_long.csv")["too_long"] == 1


def test_weights_drawn_anew(bert: Path, data: Path, tmp_path: Path) -> None:
    still = [*FEW, "training.learning_rate=1e-12", "validation_fraction=0"]
    result = run.text_finetune(bert, data, tmp_path / "top", changes=[*still, "reinitialise_layers=1"])
    missing = {name.rpartition(".")[0].partition(".attention")[0] for name in result["load_report"]["missing"]}
    assert {"encoder.layers.1", "pooler.dense", "heads.sequence.linear"} <= missing
    assert not any(name.startswith("encoder.layers.0") for name in result["load_report"]["missing"])
    before, after = (load_folder(one).model.state_dict() for one in (bert, tmp_path / "top"))
    name = "encoder.layers.{}.feed_forward.up.weight"
    torch.testing.assert_close(after[name.format(0)], before[name.format(0)], atol=1e-6, rtol=0)
    assert (after[name.format(1)] - before[name.format(1)]).abs().max() > 0.1
    result = run.text_finetune(bert, data, tmp_path / "scratch", changes=[*still, "scratch=true"])
    assert result["load_report"] is None
    assert (
        load_folder(tmp_path / "scratch").model.state_dict()[name.format(0)] - before[name.format(0)]
    ).abs().max() > 0.1
    with pytest.raises(UserError, match="expected at most 2, as the model has, got 3"):
        run.text_finetune(bert, data, tmp_path / "x", changes=[*still, "reinitialise_layers=3"])


def test_small_sets_get_enough_steps(bert: Path, data: Path, tmp_path: Path) -> None:
    result = run.text_finetune(
        bert, data, tmp_path / "run", changes=["least_steps=7", "epochs=1", "training.evaluations=1"]
    )
    assert result["steps"] == 7
    result = run.text_finetune(
        bert, data, tmp_path / "epochs", changes=["least_steps=1", "epochs=5", "training.batch_size=4"]
    )
    assert result["steps"] == 10  # 8 texts, 2 kept out


def test_equal_texts_stay_together_and_classes_are_kept_out_alike(bert: Path, tmp_path: Path) -> None:
    rows = [(f"{'cat ' * (1 + i % 7)}{'mat ' * (i % 5)}", "ab"[i % 7 > 3]) for i in range(140)]
    result = run.text_finetune(
        bert, table(tmp_path / "t.csv", rows), tmp_path / "run", changes=[*FEW, "validation_fraction=0.2"]
    )
    assert result["texts"]["validation"] == {"a": 16, "b": 12}
    assert not any("trained on and measured on" in note for note in result["notes"])


def test_what_is_refused(bert: Path, data: Path, tmp_path: Path) -> None:
    one_class = table(tmp_path / "one.csv", [("cat", "a"), ("mat", "a")])
    with pytest.raises(UserError, match="expected texts of two classes or more"):
        run.text_finetune(bert, one_class, tmp_path / "x")
    three = table(tmp_path / "three.csv", [("cat", "x", "a")], ("one", "two", "three"))
    with pytest.raises(UserError, match="columns one, two, three"):
        run.text_finetune(bert, three, tmp_path / "x")
    with pytest.raises(UserError, match="expected a table"):
        run.text_finetune(bert, tmp_path / "a.doc", tmp_path / "x")
    empty = table(tmp_path / "empty.csv", [("", "a"), (" ", "b")])
    with pytest.raises(UserError, match="expected rows with a text, found none"):
        run.text_finetune(bert, empty, tmp_path / "x")


@pytest.mark.parametrize("features", ["cls", "mean", "last_four"])
@pytest.mark.parametrize("head", ["logistic", "closed_form"])
def test_a_frozen_encoder(bert: Path, data: Path, tmp_path: Path, features: str, head: str) -> None:
    """The head gives what scikit-learn's own model gives on the same vectors; the encoder stays as it was."""
    changes = ["frozen=true", f"features={features}", f"frozen_head={head}", "validation_fraction=0"]
    result = run.text_finetune(bert, data, tmp_path / "run", changes=changes)
    assert (result["steps"], result["strength"]) == (0, 0.1 if head == "logistic" else None)
    before, after = load_folder(bert), load_folder(tmp_path / "run")
    own = after.model.state_dict()
    for name, tensor in before.model.state_dict().items():
        if name.startswith(("embedding.", "encoder.")):
            assert own[name].equal(tensor)
    texts = GOOD + BAD
    theirs = transformers.BertModel.from_pretrained(bert)
    vectors = []
    for one in texts:
        ids = torch.tensor([before.tokenizer.encode(one).ids])
        with torch.no_grad():
            states = theirs(ids, output_hidden_states=True).hidden_states
        state = torch.stack(states[-2:]).mean(0)[0] if features == "last_four" else states[-1][0]
        vectors.append((state[0] if features == "cls" else state[1:].mean(0)).double().numpy())
    x, y = np.array(vectors), np.array([1] * 5 + [0] * 5)
    x = (x - x.mean(0)) / x.std(0)
    discriminants = LinearDiscriminantAnalysis("lsqr", shrinkage="auto")
    wanted = (LogisticRegression(C=0.1, max_iter=5000) if head == "logistic" else discriminants).fit(x, y)
    found = run.text_predict(tmp_path / "run", texts=texts)["predictions"]
    ours = [one["probabilities"]["good"] for one in found]
    np.testing.assert_allclose(ours, wanted.predict_proba(x)[:, 1], atol=2e-4)


CONLL = """-DOCSTART- O

the O
cat B-ANIMAL
sat O

my O
mat B-THING
. O

cat B-ANIMAL
on O
mat B-THING
"""


@pytest.fixture(scope="module")
def tagger(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """A run that tags, its data, and what was told of it; treat it as read-only."""
    folder = tmp_path_factory.mktemp("tags")
    (folder / "train.conll").write_text(CONLL * 3)
    changes = [*QUICK, "task=tag", "validation_fraction=0", "training.learning_rate=5e-3"]
    result = run.text_finetune(bert, folder / "train.conll", folder / "run", changes=changes)
    return folder / "run", folder / "train.conll", result


def test_words_are_tagged(tagger: tuple[Path, Path, dict[str, Any]]) -> None:
    out, data, result = tagger
    assert result["classes"] == ["O", "B-ANIMAL", "B-THING"]
    assert result["texts"] == {"train": {"O": 15, "B-ANIMAL": 6, "B-THING": 6}}
    measured = run.text_evaluate(out, data)["metrics"]
    assert (measured["micro"]["f1"], measured["word_accuracy"], measured["strict"]["f1"]) == (1.0, 1.0, 1.0)
    found = run.text_predict(out, texts=["the cat  sat", "", "on the Mat."])
    assert found["counts"] == {"ANIMAL": 1, "THING": 1}
    first, second = found["predictions"]
    assert first["tags"] == ["O", "B-ANIMAL", "O"]
    assert (first["row"], second["row"]) == (1, 3)
    (entity,) = second["entities"]
    assert (entity["type"], entity["text"], second["text"][entity["start"] : entity["stop"]]) == ("THING", "Mat", "Mat")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(out)
    assert theirs.config.id2label[1] == "B-ANIMAL"
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "- a class for each word: `O`, `B-ANIMAL`, `B-THING`" in card
    assert "- train: 15 `O`, 6 `B-ANIMAL`, 6 `B-THING`" in card


def test_tagging_by_the_command(
    bothways: Call, fails: Callable[..., str], tagger: tuple[Path, Path, dict[str, Any]], bert: Path, tmp_path: Path
) -> None:
    out, data, _ = tagger
    code, said, err = bothways("text", "predict", out, data, "--out", tmp_path / "p.csv")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8")))
    assert [row["word"] for row in rows[:3]] == ["the", "cat", "sat"]
    assert [row["tag"] for row in rows] == [line.split()[1] for line in (CONLL * 3).splitlines() if line[:1] not in "-"]
    assert "9 sentences: 6 ANIMAL, 6 THING" in said
    code, said, err = bothways("text", "evaluate", out, data)
    assert code == 0, err
    assert "entities: F1 1.000" in said
    (tmp_path / "line.txt").write_text("the cat sat\n")
    assert "cat (ANIMAL)" in bothways("text", "predict", out, tmp_path / "line.txt")[1]
    code, _, _ = bothways("text", "predict", out, data, "--out", tmp_path / "p.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert (code, len(lines), lines[1]["entities"][0]["text"]) == (0, 9, "mat")
    (tmp_path / "bad.conll").write_text("cat B-ANIMAL\nmat B_THING\n")
    command = ("text", "finetune", "--from", bert, "--out", tmp_path / "x", "--set", "task=tag", "--data")
    assert "bad.conll" in fails(*command, tmp_path / "bad.conll")
    wrong = fails(*command, data, "--frozen", "--set", "features=mean")
    assert "features: expected last or last_four to tag, got mean; choose one" in wrong


@pytest.mark.parametrize("features", ["", "last_four"])
@pytest.mark.parametrize("head", ["logistic", "closed_form"])
def test_words_are_tagged_by_a_frozen_encoder(bert: Path, tmp_path: Path, features: str, head: str) -> None:
    """The head gives what scikit-learn's own model gives on the vectors of first pieces; the encoder stays."""
    lines = ["the Über cat sat", "sitting cats on mat .", "ab the cab"]  # of several pieces some
    tags = ["O O B-ANIMAL O", "O B-ANIMAL O B-THING O", "O O B-THING"]
    words = [line.split() for line in lines]
    blocks = ["".join(f"{word} {tag}\n" for word, tag in zip(line, own.split())) for line, own in zip(words, tags)]
    (tmp_path / "train.conll").write_text("\n".join(blocks), encoding="utf-8")
    changes = ["task=tag", "frozen=true", f"frozen_head={head}", "validation_fraction=0"]
    changes += [f"features={features}"] if features else []
    result = run.text_finetune(bert, tmp_path / "train.conll", tmp_path / "run", changes=changes)
    assert (result["steps"], result["strength"]) == (0, 0.1 if head == "logistic" else None)
    before, after = load_folder(bert), load_folder(tmp_path / "run")
    own = after.model.state_dict()
    for name, tensor in before.model.state_dict().items():
        if name.startswith(("embedding.", "encoder.")):
            assert own[name].equal(tensor)
    theirs, tokenizer = (
        transformers.BertModel.from_pretrained(bert),
        transformers.BertTokenizerFast(f"{bert}/vocab.txt"),
    )
    vectors = []
    for line in words:
        encoded = tokenizer(line, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            states = theirs(**encoded, output_hidden_states=True).hidden_states
        state = torch.stack(states[-2:]).mean(0)[0] if features == "last_four" else states[-1][0]
        vectors += [state[encoded.word_ids().index(word)].double().numpy() for word in range(len(line))]
    x, y = np.array(vectors), np.array(" ".join(tags).split())
    x = (x - x.mean(0)) / x.std(0)
    discriminants = LinearDiscriminantAnalysis("lsqr", shrinkage="auto")
    wanted = (LogisticRegression(C=0.1, max_iter=5000) if head == "logistic" else discriminants).fit(x, y)
    found = run.text_predict(tmp_path / "run", tmp_path / "train.conll")["predictions"]
    assert [tag for one in found for tag in one["tags"]] == wanted.predict(x).tolist()
    sure = np.concatenate([one["probabilities"] for one in found])
    np.testing.assert_allclose(sure, wanted.predict_proba(x).max(1), atol=2e-4)
    if not features:
        opened = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
        with torch.no_grad():
            logits = opened(**encoded).logits[0, 1]  # of the last sentence's first word
        np.testing.assert_allclose(found[-1]["probabilities"][0], logits.softmax(0).max(), atol=1e-5)


def test_validation_words_choose_the_penalty_of_frozen_tags(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(CONLL * 3)
    (tmp_path / "dev.conll").write_text("cat B-ANIMAL\nmat B-NEW\n")
    (tmp_path / "other.conll").write_text("mat B-NEW\n")
    data, changes = tmp_path / "train.conll", ["task=tag", "frozen=true", "class_weights=balanced"]
    chosen = run.text_finetune(bert, data, tmp_path / "a", validation=tmp_path / "dev.conll", changes=changes)
    assert chosen["strength"] == 1.0  # what is measured on is trained on, too: the weaker the penalty, the better
    assert chosen["validation"]["types"]["NEW"]["recall"] == 0
    none = run.text_finetune(bert, data, tmp_path / "b", validation=tmp_path / "other.conll", changes=changes)
    assert none["strength"] == 0.1  # no word has a tag that is learned
    (tmp_path / "few.conll").write_text("cat B-ANIMAL\nmat O\n")
    changes = ["task=tag", "frozen=true", "frozen_head=closed_form", "validation_fraction=0"]
    with pytest.raises(UserError, match="expected more than 2 labels of 2 classes for closed_form, got 2; label more"):
        run.text_finetune(bert, tmp_path / "few.conll", tmp_path / "c", changes=changes)


def test_a_tag_that_was_never_trained_on_is_missed(tagger: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "new.conll").write_text("cat B-ANIMAL\n\nmat B-NEW\n")
    found = run.text_evaluate(tagger[0], tmp_path / "new.conll")
    assert found["seen"] == 0
    assert found["metrics"]["types"]["NEW"]["recall"] == 0
    assert any("no training word has the tag B-NEW (1)" in note for note in found["notes"])
