"""`bothways text curve`: how many labels are enough, as a user types it, on a small model."""

import importlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from bothways import run
from bothways.errors import Interrupted, UserError
from bothways.files import write_json
from texts import save_bert

pytestmark = pytest.mark.filterwarnings("ignore::bothways.errors.BothwaysWarning")
module = importlib.import_module("bothways.run.text_curve")
Call = Callable[..., tuple[int, str, str]]
QUICK = ["training.steps=3", "training.batch_size=4", "training.evaluations=1"]
NOUNS, REST = ["cat", "mat"], ["a", "the", "on", "sat", ".", "!", ",", "my"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    save_bert(folder, transformers.BertForPreTraining)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 texts, two thirds of them with a cat."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "all.csv"
    rows = []
    for i in range(120):
        noun = NOUNS[i % 3 == 0]
        words = [*rng.choice(REST, 4), noun, *rng.choice(REST, 3)]
        rows.append(f"{' '.join(map(str, words))} {chr(97 + i // 26)} {chr(97 + i % 26)},{noun}")
    path.write_text("text,label\n" + "\n".join(rows).replace(" , ", " ! ").replace(", ", "! ") + "\n")
    return path


@pytest.fixture(scope="module")
def curve(bert: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A curve; treat it as read-only."""
    out = tmp_path_factory.mktemp("curve") / "curve"
    return out, run.text_curve(bert, data, out, labels=[24, 48], seeds=3, changes=QUICK)


def test_arms_have_the_same_texts(curve: tuple[Path, dict[str, Any]]) -> None:
    out, result = curve
    assert (result["labels"], result["n_tested"]) == ([24, 48], 24)
    assert list(result["titles"]) == ["frozen", "full", "scratch", "tfidf"]
    for seed in range(3):
        drawn = json.loads((out / "subsets" / f"seed-{seed}.json").read_text())
        train, test = ({tuple(row) for row in drawn[part]} for part in ("train", "test"))
        assert (len(train), len(test), len(train & test)) == (96, 24, 0)
        for name in result["titles"]:
            for n in (24, 48):
                one = json.loads((out / "results" / name / f"labels-{n}-seed-{seed}.json").read_text())
                scores = np.array(one["probabilities"])
                assert scores.shape == (24, 2)
                np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)
    assert not list((out / "runs").iterdir())
    words = {row["labels"]: row["arms"]["tfidf"]["mean"] for row in result["sizes"]}
    assert words[48] == 1.0  # one word tells
    assert (out / "report.html").read_text().count("TF-IDF, logistic regression") > 1
    assert any(said.startswith("all weights against frozen encoder, mean: ") for said in result["said"])


def test_means_are_those_of_the_results(curve: tuple[Path, dict[str, Any]]) -> None:
    out, result = curve
    row = result["sizes"][0]
    values = {
        name: [
            json.loads((out / "results" / name / f"labels-24-seed-{s}.json").read_text())["accuracy"] for s in range(3)
        ]
        for name in ("full", "frozen")
    }
    assert row["arms"]["full"]["mean"] == pytest.approx(np.mean(values["full"]))
    apart = np.array(values["full"]) - np.array(values["frozen"])
    assert row["differences"]["full"]["frozen"]["mean"] == pytest.approx(apart.mean())
    half = 4.302653 * apart.std(ddof=1) / 3**0.5  # Student's t, 2 degrees of freedom
    assert row["differences"]["full"]["frozen"]["high"] == pytest.approx(apart.mean() + half, abs=1e-6)


def test_what_is_there_is_not_done_again_and_vectors_are_computed_once(
    bert: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real = module.vectors_of

    def counted(*arguments: Any) -> Any:
        calls.append(arguments[-1])
        return real(*arguments)

    monkeypatch.setattr(module, "vectors_of", counted)
    arms = ["frozen", "frozen_cls", "frozen_last_four"]
    first = run.text_curve(bert, data, tmp_path / "c", labels=[24], seeds=2, arms=arms, changes=QUICK)
    assert calls == ["vectors, mean", "vectors, cls", "vectors, last_four"]
    file = tmp_path / "c" / "results" / "frozen" / "labels-24-seed-0.json"
    kept = json.loads(file.read_text()) | {"accuracy": 0.123}
    write_json(file, kept)
    again = run.text_curve(bert, data, tmp_path / "c", labels=[48], seeds=3, arms=["frozen"], changes=QUICK)
    assert len(calls) == 3
    assert again["labels"] == [24, 48]
    assert again["sizes"][0]["arms"]["frozen"]["values"][0] == 0.123
    assert again["sizes"][0]["arms"]["frozen_cls"] == first["sizes"][0]["arms"]["frozen_cls"]
    assert any("not as many seeds everywhere" in note for note in again["notes"])
    with pytest.raises(UserError, match=r"was begun with other settings or data \(settings.training.weight_decay"):
        run.text_curve(bert, data, tmp_path / "c", labels=[24], changes=[*QUICK, "training.weight_decay=0.2"])
    with pytest.raises(UserError, match=r"expected 2 \(one for each class\) to 96 \(beside 24 to test on\), got 100"):
        run.text_curve(bert, data, tmp_path / "c", labels=[100], changes=QUICK)


def test_a_stopped_curve_goes_on_to_the_same_result(
    bert: Path, data: Path, curve: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = module.learn, 0

    def learn(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "learn", learn)
        with pytest.raises(Interrupted, match="2 of 24 results are kept"):
            run.text_curve(bert, data, tmp_path / "c", labels=[24, 48], seeds=3, changes=QUICK)
    result = run.text_curve(bert, data, tmp_path / "c", labels=[24, 48], seeds=3, changes=QUICK)
    assert result["sizes"] == curve[1]["sizes"]


def test_texts_to_test_on_are_never_trained_on(bert: Path, data: Path, tmp_path: Path) -> None:
    lines = data.read_text().splitlines()
    (tmp_path / "test.csv").write_text("\n".join([lines[0], *lines[1:31], "a dog,dog"]))
    arms = ["tfidf"]
    result = run.text_curve(bert, data, tmp_path / "c", test=tmp_path / "test.csv", labels=[30], arms=arms, seeds=1)
    assert result["n_tested"] == 30
    assert any(
        note.startswith("30 texts of the data, or others of their groups, are tested on") for note in result["notes"]
    )
    assert any("no training text has the class dog (1)" in note for note in result["notes"])
    drawn = json.loads((tmp_path / "c" / "subsets" / "seed-0.json").read_text())
    assert {row for _, row in drawn["train"]} == set(range(31, 121))
    labels = [lines[row].rsplit(",")[-1] for _, row in drawn["train"][:30]]
    assert Counter(labels) == {"cat": 20, "mat": 10}


def test_by_the_command(bothways: Call, fails: Callable[..., str], bert: Path, data: Path, tmp_path: Path) -> None:
    command = ("text", "curve", "--from", bert, "--data", data, "--out", tmp_path / "c")
    few = ("--labels", "24", "--seeds", "1", "--arm", "tfidf", "--arm", "frozen")
    code, said, err = bothways(*command, *few, "--measure", "auroc")
    assert code == 0, err
    assert "text curve: 1/2 done, now TF-IDF, logistic regression, 24 labels, seed 0" in err
    assert "24 labels" in said
    assert "frozen encoder, mean against TF-IDF, logistic regression: " in said
    code, said, err = bothways(*command, *few, "--json")
    assert json.loads(said)["measure"] == "accuracy"
    assert "expected some of frozen, full" in fails(*command, "--arm", "best")
    assert "expected 2 (one for each class) to 96 (beside 24 to test on), got 500" in fails(
        *command, "--labels", "500", "--overwrite"
    )
    assert "expected numbers of labels" in fails(*command, "--overwrite")
    assert "frozen, features: the arms of a curve say that" in fails(
        *command, "--set=frozen=true", "--set=features=cls"
    )
